//! Access to CUDA's driver: memory, launches and recordings. One stream executes all work in the order of the calls,
//! and another one executes copies in parallel.

mod context;
mod launch;
pub mod nvrtc;
mod open;
mod readback;
mod recording;
mod staging;
mod tensor_maps;
mod timing;
mod upload;

pub use launch::LaunchOrder;
pub use recording::GpuRecording;
pub use tensor_maps::{Im2col, Planes, TensorMap, Tiled};

use crate::{CubinReport, Cubins, Error, error::driver_error, kernels::Kernel};
use context::Context;
use cudarc::driver::{
    result::{self, event, function, module, stream},
    sys,
};
use readback::PinnedReadback;
use staging::Staging;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use upload::UploadStream;

/// Maximum bytes of one staged copy in stream order. Per-step data are far smaller; for weights the host waits until
/// the previous piece is copied.
const MAX_STAGED_BYTES: usize = 4 << 20;

/// NVIDIA GPU with its stream, modules and memory.
#[derive(Debug)]
pub struct Gpu {
    context: Arc<Context>,
    stream: sys::CUstream,
    name: String,
    arch: u32,
    multiprocessors: u32,
    memory: u64,
    /// Order of launches that the GPU and its driver support.
    launch_order: LaunchOrder,
    cubins: Cubins,
    loaded: Mutex<Loaded>,
    staging: Mutex<Staging>,
    readback: PinnedReadback,
    upload: UploadStream,
}

/// Loaded modules and kernel functions by name.
#[derive(Debug, Default)]
struct Loaded {
    modules: HashMap<&'static str, sys::CUmodule>,
    /// Loaded kernels by module and entry point.
    functions: HashMap<(&'static str, &'static str), Function>,
}

/// Kernel entry point loaded on this GPU, with its occupancy.
#[derive(Clone, Copy, Debug)]
struct Function {
    handle: sys::CUfunction,
    /// Number of the kernel's blocks that a multiprocessor holds at once.
    resident_blocks: u32,
}

// SAFETY: the driver's functions may be called from every thread; each call below first makes the context current.
unsafe impl Send for Gpu {}
// SAFETY: as above; mutable state is behind a lock.
unsafe impl Sync for Gpu {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    /// Returns the sources of the machine code so far, and the number of compilations.
    #[must_use]
    pub fn cubins(&self) -> CubinReport {
        self.cubins.report()
    }

    /// Returns the stream on which everything runs, for work outside this backend.
    #[must_use]
    pub fn stream(&self) -> sys::CUstream {
        if self.upload.watches() && self.enter().is_ok() {
            // SAFETY: the stream lives, in the current context; who records launches by the backend alone.
            unsafe { self.upload.before_foreign_work(self.stream) };
        }
        self.stream
    }

