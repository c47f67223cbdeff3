//! Loops over pixels with parameters per channel. The parameters are laid out as in
//! [`crate::broadcast::BroadcastBuffer`], from the channel of the first element on. All of one call begin at the same
//! channel, and the first is the shortest.

use super::{kernels, lane_kernels};
use crate::arch::{LANES, simd16::Arithmetic};

/// Computes x̂ = (x − mean) · inverse, with inverse = 1/σ.
#[inline(always)]
pub fn normal<N: Arithmetic>(x: N, mean: N, inverse: N) -> N {
    (x - mean) * inverse
}

/// Computes the squared distance (x − mean)².
#[inline(always)]
pub fn squared_distance<N: Arithmetic>(x: N, mean: N) -> N {
    (x - mean) * (x - mean)
}

/// Computes the normalised value (x − mean) · factor + shift.
#[inline(always)]
fn normalised<N: Arithmetic>(x: N, [mean, factor, shift]: [N; 3]) -> N {
    (x - mean) * factor + shift
}

/// Computes the gradient dx = dy · factor − plain − (x − mean) · weighted of a normalisation.
#[inline(always)]
fn gradient<N: Arithmetic>([x, dy]: [N; 2], [mean, factor, plain, weighted]: [N; 4]) -> N {
    dy * factor - plain - (x - mean) * weighted
}

