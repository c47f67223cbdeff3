//! Networks as PyTorch keeps them: the program's own weights, written in that order, predict the same.

mod command;

use command::without_progress;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::{fs, path::Path, process::Command};

fn gradscale(at: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_gradscale")).args(arguments).current_dir(at).output();
    let output = output.expect("the program starts");
    (output.status.code(), without_progress(&output.stderr))
}

fn done(at: &Path, arguments: &[&str]) {
    let (code, error) = gradscale(at, arguments);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{arguments:?}");
}

fn refused(at: &Path, arguments: &[&str], said: &str) {
    let (code, error) = gradscale(at, arguments);
    assert_eq!((code, error.lines().count()), (Some(2), 1), "{arguments:?}: {error}");
    assert!(error.contains(said), "{arguments:?}: {error}");
}

/// Returns masters as a `state_dict`: channels second, module names without the network's name, only tensors that pass
/// `keep`.
fn state_dict(checkpoint: &Path, keep: impl Fn(&str) -> bool) -> Vec<u8> {
    let bytes = fs::read(checkpoint).expect("a checkpoint");
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let mut all: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (name, view) in file.tensors() {
        let Some(name) = name.strip_prefix("master.").and_then(|name| name.split_once('.')) else { continue };
        // PyTorch's examples store two networks in separate files, and the normalization of images in none.
        if ["discriminator", "input"].contains(&name.0) {
            continue;
        }
        let (layer, leaf) = name.1.rsplit_once('.').expect("a layer");
        let (shape, data) = (view.shape(), view.data());
        let add = |all: &mut Vec<_>, leaf: &str, shape: Vec<usize>, data: Vec<u8>| {
            all.push((format!("{layer}.{leaf}"), shape, data));
        };
        match leaf {
            "running" => {
                let (mean, variance) = data.split_at(data.len() / 2);
                add(&mut all, "running_mean", vec![mean.len() / 4], mean.to_vec());
                add(&mut all, "running_var", vec![mean.len() / 4], variance.to_vec());
            }
            "scale" => add(&mut all, "weight", vec![data.len() / 4], data.to_vec()),
            "shift" | "bias" => add(&mut all, "bias", vec![data.len() / 4], data.to_vec()),
            // Weights for regions of 7 × 7 bins, which PyTorch flattens with channels first.
            "weight" if layer.ends_with("fc6") => {
                let (pixels, channels) = (49, shape[3] / 49);
                let places = (0..shape[0]).flat_map(|row| {
                    (0..channels * pixels)
                        .map(move |i| 4 * (row * channels * pixels + i % pixels * channels + i / pixels))
                });
                let values = places.flat_map(|at| data[at..at + 4].to_vec()).collect();
                add(&mut all, leaf, vec![shape[0], shape[3]], values);
            }
            "weight" if layer.contains("linear") || layer.starts_with("roi_heads") => {
                add(&mut all, leaf, vec![shape[0], shape[3]], data.to_vec());
            }
            "weight" => {
                let [out, h, w, channels] = [0, 1, 2, 3].map(|i| shape[i]);
                let mut values = Vec::new();
                for (o, c) in (0..out).flat_map(|o| (0..channels).map(move |c| (o, c))) {
                    for pixel in 0..h * w {
                        let at = 4 * ((o * h * w + pixel) * channels + c);
                        values.extend_from_slice(&data[at..at + 4]);
                    }
                }
                add(&mut all, leaf, vec![out, channels, h, w], values);
            }
            other => panic!("{other}"),
        }
    }
    all.retain(|(name, ..)| keep(name));
    let views = all.iter().map(|(name, shape, data)| {
        (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), data).expect("a tensor"))
    });
    safetensors::serialize(views, None).expect("a file")
}