    /// Measures the seconds that enqueued work takes on the device, by its own clock, and waits for it.
    ///
    /// # Errors
    /// Those of the work, and the driver's.
    pub fn seconds(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
        self.enter()?;
        let timing = driver_error("measure time");
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

    pub(crate) fn enter(&self) -> Result<(), Error> {
        self.context.enter()
    }

    /// Returns a loaded kernel, compiling and loading it at its first use.
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
                    unsafe { module::load_data(code.as_ptr().cast()) }.map_err(driver_error("load a module"))
                })?;
                loaded.modules.insert(name, code);
                code
            }
        };
        let entry = std::ffi::CString::new(kernel.entry).unwrap_or_default();
        // SAFETY: the module is loaded and is never unloaded before this is dropped.
        let handle = unsafe { module::get_function(code, entry) }.map_err(driver_error("find a kernel"))?;
        let (threads, shared) = (kernel.module.threads, kernel.module.shared_bytes(self.arch));
        let mut resident_blocks = 0;
        // More than 48 KiB must be asked for, a kernel's own static part included.
        let most = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function was found above; the number is this function's own.
        unsafe {
            function::set_function_attribute(handle, most, shared.cast_signed())
                .map_err(driver_error("prepare a kernel"))?;
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut resident_blocks,
                handle,
                threads.cast_signed(),
                shared as usize,
            )
            .result()
            .map_err(driver_error("prepare a kernel"))?;
        }
        let function = Function { handle, resident_blocks: u32::try_from(resident_blocks).unwrap_or(0).max(1) };
        loaded.functions.insert((name, kernel.entry), function);
        Ok(function)
    }

    /// Returns the number of blocks of a kernel that the device holds at once: as many as an elementwise kernel should
    /// have. Compiles it first where it is new.
    ///
    /// # Errors
    /// [`Error::Compile`], and the driver's.
    pub(crate) fn resident_blocks(&self, kernel: &'static Kernel) -> Result<u32, Error> {
        self.enter()?;
        Ok(self.function(kernel)?.resident_blocks * self.multiprocessors)
    }

    /// Returns the device name that error messages and reports show.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the GPU's compute capability, as in `sm_80`.
    #[must_use]
    pub fn arch(&self) -> u32 {
        self.arch
    }

    /// Returns the number of the GPU's multiprocessors.
    pub(crate) fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// Returns the bytes of the GPU's memory.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Allocates device memory without initialising it, and returns its address.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], and the driver's.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<u64, Error> {
        self.enter()?;
        // SAFETY: the caller writes before it reads.
        unsafe { result::malloc_sync(bytes) }.map_err(|error| match error.0 {
            sys::cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY => Error::OutOfMemory { bytes: bytes as u64 },
            _ => driver_error("allocate")(error),
        })
    }

    /// Frees memory after the work already enqueued.
    ///
    /// # Safety
    /// `at` comes from [`Self::alloc`], and nothing enqueued later uses it.
    pub(crate) unsafe fn free(&self, at: u64) {
        // SAFETY: the caller's promise. An error here is ignored, because the next call returns it too.
        unsafe {
            self.enter().ok();
            // Work that is only recorded does not run, and must not be waited for.
            let idle = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
            if stream::is_capturing(self.stream).is_ok_and(|status| status == idle) {
                stream::synchronize(self.stream).ok();
            }
            self.upload.before_freeing(at);
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
        unsafe { lock(&self.staging).copy_in(src, dst, self.stream) }.map_err(driver_error("copy to the device"))
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
        unsafe { self.readback.copy_out(self.stream, parts) }.map_err(driver_error("copy from the device"))?;
        // It waited for all that went before.
        lock(&self.staging).arrived();
        Ok(())
    }

    /// Waits until all work enqueued on the GPU is done.
    ///
    /// # Errors
    /// The driver's, also those of earlier work.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the stream lives, in the current context.
        unsafe { stream::synchronize(self.stream) }.map_err(driver_error("wait"))
    }

    /// Enqueues filling device memory with zeros.
    ///
    /// # Safety
    /// Device memory from `at` on has `bytes` bytes.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn zero(&self, at: u64, bytes: usize) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's promise.
        unsafe { result::memset_d8_async(at, 0, bytes, self.stream) }.map_err(driver_error("fill memory"))
    }

    /// Encodes the tensor map that kernels pass to TMA.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn tensor_map(&self, tensor: &Tiled) -> Result<TensorMap, Error> {
        self.enter()?;
        tensor_maps::tiled(tensor).map_err(driver_error("describe a matrix"))
    }

    /// Encodes the tensor map of images in planes of eight channels that kernels pass to TMA.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn planes_map(&self, images: &Planes) -> Result<TensorMap, Error> {
        self.enter()?;
        tensor_maps::planes(images).map_err(driver_error("describe planes"))
    }

    /// Encodes the im2col tensor map that kernels pass to TMA.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn im2col_map(&self, pixels: &Im2col) -> Result<TensorMap, Error> {
        self.enter()?;
        tensor_maps::im2col(pixels).map_err(driver_error("describe pixels"))
    }

    /// Starts a recording: launches are recorded, not run.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn start_recording(&self) -> Result<(), Error> {
        self.enter()?;
        // Relaxed: other streams and threads may do as they like.
        // SAFETY: the stream lives.
        unsafe {
            self.upload.before_foreign_work(self.stream);
            stream::begin_capture(self.stream, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)
        }
        .map_err(driver_error("start a recording"))?;
        self.upload.begin_recording();
        Ok(())
    }

    /// Ends the recording and returns its launches.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn stop_recording(&self) -> Result<GpuRecording, Error> {
        let used = self.upload.end_recording();
        self.enter()?;
        // SAFETY: the stream lives, in this context, and records.
        unsafe { GpuRecording::end(&self.context, self.stream, used) }
    }

    /// Enqueues all launches of a recording again.
    ///
    /// # Safety
    /// All memory that its launches name still lives.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn repeat(&self, recording: &GpuRecording) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's promise; the stream lives.
        unsafe {
            self.upload.before_replay(self.stream, recording.used());
            recording.repeat(self.stream)
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        self.enter().ok();
        let loaded = self.loaded.get_mut().unwrap_or_else(PoisonError::into_inner);
        let staging = self.staging.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all of these were created by this device, whose buffers are freed, and are not used any more:
        // recordings that refer to them are never replayed.
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
