//! Stores in formats of eight bits, which are simulated with halves.

use super::Case;
use crate::{
    case::{Check, Fail},
    compare::same_bits,
    data::{Random, lengths},
    epilogue::{STEPS, same_row_in},
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    scale::Factor,
    stats::Detail,
    store_format::StoreFormat,
};

/// Formats that differ from the memory's.
const EIGHT_BITS: [StoreFormat; 2] = [StoreFormat::E5m2, StoreFormat::E4m3];

/// Slots of the operand, and of the result.
const FROM: Slot = Slot(3);
const TO: Slot = Slot(4);

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for format in EIGHT_BITS {
        cases.push(Case::new(format!("round::changes_of_{format}"), move |b: &B| at_every_change(b, format)));
        cases.push(Case::new(format!("round::stores_of_{format}"), move |b: &B| stores(b, format)));
    }
}

/// Stores values in a format and compares bits and row with core's.
fn check<B: Backend>(
    rig: &mut Rig<'_, B>, format: StoreFormat, [from, to]: [DType; 2], values: &[f32], exponents: (i32, i32),
    detail: Detail,
) -> Result<(), Fail> {
    rig.set(&[0, exponents.0, exponents.1])?;
    let x = rig.input(from, values)?;
    let mut y = rig.output(to, values.len())?;
    let store = Store { detail, ..Store::site(FROM, TO, &rig.table, &mut y.buffer) };
    rig.backend.launch(Launch::Round { format, len: values.len() as u32, x: &x, y: store })?;
    let factor = Factor::between(exponents.0, exponents.1);
    let scaled: Vec<f32> = values.iter().map(|&v| factor.apply(v)).collect();
    let what = format!("{format} of {from:?} in {to:?} from 2^{} to 2^{}", exponents.0, exponents.1);
    let rounded: Vec<f32> = scaled.iter().map(|&u| format.round(u).to_f32()).collect();
    same_bits(&what, &rig.take(&y)?, &rounded)?;
    same_row_in(format.convention(), &what, rig, TO, &scaled, detail)
}

/// Tests both neighbours of every f32 at which the result or a counter changes, and some beyond the format's range.
fn at_every_change<B: Backend>(b: &B, format: StoreFormat) -> Check {
    let mut rig = Rig::new(b)?;
    // Numbers of the format and the middles between them have one bit of mantissa more than the format. From the least
    // number on, such f32 lie at equal distances of bits, for subnormals of the format more densely than needed.
    let step = 1 << (22 - format.format().mantissa_bits());
    let least = (2f32.powi(format.format().min_subnormal_exponent() - 2)).to_bits();
    let magnitudes = (least..=f32::INFINITY.to_bits()).step_by(step).flat_map(|bits| [bits - 1, bits, bits + 1]);
    let specials = [0, 1 << 23, f32::MAX.to_bits(), f32::NAN.to_bits()];
    let bits = magnitudes.chain(specials).flat_map(|bits| [bits, bits | 1 << 31]);
    let values: Vec<f32> = bits.map(f32::from_bits).collect();
    for y in [DType::F16, DType::F32] {
        check(&mut rig, format, [DType::F32, y], &values, (0, 0), Detail::Full)?;
    }
    Ok(vec![])
}

/// Tests exponents, lengths, types, and a sum with what is stored already.
fn stores<B: Backend>(b: &B, format: StoreFormat) -> Check {
    let mut rig = Rig::new(b)?;
    for len in lengths() {
        let mut random = Random(len as u64);
        let values = random.many(len, |random| {
            let v = random.half();
            if v.abs() < 2f32.powi(-13) { 0.0 } else { v }
        });
        for types in [[DType::F32, DType::F16], [DType::F16, DType::F16], [DType::F32, DType::F32]] {
            let exponents = STEPS[len % STEPS.len()];
            check(&mut rig, format, types, &values, exponents, Detail::Moments)?;
        }
    }
    let mut random = Random(5);
    let [before, values] = [(); 2].map(|()| random.many(1000, Random::half));
    rig.set(&[0, 0, 0])?;
    let x = rig.input(DType::F32, &values)?;
    let mut y = rig.output_over(DType::F16, &before)?;
    let store = Store { add: true, ..Store::site(FROM, TO, &rig.table, &mut y.buffer) };
    b.launch(Launch::Round { format, len: values.len() as u32, x: &x, y: store })?;
    let sums: Vec<f32> = before.iter().zip(&values).map(|(&y, &v)| y + v).collect();
    let rounded: Vec<f32> = sums.iter().map(|&u| format.round(u).to_f32()).collect();
    same_bits("with add", &rig.take(&y)?, &rounded)?;
    same_row_in(format.convention(), "with add", &rig, TO, &sums, Detail::Moments)?;
    Ok(vec![])
}
