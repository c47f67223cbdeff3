//! Speech recognition: training, comparison, resume, prediction, and errors in data.

#![allow(clippy::cast_possible_truncation, reason = "test data is small and known")]

mod checkpoint;
mod command;

use command::{done, gradscale, last, refused, saved, table};
use hound::{SampleFormat, WavSpec, WavWriter};
use std::{fs, path::Path};

fn wav(path: &Path, rate: u32, channels: u16, samples: &[i16]) {
    let spec = WavSpec { channels, sample_rate: rate, bits_per_sample: 16, sample_format: SampleFormat::Int };
    let mut file = WavWriter::create(path, spec).expect("a file");
    samples.iter().for_each(|&sample| file.write_sample(sample).expect("room"));
    file.finalize().expect("a file");
}

/// A word of tones, one for each letter.
fn word(text: &str, voice: u32) -> Vec<i16> {
    let tone = |letter: char| 200.0 + 150.0 * f64::from(u32::from(letter) % 16) + f64::from(voice);
    let sample = |letter: char, i: u32| {
        let swell = (f64::from(i) / 500.0 * std::f64::consts::PI).sin();
        (12000.0 * swell * (f64::from(i) / 8000.0 * tone(letter) * std::f64::consts::TAU).sin()) as i16
    };
    text.chars().flat_map(|letter| (0..500).map(move |i| sample(letter, i))).collect()
}

/// Ten recordings of each of two words.
fn recordings(directory: &Path) {
    fs::create_dir_all(directory.join("recordings")).expect("a directory");
    for voice in 0..10 {
        for (digit, text) in [(1, "one"), (2, "two")] {
            let path = directory.join(format!("recordings/{digit}_voice_{voice}.wav"));
            wav(&path, 8000, 1, &word(text, voice));
        }
    }
}

#[test]
fn it_learns_words_that_are_made_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let settings = ["train", "--task", "speech", "--width", "8", "--optimizer", "adamw", "--lr", "0.01"];
    done(at, &[&settings[..], &["--iters", "60", "--out", "run"]].concat());
    let scores = &last(&at.join("run"))["scores"];
    let errors = ["cer_greedy", "cer"].map(|key| scores[key].as_f64().expect("a rate"));
    println!("{errors:?}");
    assert!(errors[1] < 0.3 && errors[1] <= errors[0] + 0.05, "{errors:?}");
    let report = fs::read_to_string(at.join("run/report.html")).expect("a report");
    assert!(report.contains("Test recordings, their transcripts") && report.contains("<td>seven</td>"));
    assert!(!report.contains("mIoU") && !report.contains("<script"));
}

#[test]
fn resumed_it_is_the_same_training_and_hears_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    recordings(&at.join("data"));
    let settings = ["train", "--task", "speech", "--data", "data", "--width", "4", "--batch", "4"];
    // Past the first epoch, whose order is by length.
    done(at, &[&settings[..], &["--iters", "7", "--checkpoint-every", "3", "--out", "whole"]].concat());
    done(at, &[&settings[..], &["--iters", "4", "--checkpoint-every", "3", "--out", "broken"]].concat());
    done(at, &["train", "--resume", "broken", "--iters", "7"]);
    let read = |name: &str| checkpoint::content(&saved(&at.join(name), 7));
    assert!(read("whole") == read("broken"), "a resumed training differs from the unbroken one");
    let out = done(at, &["predict", "whole/checkpoint-000007.safetensors", "data/recordings", "--out", "heard"]);
    assert_eq!(out.lines().count(), 20, "{out}");
    let table = fs::read_to_string(at.join("heard/transcripts.tsv")).expect("a table");
    assert_eq!(table.lines().filter(|line| line.split('\t').count() == 3).count(), 21, "{table}");
    wav(&at.join("fast.wav"), 16000, 1, &word("one", 0));
    let (code, out, error) = gradscale(at, &["predict", "whole/checkpoint-000007.safetensors", "fast.wav"]);
    assert!(code == Some(0) && out.starts_with("fast.wav: "), "{error}");
    assert_eq!(error, "gradscale: fast.wav: resampled from 16000 to 8000 Hz, the rate of the training\n");
    let error = refused(at, &["predict", "whole/checkpoint-000007.safetensors", "--prompt", "one"]);
    assert_eq!(error, "gradscale: --prompt: is for networks of --task language; name a file for other networks");
}

