//! Attention whose scores are not stored: one launch, and four for its gradients. The first of these computes numbers of
//! rows, then each gradient has a launch of its own, because a kernel with two stores would bind more buffers than `WebGPU`
//! guarantees.

use crate::{
    Error, Memory, Wgpu,
    kernel::{self, Kernel},
    launch::{KernelLaunch, OwnPartials, PARTIAL_SUMS_BYTES, strided_workgroups},
};
use gradscale_core::{
    backend::{AttentionArgs, Cast, Store},
    ops::{Attention, AttentionShape},
};

/// Rows of a tile of scores, as in attention_tile.wgsl.
const TILE_ROWS: u32 = 64;
/// Elements of a row of results above which an invocation has two vectors of it, as in attention_tile.wgsl.
const NARROW_RESULTS: u32 = 64;
/// Rows of a workgroup of attention_rows.wgsl.
const ROWS_PER_WORKGROUP: u32 = 32;
/// Bytes of a row's numbers, which are four f32.
const ROW_NUMBERS_BYTES: u64 = 16;
/// Bytes of an attention's scores, as halves, from which they are not stored. A step multiplies ten times without them and six
/// times with them, by kernels with 2.5 to 3.4 instructions for each multiply-add instead of 1.2, but does not move them. By
/// counting it takes between as long and 2.5 times as long on cards, so it is for scores that need much memory. No card has
/// measured it.
const MIN_BYTES_OF_FUSED_SCORES: u64 = 128 << 20;
const HALF_BYTES: u64 = 2;
/// Sums of workgroups that have the size of a binding's alignment.
const ALIGNED_SUMS: u32 = 16;

/// Tensors of an attention's gradient besides the operands: its results, and the gradient of these.
#[derive(Clone, Copy)]
pub(crate) struct AttentionResults<'a> {
    pub y: &'a Memory,
    pub log_sums: &'a Memory,
    pub dy: &'a Memory,
}

/// Tiles of scores whose rows are queries or keys: members of `TileShape` in attention_tile.wgsl.
#[derive(Clone, Copy)]
struct Tiles {
    rows: u32,
    columns: u32,
    depth: u32,
    width: u32,
    results: u32,
    matrices: u32,
    /// Columns that a row reads: a code of `SoftmaxColumns`.
    reads: u32,
}

impl Tiles {
    /// Returns the tiles of results with as many elements in a row.
    fn new(p: &Attention, rows_are_queries: bool, results: u32) -> Self {
        let AttentionShape { queries, keys, depth, width, .. } = p.shape();
        let (rows, columns) = if rows_are_queries { (queries, keys) } else { (keys, queries) };
        Self { rows, columns, depth, width, results, matrices: p.batch(), reads: p.read().code() }
    }

    /// Returns the number of tiles of rows of all matrices.
    const fn workgroups(&self) -> u32 {
        self.rows.div_ceil(TILE_ROWS) * self.matrices
    }

    const fn params(&self) -> [u32; 8] {
        let Self { rows, columns, depth, width, results, matrices, reads } = *self;
        [rows, columns, depth, width, results, matrices, rows.div_ceil(TILE_ROWS), reads]
    }

    fn launch<'a>(&self, kernel: &'static Kernel) -> KernelLaunch<'a> {
        let is_aligned = self.depth.is_multiple_of(4) && self.width.is_multiple_of(4);
        KernelLaunch::new(kernel)
            .constant("ALIGNED", is_aligned.into())
            .constant("WIDE_RESULTS", (self.results > NARROW_RESULTS).into())
    }
}

impl Wgpu {
    /// Returns true if an attention is better computed without storing its scores: they would take much memory, and the
    /// scratch memory for its gradient fits one binding.
    pub(crate) fn prefers_fused_attention(&self, p: &Attention) -> bool {
        let scores = u64::from(p.rows()) * u64::from(p.shape().keys) * HALF_BYTES;
        scores >= MIN_BYTES_OF_FUSED_SCORES && self.attention_scratch(p).0 <= self.largest_binding()
    }

