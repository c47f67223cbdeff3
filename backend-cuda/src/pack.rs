//! Values of formats of eight bits as bytes: exact conversions from halves and back.

use crate::{
    Cuda, Error,
    kernels::{self, Kernel},
    memory::Memory,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{backend, store_format::StoreFormat};

/// Parameters of both kernels: `PackedParams` of `pack.cu`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PackedParams {
    x: u64,
    y: u64,
    len: u32,
    is_e4m3: u32,
}

impl Cuda {
    pub(crate) fn run_pack(&self, format: StoreFormat, len: u32, x: &Memory, y: &Memory) -> Result<(), Error> {
        self.convert_codes(&kernels::PACK, format, len, x, y)
    }

    pub(crate) fn run_unpack(&self, format: StoreFormat, len: u32, x: &Memory, y: &Memory) -> Result<(), Error> {
        self.convert_codes(&kernels::UNPACK, format, len, x, y)
    }

    fn convert_codes(
        &self, kernel: &'static Kernel, format: StoreFormat, len: u32, x: &Memory, y: &Memory,
    ) -> Result<(), Error> {
        let is_e4m3 = match format {
            StoreFormat::Fp16 => return Err(backend::Error::unsupported("pack of fp16")),
            StoreFormat::E5m2 => 0,
            StoreFormat::E4m3 => 1,
        };
        let n = len as usize;
        let (len, blocks) = self.elementwise_grid(kernel, n)?;
        let params = PackedParams { x: x.expect_len(n).at(), y: y.expect_len(n).at(), len, is_e4m3 };
        // SAFETY: x and y hold `len` elements.
        unsafe { self.launch(kernel, blocks, &params) }
    }
}
