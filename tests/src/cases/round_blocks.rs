//! Stores in blocks of eight bits that have exponents of their own, which are simulated with f32.

use super::Case;
use crate::{
    case::{Check, Fail},
    compare::same_bits,
    data::Random,
    epilogue::{STEPS, same_row_in},
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    block_format::{BlockFormat, ScaleRounding},
    scale::Factor,
    stats::Detail,
    store_format::StoreFormat,
};

const FORMATS: [StoreFormat; 2] = [StoreFormat::E5m2, StoreFormat::E4m3];
/// Sizes of blocks: those of MX and of DeepSeek-V3, and the limits.
const SIZES: [u32; 4] = [32, 128, BlockFormat::MIN_SIZE, BlockFormat::MAX_SIZE];
/// Rows and columns: whole blocks, shorter last blocks, rows of less than a block, and parts of long rows.
const SHAPES: [[usize; 2]; 8] = [[3, 128], [5, 33], [7, 1], [2, 31], [1, 5000], [40, 96], [0, 3], [300, 17]];

/// Slots of the operand, and of the result.
const FROM: Slot = Slot(3);
const TO: Slot = Slot(4);

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for format in FORMATS {
        cases.push(Case::new(format!("round_blocks::stores_of_{format}"), move |b: &B| stores(b, format)));
        cases.push(Case::new(format!("round_blocks::limits_of_{format}"), move |b: &B| limits(b, format)));
    }
}

/// Launch to check: the descriptor, the type of the operand, and the exponents.
struct Setting {
    format: BlockFormat,
    shape: [usize; 2],
    x: DType,
    exponents: (i32, i32),
    detail: Detail,
    /// True if the destination holds values to which others are added.
    add: bool,
}

/// Stores values in blocks and compares bits and row with core's.
fn check<B: Backend>(rig: &mut Rig<'_, B>, setting: &Setting, values: &[f32]) -> Result<(), Fail> {
    let &Setting { format, shape: [rows, columns], x: dtype, exponents, detail, add } = setting;
    rig.set(&[0, exponents.0, exponents.1])?;
    let x = rig.input(dtype, values)?;
    let before: Vec<f32> = values.iter().rev().copied().collect();
    let mut y = if add { rig.output_over(DType::F32, &before)? } else { rig.output(DType::F32, values.len())? };
    let store = Store { detail, add, ..Store::site(FROM, TO, &rig.table, &mut y.buffer) };
    rig.backend.launch(Launch::RoundBlocks { format, rows: rows as u32, columns: columns as u32, x: &x, y: store })?;
    let factor = Factor::between(exponents.0, exponents.1);
    let mut rounded: Vec<f32> = values.iter().map(|&v| factor.apply(v)).collect();
    if add {
        rounded.iter_mut().zip(&before).for_each(|(u, y)| *u += y);
    }
    let mut scaled = Vec::new();
    for row in rounded.chunks_mut(columns) {
        for block in row.chunks(format.size() as usize) {
            let exponent = format.exponent(block);
            scaled.extend(block.iter().map(|&u| format.scaled(exponent, u)));
        }
        format.round_row(row);
    }
    let what = format!("{format}, {rows} x {columns} of {dtype:?} from 2^{} to 2^{}", exponents.0, exponents.1);
    same_bits(&what, &rig.take(&y)?, &rounded)?;
    same_row_in(format.format().convention(), &what, rig, TO, &scaled, detail)
}

/// Tests shapes, sizes of blocks, types, exponents, and a sum with what is stored already.
fn stores<B: Backend>(b: &B, format: StoreFormat) -> Check {
    let mut rig = Rig::new(b)?;
    for (i, shape) in SHAPES.into_iter().enumerate() {
        let size = SIZES[i % SIZES.len()];
        let rounding = [ScaleRounding::Down, ScaleRounding::Up][i / SIZES.len() % 2];
        let format = BlockFormat::new(format, size).map_err(|error| Fail::new(error.to_string()))?;
        let format = format.with_scale_rounding(rounding);
        let mut random = Random(i as u64);
        // Halves whose magnitudes change from block to block, and within a block.
        let values = random.many(shape[0] * shape[1], |random| {
            let v = random.half() * 2f32.powi(random.below(12) as i32 - 6);
            if v.abs() < 2f32.powi(-13) { 0.0 } else { v }
        });
        let detail = if i % 2 == 0 { Detail::Moments } else { Detail::Counts };
        for (x, add) in [(DType::F32, false), (DType::F16, false), (DType::F32, true)] {
            let exponents = if add { (0, 0) } else { STEPS[i % STEPS.len()] };
            check(&mut rig, &Setting { format, shape, x, exponents, detail, add }, &values)?;
        }
    }
    Ok(vec![])
}

/// Tests f32 of all magnitudes: blocks of zeros, of subnormal f32 and of the largest; values that saturate, values that
/// vanish beside others, and values that are not finite.
fn limits<B: Backend>(b: &B, format: StoreFormat) -> Check {
    let mut rig = Rig::new(b)?;
    let format = BlockFormat::new(format, 32).map_err(|error| Fail::new(error.to_string()))?;
    let (specials, mut random) = ([f32::INFINITY, f32::NAN, f32::NEG_INFINITY], Random(9));
    let blocks = 600;
    let values: Vec<f32> = (0..blocks)
        .flat_map(|block| {
            let largest = random.below(255) as u32;
            let span = 1 + random.below(280) as u32;
            (0..32)
                .map(|i| {
                    let field = largest.saturating_sub(random.below(u64::from(span)) as u32);
                    let digits = if random.below(2) == 0 { 0x7F_FFFF } else { random.below(1 << 23) as u32 };
                    let bits = field << 23 | digits | u32::from(random.below(2) == 0) << 31;
                    match (block % 20, i) {
                        (0, _) => 0.0f32.copysign(f32::from_bits(bits)),
                        (1, _) => f32::from_bits(bits & 0x807F_FFFF),
                        (2, i) if i < 3 => specials[i],
                        (3, i) => specials[i % 3],
                        _ => f32::from_bits(bits),
                    }
                })
                .collect::<Vec<f32>>()
        })
        .collect();
    let shape = [blocks, 32];
    for rounding in [ScaleRounding::Down, ScaleRounding::Up] {
        let format = format.with_scale_rounding(rounding);
        let setting = Setting { format, shape, x: DType::F32, exponents: (0, 0), detail: Detail::Full, add: false };
        check(&mut rig, &setting, &values)?;
    }
    Ok(vec![])
}
