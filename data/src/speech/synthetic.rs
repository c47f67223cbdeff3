//! Synthetic recordings: words as sequences of tones, one for each letter, surrounded by noise.

use super::{Spectra, Spoken, WORDS};
use crate::Random;
use std::f32::consts::TAU;

/// Sampling rate of synthetic recordings, in samples a second.
pub const RATE: u32 = 8000;
/// Number of synthetic recordings of each word for training, and for each set of scores.
const COUNTS: [usize; 2] = [24, 6];
/// Minimum and maximum number of samples of a letter.
const LETTER: [usize; 2] = [320, 560];

/// Generates synthetic training and test recordings; a seed always gives the same numbers.
pub fn recordings(seed: u64, spectra: &Spectra) -> [Vec<Spoken>; 2] {
    let mut letters: Vec<char> = WORDS.concat().chars().collect();
    letters.sort_unstable();
    letters.dedup();
    [0, 1].map(|part| {
        let numbers = (0..COUNTS[part]).flat_map(|i| (0..WORDS.len()).map(move |word| (i, word)));
        let one = |(i, word): (usize, usize)| {
            let mut random = Random::from_key(&[seed, part as u64, i as u64, word as u64]);
            let mut samples = Vec::new();
            // A voice is a little higher or lower.
            let voice = 0.96 + 0.08 * unit(&mut random);
            for letter in WORDS[word].chars() {
                let number = letters.iter().position(|&known| known == letter).unwrap_or(0);
                let tone = voice * (300.0 + 220.0 * number as f32);
                let len = LETTER[0] + random.below(LETTER[1] - LETTER[0]);
                let begin = unit(&mut random);
                for k in 0..len {
                    // Each letter swells and fades, so that equal neighbours can be separated.
                    let swell = (std::f32::consts::PI * k as f32 / len as f32).sin();
                    let noise = 0.1 * (unit(&mut random) - 0.5);
                    samples.push(0.4 * swell * (TAU * (begin + tone * k as f32 / RATE as f32)).sin() + noise);
                }
            }
            Spoken::new(format!("{}-{i}", WORDS[word]), WORDS[word].to_owned(), spectra, &samples)
        };
        numbers.map(one).collect()
    })
}

/// Draws a number from 0 to 1.
fn unit(random: &mut Random) -> f32 {
    random.below(1 << 16) as f32 / 65536.0
}
