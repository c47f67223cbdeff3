//! Translation: training, comparison, resume, prediction, and errors in data.

mod checkpoint;
mod command;

use command::{done, gradscale, last, refused, saved, table};
use flate2::{Compression, write::GzEncoder};
use std::{fmt::Write as _, fs, io::Write as _, path::Path};

const WORDS: [[&str; 2]; 6] =
    [["red", "rot"], ["dog", "Hund"], ["house", "Haus"], ["and", "und"], ["two", "zwei"], ["runs", "läuft"]];

/// Returns sentences of two to five words, whose order is reversed in the other language.
fn sentences(count: usize) -> [String; 2] {
    let mut texts = [String::new(), String::new()];
    for i in 0..count {
        let words: Vec<[&str; 2]> = (0..2 + i % 4).map(|k| WORDS[(i * 5 + k * (1 + i / 6)) % 6]).collect();
        let one: Vec<&str> = words.iter().map(|word| word[0]).collect();
        let other: Vec<&str> = words.iter().rev().map(|word| word[1]).collect();
        writeln!(texts[0], "{}.", one.join(" ")).expect("text");
        writeln!(texts[1], "{}.", other.join(" ")).expect("text");
    }
    texts
}

fn gzip(text: &str) -> Vec<u8> {
    let mut file = GzEncoder::new(Vec::new(), Compression::fast());
    file.write_all(text.as_bytes()).expect("memory");
    file.finish().expect("memory")
}

/// Training and test sentences; one of the files is gzip'ed.
fn parallel(directory: &Path) {
    fs::create_dir_all(directory).expect("a directory");
    for (part, count) in [("train", 60), ("val", 12), ("test_2016", 10)] {
        let [one, other] = sentences(count);
        fs::write(directory.join(format!("{part}.en")), one).expect("a file");
        fs::write(directory.join(format!("{part}.de.gz")), gzip(&other)).expect("a file");
    }
}

#[test]
fn it_learns_numbers_that_are_made_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let settings = ["train", "--task", "translate", "--width", "6", "--optimizer", "adamw", "--lr", "0.02"];
    done(at, &[&settings[..], &["--iters", "150", "--batch", "16", "--out", "run"]].concat());
    let scores = &last(&at.join("run"))["scores"];
    let bleu = ["bleu_greedy", "bleu"].map(|key| scores[key].as_f64().expect("a score"));
    let perplexity = scores["piece_perplexity"].as_f64().expect("a number");
    println!("BLEU {bleu:?}, perplexity {perplexity}");
    // The vocabulary has 190 pieces.
    assert!(perplexity < 15.0 && bleu[1].is_finite() && bleu[0].is_finite(), "{bleu:?}, {perplexity}");
    let report = fs::read_to_string(at.join("run/report.html")).expect("a report");
    assert!(report.contains("Test sentences, human translations") && report.contains("BLEU"));
    assert!(!report.contains("mIoU") && !report.contains("<script"));
}

#[test]
fn resumed_it_is_the_same_training_and_translates_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    parallel(&at.join("data"));
    let settings = ["train", "--task", "translate", "--data", "data", "--width", "1", "--batch", "4"];
    let settings = [&settings[..], &["--pieces", "80", "--network", "seq2seq-3", "--method", "gs"]].concat();
    // Past the first pool of batches.
    done(at, &[&settings[..], &["--iters", "20", "--checkpoint-every", "9", "--out", "whole"]].concat());
    done(at, &[&settings[..], &["--iters", "11", "--checkpoint-every", "9", "--out", "broken"]].concat());
    done(at, &["train", "--resume", "broken", "--iters", "20"]);
    let read = |name: &str| checkpoint::content(&saved(&at.join(name), 20));
    assert!(read("whole") == read("broken"), "a resumed training differs from the unbroken one");
    // The checkpoint contains the pieces into which words are split.
    fs::remove_dir_all(at.join("data")).expect("a directory");
    fs::write(at.join("lines.txt"), "red dog runs.\r\n\r\nunknown  wörds\tand two\r\n").expect("a file");
    done(at, &["predict", "whole/checkpoint-000020.safetensors", "lines.txt", "--out", "said"]);
    let table = fs::read_to_string(at.join("said/translations.tsv")).expect("a table");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [5; 4], "{table}");
    assert_eq!(rows[2], ["lines.txt", "2", "", "", ""]);
    assert_eq!(rows[3][2], "unknown wörds and two");
    let alone = fs::read_to_string(at.join("said/translations.txt")).expect("a file");
    assert_eq!(alone.lines().collect::<Vec<_>>(), rows[1..].iter().map(|row| row[3]).collect::<Vec<_>>());
    fs::write(at.join("wrong.txt"), b"red\nd\xffg\n").expect("a file");
    let error = refused(at, &["predict", "whole/checkpoint-000020.safetensors", "wrong.txt"]);
    assert!(
        error.starts_with("gradscale: wrong.txt: line 2: not UTF-8 (byte 0xff); if the file is in Latin-1"),
        "{error}"
    );
    fs::write(at.join("long.txt"), format!("red\n{}\n", "dog ".repeat(2000))).expect("a file");
    let error = refused(at, &["predict", "whole/checkpoint-000020.safetensors", "long.txt"]);
    assert!(
        error.starts_with("gradscale: long.txt: line 2: ")
            && error.ends_with("more than the maximum of 1024; split the line"),
        "{error}"
    );
}

