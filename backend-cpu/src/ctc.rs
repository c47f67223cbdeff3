//! Connectionist temporal classification: each sequence by itself.
//!
//! Sums over alignments are logarithms, by the recursion of Graves et al. 2006 (equations 6 to 8), in which every frame is
//! divided by its largest sum: so numbers stay near 0 however long a sequence is, and no digits are lost. The backward
//! sums are the forward sums of the sequence read from its end.

use crate::{Cpu, Memory, arch::LANES, elementwise::load_f32, threading::Cost, workspace::Workspace};
use gradscale_core::{backend::CtcArgs, ops::Ctc};

/// Logarithm of probability 0, for states that no alignment reaches.
const LOG_ZERO: f32 = Ctc::LOG_ZERO;

/// Input sequence of a CTC loss with its target.
struct Sequence<'a> {
    /// Logarithms of the class probabilities, `[frames, classes]`.
    log: Workspace<'a>,
    frames: usize,
    classes: usize,
    /// Class of each state of an alignment: letters with blanks around them.
    states: Vec<usize>,
    blank: usize,
}

/// Sums of the probabilities of all beginnings of alignments, by frame and state.
struct AlignmentSums<'a> {
    /// Sums by frame, each with all states and two entries in front; each frame has its own divisor.
    table: Workspace<'a>,
    width: usize,
    /// Sum over all whole alignments, as a logarithm.
    total: f32,
}

impl AlignmentSums<'_> {
    fn row(&self, frame: usize) -> &[f32] {
        &self.table[frame * self.width..][2..self.width]
    }
}

impl Cpu {
    pub(crate) fn run_ctc(&self, p: &Ctc, x: CtcArgs<&Memory>, losses: &mut Memory, gradient: Option<&mut Memory>) {
        let [batch, frames, classes] = p.logits().map(|size| size as usize);
        let sequence_len = frames * classes;
        let gradients: Vec<Option<&mut [f32]>> = match gradient.filter(|_| sequence_len != 0) {
            Some(gradient) => gradient.f32_mut()[..batch * sequence_len].chunks_mut(sequence_len).map(Some).collect(),
            None => (0..batch).map(|_| None).collect(),
        };
        let mut sequences: Vec<_> = losses.f32_mut()[..batch].iter_mut().zip(gradients).collect();
        // Each frame takes a logarithm and some exponentials for each letter.
        let cost = Cost::elements(16 * batch * sequence_len);
        self.par_chunks_mut(cost, &mut sequences, 1, |n, sequence| {
            for (loss, gradient) in sequence {
                **loss = self.sequence_loss(p, x, n, gradient.as_deref_mut());
            }
        });
    }

    /// Computes the CTC loss of sequence `n` and, if requested, its gradient.
    fn sequence_loss(&self, p: &Ctc, x: CtcArgs<&Memory>, n: usize, gradient: Option<&mut [f32]>) -> f32 {
        let mut sums =
            self.read_sequence(p, x, n).map(|sequence| (self.sums_over_alignments(&sequence, false), sequence));
        let total = sums.as_ref().map_or(f32::NAN, |(sums, _)| sums.total);
        // Of an invalid sequence all frames are NaN, of an impossible one those before its end, as in PyTorch.
        let (fill, loss, damaged) = if total.is_nan() {
            (f32::NAN, f32::NAN, 0)
        } else if total >= Ctc::LOG_ZERO_LIMIT {
            (0.0, -total, 0)
        } else if p.zero_infinity() {
            (0.0, 0.0, 0)
        } else {
            (0.0, f32::INFINITY, sums.as_ref().map_or(0, |(_, sequence)| sequence.frames * sequence.classes))
        };
        if total.is_nan() || total < Ctc::LOG_ZERO_LIMIT {
            sums = None;
        }
        if let Some(gradient) = gradient {
            gradient.fill(fill);
            gradient.iter_mut().take(damaged).for_each(|value| *value = f32::NAN);
            if let Some((forward, sequence)) = &sums {
                self.gradient_of_logits(sequence, forward, gradient);
            }
        }
        loss
    }

