//! Inputs.

use crate::property::is_brief;
use gradscale_core::{
    backend::DType,
    cast::{Round, f16_from_f32},
};

/// A small generator for data that needs no shrinking: splitmix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// Uniform below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / 16_777_216.0
    }

    /// Uniform in [−1, 1), as a half exactly.
    pub fn half(&mut self) -> f32 {
        (self.bits() % 2048) as f32 / 1024.0 - 1.0
    }

    /// About normal with spread 1, rounded to half; none so small that it, or a quarter of it, is subnormal there: not
    /// every device reads those.
    pub fn normal(&mut self) -> f32 {
        let sum: f32 = (0..12).map(|_| self.unit() - 0.5).sum();
        let half = f16_from_f32(sum, Round::NearestEven).to_f32();
        if half.abs() < 2f32.powi(-12) { 0.0 } else { half }
    }

    /// Integers from −`most` to `most`, as f32: sums of their products are exact in any order.
    pub fn integer(&mut self, most: u64) -> f32 {
        self.below(2 * most + 1) as f32 - most as f32
    }

    /// Returns `len` random values of one kind.
    pub fn many(&mut self, len: usize, mut one: impl FnMut(&mut Self) -> f32) -> Vec<f32> {
        (0..len).map(|_| one(self)).collect()
    }
}

const LENGTHS: [usize; 17] = [0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 255, 256, 257, 1023, 4095, 4097, 65_537];

/// Returns lengths around the sizes by which devices may divide work. Brief cases omit the longest, because the
/// division of work does not depend on the instruction set.
pub fn lengths() -> impl Iterator<Item = usize> {
    LENGTHS.into_iter().filter(|&len| is_small(len))
}

/// Returns true if a tensor of `len` elements is tested; brief cases test only small ones.
#[must_use]
pub fn is_small(len: usize) -> bool {
    !is_brief() || len < 20_000
}

/// Values at every edge: zeros, the ends of the ranges of f32 and half, ties, flush and overflow thresholds, each
/// with its neighbours and both signs.
#[must_use]
pub fn edges() -> Vec<f32> {
    let powers =
        [-149, -148, -127, -126, -125, -26, -25, -24, -23, -16, -15, -14, -13, -1, 0, 1, 10, 11, 15, 16, 126, 127];
    let others = [
        65504.0,
        65519.0,
        65520.0,
        65536.0,
        2049.0,
        1.000_488_3,
        f32::MAX,
        2f32.powi(-14) - 2f32.powi(-25),
        2f32.powi(-14) - 2f32.powi(-26),
    ];
    let around = |x: f32| [x.next_down(), x, x.next_up()];
    let positive: Vec<f32> =
        powers.iter().map(|&k| pow2(k)).chain(others).flat_map(around).chain([0.0, f32::INFINITY]).collect();
    positive.iter().flat_map(|&x| [x, -x]).chain([f32::NAN, -f32::NAN]).collect()
}

/// 2^k, also where it is subnormal.
#[must_use]
pub fn pow2(k: i32) -> f32 {
    (2f64).powi(k) as f32
}

/// `values` as a buffer of type `dtype` holds them.
#[must_use]
pub fn held(dtype: DType, values: &[f32]) -> Vec<f32> {
    let half = |&v: &f32| f16_from_f32(v, Round::NearestEven).to_f32();
    if dtype == DType::F16 { values.iter().map(half).collect() } else { values.to_vec() }
}

/// Returns the values as [`held`] does, with 0 for subnormal halves, because some devices do not read those.
#[must_use]
pub fn readable(dtype: DType, values: &[f32]) -> Vec<f32> {
    let is_fine = |v: &f32| dtype != DType::F16 || v.abs() >= 2f32.powi(-14);
    held(dtype, values).into_iter().map(|v| if is_fine(&v) { v } else { 0.0 }).collect()
}
