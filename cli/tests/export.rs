//! Export of a trained network: outputs and errors. `tests/onnx/run.sh` computes the model in ONNX Runtime.

mod command;

use command::{done, refused, saved};
use std::{fs, path::Path};

#[test]
fn a_trained_network_leaves_as_onnx() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    done(at, &["train", "--width", "4", "--batch", "2", "--iters", "1", "--out", "pixels"]);
    let checkpoint = saved(Path::new("pixels"), 1);
    let checkpoint = checkpoint.to_str().expect("text");
    let export = ["export", checkpoint, "--out", "model.onnx"];
    let sized = [&export[..], &["--size", "24x40"]].concat();

    let said = done(at, &sized);
    assert!(said.starts_with("model.onnx: ") && said.trim().ends_with("MB"), "{said}");
    let whole = fs::read(at.join("model.onnx")).expect("a model");
    let holds = |word: &[u8]| whole.windows(word.len()).any(|part| part == word);
    assert!(holds(b"gradscale") && holds(b"MaxUnpool") && holds(b"segnet.encoder.conv1.weight"));
    assert!(holds(b"classes") && holds(b"{\"names\":[\""));
    // The same once more, and half as large with halves.
    done(at, &sized);
    assert!(fs::read(at.join("model.onnx")).expect("a model") == whole);
    done(at, &[&sized[..], &["--half"]].concat());
    assert!(fs::metadata(at.join("model.onnx")).expect("a model").len() < whole.len() as u64 * 7 / 10);

    assert_eq!(
        refused(at, &export),
        "gradscale: --size: is missing; the network takes images of any size, so give \
        one"
    );
    assert!(refused(at, &[&export[..], &["--size", "0x4"]].concat()).contains("rows and columns"));
    assert!(refused(at, &["export", "nothing", "--out", "x"]).starts_with("gradscale: nothing: "));
    fs::write(at.join("other.safetensors"), b"no weights").expect("a file");
    assert!(refused(at, &["export", "other.safetensors", "--out", "x"]).starts_with("gradscale: other.safetensors: "));
    assert!(!at.join("x").exists());
    assert!(refused(at, &["export", checkpoint, "--size", "24x40", "--out", "no/x.onnx"]).contains("no/x.onnx"));
}

/// The weights before the first step are the same whatever the method, and so are predictions, which round nothing. The
/// loss on the terminal is that of the report's table.
#[test]
fn predictions_are_in_f32_whatever_the_training() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let image = image::RgbImage::from_fn(96, 64, |x, y| {
        image::Rgb([x * 37 + y * 91, x * 53 + y * 17, x * 29 + y * 71].map(|value| (value % 251).to_le_bytes()[0]))
    });
    image.save(at.join("n.png")).expect("a file");
    let labels = ["fp32", "fp16"].map(|method| {
        let settings = ["train", "--iters", "3", "--width", "2", "--batch", "2", "--method", method, "--out", method];
        let said = done(at, &settings);
        let loss = said.split_once("step 3: loss ").and_then(|(_, rest)| rest.split(',').next()).expect("a loss");
        let report = fs::read_to_string(at.join(method).join("report.html")).expect("a report");
        assert!(report.contains(&format!(">{loss}<")), "{loss} is not in the table");
        done(at, &["predict", saved(Path::new(method), 0).to_str().expect("text"), "n.png", "--out", "seen"]);
        fs::read(at.join("seen/n-labels.png")).expect("labels")
    });
    assert!(labels[0] == labels[1], "predictions depend on the method of the training");
}
