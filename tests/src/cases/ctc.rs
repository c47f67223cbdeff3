//! Connectionist temporal classification, compared with an enumeration of all alignments and with sums in f64.

use super::Case;
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits},
    ctc::sequence,
    data::{Random, held},
    property::{merge, property},
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, CtcArgs, DType, Launch},
    ops::Ctc,
};
use proptest::prelude::*;

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("ctc::alignments", alignments::<B>));
    cases.push(Case::new("ctc::sequences", sequences::<B>));
    cases.push(Case::new("ctc::sure", sure::<B>));
    cases.push(Case::new("ctc::impossible", impossible::<B>));
    cases.push(Case::new("ctc::infinite", infinite::<B>));
    cases.push(Case::new("ctc::invalid", invalid::<B>));
    cases.push(Case::new("ctc::behind_the_end", behind::<B>));
    cases.push(Case::new("ctc::any", any_batch::<B>));
}

/// A batch with targets of unlike lengths, each `[room]` of words.
#[derive(Clone, Debug)]
struct Batch {
    shape: [usize; 3],
    dtype: DType,
    blank: u32,
    room: usize,
    logits: Vec<f32>,
    targets: Vec<u32>,
    input_lengths: Vec<u32>,
    target_lengths: Vec<u32>,
    zero_infinity: bool,
}

impl Batch {
    /// Random logits and targets; lengths from 0 on, but the first sequence has all.
    fn new(shape: [usize; 3], room: usize, dtype: DType, seed: u64) -> Self {
        let [n, frames, classes] = shape;
        let mut random = Random(seed);
        let blank = random.below(classes as u64) as u32;
        let mut letter = || match random.below(classes as u64) as u32 {
            // A single class is the blank, so only the empty target is valid.
            letter if letter == blank => (blank + 1) % classes as u32,
            letter => letter,
        };
        let targets = (0..n * room).map(|_| letter()).collect();
        let mut random = Random(seed + 1);
        let logits = held(dtype, &random.many(n * frames * classes, |random| random.normal() * 2.0));
        let mut length = |i: usize, most: usize| match i {
            0 => most as u32,
            _ => random.below(most as u64 + 1) as u32,
        };
        let input_lengths = (0..n).map(|i| length(i, frames)).collect();
        let most = if classes == 1 { 0 } else { room };
        let target_lengths = (0..n).map(|i| length(i, most)).collect();
        let zero_infinity = true;
        Self { shape, dtype, blank, room, logits, targets, input_lengths, target_lengths, zero_infinity }
    }

    fn build(&self) -> Result<Ctc, Fail> {
        let p = Ctc::new(self.shape.map(|size| size as u32), self.room as u32, self.blank);
        p.map(|p| p.with_zero_infinity(self.zero_infinity)).map_err(|error| Fail::new(error.to_string()))
    }

    fn target(&self, n: usize) -> &[u32] {
        &self.targets[n * self.room..][..self.target_lengths[n] as usize]
    }

    fn logit(&self, n: usize, t: usize, c: usize) -> f64 {
        f64::from(self.logits[(n * self.shape[1] + t) * self.shape[2] + c])
    }

    /// ln of the sum of e^logit of a frame.
    fn lse(&self, n: usize, t: usize) -> f64 {
        let most = (0..self.shape[2]).map(|c| self.logit(n, t, c)).fold(f64::NEG_INFINITY, f64::max);
        most + (0..self.shape[2]).map(|c| (self.logit(n, t, c) - most).exp()).sum::<f64>().ln()
    }

