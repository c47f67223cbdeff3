//! CUDA's driver: memory, launches, recordings. One stream of work, in which everything runs in the order of the calls,
//! and copies beside it.

mod context;
mod maps;
pub mod nvrtc;
mod readback;
mod recording;
mod staging;
mod upload;

pub use maps::{TensorMap, Tiled, Windows};
pub use recording::GpuRecording;

use crate::{CubinReport, Cubins, Error, kernels::Kernel};
use bytemuck::NoUninit;
use context::Context;
use core::ffi::c_void;
use cudarc::driver::{
    DriverError,
    result::{self, device, event, function, module, stream},
    sys,
};
use readback::PinnedReadback;
use staging::Staging;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use upload::UploadStream;

/// Bytes that are copied at once, at most, in the order of the work: numbers of a step are far below, and of weights the
/// host waits for what goes before.
const MOST: usize = 4 << 20;

/// An NVIDIA GPU.
#[derive(Debug)]
pub struct Gpu {
    context: Arc<Context>,
    stream: sys::CUstream,
    name: String,
    arch: u32,
    multiprocessors: u32,
    memory: u64,
    cubins: Cubins,
    loaded: Mutex<Loaded>,
    staging: Mutex<Staging>,
    readback: PinnedReadback,
    upload: UploadStream,
}

/// Modules and functions by name.
#[derive(Debug, Default)]
struct Loaded {
    modules: HashMap<&'static str, sys::CUmodule>,
    /// By module and entry.
    functions: HashMap<(&'static str, &'static str), Function>,
}

/// A kernel on this device.
#[derive(Clone, Copy, Debug)]
struct Function {
    handle: sys::CUfunction,
    /// Blocks that a multiprocessor holds at once.
    resident: u32,
}

// SAFETY: the driver's functions may be called from every thread; each call below first makes the context current.
unsafe impl Send for Gpu {}
// SAFETY: as above; what changes is behind a lock.
unsafe impl Sync for Gpu {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
                | code::CUDA_ERROR_ASSERT
                | code::CUDA_ERROR_UNKNOWN
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

    /// The device of that number, with machine code [where a program looks for it](Cubins::of_user); with
    /// `GRADSCALE_WARPGROUPS=0` in the environment, [without warpgroups](Self::without_warpgroups).
    ///
    /// # Errors
    /// [`Error::NoLibrary`] without NVIDIA's driver, or without its run-time compiler and machine code for the device;
    /// [`Error::NoDevice`], [`Error::TooOld`], and the driver's.
    pub fn open(ordinal: usize) -> Result<Self, Error> {
        Self::open_with(ordinal, Cubins::of_user())
    }

    /// The same, with machine code from where it is said.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(ordinal: usize, cubins: Cubins) -> Result<Self, Error> {
        let device = Self::on(Gpu::open(ordinal, cubins)?);
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

