//! Language models: training, comparison, resume, continuation of a text, and errors in data.

mod checkpoint;
mod command;

use command::{done, last, refused, saved, table};
use std::{fs, path::Path};

/// Returns `count` words, of which the first are the most frequent.
fn words(count: usize, seed: usize) -> String {
    let word = |i: usize| {
        let x = (i + seed).wrapping_mul(2_654_435_761) >> 7 & 0xFFFF;
        let end = if i % 11 == 10 { "\n" } else { " " };
        format!("w{}{end}", 300 * x * x / (0xFFFF * 0xFFFF))
    };
    (0..count).map(word).collect()
}

/// Parts as wikitext has them, with 300 words.
fn parts(directory: &Path) {
    fs::create_dir(directory).expect("a directory");
    fs::write(directory.join("valid.txt"), format!("<unk> {}", words(3000, 0))).expect("a file");
    fs::write(directory.join("test.txt"), words(300, 5000)).expect("a file");
}

#[test]
fn it_learns_sentences_that_are_made_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let settings = ["train", "--task", "language", "--width", "4", "--window", "16", "--optimizer", "adamw"];
    for (network, iters) in [("biglstm", "60"), ("decoder", "60")] {
        done(
            at,
            &[&settings[..], &["--lr", "0.01", "--network", network, "--iters", iters, "--out", network]].concat(),
        );
        let scores = &last(&at.join(network))["scores"];
        let [perplexity, unigram] = ["perplexity", "unigram"].map(|key| scores[key].as_f64().expect("a number"));
        println!("{network}: {perplexity} of {unigram}");
        assert!((20.0..25.0).contains(&unigram) && perplexity < 0.45 * unigram, "{network}: {perplexity} of {unigram}");
        assert!(scores["bits_per_character"].is_null() && scores["likeliest_token"].as_f64().expect("a share") > 0.4);
        let report = fs::read_to_string(at.join(network).join("report.html")).expect("a report");
        assert!(report.contains("Generated text") && report.contains("<p><b>text</b><br>"));
        assert!(!report.contains("mIoU") && !report.contains("Class accuracy") && !report.contains("<script"));
        // The same seed gives the same text, another seed another text; the most likely text does not depend on the
        // seed.
        let checkpoint = saved(Path::new(network), iters.parse().expect("a number"));
        let predict = ["predict", checkpoint.to_str().expect("text"), "--prompt", "the old", "--length", "20"];
        let write = |more: &[&str]| done(at, &[&predict[..], more].concat());
        let [first, again, other] = ["1", "1", "2"].map(|seed| write(&["--seed", seed, "--temperature", "1"]));
        assert!(first == again && first != other && first.starts_with("the old "), "{first}{other}");
        assert_eq!(write(&["--seed", "1", "--temperature", "0"]), write(&["--seed", "2", "--top-k", "1"]));
        assert!(
            fs::read_to_string(at.join("predictions/prompt-continued.txt")).expect("a file").starts_with("the old")
        );
    }
    let error = refused(at, &["predict", "decoder/checkpoint-000060.safetensors", "--prompt", "the purple dog"]);
    assert_eq!(error, "gradscale: prompt: “purple” was not in the training text");
    let error = refused(at, &["predict", "decoder/checkpoint-000060.safetensors", "--prompt", " "]);
    assert_eq!(error, "gradscale: prompt: no token to continue from");
}

/// With a state that is passed from batch to batch, tokens that are sampled for each batch, and a second epoch.
#[test]
fn resumed_it_is_the_same_training() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    parts(&at.join("data"));
    for (network, method) in
        [("biglstm", "gs"), ("biglstm", "dynamic:init=2^30"), ("decoder", "gs"), ("decoder-rotary", "gs")]
    {
        let name = |run: &str| format!("{run}-{network}-{}", &method[..2]);
        let settings = ["train", "--task", "language", "--network", network, "--data", "data", "--method", method];
        // Nine windows in each of 20 rows: an epoch of the first network.
        let sizes = ["--width", "2", "--window", "16", "--batch", "20", "--checkpoint-every", "4", "--eval-every", "5"];
        let run = |out: &str, iters: &str| {
            done(at, &[&settings[..], &sizes[..], &["--iters", iters, "--out", &name(out)]].concat());
        };
        run("whole", "12");
        run("broken", "6");
        done(at, &["train", "--resume", &name("broken"), "--iters", "12"]);
        let read = |run: &str| checkpoint::content(&saved(&at.join(name(run)), 12));
        let (whole, broken) = (read("whole"), read("broken"));
        for (key, value) in &whole {
            assert!(broken.get(key) == Some(value), "{network}, {method}: {key} of a resumed training differs");
        }
        // Layers, rows, values of h and c, eight digits each, between quotes.
        let state = whole.get("metadata carried").map(Vec::len);
        assert_eq!(state, (network == "biglstm").then_some(2 * 20 * (8 + 64) * 8 + 2));
        let log = fs::read_to_string(at.join(name("whole")).join("log.jsonl")).expect("a log");
        // Steps that overflowed were repeated with the same tokens drawn, or skipped.
        assert_eq!(method.starts_with("dynamic"), log.contains("\"skipped\"") || log.contains("\"repeated\""), "{log}");
    }
    let text = "w1 w2 unheard-of w0";
    fs::write(at.join("begin.txt"), text).expect("a file");
    let checkpoint = "whole-biglstm-gs/checkpoint-000012.safetensors";
    let out = done(at, &["predict", checkpoint, "begin.txt", "--length", "3", "--out", "out"]);
    assert!(out.starts_with("w1 w2 <unk> w0"), "{out}");
    assert!(fs::read_to_string(at.join("out/begin-continued.txt")).expect("a file").starts_with("w1 w2 <unk> w0"));
    let error = refused(at, &["train", "--resume", "whole-biglstm-gs", "--window", "3"]);
    assert!(error.contains("--resume <DIR>") && error.contains("--window <N>"), "{error}");
}