    /// Losses, then gradients, by a rule for one sequence: its loss (∞: impossible) and gradient.
    fn exact(&self, rule: impl Fn(&Ctc, usize, &mut [f64]) -> f64) -> Result<[Vec<Want>; 2], Fail> {
        let ([batch, frames, classes], p) = (self.shape, self.build()?);
        let mut wants = [vec![], vec![]];
        for n in 0..batch {
            let sums: Vec<f64> = (0..frames).map(|t| self.lse(n, t)).collect();
            let mut gradient = vec![0.0; frames * classes];
            let loss = rule(&p, n, &mut gradient);
            let counts = loss.is_finite();
            let loss = if loss == f64::INFINITY { 0.0 } else { loss };
            // Every frame has a different value, so that exchanged frames are found.
            let terms = (self.input_lengths[n] as usize).max(1);
            wants[0].push(Want { value: loss, scale: loss.abs() + 1.0, terms });
            // Sums over alignments are as far apart as logarithms of probabilities are.
            let logs = (0..self.input_lengths[n] as usize * classes).map(|i| (i / classes, i % classes));
            let logs = logs.map(|(t, c)| (self.logit(n, t, c) - sums[t]).abs());
            let apart = 1.0 + logs.filter(|log| log.is_finite()).fold(0.0, f64::max);
            for (i, value) in gradient.into_iter().enumerate() {
                let (t, c) = (i / classes, i % classes);
                let counts = counts && t < self.input_lengths[n] as usize;
                let log = if counts { self.logit(n, t, c) - sums[t] } else { f64::NEG_INFINITY };
                let probability = log.exp();
                let share = probability - value;
                // An exponential has the absolute error of its argument.
                let size = if log.is_finite() { 1.0 + log.abs() } else { 1.0 };
                let scale = if counts { probability * size + share.abs() * apart } else { 0.0 };
                wants[1].push(Want { value: if counts { value } else { 0.0 }, scale, terms });
            }
        }
        Ok(wants)
    }

    fn by_sums(&self) -> Result<[Vec<Want>; 2], Fail> {
        self.exact(|p, n, gradient| {
            let logits = |t: usize, c: usize| self.logit(n, t, c);
            sequence(p, self.target(n), self.input_lengths[n] as usize, logits, gradient)
        })
    }

    /// Every alignment by itself.
    fn by_alignments(&self) -> Result<[Vec<Want>; 2], Fail> {
        self.exact(|p, n, gradient| {
            let ([_, _, classes], frames) = (self.shape, self.input_lengths[n] as usize);
            let mut total = 0.0;
            let mut named = vec![0.0; gradient.len()];
            for number in 0..classes.pow(frames as u32) {
                let path: Vec<usize> = (0..frames).map(|t| number / classes.pow(t as u32) % classes).collect();
                let mut said: Vec<usize> = path.clone();
                said.dedup();
                said.retain(|&class| class != p.blank() as usize);
                if said.iter().map(|&class| class as u32).ne(self.target(n).iter().copied()) {
                    continue;
                }
                let log: f64 = path.iter().enumerate().map(|(t, &c)| self.logit(n, t, c) - self.lse(n, t)).sum();
                total += log.exp();
                path.iter().enumerate().for_each(|(t, &c)| named[t * classes + c] += log.exp());
            }
            for (i, gradient) in gradient.iter_mut().enumerate().take(frames * classes) {
                let (t, c) = (i / classes, i % classes);
                *gradient = (self.logit(n, t, c) - self.lse(n, t)).exp() - named[i] / total;
            }
            -total.ln()
        })
    }
}

/// Returns losses and gradients of a device. Without gradients the losses must be the same.
fn run<B: Backend>(rig: &Rig<'_, B>, batch: &Batch) -> Result<[Vec<f32>; 2], Fail> {
    let ([n, frames, classes], p) = (batch.shape, batch.build()?);
    let logits = rig.padded(batch.dtype, &batch.logits)?;
    let words = |words: &[u32]| rig.words(&words.iter().copied().chain([u32::MAX - 5; 3]).collect::<Vec<_>>());
    let [targets, inputs, letters] =
        [&batch.targets, &batch.input_lengths, &batch.target_lengths].map(|all| words(all));
    let (targets, inputs, letters) = (targets?, inputs?, letters?);
    let x = || CtcArgs { logits: &logits, targets: &targets, input_lengths: &inputs, target_lengths: &letters };
    let (mut losses, mut gradient) = (rig.output(DType::F32, n)?, rig.output(DType::F32, n * frames * classes)?);
    rig.backend.launch(Launch::Ctc { p, x: x(), losses: &mut losses.buffer, gradient: Some(&mut gradient.buffer) })?;
    let found = [rig.take(&losses)?, rig.take(&gradient)?];
    let mut again = rig.output(DType::F32, n)?;
    rig.backend.launch(Launch::Ctc { p, x: x(), losses: &mut again.buffer, gradient: None })?;
    same_bits("losses without gradients", &rig.take(&again)?, &found[0])?;
    Ok(found)
}