    /// Returns the bytes of the scratch memory for an attention's gradient, and the distance between the sums of its casts,
    /// before the numbers of rows.
    fn attention_scratch(&self, p: &Attention) -> (u64, u32) {
        let groups = [true, false].map(|rows_are_queries| {
            let workgroups = Tiles::new(p, rows_are_queries, 0).workgroups();
            self.grid(workgroups).iter().product::<u32>()
        });
        let stride = groups[0].max(groups[1]).next_multiple_of(ALIGNED_SUMS);
        let bytes = 3 * PARTIAL_SUMS_BYTES * u64::from(stride) + ROW_NUMBERS_BYTES * u64::from(p.rows());
        (bytes.max(PARTIAL_SUMS_BYTES), stride)
    }

    pub(crate) fn run_attention(
        &self, p: &Attention, x: AttentionArgs<&Memory>, log_sums: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        if p.rows() == 0 {
            return Ok(());
        }
        let AttentionShape { heads, queries, keys, width, .. } = p.shape();
        if let Some(lengths) = x.lengths {
            let call = KernelLaunch::new(&kernel::ATTENTION_ENDS).params([p.rows(), heads * queries, keys]);
            self.launch(call.operand(lengths).memory(8, log_sums), strided_workgroups(p.rows()))?;
        }
        let tiles = Tiles::new(p, true, width);
        let call = tiles.launch(&kernel::ATTENTION).params(tiles.params());
        let call = call.operand(x.q).operand(x.k).operand(x.v).memory(8, log_sums);
        self.launch(call.store(y), tiles.workgroups())
    }

    pub(crate) fn run_attention_vjp(
        &self, p: &Attention, x: AttentionArgs<&Memory>, results: AttentionResults<'_>, casts: [&Cast<'_, Self>; 2],
        [dq, dk, dv]: [&Store<'_, Self>; 3],
    ) -> Result<(), Error> {
        let AttentionShape { depth, width, .. } = p.shape();
        let (bytes, stride) = self.attention_scratch(p);
        let scratch = self.intermediates(bytes)?;
        self.compute_attention_rows(p, x.lengths, results, casts[0], OwnPartials { buffer: &scratch, stride })?;
        let AttentionArgs { q, k, v, .. } = x;
        let dy = results.dy;
        let by_queries = [q, k, dy, v];
        let by_keys = [k, q, v, dy];
        for (y, operands, rows_are_queries, is_of_values) in
            [(dq, by_queries, true, false), (dk, by_keys, false, false), (dv, by_keys, false, true)]
        {
            let tiles = Tiles::new(p, rows_are_queries, if is_of_values { width } else { depth });
            if tiles.workgroups() == 0 {
                continue;
            }
            let call = tiles
                .launch(&kernel::ATTENTION_VJP)
                .constant("ROWS_ARE_QUERIES", rows_are_queries.into())
                .constant("OF_VALUES", is_of_values.into());
            let call = casts.into_iter().fold(call, |call, cast| call.cast(cast, rows_are_queries));
            let call = call.params(tiles.params()).params([stride, 3 * stride]);
            let call = operands.into_iter().fold(call, KernelLaunch::operand);
            let call = call.partials(OwnPartials { buffer: &scratch, stride });
            self.launch(call.store(y), tiles.workgroups())?;
        }
        Ok(())
    }

    /// Computes L, δ and the number of columns of each row, which are stored after the sums of workgroups.
    fn compute_attention_rows(
        &self, p: &Attention, lengths: Option<&Memory>, results: AttentionResults<'_>, dp: &Cast<'_, Self>,
        scratch: OwnPartials<'_>,
    ) -> Result<(), Error> {
        if p.rows() == 0 {
            return Ok(());
        }
        let AttentionShape { heads, queries, keys, width, .. } = p.shape();
        let AttentionResults { y, log_sums, dy } = results;
        let call = KernelLaunch::new(&kernel::ATTENTION_ROWS)
            .params([p.rows(), queries, heads * queries, keys, width, p.read().code(), 3 * scratch.stride])
            .params([dp.from, dp.to].map(|slot| slot.0.into()))
            .operand(y)
            .operand(dy)
            .optional_operand(lengths, y);
        let call = call.memory(8, log_sums).buffer(1, &dp.table.control).buffer(4, scratch.buffer);
        self.launch(call, p.rows().div_ceil(ROWS_PER_WORKGROUP))
    }
}
