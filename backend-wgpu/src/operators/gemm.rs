//! Matrix products. There is no gemv kernel: with few rows or columns they take tiles of 16 × 16 results.

use crate::{
    Memory,
    operators::{loader::Loader, product::Product},
};
use gradscale_core::ops::Gemm;

impl<'a> Product<'a> {
    /// Returns the product of matrices that a launch describes.
    pub(crate) fn from_matrices(p: &Gemm, operands: [&'a Memory; 2], bias: Option<&'a Memory>) -> Self {
        let [lead_a, lead_b, ldy] = p.lead();
        let [stride_a, stride_b, stride] = p.strides();
        let [a_transposed, b_transposed] = p.transposed();
        let [a_len, b_len, _] = p.lens().map(u64::from);
        Self {
            loader: Loader::Matrices,
            operands,
            bias,
            k_contiguous: [!a_transposed, b_transposed],
            shape: p.shape(),
            batch: p.batch(),
            aligned: [lead_a, lead_b, stride_a, stride_b].iter().all(|size| size.is_multiple_of(4)),
            lens: [a_len, b_len],
            stride,
            ldy,
            bias_stride: 0,
            params: vec![lead_a, lead_b, stride_a, stride_b],
        }
    }
}
