//! Reductions along one axis.

use crate::{
    Cpu, Memory,
    elementwise::load,
    epilogue::{BLOCK_ELEMENTS, Block},
    threading::Cost,
};
use gradscale_core::{
    backend::Store,
    ops::{Reduce, ReduceOp},
};

/// Partial sums of one short sum.
const LANES: usize = 16;
/// From so many values side by side on, they are cut into parts of so many, for all threads.
const PART: usize = 1 << 16;
/// Results that lie so close together are formed several times over, side by side, and added in the end.
const LEAST: usize = 256;

impl Cpu {
    pub(crate) fn run_reduce(&self, p: &Reduce, x: &Memory, y: Store<'_, Self>) {
        let [outer, len, inner] = p.shape().map(|size| size as usize);
        if p.op() == ReduceOp::ArgMax {
            return self.argmax(x, [outer, len, inner], y.y);
        }
        self.store_map(y, outer * inner, |start, [out]| {
            if inner == 1 && len < LEAST {
                for (i, out) in (start..).zip(out) {
                    *out = self.along(p.op(), x, i * len, len);
                }
                return;
            }
            // Neighbouring results take their values from neighbouring places.
            for (run, out) in runs(start, out, inner) {
                let first = run / inner * len * inner + run % inner;
                if out.len() == inner && inner <= LEAST {
                    self.side_by_side(p.op(), x, first, len, out);
                } else {
                    self.across(p.op(), x, first, len, inner, out);
                }
                out.iter_mut().for_each(|total| *total = finish(p.op(), *total, len));
            }
        });
    }

    /// Indices are integers, which no epilogue touches.
    fn argmax(&self, x: &Memory, [outer, len, inner]: [usize; 3], y: &mut Memory) {
        let together = if inner == 1 && len != 0 { BLOCK_ELEMENTS / len } else { 0 };
        let part = |first: usize| -> Vec<usize> {
            let results = first..(first + BLOCK_ELEMENTS).min(outer * inner);
            if together == 0 {
                let at = |i: usize, l: usize| x.get((i / inner * len + l) * inner + i % inner);
                return results.map(|i| first_of_largest((0..len).map(|l| at(i, l)))).collect();
            }
            let (mut found, mut block) = (Vec::with_capacity(results.len()), [0f32; BLOCK_ELEMENTS]);
            for i in results.clone().step_by(together) {
                let block = &mut block[..together.min(results.end - i) * len];
                load(self.isa(), x, i * len, block);
                found.extend(block.chunks_exact(len).map(|row| first_of_largest(row.iter().copied())));
            }
            found
        };
        let count = (outer * inner).div_ceil(BLOCK_ELEMENTS);
        let parts = self.par_map(Cost::elements(outer * len * inner), count, |i| part(i * BLOCK_ELEMENTS));
        parts.into_iter().flatten().enumerate().for_each(|(i, best)| y.set_integer(i, best));
    }

    /// Reduces a few values side by side.
    fn along(&self, op: ReduceOp, x: &Memory, start: usize, len: usize) -> f32 {
        let mut lanes = [first(op); LANES];
        let mut block = [0f32; LEAST];
        load(self.isa(), x, start, &mut block[..len]);
        for row in block[..len].chunks(LANES) {
            lanes.iter_mut().zip(row).for_each(|(lane, &v)| *lane = next(op, *lane, v));
        }
        finish(op, lanes.into_iter().fold(first(op), |total, v| join(op, total, v)), len)
    }

    /// Reduces `len` rows of as many values as `out` has, one behind the other.
    fn side_by_side(&self, op: ReduceOp, x: &Memory, from: usize, len: usize, out: &mut [f32]) {
        let inner = out.len();
        let (wide, rows) = (LEAST.div_ceil(inner) * inner, (PART / inner).max(1));
        let part = |part: usize| {
            let (start, end) = (from + part * rows * inner, from + len.min((part + 1) * rows) * inner);
            let (mut totals, mut block) = (vec![first(op); wide], Block::ZERO);
            let step = BLOCK_ELEMENTS / wide * wide;
            for at in (start..end).step_by(step) {
                let block = block.first(step.min(end - at));
                load(self.isa(), x, at, block);
                for block in block.chunks(wide) {
                    let totals = &mut totals[..block.len()];
                    match op {
                        ReduceOp::Max => self.isa().zip(totals, block, |best, v| next(ReduceOp::Max, best, v)),
                        ReduceOp::SumSquares => self.isa().zip(totals, block, |sum, v| sum + v * v),
                        ReduceOp::Sum | ReduceOp::Mean | ReduceOp::ArgMax => {
                            self.isa().zip(totals, block, |sum, v| sum + v)
                        }
                    }
                }
            }
            totals
        };
        let parts = self.par_map(Cost::elements(len * inner), len.div_ceil(rows), part);
        out.fill(first(op));
        for totals in parts.iter().flat_map(|part| part.chunks_exact(inner)) {
            out.iter_mut().zip(totals).for_each(|(total, &v)| *total = join(op, *total, v));
        }
    }

    /// Reduces `len` rows of values, each `inner` after the last.
    fn across(&self, op: ReduceOp, x: &Memory, from: usize, len: usize, inner: usize, out: &mut [f32]) {
        out.fill(first(op));
        let mut block = [0f32; BLOCK_ELEMENTS];
        let block = &mut block[..out.len()];
        for l in 0..len {
            load(self.isa(), x, from + l * inner, block);
            out.iter_mut().zip(block.iter()).for_each(|(total, &v)| *total = next(op, *total, v));
        }
    }
}

/// Cuts elements from `start` on where the outer index changes; with the index of the first one of each.
pub fn runs(start: usize, out: &mut [f32], inner: usize) -> impl Iterator<Item = (usize, &mut [f32])> {
    // The rest of what began before.
    let (head, rest) = out.split_at_mut(((inner - start % inner) % inner).min(out.len()));
    let after = start + head.len();
    let whole = rest.chunks_mut(inner).enumerate().map(move |(i, run)| (after + i * inner, run));
    let head = if head.is_empty() { None } else { Some((start, head)) };
    head.into_iter().chain(whole)
}

/// The reduction of nothing.
fn first(op: ReduceOp) -> f32 {
    if op == ReduceOp::Max { f32::NEG_INFINITY } else { 0.0 }
}

/// A reduction and one more value.
#[inline(always)]
fn next(op: ReduceOp, best: f32, v: f32) -> f32 {
    match op {
        ReduceOp::SumSquares => best + v * v,
        ReduceOp::Max => {
            if (v > best) | v.is_nan() {
                v
            } else {
                best
            }
        }
        // An index is not looked for by values alone: its loop is another.
        ReduceOp::Sum | ReduceOp::Mean | ReduceOp::ArgMax => best + v,
    }
}

/// Two reductions.
fn join(op: ReduceOp, a: f32, b: f32) -> f32 {
    if op == ReduceOp::Max { next(op, a, b) } else { a + b }
}

fn finish(op: ReduceOp, total: f32, len: usize) -> f32 {
    if op == ReduceOp::Mean { total / len as f32 } else { total }
}

/// Where the largest value comes first; NaN is larger than all others. 0 where there is none.
fn first_of_largest(values: impl Iterator<Item = f32>) -> usize {
    let wins = |v: f32, best: f32| (v > best) | (v.is_nan() & !best.is_nan());
    let best = values.enumerate().reduce(|best, next| if wins(next.1, best.1) { next } else { best });
    best.map_or(0, |(l, _)| l)
}
