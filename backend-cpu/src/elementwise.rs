//! Element by element: unary and binary functions, sums of several sources.

use crate::{Cpu, Memory, arch::Isa};
use gradscale_core::{
    backend::{Buffer, Slot, Store},
    descriptor::{At, Binary, Over, Unary},
    scale::Factor,
    scaled::Scaled,
};

/// Elements `start..` of a buffer as f32.
pub fn load(isa: Isa, x: &Memory, start: usize, out: &mut [f32]) {
    match x {
        Memory::F32(x) => out.copy_from_slice(&x[start..start + out.len()]),
        Memory::F16(x) => isa.widen(&x[start..start + out.len()], out),
        Memory::U8(x) => isa.bytes(&x[start..start + out.len()], out),
        other => out.iter_mut().enumerate().for_each(|(i, out)| *out = other.get(start + i)),
    }
}

impl Cpu {
    pub(crate) fn run_unary(&self, op: Unary, x: &Memory, y: Store<'_, Self>) {
        let (isa, seed) = (self.isa(), y.table.seed);
        self.dense(y, x.len(), |start, out| {
            load(isa, x, start, out);
            if op != Unary::Id {
                for (i, v) in (start..).zip(out) {
                    *v = op.eval(*v, at(seed, i));
                }
            }
        });
    }

    pub(crate) fn run_binary(&self, p: &Binary, a: &Memory, b: &Memory, y: Store<'_, Self>) {
        let (isa, seed, [rows, cols]) = (self.isa(), y.table.seed, p.shape());
        self.dense(y, rows as usize * cols as usize, |start, out| {
            load(isa, a, start, out);
            if p.over() == Over::All {
                let mut other = [0f32; crate::epilogue::BLOCK];
                let other = &mut other[..out.len()];
                load(isa, b, start, other);
                for ((i, v), &b) in (start..).zip(out).zip(other.iter()) {
                    *v = p.op().eval(*v, b, at(seed, i));
                }
            } else {
                for (i, v) in (start..).zip(out) {
                    let at = at(seed, i);
                    *v = p.op().eval(*v, b.get(p.b_index(at.index) as usize), at);
                }
            }
        });
    }

    pub(crate) fn run_sum(&self, terms: &[Scaled<&Memory, Slot>], y: Store<'_, Self>) {
        let isa = self.isa();
        let to = y.table.exponent(y.to);
        let factors: Vec<Factor> = terms.iter().map(|term| Factor::between(y.table.exponent(term.alpha), to)).collect();
        let len = terms.first().map_or(0, |term| term.data.len());
        // The terms are brought to the exponent of the sum one by one; the store itself does not scale.
        self.dense(Store { from: y.to, ..y }, len, |start, out| {
            out.fill(0.0);
            let mut block = [0f32; crate::epilogue::BLOCK];
            let block = &mut block[..out.len()];
            for (term, factor) in terms.iter().zip(&factors) {
                load(isa, term.data, start, block);
                for (sum, &v) in out.iter_mut().zip(block.iter()) {
                    *sum += factor.apply(v);
                }
            }
        });
    }
}

/// Where an element stands; descriptors hold fewer than 2^32.
#[expect(clippy::cast_possible_truncation, reason = "fewer than 2^32 elements")]
fn at(seed: u64, i: usize) -> At {
    At { seed, index: i as u32 }
}
