//! User data on the command line: messages about them, training, resume and prediction.

mod checkpoint;

mod command;

use command::without_progress;
use image::{GrayImage, Luma, RgbImage};
use std::{fs, path::Path, process::Command};

fn gradscale(directory: &Path, arguments: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradscale"));
    let output =
        command.args(arguments.split_whitespace()).current_dir(directory).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), without_progress(&output.stderr))
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
    assert!(torn.starts_with("gradscale: left out: ") && torn.contains("lights/dark/torn.jpg: "), "{torn}");
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
    // The directory of a training stands for its newest checkpoint that is whole.
    assert_eq!(done(at, "predict whole new.png lights/dark/0.png"), (out.clone(), String::new()));
    fs::write(at.join("broken/checkpoint-000060.safetensors"), "x").expect("a file");
    let (same, error) = done(at, "predict broken new.png lights/dark/0.png");
    assert!(same == out && error.contains("broken/checkpoint-000060.safetensors: "), "{same}{error}");
    refused(at, "predict lights new.png", "lights: no checkpoint; give the directory of a training");
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
    let (out, _) = done(at, "predict t/checkpoint-000300.safetensors table.csv");
    assert!(out.starts_with("table.csv: 300 rows: ") && out.ends_with("\npredictions/classes.tsv\n"), "{out}");
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
    let too_small = |arguments: &str| -> usize {
        let (code, _, error) = gradscale(at, arguments);
        let least = error.split("at least ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        let least = least.unwrap_or_else(|| panic!("{arguments}: {error}"));
        let words = format!(
            "which takes images of at least {least} × {least}; --size {least}x{least} enlarges images that are PNG or \
             JPEG files\n"
        );
        assert!(code == Some(2) && error.lines().count() == 1 && error.ends_with(&words), "{arguments}: {error}");
        assert!(error.contains(" × ") && error.contains(" (rows × columns) is too small for "), "{error}");
        least
    };
    // Made-up digits have one size, which no option changes.
    let refusal = "gradscale: synthetic: 28 × 28 (rows × columns) is too small for vgg-16, which takes images of at least 32 × 32; \
                   made-up images have one size; --data reads yours\n";
    let (code, _, error) = gradscale(at, "train --network vgg-16 --size 32x32 --iters 1 --out vgg");
    assert_eq!((code, error.as_str()), (Some(2), refusal));
    for network in ["segnet-basic", "segnet"] {
        let train = format!("{train} --network {network} --out {network}");
        refused(at, &train, "tiny/images/0.png: 3 × 5 (rows × columns) is too small for");
        let least = too_small(&train);
        assert_eq!(too_small(&format!("{train} --size {0}x{0}", least - 1)), least, "{network}");
        // Nothing is there that stands in the way of the next try, which works with the named size.
        done(at, &format!("{train} --size {least}x{least}"));
    }
    lights(at);
    fs::remove_file(at.join("lights/dark/torn.jpg")).expect("a file");
    let train = "train --task classify --data lights --size 1x9 --batch 2 --width 2 --iters 1 --network";
    // Networks for larger images, by the first file.
    for network in ["alexnet", "vgg-16"] {
        refused(at, &format!("{train} {network}"), "lights/bright/0.png: 1 × 9 (rows × columns) is too small for");
        too_small(&format!("{train} {network}"));
    }
}

/// Rows whose class is the larger of two numbers.
fn numbers(rows: u32) -> String {
    let row = |i: u32| {
        let (x, y) = (i * 37 % 101, i * 53 % 97);
        format!("{x},{y},{}\n", if x > y { "first" } else { "second" })
    };
    std::iter::once("x,y,class\n".to_owned()).chain((0..rows).map(row)).collect()
}

#[test]
fn defaults_fit_the_data() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    fs::write(at.join("rows.csv"), numbers(25)).expect("a file");
    let train = "train --task classify --data rows.csv --width 2 --iters 2";
    // Rows are for a perceptron, and a batch has no more of them than there are.
    let (out, _) = done(at, &format!("{train} --out run"));
    assert!(out.contains("rows of numbers: --network mlp (resnet-8 is for images)\n"), "{out}");
    assert!(out.contains("batch 20: all 20 training images, as rows.csv has fewer than 64\n"), "{out}");
    let (out, _) = done(at, &format!("{train} --micro-batches 8 --out parts"));
    assert!(out.contains("batch 16: 16 training images, as rows.csv has fewer than 64\n"), "{out}");
    done(at, "train --resume run --iters 4");
    let (out, _) =
        done(at, "compare --task classify --data rows.csv --width 2 --iters 2 --methods fp32 --out compared");
    assert!(out.contains("batch 20: all 20 training images"), "{out}");
    done(at, "window --task classify --data rows.csv --width 2");
    // Choices of the user are kept.
    refused(
        at,
        &format!("{train} --batch 64"),
        "--batch 64: rows.csv has only 20 training images; choose at most that",
    );
    refused(at, &format!("{train} --network resnet-8"), "--network: rows.csv has rows of numbers");
    fs::create_dir(at.join("folder")).expect("a directory");
    fs::write(at.join("folder/train.csv"), numbers(30)).expect("a file");
    fs::write(at.join("folder/test.csv"), numbers(20)).expect("a file");
    done(at, "train --task classify --data folder --width 2 --iters 2 --out folders");
    let huge = numbers(20).replacen("37,53", "1e300,-1e999", 1);
    fs::write(at.join("huge.csv"), huge).expect("a file");
    refused(
        at,
        "train --task classify --data huge.csv",
        "huge.csv: line 3: 1e300 in the column x is too large for f32",
    );
    // As many classes as rows are a question.
    let named: String = (0..60).map(|i| format!("{i},{}\n", i % 50)).collect();
    fs::write(at.join("named.csv"), format!("x,name\n{named}")).expect("a file");
    let (_, error) = done(at, "train --task classify --data named.csv --width 2 --iters 1 --out named");
    assert!(error.contains("gradscale: warning: named.csv: 50 classes in 60 rows: "), "{error}");
}

