//! Softmax and cross-entropy: loss, divisor and log-sum-exp against f64.

use super::Case;
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits},
    data::{Random, readable},
    property::merge,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, CrossEntropyArgs, DType, Launch},
    ops::{CrossEntropy, Divisor},
};

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for (name, divisor) in [("rows", Divisor::Rows), ("weights", Divisor::Weights), ("fixed", Divisor::Fixed(720.0))] {
        cases.push(Case::new(format!("cross_entropy::by_{name}"), move |b: &B| {
            let mut measured = vec![];
            for batch in batches(divisor) {
                merge(&mut measured, &check(&Rig::new(b)?, &batch)?);
            }
            Ok(measured)
        }));
    }
    cases.push(Case::new("cross_entropy::all_ignored", all_ignored::<B>));
    cases.push(Case::new("cross_entropy::ignored_rows_may_be_anything", ignored::<B>));
    cases.push(Case::new("cross_entropy::invalid_label", invalid::<B>));
    cases.push(Case::new("cross_entropy::large_logits", large::<B>));
    cases.push(Case::new("cross_entropy::excluded_classes", excluded::<B>));
    cases.push(Case::new("cross_entropy::not_finite", not_finite::<B>));
}

/// Batch of logits and labels, with the options of its loss.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) shape: [usize; 2],
    pub(super) dtype: DType,
    pub(super) logits: Vec<f32>,
    /// U8 or U32.
    pub(super) label_type: DType,
    pub(super) labels: Vec<u32>,
    pub(super) weights: Option<Vec<f32>>,
    pub(super) ignore: Option<u32>,
    pub(super) divisor: Divisor,
}

/// Expected values of the output `out`.
pub(super) struct Exact {
    pub(super) loss: Want,
    pub(super) divisor: Want,
    pub(super) lse: Vec<Want>,
}

impl Batch {
    /// Random logits and labels, no weights, nothing ignored.
    pub(super) fn new(rows: usize, classes: usize, dtype: DType, divisor: Divisor, seed: u64) -> Self {
        let mut random = Random(seed);
        let logits = readable(dtype, &random.many(rows * classes, |random| random.normal() * 3.1));
        let labels = (0..rows).map(|_| random.below(classes as u64) as u32).collect();
        let label_type = if classes < 256 { DType::U8 } else { DType::U32 };
        Self { shape: [rows, classes], dtype, logits, label_type, labels, weights: None, ignore: None, divisor }
    }

    pub(super) fn build(&self) -> CrossEntropy {
        let p = CrossEntropy::new(self.shape[0] as u32, self.shape[1] as u32).and_then(|p| p.divided_by(self.divisor));
        let p = p.expect("a valid shape");
        self.ignore.map_or(p, |label| p.ignoring(label))
    }

    /// Rows that count, with label and weight.
    pub(super) fn counted(&self) -> impl Iterator<Item = (usize, usize, f64)> + '_ {
        let rows = self.labels.iter().enumerate().filter(|&(_, &label)| Some(label) != self.ignore);
        rows.map(|(r, &label)| {
            let weight = self.weights.as_ref().map_or(1.0, |weights| f64::from(weights[label as usize]));
            (r, label as usize, weight)
        })
    }

    pub(super) fn row(&self, r: usize) -> impl Iterator<Item = f64> + '_ {
        self.logits[r * self.shape[1]..][..self.shape[1]].iter().map(|&v| f64::from(v))
    }

    pub(super) fn exact(&self) -> Exact {
        let lse = |r: usize| {
            let most = self.row(r).fold(f64::NEG_INFINITY, f64::max);
            let sum = self.row(r).map(|v| (v - most).exp()).sum::<f64>().ln();
            // The largest logit, the logarithm, and about 1 for the relative error of the sum under it.
            Want { value: most + sum, scale: most.abs() + sum + 1.0, terms: self.shape[1] }
        };
        let lse: Vec<Want> = (0..self.shape[0]).map(lse).collect();
        let divisor = match self.divisor {
            Divisor::Fixed(divisor) => Want { scale: 0.0, ..Want::one(divisor.into()) },
            Divisor::Rows => Want { scale: 0.0, ..Want::one(self.counted().count() as f64) },
            // Weights of few digits: their sum is exact in any order.
            Divisor::Weights => Want { scale: 0.0, ..Want::one(self.counted().map(|(_, _, weight)| weight).sum()) },
        };
        let logit = |r: usize, label: usize| f64::from(self.logits[r * self.shape[1] + label]);
        let mut loss = Want::sum(self.counted().map(|(r, label, weight)| weight * (lse[r].value - logit(r, label))));
        // Differences of large numbers: both count.
        loss.scale = self.counted().map(|(r, label, weight)| weight * (lse[r].scale + logit(r, label).abs())).sum();
        loss.terms = loss.terms.max(self.shape[1]);
        let loss = if self.counted().next().is_none() { Want::sum([]) } else { loss.times(1.0 / divisor.value) };
        Exact { loss, divisor, lse }
    }
}

