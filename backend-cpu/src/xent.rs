//! Softmax and cross-entropy.

use crate::{Cpu, Memory, elementwise::load};
use gradscale_core::{
    backend::{Scored, Store},
    descriptor::{Xent, XentRow},
};
use rayon::prelude::*;

/// Rows of a part.
const PART: usize = 4096;

fn weight(x: Scored<'_, Memory>, class: u32) -> f32 {
    x.weights.map_or(1.0, |weights| weights.f32()[class as usize])
}

impl Cpu {
    #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
    pub(crate) fn run_xent(&self, p: &Xent, x: Scored<'_, Memory>, out: &mut Memory) {
        let [rows, classes] = p.shape().map(|size| size as usize);
        let (head, lse) = out.f32_mut().split_at_mut(2);
        // Loss, weights and rows of each part.
        let parts: Vec<[f64; 3]> = self.run(|| {
            lse[..rows]
                .par_chunks_mut(PART)
                .enumerate()
                .map(|(part, lse)| {
                    let mut sums = [0f64; 3];
                    let mut logits = self.scratch(classes);
                    for (r, lse) in (part * PART..).zip(lse) {
                        load(self.isa(), x.logits, r * classes, &mut logits);
                        let most = logits
                            .iter()
                            .fold(f32::NEG_INFINITY, |most, &v| if v > most || v.is_nan() { v } else { most });
                        *lse = most + logits.iter().map(|v| (v - most).exp()).sum::<f32>().ln();
                        let (weight, error) = match p.row(x.labels.integer(r)) {
                            XentRow::Ignored => continue,
                            XentRow::Class(class) => (weight(x, class), *lse - logits[class as usize]),
                            XentRow::Invalid => (1.0, f32::NAN),
                        };
                        sums[0] += f64::from(weight) * f64::from(error);
                        sums[1] += f64::from(weight);
                        sums[2] += 1.0;
                    }
                    sums
                })
                .collect()
        });
        let [loss, weights, counted] =
            parts.iter().fold([0f64; 3], |all, part| core::array::from_fn(|i| all[i] + part[i]));
        let divisor = p.divisor().value(counted as f32, weights as f32);
        head[0] = if counted == 0.0 { 0.0 } else { (loss / f64::from(divisor)) as f32 };
        head[1] = divisor;
    }

    pub(crate) fn run_xent_vjp(&self, p: &Xent, x: Scored<'_, Memory>, out: &Memory, g: &Memory, dx: Store<'_, Self>) {
        let [rows, classes] = p.shape().map(|size| size as usize);
        let (out, g) = (out.f32(), g.f32()[0]);
        self.dense(dx, rows * classes, |start, values| {
            load(self.isa(), x.logits, start, values);
            let (mut r, mut c) = (start / classes, start % classes);
            for value in values {
                *value = match p.row(x.labels.integer(r)) {
                    XentRow::Ignored => 0.0,
                    XentRow::Invalid => f32::NAN,
                    XentRow::Class(label) => {
                        let truth = if label as usize == c { 1.0 } else { 0.0 };
                        g * weight(x, label) / out[1] * ((*value - out[2 + r]).exp() - truth)
                    }
                };
                c += 1;
                if c == classes {
                    (r, c) = (r + 1, 0);
                }
            }
        });
    }
}