    /// Reads sequence `n` with its target; `None` if it is invalid.
    fn read_sequence(&self, p: &Ctc, x: CtcArgs<&Memory>, n: usize) -> Option<Sequence<'_>> {
        let [_, max_frames, classes] = p.logits().map(|size| size as usize);
        let [frames, letters] = [x.input_lengths, x.target_lengths].map(|lengths| lengths.integer(n));
        if !p.holds(frames, letters) {
            return None;
        }
        let (frames, first) = (frames as usize, n * p.letters() as usize);
        let letter = |i: usize| Some(x.targets.integer(first + i)).filter(|&letter| p.is_letter(letter));
        let target: Vec<u32> = (0..letters as usize).map(letter).collect::<Option<_>>()?;
        let blank = p.blank() as usize;
        let states = target.iter().flat_map(|&letter| [blank, letter as usize]).chain([blank]).collect();
        let (mut log, mut sums) = (self.workspace(frames * classes), self.workspace(frames));
        load_f32(self.isa(), x.logits, n * max_frames * classes, &mut log);
        self.isa().log_sum_exp(&log, classes, &mut self.zeroed_workspace(LANES * classes), &mut sums);
        for (log, sum) in log.chunks_exact_mut(classes).zip(&*sums) {
            log.iter_mut().for_each(|log| *log = clamp_to_log_zero(*log - sum));
        }
        Some(Sequence { log, frames, classes, states, blank })
    }

    /// Computes the sums over alignments by frames and states, from the front or from the back.
    fn sums_over_alignments(&self, sequence: &Sequence<'_>, back: bool) -> AlignmentSums<'_> {
        let &Sequence { ref log, frames, classes, ref states, blank } = sequence;
        let count = states.len();
        let state = |s: usize| if back { states[count - 1 - s] } else { states[s] };
        // A letter may follow the one before without a blank between, if they differ.
        let jumps = |s: usize| s >= 2 && state(s) != blank && state(s) != state(s - 2);
        let jump: Vec<f32> = (0..count).map(|s| if jumps(s) { 0.0 } else { LOG_ZERO }).collect();
        let width = count + 2;
        let mut sums = AlignmentSums {
            table: self.workspace(frames * width),
            width,
            total: if count == 1 { 0.0 } else { LOG_ZERO },
        };
        let (mut log_scale, mut divisor) = (0.0, 0.0);
        let mut log_prob = vec![0f32; count];
        for frame in 0..frames {
            let log = &log[if back { frames - 1 - frame } else { frame } * classes..][..classes];
            log_prob.iter_mut().enumerate().for_each(|(s, log_prob)| *log_prob = log[state(s)] - divisor);
            let (before, row) = sums.table.split_at_mut(frame * width);
            let row = &mut row[..width];
            row[..2].fill(LOG_ZERO);
            let row = &mut row[2..];
            if frame == 0 {
                // An alignment begins with the first blank or the first letter.
                row.iter_mut()
                    .zip(&log_prob)
                    .enumerate()
                    .for_each(|(s, (row, &log_prob))| *row = if s < 2 { log_prob } else { LOG_ZERO });
            } else {
                self.isa().advance_frame(&before[(frame - 1) * width..], &jump, &log_prob, LOG_ZERO, row);
            }
            log_scale += divisor;
            let max = row.iter().fold(LOG_ZERO, |max, &sum| if sum > max { sum } else { max });
            divisor = if max > Ctc::LOG_ZERO_LIMIT { max } else { 0.0 };
            if frame + 1 == frames {
                // It ends with the last blank or the last letter.
                let [last_blank, last_letter] =
                    [count, count.wrapping_sub(1)].map(|s| if s == 0 { LOG_ZERO } else { row[s - 1] });
                let max = if last_blank > last_letter { last_blank } else { last_letter };
                sums.total = log_scale + max + ((last_blank - max).exp() + (last_letter - max).exp()).ln();
            }
        }
        sums
    }

    /// Probability of each class less the share of alignments that name it at that frame (equation 16).
    fn gradient_of_logits(&self, sequence: &Sequence<'_>, forward: &AlignmentSums<'_>, gradient: &mut [f32]) {
        let &Sequence { ref log, frames, classes, ref states, .. } = sequence;
        let backward = self.sums_over_alignments(sequence, true);
        let mut shares = vec![0f32; states.len()];
        for (frame, (log, gradient)) in log.chunks_exact(classes).zip(gradient.chunks_exact_mut(classes)).enumerate() {
            let pairs = forward.row(frame).iter().zip(backward.row(frames - 1 - frame).iter().rev());
            // Both have the frame's own probability.
            for ((share, (&before, &after)), &class) in shares.iter_mut().zip(pairs).zip(states) {
                *share = before + (after - log[class]);
            }
            let max = shares.iter().fold(f32::NEG_INFINITY, |max, &share| if share > max { share } else { max });
            self.isa().map(&mut shares, |share| share - max);
            self.isa().exp(&mut shares);
            let sum: f32 = shares.iter().sum();
            gradient.copy_from_slice(log);
            self.isa().exp(gradient);
            for (share, &class) in shares.iter().zip(states) {
                gradient[class] -= share / sum;
            }
        }
    }
}

/// Returns a logarithm that is at least [`LOG_ZERO`]; NaN stays.
fn clamp_to_log_zero(log: f32) -> f32 {
    if log < LOG_ZERO { LOG_ZERO } else { log }
}
