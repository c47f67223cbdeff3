//! Buffers: device memory of one type.

use crate::{Error, gpu::Gpu};
use gradscale_core::backend::{Buffer, DType};
use std::sync::Arc;

/// Device memory of the CUDA backend, with the type of its elements.
#[derive(Debug)]
pub struct Memory {
    gpu: Arc<Gpu>,
    at: u64,
    dtype: DType,
    len: usize,
}

impl Memory {
    pub(crate) fn new(gpu: &Arc<Gpu>, dtype: DType, len: usize) -> Result<Self, Error> {
        let bytes = (len as u64).saturating_mul(dtype.size() as u64);
        let room = usize::try_from(bytes).ok().filter(|_| bytes <= gpu.memory());
        // Some byte, so that every buffer has an address.
        let at = gpu.alloc(room.ok_or(Error::OutOfMemory { bytes })?.max(1))?;
        Ok(Self { gpu: gpu.clone(), at, dtype, len })
    }

    /// Returns the address of the first element, for the work that is enqueued next: that work is ordered after copies
    /// to this memory.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.gpu.before_use(self.at);
        self.at
    }

    /// Returns the address for another copy by prefetch, of memory that holds `dtype`.
    pub(crate) fn prefetch_address(&self, dtype: DType) -> u64 {
        self.check(dtype);
        self.at
    }

    /// Returns the number by which kernels know the type of the elements.
    pub(crate) const fn kind(&self) -> u32 {
        self.dtype.code()
    }

    /// Returns the device address of memory whose elements must be of type `dtype`.
    pub(crate) fn typed_address(&self, dtype: DType) -> u64 {
        self.check(dtype);
        self.at()
    }

    fn check(&self, dtype: DType) {
        assert_eq!(self.dtype, dtype, "a buffer of another type than the operator takes");
    }

    /// Panics unless the memory has at least `len` elements, because kernels do not check.
    pub(crate) fn expect_len(&self, len: usize) -> &Self {
        assert!(self.len >= len, "a buffer of {} elements where {len} are needed", self.len);
        self
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the address belongs to this buffer only; recordings keep the buffers that they use alive.
        unsafe { self.gpu.free(self.at) }
    }
}

impl Buffer for Memory {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn len(&self) -> usize {
        self.len
    }
}
