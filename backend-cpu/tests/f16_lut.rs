//! Functions of halves are looked up in long tensors and computed in short ones: to the same bits, for every half.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test: small sizes, a device that cannot fail"
)]

mod shared;

use gradscale_core::{
    backend::{Backend, DType, Launch, Store},
    cast::{Round, f16_from_f32},
    ops::{Binary, BinaryOp, Broadcast, Unary},
    stats::{Convention, Detail, Stats},
};
use gradscale_cpu::{Cpu, Isa, Memory};
use half::f16;
use shared::{halves, store, upload};

/// Bits of a result, where every NaN is the same.
fn bits(cpu: &Cpu, len: usize, run: impl FnOnce(Store<'_, Cpu>)) -> Vec<u32> {
    let canonical = |value: u32| if f32::from_bits(value).is_nan() { u32::MAX } else { value };
    store(cpu, DType::F32, len, run).0.into_iter().map(canonical).collect()
}

/// Lookup and store may be one pass: its halves and its statistics are those of separate passes.
#[test]
fn looked_up_and_stored() {
    let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    for isa in Isa::available() {
        let cpu = Cpu::with_isa(2, isa).unwrap();
        let (x, len) = (upload(&cpu, &all), all.len());
        for op in [Unary::Exp, Unary::Ln, Unary::Sigmoid, Unary::Silu, Unary::Tanh, Unary::Erf, Unary::Gelu] {
            let run = |y: Store<'_, Cpu>| cpu.launch(Launch::Unary { op, len: len as u32, x: &x, y }).unwrap();
            let results = store(&cpu, DType::F32, len, run).0.into_iter().map(f32::from_bits).collect::<Vec<f32>>();
            let (stored, row) = store(&cpu, DType::F16, len, run);
            for ((stored, result), x) in stored.into_iter().zip(&results).zip(&all) {
                let want = f16_from_f32(*result, Round::NearestEven);
                let same = f16::from_bits(stored as u16).is_nan() && want.is_nan() || stored == want.to_bits().into();
                assert!(same, "{isa}: {op:?} of {x}: {stored:#06x}");
            }
            let mut want = Stats::new(Convention::FP16, row.counts().exponent, Detail::Full);
            want.observe(&results);
            assert_eq!(row.counts(), want.counts(), "{isa}: {op:?}");
            assert_eq!(row.bins(), want.bins(), "{isa}: {op:?}");
        }
    }
}

#[test]
fn looked_up_as_computed() {
    let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    for isa in Isa::available() {
        let cpu = Cpu::with_isa(2, isa).unwrap();
        let Memory::F16(gradients) = halves(&cpu, all.len(), 1) else { panic!("not halves") };
        for op in [Unary::Exp, Unary::Ln, Unary::Sigmoid, Unary::Silu, Unary::Tanh, Unary::Erf, Unary::Gelu] {
            let value = |values: &[f16]| {
                let (x, len) = (upload(&cpu, values), values.len());
                bits(&cpu, len, |y| cpu.launch(Launch::Unary { op, len: len as u32, x: &x, y }).unwrap())
            };
            let gradient = |values: &[f16], dy: &[f16]| {
                let (a, b, len) = (upload(&cpu, values), upload(&cpu, dy), values.len());
                let p = Binary::new(BinaryOp::Grad(op), 1, len as u32, Broadcast::All).unwrap();
                bits(&cpu, len, |y| cpu.launch(Launch::Binary { p, a: &a, b: &b, y }).unwrap())
            };
            // Few elements are computed: a thousand at a time.
            let values = all.chunks(1000).flat_map(value);
            assert_eq!(value(&all), values.collect::<Vec<_>>(), "{isa}: {op:?}");
            let slopes = all.chunks(1000).zip(gradients.chunks(1000)).flat_map(|(x, dy)| gradient(x, dy));
            assert_eq!(gradient(&all, &gradients), slopes.collect::<Vec<_>>(), "{isa}: gradient of {op:?}");
        }
    }
}
