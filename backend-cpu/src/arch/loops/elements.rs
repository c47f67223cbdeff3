//! Element-wise loops.

use super::{kernels, math};
use gradscale_core::ops::{At, dropout_keeps};

/// Macro: evaluates a function for four elements at a time, taken from four quarters of the slice. Each of the four
/// becomes a vector, so that the processor has four independent chains of operations. The remainder is evaluated one by
/// one.
macro_rules! in_fours {
    ($x:ident, |$one:ident| $make:expr) => {{
        let (fours, rest) = $x.split_at_mut($x.len() / 4 * 4);
        let (half, other) = fours.split_at_mut(fours.len() / 2);
        let ((a, b), (c, d)) = (half.split_at_mut(half.len() / 2), other.split_at_mut(other.len() / 2));
        for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
            let $one = [*a, *b, *c, *d];
            [*a, *b, *c, *d] = $make;
        }
        for x in rest {
            let $one = [*x];
            [*x] = $make;
        }
    }};
}

kernels! {
    /// Applies f, of few operations, to each element: `x[i] = f(x[i])`.
    fn map[F: Fn(f32) -> f32](x: &mut [f32], f: F) {
        for x in x {
            *x = f(*x);
        }
    }

    /// Applies f, of few operations, to each pair of elements: `x[i] = f(x[i], y[i])`.
    fn zip[F: Fn(f32, f32) -> f32](x: &mut [f32], y: &[f32], f: F) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x = f(*x, y);
        }
    }

    /// Replaces each x by its exponential e^x.
    fn exp[](x: &mut [f32]) {
        in_fours!(x, |x| math::exps(x));
    }

    /// Replaces each x by its logistic function 1 / (1 + e^-x).
    fn sigmoid[](x: &mut [f32]) {
        in_fours!(x, |x| math::sigmoids(x));
    }

    /// Replaces each x by SiLU, x / (1 + e^-x).
    fn silu[](x: &mut [f32]) {
        in_fours!(x, |x| math::silus(x));
    }

    /// Replaces each x by its hyperbolic tangent.
    fn tanh[](x: &mut [f32]) {
        in_fours!(x, |x| math::tanhs(x));
    }

    /// Replaces each x by its error function.
    fn erf[](x: &mut [f32]) {
        in_fours!(x, |x| math::erfs(x));
    }

    /// Replaces each x by GELU, x · Φ(x).
    fn gelu[](x: &mut [f32]) {
        in_fours!(x, |x| math::gelus(x));
    }

    /// Replaces each x by its natural logarithm.
    fn ln[](x: &mut [f32]) {
        for x in x {
            *x = math::ln_of_any(*x);
        }
    }

    /// Replaces each x by the slope of SiLU: σ(x) · (1 + x · (1 − σ(x))).
    fn silu_slope[](x: &mut [f32]) {
        in_fours!(x, |x| math::silu_slopes(x));
    }

    /// Replaces each x by the slope of GELU: Φ(x) + x · Φ′(x).
    fn gelu_slope[](x: &mut [f32]) {
        in_fours!(x, |x| math::gelu_slopes(x));
    }

    /// Replaces each x by the slope of the error function: 2/√π · e^(−x²).
    fn erf_slope[](x: &mut [f32]) {
        for x in x {
            *x = core::f32::consts::FRAC_2_SQRT_PI * math::exp(-*x * *x);
        }
    }

    /// Applies dropout, as core defines it, to the elements from index `start` on.
    fn dropout[](x: &mut [f32], keep: f32, stream: u32, seed: u64, start: u32) {
        for (index, x) in (start..).zip(x) {
            *x = if dropout_keeps(At { seed, index }, stream, keep) { *x / keep } else { 0.0 };
        }
    }

    /// Computes x^p. The polynomial is for normal numbers; others are computed by `special`.
    fn pow[F: Fn(f32) -> f32](x: &mut [f32], p: f32, special: F) {
        const BLOCK_ELEMENTS: usize = 64;
        for block in x.chunks_mut(BLOCK_ELEMENTS) {
            let mut before = [1f32; BLOCK_ELEMENTS];
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

    /// Converts each byte of `x` to the same number as f32, for example pixels of images.
    fn bytes[](x: &[u8], y: &mut [f32]) {
        for (&x, y) in x.iter().zip(y) {
            *y = f32::from(x);
        }
    }
}
