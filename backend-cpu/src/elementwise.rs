//! Element-wise unary and binary operators, and sums of several terms.

use crate::{
    Cpu, Memory,
    arch::{F16Lut, Isa, StoreInput},
    broadcast::BroadcastBuffer,
    sine::{cosine, sine},
};
use gradscale_core::{
    backend::{Slot, Store},
    ops::{At, Binary, BinaryOp, Broadcast, Unary},
    scale::Factor,
    scaled::Scaled,
    store_format::StoreFormat,
};
use half::f16;

/// Converts elements `start..` of a buffer to f32.
pub fn load_f32(isa: Isa, x: &Memory, start: usize, out: &mut [f32]) {
    match x {
        Memory::F32(x) => out.copy_from_slice(&x[start..start + out.len()]),
        Memory::F16(x) => isa.f16_to_f32(&x[start..start + out.len()], out),
        Memory::U8(x) => isa.bytes(&x[start..start + out.len()], out),
        other => out.iter_mut().enumerate().for_each(|(i, out)| *out = other.get(start + i)),
    }
}

impl Cpu {
    pub(crate) fn run_unary(&self, op: Unary, len: u32, x: &Memory, y: Store<'_, Self>) {
        let (isa, seed) = (self.isa(), y.table.seed);
        let len = len as usize;
        if let (Unary::Id, Memory::F32(x)) = (op, x) {
            return self.store_from(y, StoreInput::F32(&x[..len]));
        }
        if let (Memory::F16(x), Some(lut)) = (x, self.lookup_tables().function(isa, op, len)) {
            return self.store_from(y, StoreInput::Lut(lut, &x[..len]));
        }
        self.store_map(y, len, |start, [out]| {
            load_f32(isa, x, start, out);
            apply_unary(isa, op, seed, start, out);
        });
    }

    pub(crate) fn run_round(&self, format: StoreFormat, len: u32, x: &Memory, y: Store<'_, Self>) {
        let isa = self.isa();
        self.store_map_in(format, y, len as usize, |start, [out]| load_f32(isa, x, start, out));
    }

    pub(crate) fn run_binary(&self, p: &Binary, a: &Memory, b: &Memory, y: Store<'_, Self>) {
        let (isa, seed, [rows, cols]) = (self.isa(), y.table.seed, p.shape().map(|size| size as usize));
        // Broadcast values are converted once.
        let broadcast_values: Vec<f32> =
            if p.over() == Broadcast::All { vec![] } else { (0..p.b_len() as usize).map(|i| b.get(i)).collect() };
        let columns = (p.over() == Broadcast::PerColumn && cols != 0).then(|| BroadcastBuffer::new(&broadcast_values));
        let slopes = self.slope_lut(p.op(), rows * cols, a);
        self.store_map(y, rows * cols, |start, [out, other]| {
            match (p.over(), &columns) {
                (Broadcast::All, _) => load_f32(isa, b, start, other),
                (Broadcast::One, _) => other.fill(broadcast_values[0]),
                (_, Some(columns)) => columns.copy_to(start, other),
                _ => repeat_along_rows(&broadcast_values, cols, start, other),
            }
            if let Some((lut, a)) = slopes {
                isa.apply_lut(lut, &a[start..start + out.len()], out);
                isa.zip(out, other, |slope, dy| slope * dy);
            } else {
                load_f32(isa, a, start, out);
                apply_binary(isa, p.op(), seed, start, out, other);
            }
        });
    }

    /// Returns the lookup table of a gradient operator, and the halves that index it.
    fn slope_lut<'a>(&'a self, op: BinaryOp, len: usize, a: &'a Memory) -> Option<(&'a F16Lut, &'a [f16])> {
        let (BinaryOp::Grad(op), Memory::F16(a)) = (op, a) else { return None };
        Some((self.lookup_tables().slope(self.isa(), op, len)?, a))
    }

    pub(crate) fn run_sum(&self, len: u32, terms: &[Scaled<&Memory, Slot>], y: Store<'_, Self>) {
        let isa = self.isa();
        let to = y.table.exponent(y.to);
        let factors: Vec<[f32; 3]> =
            terms.iter().map(|term| Factor::between(y.table.exponent(term.alpha), to).parts()).collect();
        // Each term is scaled to the exponent of the sum, so the store itself does not scale.
        self.store_map(Store { from: y.to, ..y }, len as usize, |start, [out, block]| {
            out.fill(0.0);
            for (term, &[first, second, third]) in terms.iter().zip(&factors) {
                load_f32(isa, term.data, start, block);
                isa.zip(out, block, |sum, v| sum + v * first * second * third);
            }
        });
    }
}

/// Writes elements `start..` of a matrix that has one value for each row.
fn repeat_along_rows(values: &[f32], cols: usize, start: usize, out: &mut [f32]) {
    let mut at = start;
    while at < start + out.len() {
        let end = ((at / cols + 1) * cols).min(start + out.len());
        out[at - start..end - start].fill(values[at / cols]);
        at = end;
    }
}

