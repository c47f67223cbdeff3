//! Kernel launches, whose start may overlap with the end of the kernel before (programmatic dependent launch).
//!
//! A dependent launch begins when all blocks of the kernel before have started to work. Launch, scheduling of blocks and
//! fetching of parameters then overlap with that kernel. Every kernel waits for the kernels before it until it accesses
//! global memory, and only then lets the next one start (`synchronize_grid_dependency` in `ptx.cuh`). So the order of
//! all accesses is that of serial launches.
//!
//! Copies, fills, events and kernels that are launched without the attribute wait for the complete kernel before, and
//! a dependent launch after them waits for their end ("Programmatic Dependent Launch", CUDA Programming Guide). A
//! stream capture keeps the dependence as a programmatic edge from CUDA 12.3 on.

use super::Gpu;
use crate::{Error, error::driver_error, kernels::Kernel};
use bytemuck::NoUninit;
use core::ffi::c_void;
use cudarc::driver::{result, sys};

/// Minimum compute capability of dependent launches.
const MIN_ARCH: u32 = 90;
/// Minimum version of the driver, as `cuDriverGetVersion` returns it, for captures of dependent launches.
const MIN_DRIVER_VERSION: i32 = 12_030;

/// Order of a launch after the kernel before it on the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchOrder {
    /// Starts when the kernel before is complete.
    Serial,
    /// Starts when the blocks of the kernel before have started, and waits inside the kernel.
    Dependent,
}

impl LaunchOrder {
    /// Returns the order that a device of a compute capability has by default: dependent if device and driver support it.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn of_device(arch: u32) -> Result<Self, Error> {
        let mut version = 0;
        // SAFETY: the number is a local variable.
        unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().map_err(driver_error("describe a device"))?;
        let is_supported = arch >= MIN_ARCH && version >= MIN_DRIVER_VERSION;
        Ok(if is_supported { Self::Dependent } else { Self::Serial })
    }
}

impl Gpu {
    /// Returns the order of launches that this GPU and its driver support.
    pub(crate) fn launch_order(&self) -> LaunchOrder {
        self.launch_order
    }

    /// Launches a kernel, which is compiled first if it is new.
    ///
    /// # Safety
    /// `params` have the layout of the kernel's parameters (`repr(C)`), and all memory that they refer to exists and
    /// has the length that the kernel expects. The GPU supports the order.
    ///
    /// # Errors
    /// [`Error::Compile`], and the driver's.
    pub(crate) unsafe fn launch<P: NoUninit>(
        &self, kernel: &'static Kernel, order: LaunchOrder, blocks: [u32; 3], params: &P,
    ) -> Result<(), Error> {
        self.enter()?;
        let function = self.function(kernel)?.handle;
        let mut arguments = [(&raw const *params).cast::<c_void>().cast_mut()];
        let [x, y, z] = blocks;
        let (threads, shared) = (kernel.module.threads, kernel.module.shared_bytes(self.arch));
        // SAFETY: the caller's promise; the driver copies the parameters before it returns.
        let launched = unsafe {
            match order {
                LaunchOrder::Serial => {
                    result::launch_kernel(function, (x, y, z), (threads, 1, 1), shared, self.stream, &mut arguments)
                }
                LaunchOrder::Dependent => {
                    let mut attribute = sys::CUlaunchAttribute {
                        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                        pad: [0; 4],
                        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
                    };
                    let config = sys::CUlaunchConfig {
                        gridDimX: x,
                        gridDimY: y,
                        gridDimZ: z,
                        blockDimX: threads,
                        blockDimY: 1,
                        blockDimZ: 1,
                        sharedMemBytes: shared,
                        hStream: self.stream,
                        attrs: &raw mut attribute,
                        numAttrs: 1,
                    };
                    sys::cuLaunchKernelEx(&raw const config, function, arguments.as_mut_ptr(), core::ptr::null_mut())
                        .result()
                }
            }
        };
        launched.map_err(driver_error("launch a kernel"))
    }
}
