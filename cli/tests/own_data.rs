//! User data on the command line: messages about them, training, resume and prediction.

mod checkpoint;

use image::{GrayImage, Luma, RgbImage};
use std::{fs, path::Path, process::Command};

fn gradscale(directory: &Path, arguments: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradscale"));
    let output =
        command.args(arguments.split_whitespace()).current_dir(directory).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn done(directory: &Path, arguments: &str) -> (String, String) {
    let (code, out, error) = gradscale(directory, arguments);
    assert_eq!(code, Some(0), "{arguments}: {error}");
    (out, error)
}

fn refused(directory: &Path, arguments: &str, named: &str) {
    let (code, _, error) = gradscale(directory, arguments);
    assert_eq!((code, error.lines().count()), (Some(2), 1), "{arguments}: {error}");
    assert!(error.contains(named), "{arguments}: {error}");
}

/// Bright and dark images of many sizes, and one file that is none.
fn lights(directory: &Path) {
    for (class, light) in [("dark", 40), ("bright", 200)] {
        fs::create_dir_all(directory.join("lights").join(class)).expect("a directory");
        for i in 0..20 {
            let image = GrayImage::from_fn(5 + i % 7, 9 - i % 4, |x, y| {
                Luma([light + u8::try_from((x * 7 + y * 11 + i * 3) % 40).expect("small")])
            });
            image.save(directory.join(format!("lights/{class}/{i}.png"))).expect("a file");
        }
    }
    fs::write(directory.join("lights/dark/torn.jpg"), b"\xff\xd8\xff").expect("a file");
}

#[test]
fn a_folder_for_each_class() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    lights(at);
    let train = "train --task classify --net mlp --width 2 --batch 4 --data lights";
    refused(at, &format!("{train} --iters 2"), "lights/dark/torn.jpg: ");
    refused(at, &format!("{train} --iters 2 --skip-broken"), "--size HxW resizes all images");
    assert!(!at.join("train-1").exists(), "nothing is made before the data can be used");
    let train = format!("{train} --skip-broken --size 8x8");
    let (out, error) = done(at, &format!("{train} --iters 60 --out whole"));
    let left_out: Vec<&str> = error.lines().filter(|line| !line.contains(": warning: ")).collect();
    let [torn] = &left_out[..] else { panic!("{error}") };
    assert!(torn.starts_with("gradscale: skipped: ") && torn.contains("lights/dark/torn.jpg: "), "{torn}");
    assert!(out.starts_with("lights: 2 classes, for training: bright 16, dark 16\n"), "{out}");
    assert!(out.contains("top-1 100.0 %"), "{out}");
    // A checkpoint keeps how the data are read; on disk or in memory, it is the same training.
    done(at, &format!("{train} --iters 20 --memory 0 --out broken"));
    done(at, "train --resume broken --iters 60");
    let saved = |name: &str| checkpoint::state(&at.join(name).join("checkpoint-000060.safetensors"));
    assert!(saved("whole") == saved("broken"), "a resumed training differs from the unbroken one");
    refused(at, "train --resume broken --size 9x9", "--size");
    // Images are resized for prediction too.
    RgbImage::from_pixel(31, 3, image::Rgb([210; 3])).save(at.join("new.png")).expect("a file");
    let (out, _) = done(at, "predict whole/checkpoint-000060.safetensors new.png lights/dark/0.png");
    assert_eq!(out, "new.png: bright\nlights/dark/0.png: dark\n");
}

#[test]
fn rows_of_numbers() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    // A class by the sum of two columns of very different sizes.
    let row = |i: u32| {
        let (x, y) = (i * 37 % 101, i * 53 % 97);
        format!("{},{}e6,{}\n", f64::from(x) / 1e4, y, if x + y > 98 { "much" } else { "little" })
    };
    let table: String = std::iter::once("small,large,amount\n".to_owned()).chain((0..300).map(row)).collect();
    fs::write(at.join("table.csv"), &table).expect("a file");
    let train = "train --task classify --data table.csv --width 2 --batch 16 --iters 300";
    refused(
        at,
        &format!("{train} --net resnet"),
        "--network: table.csv has rows of numbers; train them with --network mlp",
    );
    let (out, _) = done(at, &format!("{train} --net mlp --out t"));
    assert!(out.starts_with("table.csv: 2 classes, for training: little "), "{out}");
    done(at, "predict t/checkpoint-000300.safetensors table.csv");
    let found = fs::read_to_string(at.join("predictions/classes.tsv")).expect("a table");
    let names = found.lines().skip(1).filter_map(|line| line.rsplit('\t').next());
    let truth = table.lines().skip(1).filter_map(|line| line.rsplit(',').next());
    let right = names.zip(truth).filter(|(name, truth)| name == truth).count();
    println!("{right} of 300 right");
    assert!(right > 280 && found.lines().count() == 301, "{right}");
    let report = fs::read_to_string(at.join("t/report.html")).expect("a report");
    assert!(!report.contains("id=\"samples\""), "rows have no pictures");
}

#[test]
fn masks_say_what_they_are_taken_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    fs::create_dir_all(at.join("road/images")).expect("a directory");
    fs::create_dir_all(at.join("road/masks")).expect("a directory");
    for i in 0..5 {
        RgbImage::from_fn(16, 16, |x, y| image::Rgb([u8::try_from(x * 9 + y).expect("small"), 0, i]))
            .save(at.join(format!("road/images/{i}.png")))
            .expect("a file");
        GrayImage::from_fn(16, 16, |x, _| Luma([if x < 4 { 0 } else { 255 }]))
            .save(at.join(format!("road/masks/{i}.png")))
            .expect("a file");
    }
    let train = "train --data road --batch 2 --width 2 --iters 40";
    let (out, _) = done(at, &format!("{train} --out t"));
    let line = "road: 2 classes by their values in the label images: 0 25.00 %, 255 75.00 %; no pixel is ignored\n";
    assert!(out.starts_with(line), "{out}");
    // Predictions are written in the label values of the data.
    done(at, "predict t/checkpoint-000040.safetensors road/images/0.png --out p");
    let mask = image::open(at.join("p/0-labels.png")).expect("a mask").into_luma8().into_raw();
    assert!(mask.contains(&255) && mask.iter().all(|value| [0, 255].contains(value)), "{mask:?}");
    refused(
        at,
        &format!("{train} --ignore 255"),
        "one class by their values in the label images: 0 25.00 %; 255 is ignored",
    );
    refused(at, &format!("{train} --label x"), "--label is for CSV files");
    refused(at, &format!("{train} --task classify"), "images with label images; use --task segnet");
    assert!(!at.join("train-1").exists());
}

#[test]
fn images_too_small_for_the_network_say_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    for folder in ["images", "masks"] {
        fs::create_dir_all(at.join("tiny").join(folder)).expect("a directory");
    }
    for i in 0..5 {
        RgbImage::new(5, 3).save(at.join(format!("tiny/images/{i}.png"))).expect("a file");
        let mask = GrayImage::from_fn(5, 3, |x, _| Luma([u8::from(x < 2)]));
        mask.save(at.join(format!("tiny/masks/{i}.png"))).expect("a file");
    }
    let train = "train --data tiny --batch 2 --width 2 --iters 1";
    refused(at, train, "the samples are too small for this network (--size HxW enlarges images)");
    done(at, &format!("{train} --size 16x16 --out enlarged"));
}
