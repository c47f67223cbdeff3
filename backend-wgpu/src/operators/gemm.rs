//! Matrix products. There is no gemv kernel: with few rows or columns they take tiles of 16 × 16 results.

use crate::{Error, Memory, Wgpu, kernel, operators::tiled_gemm::TiledGemm};
use gradscale_core::{
    backend::Store,
    ops::{Gemm, GemmShape},
};

impl Wgpu {
    pub(crate) fn run_gemm(
        &self, p: &Gemm, a: &Memory, b: &Memory, bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let GemmShape { m, n, .. } = p.shape();
        if m == 0 || n == 0 || p.batch() == 0 {
            return Ok(());
        }
        match self.coop_for(p, [a, b], bias, y) {
            Some(coop) => self.run_coop(coop, p, [a, b], bias, y),
            None => self.run_tiles(p, [a, b], bias, y),
        }
    }

    pub(crate) fn run_tiles(
        &self, p: &Gemm, operands: [&Memory; 2], bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let [lead_a, lead_b, ldy] = p.lead();
        let [stride_a, stride_b, stride] = p.strides();
        let [a_transposed, b_transposed] = p.transposed();
        let [a_len, b_len, _] = p.lens().map(u64::from);
        let aligned = [lead_a, lead_b, stride_a, stride_b].iter().all(|size| size.is_multiple_of(4));
        let product = TiledGemm {
            kernel: &kernel::GEMM,
            operands,
            bias,
            k_contiguous: [!a_transposed, b_transposed],
            shape: p.shape(),
            batch: p.batch(),
            aligned,
            lens: [a_len, b_len],
            stride,
            ldy,
            bias_stride: 0,
            constants: &|_| Vec::new(),
            params: &[lead_a, lead_b, stride_a, stride_b],
        };
        self.run_tiled_gemm(&product, y)
    }
}
