//! Formats of products' operands: a product is told that both of its operands have 8 bits, so that a device may multiply
//! them in units for these.

use super::{BufferId, Compiler, Launch, Operation};
use gradscale_core::{backend::DType, ops::Unary, store_format::StoreFormat};
use std::collections::HashMap;

impl Compiler<'_, '_> {
    /// Declares the formats of the operands of matrix products, if the method has products in 8 bits. It runs after
    /// [`Compiler::round_stores`], because rounding launches name the formats, and before buffers share memory.
    pub(super) fn declare_operand_formats(&mut self) {
        if !self.shared.sites.multiplies_eight_bits() {
            return;
        }
        let formats = formats_of_halves(&self.launches, self.fixed.scalar_zero());
        for launch in &mut self.launches {
            if let Operation::Gemm { p, a, b, .. } = &mut launch.operation {
                *p = p.operand_formats([*a, *b].map(|buf| formats.get(&buf).copied().unwrap_or_default()));
            }
        }
    }
}

/// Returns the format of each half buffer that launches store to. A buffer has a format of 8 bits only if every store to
/// it rounds to that format, copies values of it, or repeats the scalar `zero`, which every format has. For example, a
/// concatenation brings parts to a common exponent, so its result is FP16.
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

/// Returns the format of the values that an operation stores, and true if it is that of an operand that is copied.
fn stored_format(operation: &Operation, formats: &HashMap<BufferId, StoreFormat>) -> (StoreFormat, bool) {
    match operation {
        Operation::Round { format, .. } => (*format, false),
        Operation::Copy { x, .. } | Operation::Unary { op: Unary::Id, x, .. } => {
            (formats.get(x).copied().unwrap_or_default(), true)
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
        ops::{Dim, Strided},
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
}