/// Applies a unary operator to elements from index `start` on. The results are core's, except for exponentials and
/// related functions.
fn apply_unary(isa: Isa, op: Unary, seed: u64, start: usize, x: &mut [f32]) {
    match op {
        Unary::Id => {}
        Unary::Neg => isa.map(x, |x| -x),
        Unary::Abs => isa.map(x, f32::abs),
        Unary::Sign => isa.map(x, |x| if (x == 0.0) | x.is_nan() { x } else { 1f32.copysign(x) }),
        Unary::Hardswish => isa.map(x, |x| op.eval(x, At::default())),
        Unary::Sin => sine(x),
        Unary::Cos => cosine(x),
        // For a choice between a kept value and another one the compiler emits masked stores, which take AVX2 twice as
        // long. These expressions compute both. The sum turns −0 into 0.
        Unary::Relu => isa.map(x, |x| (if 0.0 > x { 0.0 } else { x }) + 0.0),
        Unary::LeakyRelu(slope) => isa.map(x, |x| x * if x > 0.0 { 1.0 } else { slope }),
        Unary::Affine { a, b } => isa.map(x, |x| a * x + b),
        Unary::Sqrt => isa.map(x, f32::sqrt),
        Unary::Recip => isa.map(x, |x| 1.0 / x),
        Unary::Exp => isa.exp(x),
        Unary::Ln => isa.ln(x),
        Unary::Sigmoid => isa.sigmoid(x),
        Unary::Silu => isa.silu(x),
        Unary::Tanh => isa.tanh(x),
        Unary::Erf => isa.erf(x),
        Unary::Gelu => isa.gelu(x),
        Unary::Dropout { keep, stream } => isa.dropout(x, keep, stream, seed, element_index(start)),
        Unary::Pow(p) if p.is_finite() => isa.pow(x, p, |x| op.eval(x, At::default())),
        Unary::Pow(_) => x.iter_mut().for_each(|x| *x = op.eval(*x, At::default())),
    }
}

/// Applies a binary operator to each pair of elements: `a[i] = op(a[i], b[i])`.
fn apply_binary(isa: Isa, op: BinaryOp, seed: u64, start: usize, a: &mut [f32], b: &[f32]) {
    match op {
        BinaryOp::Add => isa.zip(a, b, |a, b| a + b),
        BinaryOp::Sub => isa.zip(a, b, |a, b| a - b),
        BinaryOp::Mul => isa.zip(a, b, |a, b| a * b),
        BinaryOp::Div => isa.zip(a, b, |a, b| a / b),
        BinaryOp::Max => isa.zip(a, b, |a, b| if (a > b) | a.is_nan() { a } else { b }),
        BinaryOp::Grad(Unary::Id) => a.copy_from_slice(b),
        BinaryOp::Grad(Unary::Neg) => isa.zip(a, b, |_, dy| -dy),
        BinaryOp::Grad(Unary::Sign) => a.fill(0.0),
        BinaryOp::Grad(Unary::Hardswish) => isa.zip(a, b, |kept, dy| Unary::Hardswish.vjp(kept, dy, At::default())),
        BinaryOp::Grad(Unary::Relu) => isa.zip(a, b, |kept, dy| if kept > 0.0 { dy } else { 0.0 }),
        BinaryOp::Grad(Unary::LeakyRelu(slope)) => isa.zip(a, b, |x, dy| if x > 0.0 { dy } else { slope * dy }),
        BinaryOp::Grad(Unary::Affine { a: slope, .. }) => isa.zip(a, b, |_, dy| dy * slope),
        BinaryOp::Grad(Unary::Tanh) => isa.zip(a, b, |kept, dy| dy * (1.0 - kept * kept)),
        BinaryOp::Grad(Unary::Sigmoid) => isa.zip(a, b, |kept, dy| dy * (kept * (1.0 - kept))),
        BinaryOp::Grad(Unary::Exp) => isa.zip(a, b, |kept, dy| dy * kept),
        BinaryOp::Grad(Unary::Ln) => isa.zip(a, b, |kept, dy| dy / kept),
        BinaryOp::Grad(Unary::Sqrt) => isa.zip(a, b, |kept, dy| dy * (0.5 / kept)),
        BinaryOp::Grad(Unary::Recip) => isa.zip(a, b, |kept, dy| -dy * kept * kept),
        BinaryOp::Grad(Unary::Silu) => {
            isa.silu_slope(a);
            isa.zip(a, b, |slope, dy| slope * dy);
        }
        BinaryOp::Grad(Unary::Gelu) => {
            isa.gelu_slope(a);
            isa.zip(a, b, |slope, dy| slope * dy);
        }
        BinaryOp::Grad(Unary::Erf) => {
            isa.erf_slope(a);
            isa.zip(a, b, |slope, dy| slope * dy);
        }
        BinaryOp::Grad(Unary::Sin) => {
            cosine(a);
            isa.zip(a, b, |slope, dy| slope * dy);
        }
        BinaryOp::Grad(Unary::Cos) => {
            sine(a);
            isa.zip(a, b, |sine, dy| -sine * dy);
        }
        BinaryOp::Grad(Unary::Pow(p)) => {
            apply_unary(isa, Unary::Pow(p - 1.0), seed, start, a);
            isa.zip(a, b, |power, dy| dy * (p * power));
        }
        BinaryOp::Grad(dropout @ Unary::Dropout { .. }) => {
            a.copy_from_slice(b);
            apply_unary(isa, dropout, seed, start, a);
        }
        BinaryOp::Grad(Unary::Abs) => a.iter_mut().zip(b).for_each(|(a, &b)| *a = op.eval(*a, b, At::default())),
    }
}

/// Converts an element's index to u32; descriptors have fewer than 2^32 elements.
#[expect(clippy::cast_possible_truncation, reason = "fewer than 2^32 elements")]
fn element_index(i: usize) -> u32 {
    i as u32
}
