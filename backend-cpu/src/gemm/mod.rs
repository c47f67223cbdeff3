//! Matrix products (GEMM): C = A · B with A m × k and B k × n, in the manner of BLIS.
//!
//! B is packed once, into panels as wide as a register tile. Tasks of MC rows of C convert their rows of A, accumulate
//! f32 sums KC steps of k at a time, and store them through the epilogue. Every sum takes its terms in the order of k,
//! whatever the blocks, so that the bits do not depend on the number of threads. `blocking` has the reasons and the
//! sizes.
//!
//! Other paths: `skinny` where C has few rows (a gemv is its case m = 1), and `amx` for halves where the processor has
//! a matrix unit.

#[cfg(target_arch = "x86_64")]
mod amx;
mod blocking;
mod driver;
mod pack;
mod skinny;

use crate::{
    Cpu, Memory,
    epilogue::{Epilogue, OutputSlice, output_slice, report_stats},
    stats_accumulator::StatsAccumulator,
    threading::Cost,
};
use driver::{GemmDriver, PackedB};
use gradscale_core::{
    backend::Store,
    ops::{Gemm, GemmShape},
};
pub use pack::{Matrix, Packed};

/// Returns m, n, k of a shape as indices of slices.
const fn sizes(GemmShape { m, n, k }: GemmShape) -> [usize; 3] {
    [m as usize, n as usize, k as usize]
}

impl Cpu {
    /// Multiplies a batch of matrices and stores the products.
    pub(crate) fn run_gemm(&self, p: &Gemm, a: &Memory, b: &Memory, bias: Option<&Memory>, y: Store<'_, Self>) {
        let shape = p.shape();
        let [m, n, k] = sizes(shape);
        let [lda, ldb, ldy] = p.lead().map(|lead| lead as usize);
        let [stride_a, stride_b, stride_y] = p.strides().map(|stride| stride as usize);
        let [ta, tb] = p.transposed();
        let strides = |transposed: bool, lead: usize| if transposed { [1, lead] } else { [lead, 1] };
        let epilogue = Epilogue::from_store(&y, self.isa());
        let Store { y, table, to, .. } = y;
        if m == 0 || n == 0 || p.batch() == 0 {
            return report_stats(&epilogue, [], |row| table.merge(to, row));
        }
        let (batch, end) = (p.batch() as usize, (m - 1) * ldy + n);
        let bias = bias.map(|bias| (0..n).map(|j| bias.get(j)).collect::<Vec<f32>>());
        let matrix = |z: usize| Matrix { data: b, start: z * stride_b, strides: strides(tb, ldb) };
        let pack_b = |z: usize| PackedB::new(self, matrix(z), shape);
        let is_skinny = skinny::is_skinny(m, n);
        // With a stride of 0 all products of the batch share one B.
        let shared = (stride_b == 0 && !is_skinny).then(|| pack_b(0));
        let cost = Cost::macs(m * n * k);
        let product = |z: usize, y: OutputSlice<'_>| {
            let a = Matrix { data: a, start: z * stride_a, strides: strides(ta, lda) };
            if is_skinny {
                return self.gemm_skinny([a, matrix(z)], shape, bias.as_deref(), ldy, &epilogue, y);
            }
            let own = shared.is_none().then(|| pack_b(z));
            let Some(b) = own.as_ref().or(shared.as_ref()) else { return vec![] };
            let driver = GemmDriver {
                cpu: self,
                a,
                b,
                stored_b: matrix(z),
                m,
                n,
                bias: bias.as_deref(),
                ldy,
                epilogue: &epilogue,
            };
            driver.multiply_and_store(y, cost)
        };
        let mut output = output_slice(y, (batch - 1) * stride_y + end);
        // Many small products are distributed whole, provided that their results do not overlap.
        let rows: Vec<Vec<StatsAccumulator>> = if self.is_serial(cost) && stride_y >= end {
            output.par_chunks(self, Cost::macs(batch * m * n * k), stride_y, |z, mut y| product(z, y.range(0..end)))
        } else {
            (0..batch).map(|z| product(z, output.range(z * stride_y..z * stride_y + end))).collect()
        };
        report_stats(&epilogue, rows.iter().flatten(), |row| table.merge(to, row));
    }
}
