//! Reductions along one axis.

use crate::{
    Cpu, Memory,
    elementwise::load_f32,
    epilogue::{BLOCK_ELEMENTS, Block},
    threading::Cost,
};
use gradscale_core::{
    backend::Store,
    ops::{Reduce, ReduceOp},
};

/// Number of partial sums of one contiguous reduction: the lanes of a vector.
const PARTIAL_SUMS: usize = 16;
/// Number of elements of a chunk of one reduction over rows; longer ones are divided for all threads.
const CHUNK_ELEMENTS: usize = 1 << 16;
/// Maximum length of an axis that is reduced whole. Up to this number of adjacent results are computed in several
/// parallel copies, which are combined at the end.
const SMALL_AXIS_ELEMENTS: usize = 256;

impl Cpu {
    pub(crate) fn run_reduce(&self, p: &Reduce, x: &Memory, y: Store<'_, Self>) {
        let [outer, len, inner] = p.shape().map(|size| size as usize);
        if p.op() == ReduceOp::ArgMax {
            return self.argmax(x, [outer, len, inner], y.y);
        }
        self.store_map(y, outer * inner, |start, [out]| {
            if inner == 1 && len < SMALL_AXIS_ELEMENTS {
                for (i, out) in (start..).zip(out) {
                    *out = self.reduce_contiguous(p.op(), x, i * len, len);
                }
                return;
            }
            // Adjacent results read adjacent values.
            for (run, out) in split_at_rows(start, out, inner) {
                let first = run / inner * len * inner + run % inner;
                if out.len() == inner && inner <= SMALL_AXIS_ELEMENTS {
                    self.reduce_inner_vectorized(p.op(), x, first, len, out);
                } else {
                    self.reduce_strided(p.op(), x, first, len, inner, out);
                }
                out.iter_mut().for_each(|total| *total = finish_reduction(p.op(), *total, len));
            }
        });
    }

    /// Computes indices of maxima, which are integers and have no epilogue.
    fn argmax(&self, x: &Memory, [outer, len, inner]: [usize; 3], y: &mut Memory) {
        let rows_per_block = if inner == 1 && len != 0 { BLOCK_ELEMENTS / len } else { 0 };
        let reduce_chunk = |first: usize| -> Vec<usize> {
            let results = first..(first + BLOCK_ELEMENTS).min(outer * inner);
            if rows_per_block == 0 {
                let at = |i: usize, l: usize| x.get((i / inner * len + l) * inner + i % inner);
                return results.map(|i| index_of_max((0..len).map(|l| at(i, l)))).collect();
            }
            let (mut found, mut block) = (Vec::with_capacity(results.len()), [0f32; BLOCK_ELEMENTS]);
            for i in results.clone().step_by(rows_per_block) {
                let block = &mut block[..rows_per_block.min(results.end - i) * len];
                load_f32(self.isa(), x, i * len, block);
                found.extend(block.chunks_exact(len).map(|row| index_of_max(row.iter().copied())));
            }
            found
        };
        let count = (outer * inner).div_ceil(BLOCK_ELEMENTS);
        let chunks = self.par_map(Cost::elements(outer * len * inner), count, |i| reduce_chunk(i * BLOCK_ELEMENTS));
        chunks.into_iter().flatten().enumerate().for_each(|(i, best)| y.set_integer(i, best));
    }

    /// Reduces `len` contiguous values of a buffer to one.
    fn reduce_contiguous(&self, op: ReduceOp, x: &Memory, start: usize, len: usize) -> f32 {
        let mut lanes = [identity(op); PARTIAL_SUMS];
        let mut block = [0f32; SMALL_AXIS_ELEMENTS];
        load_f32(self.isa(), x, start, &mut block[..len]);
        for row in block[..len].chunks(PARTIAL_SUMS) {
            lanes.iter_mut().zip(row).for_each(|(lane, &v)| *lane = accumulate(op, *lane, v));
        }
        finish_reduction(op, lanes.into_iter().fold(identity(op), |total, v| combine(op, total, v)), len)
    }

