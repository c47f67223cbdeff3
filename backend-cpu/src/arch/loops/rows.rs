//! Loops over rows whose groups of channels are normalised by themselves. `size` is that of a group, and numbers are those
//! of the groups of all rows; scales and shifts are those of the channels of one row.

use super::kernels;
use core::array::from_fn;

/// Sums in f32 that stand side by side, and elements that they take before they go on in f64: four each.
const WIDE: usize = 64;
const FEW: usize = 256;

/// Sum of what `term` makes of the elements of three slices of one length.
#[inline(always)]
fn sum(slices: [&[f32]; 3], term: impl Fn(f32, f32, f32) -> f32) -> f64 {
    let mut total = 0f64;
    let [a, b, c] = slices.map(|slice| slice.chunks(FEW));
    for ((a, b), c) in a.zip(b).zip(c) {
        let [(a, a_rest), (b, b_rest), (c, c_rest)] = [a, b, c].map(|slice| slice.as_chunks::<WIDE>());
        let mut wide = [0f32; WIDE];
        for ((a, b), c) in a.iter().zip(b).zip(c) {
            for l in 0..WIDE {
                wide[l] += term(a[l], b[l], c[l]);
            }
        }
        // Pairs of pairs, in values of their own, which stay in registers.
        let wide: [f32; WIDE / 2] = from_fn(|l| wide[l] + wide[l + WIDE / 2]);
        let wide: [f32; WIDE / 4] = from_fn(|l| wide[l] + wide[l + WIDE / 4]);
        let lanes: [f64; 8] = from_fn(|l| f64::from(wide[l]) + f64::from(wide[l + 8]));
        let lanes: [f64; 4] = from_fn(|l| lanes[l] + lanes[l + 4]);
        total += (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
        for ((&a, &b), &c) in a_rest.iter().zip(b_rest).zip(c_rest) {
            total += f64::from(term(a, b, c));
        }
    }
    total
}

/// Rounded once.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
fn mean(sum: f64, size: usize) -> f32 {
    (sum / size as f64) as f32
}

kernels! {
    /// Means of groups.
    fn row_means[](x: &[f32], size: usize, means: &mut [f32]) {
        for (x, out) in x.chunks_exact(size).zip(means) {
            *out = mean(sum([x; 3], |x, _, _| x), size);
        }
    }

    /// Means of (x − mean)².
    fn row_variances[](x: &[f32], size: usize, means: &[f32], variances: &mut [f32]) {
        for ((x, &middle), out) in x.chunks_exact(size).zip(means).zip(variances) {
            *out = mean(sum([x; 3], |x, _, _| (x - middle) * (x - middle)), size);
        }
    }

    /// (x − mean) · inverse · scale + shift.
    fn normalise_rows[](x: &mut [f32], size: usize, numbers: [&[f32]; 2], affine: [&[f32]; 2]) {
        let ([means, inverses], [scales, shifts]) = (numbers, affine);
        let groups = (scales.len() / size).max(1);
        for (i, ((x, &mean), &inverse)) in x.chunks_exact_mut(size).zip(means).zip(inverses).enumerate() {
            let [scales, shifts] = [scales, shifts].map(|numbers| &numbers[i % groups * size..][..size]);
            for ((x, &scale), &shift) in x.iter_mut().zip(scales).zip(shifts) {
                *x = (*x - mean) * inverse * scale + shift;
            }
        }
    }

    /// x becomes x̂ = (x − mean) · inverse; dy, and dy · x̂, are added to a sum of the channel each, in f32.
    fn center_rows[](x: &mut [f32], dy: &[f32], size: usize, numbers: [&[f32]; 2], sums: [&mut [f32]; 2]) {
        let ([means, inverses], [plain, weighted]) = (numbers, sums);
        let groups = (plain.len() / size).max(1);
        let rows = x.chunks_exact_mut(size).zip(dy.chunks_exact(size)).zip(means).zip(inverses);
        for (i, (((x, dy), &mean), &inverse)) in rows.enumerate() {
            let [plain, weighted] = [&mut *plain, &mut *weighted].map(|sums| &mut sums[i % groups * size..][..size]);
            for (((x, &dy), plain), weighted) in x.iter_mut().zip(dy).zip(plain).zip(weighted) {
                *x = (*x - mean) * inverse;
                *plain += dy;
                *weighted += dy * *x;
            }
        }
    }

    /// Means of dy · scale and of dy · scale · x̂.
    fn row_gradients[](dy: &[f32], normal: &[f32], size: usize, scales: &[f32], means: [&mut [f32]; 2]) {
        let [plain, weighted] = means;
        let groups = (scales.len() / size).max(1);
        let rows = dy.chunks_exact(size).zip(normal.chunks_exact(size)).zip(plain.iter_mut().zip(weighted));
        for (i, ((dy, normal), (plain, weighted))) in rows.enumerate() {
            let slices = [dy, normal, &scales[i % groups * size..][..size]];
            *plain = mean(sum(slices, |dy, _, scale| dy * scale), size);
            *weighted = mean(sum(slices, |dy, normal, scale| dy * scale * normal), size);
        }
    }

    /// dy becomes (dy · scale − plain − x̂ · weighted) · inverse.
    fn normalise_rows_vjp[](dy: &mut [f32], normal: &[f32], size: usize, scales: &[f32], numbers: [&[f32]; 3]) {
        let [inverses, plain, weighted] = numbers;
        let groups = (scales.len() / size).max(1);
        let rows = dy.chunks_exact_mut(size).zip(normal.chunks_exact(size)).zip(inverses).zip(plain).zip(weighted);
        for (i, ((((dy, normal), &inverse), &plain), &weighted)) in rows.enumerate() {
            let scales = &scales[i % groups * size..][..size];
            for ((dy, &normal), &scale) in dy.iter_mut().zip(normal).zip(scales) {
                *dy = (*dy * scale - plain - normal * weighted) * inverse;
            }
        }
    }
}
