//! Products of tiles, for matrices and convolutions: how they are cut, and what becomes of the parts.

use crate::{
    Error, Memory, Wgpu,
    kernel::{self, Kernel},
    launch::{Call, strided},
};
use gradscale_core::backend::{Buffer, Store};
use std::sync::atomic::Ordering::Relaxed;

/// Results of a workgroup along each side, as in tile.wgsl.
const TILES: [u32; 2] = [16, 64];
/// Rows or columns up to which the small tile wastes less.
const NARROW: u32 = 32;
/// Fewer workgroups than this leave a device idle.
const FEW: u32 = 256;
/// In place of a bias' type where there is none, as in output.wgsl.
const NO_BIAS: u32 = u32::MAX;
/// Least terms of a slice.
const LEAST_DEPTH: u32 = 1024;

/// Batched products, and where their results go: (z, r, c) to z · stride + r · lead + c, with the bias of
/// z · `bias_stride` + c.
pub(crate) struct Product<'a> {
    pub kernel: &'static Kernel,
    pub operands: [&'a Memory; 2],
    pub bias: Option<&'a Memory>,
    /// Whether memory runs along k in a and b.
    pub along: [bool; 2],
    pub mnk: [u32; 3],
    pub batch: u32,
    /// Elements of a and b.
    pub lens: [u64; 2],
    pub stride: u32,
    pub lead: u32,
    pub bias_stride: u32,
    /// The kernel's own constants and parameters.
    pub constants: &'a [(&'static str, u32)],
    pub params: &'a [u32],
}

impl Product<'_> {
    fn tile(&self) -> u32 {
        let [m, n, _] = self.mnk;
        TILES[usize::from(m > NARROW && n > NARROW)]
    }

    /// Terms of each slice. A sum of few results and many terms is cut into slices: by its shape alone, and so that
    /// they take at most a sixteenth of the operands' bytes.
    fn depth(&self) -> u32 {
        let [m, n, k] = self.mnk;
        let tiles =
            [m, n].map(|size| u64::from(size.div_ceil(self.tile()))).iter().product::<u64>() * u64::from(self.batch);
        if tiles >= u64::from(FEW) || k < 2 * LEAST_DEPTH {
            return k.max(1);
        }
        let bytes = |(len, memory): (u64, &Memory)| len * memory.dtype().size() as u64;
        let bytes: u64 = self.lens.into_iter().zip(self.operands).map(bytes).sum();
        let results = 4 * u64::from(m) * u64::from(n) * u64::from(self.batch);
        let room = bytes / 16 / results.max(1);
        let wanted = u64::from(FEW).div_ceil(tiles.max(1)).min(u64::from(k / LEAST_DEPTH));
        let slices = u32::try_from(wanted.min(room).max(1)).unwrap_or(1);
        k.div_ceil(slices)
    }
}

/// The member `bias` of `Output` in output.wgsl.
pub(crate) fn bias_type(bias: Option<&Memory>) -> u32 {
    bias.map_or(NO_BIAS, |bias| bias.dtype().code())
}

impl Wgpu {
    pub(crate) fn run_product(&self, p: &Product<'_>, y: &Store<'_, Self>) -> Result<(), Error> {
        let [m, n, k] = p.mnk;
        if m == 0 || n == 0 || p.batch == 0 {
            return Ok(());
        }
        self.launches_by_simt.fetch_add(1, Relaxed);
        let depth = p.depth();
        let slices = k.div_ceil(depth).max(1);
        let [tiles_m, tiles_n] = [m, n].map(|size| size.div_ceil(p.tile()));
        let bias = bias_type(p.bias);
        let output = [m, n, k, p.batch, p.stride, p.lead, p.bias_stride, bias, depth, slices, tiles_m, tiles_n];
        let bytes =
            if slices > 1 { 4 * u64::from(slices) * u64::from(p.batch) * u64::from(m) * u64::from(n) } else { 16 };
        let parts = self.slices(bytes)?;
        let [a, b] = p.operands;
        let mut call = Call::new(p.kernel)
            .constant("FOURS", p.tile() / 4)
            .constant("A_ALONG", p.along[0].into())
            .constant("B_ALONG", p.along[1].into())
            .params(output)
            .params(p.params.iter().copied());
        for &(name, value) in p.constants {
            call = call.constant(name, value);
        }
        // Any memory in place of a missing bias.
        let call = call.operand(a).operand(b).maybe(p.bias, a).buffer(8, &parts);
        let groups = tiles_m * tiles_n * p.batch * slices;
        if slices == 1 {
            return self.launch(call.store(y), groups);
        }
        self.launch(call.store_later(y), groups)?;
        let call = Call::new(&kernel::SLICES).params(output).maybe(p.bias, a).buffer(8, &parts);
        self.launch(call.store(y), strided(p.batch * m * n))
    }
}
