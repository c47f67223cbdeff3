//! Scores during training use validation images, which are the last ones of the test set.

use serde_json::Value;
use std::{fs, path::Path, process::Command};

fn done(directory: &Path, arguments: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradscale"));
    let output =
        command.args(arguments.split_whitespace()).current_dir(directory).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Rows whose class is the larger of two numbers, or the smaller.
fn table(directory: &Path, name: &str, rows: std::ops::Range<u32>, turned: bool) {
    let row = |i: u32| {
        let (x, y) = (i * 37 % 101, i * 53 % 97);
        format!("{x},{y},{}\n", if (x > y) ^ turned { "first" } else { "second" })
    };
    let text: String = std::iter::once("x,y,class\n".to_owned()).chain(rows.map(row)).collect();
    fs::write(directory.join(name), text).expect("a file");
}

/// Step, share right of validation and of test rows.
fn scores(directory: &Path) -> Vec<(u64, Option<f64>, Option<f64>)> {
    let text = fs::read_to_string(directory.join("log.jsonl")).expect("a log");
    let line = |line: &str| {
        let json: Value = serde_json::from_str(line).expect("JSON");
        let right = |kind: &str| json[kind]["top_1"].as_f64();
        (json["iteration"].as_u64().expect("a number"), right("validation"), right("scores"))
    };
    text.lines().map(line).filter(|(_, validation, test)| validation.is_some() || test.is_some()).collect()
}

const TRAIN: &str = "train --task classify --net mlp --width 4 --batch 16 --threads 1 --iters 60";

/// The test set has permuted classes, so that a right prediction on one set is wrong on the other.
#[test]
fn curves_never_see_the_test_set() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    fs::create_dir(at.join("rows")).expect("a directory");
    table(&at.join("rows"), "train.csv", 0..200, false);
    table(&at.join("rows"), "val.csv", 200..240, false);
    table(&at.join("rows"), "test.csv", 240..300, true);
    let out = done(at, &format!("{TRAIN} --data rows --eval-every 25 --out run"));
    assert!(out.contains("rows: 200 for training, 40 for --eval-every, 60 for the final evaluation"), "{out}");
    assert!(out.contains("step 25: ") && out.contains(" on validation images") && out.contains(" on test images"));
    let [(25, Some(first), None), (50, Some(_), None), (60, Some(last), Some(test))] = scores(&at.join("run"))[..]
    else {
        panic!("{:?}", scores(&at.join("run")))
    };
    assert!(first > 0.6 && last > 0.8 && test < 0.2, "{first} {last} {test}");
    let report = fs::read_to_string(at.join("run/report.html")).expect("a report");
    assert!(report.contains("on the validation set"));
    // A resumed training uses the same images, and evaluation does not change a training.
    done(
        at,
        "train --task classify --net mlp --width 4 --batch 16 --threads 1 --iters 30 --data rows --eval-every 25 --out part",
    );
    done(at, "train --resume part --iters 60");
    assert_eq!(scores(&at.join("part")).last(), scores(&at.join("run")).last());
    done(at, &format!("{TRAIN} --data rows --out plain"));
    assert_eq!(scores(&at.join("plain")), [(60, None, Some(test))]);
    // Also with several methods.
    done(
        at,
        "compare --task classify --net mlp --width 4 --batch 16 --threads 1 --iters 60 --data rows --eval-every 25 --methods fp32 --out c",
    );
    let results = fs::read_to_string(at.join("c/results.json")).expect("results");
    let run = &serde_json::from_str::<Value>(&results).expect("JSON")["runs"][0];
    let points: Vec<_> =
        run["scores"].as_array().expect("scores").iter().map(|one| (&one["iteration"], &one["on"])).collect();
    assert_eq!(
        points,
        [(&25.into(), &"validation".into()), (&50.into(), &"validation".into()), (&60.into(), &"validation".into())]
    );
    assert!(run["scores"][2]["top_1"].as_f64() > Some(0.8) && run["metrics"]["top_1"].as_f64() < Some(0.2));
}

#[test]
fn without_such_images_a_tenth_of_training_is_kept_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    fs::create_dir(at.join("rows")).expect("a directory");
    table(&at.join("rows"), "train.csv", 0..200, false);
    table(&at.join("rows"), "val.csv", 200..240, true);
    // A val set without a test set serves as the test set, and not for curves.
    let out = done(at, &format!("{TRAIN} --data rows --eval-every 50 --out run"));
    let kept = "no validation set: every tenth training image is held out for --eval-every, ";
    assert!(
        out.contains(kept) && out.contains(" for training, ") && out.contains(", 40 for the final evaluation"),
        "{out}"
    );
    let [(50, Some(validation), None), (60, Some(_), Some(test))] = scores(&at.join("run"))[..] else {
        panic!("{:?}", scores(&at.join("run")))
    };
    assert!(validation > 0.6 && test < 0.3, "{validation} {test}");
    // Without curves all images are used for training.
    // Too few images for that: reported, and the test set is used.
    assert!(!done(at, &format!("{TRAIN} --data rows --out plain")).contains("held out for --eval-every"));
    table(at, "few.csv", 0..20, false);
    let out = done(
        at,
        "train --task classify --net mlp --width 2 --batch 4 --threads 1 --iters 4 --data few.csv --eval-every 2 --out few",
    );
    assert!(out.contains("too few training images to hold some out: --eval-every uses the test set"), "{out}");
    assert!(matches!(scores(&at.join("few"))[..], [(2, None, Some(_)), (4, None, Some(_))]));
}

/// Synthetic data have all three sets.
#[test]
fn made_up_data_have_images_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    for (task, line) in [("segnet", "160 for training, 40 for"), ("classify --net mlp", "2000 for training, 500 for")] {
        let out = done(at, &format!("train --task {task} --width 2 --batch 2 --threads 1 --iters 2 --eval-every 1"));
        assert!(out.contains(line), "{out}");
    }
}
