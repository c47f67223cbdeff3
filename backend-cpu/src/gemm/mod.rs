//! Matrix products.
//!
//! b is converted and packed once, into panels as wide as a tile; blocks of rows of the result pack their rows of a,
//! form their sums in an f32 scratch, some steps of k at a time, and finish them from there. A sum takes its terms in
//! the order of k, whatever the blocks. Products with few rows are made otherwise, see `few`, and so are those of halves
//! where there is a matrix unit, see `amx`.

#[cfg(target_arch = "x86_64")]
mod amx;
mod blocking;
mod driver;
mod pack;
mod skinny;

use crate::{
    Cpu, Memory,
    epilogue::{Epilogue, Part, destination, merge},
    stats_accumulator::Seen,
    threading::Cost,
};
use driver::{B, Product};
use gradscale_core::{backend::Store, ops::Gemm};
pub use pack::{Matrix, Packed};

impl Cpu {
    pub(crate) fn run_gemm(&self, p: &Gemm, a: &Memory, b: &Memory, bias: Option<&Memory>, y: Store<'_, Self>) {
        let [m, n, k] = p.mnk().map(|size| size as usize);
        let [lda, ldb, ldy] = p.lead().map(|lead| lead as usize);
        let [stride_a, stride_b, stride_y] = p.strides().map(|stride| stride as usize);
        let [ta, tb] = p.transposed();
        let steps = |transposed: bool, lead: usize| if transposed { [1, lead] } else { [lead, 1] };
        let epilogue = Epilogue::of(&y, self.isa());
        let Store { y, table, to, .. } = y;
        if m == 0 || n == 0 || p.batch() == 0 {
            return merge(&epilogue, [], |row| table.merge(to, row));
        }
        let (batch, end) = (p.batch() as usize, (m - 1) * ldy + n);
        let bias = bias.map(|bias| (0..n).map(|j| bias.get(j)).collect::<Vec<f32>>());
        let matrix = |z: usize| Matrix { data: b, start: z * stride_b, steps: steps(tb, ldb) };
        let packed = |z: usize| B::new(self, matrix(z), [m, k, n]);
        let few = skinny::few(m, n);
        // With a stride of 0 all products use one b.
        let shared = (stride_b == 0 && !few).then(|| packed(0));
        let one = Cost::macs(m * n * k);
        let product = |z: usize, y: Part<'_>| {
            let a = Matrix { data: a, start: z * stride_a, steps: steps(ta, lda) };
            if few {
                return self.few_rows([a, matrix(z)], [m, n, k], bias.as_deref(), ldy, &epilogue, y);
            }
            let own = shared.is_none().then(|| packed(z));
            let Some(b) = own.as_ref().or(shared.as_ref()) else { return vec![] };
            let product =
                Product { cpu: self, a, b, stored_b: matrix(z), m, n, bias: bias.as_deref(), ldy, epilogue: &epilogue };
            product.run(y, one)
        };
        let mut all = destination(y, (batch - 1) * stride_y + end);
        // Many small products are shared out as they are, where their results do not lie in each other.
        let rows: Vec<Vec<Seen>> = if self.is_serial(one) && stride_y >= end {
            all.each(self, Cost::macs(batch * m * n * k), stride_y, |z, mut y| product(z, y.range(0..end)))
        } else {
            (0..batch).map(|z| product(z, all.range(z * stride_y..z * stride_y + end))).collect()
        };
        merge(&epilogue, rows.iter().flatten(), |row| table.merge(to, row));
    }
}
