//! WAV files.

use super::{resampling::resample, spectrum::check_rate};
use crate::{Cause, DataError, store::read};
use hound::{SampleFormat, WavReader};
use std::{io::Cursor, path::Path};

/// Length of a RIFF header and of a chunk header in bytes.
const RIFF_HEADER: usize = 12;
const CHUNK_HEADER: usize = 8;
/// Declared lengths from here on are those of programs that did not know the length when they wrote the header. No WAV
/// file is as long, because RIFF counts in 32 bits.
const UNKNOWN_LENGTH: u32 = 0xffff_ff00;
/// First bytes of other formats of sounds, with their names.
const OTHER_FORMATS: [(&[u8], &str); 7] = [
    (b"fLaC", "FLAC"),
    (b"OggS", "Ogg"),
    (b"ID3", "MP3"),
    (b"\xff\xfb", "MP3"),
    (b"FORM", "AIFF"),
    (b"RF64", "RF64"),
    (b"RIFX", "RIFX"),
];

/// Samples of a WAV file, one channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Sound {
    /// Sampling rate of the recording in samples per second.
    pub rate: u32,
    /// Values of the samples, from −1 to 1.
    pub samples: Vec<f32>,
    /// Number of channels in the file, whose mean the samples are.
    pub channels: u16,
}

impl Sound {
    /// Reads a WAV file of 8 to 32 bits or f32. Several channels are mixed down to their mean.
    ///
    /// # Errors
    /// A file that is no such sound, or is truncated.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        Self::decode(&read(path)?).map_err(|cause| cause.at(path))
    }

    fn decode(bytes: &[u8]) -> Result<Self, Cause> {
        let mut file = WavReader::new(Cursor::new(essential_chunks(bytes)?)).map_err(cause)?;
        let spec = file.spec();
        let samples: Result<Vec<f32>, hound::Error> = match spec.sample_format {
            SampleFormat::Float => file.samples::<f32>().collect(),
            SampleFormat::Int => {
                // 1 is just beyond the largest sample.
                let most = 2f32.powi(i32::from(spec.bits_per_sample) - 1);
                file.samples::<i32>().map(|sample| sample.map(|sample| sample as f32 / most)).collect()
            }
        };
        let samples = samples.map_err(cause)?;
        if samples.iter().any(|sample| !sample.is_finite()) {
            return Err(Cause::Sound("some samples are NaN or infinite".to_owned()));
        }
        let channels = spec.channels.max(1);
        let mean = |frame: &[f32]| frame.iter().sum::<f32>() / f32::from(channels);
        let samples: Vec<f32> = match channels {
            1 => samples,
            _ => samples.chunks_exact(usize::from(channels)).map(mean).collect(),
        };
        if samples.is_empty() {
            return Err(Cause::Sound("no samples".to_owned()));
        }
        Ok(Self { rate: spec.sample_rate, samples, channels })
    }

    /// Returns the length of the recording in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.rate.max(1))
    }

    /// Resamples to another rate, with the frequencies that both rates have.
    ///
    /// # Errors
    /// A rate that no recording may have, as in [`Spectra::new`](super::Spectra::new), or a build without `speech`.
    pub fn resampled(self, rate: u32) -> Result<Self, String> {
        if rate == self.rate {
            return Ok(self);
        }
        check_rate(self.rate)?;
        check_rate(rate)?;
        let samples = resample(self.samples, self.rate, rate)?;
        Ok(Self { rate, samples, channels: self.channels })
    }
}

