//! CUDA's driver.

mod beside;
mod landing;
mod maps;
pub mod nvrtc;

use crate::{
    Error,
    driver::{Driver, TensorMap, Tiled, Windows},
    kernels::Kernel,
};
use beside::Beside;
use bytemuck::NoUninit;
use core::ffi::c_void;
use cudarc::driver::{
    DriverError,
    result::{self, ctx, device, event, function, graph, module, primary_ctx, stream},
    sys,
};
use landing::Landing;
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// An NVIDIA GPU.
#[derive(Debug)]
pub struct Gpu {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    name: String,
    arch: u32,
    multiprocessors: u32,
    memory: u64,
    loaded: Mutex<Loaded>,
    landing: Landing,
    beside: Beside,
}

/// Modules and functions by name.
#[derive(Debug, Default)]
struct Loaded {
    modules: HashMap<&'static str, sys::CUmodule>,
    /// By module and entry.
    functions: HashMap<(&'static str, &'static str), sys::CUfunction>,
}

// SAFETY: the driver's functions may be called from every thread; each call below first makes the context current.
unsafe impl Send for Gpu {}
// SAFETY: as above; what changes is behind a lock.
unsafe impl Sync for Gpu {}

/// A recorded step.
#[derive(Debug)]
pub struct GpuRecording {
    context: sys::CUcontext,
    graph: sys::CUgraph,
    launches: sys::CUgraphExec,
}

// SAFETY: as for the device.
unsafe impl Send for GpuRecording {}
// SAFETY: repeating it goes through the device.
unsafe impl Sync for GpuRecording {}

impl Drop for GpuRecording {
    fn drop(&mut self) {
        // SAFETY: both were made for this recording.
        unsafe {
            ctx::set_current(self.context).ok();
            graph::exec_destroy(self.launches).ok();
            graph::destroy(self.graph).ok();
        }
    }
}

/// An error of the driver.
fn failed(doing: &'static str) -> impl Fn(DriverError) -> Error {
    use sys::cudaError_enum as code;
    move |error| {
        let lost = matches!(
            error.0,
            code::CUDA_ERROR_ILLEGAL_ADDRESS
                | code::CUDA_ERROR_LAUNCH_FAILED
                | code::CUDA_ERROR_LAUNCH_TIMEOUT
                | code::CUDA_ERROR_ILLEGAL_INSTRUCTION
                | code::CUDA_ERROR_MISALIGNED_ADDRESS
                | code::CUDA_ERROR_INVALID_ADDRESS_SPACE
                | code::CUDA_ERROR_INVALID_PC
                | code::CUDA_ERROR_HARDWARE_STACK_ERROR
                | code::CUDA_ERROR_ECC_UNCORRECTABLE
                | code::CUDA_ERROR_CONTEXT_IS_DESTROYED
        );
        let name = error.error_name().map_or_else(|_| format!("{:?}", error.0), |name| name.to_string_lossy().into());
        Error::Driver { doing, name, lost }
    }
}

impl crate::Cuda {
    /// How many devices there are; none without a driver.
    #[must_use]
    pub fn count() -> usize {
        Gpu::count().unwrap_or(0)
    }

    /// The device of that number; with `GRADSCALE_WARPGROUPS=0` in the environment,
    /// [without warpgroups](crate::Device::without_warpgroups).
    ///
    /// # Errors
    /// [`Error::NoLibrary`] without NVIDIA's driver or run-time compiler, [`Error::NoDevice`], [`Error::TooOld`], and
    /// the driver's.
    pub fn open(ordinal: usize) -> Result<Self, Error> {
        let device = Self::with_driver(Gpu::open(ordinal)?);
        let without = std::env::var_os("GRADSCALE_WARPGROUPS").is_some_and(|value| value == "0");
        Ok(if without { device.without_warpgroups() } else { device })
    }
}