lane_kernels! {
    /// Adds each element to the f32 sum of its channel: `sums[i mod len] += x[i]`.
    fn add_by_channel[V, T](x: &[T], sums: &mut [f32]) {
        for x in x.chunks(sums.len()) {
            let ((x, x_rest), (sums, sums_rest)) = (x.as_chunks(), sums[..x.len()].as_chunks_mut());
            for (x, sum) in x.iter().zip(sums) {
                (V::load(sum) + T::load16::<V>(x)).store(sum);
            }
            for (x, sum) in x_rest.iter().zip(sums_rest) {
                *sum += x.to_scalar();
            }
        }
    }

    /// Adds each squared distance to the f32 sum of its channel: `sums[i mod len] += (x[i] − mean)²`.
    fn add_squared_distances[V, T](x: &[T], means: &[f32], sums: &mut [f32]) {
        for x in x.chunks(means.len()) {
            let ((sums, sums_rest), (means, means_rest)) = (sums[..x.len()].as_chunks_mut(), means[..x.len()].as_chunks());
            let (x, x_rest) = x.as_chunks();
            for ((x, mean), sum) in x.iter().zip(means).zip(sums) {
                (V::load(sum) + squared_distance(T::load16::<V>(x), V::load(mean))).store(sum);
            }
            for ((x, &mean), sum) in x_rest.iter().zip(means_rest).zip(sums_rest) {
                *sum += squared_distance(x.to_scalar(), mean);
            }
        }
    }

    /// Adds dy, and dy · x̂, to two f32 sums of each channel.
    fn add_gradients[V, T](x: [&[T]; 2], patterns: [&[f32]; 2], sums: [&mut [f32]; 2]) {
        let ([x, dy], [plain, weighted], len) = (x, sums, patterns[0].len());
        for (x, dy) in x.chunks(len).zip(dy.chunks(len)) {
            let [(means, means_rest), (inverses, inverses_rest)] = patterns.map(|pattern| pattern[..x.len()].as_chunks());
            let (plain, plain_rest) = plain[..x.len()].as_chunks_mut();
            let (weighted, weighted_rest) = weighted[..x.len()].as_chunks_mut();
            let ((x, x_rest), (dy, dy_rest)) = (x.as_chunks(), dy.as_chunks());
            let sums = plain.iter_mut().zip(weighted);
            for ((((x, dy), mean), inverse), (plain, weighted)) in x.iter().zip(dy).zip(means).zip(inverses).zip(sums) {
                let dy = T::load16::<V>(dy);
                (V::load(plain) + dy).store(plain);
                let normal = normal(T::load16::<V>(x), V::load(mean), V::load(inverse));
                (V::load(weighted) + dy * normal).store(weighted);
            }
            let (x, sums) = (x_rest.iter().zip(dy_rest), plain_rest.iter_mut().zip(weighted_rest));
            for ((((x, dy), &mean), &inverse), (plain, weighted)) in x.zip(means_rest).zip(inverses_rest).zip(sums) {
                *plain += dy.to_scalar();
                *weighted += dy.to_scalar() * normal(x.to_scalar(), mean, inverse);
            }
        }
    }

    /// Normalises with parameters per channel: y = (x − mean) · factor + shift.
    fn normalise[V, T](x: &[T], patterns: [&[f32]; 3], y: &mut [f32]) {
        let len = patterns[0].len();
        for (x, y) in x.chunks(len).zip(y.chunks_mut(len)) {
            let [(means, means_rest), (factors, factors_rest), (shifts, shifts_rest)] =
                patterns.map(|pattern| pattern[..x.len()].as_chunks());
            let ((x, x_rest), (y, y_rest)) = (x.as_chunks(), y.as_chunks_mut());
            for ((((x, y), mean), factor), shift) in x.iter().zip(y).zip(means).zip(factors).zip(shifts) {
                normalised(T::load16::<V>(x), [V::load(mean), V::load(factor), V::load(shift)]).store(y);
            }
            let numbers = means_rest.iter().zip(factors_rest).zip(shifts_rest);
            for ((x, y), ((&mean, &factor), &shift)) in x_rest.iter().zip(y_rest).zip(numbers) {
                *y = normalised(x.to_scalar(), [mean, factor, shift]);
            }
        }
    }

    /// Computes the gradient of a normalisation with parameters per channel: dy · factor − plain − (x − mean) ·
    /// weighted.
    fn normalise_vjp[V, T](x: [&[T]; 2], patterns: [&[f32]; 4], y: &mut [f32]) {
        let ([x, dy], len) = (x, patterns[0].len());
        for ((x, dy), y) in x.chunks(len).zip(dy.chunks(len)).zip(y.chunks_mut(len)) {
            let [(means, means_rest), (factors, factors_rest), (plain, plain_rest), (weighted, weighted_rest)] =
                patterns.map(|pattern| pattern[..x.len()].as_chunks());
            let ((x, x_rest), (dy, dy_rest), (y, y_rest)) = (x.as_chunks(), dy.as_chunks(), y.as_chunks_mut());
            let numbers = means.iter().zip(factors).zip(plain).zip(weighted);
            for (((x, dy), y), (((mean, factor), plain), weighted)) in x.iter().zip(dy).zip(y).zip(numbers) {
                let numbers = [V::load(mean), V::load(factor), V::load(plain), V::load(weighted)];
                gradient([T::load16::<V>(x), T::load16::<V>(dy)], numbers).store(y);
            }
            let numbers = means_rest.iter().zip(factors_rest).zip(plain_rest).zip(weighted_rest);
            for (((x, dy), y), (((&mean, &factor), &plain), &weighted)) in x_rest.iter().zip(dy_rest).zip(y_rest).zip(numbers) {
                *y = gradient([x.to_scalar(), dy.to_scalar()], [mean, factor, plain, weighted]);
            }
        }
    }
}

kernels! {
    /// Returns the weighted sum Σ `sums[i]` · `factors[i]`, added in lanes.
    fn weighted_sum[](sums: &[f64], factors: &[f32]) -> f64 {
        let mut lanes = [0f64; LANES];
        for (sums, factors) in sums.chunks(LANES).zip(factors.chunks(LANES)) {
            for ((lane, &sum), &factor) in lanes.iter_mut().zip(sums).zip(factors) {
                *lane += sum * f64::from(factor);
            }
        }
        lanes.iter().sum()
    }
}