/// Returns a file of the format and the samples alone, which hound reads. It does not skip the padding byte after a
/// chunk of odd length, and refuses lengths that streaming programs leave unknown.
///
/// # Errors
/// Another format, or fewer samples than the header declares.
fn essential_chunks(file: &[u8]) -> Result<Vec<u8>, Cause> {
    if !(file.starts_with(b"RIFF") && file.get(8..RIFF_HEADER) == Some(b"WAVE")) {
        let other = OTHER_FORMATS.iter().find(|(magic, _)| file.starts_with(magic));
        let found = other.map_or_else(String::new, |(_, name)| format!(" but {name}; convert it to WAV"));
        return Err(Cause::Sound(format!("not a WAV file{found}")));
    }
    let (mut format, mut at) = (None, RIFF_HEADER);
    while let Some(header) = file.get(at..at + CHUNK_HEADER) {
        let declared = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let start = at + CHUNK_HEADER;
        let left = file.len() - start;
        let length = usize::try_from(declared).unwrap_or(usize::MAX);
        match (&header[..4], format) {
            (b"data", Some(format)) => {
                let streamed = declared >= UNKNOWN_LENGTH;
                if length > left && !streamed {
                    return Err(Cause::Truncated { expected: length, found: left });
                }
                return Ok(minimal_file(format, &file[start..start + length.min(left)]));
            }
            (b"fmt ", _) => format = file.get(start..start.saturating_add(length)),
            _ => {}
        }
        // Some programs leave out the padding byte. It is zero, and the name of a chunk is not.
        let end = start.saturating_add(length);
        at = end.saturating_add(usize::from(length % 2 == 1 && file.get(end) == Some(&0)));
    }
    Err(Cause::Sound("truncated: no samples; the WAV file ends before them".to_owned()))
}

/// Builds a WAV file of two chunks.
fn minimal_file(format: &[u8], samples: &[u8]) -> Vec<u8> {
    // The program reads no files above 4 GB: RIFF counts in 32 bits.
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
    let all = 4 + 2 * CHUNK_HEADER + format.len() + samples.len();
    let mut file = Vec::with_capacity(CHUNK_HEADER + all);
    for part in [
        b"RIFF",
        &length(all)[..],
        b"WAVE",
        b"fmt ",
        &length(format.len())[..],
        format,
        b"data",
        &length(samples.len())[..],
        samples,
    ] {
        file.extend_from_slice(part);
    }
    file
}

fn cause(error: hound::Error) -> Cause {
    match error {
        // The file is truncated; errors of the operating system have a code.
        hound::Error::IoError(error) if error.raw_os_error().is_none() => Cause::Sound(format!("truncated: {error}")),
        hound::Error::IoError(error) => Cause::Io(error),
        other => Cause::Sound(format!("not a readable WAV file: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::Sound;

    /// Returns a WAV file of 16 bits with a chunk before the samples.
    fn file(channels: u16, rate: u32, chunk: &[u8], samples: &[i16]) -> Vec<u8> {
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let format = [&1u16.to_le_bytes()[..], &channels.to_le_bytes(), &rate.to_le_bytes()].concat();
        let width = 2 * channels;
        let format = [&format[..], &(rate * u32::from(width)).to_le_bytes(), &width.to_le_bytes(), &[16, 0]].concat();
        let mut file = super::minimal_file(&format, &bytes);
        file.splice(36..36, chunk.iter().copied());
        file
    }

    fn samples(file: &[u8]) -> Vec<f32> {
        Sound::decode(file).expect("a sound").samples
    }

    /// Chunks of odd length with and without their padding byte, channels, and lengths that are unknown or wrong.
    #[test]
    fn files_as_programs_write_them() {
        let two = [16384, -8192];
        let right = [0.5, -0.25];
        for chunk in [&b""[..], b"LIST\x03\0\0\0abc\0", b"LIST\x03\0\0\0abc", b"LIST\x04\0\0\0abcd", b"junk\0\0\0\0"] {
            assert_eq!(samples(&file(1, 8000, chunk, &two)), right, "{chunk:?}");
        }
        assert_eq!(samples(&file(2, 8000, b"", &[16384, 16384, 0, -16384])), right);
        let mut streamed = file(1, 8000, b"", &two);
        streamed[40..44].copy_from_slice(&[0xff; 4]);
        assert_eq!(samples(&streamed), right);
        // An odd number of bytes of 8 bits, and text behind the samples.
        let behind = [file(1, 8000, b"", &two), b"LIST\x03\0\0\0abc\0".to_vec()].concat();
        assert_eq!(samples(&behind), right);
        let whole = file(1, 8000, b"", &two);
        for (bytes, reason) in [
            (&whole[..46], "truncated: 2 bytes of the 4 that its header declares"),
            (&whole[..30], "truncated: no samples"),
            (b"fLaC and more", "not a WAV file but FLAC; convert it to WAV"),
            (b"", "not a WAV file"),
        ] {
            let cause = Sound::decode(bytes).expect_err("a refusal").to_string();
            assert!(cause.starts_with(reason), "{cause}");
        }
    }
}
