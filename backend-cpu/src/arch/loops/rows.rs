//! Loops over rows whose groups of channels are normalised by themselves. `size` is that of a group, and numbers are those
//! of the groups of all rows; scales, shifts and sums are those of the channels of one row.

use super::{
    channels::{normal, squared_distance},
    lane_kernels,
};
use crate::arch::{
    LANES,
    simd16::{Element, Lanes, Number},
};
use core::array::from_fn;

/// Elements whose sums stand side by side in f32 before they go on in f64.
const FEW: usize = 256;

/// The sum of all, by pairs of pairs.
#[inline(always)]
fn total<V: Lanes>(sums: V) -> f64 {
    let mut lanes = [0f32; LANES];
    sums.store(&mut lanes);
    let lanes: [f64; 8] = from_fn(|l| f64::from(lanes[l]) + f64::from(lanes[l + 8]));
    let lanes: [f64; 4] = from_fn(|l| lanes[l] + lanes[l + 4]);
    (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
}

/// Sum of x, or of (x − middle)².
#[inline(always)]
fn sum<V: Lanes, T: Element, const SQUARED: bool>(x: &[T], middle: f32) -> f64 {
    let (mut sum, middles) = (0f64, V::splat(middle));
    for x in x.chunks(FEW) {
        let (rows, rest) = x.as_chunks();
        // Two sums, so that one need not wait for the other.
        let (pairs, last) = rows.as_chunks::<2>();
        let (mut even, mut odd) = (V::splat(0.0), V::splat(0.0));
        for [first, second] in pairs {
            even = even + if SQUARED { squared_distance(T::lanes::<V>(first), middles) } else { T::lanes::<V>(first) };
            odd = odd + if SQUARED { squared_distance(T::lanes::<V>(second), middles) } else { T::lanes::<V>(second) };
        }
        for row in last {
            even = even + if SQUARED { squared_distance(T::lanes::<V>(row), middles) } else { T::lanes::<V>(row) };
        }
        sum += total(even + odd);
        for x in rest {
            sum += f64::from(if SQUARED { squared_distance(x.number(), middle) } else { x.number() });
        }
    }
    sum
}

/// Rounded once.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
fn mean(sum: f64, size: usize) -> f32 {
    (sum / size as f64) as f32
}

/// (x − mean) · inverse · scale + shift.
#[inline(always)]
fn normalised<N: Number>(x: N, [mean, inverse]: [N; 2], [scale, shift]: [N; 2]) -> N {
    normal(x, mean, inverse) * scale + shift
}

/// (dy · scale − plain − x̂ · weighted) · inverse.
#[inline(always)]
fn gradient<N: Number>([x, dy]: [N; 2], [mean, inverse, plain, weighted]: [N; 4], scale: N) -> N {
    (dy * scale - plain - normal(x, mean, inverse) * weighted) * inverse
}

lane_kernels! {
    /// Means of groups.
    fn row_means[V, T](x: &[T], size: usize, means: &mut [f32]) {
        for (x, out) in x.chunks_exact(size).zip(means) {
            *out = mean(sum::<V, T, false>(x, 0.0), size);
        }
    }

    /// Means of (x − mean)².
    fn row_variances[V, T](x: &[T], size: usize, means: &[f32], variances: &mut [f32]) {
        for ((x, &middle), out) in x.chunks_exact(size).zip(means).zip(variances) {
            *out = mean(sum::<V, T, true>(x, middle), size);
        }
    }

    /// (x − mean) · inverse · scale + shift.
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
                normalised(T::lanes::<V>(x), [means, inverses], [V::load(scale), V::load(shift)]).store(y);
            }
            for (((x, y), &scale), &shift) in x_rest.iter().zip(y_rest).zip(scales_rest).zip(shifts_rest) {
                *y = normalised(x.number(), [mean, inverse], [scale, shift]);
            }
        }
    }

    /// Means of dy · scale and of dy · scale · x̂ of each group. Adds dy, and dy · x̂, in f32, to one of two sums each of the
    /// channel.
    fn row_gradients[V, T](
        x: [&[T]; 2], size: usize, numbers: [&[f32]; 2], scales: &[f32], out: [&mut [f32]; 2], sums: [&mut [f32]; 2],
    ) {
        let ([x, dy], [means, inverses], [plain, weighted], [all, products]) = (x, numbers, out, sums);
        let groups = (scales.len() / size).max(1);
        let rows = x.chunks_exact(size).zip(dy.chunks_exact(size)).zip(means.iter().zip(inverses));
        for (i, (((x, dy), (&middle, &inverse)), (plain, weighted))) in rows.zip(plain.iter_mut().zip(weighted)).enumerate() {
            let at = i % groups * size;
            let (all, products, scales) = (&mut all[at..][..size], &mut products[at..][..size], &scales[at..][..size]);
            let (middles, inverses) = (V::splat(middle), V::splat(inverse));
            let few = x.chunks(FEW).zip(dy.chunks(FEW)).zip(scales.chunks(FEW));
            let mut totals = [0f64; 2];
            for (((x, dy), scales), (all, products)) in few.zip(all.chunks_mut(FEW).zip(products.chunks_mut(FEW))) {
                let ((x, x_rest), (dy, dy_rest), (scales, scales_rest)) = (x.as_chunks(), dy.as_chunks(), scales.as_chunks());
                let ((all, all_rest), (products, products_rest)) = (all.as_chunks_mut(), products.as_chunks_mut());
                let (mut plain, mut weighted) = (V::splat(0.0), V::splat(0.0));
                for (((x, dy), scale), (all, product)) in x.iter().zip(dy).zip(scales).zip(all.iter_mut().zip(products)) {
                    let (dy, normal) = (T::lanes::<V>(dy), normal(T::lanes::<V>(x), middles, inverses));
                    (V::load(all) + dy).store(all);
                    (V::load(product) + dy * normal).store(product);
                    let scaled = dy * V::load(scale);
                    plain = plain + scaled;
                    weighted = weighted + scaled * normal;
                }
                totals[0] += total(plain);
                totals[1] += total(weighted);
                let sums = all_rest.iter_mut().zip(products_rest);
                for (((x, dy), &scale), (all, product)) in x_rest.iter().zip(dy_rest).zip(scales_rest).zip(sums) {
                    let (dy, normal) = (dy.number(), normal(x.number(), middle, inverse));
                    *all += dy;
                    *product += dy * normal;
                    totals[0] += f64::from(dy * scale);
                    totals[1] += f64::from(dy * scale * normal);
                }
            }
            [*plain, *weighted] = totals.map(|total| mean(total, size));
        }
    }

    /// (dy · scale − plain − x̂ · weighted) · inverse.
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
                gradient([T::lanes::<V>(x), T::lanes::<V>(dy)], lanes, V::load(scale)).store(y);
            }
            for (((x, dy), y), &scale) in x_rest.iter().zip(dy_rest).zip(y_rest).zip(scales_rest) {
                *y = gradient([x.number(), dy.number()], [mean, inverse, plain, weighted], scale);
            }
        }
    }
}
