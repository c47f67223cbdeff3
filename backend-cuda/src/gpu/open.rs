//! Detection and opening of devices, and conversion of the driver's errors.

use super::{Context, Gpu, MAX_STAGED_BYTES, nvrtc, readback::PinnedReadback, staging::Staging, upload::UploadStream};
use crate::{Cubins, Error};
use cudarc::driver::{
    DriverError,
    result::{self, device, stream},
    sys,
};
use std::sync::{Arc, Mutex};

/// Returns a function that converts an error of the driver to the backend's error; `doing` names the failed operation.
pub(super) fn driver_error(doing: &'static str) -> impl Fn(DriverError) -> Error {
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
    /// Returns the number of devices; 0 without a driver.
    #[must_use]
    pub fn count() -> usize {
        Gpu::count().unwrap_or(0)
    }

    /// Opens the device of that number, with machine code [where a program looks for it](Cubins::of_user); with
    /// `GRADSCALE_WARPGROUPS=0` in the environment, [without warpgroups](Self::without_warpgroups).
    ///
    /// # Errors
    /// [`Error::NoLibrary`] without NVIDIA's driver, or without its run-time compiler and machine code for the device;
    /// [`Error::NoDevice`], [`Error::TooOld`], and the driver's.
    pub fn open(ordinal: usize) -> Result<Self, Error> {
        Self::open_with(ordinal, Cubins::of_user())
    }

    /// Opens a device with machine code from `cubins`.
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
            return if none { Ok(0) } else { Err(driver_error("start")(error)) };
        }
        let count = device::get_count().map_err(driver_error("count devices"))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    fn open(ordinal: usize, cubins: Cubins) -> Result<Self, Error> {
        let count = Self::count()?;
        if ordinal >= count {
            return Err(Error::NoDevice { ordinal, count });
        }
        let device = device::get(i32::try_from(ordinal).unwrap_or(i32::MAX)).map_err(driver_error("open a device"))?;
        use sys::CUdevice_attribute_enum as attribute;
        let get = |what| {
            // SAFETY: the device is there.
            let value = unsafe { device::get_attribute(device, what) }.map_err(driver_error("describe a device"))?;
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
        let model = device::get_name(device).map_err(driver_error("describe a device"))?;
        let context = Arc::new(Context::retain(device)?);
        context.enter()?;
        // SAFETY: the device is there.
        let memory = unsafe { device::total_mem(device) }.map_err(driver_error("describe a device"))?;
        let upload = UploadStream::new().map_err(driver_error("open a device"))?;
        let stream = stream::create(stream::StreamKind::NonBlocking).map_err(driver_error("open a device"))?;
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
            staging: Mutex::new(Staging::new(MAX_STAGED_BYTES)),
            readback: PinnedReadback::default(),
            upload,
        })
    }
}