#[test]
fn a_resume_has_the_data_of_its_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    lights(at);
    fs::remove_file(at.join("lights/dark/torn.jpg")).expect("a file");
    fs::write(at.join("rows.csv"), numbers(100)).expect("a file");
    done(at, "train --task classify --net mlp --width 2 --batch 4 --data lights --size 8x8 --iters 2 --out images");
    done(at, "train --task classify --width 2 --batch 4 --data rows.csv --iters 2 --out rows");
    let [image, other] = ["lights/dark/0.png", "lights/dark/zzz.png"].map(|name| at.join(name));
    let bytes = fs::read(&image).expect("a file");
    let again = "train --resume images --iters 4";
    for (change, undo, words) in [
        (
            (&|| fs::write(&other, &bytes)) as &dyn Fn() -> std::io::Result<()>,
            (&|| fs::remove_file(&other)) as &dyn Fn() -> std::io::Result<()>,
            "lights: changed since this training began (40 files then, 41 now); restore the files",
        ),
        (&|| fs::rename(&image, &other), &|| fs::rename(&other, &image), "(names, order or sizes of its 40 files)"),
        (
            &|| GrayImage::new(9, 9).save(&image).map_err(std::io::Error::other),
            &|| fs::write(&image, &bytes),
            "(names, order or sizes of its 40 files)",
        ),
    ] {
        change().expect("a file");
        refused(at, again, words);
        undo().expect("a file");
    }
    // Files that no training reads do not matter, nor does a new time of change.
    fs::write(at.join("lights/notes.txt"), "notes").expect("a file");
    fs::write(&image, &bytes).expect("a file");
    done(at, again);
    fs::write(at.join("rows.csv"), numbers(101)).expect("a file");
    refused(at, "train --resume rows --iters 4", "rows.csv: changed since this training began");
    fs::write(at.join("rows.csv"), numbers(100)).expect("a file");
    done(at, "train --resume rows --iters 4");
}

#[test]
fn archives_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let mut tar = vec![0; 600];
    tar[257..262].copy_from_slice(b"ustar");
    for (name, bytes, words) in [
        ("d.zip", &b"PK\x03\x04rest"[..], "d.zip: a ZIP archive; unpack it"),
        ("d.csv", b"PK\x03\x04rest", "d.csv: a ZIP archive; unpack it"),
        ("d.xlsx", b"PK\x03\x04rest", "d.xlsx: a spreadsheet; save it as CSV"),
        ("d.tgz", b"\x1f\x8b\x08rest", "d.tgz: a gzip file; unpack it"),
        ("d.tar", &tar, "d.tar: a tar archive; unpack it"),
        ("d.7z", b"7z\xbc\xaf\x27\x1crest", "d.7z: a 7z archive; unpack it"),
        ("d.parquet", b"PAR1rest", "d.parquet: a Parquet file; save it as CSV"),
    ] {
        fs::write(at.join(name), bytes).expect("a file");
        for task in ["classify", "segnet", "language"] {
            refused(at, &format!("train --task {task} --data {name}"), words);
        }
    }
    fs::create_dir(at.join("downloads")).expect("a directory");
    fs::write(at.join("downloads/dogs.zip"), b"PK\x03\x04rest").expect("a file");
    for task in ["classify", "segnet"] {
        refused(at, &format!("train --task {task} --data downloads"), ": dogs.zip is an archive; unpack it");
    }
}

/// Images without any classes are enough for a generator.
#[cfg(feature = "generation")]
#[test]
fn a_flat_folder_is_enough_to_generate() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    fs::create_dir(at.join("flat")).expect("a directory");
    for i in 0..10 {
        GrayImage::from_pixel(8, 8, Luma([20 * i])).save(at.join(format!("flat/{i}.png"))).expect("a file");
    }
    let (out, _) = done(at, "train --task generate --data flat --width 2 --iters 1 --out g");
    assert!(out.contains("batch 8: all 8 training images, as flat has fewer than 64"), "{out}");
    refused(at, "train --task classify --data flat", ": 10 images without classes; --task classify needs a folder");
}
