//! Gradients of attention.

use super::{
    Left, Tiling,
    forward::length_of_head,
    multiply,
    operands::{Operand, load_rows},
    row_ends, row_stride,
};
use crate::{
    Cpu, Memory, Table,
    elementwise::load_f32,
    epilogue::{BLOCK_ELEMENTS, Epilogue, OutputSlice, output_slice, report_stats},
    stats_accumulator::StatsAccumulator,
    threading::Cost,
    workspace::Workspace,
};
use core::ops::Range;
use gradscale_core::{
    backend::{AttentionArgs, Cast, Slot, Store},
    ops::{Attention, AttentionShape},
    scale::Factor,
};
use half::f16;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Operands that the gradients of attention read.
#[derive(Clone, Copy)]
struct Operands<'a> {
    x: AttentionArgs<&'a Memory>,
    y: &'a Memory,
    log_sums: &'a [f32],
    dy: &'a Memory,
}

/// Epilogues of the casts and stores, and the factor that brings δ to the exponent of dP.
struct Epilogues {
    dp: Epilogue,
    ds: Epilogue,
    dq: Epilogue,
    dk: Epilogue,
    dv: Epilogue,
    of_delta: Factor,
}

/// Sums of the gradients of keys and values of a head.
struct OfHead<'a> {
    dk: Workspace<'a>,
    dv: Workspace<'a>,
}

/// Statistics of a task, or of a head: dP, dS, dq, dk, dv.
type Rows = [StatsAccumulator; 5];

/// Workspaces of a task: blocks of rows.
struct Blocks<'a> {
    q: Workspace<'a>,
    y: Workspace<'a>,
    dy: Workspace<'a>,
    dq: Workspace<'a>,
    weights: Workspace<'a>,
    gradients: Workspace<'a>,
    visible: Workspace<'a>,
}

/// Gradient that is stored, in parts that belong to one task each.
struct Parts<'a>(Vec<Mutex<OutputSlice<'a>>>);

impl<'a> Parts<'a> {
    fn new(y: OutputSlice<'a>, len: usize) -> Self {
        Self(y.chunks(len).into_iter().map(Mutex::new).collect())
    }

