//! Formats of products' operands: descriptors of products declare that both operands have 8 bits, so that a device may
//! multiply them in units for these. The descriptor of a convolution decides which passes such units compute.

use super::{BufferId, Compiler, Launch, Operation};
use gradscale_core::{
    backend::DType,
    ops::{BinaryOp, GatherScatter, PoolOp, Unary},
    store_format::StoreFormat,
};
use std::collections::HashMap;

impl Compiler<'_, '_> {
    /// Declares the formats of the operands of matrix products and convolutions, if the method has products in 8 bits. It
    /// runs after [`Compiler::round_stores`], because rounding launches name the formats, and before buffers share memory.
    pub(super) fn declare_operand_formats(&mut self) {
        if !self.shared.sites.multiplies_eight_bits() {
            return;
        }
        let formats = formats_of_halves(&self.launches, self.fixed.scalar_zero());
        let operand_formats = |a, b| [a, b].map(|buf: BufferId| formats.get(&buf).copied().unwrap_or_default());
        for launch in &mut self.launches {
            if let Operation::Gemm { p, a, b, .. } = &mut launch.operation {
                *p = p.operand_formats(operand_formats(*a, *b));
            } else if let Operation::Conv { p, a, b, .. } = &mut launch.operation {
                *p = p.operand_formats(operand_formats(*a, *b));
            }
        }
    }
}

/// Returns the format of each half buffer that launches store to. A buffer has a format of 8 bits only if every store to
/// it rounds to that format, copies or selects values of it, or repeats the scalar `zero`, which every format has. For
/// example, the gradient of a ReLU has the format of the gradient that it selects from. A concatenation brings parts to a
/// common exponent, so its result is FP16.
pub(super) fn formats_of_halves(launches: &[Launch], zero: BufferId) -> HashMap<BufferId, StoreFormat> {
    let mut formats: HashMap<BufferId, StoreFormat> = HashMap::new();
    let fills = |launch: &&Launch| matches!(launch.operation, Operation::Copy { x, .. } if x == zero);
    for launch in launches.iter().filter(|launch| !fills(launch)) {
        let (stored, is_copied) = stored_format(&launch.operation, &formats);
        launch.with_stores(|y| {
            if y.y.dtype == DType::F16 {
                let is_exact = !y.add && (!is_copied || y.from == y.to);
                let stored = if is_exact { stored } else { StoreFormat::Fp16 };
                let format = formats.entry(y.y.buf).or_insert(stored);
                if *format != stored {
                    *format = StoreFormat::Fp16;
                }
            }
            y
        });
    }
    formats
}

/// Returns the format of the values that an operation stores, and true if each is a value of one operand, its negative or
/// zero, so that it has the format of that operand.
fn stored_format(operation: &Operation, formats: &HashMap<BufferId, StoreFormat>) -> (StoreFormat, bool) {
    let format_of = |x: &BufferId| (formats.get(x).copied().unwrap_or_default(), true);
    match operation {
        Operation::Round { format, .. } => (*format, false),
        Operation::Copy { x, .. }
        | Operation::Unary { op: Unary::Id | Unary::Relu | Unary::Neg | Unary::Abs, x, .. } => format_of(x),
        Operation::Binary { p, b: gradient, .. } if p.op() == BinaryOp::Grad(Unary::Relu) => format_of(gradient),
        Operation::Pool { p, x, .. } if p.op() == PoolOp::Max => format_of(x),
        // Overlapping windows add gradients.
        Operation::Unpool { p, way, x, .. }
            if p.op() == PoolOp::Max && (*way == GatherScatter::Gather || !p.overlaps()) =>
        {
            format_of(x)
        }
        Operation::Unary { .. }
        | Operation::Binary { .. }
        | Operation::Sum { .. }
        | Operation::Reduce { .. }
        | Operation::Gemm { .. }
        | Operation::Conv { .. }
        | Operation::Pool { .. }
        | Operation::Unpool { .. }
        | Operation::Rows { .. }
        | Operation::RoiAlign { .. }
        | Operation::RoiPool { .. }
        | Operation::RoiUnpool { .. }
        | Operation::Norm { .. }
        | Operation::NormVjp { .. }
        | Operation::Softmax { .. }
        | Operation::SoftmaxVjp { .. }
        | Operation::Attention { .. }
        | Operation::AttentionVjp { .. }
        | Operation::Lstm { .. }
        | Operation::LstmVjp { .. }
        | Operation::Gru { .. }
        | Operation::GruVjp { .. }
        | Operation::CrossEntropy { .. }
        | Operation::CrossEntropyVjp { .. }
        | Operation::Ctc { .. }
        | Operation::GlobalNorm { .. }
        | Operation::RoundBlocks { .. }
        | Operation::Pack { .. }
        | Operation::Unpack { .. }
        | Operation::Optimize { .. } => (StoreFormat::Fp16, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{StoreSpec, Value, launch::round};
    use gradscale_core::{
        backend::Slot,
        ops::{Binary, Broadcast, Dim, Strided},
    };

    /// A tensor that is filled with zeros has the format of the parts that are copied into it at their exponent.
    #[test]
    fn zeros_have_every_format() {
        let [zero, single, part, all] = [0, 1, 2, 3].map(BufferId::Arena);
        let half = |buf| Value { buf, dtype: DType::F16, len: 4 };
        let p = Strided::new(&[Dim { len: 4, x: 1, y: 1 }], 0, 0).expect("a shape");
        let copy = |x, from| Operation::Copy { p: p.clone(), x, y: StoreSpec::rescaled(half(all), from, Slot(2)) };
        let rounded = StoreSpec { format: StoreFormat::E5m2, ..StoreSpec::rescaled(half(part), Slot::ONE, Slot(2)) };
        let format = |from| {
            let launches = [copy(zero, Slot(2)), round(single, rounded), copy(part, from)].map(Launch::from);
            formats_of_halves(&launches, zero).get(&all).copied()
        };
        assert_eq!(format(Slot(2)), Some(StoreFormat::E5m2));
        assert_eq!(format(Slot(3)), Some(StoreFormat::Fp16), "another exponent rounds again");
    }

    /// The gradient of a ReLU has the format of the gradient from which it selects, and that of a leaky ReLU, which
    /// multiplies, does not.
    #[test]
    fn selected_values_keep_their_format() {
        let [zero, single, saved, gradient, selected] = [0, 1, 2, 3, 4].map(BufferId::Arena);
        let half = |buf| Value { buf, dtype: DType::F16, len: 4 };
        let format = |unary, to| {
            let y = StoreSpec::rescaled(half(selected), Slot(2), to);
            let p = Binary::new(BinaryOp::Grad(unary), 1, 4, Broadcast::All).expect("a shape");
            let stored =
                StoreSpec { format: StoreFormat::E5m2, ..StoreSpec::rescaled(half(gradient), Slot::ONE, Slot(2)) };
            let launches = [round(single, stored), Operation::Binary { p, a: saved, b: gradient, y }].map(Launch::from);
            formats_of_halves(&launches, zero).get(&selected).copied()
        };
        assert_eq!(format(Unary::Relu, Slot(2)), Some(StoreFormat::E5m2));
        assert_eq!(format(Unary::Relu, Slot(3)), Some(StoreFormat::Fp16), "another exponent rounds again");
        assert_eq!(format(Unary::LeakyRelu(0.2), Slot(2)), Some(StoreFormat::Fp16));
    }
}
