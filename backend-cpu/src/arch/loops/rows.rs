//! Loops over rows whose groups of channels are normalised by themselves. `size` is the size of a group. Parameters
//! belong to the groups of all rows; scales, shifts and sums belong to the channels of one row.

use super::{
    channels::{normal, squared_distance},
    lane_kernels,
};
use crate::arch::{
    LANES,
    simd16::{Arithmetic, Element, F32x16},
};
use core::array::from_fn;

/// Number of elements that are added in f32 before the sum continues in f64.
pub const F32_SUM_ELEMENTS: usize = 256;

/// Returns the sum of all lanes of a vector.
#[inline(always)]
fn horizontal_sum<V: F32x16>(sums: V) -> f64 {
    let mut lanes = [0f32; LANES];
    sums.store(&mut lanes);
    sum_lanes(lanes)
}

/// Returns the sum of sixteen lanes, by pairwise addition.
#[inline(always)]
pub fn sum_lanes(lanes: [f32; LANES]) -> f64 {
    let lanes: [f64; 8] = from_fn(|l| f64::from(lanes[l]) + f64::from(lanes[l + 8]));
    let lanes: [f64; 4] = from_fn(|l| lanes[l] + lanes[l + 4]);
    (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
}

/// Returns the sum Σ x of a row, or if `SQUARED` Σ (x − middle)².
#[inline(always)]
fn sum_row<V: F32x16, T: Element, const SQUARED: bool>(x: &[T], middle: f32) -> f64 {
    let (mut sum, middles) = (0f64, V::splat(middle));
    for x in x.chunks(F32_SUM_ELEMENTS) {
        let (rows, rest) = x.as_chunks();
        // Two sums, so that one does not wait for the other.
        let (pairs, last) = rows.as_chunks::<2>();
        let (mut even, mut odd) = (V::splat(0.0), V::splat(0.0));
        for [first, second] in pairs {
            even =
                even + if SQUARED { squared_distance(T::load16::<V>(first), middles) } else { T::load16::<V>(first) };
            odd =
                odd + if SQUARED { squared_distance(T::load16::<V>(second), middles) } else { T::load16::<V>(second) };
        }
        for row in last {
            even = even + if SQUARED { squared_distance(T::load16::<V>(row), middles) } else { T::load16::<V>(row) };
        }
        sum += horizontal_sum(even + odd);
        for x in rest {
            sum += f64::from(if SQUARED { squared_distance(x.to_scalar(), middle) } else { x.to_scalar() });
        }
    }
    sum
}

/// Divides an f64 sum by the number of elements and rounds the mean once to f32.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
fn round_mean(sum: f64, size: usize) -> f32 {
    (sum / size as f64) as f32
}

/// Computes the normalised value (x − mean) · inverse · scale + shift.
#[inline(always)]
fn normalised<N: Arithmetic>(x: N, [mean, inverse]: [N; 2], [scale, shift]: [N; 2]) -> N {
    normal(x, mean, inverse) * scale + shift
}

/// Computes the gradient dx = (dy · scale − plain − x̂ · weighted) · inverse of a normalisation.
#[inline(always)]
fn gradient<N: Arithmetic>([x, dy]: [N; 2], [mean, inverse, plain, weighted]: [N; 4], scale: N) -> N {
    (dy * scale - plain - normal(x, mean, inverse) * weighted) * inverse
}

lane_kernels! {
    /// Computes the mean of each group of `size` elements.
    fn row_means[V, T](x: &[T], size: usize, means: &mut [f32]) {
        for (x, out) in x.chunks_exact(size).zip(means) {
            *out = round_mean(sum_row::<V, T, false>(x, 0.0), size);
        }
    }

    /// Computes the variance of each group of `size` elements, the mean of (x − mean)².
    fn row_variances[V, T](x: &[T], size: usize, means: &[f32], variances: &mut [f32]) {
        for ((x, &middle), out) in x.chunks_exact(size).zip(means).zip(variances) {
            *out = round_mean(sum_row::<V, T, true>(x, middle), size);
        }
    }

    /// Normalises groups with their mean and 1/σ: y = (x − mean) · inverse · scale + shift.
    fn normalise_rows[V, T](x: &[T], size: usize, numbers: [&[f32]; 2], affine: [&[f32]; 2], y: &mut [f32]) {
        let [means, inverses] = numbers;
        let groups = (affine[0].len() / size).max(1);
        let rows = x.chunks_exact(size).zip(y.chunks_exact_mut(size)).zip(means).zip(inverses);
        for (i, (((x, y), &mean), &inverse)) in rows.enumerate() {
            let [(scales, scales_rest), (shifts, shifts_rest)] =
                affine.map(|numbers| numbers[i % groups * size..][..size].as_chunks());
            let ((x, x_rest), (y, y_rest)) = (x.as_chunks(), y.as_chunks_mut());
            let (means, inverses) = (V::splat(mean), V::splat(inverse));
            for (((x, y), scale), shift) in x.iter().zip(y).zip(scales).zip(shifts) {
                normalised(T::load16::<V>(x), [means, inverses], [V::load(scale), V::load(shift)]).store(y);
            }
            for (((x, y), &scale), &shift) in x_rest.iter().zip(y_rest).zip(scales_rest).zip(shifts_rest) {
                *y = normalised(x.to_scalar(), [mean, inverse], [scale, shift]);
            }
        }
    }

    /// Computes the means of dy · scale and of dy · scale · x̂ of each group. Adds dy, and dy · x̂, to the f32 sums of
    /// the channels.
    fn row_gradients[V, T](
        x: [&[T]; 2], size: usize, numbers: [&[f32]; 2], scales: &[f32], out: [&mut [f32]; 2], sums: [&mut [f32]; 2],
    ) {
        let ([x, dy], [means, inverses], [plain, weighted], [dy_sums, dy_normal_sums]) = (x, numbers, out, sums);
        let groups = (scales.len() / size).max(1);
        let rows = x.chunks_exact(size).zip(dy.chunks_exact(size)).zip(means.iter().zip(inverses));
        for (i, (((x, dy), (&middle, &inverse)), (plain, weighted))) in rows.zip(plain.iter_mut().zip(weighted)).enumerate() {
            let at = i % groups * size;
            let (dy_sums, dy_normal_sums, scales) = (&mut dy_sums[at..][..size], &mut dy_normal_sums[at..][..size], &scales[at..][..size]);
            let (middles, inverses) = (V::splat(middle), V::splat(inverse));
            let blocks = x.chunks(F32_SUM_ELEMENTS).zip(dy.chunks(F32_SUM_ELEMENTS)).zip(scales.chunks(F32_SUM_ELEMENTS));
            let mut totals = [0f64; 2];
            for (((x, dy), scales), (dy_sums, dy_normal_sums)) in blocks.zip(dy_sums.chunks_mut(F32_SUM_ELEMENTS).zip(dy_normal_sums.chunks_mut(F32_SUM_ELEMENTS))) {
                let ((x, x_rest), (dy, dy_rest), (scales, scales_rest)) = (x.as_chunks(), dy.as_chunks(), scales.as_chunks());
                let ((dy_sums, dy_sums_rest), (dy_normal_sums, dy_normal_sums_rest)) = (dy_sums.as_chunks_mut(), dy_normal_sums.as_chunks_mut());
                let (mut plain, mut weighted) = (V::splat(0.0), V::splat(0.0));
                for (((x, dy), scale), (dy_sums, product)) in x.iter().zip(dy).zip(scales).zip(dy_sums.iter_mut().zip(dy_normal_sums)) {
                    let (dy, normal) = (T::load16::<V>(dy), normal(T::load16::<V>(x), middles, inverses));
                    (V::load(dy_sums) + dy).store(dy_sums);
                    (V::load(product) + dy * normal).store(product);
                    let scaled = dy * V::load(scale);
                    plain = plain + scaled;
                    weighted = weighted + scaled * normal;
                }
                totals[0] += horizontal_sum(plain);
                totals[1] += horizontal_sum(weighted);
                let sums = dy_sums_rest.iter_mut().zip(dy_normal_sums_rest);
                for (((x, dy), &scale), (dy_sums, product)) in x_rest.iter().zip(dy_rest).zip(scales_rest).zip(sums) {
                    let (dy, normal) = (dy.to_scalar(), normal(x.to_scalar(), middle, inverse));
                    *dy_sums += dy;
                    *product += dy * normal;
                    totals[0] += f64::from(dy * scale);
                    totals[1] += f64::from(dy * scale * normal);
                }
            }
            [*plain, *weighted] = totals.map(|total| round_mean(total, size));
        }
    }

    /// Computes the gradient of a normalisation of groups: (dy · scale − plain − x̂ · weighted) · inverse.
    fn normalise_rows_vjp[V, T](x: [&[T]; 2], size: usize, numbers: [&[f32]; 4], scales: &[f32], y: &mut [f32]) {
        let ([x, dy], [means, inverses, plain, weighted]) = (x, numbers);
        let groups = (scales.len() / size).max(1);
        let rows = x.chunks_exact(size).zip(dy.chunks_exact(size)).zip(y.chunks_exact_mut(size));
        let numbers = means.iter().zip(inverses).zip(plain).zip(weighted);
        for (i, (((x, dy), y), (((&mean, &inverse), &plain), &weighted))) in rows.zip(numbers).enumerate() {
            let (scales, scales_rest) = scales[i % groups * size..][..size].as_chunks();
            let ((x, x_rest), (dy, dy_rest), (y, y_rest)) = (x.as_chunks(), dy.as_chunks(), y.as_chunks_mut());
            let lanes = [V::splat(mean), V::splat(inverse), V::splat(plain), V::splat(weighted)];
            for (((x, dy), y), scale) in x.iter().zip(dy).zip(y).zip(scales) {
                gradient([T::load16::<V>(x), T::load16::<V>(dy)], lanes, V::load(scale)).store(y);
            }
            for (((x, dy), y), &scale) in x_rest.iter().zip(dy_rest).zip(y_rest).zip(scales_rest) {
                *y = gradient([x.to_scalar(), dy.to_scalar()], [mean, inverse, plain, weighted], scale);
            }
        }
    }
}