    fn lock(&self, part: usize) -> MutexGuard<'_, OutputSlice<'a>> {
        self.0[part].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Epilogues {
    fn new(cpu: &Cpu, [dp, ds]: [&Cast<'_, Cpu>; 2], [dq, dk, dv]: [&Store<'_, Cpu>; 3]) -> Self {
        let (isa, table) = (cpu.isa(), dp.table);
        let of_cast = |cast: &Cast<'_, Cpu>| {
            let [from, to] = [cast.from, cast.to].map(|slot| cast.table.exponent(slot));
            Epilogue::between(from, to, cast.detail.min(cast.table.detail), isa)
        };
        let [dq, dk, dv] = [dq, dk, dv].map(|store| Epilogue::from_store(store, isa));
        let of_delta = Factor::between(table.exponent(dp.from), table.exponent(dp.to));
        Self { dp: of_cast(dp), ds: of_cast(ds), dq, dk, dv, of_delta }
    }

    fn in_order(&self) -> [&Epilogue; 5] {
        [&self.dp, &self.ds, &self.dq, &self.dk, &self.dv]
    }

    fn new_rows(&self) -> Rows {
        self.in_order().map(Epilogue::new_accumulator)
    }
}

/// Reports the statistics of all tasks, in order, to the rows of their slots.
fn report(epilogues: &Epilogues, slots: [(&Table, Slot); 5], rows: &[Rows]) {
    for (i, (epilogue, (table, slot))) in epilogues.in_order().into_iter().zip(slots).enumerate() {
        report_stats(epilogue, rows.iter().map(|rows| &rows[i]), |row| table.merge(slot, row));
    }
}

impl Cpu {
    pub(crate) fn run_attention_vjp(
        &self, p: &Attention, x: AttentionArgs<&Memory>, [y, log_sums, dy]: [&Memory; 3],
        [dp, ds]: [Cast<'_, Self>; 2], [dq, dk, dv]: [Store<'_, Self>; 3],
    ) {
        let AttentionShape { queries, keys, depth, width, .. } = p.shape();
        let [queries, keys, depth, width] = [queries, keys, depth, width].map(|size| size as usize);
        let epilogues = Epilogues::new(self, [&dp, &ds], [&dq, &dk, &dv]);
        let slots = [(dp.table, dp.to), (ds.table, ds.to), (dq.table, dq.to), (dk.table, dk.to), (dv.table, dv.to)];
        let (tiling, heads) = (Tiling::new(p), p.batch() as usize);
        let operands = Operands { x, y, log_sums: log_sums.f32(), dy };
        let of_q = Parts::new(output_slice(dq.y, p.q_len() as usize), queries * depth);
        let of_k = Parts::new(output_slice(dk.y, p.k_len() as usize), keys * depth);
        let of_v = Parts::new(output_slice(dv.y, p.v_len() as usize), keys * width);
        let cost = Cost::macs(heads * queries * keys * (3 * depth + 2 * width));
        let run = |head: usize, task: usize| {
            let range = tiling.queries(p, task);
            let mut of_q = (!range.is_empty()).then(|| of_q.lock(head));
            let dq = of_q.as_mut().map(|dq| dq.range(range.start * depth..range.end * depth));
            self.differentiate(p, &tiling, operands, head, range, dq, &epilogues)
        };
        let finish = |head: usize, mut rows: Rows, OfHead { mut dk, mut dv }: OfHead<'_>| {
            let [.., of_dk, of_dv] = &mut rows;
            let (mut to_k, mut to_v) = (of_k.lock(head), of_v.lock(head));
            epilogues.dk.finish_block(&mut dk, to_k.range(0..keys * depth), of_dk);
            epilogues.dv.finish_block(&mut dv, to_v.range(0..keys * width), of_dv);
            rows
        };
        let rows: Vec<Rows> = if tiling.tasks_per_head == 1 {
            self.par_map(cost, heads, |head| {
                let (rows, sums) = run(head, 0);
                finish(head, rows, sums)
            })
        } else {
            // The tasks of a head write different parts of dq, and their other gradients are added in order.
            let of_head = |head: usize| {
                let mut tasks = self.par_map(cost, tiling.tasks_per_head, |task| run(head, task)).into_iter();
                let Some((mut rows, mut sums)) = tasks.next() else { return epilogues.new_rows() };
                for (more_rows, more) in tasks {
                    rows.iter_mut().zip(&more_rows).for_each(|(row, more)| row.merge(more));
                    self.isa().zip(&mut sums.dk, &more.dk, |sum, more| sum + more);
                    self.isa().zip(&mut sums.dv, &more.dv, |sum, more| sum + more);
                }
                finish(head, rows, sums)
            };
            (0..heads).map(of_head).collect()
        };
        report(&epilogues, slots, &rows);
    }

