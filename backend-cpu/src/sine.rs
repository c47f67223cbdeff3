//! Sines and cosines, one number at a time: the reduction of the argument has no vector kernel. For halves,
//! [`crate::f16_lut`] has tables of them.

use gradscale_core::ops::{At, Unary};

/// Replaces numbers by their sine.
pub fn sine(x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x = Unary::Sin.eval(*x, At::default()));
}

/// Replaces numbers by their cosine, the slope of the sine.
pub fn cosine(x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x = Unary::Cos.eval(*x, At::default()));
}

/// Replaces numbers by the slope of the cosine.
pub fn negative_sine(x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x = -Unary::Sin.eval(*x, At::default()));
}
