//! Resampling by the crate `rubato`.

use rubato::{Fft, FixedSync, Resampler, audioadapter_buffers::owned::InterleavedOwned};

/// Approximate length of the blocks that are resampled, in samples. The filter's transition band is narrower for longer
/// blocks, but tones that begin suddenly then ring longer: 1024 samples are 64 ms at 16 kHz.
const BLOCK_SAMPLES: usize = 1024;

/// Converts samples to another rate, with the frequencies that both rates have.
///
/// # Errors
/// A rate of 0, in words.
pub fn resample(samples: Vec<f32>, from: u32, to: u32) -> Result<Vec<f32>, String> {
    let [from, to] = [from, to].map(|rate| usize::try_from(rate).unwrap_or(usize::MAX));
    let failed = |error: &dyn std::fmt::Display| format!("cannot be resampled from {from} to {to} Hz: {error}");
    // An even number of samples, because a filter of odd length would delay the sound by half a sample.
    let pair = 2 * from / gcd(from, to).max(1);
    let block = pair.max(1) * BLOCK_SAMPLES.div_ceil(pair.max(1));
    let resampler = Fft::<f32>::new(from, to, block, 1, FixedSync::Both);
    let mut resampler = resampler.map_err(|error| failed(&error))?;
    let count = samples.len();
    let input = InterleavedOwned::new_from(samples, 1, count).map_err(|error| failed(&error))?;
    let output = resampler.process_all(&input, count, None).map_err(|error| failed(&error))?;
    Ok(output.take_data())
}

/// Returns the greatest common divisor.
const fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::resample;

    /// A tone keeps its frequency and size, and one above the new range disappears.
    #[test]
    #[expect(clippy::cast_possible_truncation, reason = "rounded")]
    fn rates_are_converted() {
        let tone = |rate: u32, hertz: f64| -> Vec<f32> {
            let value = |i: u32| (f64::from(i) / f64::from(rate) * hertz * std::f64::consts::TAU).sin() as f32;
            (0..rate).map(value).collect()
        };
        for (from, to) in [(16000, 8000), (8000, 16000), (44100, 8000), (11025, 8000), (8001, 8000)] {
            let changed = resample(tone(from, 700.0), from, to).expect("a rate");
            let right = tone(to, 700.0);
            assert!(changed.len().abs_diff(right.len()) <= 1, "{}", changed.len());
            let inside = 1000..7000;
            let pairs = changed[inside.clone()].iter().zip(&right[inside]);
            let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            println!("{from} to {to}: {worst:e}");
            assert!(worst < 2e-3, "{from} to {to}: {worst:e}");
        }
        let gone = resample(tone(16000, 6000.0), 16000, 8000).expect("a rate");
        assert!(gone[1000..7000].iter().all(|sample| sample.abs() < 1e-3));
        // Shorter than the delay of the filter.
        assert_eq!(resample(vec![0.5; 30], 44100, 8000).expect("a rate").len(), 6);
    }
}
