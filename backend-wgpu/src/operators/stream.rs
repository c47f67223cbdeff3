//! A copy by a kernel, as a baseline of kernels: a driver's own copy may use another engine of the GPU.

use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{KernelLaunch, strided_workgroups},
};

/// Bytes of an element of the copy kernel in stream.wgsl.
const ELEMENT_BYTES: u64 = 16;

impl Wgpu {
    /// Enqueues a kernel that copies the start of a buffer to another, `bytes` long (a multiple of 16), 16 bytes at a
    /// time.
    ///
    /// # Errors
    /// The device's; [`Error::OutOfMemory`] for more bytes than one binding shows.
    ///
    /// # Panics
    /// If a buffer is shorter, or `bytes` is not a multiple of 16.
    pub fn copy_by_kernel(&self, from: &Memory, to: &mut Memory, bytes: u64) -> Result<(), Error> {
        assert!(bytes.is_multiple_of(ELEMENT_BYTES), "{bytes} bytes are not a multiple of {ELEMENT_BYTES}");
        assert!(bytes <= from.bytes().size.min(to.bytes().size), "{bytes} bytes are more than the buffers hold");
        let count = u32::try_from(bytes / ELEMENT_BYTES).unwrap_or(u32::MAX);
        let call =
            KernelLaunch::new(&kernel::STREAM).params([count]).part(3, to.part(0, bytes)).part(5, from.part(0, bytes));
        self.launch(call, strided_workgroups(count))
    }
}
