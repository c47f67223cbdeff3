//! Loops over pixels whose channels have numbers of their own. Patterns are those of [`crate::channels::Pattern`], from
//! the channel of the first element on; all of one call begin at the same channel, and the first is the shortest.

use super::kernels;
use crate::arch::LANES;

kernels! {
    /// `sums[i mod len] += x[i]`, in f32.
    fn add_by_channel[](x: &[f32], sums: &mut [f32]) {
        for x in x.chunks(sums.len()) {
            for (sum, &x) in sums.iter_mut().zip(x) {
                *sum += x;
            }
        }
    }

    /// Σ `sums[i]` · `factors[i]`, in lanes.
    fn weighted_sum[](sums: &[f64], factors: &[f32]) -> f64 {
        let mut lanes = [0f64; LANES];
        for (sums, factors) in sums.chunks(LANES).zip(factors.chunks(LANES)) {
            for ((lane, &sum), &factor) in lanes.iter_mut().zip(sums).zip(factors) {
                *lane += sum * f64::from(factor);
            }
        }
        lanes.iter().sum()
    }

    /// `sums[i mod len] += (x[i] − mean)²`, in f32.
    fn add_squared_distances[](x: &[f32], means: &[f32], sums: &mut [f32]) {
        for x in x.chunks(means.len()) {
            for ((sum, &x), &mean) in sums.iter_mut().zip(x).zip(means) {
                *sum += (x - mean) * (x - mean);
            }
        }
    }

    /// Adds dy, and dy · x̂, in f32, to one of two sums each.
    fn add_gradients[](x: &[f32], dy: &[f32], patterns: [&[f32]; 2], sums: [&mut [f32]; 2]) {
        let ([means, inverses], [plain, weighted]) = (patterns, sums);
        for (x, dy) in x.chunks(means.len()).zip(dy.chunks(means.len())) {
            let sums = plain.iter_mut().zip(&mut *weighted).zip(means).zip(inverses);
            for ((((plain, weighted), &mean), &inverse), (&x, &dy)) in sums.zip(x.iter().zip(dy)) {
                *plain += dy;
                *weighted += dy * ((x - mean) * inverse);
            }
        }
    }

    /// (x − mean) · factor + shift.
    fn normalise[](x: &mut [f32], patterns: [&[f32]; 3]) {
        let [means, factors, shifts] = patterns;
        for x in x.chunks_mut(means.len()) {
            for (((x, &mean), &factor), &shift) in x.iter_mut().zip(means).zip(factors).zip(shifts) {
                *x = (*x - mean) * factor + shift;
            }
        }
    }

    /// dy becomes dy · factor − plain − (x − mean) · weighted.
    fn normalise_vjp[](dy: &mut [f32], x: &[f32], patterns: [&[f32]; 4]) {
        let [means, factors, plain, weighted] = patterns;
        for (dy, x) in dy.chunks_mut(means.len()).zip(x.chunks(means.len())) {
            let numbers = means.iter().zip(factors).zip(plain).zip(weighted);
            for ((dy, &x), (((&mean, &factor), &plain), &weighted)) in dy.iter_mut().zip(x).zip(numbers) {
                *dy = *dy * factor - plain - (x - mean) * weighted;
            }
        }
    }
}
