//! The cast to half and back, on every input.

use super::Case;
use crate::{
    case::{Check, Fail},
    epilogue::half,
    property::is_brief,
    rig::{Rig, wait},
};
use gradscale_core::{
    backend::{Backend, DType, Data, DataMut, Slot, Store},
    descriptor::Unary,
    format::Format,
};
use half::f16;

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
    let got = rig.plain(halves.len(), |y| b.unary(Unary::Id, &x, y))?;
    for (bits, &got) in (0u32..).zip(&got) {
        let want = Format::FP16.decode(bits);
        let reads_zero = !b.caps().flush.keeps_subnormals() && want.abs() < 2f32.powi(-14) && got == 0.0;
        if got.to_bits() != want.to_bits() && !(want.is_nan() && got.is_nan()) && !reads_zero {
            return Err(Fail::new(format!("half {bits:#06x} became {got:e}, not {want:e}")));
        }
    }
    Ok(vec![])
}

/// All 2^32 f32 values in release builds, every 257th in others, fewer where the suite itself is tested.
fn down<B: Backend>(b: &B) -> Check {
    const CHUNK: usize = 1 << 20;
    let stride: u64 = if is_brief() {
        4099
    } else if cfg!(debug_assertions) {
        257
    } else {
        1
    };
    let rig = Rig::new(b)?;
    let rule = b.caps().flush;
    let keeps = b.caps().f32_subnormals;
    let mut x = b.alloc(DType::F32, CHUNK)?;
    let mut y = b.alloc(DType::F16, CHUNK)?;
    let (mut values, mut back) = (vec![0f32; CHUNK], vec![f16::ZERO; CHUNK]);
    let (mut next, mut inputs) = (0u64, 0u64);
    while next < 1 << 32 {
        for value in &mut values {
            // Beyond the end the last chunk of a sparse walk repeats zeros.
            *value = f32::from_bits(u32::try_from(next).unwrap_or(0));
            next += stride;
        }
        b.write(Data::F32(&values), &mut x)?;
        b.unary(Unary::Id, &x, Store::keep(Slot::ONE, &rig.table, &mut y))?;
        wait(b.read(&y, DataMut::F16(&mut back)))?;
        for (&value, got) in values.iter().zip(&back) {
            let want = half(rule, value);
            let same = got.to_f32().to_bits() == want.to_bits()
                || got.is_nan() && want.is_nan()
                || !keeps && value.is_subnormal() && got.to_f32() == 0.0;
            if !same {
                return Err(Fail::new(format!(
                    "{value:e} ({:#010x}) became half {:#06x}, not {want:e}",
                    value.to_bits(),
                    got.to_bits()
                )));
            }
        }
        inputs += CHUNK as u64;
    }
    if stride == 1 && inputs != 1 << 32 {
        return Err(Fail::new(format!("{inputs} inputs instead of 2^32")));
    }
    Ok(vec![])
}

/// The five numbers that tell flush rules apart (spec, section 4).
fn probe<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let two = |k: i32| 2f32.powi(k);
    let values = [two(-24), two(-25), two(-14), two(-14) - two(-25), two(-14) - two(-26)];
    let x = rig.input(DType::F32, &values)?;
    let mut y = rig.output(DType::F16, values.len())?;
    b.unary(Unary::Id, &x, Store::keep(Slot::ONE, &rig.table, &mut y.buffer))?;
    let stored = rig.take(&y)?;
    // What a later operator reads of them.
    let read =
        rig.plain(values.len(), |out| b.unary(Unary::Id, &rig.input(DType::F16, &stored).expect("small"), out))?;
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
