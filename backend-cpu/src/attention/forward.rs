//! Forward pass of attention.

use super::{
    Tiling,
    operands::{Operand, load_rows},
    row_ends, row_stride,
};
use crate::{
    Cpu, Memory,
    attention::{Left, multiply},
    epilogue::{Epilogue, OutputSlice, output_slice, report_stats},
    stats_accumulator::StatsAccumulator,
    threading::Cost,
};
use gradscale_core::{
    backend::{AttentionArgs, Store},
    ops::{Attention, AttentionShape},
};
use std::sync::{Mutex, PoisonError};

impl Cpu {
    pub(crate) fn run_attention(
        &self, p: &Attention, x: AttentionArgs<&Memory>, log_sums: &mut Memory, y: Store<'_, Self>,
    ) {
        let AttentionShape { queries, keys, depth, width, .. } = p.shape();
        let epilogue = Epilogue::from_store(&y, self.isa());
        let Store { y, table, to, .. } = y;
        let (rows, tiling) = (p.rows() as usize, Tiling::new(p));
        let cost = Cost::macs(rows * keys as usize * (depth + width) as usize);
        let sums_of_heads = log_sums.f32_mut()[..rows].chunks_mut((queries as usize).max(1));
        let sums: Vec<_> = sums_of_heads.flat_map(|sums| sums.chunks_mut(tiling.task_rows).map(Mutex::new)).collect();
        let results = output_slice(y, p.y_len() as usize).chunks(queries as usize * width as usize);
        let results: Vec<_> =
            results.into_iter().flat_map(|y| y.chunks(tiling.task_rows * width as usize)).map(Mutex::new).collect();
        let stats = self.par_map(cost, sums.len(), |i| {
            let mut sums = sums[i].lock().unwrap_or_else(PoisonError::into_inner);
            let mut y = results[i].lock().unwrap_or_else(PoisonError::into_inner);
            self.attend(p, &tiling, x, i, &mut sums, &mut y, &epilogue)
        });
        report_stats(&epilogue, &stats, |row| table.merge(to, row));
    }

    /// Computes the results of a task and the logarithms of their sums.
    #[expect(clippy::too_many_arguments, reason = "two results and the epilogue of one")]
    fn attend(
        &self, p: &Attention, tiling: &Tiling, x: AttentionArgs<&Memory>, task: usize, log_sums: &mut [f32],
        y: &mut OutputSlice<'_>, epilogue: &Epilogue,
    ) -> StatsAccumulator {
        let (isa, shape) = (self.isa(), p.shape());
        let [queries, keys, depth, width] =
            [shape.queries, shape.keys, shape.depth, shape.width].map(|size| size as usize);
        let head = task / tiling.tasks_per_head;
        let task = tiling.queries(p, task % tiling.tasks_per_head);
        let length = length_of_head(p, x.lengths, head);
        let transposed_keys = Operand::transposed(self, x.k, head * keys * depth, [keys, depth]);
        let values = load_rows(self, x.v, head * keys * width, keys * width);
        let values = Operand::Rows { data: &values, columns: width };
        let mut scores = self.workspace(tiling.block_rows * row_stride(keys));
        let (mut q, mut block) = (self.workspace(tiling.block_rows * depth), self.workspace(tiling.block_rows * width));
        let mut row = epilogue.new_accumulator();
        for first in task.clone().step_by(tiling.block_rows) {
            let ends = row_ends(p, length, first..task.end.min(first + tiling.block_rows));
            let (rows, columns) = (ends.len(), ends.iter().copied().max().unwrap_or(0));
            let (stride, at) = (row_stride(columns), first - task.start);
            let (q, block) = (&mut q[..rows * depth], &mut block[..rows * width]);
            crate::elementwise::load_f32(isa, x.q, (head * queries + first) * depth, q);
            let left = Left { data: q, row_stride: depth, k_stride: 1 };
            multiply(isa, left, &transposed_keys, [rows, columns, depth], true, &mut scores, stride);
            for (r, &end) in ends.iter().enumerate() {
                let weights = &mut scores[r * stride..r * stride + columns];
                log_sums[at + r] = isa.softmax_with_log_sum(&mut weights[..end]);
                weights[end..].fill(0.0);
            }
            if columns == 0 {
                block.fill(0.0);
            } else {
                let left = Left { data: &scores, row_stride: stride, k_stride: 1 };
                multiply(isa, left, &values, [rows, width, columns], true, block, width);
            }
            epilogue.finish_block(block, y.range(at * width..(at + rows) * width), &mut row);
        }
        row
    }
}

/// Returns the length of a head's sequence; 0 if there are no lengths.
pub(super) fn length_of_head(p: &Attention, lengths: Option<&Memory>, head: usize) -> u32 {
    lengths.map_or(0, |lengths| lengths.integer(head / p.shape().heads as usize))
}
