//! Trainings that overflow at every step: they end with one line that names the site, and the log says why.

mod command;

use command::without_progress;
use serde_json::Value;
use std::{fs, path::Path, process::Command};

fn gradscale(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_gradscale")).args(arguments).current_dir(directory).output();
    let output = output.expect("the program starts");
    (output.status.code(), without_progress(&output.stderr))
}

const SMALL: [&str; 8] = ["--batch", "2", "--width", "2", "--threads", "1", "--iters", "150"];
const METHOD: &str = "fixed:1237940039285380274899124224";
const SKIPPED: &str = "skipped: cross_entropy/cast overflowed at 2^90";

#[test]
fn persistent_overflow_ends_with_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let train = ["train", "--method", METHOD, "--out", "t", "--checkpoint-every", "60"];
    let (code, error) = gradscale(at, &[&train[..], &SMALL[..]].concat());
    assert_eq!(code, Some(2), "{error}");
    let expected = format!("gradscale: 100 steps in a row were skipped; the last was {SKIPPED}\n");
    // Doubted early, ended in the end.
    let doubt = error.strip_suffix(&expected).expect("how it ended");
    let doubted =
        "gradscale: warning: fixed:1237940039285380274899124224: at step 11, 11 of the last 11 steps were skipped";
    assert!(doubt.starts_with(doubted) && doubt.lines().count() == 1, "{error}");
    let log = fs::read_to_string(at.join("t/log.jsonl")).expect("a log");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 99);
    assert!(lines.iter().all(|line| line["skipped"]["said"] == SKIPPED && line["skipped"]["decided"] == 90));
    // Skips count on after a resume: 60 are in the checkpoint.
    let (code, error) = gradscale(at, &["train", "--resume", "t", "--threads", "1", "--iters", "150"]);
    assert_eq!((code, error), (Some(2), expected));
    assert_eq!(fs::read_to_string(at.join("t/log.jsonl")).expect("a log").lines().count(), 99);

    // In a comparison with methods that train, a method that fails is a result, not an error.
    let compare = ["compare", "--methods", &format!("{METHOD},fp32"), "--out", "c"];
    let (code, error) = gradscale(at, &[&compare[..], &SMALL[..6], &["--iters", "101"]].concat());
    assert!(code == Some(0) && error.lines().all(|line| line.starts_with("gradscale: warning: ")), "{error}");
    let json: Value = serde_json::from_slice(&fs::read(at.join("c/results.json")).expect("results")).expect("JSON");
    assert!(json["runs"][0].to_string().contains(&format!("100 steps in a row were skipped; the last was {SKIPPED}")));
    assert_eq!(json["runs"][1]["iterations"], 101);
}