/// A batch in a device's memory.
pub(super) struct Buffers<B: Backend> {
    logits: B::Buffer,
    labels: B::Buffer,
    weights: Option<B::Buffer>,
}

impl<B: Backend> Buffers<B> {
    /// Creates the operands, each followed by values that must not be read.
    pub(super) fn new(rig: &Rig<'_, B>, batch: &Batch) -> Result<Self, Fail> {
        let labels = if batch.label_type == DType::U8 {
            rig.padded(DType::U8, &batch.labels.iter().map(|&label| label as f32).collect::<Vec<_>>())?
        } else {
            rig.words(&batch.labels.iter().copied().chain([u32::MAX - 5; 3]).collect::<Vec<_>>())?
        };
        let weights = batch.weights.as_ref().map(|weights| rig.padded(DType::F32, weights)).transpose()?;
        Ok(Self { logits: rig.padded(batch.dtype, &batch.logits)?, labels, weights })
    }

    pub(super) fn scored(&self) -> CrossEntropyArgs<&B::Buffer> {
        CrossEntropyArgs { logits: &self.logits, labels: &self.labels, weights: self.weights.as_ref() }
    }
}

/// Runs the device on a batch, and returns loss, divisor and log-sum-exp of each row.
pub(super) fn run<B: Backend>(rig: &Rig<'_, B>, batch: &Batch) -> Result<Vec<f32>, Fail> {
    let buffers = Buffers::new(rig, batch)?;
    let mut out = rig.output(DType::F32, 2 + batch.shape[0])?;
    rig.backend.launch(Launch::CrossEntropy { p: batch.build(), x: buffers.scored(), out: &mut out.buffer })?;
    rig.take(&out)
}

pub(super) fn check<B: Backend>(rig: &Rig<'_, B>, batch: &Batch) -> Check {
    let (got, exact) = (run(rig, batch)?, batch.exact());
    same_bits("the same batch again", &run(rig, batch)?, &got)?;
    let mut want = vec![exact.loss, exact.divisor];
    if batch.counted().next().is_none() {
        // If nothing counts, the device may return any divisor.
        want[1] = Want::one(got[1].into());
    }
    want.extend(exact.lse);
    Ok(vec![compare("cross_entropy", DType::F32, &rig.backend.caps(), &got, &want)?])
}

/// Number of classes of a long row, which devices may compute by many threads. It is odd, so that rows begin anywhere.
const LONG_ROW: usize = 12301;

/// Weights of classes, multiples of 2^-10.
pub(super) fn weights(classes: usize) -> Vec<f32> {
    Random(61).many(classes, |random| (random.below(2048) + 100) as f32 / 1024.0)
}

/// Shapes × types × weights × ignored labels.
pub(super) fn batches(divisor: Divisor) -> Vec<Batch> {
    let shapes = [[1, 1], [1, 7], [5, 11], [33, 256], [1000, 12], [3, 5000], [4, LONG_ROW], [0, 4], [5000, 2]];
    let mut batches = Vec::new();
    for ([rows, classes], dtype) in shapes.into_iter().flat_map(|shape| [(shape, DType::F32), (shape, DType::F16)]) {
        let plain = Batch::new(rows, classes, dtype, divisor, 60);
        let weighted = Batch { weights: Some(weights(classes)), ..plain.clone() };
        // The last class does not count.
        let one_class = Batch { ignore: Some(classes as u32 - 1), ..weighted.clone() };
        let mut marked = weighted.clone();
        let mark = if marked.label_type == DType::U8 { 255 } else { u32::MAX };
        marked.ignore = Some(mark);
        marked.labels.iter_mut().step_by(3).for_each(|label| *label = mark);
        let words = Batch { label_type: DType::U32, ..marked.clone() };
        batches.extend([plain, weighted, one_class, marked, words]);
    }
    // If the only class is ignored, nothing counts; that is a case of its own.
    batches.into_iter().filter(|batch| batch.shape[0] == 0 || batch.counted().next().is_some()).collect()
}

fn all_ignored<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for divisor in [Divisor::Rows, Divisor::Weights, Divisor::Fixed(3.0)] {
        let batch = Batch { ignore: Some(255), labels: vec![255; 40], ..Batch::new(40, 5, DType::F16, divisor, 62) };
        let got = run(&rig, &batch)?;
        same_bits("the loss of nothing", &got[..1], &[0.0])?;
        check(&rig, &batch)?;
    }
    Ok(vec![])
}