fn check<B: Backend>(rig: &Rig<'_, B>, batch: &Batch, wants: &[Vec<Want>; 2]) -> Check {
    let (got, caps) = (run(rig, batch)?, rig.backend.caps());
    Ok(vec![
        compare("ctc", DType::F32, &caps, &got[0], &wants[0])?,
        compare("ctc", DType::F32, &caps, &got[1], &wants[1])?,
    ])
}

const TYPES: [DType; 2] = [DType::F32, DType::F16];

fn alignments<B: Backend>(b: &B) -> Check {
    let (rig, mut measured) = (Rig::new(b)?, vec![]);
    let shapes = [
        ([4, 5, 3], 3),
        ([3, 1, 2], 1),
        ([2, 3, 1], 2),
        ([6, 6, 3], 2),
        ([5, 4, 4], 4),
        ([1, 0, 2], 1),
        ([2, 3, 4], 0),
    ];
    for (i, (shape, room)) in shapes.into_iter().enumerate() {
        for dtype in TYPES {
            let batch = Batch::new(shape, room, dtype, 100 + i as u64);
            merge(&mut measured, &check(&rig, &batch, &batch.by_alignments()?)?);
        }
    }
    // Equal letters need a blank between them: 1 1 takes three frames, of which one alignment is left.
    let batch =
        Batch { blank: 0, targets: vec![1, 1], target_lengths: vec![2], ..Batch::new([1, 3, 2], 2, DType::F32, 110) };
    merge(&mut measured, &check(&rig, &batch, &batch.by_alignments()?)?);
    Ok(measured)
}

/// Longer ones, more states than a workgroup has threads, and many classes.
fn sequences<B: Backend>(b: &B) -> Check {
    let (rig, mut measured) = (Rig::new(b)?, vec![]);
    for (i, (shape, room)) in
        [([3, 40, 29], 9), ([2, 300, 5], 20), ([1, 330, 4], 140), ([2, 9, 700], 3)].into_iter().enumerate()
    {
        for dtype in TYPES {
            let batch = Batch::new(shape, room, dtype, 120 + i as u64);
            merge(&mut measured, &check(&rig, &batch, &batch.by_sums()?)?);
        }
    }
    let none = Batch::new([0, 7, 3], 2, DType::F32, 130);
    merge(&mut measured, &check(&rig, &none, &none.by_sums()?)?);
    Ok(measured)
}

/// A network that is sure, of the right letters and of wrong ones: losses near 0 and of thousands.
fn sure<B: Backend>(b: &B) -> Check {
    let (rig, mut measured) = (Rig::new(b)?, vec![]);
    for (by, seed) in [(30.0, 131), (-30.0, 132), (400.0, 133)] {
        let mut batch = Batch::new([3, 50, 6], 8, DType::F16, seed);
        batch.input_lengths.fill(50);
        for n in 0..3 {
            for (t, &letter) in batch.target(n).to_vec().iter().enumerate() {
                for frame in 6 * t..6 * t + 3 {
                    batch.logits[(n * 50 + frame) * 6 + letter as usize] += by;
                }
            }
        }
        batch.logits = held(DType::F16, &batch.logits);
        merge(&mut measured, &check(&rig, &batch, &batch.by_sums()?)?);
    }
    Ok(measured)
}

/// A batch of five sequences, of which all but the first have no alignment.
fn without_alignments() -> Batch {
    let mut batch = Batch::new([5, 8, 4], 4, DType::F16, 134);
    batch.input_lengths = vec![8, 3, 0, 4, 8];
    batch.target_lengths = vec![4, 4, 1, 4, 2];
    batch.blank = 0;
    batch.targets = [[1, 2, 3, 1], [1, 2, 3, 1], [1; 4], [2, 2, 3, 1], [3, 1, 0, 0]].concat();
    // The last one would be possible, but a letter of it never is.
    (0..8).for_each(|t| batch.logits[(4 * 8 + t) * 4 + 3] = f32::NEG_INFINITY);
    batch
}

