//! Matrix products and passes of convolutions as batched GEMMs: choice of the engine, split-K, and reduction of the splits.

use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{KernelLaunch, strided_workgroups},
    operators::loader::Loader,
};
use gradscale_core::{
    backend::{Buffer, Store},
    ops::GemmShape,
};

/// Minimum number of workgroups, below which sums are split. Fewer leave compute units idle. An estimate for all devices,
/// not measured.
const MIN_WORKGROUPS: u32 = 256;
/// Type of a missing bias, as in output.wgsl.
const NO_BIAS: u32 = u32::MAX;
/// Multiple of the terms of a split, so that every tile begins with a whole step. The deepest is 64.
const SPLIT_MULTIPLE: u32 = 64;
/// Minimum number of terms of a split, so that the reduction is small compared with the multiplications.
const MIN_SPLIT_K: u32 = 1024;

/// Batched GEMM. Result (z, r, c) is stored at z · stride + r · ldy + c, with the bias at z · `bias_stride` + c.
pub(crate) struct Product<'a> {
    pub loader: Loader,
    pub operands: [&'a Memory; 2],
    pub bias: Option<&'a Memory>,
    /// True for each operand, a and b, that is contiguous along k.
    pub k_contiguous: [bool; 2],
    pub shape: GemmShape,
    pub batch: u32,
    /// True if every vector of four neighbours of both operands starts at a multiple of four elements, k not considered.
    pub aligned: bool,
    /// Number of elements of a and b.
    pub lens: [u64; 2],
    pub stride: u32,
    pub ldy: u32,
    pub bias_stride: u32,
    /// Parameters of the loader.
    pub params: Vec<u32>,
}

/// Division of the sums of a product: `count` splits of `len` terms, of which the last may have fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Splits {
    pub len: u32,
    pub count: u32,
}

impl Product<'_> {
    /// Returns the splits for a number of workgroups that compute the results of all products once.
    ///
    /// A GEMM of few results and many terms is split. The split decides the order of sums, so `tiles` must not depend on
    /// anything but the shape and the engine. Partial sums take at most a sixteenth of the operands' bytes.
    pub fn splits(&self, tiles: u64) -> Splits {
        let GemmShape { m, n, k } = self.shape;
        if tiles >= u64::from(MIN_WORKGROUPS) || k < 2 * MIN_SPLIT_K {
            return Splits { len: k.max(1), count: 1 };
        }
        let bytes = |(len, memory): (u64, &Memory)| len * memory.dtype().size() as u64;
        let bytes: u64 = self.lens.into_iter().zip(self.operands).map(bytes).sum();
        let results = 4 * u64::from(m) * u64::from(n) * u64::from(self.batch);
        let max_by_bytes = bytes / 16 / results.max(1);
        let max_by_workgroups = u64::from(MIN_WORKGROUPS).div_ceil(tiles.max(1)).min(u64::from(k / MIN_SPLIT_K));
        let splits = u32::try_from(max_by_workgroups.min(max_by_bytes).max(1)).unwrap_or(1);
        let len = if splits == 1 { k } else { k.div_ceil(splits).next_multiple_of(SPLIT_MULTIPLE) };
        Splits { len, count: k.div_ceil(len) }
    }

    /// Returns the words of `Output` in output.wgsl, for a number of tiles along rows and columns.
    pub fn output_words(&self, splits: Splits, [tiles_m, tiles_n]: [u32; 2]) -> [u32; 12] {
        let GemmShape { m, n, k } = self.shape;
        let bias = self.bias.map_or(NO_BIAS, |bias| bias.dtype().code());
        let Splits { len, count } = splits;
        [m, n, k, self.batch, self.stride, self.ldy, self.bias_stride, bias, len, count, tiles_m, tiles_n]
    }
}

impl Wgpu {
    pub(crate) fn run_product(&self, p: &Product<'_>, y: &Store<'_, Self>) -> Result<(), Error> {
        let GemmShape { m, n, .. } = p.shape;
        if m == 0 || n == 0 || p.batch == 0 {
            return Ok(());
        }
        match self.coop_for(p, y) {
            Some(coop) => self.run_coop(coop, p, y),
            None => self.run_tiles(p, y),
        }
    }

    /// Enqueues the kernel of a product and, if its sums are split, the reduction. `call` has all but partial sums and
    /// destination.
    pub(crate) fn launch_product(
        &self, p: &Product<'_>, call: KernelLaunch<'_>, splits: Splits, tiles: [u32; 2], y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let (GemmShape { m, n, .. }, [tiles_m, tiles_n]) = (p.shape, tiles);
        let bytes = match splits.count {
            1 => 16,
            count => 4 * u64::from(count) * u64::from(p.batch) * u64::from(m) * u64::from(n),
        };
        let partials = self.split_k_partials(bytes)?;
        let call = call.buffer(8, &partials);
        let groups = tiles_m * tiles_n * p.batch * splits.count;
        if splits.count == 1 {
            return self.launch(call.store(y), groups);
        }
        self.launch(call.store_later(y), groups)?;
        let [a, _] = p.operands;
        let call = KernelLaunch::new(&kernel::SPLIT_K_REDUCE)
            .params(p.output_words(splits, tiles))
            .optional_operand(p.bias, a)
            .buffer(8, &partials);
        self.launch(call.store(y), strided_workgroups(p.batch * m * n))
    }
}
