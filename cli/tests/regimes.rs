//! `gradscale regimes` on the command line: its files and its errors.

mod command;

use command::without_progress;
use serde_json::Value;
use std::{fs, path::Path, process::Command};

fn regimes(directory: &Path, arguments: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradscale"));
    let output = command.arg("regimes").args(arguments.split_whitespace()).current_dir(directory).output();
    let output = output.expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), without_progress(&output.stderr))
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("results")).expect("JSON")
}

#[test]
fn regimes_are_compared_and_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let asked = "--quick --only jump,1in3:2^20 --methods fp32,gs,gs:exact,room=6,history=0";
    let (code, out, error) = regimes(at, &format!("{asked} --threads 2"));
    assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
    let results = at.join("regimes-1");
    let file = json(&results.join("regimes.json"));
    for field in ["version", "commit", "machine", "data"] {
        assert!(file[field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
    }
    assert_eq!(file["arguments"]["methods"], serde_json::json!(["fp32", "gs", "gs:exact,room=6,history=0"]));
    assert_eq!(file["regimes"].as_array().map(Vec::len), Some(4));
    let rows = file["rows"].as_array().expect("rows");
    // Rows are in the order of the regimes, which is fixed, and of methods and seeds, which the caller chooses.
    let named = |row: &Value| ["regime", "method"].map(|field| row[field].as_str().expect("text").to_owned()).join(" ");
    assert_eq!(rows.len(), 12);
    assert_eq!(named(&rows[2]), "1in3:2^20 gs:exact,room=6,history=0");
    assert_eq!(named(&rows[3]), "jump:2^-12 fp32");
    for row in rows {
        assert!(row["score"].as_f64().is_some_and(|score| (0.0..=100.0).contains(&score)), "{row}");
        assert_eq!((&row["higher_is_better"], &row["seed"]), (&true.into(), &0.into()), "{row}");
        assert_eq!(
            (row["failure"].is_null(), row["skipped"].as_u64()),
            (true, row["finite_skipped"].as_u64()),
            "{row}"
        );
        assert!(row["method"] != "gs" || row["skipped"] == 0, "{row}");
        assert!(row["method"] != "fp32" || row["repeated"] == 0, "{row}");
    }
    // The numbers show the cause of the difference.
    assert!(rows[2]["skipped"].as_u64() > Some(20) && rows[1]["repeated"].is_u64(), "{}", rows[2]);
    let table = fs::read_to_string(results.join("table.md")).expect("a table");
    // The terminal gets the same without Markdown.
    assert!(!out.contains("| ") && out.contains("\n  gs: as good as fp32 in 4 of 4 regimes."), "{out}");
    assert!(out.ends_with("\nregimes-1/report.html\n"), "{out}");
    assert!(table.contains("- gs: as good as fp32 in 4 of 4 regimes. Finite batches skipped: 0 (0.0 %)"), "{table}");
    assert!(
        table.contains("- gs:exact,room=6,history=0: as good as fp32 in 3 of 4 regimes, behind in 1in3:2^20"),
        "{table}"
    );
    let html = fs::read_to_string(results.join("report.html")).expect("a report");
    for id in ["verdict", "summary", "scales", "arguments"] {
        assert_eq!(html.matches(&format!("<section id=\"{id}\"")).count(), 1, "{id}");
    }
    // One drawing for each regime, with a line for each method that has exponents; and one of them in the first screen,
    // with its scores.
    assert_eq!((html.matches("<svg ").count(), html.matches("class=\"line m").count()), (4 + 2, 5 * 2));
    for word in ["http:", "https:", "<script", "<link", "url(", "src=", "NaN"] {
        assert!(!html.contains(word), "{word}");
    }
    assert_eq!(
        fs::read_dir(&results).expect("a directory").count(),
        4,
        "lock, page, table, results, and no temporary files"
    );

    // Results do not depend on the number of concurrent trainings, and no file is overwritten.
    let (code, _, error) = regimes(at, &format!("{asked} --threads 1"));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let timeless = |path: &str| {
        let mut file = json(&at.join(path));
        let rows = file["rows"].as_array_mut().expect("rows");
        rows.iter_mut().for_each(|row| row["seconds"] = Value::Null);
        file["rows"].take()
    };
    assert_eq!(timeless("regimes-1/regimes.json"), timeless("regimes-2/regimes.json"));
    let (code, _, error) = regimes(at, "--quick --only jump --out regimes-1");
    assert_eq!((code, error.lines().count()), (Some(2), 1));
    assert!(error.contains("regimes.json: exists already"), "{error}");
}

/// `--only` with figures trains nothing.
#[test]
fn figures_are_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let (code, out, error) = regimes(at, "--quick --only one-in-n,scale-by-size --threads 2");
    assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
    let file = json(&at.join("regimes-1/regimes.json"));
    assert_eq!((file["rows"].as_array().map(Vec::len), file["figures"].as_array().map(Vec::len)), (Some(0), Some(2)));
    assert_eq!(file["figures"][0]["rows"][5]["one_in"], 4000);
    let table = fs::read_to_string(at.join("regimes-1/table.md")).expect("a table");
    assert!(table.contains("## one-in-n\n") && table.contains("torch.amp 2^16, DeepSpeed 2^32"), "{table}");
    assert!(!table.contains("| regime"), "{table}");
    let html = fs::read_to_string(at.join("regimes-1/report.html")).expect("a report");
    assert_eq!((html.matches("<section id=\"figures\"").count(), html.matches("<pre>").count()), (1, 2));
    assert!(!html.contains("id=\"summary\""), "there was no training");
}

