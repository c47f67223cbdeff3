//! Implausible results are questioned: immediately, in the results and in the report.

mod command;

use command::without_progress;
use image::{GrayImage, Luma, RgbImage};
use serde_json::Value;
use std::{fs, path::Path, process::Command};

fn gradscale(directory: &Path, arguments: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradscale"));
    let output =
        command.args(arguments.split_whitespace()).current_dir(directory).output().expect("the program starts");
    let error = without_progress(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {error}");
    error
}

#[test]
fn of_methods_that_cannot_train() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    // Gradients of 2^-40 and less: nothing of them is left in FP16, and the scale of 2^60 leaves nothing finite.
    let compare = "compare --task classify --net mlp --width 4 --iters 60 --pixels 1099511627776";
    let error = gradscale(at, &format!("{compare} --methods fp32,fp16,fixed:1152921504606846976 --out c"));
    let lines: Vec<&str> = error.lines().collect();
    let fixed = "gradscale: warning: fixed:1152921504606846976, seed 0: ";
    assert_eq!(lines.len(), 3, "{error}");
    assert!(lines[0].starts_with("gradscale: warning: fp16, seed 0: mlp.linear1.bias, "), "{error}");
    assert!(
        lines[1].starts_with(&format!("{fixed}at step 11, 11 of the last 11 steps were skipped (skipped: ")),
        "{error}"
    );
    assert!(lines[2].starts_with(&format!("{fixed}mlp.linear1.bias, mlp.linear1.weight, ")), "{error}");
    // Each has its own cause.
    assert!(
        lines[0].ends_with("never changed, because all gradients at cross_entropy/cast were flushed to zero"),
        "{error}"
    );
    assert!(lines[2].ends_with("never changed, because all steps were skipped"), "{error}");
    let json: Value = serde_json::from_slice(&fs::read(at.join("c/results.json")).expect("results")).expect("JSON");
    let doubts = [0, 1, 2].map(|run| json["runs"][run]["doubts"].as_array().expect("doubts").len());
    assert_eq!(doubts, [0, 1, 2]);
    let table = fs::read_to_string(at.join("c/table.md")).expect("a table");
    assert!(table.contains("\nWarnings:\n\n- fp16, seed 0: mlp.linear1.bias, "), "{table}");
    let report = fs::read_to_string(at.join("c/report.html")).expect("a report");
    assert!(report.contains("fp16, seed 0: mlp.linear1.bias, "), "the report says so too");
}

/// Checks that a training that was killed before its report has the same results after a resume, and that its warning
/// still has the cause that all steps show. A resume of a complete training does not know the warnings.
#[test]
fn a_report_that_was_lost_has_the_same_warnings() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let json = |arguments: &str| -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradscale"));
        // A reader of warnings that has gone, as after `2>&1 | head`, does not end the training.
        let (reader, warnings) = std::io::pipe().expect("a pipe");
        drop(reader);
        command.args(arguments.split_whitespace()).current_dir(at).stderr(warnings);
        let output = command.output().expect("the program starts");
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    images_all_alike(&at.join("same"));
    let train = "train --task classify --net mlp --data same --batch 2 --width 2 --iters 4 --pixels 1099511627776";
    let mut trained = json(&format!("{train} --method fp16 --json --out t"));
    let doubt = trained["doubts"][0].as_str().expect("a warning");
    assert!(doubt.starts_with("after 4 steps every prediction is the class "), "{doubt}");
    assert!(doubt.ends_with(": all gradients at cross_entropy/cast were flushed to zero"), "{doubt}");
    // A resume without new steps does not know which weights have changed.
    trained["doubts"] = [doubt].into();
    assert_eq!((&trained["iteration"], &trained["complete"]), (&4.into(), &true.into()));
    fs::remove_file(at.join("t/report.html")).expect("a report");
    assert_eq!(json("train --resume t --json"), trained);
    trained["doubts"] = Value::Null;
    assert_eq!(json("train --resume t --json"), trained);
}

/// Writes images of two classes that have one answer, because they are all alike.
fn images_all_alike(directory: &Path) {
    for class in ["a", "b"] {
        fs::create_dir_all(directory.join(class)).expect("a directory");
        for i in 0..5 {
            GrayImage::new(4, 4).save(directory.join(format!("{class}/{i}.png"))).expect("a file");
        }
    }
}

#[test]
fn of_data_without_labels() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    for (split, count) in [("train", 2), ("test", 1)] {
        for folder in ["images", "labels"] {
            fs::create_dir_all(at.join("d").join(folder).join(split)).expect("a directory");
        }
        for i in 0..count {
            RgbImage::from_pixel(16, 16, image::Rgb([9, 9, 9]))
                .save(at.join(format!("d/images/{split}/{i}.png")))
                .expect("a file");
            // No pixel of the second image counts.
            let mask = GrayImage::from_fn(16, 16, |x, _| Luma([if i == 1 { 255 } else { u8::from(x < 8) }]));
            mask.save(at.join(format!("d/labels/{split}/{i}.png"))).expect("a file");
        }
    }
    let error = gradscale(at, "train --data d --batch 1 --width 2 --iters 4 --checkpoint-every 2 --out t");
    let zero = "gradscale: warning: gs: the loss of step ";
    assert!(
        error.lines().any(|line| line.starts_with(zero) && line.contains("every label of the batch is ignored")),
        "{error}"
    );
    let report = fs::read_to_string(at.join("t/report.html")).expect("a report");
    assert!(report.contains("is exactly 0, and in 2 steps in all"), "the report says so too");
    // A resume does not repeat the question, and the report still has it.
    let error = gradscale(at, "train --resume t --iters 5");
    assert!(!error.contains(zero), "{error}");
    let report = fs::read_to_string(at.join("t/report.html")).expect("a report");
    assert!(report.contains("is exactly 0, and in "), "the report of a resumed training");
    images_all_alike(&at.join("same"));
    let error = gradscale(at, "train --task classify --net mlp --data same --batch 2 --width 2 --iters 2 --out s");
    assert!(error.starts_with("gradscale: warning: gs: after 2 steps every prediction is the class "), "{error}");
}
