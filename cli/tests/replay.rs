//! Recorded rows, replayed: the rule that made a trace finds its exponents again, other rules find theirs.

use serde_json::Value;
use std::{fs, path::Path, process::Command};

fn gradscale(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_gradscale")).args(arguments).current_dir(directory).output();
    let output = output.expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a file");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A training with a trace, and the same trace replayed.
fn both(directory: &Path, method: &str, replayed: &str) -> (Vec<Value>, Vec<Value>) {
    let small = ["train", "--batch", "2", "--width", "2", "--iters", "30", "--threads", "1"];
    let (trace, out) =
        (format!("{}.trace", method.replace([':', ','], "-")), format!("{}.jsonl", replayed.replace([':', ','], "-")));
    if !directory.join(&trace).exists() {
        let (code, _, error) = gradscale(directory, &[&small[..], &["--method", method, "--trace", &trace]].concat());
        assert_eq!(code, Some(0), "{error}");
    }
    let (code, table, error) = gradscale(directory, &["replay", &trace, "--method", replayed, "--out", &out]);
    assert_eq!(code, Some(0), "{error}");
    assert!(table.contains("cross_entropy/cast"), "{table}");
    (lines(&directory.join(trace)), lines(&directory.join(out)))
}

#[test]
fn the_rule_of_a_trace_finds_its_exponents_again() {
    let directory = tempfile::tempdir().expect("a directory");
    for method in ["gs:exact,interval=3", "gs:exact,interval=4,history=1,room=3", "dynamic:2", "fixed:1024"] {
        let (recorded, replayed) = both(directory.path(), method, method);
        assert_eq!(recorded.len(), 30);
        for (was, is) in recorded.iter().zip(&replayed) {
            assert_eq!(was["iteration"], is["iteration"]);
            assert_eq!(was["skipped"], is["skipped"], "{method}, step {}", was["iteration"]);
            let sites = was["sites"].as_array().expect("sites").iter().zip(is["sites"].as_array().expect("sites"));
            for (was, is) in sites {
                assert_eq!(
                    (&was["name"], &was["exponent"], &was["next"]),
                    (&is["name"], &is["alpha"], &is["next"]),
                    "{method}"
                );
            }
        }
    }
}

#[test]
fn other_rules_are_tried_without_training() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_, none) = both(directory.path(), "gs", "fp16");
    let (_, scaled) = both(directory.path(), "gs", "gs:exact,interval=5");
    let worst = |steps: &[Value]| {
        let sites = steps.iter().flat_map(|step| step["sites"].as_array().expect("sites").clone());
        sites.map(|site| site["gamma"].as_f64().expect("a share")).fold(0.0, f64::max)
    };
    println!("flushed at worst: {:.4} without a scale, {:.6} with one each", worst(&none), worst(&scaled));
    assert!(worst(&none) > 100.0 * worst(&scaled));
    let (_, huge) = both(directory.path(), "gs", "fixed:1237940039285380274899124224");
    assert!(huge.iter().all(|step| step["skipped"] == true), "2^90 overflows everywhere");
}

#[test]
fn what_is_no_trace_is_said_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |arguments: &[&str], named: &str| {
        let (code, _, error) = gradscale(directory.path(), arguments);
        assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
        assert!(error.contains(named), "{error}");
    };
    refused(&["replay", "nowhere"], "nowhere");
    for (name, content) in [
        ("empty", ""),
        ("text", "no JSON\nat all\n"),
        (
            "words",
            "{\"iteration\":1,\"skipped\":false,\"sites\":[{\"name\":\"a\",\"exponent\":0,\"next\":0,\"words\":[1,2,3]}]}\n",
        ),
        (
            "long",
            &format!(
                "{{\"iteration\":1,\"skipped\":false,\"sites\":[{{\"name\":\"a\",\"exponent\":0,\"next\":0,\"words\":{:?}}}]}}\n",
                vec![0; 999]
            ),
        ),
    ] {
        fs::write(directory.path().join(name), content).expect("a file");
        refused(&["replay", name], name);
    }
    refused(&["replay", "empty", "--method", "gs:paper"], "operands");
}