/// A regime from practice has its own methods, and its table the final scale.
#[cfg(feature = "speech")]
#[test]
fn natural_regimes_are_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let (code, out, error) =
        regimes(at, "--quick --only short-recordings:zero-infinity --methods torch,gs --threads 2");
    assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
    let file = json(&at.join("regimes-1/regimes.json"));
    assert!(
        file["data"].as_str().is_some_and(|data| data.contains("recordings: synthetic words, ")),
        "{}",
        file["data"]
    );
    assert_eq!(file["regimes"][0]["is_natural"], true);
    // Only a first overflow lowers the scale, because the loss leaves short recordings out.
    let (scale, skipped) = (file["rows"][0]["scale"].as_i64(), file["rows"][0]["skipped"].as_i64());
    assert_eq!(scale.zip(skipped).map(|(scale, skipped)| scale + skipped), Some(16));
    assert!(scale.is_some_and(|scale| scale > 12 && out.contains(&format!("2^{scale}"))), "{out}");
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let lines: String = (0..20).map(|i| format!("{i},1,{}\n", ["x", "y"][i % 2])).collect();
    fs::write(directory.path().join("few.csv"), format!("a,b,class\n{lines}")).expect("written");
    for (arguments, named) in [
        ("--only 1in3,1in4", "--only: \"1in4\" is not a regime; choose from 1in3:2^-20, 1in3:2^-12"),
        ("--only heads,", "--only: \"\" is not a regime"),
        ("--methods gs:best", "best is not a preset"),
        ("--seeds 0,0", "0 is given twice"),
        ("--threads many", "--threads"),
        ("--data nowhere", "nowhere"),
        (
            "--only short-recordings --recordings nowhere",
            if cfg!(feature = "speech") { "nowhere" } else { "speech is left out of this build" },
        ),
        ("--data few.csv", "--data: few.csv has 16 training images, fewer than a batch of 32"),
    ] {
        let (code, out, error) = regimes(directory.path(), arguments);
        assert_eq!((code, out.as_str(), error.lines().count()), (Some(2), "", 1), "{arguments}: {error}");
        assert!(error.starts_with("gradscale: ") && error.contains(named), "{arguments}: {error}");
    }
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1, "nothing is made");
}
