//! The reference backend's connectionist temporal classification: sums over alignments in f64, each frame by the one before.

use crate::Memory;
use gradscale_core::{
    backend::{CtcArgs, ErrorKind},
    ops::Ctc,
};

/// Losses, and gradients by all logits.
pub fn run(p: &Ctc, x: CtcArgs<&Memory>, losses: &mut Memory, gradient: Option<&mut Memory>) -> Result<(), ErrorKind> {
    let [batch, frames, classes] = p.logits().map(|size| size as usize);
    let mut all = vec![0.0; batch * frames * classes];
    for n in 0..batch {
        let logits = |t: usize, c: usize| x.logits.number((n * frames + t) * classes + c);
        let [input, letters] = [x.input_lengths, x.target_lengths].map(|lengths| lengths.number(n) as u32);
        let gradient = &mut all[n * frames * classes..][..frames * classes];
        let target: Vec<u32> = if p.holds(input, letters) {
            (0..letters as usize).map(|i| x.targets.number(n * p.letters() as usize + i) as u32).collect()
        } else {
            vec![]
        };
        let valid = p.holds(input, letters) && target.iter().all(|&letter| p.is_letter(letter));
        let loss = if valid { sequence(p, &target, input as usize, logits, gradient) } else { f64::NAN };
        if loss.is_nan() {
            gradient.fill(f64::NAN);
        } else if loss == f64::INFINITY {
            gradient.fill(0.0);
            if !p.zero_infinity() {
                gradient[..input as usize * classes].fill(f64::NAN);
            }
        }
        losses.set(n, if loss == f64::INFINITY && p.zero_infinity() { 0.0 } else { loss });
    }
    if let Some(gradient) = gradient {
        all.into_iter().enumerate().for_each(|(i, value)| gradient.set(i, value));
    }
    Ok(())
}

/// ln(e^a + e^b).
fn add(a: f64, b: f64) -> f64 {
    let most = a.max(b);
    if most == f64::NEG_INFINITY { most } else { most + ((a - most).exp() + (b - most).exp()).ln() }
}

/// The loss of a sequence, ∞ if it is impossible.
pub fn sequence(
    p: &Ctc, target: &[u32], frames: usize, logits: impl Fn(usize, usize) -> f64, gradient: &mut [f64],
) -> f64 {
    let classes = p.logits()[2] as usize;
    let states: Vec<usize> =
        target.iter().flat_map(|&letter| [p.blank(), letter]).chain([p.blank()]).map(|c| c as usize).collect();
    let count = states.len();
    // Largest value of each frame, and the logarithm of its sum of exponentials relative to that value.
    let sums: Vec<(f64, f64)> = (0..frames)
        .map(|t| {
            let most = (0..classes).map(|c| logits(t, c)).fold(f64::NEG_INFINITY, f64::max);
            (most, (0..classes).map(|c| (logits(t, c) - most).exp()).sum::<f64>().ln())
        })
        .collect();
    // Logarithms of probabilities.
    let log = |t: usize, c: usize| logits(t, c) - sums[t].0 - sums[t].1;
    if (0..frames).any(|t| log(t, 0).is_nan()) {
        return f64::NAN;
    }
    let moves = |s: usize| {
        let jumps = s >= 2 && states[s] != states[s - 2];
        [Some(s), s.checked_sub(1), s.checked_sub(2).filter(|_| jumps)].into_iter().flatten()
    };
    // before[t][s]: alignments of frames 0 to t that end in state s. after[t][s]: alignments of the frames after t.
    let mut before = vec![vec![f64::NEG_INFINITY; count]; frames];
    let mut after = before.clone();
    for t in 0..frames {
        for s in 0..count {
            let sum = match t {
                0 if s < 2 => 0.0,
                0 => f64::NEG_INFINITY,
                _ => moves(s).map(|from| before[t - 1][from]).fold(f64::NEG_INFINITY, add),
            };
            before[t][s] = sum + log(t, states[s]);
        }
    }
    for t in (0..frames).rev() {
        for s in 0..count {
            if t + 1 == frames {
                after[t][s] = if s + 2 >= count { 0.0 } else { f64::NEG_INFINITY };
                continue;
            }
            let next = (s..count.min(s + 3)).filter(|&to| moves(to).any(|from| from == s));
            after[t][s] = next.map(|to| after[t + 1][to] + log(t + 1, states[to])).fold(f64::NEG_INFINITY, add);
        }
    }
    let ends = before.last().map(|last| last.iter().rev().take(2).copied().fold(f64::NEG_INFINITY, add));
    let all = ends.unwrap_or(if target.is_empty() { 0.0 } else { f64::NEG_INFINITY });
    for (t, c) in (0..frames).flat_map(|t| (0..classes).map(move |c| (t, c))) {
        let named = (0..count).filter(|&s| states[s] == c).map(|s| (before[t][s] + after[t][s] - all).exp());
        gradient[t * classes + c] = log(t, c).exp() - named.sum::<f64>();
    }
    -all
}
