//! Loops over elements.

use super::{kernels, math};

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
