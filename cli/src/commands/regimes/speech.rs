//! `short-recordings`: speech data in which some recordings are too short for their transcript.
//!
//! A network that keeps every fourth frame, as Conformer and Deep Speech do, has fewer steps than some transcripts have
//! letters. With PyTorch's default (`zero_infinity=False`) CTC then has a loss of ∞, and the batch is skipped. Nothing
//! is constructed: spoken digits have such recordings.

use super::{
    data::{Data, is_short},
    learn::{Begun, Conditions, Failed, Learn},
};
use crate::{
    Failure,
    data::{Order, Speech, Spoken},
    tasks::Convolutions,
};
use gradscale::{
    Cpu, Gradients, Input, Parameters, Trainer,
    metrics::ErrorRate,
    optim::{AdamW, Optimizer, Schedule},
};

/// Number of recordings in a batch of the speech regimes.
const BATCH: usize = 16;
/// Maximum number of recordings that are evaluated at once.
const CHUNK: usize = 32;
/// Frames of a batch are a multiple of this, so that few shapes are compiled.
const FRAMES: usize = 16;
/// Channels of the convolutions, and width of the blocks.
const SIZES: [usize; 2] = [8, 64];

struct Listener<'a> {
    data: &'a Speech,
    net: Convolutions,
    order: Order,
    zero_infinity: bool,
    /// True if the last batch contained a recording that is too short.
    met: bool,
}

/// Creates the network of a speech regime before its first step.
///
/// # Errors
/// No recordings.
pub fn open(zero_infinity: bool, data: &Data, seed: u64, steps: u64) -> Result<Begun<'_>, Failure> {
    let Some(data) = &data.recordings else { return Err(Failure::at("--recordings", "none were read")) };
    let mut parameters = Parameters::seeded(seed);
    let net = Convolutions::new(&mut parameters.at("net"), data.frequencies, SIZES, data.letters.len() + 1);
    let learner =
        Box::new(Listener { data, net, order: Order::new(data.train.len(), seed), zero_infinity, met: false });
    let warmup = 50.min(steps / 2);
    let optimizer = Optimizer::from(AdamW::new(2e-3)).clip_norm(5.0).schedule(Schedule::WarmupCosine { warmup, steps });
    Ok(Begun { learner, parameters, optimizer })
}

fn word(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Listener<'_> {
    /// Returns the padded spectra of a batch and the frames of the longest.
    fn spectra(&self, recordings: &[&Spoken]) -> (Vec<f32>, usize) {
        let longest = recordings.iter().map(|one| one.frames).max().unwrap_or(0).next_multiple_of(FRAMES);
        let mut x = Vec::with_capacity(recordings.len() * longest * self.data.frequencies);
        for (i, one) in recordings.iter().enumerate() {
            x.extend_from_slice(&one.spectra);
            x.resize((i + 1) * longest * self.data.frequencies, 0.0);
        }
        (x, longest)
    }
}

impl Learn for Listener<'_> {
    fn backward(&mut self, trainer: &mut Trainer<Cpu>, _: u64, _: &Conditions) -> Result<Gradients, Failed> {
        let data = self.data;
        let drawn = self.order.by_ref().take(BATCH.min(data.train.len()));
        let recordings: Vec<&Spoken> = drawn.map(|sample| &data.train[sample.index]).collect();
        self.met = recordings.iter().any(|one| is_short(one));
        let (n, (x, longest)) = (recordings.len(), self.spectra(&recordings));
        let room = recordings.iter().map(|one| one.text.chars().count()).max().unwrap_or(0);
        let (mut targets, mut letters) = (Vec::new(), Vec::new());
        for (i, one) in recordings.iter().enumerate() {
            // The blank is 0.
            let number = |letter: char| self.data.letters.binary_search(&letter).map_or(u32::MAX, |at| word(at + 1));
            targets.extend(one.text.chars().map(number));
            letters.push(word(targets.len() - i * room));
            targets.resize((i + 1) * room, 0);
        }
        let frames: Vec<u32> = recordings.iter().map(|one| word(Convolutions::steps(one.frames))).collect();
        let batch = [
            Input::f32([n, longest, self.data.frequencies, 1], &x),
            Input::u32([n, room], &targets),
            Input::u32([n], &frames),
            Input::u32([n], &letters),
        ];
        trainer.backward(batch, |[x, targets, frames, letters]| {
            self.net.logits(x).ctc_loss(targets, frames, letters, 0, self.zero_infinity)
        })
    }

    /// Returns the share of wrong letters, in percent, by the most likely letter of each step.
    fn score(&mut self, trainer: &mut Trainer<Cpu>) -> Result<f64, Failed> {
        let mut rate = ErrorRate::default();
        let classes = self.data.letters.len() + 1;
        let mut recordings: Vec<&Spoken> = self.data.test.iter().collect();
        recordings.sort_by_key(|one| one.frames);
        for part in recordings.chunks(CHUNK) {
            let (x, longest) = self.spectra(part);
            let batch = [Input::f32([part.len(), longest, self.data.frequencies, 1], &x)];
            let logits = trainer.evaluate(batch, |[x]| self.net.logits(x))?.data;
            let each = Convolutions::steps(longest) * classes;
            for (one, logits) in part.iter().zip(logits.chunks(each.max(1))) {
                let best = |step: &[f32]| {
                    step.iter().enumerate().fold(0, |best, (i, &x)| if x > step[best] { i } else { best })
                };
                let mut said: Vec<usize> =
                    logits.chunks_exact(classes).take(Convolutions::steps(one.frames)).map(best).collect();
                said.dedup();
                let said: String =
                    said.into_iter().filter_map(|number| self.data.letters.get(number.checked_sub(1)?)).collect();
                rate.add(&one.text, &said);
            }
        }
        Ok(100.0 * rate.share())
    }

    fn is_finite(&self, _: &Conditions) -> bool {
        self.zero_infinity || !self.met
    }
}
