//! Reductions along one axis.

use crate::{Cpu, Memory, elementwise::load, epilogue::BLOCK};
use gradscale_core::{
    backend::Store,
    descriptor::{Reduce, ReduceOp},
};

/// Partial sums of one long sum.
const LANES: usize = 16;

impl Cpu {
    pub(crate) fn run_reduce(&self, p: &Reduce, x: &Memory, y: Store<'_, Self>) {
        let [outer, len, inner] = p.shape().map(|size| size as usize);
        if p.op() == ReduceOp::ArgMax {
            return argmax(x, [outer, len, inner], y.y);
        }
        self.dense(y, outer * inner, |start, out| {
            if inner == 1 {
                for (i, out) in (start..).zip(out) {
                    *out = self.along(p.op(), x, i * len, len);
                }
            } else {
                // Neighbouring results take their values from neighbouring places.
                for (run, out) in runs(start, out, inner) {
                    let first = run / inner * len * inner + run % inner;
                    self.across(p.op(), x, first, len, inner, out);
                }
            }
        });
    }

    /// Reduces `len` values side by side.
    fn along(&self, op: ReduceOp, x: &Memory, start: usize, len: usize) -> f32 {
        let mut lanes = [if op == ReduceOp::Max { f32::NEG_INFINITY } else { 0.0 }; LANES];
        let mut block = [0f32; BLOCK];
        for from in (0..len).step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(len - from)];
            load(self.isa(), x, start + from, block);
            for row in block.chunks(LANES) {
                lanes.iter_mut().zip(row).for_each(|(lane, &v)| *lane = next(op, *lane, v));
            }
        }
        let total = match op {
            ReduceOp::Max => lanes.into_iter().fold(f32::NEG_INFINITY, |best, v| next(op, best, v)),
            _ => lanes.into_iter().sum(),
        };
        finish(op, total, len)
    }

    /// Reduces `len` rows of values, each `inner` after the last.
    fn across(&self, op: ReduceOp, x: &Memory, first: usize, len: usize, inner: usize, out: &mut [f32]) {
        out.fill(if op == ReduceOp::Max { f32::NEG_INFINITY } else { 0.0 });
        let mut block = [0f32; BLOCK];
        let block = &mut block[..out.len()];
        for l in 0..len {
            load(self.isa(), x, first + l * inner, block);
            out.iter_mut().zip(block.iter()).for_each(|(sum, &v)| *sum = next(op, *sum, v));
        }
        out.iter_mut().for_each(|sum| *sum = finish(op, *sum, len));
    }
}

/// Cuts results from `start` on where the outer index changes.
fn runs(start: usize, out: &mut [f32], inner: usize) -> impl Iterator<Item = (usize, &mut [f32])> {
    let (mut at, mut rest) = (start, out);
    core::iter::from_fn(move || {
        let len = (inner - at % inner).min(rest.len());
        let (run, left) = core::mem::take(&mut rest).split_at_mut(len);
        rest = left;
        at += len;
        (len != 0).then_some((at - len, run))
    })
}

fn next(op: ReduceOp, best: f32, v: f32) -> f32 {
    match op {
        ReduceOp::SumSquares => best + v * v,
        ReduceOp::Max if v > best || v.is_nan() => v,
        ReduceOp::Max => best,
        _ => best + v,
    }
}

fn finish(op: ReduceOp, total: f32, len: usize) -> f32 {
    if op == ReduceOp::Mean { total / len as f32 } else { total }
}

/// Indices are integers, which no epilogue touches.
fn argmax(x: &Memory, [outer, len, inner]: [usize; 3], y: &mut Memory) {
    for i in 0..outer * inner {
        let value = |l: usize| x.get((i / inner * len + l) * inner + i % inner);
        let wins = |l: usize, best: usize| value(l) > value(best) || value(l).is_nan() && !value(best).is_nan();
        let best = (1..len).fold(0, |best, l| if wins(l, best) { l } else { best });
        y.set_integer(i, best);
    }
}
