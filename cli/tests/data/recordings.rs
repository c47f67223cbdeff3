//! Recordings and transcripts as people have them.

use crate::refused;
use gradscale_cli::data::{DataError, DataOptions, Speech};
use hound::{SampleFormat, WavSpec, WavWriter};
use std::{fs, path::Path};
use tempfile::TempDir;

#[expect(clippy::cast_possible_truncation, reason = "a sample is at most 9000")]
fn wav(path: &Path, rate: u32, channels: u16) {
    let spec = WavSpec { channels, sample_rate: rate, bits_per_sample: 16, sample_format: SampleFormat::Int };
    let mut file = WavWriter::create(path, spec).expect("a file");
    for i in 0..rate * u32::from(channels) / 2 {
        let time = f64::from(i / u32::from(channels)) / f64::from(rate);
        let sample = (9000.0 * (time * 440.0 * std::f64::consts::TAU).sin()) as i16;
        file.write_sample(sample).expect("room");
    }
    file.finalize().expect("a file");
}

/// Ten recordings of half a second and their transcripts.
fn recordings(transcripts: &[u8]) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("recordings")).expect("a directory");
    (0..10).for_each(|i| wav(&dir.path().join(format!("recordings/{i}_a.wav")), 8000, 1));
    fs::write(dir.path().join("transcripts.tsv"), transcripts).expect("a file");
    dir
}

fn table(row: impl Fn(usize) -> String) -> String {
    (0..10).map(row).collect()
}

fn load(dir: &TempDir) -> Result<Speech, DataError> {
    Speech::load(dir.path(), &DataOptions::default())
}

#[test]
fn transcripts_in_any_spelling_are_the_same() {
    let plain = table(|i| format!("{i}_a.wav\tword {i}\n"));
    let right = load(&recordings(plain.as_bytes())).expect("data").train;
    assert_eq!((right.len(), right[0].text.as_str()), (8, "word 0"));
    let utf_16 = |high_first: bool| -> Vec<u8> {
        let units = std::iter::once('\u{feff}').chain(plain.chars()).map(|c| c as u16);
        units.flat_map(|unit| if high_first { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
    };
    for transcripts in [
        format!("\u{feff}{plain}").into_bytes(),
        plain.replace('\n', "\r\n").into_bytes(),
        utf_16(false),
        utf_16(true),
        table(|i| format!("{i}_a\tword {i}\n")).into_bytes(),
        table(|i| format!("recordings/{i}_a.wav\tword {i}\n")).into_bytes(),
        table(|i| format!("C:\\sounds\\{i}_a.WAV\tword {i}\t\n")).into_bytes(),
        format!("file\ttext\n{plain}{plain}").into_bytes(),
    ] {
        let said = String::from_utf8_lossy(&transcripts).into_owned();
        assert_eq!(load(&recordings(&transcripts)).expect(&said).train, right, "{said}");
    }
    let latin: Vec<u8> = plain.bytes().map(|byte| if byte == b'o' { 0xf6 } else { byte }).collect();
    let unmarked: Vec<u8> = plain.bytes().flat_map(|byte| [byte, 0]).collect();
    for (transcripts, cause) in [
        (table(|i| format!("{i}_a.wav\tword {i}\tspeaker\n")).into_bytes(), "line 1: 3 columns; keep two"),
        (format!("{plain}3_a\tother\n").into_bytes(), "line 11: 3_a is “other” here and “word 3” in another line"),
        (latin, "line 1: not UTF-8 (byte 0xf6); if the file is in Latin-1"),
        (unmarked, "looks like UTF-16 without a byte order mark"),
    ] {
        refused(load(&recordings(&transcripts)), "transcripts.tsv", cause);
    }
}

#[test]
fn recordings_of_other_rates_and_channels_are_converted() {
    let plain = table(|i| format!("{i}_a.wav\tword\n"));
    let dir = recordings(plain.as_bytes());
    let right = load(&dir).expect("data");
    wav(&dir.path().join("recordings/1_a.wav"), 8000, 2);
    wav(&dir.path().join("recordings/2_a.wav"), 44100, 2);
    wav(&dir.path().join("recordings/3_a.wav"), 4000, 1);
    // A chunk of odd length before the samples, with its padding byte.
    let path = dir.path().join("recordings/5_a.wav");
    let mut bytes = fs::read(&path).expect("a file");
    bytes.splice(36..36, *b"LIST\x03\0\0\0abc\0");
    fs::write(&path, bytes).expect("a file");
    let data = load(&dir).expect("data");
    assert_eq!((data.rate, data.train.len()), (8000, right.train.len()));
    assert_eq!((&data.train[1], &data.train[4]), (&right.train[1], &right.train[4]), "two channels, a chunk");
    for (one, other) in data.train.iter().zip(&right.train).take(4) {
        assert!(one.frames.abs_diff(other.frames) <= 1, "{} frames, {}", one.frames, other.frames);
        // The loudest frequency of a spectrum in the middle.
        let loudest = |spectra: &[f32]| {
            let middle = &spectra[20 * data.frequencies..21 * data.frequencies];
            (0..middle.len()).max_by(|a, b| middle[*a].total_cmp(&middle[*b]))
        };
        assert_eq!(loudest(&one.spectra), loudest(&other.spectra), "{}", one.name);
    }
    let notes = data.notes.taken.join("\n");
    assert!(notes.contains("2 recordings of several channels are mixed down to one"), "{notes}");
    assert!(notes.contains("2 recordings of other rates are resampled to 8000 Hz"), "{notes}");
    wav(&dir.path().join("recordings/2_a.wav"), 8000, 1);
    let notes = load(&dir).expect("data").notes.taken.join("\n");
    assert!(
        notes.contains("\n1 recording of several channels is mixed down to one\n1 recording of another"),
        "{notes}"
    );
    // A header with any rate must not ask for the memory of a filter between this and the rate of the others.
    let path = dir.path().join("recordings/6_a.wav");
    let mut bytes = fs::read(&path).expect("a file");
    // The rate, and the bytes of a second.
    bytes[24..28].copy_from_slice(&1_000_000_007u32.to_le_bytes());
    bytes[28..32].copy_from_slice(&2_000_000_014u32.to_le_bytes());
    fs::write(&path, bytes).expect("a file");
    refused(load(&dir), "6_a.wav", "sampled at 1000000007 Hz; choose a rate from 1000 to 384000 Hz");
}

#[test]
fn lists_name_recordings_with_and_without_ending_but_only_once() {
    let dir = recordings(table(|i| format!("{i}_a.wav\tword\n")).as_bytes());
    let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("a file");
    put("train.txt", "\u{feff}0_a\n1_a.wav\nrecordings/2_a.wav\n");
    put("test.txt", "3_a\n");
    let data = load(&dir).expect("data");
    assert_eq!((data.train.len(), data.test.len()), (3, 1));
    put("test.txt", "3_a\n1_a\n");
    refused(load(&dir), "test.txt", "1_a.wav is in train.txt, too; keep it in one list");
}