#[test]
fn comparing_shows_character_errors() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    recordings(&at.join("data"));
    let arguments = ["compare", "--task", "speech", "--data", "data", "--width", "4", "--batch", "4", "--iters", "4"];
    done(at, &[&arguments[..], &["--methods", "fp32,gs", "--out", "results"]].concat());
    let out = table(at, "results");
    assert!(out.contains("| method | character errors % |") && !out.contains("class accuracy"), "{out}");
    let results = fs::read_to_string(at.join("results/results.json")).expect("results");
    let results: serde_json::Value = serde_json::from_str(&results).expect("JSON");
    for run in results["runs"].as_array().expect("runs") {
        assert!(run["metrics"]["cer"].is_f64(), "{}", run["metrics"]);
        let site = |site: &serde_json::Value| site["name"] == "ctc_loss/cast";
        assert_eq!(run["sites"].as_array().expect("sites").iter().any(site), run["method"] == "gs");
    }
    let plan = done(at, &["plan", "--task", "speech", "--width", "4"]);
    assert!(plan.contains("ctc_loss") && plan.contains("deepspeech.conv2"), "{plan}");
}

#[test]
fn what_cannot_be_used_says_why_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let train =
        |data: &str| refused(at, &["train", "--task", "speech", "--data", data, "--iters", "1", "--batch", "2"]);
    let fresh = |name: &str| {
        recordings(&at.join(name));
        at.join(name)
    };
    fs::create_dir(at.join("empty")).expect("a directory");
    assert!(train("empty").contains("empty: not a data set: expected recordings/*.wav"));
    let one = |name: &str| at.join(name).join("recordings/1_voice_0.wav");
    // Nothing, a moment, half a file, no file of this kind, another name.
    fresh("silent");
    wav(&one("silent"), 8000, 1, &[]);
    assert!(train("silent").ends_with("1_voice_0.wav: no samples"));
    fresh("short");
    wav(&one("short"), 8000, 1, &[5; 200]);
    assert!(train("short").ends_with("1_voice_0.wav: too short for “one”: 0.025 s, at least 0.060 s needed"));
    fresh("cut");
    let bytes = fs::read(one("cut")).expect("a file");
    fs::write(one("cut"), &bytes[..bytes.len() / 2]).expect("a file");
    let error = train("cut");
    assert!(error.contains("1_voice_0.wav: truncated: "), "{error}");
    fs::write(one("cut"), b"RIFF and nothing else").expect("a file");
    let error = train("cut");
    assert!(error.contains("1_voice_0.wav: ") && error.contains("WAV"), "{error}");
    // On request such recordings are skipped.
    let arguments = ["train", "--task", "speech", "--data", "cut", "--iters", "1", "--batch", "2", "--skip-broken"];
    let (code, _, error) = gradscale(at, &[&arguments[..], &["--width", "2", "--out", "skipped"]].concat());
    assert!(code == Some(0) && error.contains("left out: ") && error.contains("1_voice_0.wav"), "{error}");
    fs::rename(one("cut"), at.join("cut/recordings/first.wav")).expect("a file");
    let error = train("cut");
    assert!(
        error.contains("first.wav: no transcript: name the file DIGIT_….wav or list it in transcripts.tsv"),
        "{error}"
    );
    // Lists and texts.
    fresh("lists");
    fs::write(at.join("lists/train.txt"), "1_voice_0.wav\n1_voice_77.wav\n").expect("a file");
    fs::write(at.join("lists/test.txt"), "2_voice_0.wav\n").expect("a file");
    let error = train("lists");
    assert!(error.contains("train.txt: line 2: ") && error.ends_with("1_voice_77.wav is missing"), "{error}");
    fs::write(at.join("lists/train.txt"), "1_voice_0.wav\n\n1_voice_1.wav\n").expect("a file");
    fs::write(at.join("lists/test.txt"), "\n").expect("a file");
    assert!(train("lists").ends_with("lists: no recordings for test"));
    fs::write(at.join("lists/test.txt"), "2_voice_0.wav\n").expect("a file");
    fs::write(at.join("lists/transcripts.tsv"), "1_voice_0.wav\tone\n1_voice_1.wav one\n").expect("a file");
    let error = train("lists");
    assert!(error.ends_with("transcripts.tsv: line 2: no tab between file name and transcript"), "{error}");
    fs::write(at.join("lists/transcripts.tsv"), b"1_voice_0.wav\t\xff\n").expect("a file");
    assert!(train("lists").contains("transcripts.tsv: line 1: not UTF-8 (byte 0xff)"));
    fs::write(at.join("lists/transcripts.tsv"), "1_voice_0.wav\tone\n").expect("a file");
    let error = train("lists");
    assert!(
        error.contains("1_voice_1.wav: ") && error.ends_with("transcripts.tsv has no transcript for this recording"),
        "{error}"
    );
    let error = refused(at, &["train", "--task", "speech", "--data", "lists", "--size", "3x4"]);
    assert!(error.contains("--size HxW: does not apply to recordings"), "{error}");
}
