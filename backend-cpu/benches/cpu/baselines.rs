//! Baselines: operators as one would write them down, compiled for the target, with `half` for the conversions. Without
//! scales and statistics.

use half::{f16, slice::HalfFloatSliceExt};
use std::{hint::black_box, thread};

/// Returns `len` numbers around 0, as input of the baselines.
fn values(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 37 + i / 11) % 64) as f32 / 64.0 - 0.5).collect()
}

fn halves(len: usize) -> Vec<f16> {
    values(len).into_iter().map(f16::from_f32).collect()
}

/// Baseline of the cast from f32 to half, by the `half` crate.
pub fn cast(len: usize) -> impl FnMut() {
    let (x, mut y) = (values(len), vec![f16::ZERO; len]);
    move || y.convert_from_f32_slice(black_box(&x))
}

/// Baseline of the cast from f32 to half on several threads, in vectors of AVX-512 where the machine has them.
pub fn bare_cast(len: usize, threads: usize) -> impl FnMut() {
    let (x, mut y) = (values(len), vec![f16::ZERO; len]);
    #[cfg(target_arch = "x86_64")]
    let wide = is_x86_feature_detected!("avx512f");
    move || {
        let part = len.div_ceil(threads);
        thread::scope(|scope| {
            for (x, y) in black_box(&x).chunks(part).zip(y.chunks_mut(part)) {
                scope.spawn(move || {
                    #[cfg(target_arch = "x86_64")]
                    if wide {
                        // SAFETY: this machine has it.
                        return unsafe { narrow(x, y) };
                    }
                    y.convert_from_f32_slice(x);
                });
            }
        });
    }
}

/// Rounds f32 to halves with AVX-512, in whole vectors; lengths here are multiples of them.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn narrow(x: &[f32], y: &mut [f16]) {
    use core::arch::x86_64::{_MM_FROUND_TO_NEAREST_INT, _mm256_storeu_si256, _mm512_cvtps_ph, _mm512_loadu_ps};
    for (x, y) in x.as_chunks::<16>().0.iter().zip(y.as_chunks_mut::<16>().0) {
        // SAFETY: both are sixteen values; `f16` is 16 bits without padding.
        unsafe {
            let bits = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_loadu_ps(x.as_ptr()));
            _mm256_storeu_si256(y.as_mut_ptr().cast(), bits);
        }
    }
}

/// Baseline of an element-wise operator: applies `f` to each half.
pub fn function(len: usize, f: impl Fn(f32) -> f32) -> impl FnMut() {
    let (x, mut y, mut wide) = (halves(len), vec![f16::ZERO; len], vec![0f32; BLOCK]);
    move || {
        for (x, y) in black_box(&x).chunks(BLOCK).zip(y.chunks_mut(BLOCK)) {
            let wide = &mut wide[..x.len()];
            x.convert_to_f32_slice(wide);
            wide.iter_mut().for_each(|x| *x = f(*x));
            y.convert_from_f32_slice(wide);
        }
    }
}

/// Number of elements that the baselines convert at a time.
const BLOCK: usize = 4096;

/// Baseline of batch normalisation over pixels: mean, variance, then scale and shift.
pub fn norm(pixels: usize, channels: usize) -> impl FnMut() {
    let (x, mut y) = (halves(pixels * channels), vec![f16::ZERO; pixels * channels]);
    let (scale, shift) = (values(channels), values(channels));
    let mut wide = vec![0f32; x.len()];
    move || {
        black_box(&x).convert_to_f32_slice(&mut wide);
        let (mut means, mut variances) = (vec![0f32; channels], vec![0f32; channels]);
        for pixel in wide.chunks_exact(channels) {
            means.iter_mut().zip(pixel).for_each(|(mean, x)| *mean += x / pixels as f32);
        }
        for pixel in wide.chunks_exact(channels) {
            for ((variance, mean), x) in variances.iter_mut().zip(&means).zip(pixel) {
                *variance += (x - mean) * (x - mean) / pixels as f32;
            }
        }
        for pixel in wide.chunks_exact_mut(channels) {
            for (c, x) in pixel.iter_mut().enumerate() {
                *x = (*x - means[c]) / (variances[c] + 1e-5).sqrt() * scale[c] + shift[c];
            }
        }
        y.convert_from_f32_slice(&wide);
    }
}

/// Cross-entropy of rows: the logarithm of the sum of exponentials, less the logit of the truth.
pub fn cross_entropy(rows: usize, classes: usize) -> impl FnMut() {
    let (x, mut wide) = (halves(rows * classes), vec![0f32; rows * classes]);
    move || {
        black_box(&x).convert_to_f32_slice(&mut wide);
        let mut loss = 0f64;
        for (r, row) in wide.chunks_exact(classes).enumerate() {
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f32 = row.iter().map(|x| (x - most).exp()).sum();
            loss += f64::from(most + sum.ln() - row[r % classes]);
        }
        black_box(loss);
    }
}

/// Baseline of the gradient of cross-entropy: softmax, minus 1 at the correct class.
pub fn cross_entropy_vjp(rows: usize, classes: usize) -> impl FnMut() {
    let (x, mut wide, mut y) = (halves(rows * classes), vec![0f32; rows * classes], vec![f16::ZERO; rows * classes]);
    let logs = vec![2.0; rows];
    move || {
        black_box(&x).convert_to_f32_slice(&mut wide);
        for (r, (row, log)) in wide.chunks_exact_mut(classes).zip(&logs).enumerate() {
            row.iter_mut().for_each(|x| *x = (*x - log).exp());
            row[r % classes] -= 1.0;
            row.iter_mut().for_each(|x| *x *= 1e-3);
        }
        y.convert_from_f32_slice(&wide);
    }
}

/// Baseline of SGD with momentum and weight decay, which also stores the weights as halves.
pub fn sgd(len: usize) -> impl FnMut() {
    let [mut weights, gradients, mut momenta] = [0; 3].map(|_| values(len));
    let mut half = halves(len);
    move || {
        for ((w, &g), v) in weights.iter_mut().zip(black_box(&gradients)).zip(&mut momenta) {
            *v = 0.9 * *v + (g + 5e-4 * *w);
            *w -= 1e-3 * *v;
        }
        half.convert_from_f32_slice(&weights);
    }
}

/// Baseline of Adam, which also stores the weights as halves.
pub fn adam(len: usize) -> impl FnMut() {
    let [mut weights, gradients, mut first] = [0; 3].map(|_| values(len));
    let (mut second, mut half) = (vec![0.5f32; len], halves(len));
    move || {
        let states = first.iter_mut().zip(&mut second);
        for ((w, &g), (m, v)) in weights.iter_mut().zip(black_box(&gradients)).zip(states) {
            *m = 0.9 * *m + 0.1 * g;
            *v = 0.999 * *v + 0.001 * g * g;
            *w -= 1e-3 * (*m / 0.5) / ((*v / 0.5).sqrt() + 1e-8);
        }
        half.convert_from_f32_slice(&weights);
    }
}
