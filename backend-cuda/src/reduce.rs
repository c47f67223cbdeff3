//! Reductions along one axis.

use crate::{Cuda, Error, kernels, memory::Memory, store::StoreParams, workspace::WorkspaceKind};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{Buffer, DType, Store},
    ops::{Reduce, ReduceOp},
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ReduceParams {
    y: StoreParams,
    x: u64,
    in_indices: u64,
    out_indices: u64,
    kind: u32,
    op: u32,
    shape: [u32; 3],
    part_len: u32,
    lanes: u32,
    divisor: f32,
}

/// Threads of a block of the reduction kernels.
const THREADS: u32 = 256;
/// Minimum number of values that a lane reduces before an axis is divided into parts.
const MIN_VALUES_PER_LANE: u32 = 32;
/// Number of blocks that is enough to fill any GPU.
const TARGET_BLOCKS: u32 = 1024;

/// Returns the number of columns of results: a thread computes one, or eight contiguous ones.
fn column_count([outer, _, inner]: [u32; 3]) -> u32 {
    outer * inner / if inner.is_multiple_of(8) { 8 } else { 1 }
}

/// Returns the number of threads for one column: as many as find eight contiguous values each, or as fill the block.
fn lanes(shape @ [_, len, inner]: [u32; 3]) -> u32 {
    if inner == 1 {
        len.div_ceil(8).next_power_of_two().min(THREADS)
    } else {
        let column_count = column_count(shape).clamp(1, THREADS).next_power_of_two();
        (THREADS / column_count).min(len.max(1).next_power_of_two())
    }
}

/// Returns the number of blocks that reduce one part of the axis.
fn block_count(shape: [u32; 3], lanes: u32) -> u32 {
    column_count(shape).div_ceil(THREADS / lanes)
}

/// Returns the number of values of a part of the axis, a multiple of eight.
fn part_len(shape: [u32; 3], lanes: u32) -> u32 {
    let max_parts = (TARGET_BLOCKS / block_count(shape, lanes).max(1)).max(1);
    let parts = (shape[1] / (lanes * MIN_VALUES_PER_LANE)).clamp(1, max_parts);
    shape[1].div_ceil(parts).max(1).next_multiple_of(8)
}

impl Cuda {
    pub(crate) fn run_reduce(&self, p: &Reduce, x: &Memory, y: &Store<'_, Self>) -> Result<(), Error> {
        let shape @ [outer, len, inner] = p.shape();
        if p.op() == ReduceOp::ArgMax {
            assert!(matches!(y.y.dtype(), DType::U8 | DType::U32), "indices are stored as integers");
        }
        let results = outer * inner;
        let lanes = lanes(shape);
        let part_len = part_len(shape, lanes);
        let parts = len.div_ceil(part_len).max(1);
        let blocks = [self.fill_device(&kernels::REDUCE, block_count(shape, lanes) * parts)?, 1, 1];
        let store = self.store(y, results as usize, blocks)?;
        #[expect(clippy::cast_precision_loss, reason = "as the mean of f32 is defined")]
        let divisor = len as f32;
        let mut params = ReduceParams {
            y: store,
            x: x.expect_len((outer * len * inner) as usize).at(),
            in_indices: 0,
            out_indices: 0,
            kind: x.kind(),
            op: p.op().code(),
            shape,
            part_len,
            lanes,
            divisor,
        };
        if parts > 1 {
            // Values of the parts, then their places.
            let bytes = u64::from(parts) * u64::from(results) * 4;
            let workspace =
                self.workspace_address(WorkspaceKind::Intermediates, usize::try_from(2 * bytes).unwrap_or(usize::MAX))?;
            let out_indices = if p.op() == ReduceOp::ArgMax { workspace + bytes } else { 0 };
            // A sum is divided once.
            let op = if p.op() == ReduceOp::Mean { ReduceOp::Sum } else { p.op() };
            let first = ReduceParams { y: store.into_workspace(workspace), out_indices, op: op.code(), ..params };
            // SAFETY: x holds its shape, and the scratch memory the results of all parts.
            unsafe { self.launch(&kernels::REDUCE, blocks, &first)? };
            let shape = [1, parts, results];
            let op = if p.op() == ReduceOp::SumSquares { ReduceOp::Sum } else { p.op() };
            let lanes = self::lanes(shape);
            params = ReduceParams {
                x: workspace,
                in_indices: out_indices,
                kind: DType::F32.code(),
                op: op.code(),
                shape,
                part_len: parts.next_multiple_of(8),
                lanes,
                ..params
            };
        }
        let block_count = block_count(params.shape, params.lanes) * params.shape[1].div_ceil(params.part_len).max(1);
        let blocks = [block_count.min(blocks[0]), 1, 1];
        // SAFETY: x and y, or the scratch memory and y, hold their shapes.
        unsafe { self.launch(&kernels::REDUCE, blocks, &params) }
    }
}