#[test]
fn comparing_shows_bleu() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    parallel(&at.join("data"));
    let arguments = ["compare", "--task", "translate", "--data", "data", "--languages", "de-en", "--width", "1"];
    let arguments = [&arguments[..], &["--batch", "4", "--iters", "4", "--eval-every", "2", "--pieces", "80"]].concat();
    let out = done(at, &[&arguments[..], &["--methods", "fp32,gs", "--out", "results"]].concat());
    assert!(out.contains("data: 60 pairs, de-en, "), "{out}");
    let out = table(at, "results");
    assert!(out.contains("| method | BLEU |"), "{out}");
    assert!(out.contains("perplexity") && !out.contains("class accuracy") && !out.contains("character"), "{out}");
    let results = fs::read_to_string(at.join("results/results.json")).expect("results");
    let results: serde_json::Value = serde_json::from_str(&results).expect("JSON");
    for run in results["runs"].as_array().expect("runs") {
        assert!(run["metrics"]["bleu"].is_f64() && run["metrics"]["piece_perplexity"].is_f64(), "{}", run["metrics"]);
        let site = |site: &serde_json::Value| {
            site["name"].as_str().is_some_and(|name| name.starts_with("seq2seq.attention.scores/"))
        };
        assert_eq!(run["sites"].as_array().expect("sites").iter().any(site), run["method"] == "gs");
    }
    let plan = done(at, &["plan", "--task", "translate", "--network", "seq2seq-5", "--width", "1"]);
    assert!(plan.contains("seq2seq.decoder.l4") && plan.contains("seq2seq.generator"), "{plan}");
}

#[test]
fn what_cannot_be_used_says_why_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let with = |data: &str, more: &[&str]| {
        let arguments =
            ["train", "--task", "translate", "--data", data, "--iters", "1", "--batch", "2", "--width", "1"];
        gradscale(at, &[&arguments[..], more].concat())
    };
    let train = |data: &str, more: &[&str]| {
        let (code, _, error) = with(data, more);
        assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
        error.trim().to_owned()
    };
    let fresh = |name: &str| {
        parallel(&at.join(name));
        at.join(name)
    };
    fs::create_dir(at.join("empty")).expect("a directory");
    assert!(train("empty", &[]).contains("empty: not a data set: expected train.LANGUAGE[.gz] in two languages"));
    // A line that is missing, bytes that are no text, half a file, a language that is missing.
    let lines = fresh("lines");
    fs::write(lines.join("val.en"), sentences(11)[0].clone()).expect("a file");
    let error = train("lines", &["--eval-every", "1"]);
    assert!(error.ends_with("val.en: line 12: missing: the file has 11 lines, but val.de.gz has 12"), "{error}");
    let bytes = fresh("bytes");
    fs::write(bytes.join("train.en"), b"red\nblue\n\xc3\x28\n").expect("a file");
    assert!(train("bytes", &[]).contains("train.en: line 3: not UTF-8 (byte 0x"));
    let cut = fresh("cut");
    let whole = fs::read(cut.join("test_2016.de.gz")).expect("a file");
    fs::write(cut.join("test_2016.de.gz"), &whole[..whole.len() / 2]).expect("a file");
    assert!(train("cut", &[]).contains("test_2016.de.gz: truncated or corrupt gzip data"));
    fs::remove_file(cut.join("test_2016.de.gz")).expect("a file");
    let error = train("cut", &[]);
    assert!(error.ends_with("test_2016.de: missing; the test_2016 set lacks this language"), "{error}");
    // Languages.
    let three = fresh("three");
    assert!(train("three", &["--languages", "en-fr"]).ends_with("no train.fr; the languages are de, en"));
    fs::copy(three.join("train.en"), three.join("train.fr")).expect("a file");
    let error = train("three", &[]);
    assert!(error.ends_with("train in de, en, fr; choose two, for example --languages de-en"), "{error}");
    assert!(train("three", &["--languages", "en"]).contains("must be two file extensions"));
    let (code, ..) = with("three", &["--languages", "en-de", "--out", "two", "--pieces", "64"]);
    assert_eq!(code, Some(0));
    for language in ["de.gz", "fr"] {
        fs::remove_file(three.join(format!("train.{language}"))).expect("a file");
    }
    // Lines that cannot be used are skipped and reported.
    assert!(train("three", &[]).ends_with("only train.en; add train.LANGUAGE for a second language"));
    let odd = fresh("odd");
    let [one, other] = sentences(60);
    fs::write(odd.join("train.en"), format!("\n{}\n{one}", "dog ".repeat(400))).expect("a file");
    fs::write(odd.join("train.de.gz"), gzip(&format!("rot\nHund\n{other}"))).expect("a file");
    let (code, out, error) = with("odd", &["--out", "left", "--pieces", "64"]);
    assert!(code == Some(0) && out.contains("odd: 60 pairs, en-de"), "{out}{error}");
    assert!(
        error.starts_with("gradscale: left out: 1 of 62 pairs of the training set, empty in one language; "),
        "{error}"
    );
    assert!(error.contains("; 1 of 62 pairs of the training set, longer than 64 tokens"), "{error}");
    fs::write(odd.join("train.en"), "\n\n").expect("a file");
    fs::write(odd.join("train.de.gz"), gzip("\n\n")).expect("a file");
    assert!(train("odd", &[]).ends_with("odd: no sentences for training: 2 of 2 are empty in one language"));
    // Options of other data.
    assert!(train("lines", &["--size", "3x4"]).contains("--size HxW: does not apply to sentences"));
    let error = refused(at, &["train", "--task", "classify", "--languages", "en-de", "--iters", "1"]);
    assert_eq!(error, "gradscale: --languages: is for --task translate");
    let error = refused(at, &["train", "--task", "translate", "--languages", "en-fr", "--iters", "1"]);
    assert!(error.ends_with("--languages en-fr: choose en-de or de-en"), "{error}");
}