impl Gpu {
    fn count() -> Result<usize, Error> {
        // cudarc panics without the library.
        // SAFETY: looking for the library runs its initialisers, which are NVIDIA's.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::NoLibrary { library: "cuda" });
        }
        if let Err(error) = result::init() {
            let none = error.0 == sys::cudaError_enum::CUDA_ERROR_NO_DEVICE;
            return if none { Ok(0) } else { Err(failed("start")(error)) };
        }
        let count = device::get_count().map_err(failed("count devices"))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    fn open(ordinal: usize) -> Result<Self, Error> {
        let count = Self::count()?;
        if ordinal >= count {
            return Err(Error::NoDevice { ordinal, count });
        }
        if !nvrtc::is_present() {
            return Err(Error::NoLibrary { library: "nvrtc" });
        }
        let device = device::get(i32::try_from(ordinal).unwrap_or(i32::MAX)).map_err(failed("open a device"))?;
        use sys::CUdevice_attribute_enum as attribute;
        let get = |what| {
            // SAFETY: the device is there.
            let value = unsafe { device::get_attribute(device, what) }.map_err(failed("describe a device"))?;
            Ok::<_, Error>(u32::try_from(value).unwrap_or(0))
        };
        let arch = 10 * get(attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + get(attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        if arch < 75 {
            return Err(Error::TooOld { arch });
        }
        let multiprocessors = get(attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1);
        let model = device::get_name(device).map_err(failed("describe a device"))?;
        // SAFETY: the device is there; its context is released when this is dropped.
        let (context, memory, stream, beside) = unsafe {
            let context = primary_ctx::retain(device).map_err(failed("open a device"))?;
            ctx::set_current(context).map_err(failed("open a device"))?;
            let memory = device::total_mem(device).map_err(failed("describe a device"))?;
            let stream = stream::create(stream::StreamKind::NonBlocking).map_err(failed("open a device"))?;
            (context, memory, stream, Beside::new().map_err(failed("open a device"))?)
        };
        let name = format!("CUDA {ordinal}, {model}, sm_{arch}, {multiprocessors} multiprocessors");
        let memory = memory as u64;
        Ok(Self {
            device,
            context,
            stream,
            name,
            arch,
            multiprocessors,
            memory,
            loaded: Mutex::default(),
            landing: Landing::default(),
            beside,
        })
    }

    /// The stream on which everything runs, for work beside the backend's own.
    #[must_use]
    pub const fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// The seconds that enqueued work takes on the device, as its own clock says. Waits.
    ///
    /// # Errors
    /// Those of the work, and the driver's.
    pub fn seconds(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
        self.enter()?;
        let timing = failed("measure time");
        let create = || event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map_err(&timing);
        let [start, end] = [create()?, create()?];
        // SAFETY: the events are this function's own, the stream lives.
        unsafe {
            let began = event::record(start, self.stream).map_err(&timing);
            let worked = began.and_then(|()| work());
            let ended = event::record(end, self.stream).and_then(|()| event::synchronize(end)).map_err(&timing);
            let milliseconds = event::elapsed(start, end).map_err(&timing);
            event::destroy(start).ok();
            event::destroy(end).ok();
            worked.and(ended)?;
            Ok(f64::from(milliseconds?) / 1e3)
        }
    }

    /// Every call to the driver may come from another thread.
    fn enter(&self) -> Result<(), Error> {
        // SAFETY: the context lives as long as this.
        unsafe { ctx::set_current(self.context) }.map_err(failed("enter a device"))
    }

    fn function(&self, kernel: &'static Kernel) -> Result<sys::CUfunction, Error> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&function) = loaded.functions.get(&(kernel.module.name, kernel.entry)) {
            return Ok(function);
        }
        let name = kernel.module.name;
        let code = match loaded.modules.get(name) {
            Some(&code) => code,
            None => {
                let compiled = nvrtc::compile(kernel.module, self.arch)?;
                // SAFETY: the compiler made the image for this device.
                let code =
                    unsafe { module::load_data(compiled.cubin.as_ptr().cast()) }.map_err(failed("load a module"))?;
                loaded.modules.insert(name, code);
                code
            }
        };
        let entry = std::ffi::CString::new(kernel.entry).unwrap_or_default();
        // SAFETY: the module is loaded and is never unloaded before this is dropped.
        let function = unsafe { module::get_function(code, entry) }.map_err(failed("find a kernel"))?;
        // More than 48 KiB must be asked for.
        if kernel.module.shared > 48 << 10 {
            let most = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function was found above.
            unsafe { function::set_function_attribute(function, most, kernel.module.shared.cast_signed()) }
                .map_err(failed("prepare a kernel"))?;
        }
        loaded.functions.insert((name, kernel.entry), function);
        Ok(function)
    }
}

// SAFETY: cuMemAlloc aligns to 256 bytes at least.
unsafe impl Driver for Gpu {
    type Recording = GpuRecording;

    fn name(&self) -> &str {
        &self.name
    }

    fn arch(&self) -> u32 {
        self.arch
    }

    fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    fn memory(&self) -> u64 {
        self.memory
    }

