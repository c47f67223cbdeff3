//! Loops over scores of classes.

use super::{kernels, math};
use crate::arch::LANES;

kernels! {
    /// The logarithm of the sum of exponentials of each row; `turned` is memory for 16 rows. Rows are turned into
    /// columns, so that 16 of them are worked on at once; each sums its classes in their order.
    fn log_sum_exp[](logits: &[f32], classes: usize, turned: &mut [f32], sums: &mut [f32]) {
        let (turned, _) = turned.as_chunks_mut::<LANES>();
        for (logits, sums) in logits.chunks(LANES * classes).zip(sums.chunks_mut(LANES)) {
            for (r, row) in logits.chunks_exact(classes).enumerate() {
                for (turned, &v) in turned.iter_mut().zip(row) {
                    turned[r] = v;
                }
            }
            let mut most = [f32::NEG_INFINITY; LANES];
            for values in &*turned {
                for (most, &v) in most.iter_mut().zip(values) {
                    *most = if (v > *most) | v.is_nan() { v } else { *most };
                }
            }
            let mut totals = [0f32; LANES];
            for values in &*turned {
                for ((total, &v), &most) in totals.iter_mut().zip(values).zip(&most) {
                    *total += math::exp(v - most);
                }
            }
            for (total, &most) in totals.iter_mut().zip(&most) {
                // The logarithm is for numbers; NaN stays.
                let log = math::ln(*total);
                *total = most + if *total <= f32::MAX { log } else { *total };
            }
            sums.copy_from_slice(&totals[..sums.len()]);
        }
    }

    /// Lays one number over each row of `width` elements; of the first row only the last `head` are there, if any.
    fn spread[](numbers: &[f32], head: usize, width: usize, out: &mut [f32]) {
        let (first, rest) = out.split_at_mut(head);
        let whole = if head == 0 { numbers } else { &numbers[1..] };
        first.fill(numbers[0]);
        for (row, &number) in rest.chunks_mut(width).zip(whole) {
            for out in row {
                *out = number;
            }
        }
    }

    /// x becomes e^(x − y).
    fn exp_of_difference[](x: &mut [f32], y: &[f32]) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x = math::exp(*x - y);
        }
    }
}
