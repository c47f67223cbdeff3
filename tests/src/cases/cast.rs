//! The cast to half and back, on every input.

use super::Case;
use crate::{
    case::{Check, Fail},
    epilogue::half,
    property::is_sparse,
    rig::Rig,
    wait::block_on,
};
use gradscale_core::{
    backend::{Backend, Buffer, DType, Data, DataMut, Launch, Slot, Store},
    cast::{Round, f16_from_f32},
    format::Format,
    ops::Unary,
    stats::FlushRule,
};
use half::f16;
use std::{num::NonZero, thread};

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("cast::all_halves_up", up::<B>));
    cases.push(Case::new("cast::all_f32_down", down::<B>));
    cases.push(Case::new("cast::claimed_flush_rule", probe::<B>));
}

fn up<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    let mut x = b.alloc(DType::F16, halves.len())?;
    b.write(Data::F16(&halves), &mut x)?;
    let got = rig.plain(halves.len(), |y| b.launch(Launch::Unary { op: Unary::Id, len: x.len() as u32, x: &x, y }))?;
    for (bits, &got) in (0u32..).zip(&got) {
        let want = Format::FP16.decode(bits);
        let reads_zero = !b.caps().flush.keeps_subnormals() && want.abs() < 2f32.powi(-14) && got == 0.0;
        if got.to_bits() != want.to_bits() && !(want.is_nan() && got.is_nan()) && !reads_zero {
            return Err(Fail::new(format!("half {bits:#06x} became {got:e}, not {want:e}")));
        }
    }
    Ok(vec![])
}

/// Number of inputs of one launch, if the device has buffers of that size.
const CHUNK: usize = 1 << 20;

/// Every f32 next to which the nearest half changes, with its neighbours: halves, the middles between two of them, and
/// where devices that flush put their threshold.
fn changes() -> Vec<f32> {
    let number = |bits: u16| f16::from_bits(bits).to_f64();
    let largest = f16::MAX.to_bits();
    // Above the largest half, the grid continues as if there were one more number.
    let beyond = 2.0 * number(largest) - number(largest - 1);
    let line: Vec<f64> = (0..=largest).map(number).chain([beyond]).collect();
    let middles = line.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0);
    let threshold = 2f64.powi(-14) - 2f64.powi(-26);
    let around = |value: f64| {
        #[expect(clippy::cast_possible_truncation, reason = "halves and middles of them are f32")]
        let bits = (value as f32).to_bits();
        [bits.saturating_sub(1), bits, bits + 1]
    };
    let magnitudes = line.iter().copied().chain(middles).chain([threshold]).flat_map(around);
    magnitudes.flat_map(|bits| [bits, bits | 1 << 31]).map(f32::from_bits).collect()
}

/// Tests all 2^32 f32 values, or with [`crate::property::is_sparse`] every value where the result changes and every
/// 4099th value between.
fn down<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let chunk = usize::try_from(b.caps().max_buffer / 4).map_or(CHUNK, |most| most.min(CHUNK));
    let mut walk = Walk { rig: &rig, x: b.alloc(DType::F32, chunk)?, y: b.alloc(DType::F16, chunk)?, inputs: 0 };
    let sparse = is_sparse();
    if sparse {
        let mut changes = changes();
        changes.resize(changes.len().next_multiple_of(chunk), 0.0);
        changes.chunks(chunk).try_for_each(|changes| walk.check(changes))?;
    }
    let stride: u64 = if sparse { 4099 } else { 1 };
    let mut next = 0u64;
    while next < 1 << 32 {
        walk.check(&every(stride, next, chunk))?;
        next += chunk as u64 * stride;
    }
    if !sparse && walk.inputs < 1 << 32 {
        return Err(Fail::new(format!("{} inputs instead of 2^32", walk.inputs)));
    }
    Ok(vec![])
}