#[test]
fn classifiers() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let digits = gradscale_cli::data::Labelled::synthetic(0);
    fs::create_dir(at.join("images")).expect("a directory");
    for i in 0..40 {
        let image =
            image::GrayImage::from_raw(28, 28, digits.test.image(i).expect("in memory").to_vec()).expect("an image");
        image.save(at.join(format!("images/{i:02}.png"))).expect("a file");
    }
    for net in ["mlp", "resnet"] {
        let train = ["train", "--task", "classify", "--net", net, "--width", "4", "--iters", "60", "--out", net];
        done(at, &[&train[..], &["--method", "fp32", "--batch", "32"]].concat());
        let checkpoint = format!("{net}/checkpoint-000060.safetensors");
        fs::write(at.join("torch"), state_dict(&at.join(&checkpoint), |_| true)).expect("a file");
        // Mean and deviation of the training's normalization, converted from bytes to numbers from 0 to 1.
        let metadata = gradscale::checkpoint_metadata(&fs::read(at.join(&checkpoint)).expect("a file"));
        let classes: serde_json::Value = serde_json::from_str(&metadata.expect("metadata")["classes"]).expect("JSON");
        let unit = |key: &str| (classes["input"][key].as_f64().expect("a number") / 255.0).to_string();
        done(at, &["predict", &checkpoint, "images", "--out", "own"]);
        let (mean, std) = (unit("mean"), unit("deviation"));
        done(at, &["predict", "torch", "images", "--out", "foreign", "--mean", &mean, "--std", &std]);
        let [own, foreign] = ["own", "foreign"].map(|out| fs::read_to_string(at.join(out).join("classes.tsv")));
        let (own, foreign) = (own.expect("a table"), foreign.expect("a table"));
        assert_eq!(own, foreign);
        let mut found: Vec<&str> = own.lines().skip(1).filter_map(|line| line.split('\t').nth(1)).collect();
        found.sort_unstable();
        found.dedup();
        assert!(found.len() > 1, "one class everywhere says nothing: {own}");
        // Normalised otherwise, it answers otherwise.
        done(at, &["predict", "torch", "images", "--out", "other", "--mean", "9"]);
        assert_ne!(fs::read_to_string(at.join("other/classes.tsv")).expect("a table"), own);
    }

    fs::write(at.join("classes.tsv"), "id\tname\n0\tnothing\n1\tone\n").expect("a file");
    refused(
        at,
        &["predict", "torch", "images", "--classes", "classes.tsv"],
        "classes.tsv: 2 classes, but the network has 10",
    );
    refused(at, &["predict", "torch", "images", "--mean", "1,2,3"], "--mean: must be one number");
    refused(at, &["predict", "torch", "images", "--std", "0"], "--std: must be one number");
    let lacking = state_dict(&at.join("resnet/checkpoint-000060.safetensors"), |name| !name.contains("stage2"));
    fs::write(at.join("lacking"), lacking).expect("a file");
    refused(at, &["predict", "lacking", "images"], "lacking: the weights are of another network: ");
    fs::write(
        at.join("foreign.st"),
        state_dict(&at.join("mlp/checkpoint-000060.safetensors"), |name| name.contains("2")),
    )
    .expect("a file");
    refused(
        at,
        &["predict", "foreign.st", "images"],
        "foreign.st: its layer names belong to no network of this program",
    );
    image::GrayImage::new(27, 28).save(at.join("small.png")).expect("a file");
    fs::write(at.join("mlp.st"), state_dict(&at.join("mlp/checkpoint-000060.safetensors"), |_| true)).expect("a file");
    refused(at, &["predict", "mlp.st", "small.png"], "small.png: 28 × 27 pixels, but the network reads 784 values");
    // Damage is not taken for another format.
    let mut bytes = fs::read(at.join("mlp/checkpoint-000060.safetensors")).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(at.join("damaged"), bytes).expect("a file");
    refused(at, &["predict", "damaged", "images"], "damaged: tensor ");
}