/// A row that does not count may hold ∞ and NaN.
fn ignored<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let mut batch = Batch { ignore: Some(9), ..Batch::new(30, 6, DType::F16, Divisor::Rows, 63) };
    let clean = run(&rig, &batch)?;
    for (r, bad) in [(4, f32::NAN), (11, f32::INFINITY), (29, f32::NEG_INFINITY)] {
        batch.labels[r] = 9;
        batch.logits[r * 6 + 2] = bad;
    }
    let got = run(&rig, &batch)?;
    let exact = batch.exact();
    let seen = compare("cross_entropy", DType::F32, &b.caps(), &got[..2], &[exact.loss, exact.divisor])?;
    let kept =
        |values: &[f32]| -> Vec<f32> { (0..30).filter(|&r| batch.labels[r] != 9).map(|r| values[2 + r]).collect() };
    same_bits("log-sum-exp of the other rows", &kept(&got), &kept(&clean))?;
    Ok(vec![seen])
}

/// A label beyond the classes is an error that shows: the loss is NaN. It is not followed into memory.
fn invalid<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for (label, label_type) in
        [(6, DType::U8), (254, DType::U8), (6, DType::U32), (1 << 31, DType::U32), (u32::MAX, DType::U32)]
    {
        for divisor in [Divisor::Rows, Divisor::Weights, Divisor::Fixed(30.0)] {
            let mut batch = Batch { ignore: Some(255), label_type, ..Batch::new(30, 6, DType::F16, divisor, 64) };
            batch.weights = Some(vec![1.5; 6]);
            let clean = run(&rig, &batch)?;
            batch.labels[17] = label;
            let got = run(&rig, &batch)?;
            if !got[0].is_nan() {
                return Err(Fail::new(format!("label {label} of 6 classes gives a loss of {}", got[0])));
            }
            if divisor == Divisor::Rows {
                same_bits("the divisor: such a row is not an ignored one", &got[1..2], &[30.0])?;
            }
            same_bits("log-sum-exp", &got[2..], &clean[2..])?;
        }
    }
    Ok(vec![])
}

/// Logits at the ends of half's range, and far apart in f32.
fn large<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let mut measured = vec![];
    let halves = [60_000.0, -60_000.0, 0.0, 65_504.0, -65_504.0, 12.0, 65_472.0];
    for (dtype, values) in
        [(DType::F16, halves), (DType::F32, halves), (DType::F32, halves.map(|v| v * 1e30)), (DType::F32, [-1e4; 7])]
    {
        let mut random = Random(65);
        for [rows, classes] in [[50, 9], [2, LONG_ROW]] {
            let logits = random.many(rows * classes, |random| values[random.below(7) as usize]);
            for divisor in [Divisor::Rows, Divisor::Fixed(50.0)] {
                let batch = Batch { logits: logits.clone(), ..Batch::new(rows, classes, dtype, divisor, 66) };
                merge(&mut measured, &check(&rig, &batch)?);
            }
        }
    }
    Ok(measured)
}

/// A logit of −∞ excludes its class; the rest is as without it.
fn excluded<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let mut measured = vec![];
    for [rows, classes] in [[40, 8], [3, LONG_ROW]] {
        let mut batch = Batch::new(rows, classes, DType::F16, Divisor::Rows, 67);
        for r in 0..rows {
            let class = (batch.labels[r] as usize + 1 + r % 7) % classes;
            batch.logits[r * classes + class] = f32::NEG_INFINITY;
        }
        // Most of the first row has nothing else, so that threads of a long row begin with this alone.
        batch.logits[..classes / 4 * 3].fill(f32::NEG_INFINITY);
        batch.labels[0] = classes as u32 - 1;
        merge(&mut measured, &check(&rig, &batch)?);
    }
    Ok(measured)
}

/// An ∞ or NaN in any column of a row that counts reaches the loss.
fn not_finite<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for (rows, classes, places) in [(20, 9, [0, 3, 8]), (8, LONG_ROW, [0, 2050, LONG_ROW - 1])] {
        for (bad, class) in [f32::NAN, f32::INFINITY].into_iter().flat_map(|bad| places.map(|class| (bad, class))) {
            let mut batch = Batch::new(rows, classes, DType::F16, Divisor::Rows, 68);
            batch.logits[7 * classes + class] = bad;
            let got = run(&rig, &batch)?;
            if got[0].is_finite() {
                return Err(Fail::new(format!("a logit of {bad} in class {class} gives a loss of {}", got[0])));
            }
        }
    }
    Ok(vec![])
}
