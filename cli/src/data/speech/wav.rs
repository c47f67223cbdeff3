//! WAV files.

use crate::data::{Cause, DataError};
use hound::{SampleFormat, WavReader};
use std::path::Path;

/// Samples of a WAV file, one channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Sound {
    /// Sampling rate of the recording in samples per second.
    pub rate: u32,
    /// Values of the samples, from −1 to 1.
    pub samples: Vec<f32>,
}

impl Sound {
    /// Reads a WAV file of one channel, of 8 to 32 bits or f32.
    ///
    /// # Errors
    /// A file that is no such sound, or is cut off.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let mut file = WavReader::open(path).map_err(|error| cause(error).at(path))?;
        let spec = file.spec();
        if spec.channels != 1 {
            return Err(Cause::Sound(format!("{} channels; mix them down to one", spec.channels)).at(path));
        }
        let samples: Result<Vec<f32>, hound::Error> = match spec.sample_format {
            SampleFormat::Float => file.samples::<f32>().collect(),
            SampleFormat::Int => {
                // 1 is just beyond the largest sample.
                let most = 2f32.powi(i32::from(spec.bits_per_sample) - 1);
                file.samples::<i32>().map(|sample| sample.map(|sample| sample as f32 / most)).collect()
            }
        };
        let samples = samples.map_err(|error| cause(error).at(path))?;
        if samples.iter().any(|sample| !sample.is_finite()) {
            return Err(Cause::Sound("some samples are NaN or infinite".to_owned()).at(path));
        }
        if samples.is_empty() {
            return Err(Cause::Sound("no samples".to_owned()).at(path));
        }
        Ok(Self { rate: spec.sample_rate, samples })
    }
}

fn cause(error: hound::Error) -> Cause {
    match error {
        // The file is truncated; errors of the operating system have a code.
        hound::Error::IoError(error) if error.raw_os_error().is_none() => Cause::Sound(format!("truncated: {error}")),
        hound::Error::IoError(error) => Cause::Io(error),
        other => Cause::Sound(format!("not a readable WAV file: {other}")),
    }
}
