//! Softmax and cross-entropy.

use crate::{
    Cpu, Memory, arch::LANES, elementwise::load_f32, epilogue::BLOCK_ELEMENTS, reduce::split_at_rows, threading::Cost,
};
use gradscale_core::{
    backend::{CrossEntropyArgs, Store},
    ops::{CrossEntropy, CrossEntropyRow},
};

/// Number of rows of logits in a chunk.
const CHUNK_ROWS: usize = 4096;

fn class_weight(x: CrossEntropyArgs<&Memory>, class: u32) -> f32 {
    x.weights.map_or(1.0, |weights| weights.f32()[class as usize])
}

impl Cpu {
    #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
    pub(crate) fn run_cross_entropy(&self, p: &CrossEntropy, x: CrossEntropyArgs<&Memory>, out: &mut Memory) {
        let [rows, classes] = p.shape().map(|size| size as usize);
        let (head, lse) = out.f32_mut().split_at_mut(2);
        // Loss, weights and rows of each part.
        let cost = Cost::elements(rows * classes);
        let chunks = self.par_chunks_mut(cost, &mut lse[..rows], CHUNK_ROWS, |chunk, lse| {
            let mut sums = [0f64; 3];
            let (first, block) = (chunk * CHUNK_ROWS, (BLOCK_ELEMENTS / classes).max(1).next_multiple_of(LANES));
            let (mut logits, mut transposed) =
                (self.workspace(block * classes), self.zeroed_workspace(LANES * classes));
            for (i, lse) in lse.chunks_mut(block).enumerate() {
                let (start, logits) = (first + i * block, &mut logits[..lse.len() * classes]);
                load_f32(self.isa(), x.logits, start * classes, logits);
                self.isa().log_sum_exp(logits, classes, &mut transposed, lse);
                for ((r, lse), logits) in (start..).zip(lse).zip(logits.chunks_exact(classes)) {
                    let (weight, error) = match p.row(x.labels.integer(r)) {
                        CrossEntropyRow::Ignored => continue,
                        CrossEntropyRow::Class(class) => (class_weight(x, class), *lse - logits[class as usize]),
                        CrossEntropyRow::Invalid => (1.0, f32::NAN),
                    };
                    sums[0] += f64::from(weight) * f64::from(error);
                    sums[1] += f64::from(weight);
                    sums[2] += 1.0;
                }
            }
            sums
        });
        let [loss, weights, counted] =
            chunks.iter().fold([0f64; 3], |sums, chunk| core::array::from_fn(|i| sums[i] + chunk[i]));
        let divisor = p.divisor().value(counted as f32, weights as f32);
        head[0] = if counted == 0.0 { 0.0 } else { (loss / f64::from(divisor)) as f32 };
        head[1] = divisor;
    }

    pub(crate) fn run_cross_entropy_vjp(
        &self, p: &CrossEntropy, x: CrossEntropyArgs<&Memory>, out: &Memory, g: &Memory, dx: Store<'_, Self>,
    ) {
        let [rows, classes] = p.shape().map(|size| size as usize);
        let (out, g) = (out.f32(), g.f32()[0]);
        // `numbers` has for each element those of its row: first the subtrahend, then the factor.
        self.store_map(dx, rows * classes, |start, [values, numbers]| {
            load_f32(self.isa(), x.logits, start, values);
            let (first, last) = (start / classes, (start + values.len() - 1) / classes);
            let head = ((classes - start % classes) % classes).min(values.len());
            let rows: Vec<CrossEntropyRow> = (first..=last).map(|r| p.row(x.labels.integer(r))).collect();
            self.isa().broadcast_to_rows(&out[2 + first..=2 + last], head, classes, numbers);
            self.isa().exp_of_difference(values, numbers);
            let factor = |row: &CrossEntropyRow| {
                if let CrossEntropyRow::Class(label) = *row { g * class_weight(x, label) / out[1] } else { 0.0 }
            };
            let factors: Vec<f32> = rows.iter().map(factor).collect();
            self.isa().broadcast_to_rows(&factors, head, classes, numbers);
            for (r, row) in (first..).zip(&rows) {
                // A block may begin and end inside a row.
                if let CrossEntropyRow::Class(label) = *row
                    && let Some(truth) = (r * classes + label as usize).checked_sub(start)
                    && truth < values.len()
                {
                    values[truth] -= 1.0;
                }
            }
            self.isa().zip(values, numbers, |value, factor| factor * value);
            for (row, (_, values)) in rows.iter().zip(split_at_rows(start, values, classes)) {
                match row {
                    CrossEntropyRow::Ignored => values.fill(0.0),
                    CrossEntropyRow::Invalid => values.fill(f32::NAN),
                    CrossEntropyRow::Class(_) => {}
                }
            }
        });
    }
}
