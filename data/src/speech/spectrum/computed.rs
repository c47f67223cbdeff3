//! Log spectra by the crate `realfft`.

use super::{STRIDE, WINDOW, check_rate};
use realfft::{RealFftPlanner, RealToComplex};
use std::{f64::consts::TAU, fmt, sync::Arc};

/// Spectra of sounds of one rate: ln(1 + |F|) of Hamming windows of 20 ms every 10 ms, normalised to mean 0 and
/// deviation 1 over all numbers of a recording, so that loudness has no influence. PyTorch's `stft` with `center=False`
/// computes the same.
#[derive(Clone)]
pub struct Spectra {
    window: Vec<f32>,
    stride: usize,
    transform: Arc<dyn RealToComplex<f32>>,
}

impl Spectra {
    /// Creates the transform of recordings with a sampling rate in Hz to spectra.
    ///
    /// # Errors
    /// A rate below 1 kHz or above 384 kHz.
    pub fn new(rate: u32) -> Result<Self, String> {
        check_rate(rate)?;
        let [len, stride] = [WINDOW, STRIDE].map(|time| (rate * time / 1000) as usize);
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        let hamming = |i: usize| (0.54 - 0.46 * (TAU * i as f64 / len as f64).cos()) as f32;
        let transform = RealFftPlanner::new().plan_fft_forward(len);
        Ok(Self { window: (0..len).map(hamming).collect(), stride, transform })
    }

    /// Returns the number of frequencies of a spectrum.
    #[must_use]
    pub fn frequencies(&self) -> usize {
        self.window.len() / 2 + 1
    }

    /// Computes the spectra of a recording, `[frames, frequencies]`; a short one is followed by silence.
    #[must_use]
    pub fn compute(&self, samples: &[f32]) -> Vec<f32> {
        let mut all = self.logarithms(samples);
        let count = all.len().max(1) as f64;
        let mean = all.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
        let variance = all.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
        // Silence has no deviation.
        let factor = if variance > 1e-12 { 1.0 / variance.sqrt() } else { 0.0 };
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        all.iter_mut().for_each(|x| *x = ((f64::from(*x) - mean) * factor) as f32);
        all
    }

    /// Returns the log spectra of samples, before normalisation.
    #[must_use]
    pub fn logarithms(&self, samples: &[f32]) -> Vec<f32> {
        let len = self.window.len();
        let frames = samples.len().saturating_sub(len) / self.stride + 1;
        let mut all = Vec::with_capacity(frames * self.frequencies());
        let (mut input, mut output) = (self.transform.make_input_vec(), self.transform.make_output_vec());
        for frame in 0..frames {
            let sound = samples.iter().skip(frame * self.stride).chain(std::iter::repeat(&0.0));
            input.iter_mut().zip(sound).zip(&self.window).for_each(|((x, sample), window)| *x = sample * window);
            // Both are as long as the transform asks.
            if self.transform.process(&mut input, &mut output).is_ok() {
                all.extend(output.iter().map(|x| x.norm().ln_1p()));
            }
        }
        all
    }
}

impl fmt::Debug for Spectra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spectra").field("window", &self.window.len()).field("stride", &self.stride).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Spectra;

    /// Compares with `torch.stft`, by values from `tests/golden/speech.py`.
    #[test]
    fn as_stft_of_pytorch() {
        let table = include_str!("../../../../tests/golden/speech.txt");
        let row = |key: &str| -> Vec<f32> {
            let line = table.lines().find(|line| line.starts_with(&format!("spectrogram\t{key}\t"))).expect("a row");
            let values = line.rsplit('\t').next().expect("values").split(' ');
            values.map(|value| value.parse().expect("a number")).collect()
        };
        let (sound, right, normal) = (row("sound"), row("y"), row("normal"));
        let spectra = Spectra::new(8000).expect("a rate");
        assert_eq!(spectra.frequencies(), 81);
        for (found, right) in [(spectra.logarithms(&sound), right), (spectra.compute(&sound), normal)] {
            assert_eq!(found.len(), right.len());
            let worst = found.iter().zip(&right).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            println!("{worst:e}");
            assert!(worst < 1e-5, "{worst:e}");
        }
    }

    #[test]
    fn short_and_silent_sounds() {
        let spectra = Spectra::new(8000).expect("a rate");
        assert_eq!(spectra.compute(&[0.5]).len(), 81);
        assert_eq!(spectra.compute(&[0.0; 400]), vec![0.0; 4 * 81]);
        assert!(Spectra::new(10).is_err() && Spectra::new(u32::MAX).is_err());
    }
}