    fn open(ordinal: usize, cubins: Cubins) -> Result<Self, Error> {
        let count = Self::count()?;
        if ordinal >= count {
            return Err(Error::NoDevice { ordinal, count });
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
        if !nvrtc::is_present() && !cubins.has_any(arch) {
            return Err(Error::NoLibrary { library: "nvrtc" });
        }
        let multiprocessors = get(attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1);
        let model = device::get_name(device).map_err(failed("describe a device"))?;
        let context = Arc::new(Context::retain(device)?);
        context.enter()?;
        // SAFETY: the device is there.
        let memory = unsafe { device::total_mem(device) }.map_err(failed("describe a device"))?;
        let upload = UploadStream::new().map_err(failed("open a device"))?;
        let stream = stream::create(stream::StreamKind::NonBlocking).map_err(failed("open a device"))?;
        let name = format!("CUDA {ordinal}, {model}, sm_{arch}, {multiprocessors} multiprocessors");
        let memory = memory as u64;
        Ok(Self {
            context,
            stream,
            name,
            arch,
            multiprocessors,
            memory,
            cubins,
            loaded: Mutex::default(),
            staging: Mutex::new(Staging::new(MOST)),
            readback: PinnedReadback::default(),
            upload,
        })
    }

    /// Where machine code of kernels was found so far, and how much was compiled.
    #[must_use]
    pub fn cubins(&self) -> CubinReport {
        self.cubins.report()
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

    fn enter(&self) -> Result<(), Error> {
        self.context.enter()
    }

    /// A kernel, loaded and compiled first where it is new.
    fn function(&self, kernel: &'static Kernel) -> Result<Function, Error> {
        let mut loaded = lock(&self.loaded);
        let name = kernel.module.name;
        if let Some(&function) = loaded.functions.get(&(name, kernel.entry)) {
            return Ok(function);
        }
        let code = match loaded.modules.get(name) {
            Some(&code) => code,
            None => {
                let code = self.cubins.load(kernel.module, self.arch, |code| {
                    // SAFETY: the compiler made the image for this device.
                    unsafe { module::load_data(code.as_ptr().cast()) }.map_err(failed("load a module"))
                })?;
                loaded.modules.insert(name, code);
                code
            }
        };
        let entry = std::ffi::CString::new(kernel.entry).unwrap_or_default();
        // SAFETY: the module is loaded and is never unloaded before this is dropped.
        let handle = unsafe { module::get_function(code, entry) }.map_err(failed("find a kernel"))?;
        let (threads, shared) = (kernel.module.threads, kernel.module.shared);
        let mut resident = 0;
        // More than 48 KiB must be asked for, a kernel's own static part included.
        let most = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function was found above; the number is this function's own.
        unsafe {
            function::set_function_attribute(handle, most, shared.cast_signed()).map_err(failed("prepare a kernel"))?;
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut resident,
                handle,
                threads.cast_signed(),
                shared as usize,
            )
            .result()
            .map_err(failed("prepare a kernel"))?;
        }
        let function = Function { handle, resident: u32::try_from(resident).unwrap_or(0).max(1) };
        loaded.functions.insert((name, kernel.entry), function);
        Ok(function)
    }

    /// Blocks of a kernel that the device holds at once: as many as there should be of one whose blocks go from element
    /// to element. Compiles it first where it is new.
    ///
    /// # Errors
    /// [`Error::Compile`], and the driver's.
    pub(crate) fn resident(&self, kernel: &'static Kernel) -> Result<u32, Error> {
        self.enter()?;
        Ok(self.function(kernel)?.resident * self.multiprocessors)
    }

    /// For people.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Compute capability, as in `sm_80`.
    pub(crate) fn arch(&self) -> u32 {
        self.arch
    }

    /// Blocks run on so many multiprocessors.
    pub(crate) fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Memory with any content.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], and the driver's.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<u64, Error> {
        self.enter()?;
        // SAFETY: the caller writes before it reads.
        unsafe { result::malloc_sync(bytes) }.map_err(|error| match error.0 {
            sys::cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY => Error::OutOfMemory { bytes: bytes as u64 },
            _ => failed("allocate")(error),
        })
    }

    /// Frees memory after the work already enqueued.
    ///
    /// # Safety
    /// `at` comes from [`Self::alloc`], and nothing enqueued later uses it.
    pub(crate) unsafe fn free(&self, at: u64) {
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

    /// Copies to the device; `src` may be reused on return.
    ///
    /// # Safety
    /// Device memory from `dst` on is as long as `src`.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn copy_in(&self, src: &[u8], dst: u64) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's promise; the stream lives, in the current context.
        unsafe { lock(&self.staging).copy_in(src, dst, self.stream) }.map_err(failed("copy to the device"))
    }

    /// What is enqueued before this comes before every later [`Self::copy_beside`].
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn mark(&self) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the stream lives, in the current context.
        unsafe { self.upload.mark(self.stream) }.map_err(failed("mark a step"))
    }

    /// Copies to the device beside all that was enqueued since the last [`Self::mark`], which must not use that
    /// memory. Whatever is enqueued later comes after it. `src` may be reused on return.
    ///
    /// # Safety
    /// As [`Self::copy_in`].
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn copy_beside(&self, src: &[u8], dst: u64) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's promise; the stream lives, in the current context.
        unsafe { self.upload.copy_in(self.stream, src, dst) }.map_err(failed("copy to the device"))
    }

    /// Copies to the host, each part from its address, and waits, once for all.
    ///
    /// # Safety
    /// Device memory from each address on is as long as its part.
    ///
    /// # Errors
    /// The driver's, also those of earlier work.
    pub(crate) unsafe fn copy_out(&self, parts: &mut [(u64, &mut [u8])]) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's promise; the context is current.
        unsafe { self.readback.copy_out(self.stream, parts) }.map_err(failed("copy from the device"))?;
        // It waited for all that went before.
        lock(&self.staging).arrived();
        Ok(())
    }

    /// Fills with zeros.
    ///
    /// # Safety
    /// Device memory from `at` on has `bytes` bytes.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn zero(&self, at: u64, bytes: usize) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's promise.
        unsafe { result::memset_d8_async(at, 0, bytes, self.stream) }.map_err(failed("fill memory"))
    }

    /// Launches a kernel; compiles it first where it is new.
    ///
    /// # Safety
    /// `params` are laid out as what the kernel takes (`repr(C)`), and all memory it names is there and as long as the kernel expects.
    ///
    /// # Errors
    /// [`Error::Compile`], and the driver's.
    pub(crate) unsafe fn launch<P: NoUninit>(
        &self, kernel: &'static Kernel, blocks: [u32; 3], params: &P,
    ) -> Result<(), Error> {
        self.enter()?;
        let function = self.function(kernel)?.handle;
        let mut arguments = [(&raw const *params).cast::<c_void>().cast_mut()];
        let [x, y, z] = blocks;
        let (threads, shared) = (kernel.module.threads, kernel.module.shared);
        // SAFETY: the caller's promise; the driver copies the parameters before it returns.
        unsafe {
            result::launch_kernel(function, (x, y, z), (threads, 1, 1), shared, self.stream, &mut arguments)
                .map_err(failed("launch a kernel"))
        }
    }

    /// What kernels hand to the copy engine.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn tensor_map(&self, tensor: &Tiled) -> Result<TensorMap, Error> {
        self.enter()?;
        maps::tiled(tensor).map_err(failed("describe a matrix"))
    }

    /// The same for pixels.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn window_map(&self, windows: &Windows) -> Result<TensorMap, Error> {
        self.enter()?;
        maps::windows(windows).map_err(failed("describe windows"))
    }

    /// From here on launches are kept, not run.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn start_recording(&self) -> Result<(), Error> {
        self.enter()?;
        // Relaxed: other streams and threads may do as they like.
        // SAFETY: the stream lives.
        unsafe { stream::begin_capture(self.stream, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED) }
            .map_err(failed("start a recording"))
    }

    /// The launches since the start.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn stop_recording(&self) -> Result<GpuRecording, Error> {
        self.enter()?;
        // SAFETY: the stream lives, in this context, and records.
        unsafe { GpuRecording::end(&self.context, self.stream) }
    }

    /// Runs a recording.
    ///
    /// # Safety
    /// All memory that its launches name still lives.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn repeat(&self, recording: &GpuRecording) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's promise; the stream lives.
        unsafe { recording.repeat(self.stream) }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        self.enter().ok();
        let loaded = self.loaded.get_mut().unwrap_or_else(PoisonError::into_inner);
        let staging = self.staging.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all of these were made by this device, whose buffers are gone, and are used no more: what a recording
        // keeps is never repeated.
        unsafe {
            stream::synchronize(self.stream).ok();
            for (_, code) in loaded.modules.drain() {
                module::unload(code).ok();
            }
            staging.free();
            self.upload.free();
            self.readback.free();
            stream::destroy(self.stream).ok();
        }
    }
}
