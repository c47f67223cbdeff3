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

    /// (x − mean)².
    fn squared_distances[](x: &mut [f32], means: &[f32]) {
        for x in x.chunks_mut(means.len()) {
            for (x, &mean) in x.iter_mut().zip(means) {
                let distance = *x - mean;
                *x = distance * distance;
            }
        }
    }

    /// (x − mean) · inverse · scale + shift.
    fn normalise[](x: &mut [f32], patterns: [&[f32]; 4]) {
        let [means, inverses, scales, shifts] = patterns;
        for x in x.chunks_mut(means.len()) {
            for ((((x, &mean), &inverse), &scale), &shift) in x.iter_mut().zip(means).zip(inverses).zip(scales).zip(shifts) {
                *x = (*x - mean) * inverse * scale + shift;
            }
        }
    }

    /// x becomes dy · x̂.
    fn weigh[](x: &mut [f32], dy: &[f32], patterns: [&[f32]; 2]) {
        let [means, inverses] = patterns;
        for (x, dy) in x.chunks_mut(means.len()).zip(dy.chunks(means.len())) {
            for (((x, &dy), &mean), &inverse) in x.iter_mut().zip(dy).zip(means).zip(inverses) {
                *x = dy * ((*x - mean) * inverse);
            }
        }
    }

    /// dy becomes (dy · scale − plain − x̂ · weighted) · inverse.
    fn normalise_vjp[](dy: &mut [f32], x: &[f32], patterns: [&[f32]; 5]) {
        let [means, inverses, scales, plain, weighted] = patterns;
        for (dy, x) in dy.chunks_mut(means.len()).zip(x.chunks(means.len())) {
            let numbers = means.iter().zip(inverses).zip(scales).zip(plain).zip(weighted);
            for ((dy, &x), ((((&mean, &inverse), &scale), &plain), &weighted)) in dy.iter_mut().zip(x).zip(numbers) {
                let normal = (x - mean) * inverse;
                *dy = (*dy * scale - plain - normal * weighted) * inverse;
            }
        }
    }
}
