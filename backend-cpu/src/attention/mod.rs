//! Attention whose scores and weights are not stored: forward pass, and its gradients.
//!
//! A task computes a range of the queries of one head. It takes blocks of a few rows, and computes the scores of a block
//! with all keys that its rows read, so a row has its maximum and sum at once. The block stays in L2:
//!
//! ```text
//! for each task                             in parallel
//!     for each block of rows
//!         S = q·kᵀ                          columns up to the last that a row of the block reads
//!         P = e^(S − L)                     each row to its own end, 0 after it
//!         forward: y = P·v
//!         backward: dP = dy·vᵀ, rounded; dv += Pᵀ·dy
//!                   dS = P·(dP − δ), rounded; dq = dS·k; dk += dSᵀ·q
//! ```
//!
//! Tasks and blocks depend on the shape alone, so that results are the same for every number of threads.

mod backward;
mod forward;
mod operands;

use crate::{Cpu, arch::Isa};
use core::ops::Range;
use gradscale_core::ops::{Attention, AttentionShape};
use operands::Operand;

/// Number of scores of a block: with those of its gradient, 512 KiB of f32, half of a common L2.
const BLOCK_SCORES: usize = 1 << 16;
/// Minimum and maximum number of rows of a block. Products with fewer rows use each element of keys and values too seldom;
/// with more, rows of causal attention compute too many hidden columns.
const MIN_BLOCK_ROWS: usize = 16;
const MAX_BLOCK_ROWS: usize = 64;
/// Number of tasks aimed at, so that up to 16 threads share an attention of few heads.
const TARGET_TASKS: usize = 16;

/// Division of an attention into tasks and blocks.
#[derive(Clone, Copy, Debug)]
struct Tiling {
    /// Number of tasks of a head, and of queries of a task.
    tasks_per_head: usize,
    task_rows: usize,
    /// Number of rows of a block.
    block_rows: usize,
}

impl Tiling {
    fn new(p: &Attention) -> Self {
        let (AttentionShape { queries, keys, .. }, batch) = (p.shape(), p.batch().max(1) as usize);
        let queries = queries as usize;
        let block_rows = (BLOCK_SCORES / keys as usize).clamp(MIN_BLOCK_ROWS, MAX_BLOCK_ROWS);
        let most = queries.div_ceil(MAX_BLOCK_ROWS).max(1);
        let task_rows = queries.div_ceil((TARGET_TASKS / batch).clamp(1, most)).next_multiple_of(block_rows);
        Self { tasks_per_head: queries.div_ceil(task_rows).max(1), task_rows, block_rows }
    }

    /// Returns the queries of a task of a head.
    fn queries(&self, p: &Attention, task: usize) -> Range<usize> {
        let queries = p.shape().queries as usize;
        (task * self.task_rows).min(queries)..((task + 1) * self.task_rows).min(queries)
    }
}

/// Returns the number of elements from one row of a block of scores to the next. Long rows are not a power of two apart,
/// because they would share sets of L1.
const fn row_stride(columns: usize) -> usize {
    const LONG_ROW: usize = 512;
    if columns < LONG_ROW { columns } else { columns.next_multiple_of(crate::arch::LANES) + crate::arch::LANES }
}

/// Returns the number of columns that each of the queries reads.
#[expect(clippy::cast_possible_truncation, reason = "below the number of rows")]
fn row_ends(p: &Attention, length: u32, queries: Range<usize>) -> Vec<usize> {
    queries.map(|query| p.columns_of_query(query as u32, length) as usize).collect()
}

/// Matrix of f32 on the left side of a product, with any strides.
#[derive(Clone, Copy)]
struct Left<'a> {
    data: &'a [f32],
    row_stride: usize,
    k_stride: usize,
}

/// Adds a product to sums, or replaces them by it. `rows` is the number of rows of the left matrix, `depth` that of the
/// operand's rows that are used, and `columns` that of its columns.
fn multiply(
    isa: Isa, a: Left<'_>, b: &Operand<'_>, [rows, columns, depth]: [usize; 3], overwrite: bool, sums: &mut [f32],
    stride: usize,
) {
    if rows > 0 {
        b.multiply(isa, a, [rows, columns, depth], overwrite, sums, stride);
    }
}

impl Cpu {
    /// Returns true if attention in one launch is as fast as with stored scores. The matrix unit multiplies stored halves
    /// in a fraction of the time that products in f32 take.
    pub(crate) fn attention_is_fast(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.isa().amx().is_none();
        #[cfg(not(target_arch = "x86_64"))]
        return true;
    }
}
