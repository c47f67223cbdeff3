//! Networks for photographs: trained for a step or two, on pictures of any sizes in as many classes as there are.

mod checkpoint;

use image::{Rgb, RgbImage};
use serde_json::Value;
use std::{fs, path::Path, process::Command};

fn gradscale(at: &Path, arguments: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradscale"));
    let output = command.args(arguments.split_whitespace()).current_dir(at).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn done(at: &Path, arguments: &str) -> String {
    let (code, out, error) = gradscale(at, arguments);
    assert_eq!(code, Some(0), "{arguments}: {error}");
    out
}

fn refused(at: &Path, arguments: &str, said: &str) {
    let (code, _, error) = gradscale(at, arguments);
    assert_eq!((code, error.lines().count()), (Some(2), 1), "{arguments}: {error}");
    assert!(error.contains(said), "{arguments}: {error}");
}

/// A picture in one colour with a stripe.
fn picture(path: &Path, [width, height]: [u32; 2], tone: u32) {
    let byte = |value: u32| value.to_le_bytes()[0];
    let pixel = |x, y| if x == y { Rgb([255; 3]) } else { Rgb([byte(tone), byte(90 + x), byte(3 * tone)]) };
    fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    RgbImage::from_fn(width, height, pixel).save(path).expect("a file");
}

/// `train/CLASS/…` and `val/CLASS/…`, no two pictures of one size.
fn photographs(at: &Path, classes: u32) {
    for class in 0..classes {
        for (part, count) in [("train", 3), ("val", 1)] {
            for i in 0..count {
                let size = [30 + (class + i) % 23, 28 + (7 * class + i) % 31];
                picture(&at.join(format!("{part}/n{class:04}/{i}.JPEG")), size, 40 * class + i);
            }
        }
    }
}

fn log(directory: &Path) -> Vec<Value> {
    let text = fs::read_to_string(directory.join("log.jsonl")).expect("a log");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Each network accepts the same options, and prints its name.
#[test]
fn every_network_trains() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    photographs(&at.join("data"), 8);
    for (network, name) in [
        ("alexnet", "AlexNet"),
        ("vgg-16", "VGG-16"),
        ("googlenet", "GoogLeNet"),
        ("inception-v2", "Inception v2"),
        ("inception-v3", "Inception v3"),
        ("resnet-18", "ResNet-18"),
        ("resnet-50", "ResNet-50"),
    ] {
        let train = "train --data data --crop 32 --width 2 --batch 4 --iters 2 --threads 1";
        done(at, &format!("{train} --network {network} --out {network}"));
        let last = log(&at.join(network)).pop().expect("a line");
        assert!(last["loss"].as_f64().is_some_and(f64::is_finite), "{network}: {last}");
        let (first, fifth) = (&last["scores"]["top_1"], &last["scores"]["top_5"]);
        assert!(fifth.as_f64() >= first.as_f64() && fifth.as_f64().is_some(), "{network}: {last}");
        let report = fs::read_to_string(at.join(network).join("report.html")).expect("a report");
        assert!(report.contains(&format!("{name} (2 channels) on data (32×32)")), "{network}");
    }
    for network in ["segnet", "segnet-basic"] {
        done(at, &format!("train --network {network} --width 2 --batch 2 --iters 1 --threads 1 --out {network}"));
        let report = fs::read_to_string(at.join(network).join("report.html")).expect("a report");
        assert!(report.contains("SegNet"), "{network}");
    }
}

/// More classes than a byte has, in pictures of other sizes; going on shows the same parts of them.
#[test]
fn three_hundred_classes_resumed() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    photographs(&at.join("data"), 300);
    let train = "train --network resnet-18 --data data --crop 16 --width 1 --batch 8 --threads 1";
    done(at, &format!("{train} --iters 4 --checkpoint-every 2 --out whole"));
    done(at, &format!("{train} --iters 4 --checkpoint-every 2 --out part"));
    fs::remove_file(at.join("part/checkpoint-000004.safetensors")).expect("a file");
    refused(at, "train --resume part --network alexnet", "cannot be used with");
    refused(at, "train --resume part --crop 32", "cannot be used with");
    done(at, "train --resume part");
    let last = |run: &str| checkpoint::content(&at.join(run).join("checkpoint-000004.safetensors"));
    assert!(last("whole") == last("part"), "another training");
    let scored = log(&at.join("whole")).pop().expect("a line");
    assert!(scored["scores"]["top_5"].is_number(), "{scored}");
    let metadata = gradscale::checkpoint_metadata(
        &fs::read(at.join("whole/checkpoint-000004.safetensors")).expect("a checkpoint"),
    );
    let classes: Value = serde_json::from_str(&metadata.expect("metadata")["classes"]).expect("JSON");
    assert_eq!(classes["names"].as_array().map(Vec::len), Some(300));
    let mean = classes["input"]["channels"][0][0].as_f64().expect("a mean");
    assert!((mean - 0.485 * 255.0).abs() < 1e-3, "{mean}");

    // The center of a picture of any size.
    picture(&at.join("new/wide.png"), [90, 20], 7);
    let said = done(at, "predict whole/checkpoint-000004.safetensors new");
    assert!(said.contains("wide.png: n0"), "{said}");
    // A class beyond 255 appears in the report's true labels.
    let truth = fs::read_to_string(at.join("whole/report.html")).expect("a report");
    assert!(truth.contains("<b>n0287</b>"), "the last sample is of class 287");
}

#[test]
fn what_is_wrong_is_said_in_a_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    photographs(&at.join("data"), 3);
    let train = "train --network resnet-18 --data data --width 1 --batch 4 --iters 3 --threads 1";
    // Images of several sizes, without --crop and --size.
    refused(at, train, "the first image");
    // The headers are valid but the data are not, which is found when the image is used.
    for class in 0..3 {
        let path = at.join(format!("data/train/n{class:04}/1.JPEG"));
        let bytes = fs::read(&path).expect("a file");
        fs::write(&path, &bytes[..bytes.len() - 40]).expect("a file");
    }
    refused(at, &format!("{train} --crop 16"), "/1.JPEG: ");
    refused(at, &format!("{train} --crop 4"), "--crop");
    fs::write(at.join("data/train/n0000/0.JPEG"), b"no picture").expect("a file");
    refused(at, &format!("{train} --crop 16"), "train/n0000/0.JPEG: ");
    for (arguments, said) in [
        ("--network vgg-16 --task segnet", "--network vgg-16: is for --task classify, not for segnet"),
        ("--network mlp --size paper", "--size paper: mlp has no paper size"),
        ("--network alexnet --size paper --width 8", "--width 8: the paper's network has 64"),
        ("--size large", "must be small or paper"),
        ("--task segnet --crop 32 --data data", "--crop is for --task classify"),
    ] {
        refused(at, &format!("train {arguments} --iters 1 --out v"), said);
    }
    assert!(!at.join("v").exists());
}

/// `--net` and `resnet` are the earlier names of `--network` and `resnet-8`; `--size` of images has not changed.
#[test]
fn older_words_stay() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    photographs(&at.join("data"), 3);
    fs::write(at.join("old.toml"), "net = \"resnet\"\ntask = \"classify\"\nsize = \"12x10\"\n").expect("a file");
    let train = "train --data data --width 1 --batch 4 --iters 1 --threads 1";
    done(at, &format!("{train} --config old.toml --out old"));
    done(at, &format!("{train} --network resnet-8 --size small,12x10 --out new"));
    let state = |run: &str| checkpoint::state(&at.join(run).join("checkpoint-000001.safetensors"));
    assert!(state("old") == state("new"));
}
