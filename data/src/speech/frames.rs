//! Generated feature frames: spoken words as 40 bands in frames of 10 ms, without sounds and without a spectrum.
//!
//! Numbers of recordings and durations are those of the spoken digits in the study of short recordings (docs/natural.md).

use super::{Spoken, WORDS};
use crate::Random;

/// Number of bands of a frame.
pub const BANDS: usize = 40;
/// Sampling rate of the recordings that such frames would be of, in samples a second.
pub const RATE: u32 = 8000;
/// Number of recordings of each word for training and for the test.
const COUNTS: [usize; 2] = [180, 20];
/// Shares of the spoken digits of a word that have at most the frames of [`FRAMES`].
const SHARES: [f64; 9] = [0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0];
/// Frames of each word: quantiles of 200 recordings by four speakers (Free Spoken Digit Dataset). With every fourth frame
/// kept, 11 of the 200 recordings of "three" have fewer steps than CTC needs for its letters.
const FRAMES: [[u16; 9]; 10] = [
    [26, 31, 35, 45, 54, 61, 72, 91, 115],
    [16, 23, 25, 32, 42, 50, 66, 88, 99],
    [17, 18, 22, 32, 38, 48, 57, 96, 120],
    [17, 18, 20, 31, 43, 50, 67, 91, 130],
    [21, 25, 28, 35, 41, 49, 58, 73, 110],
    [29, 30, 33, 36, 41, 53, 66, 86, 113],
    [13, 15, 18, 33, 48, 60, 81, 86, 96],
    [23, 25, 29, 39, 45, 52, 66, 115, 128],
    [21, 22, 28, 37, 41, 47, 57, 91, 113],
    [27, 33, 35, 42, 48, 57, 64, 86, 120],
];
/// Largest value of a band of a letter.
const LOUDNESS: i32 = 1600;
/// Largest value of each of four uniform noises of a band. It was chosen by f32 alone: of 1000, 1400, 1600, 1700, 1800 and
/// 2200, with which f32 has 0.2, 1.2, 2.2, 2.1, 2.9 and 5.6 % of the letters wrong after 800 steps (seed 0), as a middle
/// one with the 2.1 % that it has for spoken digits in the study.
const NOISE: i32 = 1700;
/// Value of a band is a whole number of these parts of 1, so that all machines compute the same.
const PARTS: f32 = 1024.0;

/// Generates training and test recordings; a seed always gives the same numbers.
pub fn recordings(seed: u64) -> [Vec<Spoken>; 2] {
    [0, 1].map(|part| {
        let numbers = (0..COUNTS[part]).flat_map(|i| (0..WORDS.len()).map(move |word| (i, word)));
        let one = |(i, word): (usize, usize)| {
            let mut random = Random::from_key(&[seed, 20 + part as u64, i as u64, word as u64]);
            let frames = duration(&FRAMES[word], random.uniform());
            // A voice is a little higher or lower, and letters differ in length by up to a half of the mean.
            let shift = random.below(5);
            let letters: Vec<(char, f64)> =
                WORDS[word].chars().map(|letter| (letter, 0.5 + random.uniform())).collect();
            let total: f64 = letters.iter().map(|(_, length)| length).sum();
            let (mut spectra, mut end) = (Vec::with_capacity(frames * BANDS), 0.0);
            for (letter, length) in letters {
                end += frames as f64 * length / total;
                let bands: Vec<i32> = (0..BANDS).map(|band| value(seed, letter, band + shift)).collect();
                // The last end is the number of frames but for rounding errors.
                while ((spectra.len() / BANDS) as f64) + 0.5 < end {
                    let noisy = |value: &i32| {
                        let noise: i32 = [(); 4].map(|()| random.between(-NOISE, NOISE)).iter().sum();
                        (value + noise) as f32 / PARTS
                    };
                    spectra.extend(bands.iter().map(noisy));
                }
            }
            Spoken { name: format!("{}-{i}", WORDS[word]), text: WORDS[word].to_owned(), frames, spectra }
        };
        numbers.map(one).collect()
    })
}

/// Returns the frames of a word below which a share of its recordings is.
fn duration(quantiles: &[u16; 9], share: f64) -> usize {
    let at = SHARES.partition_point(|known| *known <= share).clamp(1, SHARES.len() - 1);
    let [least, most] = [at - 1, at].map(|at| f64::from(quantiles[at]));
    let part = (share - SHARES[at - 1]) / (SHARES[at] - SHARES[at - 1]);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two u16")]
    let frames = (least + (most - least) * part).round() as usize;
    frames
}

/// Returns the value of a band of a letter: neighbouring bands are alike, as in a spectrum.
fn value(seed: u64, letter: char, band: usize) -> i32 {
    let at = |third: usize| {
        let key = [seed, 30, u64::from(u32::from(letter)), third as u64];
        Random::from_key(&key).between(-LOUDNESS, LOUDNESS)
    };
    let (third, inside) = (band / 3, i32::try_from(band % 3).unwrap_or(0));
    (at(third) * (3 - inside) + at(third + 1) * inside) / 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradscale::gradscale_core::ops::Ctc;

    /// Compares the share of short recordings with that of the spoken digits, 11 of 2000, and pins all numbers.
    #[test]
    fn some_recordings_are_too_short() {
        let [train, test] = recordings(0);
        assert_eq!([&train, &test].map(Vec::len), COUNTS.map(|count| 10 * count));
        let is_short = |one: &&Spoken| {
            let letters: Vec<u32> = one.text.chars().map(u32::from).collect();
            // The network keeps every fourth frame.
            one.frames.div_ceil(4) < Ctc::least_frames(&letters)
        };
        let short: Vec<&Spoken> = train.iter().filter(is_short).collect();
        assert!((3..30).contains(&short.len()) && short.iter().all(|one| one.text == "three"), "{}", short.len());
        let mut crc = flate2::Crc::new();
        for one in train.iter().chain(&test) {
            assert_eq!(one.spectra.len(), one.frames * BANDS, "{}", one.name);
            one.spectra.iter().for_each(|value| crc.update(&value.to_le_bytes()));
        }
        assert_eq!(format!("{:08x}", crc.sum()), "d2c76a12");
        assert_ne!(recordings(1)[0][0], train[0]);
        let ends = FRAMES.map(|quantiles| [duration(&quantiles, 0.0), duration(&quantiles, 1.0)]);
        assert_eq!(ends, FRAMES.map(|quantiles| [quantiles[0], quantiles[8]].map(usize::from)));
    }
}