    fn alloc(&self, bytes: usize) -> Result<u64, Error> {
        self.enter()?;
        // SAFETY: the caller writes before it reads.
        unsafe { result::malloc_sync(bytes) }.map_err(|error| match error.0 {
            sys::cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY => Error::OutOfMemory { bytes: bytes as u64 },
            _ => failed("allocate")(error),
        })
    }

    unsafe fn free(&self, at: u64) {
        // SAFETY: the caller's promise. Nobody hears of an error here; the next call has it too.
        unsafe {
            self.enter().ok();
            // Work that is only recorded does not run, and must not be waited for.
            let idle = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
            if stream::is_capturing(self.stream).is_ok_and(|status| status == idle) {
                stream::synchronize(self.stream).ok();
            }
            result::free_sync(at).ok();
        }
    }

    unsafe fn copy_in(&self, src: &[u8], dst: u64) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's promise. From pageable memory the driver has read all of `src` on return.
        unsafe { result::memcpy_htod_async(dst, src, self.stream) }.map_err(failed("copy to the device"))
    }

    fn mark(&self) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the stream lives, in the current context.
        unsafe { self.beside.mark(self.stream) }.map_err(failed("mark a step"))
    }

    unsafe fn copy_beside(&self, src: &[u8], dst: u64) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's promise; the stream lives, in the current context.
        unsafe { self.beside.copy_in(self.stream, src, dst) }.map_err(failed("copy to the device"))
    }

    unsafe fn copy_out(&self, parts: &mut [(u64, &mut [u8])]) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's promise; the context is current.
        unsafe { self.landing.copy_out(self.stream, parts) }.map_err(failed("copy from the device"))
    }

    unsafe fn zero(&self, at: u64, bytes: usize) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's promise.
        unsafe { result::memset_d8_async(at, 0, bytes, self.stream) }.map_err(failed("fill memory"))
    }

    unsafe fn launch<P: NoUninit>(&self, kernel: &'static Kernel, blocks: [u32; 3], params: &P) -> Result<(), Error> {
        self.enter()?;
        let function = self.function(kernel)?;
        let mut arguments = [(&raw const *params).cast::<c_void>().cast_mut()];
        let [x, y, z] = blocks;
        let (threads, shared) = (kernel.module.threads, kernel.module.shared);
        // SAFETY: the caller's promise; the driver copies the parameters before it returns.
        unsafe {
            result::launch_kernel(function, (x, y, z), (threads, 1, 1), shared, self.stream, &mut arguments)
                .map_err(failed("launch a kernel"))
        }
    }

    fn tensor_map(&self, tensor: &Tiled) -> Result<TensorMap, Error> {
        self.enter()?;
        maps::tiled(tensor).map_err(failed("describe a matrix"))
    }

    fn window_map(&self, windows: &Windows) -> Result<TensorMap, Error> {
        self.enter()?;
        maps::windows(windows).map_err(failed("describe windows"))
    }

    fn start_recording(&self) -> Result<(), Error> {
        self.enter()?;
        // Relaxed: other streams and threads may do as they like.
        // SAFETY: the stream lives.
        unsafe { stream::begin_capture(self.stream, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED) }
            .map_err(failed("start a recording"))
    }

    fn stop_recording(&self) -> Result<GpuRecording, Error> {
        self.enter()?;
        // SAFETY: the stream lives; the graph is destroyed with the recording, or here.
        unsafe {
            let kept = stream::end_capture(self.stream).map_err(failed("end a recording"))?;
            match graph::instantiate(kept, sys::CUgraphInstantiate_flags(0)) {
                Ok(launches) => Ok(GpuRecording { context: self.context, graph: kept, launches }),
                Err(error) => {
                    graph::destroy(kept).ok();
                    Err(failed("end a recording")(error))
                }
            }
        }
    }

    unsafe fn repeat(&self, recording: &GpuRecording) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the recording is whole; its memory lives, as the caller says.
        unsafe { graph::launch(recording.launches, self.stream) }.map_err(failed("repeat a step"))
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let loaded = self.loaded.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all of these were made by this device, whose buffers and recordings are gone, and are used no more.
        unsafe {
            ctx::set_current(self.context).ok();
            stream::synchronize(self.stream).ok();
            for (_, code) in loaded.modules.drain() {
                module::unload(code).ok();
            }
            self.beside.free();
            self.landing.free();
            stream::destroy(self.stream).ok();
            primary_ctx::release(self.device).ok();
        }
    }
}