    /// Reduces `len` contiguous rows of a buffer element by element, each as long as `out`.
    fn reduce_inner_vectorized(&self, op: ReduceOp, x: &Memory, from: usize, len: usize, out: &mut [f32]) {
        let inner = out.len();
        let (total_len, rows) = (SMALL_AXIS_ELEMENTS.div_ceil(inner) * inner, (CHUNK_ELEMENTS / inner).max(1));
        let reduce_chunk = |chunk: usize| {
            let (start, end) = (from + chunk * rows * inner, from + len.min((chunk + 1) * rows) * inner);
            let (mut totals, mut block) = (vec![identity(op); total_len], Block::ZERO);
            let step = BLOCK_ELEMENTS / total_len * total_len;
            for at in (start..end).step_by(step) {
                let block = block.first(step.min(end - at));
                load_f32(self.isa(), x, at, block);
                for block in block.chunks(total_len) {
                    let totals = &mut totals[..block.len()];
                    match op {
                        ReduceOp::Max => self.isa().zip(totals, block, |best, v| accumulate(ReduceOp::Max, best, v)),
                        ReduceOp::SumSquares => self.isa().zip(totals, block, |sum, v| sum + v * v),
                        ReduceOp::Sum | ReduceOp::Mean | ReduceOp::ArgMax => {
                            self.isa().zip(totals, block, |sum, v| sum + v)
                        }
                    }
                }
            }
            totals
        };
        let chunks = self.par_map(Cost::elements(len * inner), len.div_ceil(rows), reduce_chunk);
        out.fill(identity(op));
        for totals in chunks.iter().flat_map(|chunk| chunk.chunks_exact(inner)) {
            out.iter_mut().zip(totals).for_each(|(total, &v)| *total = combine(op, *total, v));
        }
    }

    /// Reduces `len` rows that are `inner` elements apart, element by element.
    fn reduce_strided(&self, op: ReduceOp, x: &Memory, from: usize, len: usize, inner: usize, out: &mut [f32]) {
        out.fill(identity(op));
        let mut block = [0f32; BLOCK_ELEMENTS];
        let block = &mut block[..out.len()];
        for l in 0..len {
            load_f32(self.isa(), x, from + l * inner, block);
            out.iter_mut().zip(block.iter()).for_each(|(total, &v)| *total = accumulate(op, *total, v));
        }
    }
}

/// Splits elements from `start` on where the outer index changes, with the index of the first element of each piece.
pub fn split_at_rows(start: usize, out: &mut [f32], inner: usize) -> impl Iterator<Item = (usize, &mut [f32])> {
    // Rest of a row that began before.
    let (head, rest) = out.split_at_mut(((inner - start % inner) % inner).min(out.len()));
    let after = start + head.len();
    let whole = rest.chunks_mut(inner).enumerate().map(move |(i, run)| (after + i * inner, run));
    let head = if head.is_empty() { None } else { Some((start, head)) };
    head.into_iter().chain(whole)
}

/// Returns the neutral element of a reduction: 0, or −∞ for the maximum.
fn identity(op: ReduceOp) -> f32 {
    if op == ReduceOp::Max { f32::NEG_INFINITY } else { 0.0 }
}

/// Returns a reduction's partial result with one more value.
#[inline(always)]
fn accumulate(op: ReduceOp, best: f32, v: f32) -> f32 {
    match op {
        ReduceOp::SumSquares => best + v * v,
        ReduceOp::Max => {
            if (v > best) | v.is_nan() {
                v
            } else {
                best
            }
        }
        // The index of a maximum needs a loop of its own.
        ReduceOp::Sum | ReduceOp::Mean | ReduceOp::ArgMax => best + v,
    }
}

/// Combines two partial results of a reduction.
fn combine(op: ReduceOp, a: f32, b: f32) -> f32 {
    if op == ReduceOp::Max { accumulate(op, a, b) } else { a + b }
}

/// Returns a reduction's result from the total of `len` values: divides it for the mean.
fn finish_reduction(op: ReduceOp, total: f32, len: usize) -> f32 {
    if op == ReduceOp::Mean { total / len as f32 } else { total }
}

/// Returns the index of the first maximum of the values; NaN counts as the largest. 0 if there are none.
fn index_of_max(values: impl Iterator<Item = f32>) -> usize {
    let wins = |v: f32, best: f32| (v > best) | (v.is_nan() & !best.is_nan());
    let best = values.enumerate().reduce(|best, next| if wins(next.1, best.1) { next } else { best });
    best.map_or(0, |(l, _)| l)
}
