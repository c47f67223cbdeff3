//! Values of formats of eight bits as bytes: exact conversions from halves and back.

use crate::{
    Error, Memory, Wgpu,
    kernel::{self, Kernel},
    launch::{KernelLaunch, strided_workgroups},
};
use gradscale_core::{backend, store_format::StoreFormat};

impl Wgpu {
    pub(crate) fn run_pack(&self, format: StoreFormat, len: u32, x: &Memory, y: &Memory) -> Result<(), Error> {
        self.convert(&kernel::PACK, format, len, x, y)
    }

    pub(crate) fn run_unpack(&self, format: StoreFormat, len: u32, x: &Memory, y: &Memory) -> Result<(), Error> {
        self.convert(&kernel::UNPACK, format, len, x, y)
    }

    fn convert(
        &self, kernel: &'static Kernel, format: StoreFormat, len: u32, x: &Memory, y: &Memory,
    ) -> Result<(), Error> {
        let is_e4m3 = match format {
            StoreFormat::Fp16 => return Err(backend::Error::unsupported("pack of fp16")),
            StoreFormat::E5m2 => 0,
            StoreFormat::E4m3 => 1,
        };
        if len == 0 {
            return Ok(());
        }
        let call = KernelLaunch::new(kernel).constant("IS_E4M3", is_e4m3).params([len]);
        self.launch(call.memory(3, y).memory(5, x), strided_workgroups(len.div_ceil(4)))
    }
}
