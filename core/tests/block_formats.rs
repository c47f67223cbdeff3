//! Tests of formats of blocks against a model in f64, whose numbers of a format come from its definition.

mod common;

use common::cases;
use gradscale_core::{
    block_format::{BlockFormat, BlockFormatError, ScaleRounding},
    stats::{Detail, Stats},
    store_format::StoreFormat,
};
use proptest::{collection::vec, prelude::*, sample::select};

const FORMATS: [StoreFormat; 2] = [StoreFormat::E5m2, StoreFormat::E4m3];
const ROUNDINGS: [ScaleRounding; 2] = [ScaleRounding::Down, ScaleRounding::Up];

/// Returns the numbers of a format from 0 on, ascending, so that numbers at even places have an even last digit; and the
/// smallest normal number.
fn numbers(format: StoreFormat) -> (Vec<f64>, f64) {
    let (digits, least, largest) = match format {
        StoreFormat::E5m2 => (2, -14, 57344.0),
        StoreFormat::E4m3 => (3, -6, 448.0),
        StoreFormat::Fp16 => unreachable!("a format of 8 bits"),
    };
    let unit = 1u32 << digits;
    let subnormal = (0..unit).map(|m| f64::from(m) / f64::from(unit) * 2f64.powi(least));
    let normal = (least..=15)
        .flat_map(|e| (0..unit).map(move |m| (1.0 + f64::from(m) / f64::from(unit)) * 2f64.powi(e)))
        .filter(|&number| number <= largest);
    (subnormal.chain(normal).collect(), 2f64.powi(least))
}

/// Returns a block as it is stored, and the numbers of the format without their power of two.
fn model(format: StoreFormat, rounding: ScaleRounding, block: &[f32]) -> (Vec<f64>, Vec<f64>) {
    let (numbers, _) = numbers(format);
    let largest = numbers.last().copied().unwrap_or(0.0);
    let amax = block.iter().filter(|u| u.is_finite()).fold(0.0, |amax: f64, &u| amax.max(f64::from(u.abs())));
    let floor_log2 = |x: f64| (x.to_bits() >> 52) as i32 - 1023;
    let exponent_of = |amax: f64| match rounding {
        ScaleRounding::Down => (floor_log2(amax) - floor_log2(largest)).max(-127),
        ScaleRounding::Up => (-127..=128).find(|&k| amax <= largest * 2f64.powi(k)).expect("an f32"),
    };
    let exponent = if amax == 0.0 { 0 } else { exponent_of(amax) };
    let places = block.iter().map(|&u| {
        let s = f64::from(u) * 2f64.powi(-exponent);
        let size = s.abs().min(largest);
        let above = numbers.iter().position(|&number| number >= size).unwrap_or(0);
        let below = above.saturating_sub(1);
        let [down, up] = [size - numbers[below], numbers[above] - size];
        let place = if up < down || up == down && above % 2 == 0 { above } else { below };
        (numbers[place].copysign(s), numbers[place].copysign(s) * 2f64.powi(exponent))
    });
    let (stored, values): (Vec<f64>, Vec<f64>) = places.unzip();
    (values, stored)
}