    /// Computes the gradients of a task: those of its queries, and its terms of those of keys and values.
    #[expect(clippy::too_many_arguments, reason = "all gradients are computed together")]
    fn differentiate(
        &self, p: &Attention, tiling: &Tiling, operands: Operands<'_>, head: usize, task: Range<usize>,
        mut dq: Option<OutputSlice<'_>>, epilogues: &Epilogues,
    ) -> (Rows, OfHead<'_>) {
        let (isa, shape) = (self.isa(), p.shape());
        let [queries, keys, depth, width] =
            [shape.queries, shape.keys, shape.depth, shape.width].map(|size| size as usize);
        let (x, length) = (operands.x, length_of_head(p, operands.x.lengths, head));
        let transposed_keys = Operand::transposed(self, x.k, head * keys * depth, [keys, depth]);
        let transposed_values = Operand::transposed(self, x.v, head * keys * width, [keys, width]);
        let k = load_rows(self, x.k, head * keys * depth, keys * depth);
        let keys_by_rows = Operand::Rows { data: &k, columns: depth };
        let mut sums = OfHead { dk: self.zeroed_workspace(keys * depth), dv: self.zeroed_workspace(keys * width) };
        let mut rows = epilogues.new_rows();
        let mut blocks = self.blocks(tiling.block_rows, p);
        for first in task.clone().step_by(tiling.block_rows) {
            let ends = row_ends(p, length, first..task.end.min(first + tiling.block_rows));
            let (height, columns) = (ends.len(), ends.iter().copied().max().unwrap_or(0));
            let (stride, row) = (row_stride(columns), head * queries + first);
            let Blocks { q, y, dy, dq: of_q, weights, gradients, visible } = &mut blocks;
            let [q, of_q] = [q, of_q].map(|block| &mut block[..height * depth]);
            let [y, dy] = [y, dy].map(|block| &mut block[..height * width]);
            load_f32(isa, x.q, row * depth, q);
            load_f32(isa, operands.y, row * width, y);
            load_f32(isa, operands.dy, row * width, dy);
            let of_queries = Left { data: q, row_stride: depth, k_stride: 1 };
            multiply(isa, of_queries, &transposed_keys, [height, columns, depth], true, weights, stride);
            for (r, &end) in ends.iter().enumerate() {
                let weights = &mut weights[r * stride..r * stride + columns];
                isa.exp_below(&mut weights[..end], operands.log_sums[row + r]);
                weights[end..].fill(0.0);
            }
            let of_results = Left { data: dy, row_stride: width, k_stride: 1 };
            multiply(isa, of_results, &transposed_values, [height, columns, width], true, gradients, stride);
            self.cast_visible(&epilogues.dp, &ends, gradients, stride, visible, &mut rows[0]);
            let transposed = |data| Left { data, row_stride: 1, k_stride: stride };
            if columns > 0 {
                let results = Operand::Rows { data: dy, columns: width };
                multiply(isa, transposed(weights), &results, [columns, width, height], false, &mut sums.dv, width);
            }
            for (r, &end) in ends.iter().enumerate() {
                let [dy, y] = [&*dy, &*y].map(|block| &block[r * width..(r + 1) * width]);
                let delta = epilogues.of_delta.apply(isa.sum_of_products(dy, y));
                let gradients = &mut gradients[r * stride..r * stride + columns];
                isa.score_gradients(&weights[r * stride..r * stride + end], &mut gradients[..end], delta);
                gradients[end..].fill(0.0);
            }
            self.cast_visible(&epilogues.ds, &ends, gradients, stride, visible, &mut rows[1]);
            if columns > 0 {
                let of_scores = Left { data: gradients, row_stride: stride, k_stride: 1 };
                multiply(isa, of_scores, &keys_by_rows, [height, depth, columns], true, of_q, depth);
                let queries = Operand::Rows { data: q, columns: depth };
                multiply(isa, transposed(gradients), &queries, [columns, depth, height], false, &mut sums.dk, depth);
            } else {
                of_q.fill(0.0);
            }
            if let Some(dq) = &mut dq {
                let at = first - task.start;
                epilogues.dq.finish_block(of_q, dq.range(at * depth..(at + height) * depth), &mut rows[2]);
            }
        }
        (rows, sums)
    }

    fn blocks(&self, rows: usize, p: &Attention) -> Blocks<'_> {
        let AttentionShape { keys, depth, width, .. } = p.shape();
        let [keys, depth, width] = [keys, depth, width].map(|size| size as usize);
        let scores = rows * row_stride(keys);
        Blocks {
            q: self.workspace(rows * depth),
            y: self.workspace(rows * width),
            dy: self.workspace(rows * width),
            dq: self.workspace(rows * depth),
            weights: self.workspace(scores),
            gradients: self.workspace(scores),
            visible: self.workspace(rows * keys),
        }
    }

    /// Casts the first elements of each row of a block to halves, and replaces them by these. Rows are cast together in
    /// `visible`, because passes over short rows take longer.
    fn cast_visible(
        &self, epilogue: &Epilogue, ends: &[usize], block: &mut [f32], stride: usize, visible: &mut [f32],
        row: &mut StatsAccumulator,
    ) {
        let rows = || ends.iter().enumerate().map(|(r, &end)| r * stride..r * stride + end);
        let mut len = 0;
        for range in rows() {
            let end = len + range.len();
            visible[len..end].copy_from_slice(&block[range]);
            len = end;
        }
        let mut halves = [f16::ZERO; BLOCK_ELEMENTS];
        for values in visible[..len].chunks_mut(BLOCK_ELEMENTS) {
            let halves = &mut halves[..values.len()];
            epilogue.finish_block(values, OutputSlice::F16(&mut *halves), row);
            self.isa().f16_to_f32(halves, values);
        }
        let mut rest = &*visible;
        for range in rows() {
            let (values, others) = rest.split_at(range.len());
            block[range].copy_from_slice(values);
            rest = others;
        }
    }
}
