//! Loops over elements.

use super::{kernels, math};
use gradscale_core::ops::{At, dropout_keeps};

kernels! {
    /// `x[i] = f(x[i])`, f of few operations.
    fn map[F: Fn(f32) -> f32](x: &mut [f32], f: F) {
        for x in x {
            *x = f(*x);
        }
    }

    /// `x[i] = f(x[i], y[i])`, f of few operations.
    fn zip[F: Fn(f32, f32) -> f32](x: &mut [f32], y: &[f32], f: F) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x = f(*x, y);
        }
    }

    /// e^x.
    fn exp[](x: &mut [f32]) {
        for x in x {
            *x = math::exp(*x);
        }
    }

    /// 1 / (1 + e^-x).
    fn sigmoid[](x: &mut [f32]) {
        for x in x {
            *x = math::sigmoid(*x);
        }
    }

    /// x / (1 + e^-x).
    fn silu[](x: &mut [f32]) {
        for x in x {
            *x *= math::sigmoid(*x);
        }
    }

    /// Hyperbolic tangent.
    fn tanh[](x: &mut [f32]) {
        for x in x {
            *x = math::tanh(*x);
        }
    }

    /// Error function.
    fn erf[](x: &mut [f32]) {
        for x in x {
            *x = math::erf(*x);
        }
    }

    /// x · Φ(x).
    fn gelu[](x: &mut [f32]) {
        for x in x {
            *x *= math::normal_cdf(*x);
        }
    }

    /// ln x.
    fn ln[](x: &mut [f32]) {
        for x in x {
            *x = math::ln_of_any(*x);
        }
    }

    /// x becomes dy · σ(x) · (1 + x · (1 − σ(x))).
    fn silu_vjp[](x: &mut [f32], dy: &[f32]) {
        for (x, &dy) in x.iter_mut().zip(dy) {
            let s = math::sigmoid(*x);
            *x = dy * (s * (1.0 + *x * (1.0 - s)));
        }
    }

    /// x becomes dy · (Φ(x) + x · Φ′(x)).
    fn gelu_vjp[](x: &mut [f32], dy: &[f32]) {
        for (x, &dy) in x.iter_mut().zip(dy) {
            *x = dy * (math::normal_cdf(*x) + *x * math::normal_density(*x));
        }
    }

    /// x becomes dy · 2/√π · e^(−x²).
    fn erf_vjp[](x: &mut [f32], dy: &[f32]) {
        for (x, &dy) in x.iter_mut().zip(dy) {
            *x = dy * (core::f32::consts::FRAC_2_SQRT_PI * math::exp(-*x * *x));
        }
    }

    /// core's dropout of the elements from index `start` on.
    fn dropout[](x: &mut [f32], keep: f32, stream: u32, seed: u64, start: u32) {
        for (index, x) in (start..).zip(x) {
            *x = if dropout_keeps(At { seed, index }, stream, keep) { *x / keep } else { 0.0 };
        }
    }

    /// x^p. The polynomial is for normal numbers; where there are others, they are told by `special`.
    fn pow[F: Fn(f32) -> f32](x: &mut [f32], p: f32, special: F) {
        const BLOCK: usize = 64;
        for block in x.chunks_mut(BLOCK) {
            let mut before = [1f32; BLOCK];
            let before = &mut before[..block.len()];
            before.copy_from_slice(block);
            let mut normal = true;
            for x in &mut *block {
                normal &= *x >= f32::MIN_POSITIVE && *x <= f32::MAX;
                *x = math::pow(*x, p);
            }
            if !normal {
                for (x, &before) in block.iter_mut().zip(&*before) {
                    if !(before.is_normal() && before > 0.0) {
                        *x = special(before);
                    }
                }
            }
        }
    }

    /// Bytes as numbers.
    fn bytes[](x: &[u8], y: &mut [f32]) {
        for (&x, y) in x.iter().zip(y) {
            *y = f32::from(x);
        }
    }
}