/// Returns f32 within some binades below a largest one, with zeros.
fn row() -> impl Strategy<Value = Vec<f32>> {
    let value = |largest: u32, span: u32| {
        (0..=span, 0..1u32 << 23, any::<bool>(), 0..12u32).prop_map(move |(below, digits, negative, kind)| {
            // Digits of one to four bits make ties.
            let digits = if kind < 6 { digits & 0x78_0000 } else { digits };
            let bits = largest.saturating_sub(below) << 23 | digits | u32::from(negative) << 31;
            if kind == 11 { 0.0f32.copysign(f32::from_bits(bits)) } else { f32::from_bits(bits) }
        })
    };
    (0..255u32, 0..260u32).prop_flat_map(move |(largest, span)| vec(value(largest, span), 1..150))
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn rows_are_rounded_and_counted_like_the_model(
        format in select(FORMATS.to_vec()), size in select(vec![16, 32, 64, 128]), rounding in select(ROUNDINGS.to_vec()),
        row in row(),
    ) {
        let blocks = BlockFormat::new(format, size).expect("a size").with_scale_rounding(rounding);
        let mut rounded = row.clone();
        blocks.round_row(&mut rounded);
        let (_, least_normal) = numbers(format);
        let mut seen = Stats::new(format.convention(), 0, Detail::Full);
        let (mut flushed, mut subnormal) = (0, 0);
        for (block, rounded) in row.chunks(size as usize).zip(rounded.chunks(size as usize)) {
            let (values, stored) = model(format, rounding, block);
            let found: Vec<u64> = rounded.iter().map(|&y| f64::from(y).to_bits()).collect();
            prop_assert_eq!(found, values.iter().map(|y| y.to_bits()).collect::<Vec<_>>(), "{:?}", block);
            let exponent = blocks.exponent(block);
            seen.observe(&block.iter().map(|&u| blocks.scaled(exponent, u)).collect::<Vec<_>>());
            flushed += block.iter().zip(&stored).filter(|&(&u, &s)| u != 0.0 && s == 0.0).count() as u64;
            subnormal += stored.iter().filter(|s| s.abs() > 0.0 && s.abs() < least_normal).count() as u64;
        }
        let counts = seen.counts();
        prop_assert_eq!((counts.flushed, counts.overflowed, counts.non_finite()), (flushed, 0, 0));
        prop_assert_eq!(counts.zeros, row.iter().filter(|&&u| u == 0.0).count() as u64);
        prop_assert_eq!(counts.subnormal, subnormal);
    }

    /// Values that are in blocks already stay, and a power of two in front of a row changes nothing.
    #[test]
    fn rounding_is_idempotent_and_moves_with_the_scale(
        format in select(FORMATS.to_vec()), rounding in select(ROUNDINGS.to_vec()), row in vec(-1.0..1.0f32, 1..100),
        shift in -60..60i32,
    ) {
        let blocks = BlockFormat::new(format, 32).expect("a size").with_scale_rounding(rounding);
        let mut once = row.clone();
        blocks.round_row(&mut once);
        let mut twice = once.clone();
        blocks.round_row(&mut twice);
        prop_assert_eq!(&twice, &once);
        let factor = 2f32.powi(shift);
        let mut moved: Vec<f32> = row.iter().map(|u| u * factor).collect();
        blocks.round_row(&mut moved);
        prop_assert_eq!(moved, once.iter().map(|y| y * factor).collect::<Vec<_>>());
    }
}

#[test]
fn values_that_are_not_finite_stay_and_do_not_count() {
    let blocks = BlockFormat::new(StoreFormat::E5m2, 16).expect("a size");
    let mut row = [f32::INFINITY, 3.0, f32::NAN, -0.0, 1e-30];
    assert_eq!(blocks.exponent(&row), 1 - 15);
    blocks.round_row(&mut row);
    assert!(row[0] == f32::INFINITY && row[1] == 3.0 && row[2].is_nan());
    assert_eq!((row[3].to_bits(), row[4].to_bits()), ((-0.0f32).to_bits(), 0));
    // Like a store in E4M3, a block of it has no infinities.
    assert!(BlockFormat::new(StoreFormat::E4m3, 16).expect("a size").round(0, f32::INFINITY).is_nan());
    // The smallest f32 is a value, although its product with the scale is not.
    let mut row = [f32::MAX, f32::from_bits(1)];
    let scaled = blocks.scaled(blocks.exponent(&row), row[1]);
    assert_eq!(scaled, f32::MIN_POSITIVE);
    blocks.round_row(&mut row);
    assert_eq!(row, [57344.0 * 2f32.powi(112), 0.0]);
}

#[test]
fn only_powers_of_two_of_eight_bits_are_blocks() {
    for size in [0, 8, 15, 17, 33, 2048, u32::MAX] {
        assert_eq!(BlockFormat::new(StoreFormat::E4m3, size), Err(BlockFormatError::Size(size)));
    }
    assert_eq!(BlockFormat::new(StoreFormat::Fp16, 32), Err(BlockFormatError::Format));
    assert_eq!(BlockFormat::new(StoreFormat::E4m3, 128).map(|blocks| blocks.to_string()), Ok("e4m3 by 128".to_owned()));
}