/// Impossible targets have neither loss nor gradient, and do not affect other sequences.
fn impossible<B: Backend>(b: &B) -> Check {
    let (rig, batch) = (Rig::new(b)?, without_alignments());
    let [losses, gradient] = run(&rig, &batch)?;
    same_bits("losses of what is impossible", &losses[1..], &[0.0; 4])?;
    same_bits("gradients of what is impossible", &gradient[32..], &[0.0; 128])?;
    check(&rig, &batch, &batch.by_sums()?)
}

/// Without `zero_infinity` a target without an alignment has loss ∞, gradient NaN at its frames and 0 after them. The
/// other sequences keep their bits.
fn infinite<B: Backend>(b: &B) -> Check {
    let (rig, zero) = (Rig::new(b)?, without_alignments());
    let mut want = run(&rig, &zero)?;
    want[0][1..].fill(f32::INFINITY);
    for (sequence, &frames) in zero.input_lengths.iter().enumerate().skip(1) {
        want[1][32 * sequence..][..4 * frames as usize].fill(f32::NAN);
    }
    let got = run(&rig, &Batch { zero_infinity: false, ..zero })?;
    same_bits("losses with infinity", &got[0], &want[0])?;
    same_bits("gradients with infinity", &got[1], &want[1])?;
    Ok(vec![])
}

/// A letter that is the blank or no class, a length beyond the tensor, NaN: NaN in that sequence, and in no other.
fn invalid<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let mut clean = Batch { blank: 0, ..Batch::new([4, 7, 5], 3, DType::F16, 135) };
    clean.targets = vec![1, 2, 3, 4, 1, 2, 3, 3, 1, 4, 2, 2];
    (clean.input_lengths, clean.target_lengths) = (vec![7, 6, 7, 5], vec![3, 2, 1, 2]);
    let want = run(&rig, &clean)?;
    let damages: [fn(&mut Batch); 8] = [
        |batch| batch.targets[4] = 0,
        |batch| batch.targets[3] = 5,
        |batch| batch.targets[4] = u32::MAX,
        |batch| batch.input_lengths[1] = 8,
        |batch| batch.input_lengths[1] = u32::MAX,
        |batch| batch.target_lengths[1] = 4,
        |batch| batch.target_lengths[1] = 1 << 31,
        |batch| batch.logits[7 * 5 + 5 * 3 + 2] = f32::NAN,
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let mut batch = clean.clone();
        damage(&mut batch);
        let [losses, gradient] = run(&rig, &batch)?;
        let mut right = want.clone();
        right[0][1] = f32::NAN;
        right[1][35..70].fill(f32::NAN);
        same_bits(&format!("losses with damage {number}"), &losses, &right[0])?;
        same_bits(&format!("gradients with damage {number}"), &gradient, &right[1])?;
    }
    Ok(vec![])
}

/// Frames and letters after the end of a sequence have no influence.
fn behind<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for dtype in TYPES {
        let mut batch = Batch::new([4, 12, 6], 5, dtype, 136);
        (batch.input_lengths, batch.target_lengths) = (vec![12, 7, 0, 9], vec![4, 3, 0, 5]);
        let want = run(&rig, &batch)?;
        for n in 0..4 {
            batch.logits[(12 * n + batch.input_lengths[n] as usize) * 6..12 * (n + 1) * 6].fill(f32::NAN);
            batch.targets[5 * n + batch.target_lengths[n] as usize..5 * (n + 1)].fill(u32::MAX);
        }
        let got = run(&rig, &batch)?;
        same_bits("losses", &got[0], &want[0])?;
        same_bits("gradients", &got[1], &want[1])?;
        check(&rig, &batch, &batch.by_sums()?)?;
    }
    Ok(vec![])
}

fn any_batch<B: Backend>(b: &B) -> Check {
    let sizes = (1..4usize, 0..20usize, 1..9usize);
    property(
        &(sizes, 0..6usize, prop::sample::select(TYPES.to_vec()), any::<u32>()),
        |((n, t, c), room, dtype, seed)| {
            let batch = Batch::new([n, t, c], room, dtype, seed.into());
            check(&Rig::new(b)?, &batch, &batch.by_sums()?)
        },
    )
}