/// Checks that all values were cast by the rule. Most of the time is spent here. Therefore it is not generic over
/// backends, whose crates may be compiled without optimisation, and it uses all processors.
fn compare(rule: FlushRule, keeps_subnormals: bool, values: &[f32], cast: &[f16]) -> Result<(), Fail> {
    let of_share = |values: &[f32], cast: &[f16]| -> Result<(), Fail> {
        for (&value, got) in values.iter().zip(cast) {
            // Nearly all values take this path; the general path below computes the same and takes three times as long.
            if rule == FlushRule::Nearest && f16_from_f32(value, Round::NearestEven).to_bits() == got.to_bits() {
                continue;
            }
            let want = half(rule, value);
            let same = got.to_f32().to_bits() == want.to_bits()
                || got.is_nan() && want.is_nan()
                || !keeps_subnormals && value.is_subnormal() && got.to_f32() == 0.0;
            if !same {
                return Err(Fail::new(format!(
                    "{value:e} ({:#010x}) became half {:#06x}, not {want:e}",
                    value.to_bits(),
                    got.to_bits()
                )));
            }
        }
        Ok(())
    };
    // Targets without threads do not report how many processors they have.
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    if processors == 1 {
        return of_share(values, cast);
    }
    let share = values.len().div_ceil(processors).max(1);
    thread::scope(|scope| {
        let pairs = values.chunks(share).zip(cast.chunks(share));
        let shares: Vec<_> = pairs.map(|(values, cast)| scope.spawn(move || of_share(values, cast))).collect();
        shares.into_iter().try_for_each(|share| share.join().expect("nothing panics there"))
    })
}

/// Returns `count` inputs from `first` on, `stride` apart; after the last f32 pattern they are zeros.
fn every(stride: u64, first: u64, count: usize) -> Vec<f32> {
    let bits = |i: u64| u32::try_from(first + i * stride).unwrap_or(0);
    (0..count as u64).map(bits).map(f32::from_bits).collect()
}

struct Walk<'a, 'b, B: Backend> {
    rig: &'a Rig<'b, B>,
    x: B::Buffer,
    y: B::Buffer,
    inputs: u64,
}

impl<B: Backend> Walk<'_, '_, B> {
    /// Checks as many inputs as both buffers hold.
    fn check(&mut self, values: &[f32]) -> Result<(), Fail> {
        let b = self.rig.backend;
        let (rule, keeps) = (b.caps().flush, b.caps().f32_subnormals);
        let mut back = vec![f16::ZERO; values.len()];
        b.write(Data::F32(values), &mut self.x)?;
        b.launch(Launch::Unary {
            op: Unary::Id,
            len: self.x.len() as u32,
            x: &self.x,
            y: Store::keep(Slot::ONE, &self.rig.table, &mut self.y),
        })?;
        block_on(b.read(&self.y, DataMut::F16(&mut back)))?;
        compare(rule, keeps, values, &back)?;
        self.inputs += values.len() as u64;
        Ok(())
    }
}

/// The five numbers that tell flush rules apart (spec, section 4).
fn probe<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let two = |k: i32| 2f32.powi(k);
    let values = [two(-24), two(-25), two(-14), two(-14) - two(-25), two(-14) - two(-26)];
    let x = rig.input(DType::F32, &values)?;
    let mut y = rig.output(DType::F16, values.len())?;
    b.launch(Launch::Unary {
        op: Unary::Id,
        len: x.len() as u32,
        x: &x,
        y: Store::keep(Slot::ONE, &rig.table, &mut y.buffer),
    })?;
    let stored = rig.take(&y)?;
    // Values that a later operator reads from the stored halves.
    let x = rig.input(DType::F16, &stored)?;
    let read = rig.plain(values.len(), |y| b.launch(Launch::Unary { op: Unary::Id, len: x.len() as u32, x: &x, y }))?;
    let rule = b.caps().flush;
    for ((&value, stored), read) in values.iter().zip(stored).zip(read) {
        if read != half(rule, value) {
            return Err(Fail::new(format!(
                "claims {rule:?}, but {value:e} is stored as {stored:e} and read as {read:e}"
            )));
        }
    }
    Ok(vec![])
}