#[test]
fn comparing_shows_perplexities() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    fs::write(at.join("text.txt"), "So it goes, and so it went.\n".repeat(90) + "Zwölf!").expect("a file");
    let arguments = ["compare", "--task", "language", "--data", "text.txt", "--width", "2", "--window", "8"];
    let out = done(at, &[&arguments[..], &["--iters", "4", "--methods", "fp32,gs", "--out", "results"]].concat());
    let table = table(at, "results");
    assert!(
        table.contains("| method | bits saved % | perplexity | bits per character |")
            && !table.contains("class accuracy"),
        "{table}"
    );
    assert!(
        out.contains("text.txt: the first 95 % of the tokens are for training, the others for evaluation"),
        "{out}"
    );
    let counts = "tokens are characters (--tokens words overrides): 2400 for training, 15 distinct; 126 for evaluation, 5 of \
                  them unknown and count as <unk>";
    assert!(out.contains(counts), "{out}");
    let results = fs::read_to_string(at.join("results/results.json")).expect("results");
    let results: serde_json::Value = serde_json::from_str(&results).expect("JSON");
    for run in results["runs"].as_array().expect("runs") {
        let [perplexity, bits] =
            ["perplexity", "bits_per_character"].map(|key| run["metrics"][key].as_f64().expect("a number"));
        assert!((perplexity.log2() - bits).abs() < 1e-9, "{}", run["metrics"]);
        let site = |site: &serde_json::Value| site["name"] == "cross_entropy/cast";
        assert_eq!(run["sites"].as_array().expect("sites").iter().any(site), run["method"] == "gs");
    }
    for (network, layer) in [("biglstm", "biglstm.lstm.l1.hr"), ("decoder", "decoder.layers.2.self_attn.mix")] {
        let plan = done(at, &["plan", "--network", network, "--width", "4"]);
        assert!(plan.contains(layer), "{plan}");
    }
}

#[test]
fn what_cannot_be_used_says_why_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let train = |data: &str, more: &[&str]| {
        refused(
            at,
            &[&["train", "--task", "language", "--data", data, "--iters", "1", "--width", "2"][..], more].concat(),
        )
    };
    let write = |name: &str, text: &[u8]| fs::write(at.join(name), text).expect("a file");
    assert!(train("nothing.txt", &[]).starts_with("gradscale: nothing.txt: "));
    write("empty.txt", b"");
    assert!(train("empty.txt", &[]).ends_with("/empty.txt: empty"));
    write("latin.txt", b"one\ntwo\nbl\xfcte\n");
    assert!(train("latin.txt", &[]).contains("/latin.txt: line 3: not UTF-8 (byte 0xfc); if the file is in Latin-1"));
    write("short.txt", "a b c ".repeat(40).as_bytes());
    let error = train("short.txt", &["--window", "20"]);
    let short =
        "240 tokens, of which 12 (5 %) are for evaluation, but a window of 20 takes 21; add text or lower --window";
    assert!(error.ends_with(&format!("/short.txt: {short}")), "{error}");
    let error = train("short.txt", &["--window", "4", "--batch", "64"]);
    assert!(error.contains("--batch 64: short.txt has only 56 training"), "{error}");
    fs::create_dir(at.join("many")).expect("a directory");
    for name in ["many/a.txt", "many/b.txt"] {
        write(name, b"text");
    }
    let error = train("many", &[]);
    assert!(error.contains("/many: not a data set: expected one text file (*.txt or *.tokens)"), "{error}");
    let error = train("short.txt", &["--memory", "0"]);
    assert!(error.ends_with("/short.txt: may exceed --memory; raise it or train on less text"), "{error}");
    let error = train("short.txt", &["--tokens", "letters"]);
    assert!(error.contains("must be words or characters"), "{error}");
    assert_eq!(train("short.txt", &["--size", "3x4"]), "gradscale: --size HxW: does not apply to text");
    let error = refused(at, &["train", "--task", "speech", "--tokens", "words"]);
    assert_eq!(error, "gradscale: --tokens: is for --task language");
    let error = refused(at, &["predict", "short.txt", "--prompt", "x", "--temperature", "1e9"]);
    assert!(error.contains("must be a number from 0 to 1000"), "{error}");
}
