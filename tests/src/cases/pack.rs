//! Values of eight bits as bytes, and back.

use super::Case;
use crate::{
    case::{Check, Fail},
    compare::same_bits,
    data::{Random, lengths},
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, Launch},
    store_format::StoreFormat,
};

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for format in [StoreFormat::E5m2, StoreFormat::E4m3] {
        cases.push(Case::new(format!("pack::all_codes_of_{format}"), move |b: &B| all_codes(b, format)));
        cases.push(Case::new(format!("unpack::all_codes_of_{format}"), move |b: &B| all_values(b, format)));
        cases.push(Case::new(format!("pack::lengths_of_{format}"), move |b: &B| of_lengths(b, format)));
    }
}

/// Returns the values of codes.
fn values_of(format: StoreFormat, codes: &[f32]) -> Vec<f32> {
    codes.iter().map(|&code| format.format().decode(code as u32)).collect()
}

/// Packs values and returns their codes.
fn pack<B: Backend>(rig: &Rig<'_, B>, format: StoreFormat, values: &[f32]) -> Result<Vec<f32>, Fail> {
    let (x, len) = (rig.padded(DType::F16, values)?, values.len() as u32);
    let mut y = rig.output(DType::U8, values.len())?;
    rig.backend.launch(Launch::Pack { format, len, x: &x, y: &mut y.buffer })?;
    rig.take(&y)
}

/// Unpacks codes and returns their values.
fn unpack<B: Backend>(rig: &Rig<'_, B>, format: StoreFormat, codes: &[f32]) -> Result<Vec<f32>, Fail> {
    let (x, len) = (rig.padded(DType::U8, codes)?, codes.len() as u32);
    let mut y = rig.output(DType::F16, codes.len())?;
    rig.backend.launch(Launch::Unpack { format, len, x: &x, y: &mut y.buffer })?;
    rig.take(&y)
}

/// Tests that each value of the format has its code. Codes of NaN differ in their payload.
fn all_codes<B: Backend>(b: &B, format: StoreFormat) -> Check {
    let codes: Vec<f32> = (0..=u8::MAX).map(f32::from).collect();
    let values = values_of(format, &codes);
    let packed = pack(&Rig::new(b)?, format, &values)?;
    same_bits(&format!("codes of {format}"), &values_of(format, &packed), &values)?;
    let (got, expected): (Vec<f32>, Vec<f32>) =
        packed.iter().zip(codes).zip(values).filter(|(_, value)| !value.is_nan()).map(|(pair, _)| pair).unzip();
    same_bits(&format!("bytes of {format}"), &got, &expected)?;
    Ok(vec![])
}

/// Tests that each code has its value.
fn all_values<B: Backend>(b: &B, format: StoreFormat) -> Check {
    let codes: Vec<f32> = (0..=u8::MAX).map(f32::from).collect();
    same_bits(&format!("values of {format}"), &unpack(&Rig::new(b)?, format, &codes)?, &values_of(format, &codes))?;
    Ok(vec![])
}

/// Tests lengths that end inside a word, and that nothing behind the last value is read or written.
fn of_lengths<B: Backend>(b: &B, format: StoreFormat) -> Check {
    let rig = Rig::new(b)?;
    for len in lengths() {
        let mut random = Random(len as u64);
        // Finite values alone, because NaN does not say which one it is.
        let codes = random.many(len, |random| random.below(0x78) as f32 + 128.0 * random.below(2) as f32);
        let what = format!("{len} of {format}");
        same_bits(&what, &pack(&rig, format, &values_of(format, &codes))?, &codes)?;
        same_bits(&what, &unpack(&rig, format, &codes)?, &values_of(format, &codes))?;
    }
    Ok(vec![])
}
