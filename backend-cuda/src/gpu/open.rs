//! Detection and opening of GPUs.

use super::{
    Context, Gpu, LaunchOrder, MAX_STAGED_BYTES, nvrtc, readback::PinnedReadback, staging::Staging,
    upload::UploadStream,
};
use crate::{Cubins, Error, error::driver_error};
use cudarc::driver::{
    result::{self, device, stream},
    sys,
};
use std::sync::{Arc, Mutex};

impl Gpu {
    /// Returns the number of GPUs; 0 if the driver knows of none.
    pub(crate) fn count() -> Result<usize, Error> {
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

    /// Opens the GPU of that number, with machine code from `cubins`.
    pub(crate) fn open(ordinal: usize, cubins: Cubins) -> Result<Self, Error> {
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
            launch_order: LaunchOrder::of_device(arch)?,
            cubins,
            loaded: Mutex::default(),
            staging: Mutex::new(Staging::new(MAX_STAGED_BYTES)),
            readback: PinnedReadback::default(),
            upload,
        })
    }
}
