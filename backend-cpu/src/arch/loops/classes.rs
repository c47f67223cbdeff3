//! Loops over class scores.

use super::{kernels, math};
use crate::arch::LANES;

kernels! {
    /// Computes the log-sum-exp of each row. Sixteen rows are transposed into `transposed` and processed together; each
    /// row adds its classes in order.
    fn log_sum_exp[](logits: &[f32], classes: usize, transposed: &mut [f32], sums: &mut [f32]) {
        let (transposed, _) = transposed.as_chunks_mut::<LANES>();
        for (logits, sums) in logits.chunks(LANES * classes).zip(sums.chunks_mut(LANES)) {
            for (r, row) in logits.chunks_exact(classes).enumerate() {
                for (transposed, &v) in transposed.iter_mut().zip(row) {
                    transposed[r] = v;
                }
            }
            let mut max = [f32::NEG_INFINITY; LANES];
            for values in &*transposed {
                for (max, &v) in max.iter_mut().zip(values) {
                    *max = if (v > *max) | v.is_nan() { v } else { *max };
                }
            }
            let mut totals = [0f32; LANES];
            for values in &*transposed {
                for ((total, &v), &max) in totals.iter_mut().zip(values).zip(&max) {
                    *total += math::exp(v - max);
                }
            }
            for (total, &max) in totals.iter_mut().zip(&max) {
                // `ln` is for finite numbers; NaN is kept.
                let log = math::ln(*total);
                *total = max + if *total <= f32::MAX { log } else { *total };
            }
            sums.copy_from_slice(&totals[..sums.len()]);
        }
    }

    /// Repeats one number over each row of `width` elements. Of the first row only the last `head` elements are
    /// present, if `head` is not 0.
    fn broadcast_to_rows[](numbers: &[f32], head: usize, width: usize, out: &mut [f32]) {
        let (first, rest) = out.split_at_mut(head);
        let whole = if head == 0 { numbers } else { &numbers[1..] };
        first.fill(numbers[0]);
        for (row, &number) in rest.chunks_mut(width).zip(whole) {
            for out in row {
                *out = number;
            }
        }
    }

    /// Replaces each x by e^(x − y).
    fn exp_of_difference[](x: &mut [f32], y: &[f32]) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x = math::exp(*x - y);
        }
    }
}