#[test]
fn pixels() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    done(at, &["train", "--batch", "2", "--width", "4", "--iters", "12", "--method", "fp32", "--out", "t"]);
    let checkpoint = "t/checkpoint-000012.safetensors";
    fs::write(at.join("torch"), state_dict(&at.join(checkpoint), |_| true)).expect("a file");
    let byte = |value: u32| value.to_le_bytes()[0];
    let scene = image::RgbImage::from_fn(40, 33, |x, y| image::Rgb([byte(6 * x), byte(7 * y), byte(x * y)]));
    scene.save(at.join("scene.png")).expect("an image");
    done(at, &["predict", checkpoint, "scene.png", "--out", "own"]);
    // The training passes bytes to the network without normalization.
    done(at, &["predict", "torch", "scene.png", "--out", "foreign", "--std", "0.00392156862745098"]);
    let [own, foreign] = ["own", "foreign"]
        .map(|out| image::open(at.join(out).join("scene-labels.png")).expect("labels").into_luma8().into_raw());
    let differ = own.iter().zip(&foreign).filter(|(one, two)| one != two).count();
    assert!(differ * 200 <= own.len(), "{differ} of {} pixels differ", own.len());
    assert!(own.iter().any(|&label| label != own[0]), "one class everywhere says nothing");
}

/// Torchvision's Faster R-CNN, small and with batch norm.
#[test]
fn a_detector() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let train =
        ["train", "--network", "faster-rcnn", "--width", "2", "--batch", "2", "--iters", "2", "--method", "fp32"];
    let output =
        Command::new(env!("CARGO_BIN_EXE_gradscale")).args(train).args(["--out", "t"]).current_dir(at).output();
    assert!(output.expect("the program starts").status.success());
    let checkpoint = "t/checkpoint-000002.safetensors";
    fs::write(at.join("torch"), state_dict(&at.join(checkpoint), |_| true)).expect("a file");
    let byte = |value: u32| value.to_le_bytes()[0];
    let scene = image::RgbImage::from_fn(90, 70, |x, y| image::Rgb([byte(6 * x), byte(7 * y), byte(x * y)]));
    scene.save(at.join("scene.png")).expect("an image");
    done(at, &["predict", checkpoint, "scene.png", "--out", "own"]);
    let normal = ["--mean", "0.48235,0.45882,0.40784", "--std", "0.25"];
    done(at, &[&["predict", "torch", "scene.png", "--out", "foreign"], &normal[..]].concat());
    let table = |out: &str| fs::read_to_string(at.join(out).join("boxes.tsv")).expect("a table");
    let numbers = |out: &str| -> Vec<f32> {
        let cells =
            |line: &str| -> Vec<f32> { line.split('\t').skip(2).filter_map(|cell| cell.parse().ok()).collect() };
        table(out).lines().flat_map(cells).collect()
    };
    let (own, foreign) = (numbers("own"), numbers("foreign"));
    assert!(own.len() > 5 && own.len() == foreign.len(), "{} and {}", own.len(), foreign.len());
    assert!(own.iter().zip(&foreign).all(|(a, b)| (a - b).abs() < 0.02), "{own:?}, {foreign:?}");
}

/// The generator's file of PyTorch's DCGAN example, whose images are squares of 32 pixels and are not cropped to 28.
#[cfg(feature = "generation")]
#[test]
fn a_generator() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let train = ["train", "--task", "generate", "--width", "2", "--batch", "8", "--iters", "1", "--method", "fp32"];
    let output =
        Command::new(env!("CARGO_BIN_EXE_gradscale")).args(train).args(["--out", "made"]).current_dir(at).output();
    assert!(output.expect("the program starts").status.success());
    let checkpoint = at.join("made/checkpoint-000001.safetensors");
    fs::write(at.join("torch"), state_dict(&checkpoint, |_| true)).expect("a file");
    for (weights, out) in [(checkpoint.to_str().expect("text"), "own"), ("torch", "theirs")] {
        done(at, &["predict", weights, "--count", "1", "--out", out]);
    }
    let read = |out: &str| image::open(at.join(out).join("made.png")).expect("an image").into_rgb8();
    let (own, theirs) = (read("own"), read("theirs"));
    assert_eq!((own.dimensions(), theirs.dimensions()), ((28, 28), (32, 32)));
    assert_eq!(image::imageops::crop_imm(&theirs, 2, 2, 28, 28).to_image(), own);
    fs::write(at.join("part"), state_dict(&checkpoint, |name| !name.starts_with("main.1."))).expect("a file");
    refused(at, &["predict", "part"], "the weights are of another network: ");
}
