//! Attention, row by row of the scores.

use super::{Memory, Reference};
use crate::{Fault, nhwc::wins};
use core::ops::Range;
use gradscale_core::{backend::*, ops::*, scale::Factor, stats::Detail};

/// Row `row` of a matrix in memory.
fn row_of(memory: &Memory, row: usize, width: u32) -> Vec<f32> {
    let width = width as usize;
    (row * width..(row + 1) * width).map(|i| memory.get(i)).collect()
}

/// A matrix of sums, to which rows are added.
struct Sums(Vec<f32>);

impl Sums {
    fn new(len: u32) -> Self {
        Self(vec![0.0; len as usize])
    }

    /// Adds a row times a factor to row `row`.
    fn add(&mut self, row: usize, factor: f32, values: &[f32]) {
        let sums = &mut self.0[row * values.len()..(row + 1) * values.len()];
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += factor * value);
    }
}

impl Reference {
    /// The keys that a row of scores reads, as rows of k.
    fn keys(&self, p: &Attention, x: AttentionArgs<&Memory>, row: usize) -> Range<usize> {
        let AttentionShape { heads, queries, keys, .. } = p.shape();
        let matrix = row / queries as usize;
        let length = x.lengths.map_or(0, |lengths| lengths.number(matrix / heads as usize) as u32);
        let more = u32::from(self.on(Fault::HiddenColumnRead));
        let end = keys.min(p.columns_of_query(row as u32 % queries, length) + more) as usize;
        let start = matrix * keys as usize;
        start..start + end
    }

    fn scores(&self, p: &Attention, x: AttentionArgs<&Memory>, row: usize) -> Vec<f32> {
        let depth = p.shape().depth;
        let q = row_of(x.q, row, depth);
        let score = |key| self.dot(q.iter().zip(row_of(x.k, key, depth)).map(|(q, k)| q * k));
        self.keys(p, x, row).map(score).collect()
    }

    pub(super) fn attention(
        &self, p: &Attention, x: AttentionArgs<&Memory>, log_sums: &mut Memory, y: Store<'_, Self>,
    ) -> DeviceResult<Self> {
        let mut results = Sums::new(p.y_len());
        for row in 0..p.rows() as usize {
            let scores = self.scores(p, x, row);
            let most = scores.iter().fold(f32::NEG_INFINITY, |best, &s| if wins(s, best) { s } else { best });
            let weights: Vec<f32> = scores.iter().map(|s| (s - most).exp()).collect();
            let sum: f32 = weights.iter().sum();
            let log_sum = if scores.is_empty() { f32::NEG_INFINITY } else { most + sum.ln() };
            log_sums.set(row, f64::from(log_sum));
            for (key, weight) in self.keys(p, x, row).zip(weights) {
                results.add(row, weight / sum, &row_of(x.v, key, p.shape().width));
            }
        }
        self.put(y, results.0)
    }

    pub(super) fn attention_vjp(
        &self, p: &Attention, x: AttentionArgs<&Memory>, [y, log_sums, dy]: [&Memory; 3],
        [dp, ds]: [Cast<'_, Self>; 2], [dq, dk, dv]: [Store<'_, Self>; 3],
    ) -> DeviceResult<Self> {
        let AttentionShape { depth, width, .. } = p.shape();
        let [mut of_q, mut of_k, mut of_v] = [p.q_len(), p.k_len(), p.v_len()].map(Sums::new);
        let exponent = |slot: Slot| dp.table.exponents[usize::from(slot.0)];
        let to = if self.on(Fault::DeltaNotRescaled) { dp.from } else { dp.to };
        let factor = Factor::between(exponent(dp.from), exponent(to));
        for row in 0..p.rows() as usize {
            let (dy, y) = (row_of(dy, row, width), row_of(y, row, width));
            let delta = factor.apply(dy.iter().zip(y).map(|(dy, y)| dy * y).sum());
            let of_weights: Vec<f32> = self
                .keys(p, x, row)
                .map(|key| self.dot(dy.iter().zip(row_of(x.v, key, width)).map(|(dy, v)| dy * v)))
                .collect();
            let of_weights = self.cast(&dp, &of_weights);
            let log_sum = log_sums.get(row);
            let weights: Vec<f32> = self.scores(p, x, row).iter().map(|s| (s - log_sum).exp()).collect();
            let gradient = |(&p, dp): (&f32, f32)| if p == 0.0 { 0.0 } else { p * (dp - delta) };
            let of_scores: Vec<f32> = weights.iter().zip(of_weights).map(gradient).collect();
            let rounded = self.cast(&ds, &of_scores);
            if self.on(Fault::ScoreObservedTwice) {
                self.cast(&ds, &of_scores[..of_scores.len().min(1)]);
            }
            if self.on(Fault::HiddenScoreObserved) && of_scores.len() < p.shape().keys as usize {
                self.cast(&dp, &[0.0]);
            }
            let scale = Factor::between(exponent(ds.from), exponent(ds.to));
            let q = row_of(x.q, row, depth);
            for (i, key) in self.keys(p, x, row).enumerate() {
                let of_score = if self.on(Fault::ScoresNotRounded) { scale.apply(of_scores[i]) } else { rounded[i] };
                of_q.add(row, of_score, &row_of(x.k, key, depth));
                of_k.add(key, of_score, &q);
                of_v.add(key, self.round(weights[i], Detail::Counts), &dy);
            }
        }
        self.put(dq, of_q.0)?;
        self.put(dk, of_k.0)?;
        self.put(dv, of_v.0)
    }
}
