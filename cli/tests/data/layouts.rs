//! Layouts of images as people have them: each is read, or refused in one line that says what is there.

use crate::files::{folder, grey, png, put, rgb};
use gradscale_cli::data::{DataError, DataOptions, Labelled, LoadNotes, Segmentation};
use image::{DynamicImage, GrayImage, ImageEncoder, Luma, codecs::jpeg::JpegEncoder};
use std::fs;
use tempfile::TempDir;

/// Loaded data of either kind: names of classes, training and test images, notes.
struct Loaded {
    classes: Vec<String>,
    counts: [usize; 2],
    notes: LoadNotes,
}

fn classified(dir: &TempDir, reading: &DataOptions) -> Result<Loaded, DataError> {
    let Labelled { classes, train, test, notes, .. } = Labelled::load(dir.path(), reading)?;
    Ok(Loaded { classes, counts: [train.count, test.count], notes })
}

fn segmented(dir: &TempDir, reading: &DataOptions) -> Result<Loaded, DataError> {
    let Segmentation { classes, train, test, notes, .. } = Segmentation::load(dir.path(), reading)?;
    Ok(Loaded { classes, counts: [train.count, test.count], notes })
}

/// Expected result of a layout: class names, numbers of training and test images, and a note; or a file and a cause.
enum Want<'a> {
    Read(&'a str, [usize; 2], &'a str),
    Refused(&'a str, &'a str),
}
use Want::{Read, Refused};

/// Checks a loaded set against what is wanted.
fn check(layout: &str, dir: &TempDir, loaded: Result<Loaded, DataError>, want: &Want<'_>) {
    match (loaded, want) {
        (Ok(loaded), Read(classes, counts, note)) => {
            assert_eq!((loaded.classes.join(" "), loaded.counts), ((*classes).to_owned(), *counts), "{layout}");
            let LoadNotes { taken, doubts, .. } = &loaded.notes;
            let said: Vec<String> = taken.iter().chain(doubts).cloned().chain(loaded.notes.left_out_line()).collect();
            assert!(said.iter().any(|line| line.contains(note)), "{layout}: {note:?} is not in {said:#?}");
            // Nothing is left out without a reason.
            assert!(note.starts_with("left out") || loaded.notes.left_out.is_empty(), "{layout}: {said:#?}");
        }
        (Err(error), Refused(file, cause)) => {
            let line = error.to_string();
            assert!(error.path().ends_with(file), "{layout}: {file:?} is not in: {line}");
            assert!(line.contains(cause) && !line.contains('\n'), "{layout}: {cause:?} is not in: {line}");
            assert!(error.path().starts_with(dir.path()), "{layout}: {line}");
        }
        (Ok(loaded), Refused(_, cause)) => {
            panic!("{layout}: read {:?} {:?}, not refused for {cause:?}", loaded.classes, loaded.counts)
        }
        (Err(error), Read(..)) => panic!("{layout}: {error}"),
    }
}

/// A data set with `count` images in each of these folders.
fn images(folders: &[(&str, u8)]) -> TempDir {
    let dir = folder(&[]);
    for (name, count) in folders {
        let images = dir.path().join(name);
        (0..*count).for_each(|i| put(&dir, &images.join(format!("{i}.png")).display().to_string(), &grey([10 * i; 6])));
    }
    dir
}

#[test]
fn folders_of_classes() {
    let fifth = "every fifth sample";
    for (folders, want) in [
        // Folders of parts.
        (&[("Train/a", 4), ("Train/b", 4), ("Test/a", 2)][..], Read("a b", [8, 2], "no test image of b")),
        (&[("training/a", 3), ("training/b", 3), ("validation/a", 1), ("validation/b", 1)], Read("a b", [6, 2], "")),
        (&[("train/a", 3), ("train/b", 3), ("TESTING/b", 2)], Read("a b", [6, 2], "no test image of a")),
        (&[("a", 3), ("b", 3), ("test/a", 1), ("test/b", 1)], Read("a b", [6, 2], "")),
        (
            &[("a", 5), ("b", 5), ("test", 4)],
            Read("a b", [8, 2], "left out: 4 images in test, which has no folder for each class; rename it if it is"),
        ),
        (&[("train/a", 5), ("train/b", 5), ("test", 4)], Read("a b", [8, 2], "left out: 4 images in test, which")),
        (
            &[("train/a", 5), ("train/b", 5), ("test/unknown", 4)],
            Refused("test/unknown", "the training set has no images of this class"),
        ),
        (
            &[("train/a", 5), ("train/b", 5), ("val/a", 1), ("test", 4)],
            Read("a b", [10, 1], "left out: 4 images in test"),
        ),
        (&[("train/a", 5), ("train/b", 5), ("test/A", 1)], Refused("test/A", "no images of this class, but of a")),
        (&[("train/a", 5), ("train/b", 5), ("extra/a", 2)], Read("a b", [8, 2], "left out: 2 images in extra")),
        (&[("control", 9), ("test", 9)], Refused("", "at least two classes; left out: 9 images in test")),
        // Too few images.
        (&[("a", 4), ("b", 3)], Refused("", "a class needs 5 images, and there are 4 of a, 3 of b; add images, or")),
        (
            &[("a", 9), ("b", 3)],
            Read("a b", [11, 1], "no test image of b, as classes of fewer than 5 images have none"),
        ),
        // Deeper folders, and folders around.
        (&[("a", 5), ("b", 5), ("a/more", 3)], Read("a b", [8, 2], "left out: 3 images in a/more")),
        (&[("a", 5), ("b", 5), ("c/more", 3)], Read("a b", [8, 2], "left out: 3 images in folders of c")),
        (
            &[("a/2020", 5), ("a/2021", 5), ("b/2020", 5)],
            Refused("a", "no images; found the folders 2020, 2021; 1 more"),
        ),
        (&[("train/a/2020", 5), ("train/b/2020", 5)], Refused("train/a", "no images; found the folder 2020")),
        (&[("set/a", 5), ("set/b", 5)], Refused("", "set looks like one; read ")),
        (&[("x/y/train/a", 5), ("x/y/train/b", 5)], Refused("", "y looks like one; read ")),
        (&[("images", 5)], Refused("", "one class, for training: images 4")),
        (&[("x/images", 5)], Refused("", "5 images in x without classes; `Labelled` needs a folder for each class")),
        (&[("", 5)], Refused("", "5 images without classes; `Labelled` needs a folder for each class")),
        (&[("train", 5)], Refused("", "5 images in train without classes")),
        (&[("a", 5), ("b", 5), ("", 2)], Read("a b", [8, 2], "left out: 2 images outside of the classes' folders")),
        (&[("a", 5), ("b", 5)], Read("a b", [8, 2], fifth)),
    ] {
        let dir = images(folders);
        check(&format!("{folders:?}"), &dir, classified(&dir, &DataOptions::default()), &want);
    }
    // A class without images in training, and one without any.
    let dir = images(&[("train/a", 2), ("train/b", 2), ("test/a", 1), ("test/c", 1)]);
    fs::create_dir(dir.path().join("train/c")).unwrap();
    let want = Refused("train/c", "no images of the class c for training");
    check("an empty class", &dir, classified(&dir, &DataOptions::default()), &want);
    fs::remove_dir_all(dir.path().join("test/c")).unwrap();
    let want = Read("a b", [4, 1], "left out: train/c (no images)");
    check("a folder without images", &dir, classified(&dir, &DataOptions::default()), &want);
    put(&dir, "train/a/notes.txt", b"x");
    let want = Read("a b", [4, 1], "left out: 1 other file (train/a/notes.txt); train/c (no images)");
    check("other files", &dir, classified(&dir, &DataOptions::default()), &want);
    // Images whose classes do not matter.
    let reading = DataOptions { without_classes: true, ..DataOptions::default() };
    for folders in [&[("", 5)][..], &[("images", 5)], &[("train", 4), ("test", 1)], &[("train", 4), ("test/x", 1)]] {
        let dir = images(folders);
        let counts = classified(&dir, &reading).map_err(|error| panic!("{folders:?}: {error}")).map(|one| one.counts);
        assert_eq!(counts.unwrap(), [4, 1], "{folders:?}");
    }
}

#[test]
fn files_that_cannot_be_read_are_counted_over_all_parts() {
    let skipping = DataOptions { skip_broken: true, ..DataOptions::default() };
    let dir = images(&[("train/a", 5), ("train/b", 5), ("test/a", 2)]);
    for name in ["train/a/x.bmp", "train/b/x.webp", "test/a/x.GIF"] {
        put(&dir, name, b"x");
    }
    put(&dir, "test/a/torn.png", &rgb()[..50]);
    let want = Refused("train/a/x.bmp", "but BMP; convert it; 3 more cannot be read; `skip_broken` skips them");
    check("four of 16", &dir, classified(&dir, &DataOptions::default()), &want);
    let want = Read("a b", [10, 2], "left out: ");
    let loaded = classified(&dir, &skipping).unwrap();
    let line = loaded.notes.left_out_line().unwrap();
    assert!(["x.bmp: ", "x.webp: ", "x.GIF: ", "torn.png: "].iter().all(|name| line.contains(name)), "{line}");
    check("four of 16, skipped", &dir, Ok(loaded), &want);
    for i in 0..9 {
        put(&dir, &format!("train/a/{i}.tif"), b"x");
    }
    check("13 of 25", &dir, classified(&dir, &skipping), &Read("a b", [10, 2], "left out: "));
    let line = classified(&dir, &skipping).unwrap().notes.left_out_line().unwrap();
    assert!(line.ends_with("; 8 more that cannot be read"), "{line}");
    // Advice that leaves nothing is not given.
    let dir = folder(&[("a/0.bmp", b"BM"), ("a/1.bmp", b"BM"), ("b/0.bmp", b"BM")]);
    for reading in [DataOptions::default(), skipping] {
        let want = Refused("", "none of 3 files can be read; the first is ");
        check("BMP only", &dir, classified(&dir, &reading), &want);
    }
}

#[cfg(unix)]
#[test]
fn pipes_and_broken_links_are_named() {
    let dir = images(&[("a", 5), ("b", 5)]);
    let pipe = std::process::Command::new("mkfifo").arg(dir.path().join("a/pipe.png")).status();
    assert!(pipe.expect("mkfifo").success());
    let want = Refused("a/pipe.png", "not a file but a pipe, socket or device");
    check("a pipe", &dir, classified(&dir, &DataOptions::default()), &want);
    fs::remove_file(dir.path().join("a/pipe.png")).unwrap();
    std::os::unix::fs::symlink("nowhere.png", dir.path().join("b/link.png")).unwrap();
    check("a link", &dir, classified(&dir, &DataOptions::default()), &Refused("b/link.png", "No such file"));
    // As a label image, a list and a table of classes.
    let dir = pairs("images", "labels", 5);
    for name in ["classes.tsv", "train.txt"] {
        let pipe = std::process::Command::new("mkfifo").arg(dir.path().join(name)).status();
        assert!(pipe.expect("mkfifo").success());
        check(name, &dir, segmented(&dir, &DataOptions::default()), &Refused(name, "not a file but a pipe"));
        fs::remove_file(dir.path().join(name)).unwrap();
    }
}

#[test]
fn tables_of_images() {
    let ten = |folder: &str| images(&[(folder, 10)]);
    let rows = |write: fn(u8) -> String, count: u8| (0..count).map(write).collect::<String>();
    let class = |i: u8| if i.is_multiple_of(2) { "cat" } else { "dog" };
    let with_class = |head: &str, name: fn(u8) -> String| -> Vec<u8> {
        let rows: String = (0..10).map(|i| format!("{},{}\n", name(i), class(i))).collect();
        format!("{head}{rows}").into_bytes()
    };
    let file: fn(u8) -> String = |i| format!("{i}.png");
    let id: fn(u8) -> String = |i| i.to_string();
    for (layout, folder, table, text) in [
        ("labels.csv", "images", "labels.csv", with_class("file,label\n", file)),
        ("paths", "images", "data.csv", with_class("path,label\n", |i| format!("images/{i}.png"))),
        ("ids without suffix", "train", "train.csv", with_class("id,breed\n", id)),
        ("beside the images", "", "labels.csv", with_class("id,breed\n", id)),
        ("without a header", "images", "labels.csv", with_class("", file)),
        ("a byte order mark", "images", "l.csv", with_class("\u{feff}file,label\n", file)),
    ] {
        let dir = ten(folder);
        put(&dir, table, &text);
        let want = Read("cat dog", [8, 2], "cat 4, dog 4");
        check(layout, &dir, classified(&dir, &DataOptions::default()), &want);
    }
    // Kaggle: an unlabelled test set, and an example of a submission with invented classes.
    let dir = images(&[("train", 10), ("test", 3)]);
    put(&dir, "train_labels.csv", &with_class("id,label\n", |i| i.to_string()));
    put(&dir, "sample_submission.csv", b"id,label\n0,cat\n1,cat\n2,cat\n");
    check(
        "Kaggle",
        &dir,
        classified(&dir, &DataOptions::default()),
        &Read("cat dog", [8, 2], "left out: 3 images that"),
    );
    // Parts by tables.
    let dir = ten("images");
    put(
        &dir,
        "train.csv",
        rows(|i| format!("{i}.png;{}\n", if i.is_multiple_of(2) { "cat" } else { "dog" }), 8).as_bytes(),
    );
    put(&dir, "test.csv", b"8.png;cat\n9.png;dog\n");
    check("two tables", &dir, classified(&dir, &DataOptions::default()), &Read("cat dog", [8, 2], "cat 4, dog 4"));
    // The same names in each part mean the images of the part.
    let dir = images(&[("train", 8), ("test", 4)]);
    let named = |count: u8| rows(|i| format!("{i},{}\n", if i.is_multiple_of(2) { "cat" } else { "dog" }), count);
    put(&dir, "train.csv", named(8).as_bytes());
    put(&dir, "test.csv", named(4).as_bytes());
    let want = Read("cat dog", [8, 4], "cat 4, dog 4");
    check("the same names in each part", &dir, classified(&dir, &DataOptions::default()), &want);
    let dir = ten("images");
    put(
        &dir,
        "train.csv",
        rows(|i| format!("{i}.png;{}\n", if i.is_multiple_of(2) { "cat" } else { "dog" }), 8).as_bytes(),
    );
    put(&dir, "test.csv", b"7.png;cat\n9.png;dog\n");
    let want = Refused("test.csv", "line 1: images/7.png is in train.csv too; remove it from one");
    check("a name in both tables", &dir, classified(&dir, &DataOptions::default()), &want);
    for (text, cause) in [
        (&b"file,label\n0.png,cat\n1.png,dog\n99.png,dog\n"[..], "line 4: no image 99.png"),
        (b"file,label\n0.png,cat\n1.png,dog\n2.png,\n", "line 4: no class of 2.png"),
        (b"file,label\n0.png,cat\n1.png,dog\n0.png,dog\n", "line 4: images/0.png is listed twice"),
        (b"file,height,breed\n0.png,1,cat\n1.png,2,dog\n", "line 1: which column has the classes? `label` names"),
    ] {
        let dir = ten("images");
        put(&dir, "labels.csv", text);
        check(cause, &dir, classified(&dir, &DataOptions::default()), &Refused("labels.csv", cause));
    }
    let dir = ten("images");
    put(
        &dir,
        "labels.csv",
        &[&b"file,height,breed\n"[..], rows(|i| format!("{i}.png,1,{}\n", i % 2), 10).as_bytes()].concat(),
    );
    let reading = DataOptions { label: Some("breed".into()), ..DataOptions::default() };
    check("--label", &dir, classified(&dir, &reading), &Read("0 1", [8, 2], "0 4, 1 4"));
    // As many classes as images, in a table for each part.
    let dir = ten("images");
    put(&dir, "train.csv", rows(|i| format!("{i}.png,name {i}\n"), 9).as_bytes());
    put(&dir, "test.csv", b"9.png,name 0\n");
    let want = Read(
        "name 0 name 1 name 2 name 3 name 4 name 5 name 6 name 7 name 8",
        [9, 1],
        "9 classes in 10 images: do their names or folders name single images?",
    );
    check("a class for each image", &dir, classified(&dir, &DataOptions::default()), &want);
}

/// Images with label images of two classes, called 0, 1, …
fn pairs(images: &str, labels: &str, count: u8) -> TempDir {
    let dir = folder(&[]);
    (0..count).for_each(|i| pair(&dir, images, labels, i));
    dir
}

fn pair(dir: &TempDir, images: &str, labels: &str, number: u8) {
    put(dir, &format!("{images}/{number}.png"), &rgb());
    put(dir, &format!("{labels}/{number}.png"), &grey([0, 1, number % 2, 0, 1, 1]));
}

#[test]
fn folders_of_label_images() {
    let read = |counts| Read("0 1", counts, "2 classes by their values");
    for (parts, want) in [
        (
            &[("images/training", "annotations/training", 3), ("images/validation", "annotations/validation", 2)][..],
            read([3, 2]),
        ),
        (&[("Train/Images", "Train/Masks", 3), ("Test/Images", "Test/Masks", 2)], read([3, 2])),
        (&[("images/train", "labels", 3), ("images/val", "labels", 5)], read([3, 5])),
        (&[("train", "trainannot", 3), ("val", "valannot", 1), ("test", "testannot", 2)], read([3, 2])),
        (&[("train", "train_labels", 3), ("val", "val_labels", 2)], read([3, 2])),
        (
            &[("train", "trainannot", 5), ("test", "x", 2)],
            Read("0 1", [4, 1], "left out: 2 images in test, which have no label images"),
        ),
        (
            &[("train/images", "train/masks", 5), ("test/images", "x", 2)],
            Read("0 1", [4, 1], "left out: 2 images in test/images, which have no label images"),
        ),
        (
            &[("images/train", "masks/train", 5), ("images/test", "x", 2)],
            Read("0 1", [4, 1], "left out: 2 images in images/test, which have no label images"),
        ),
        (
            &[("images", "labels", 4)],
            Refused("images", "4 images: every fifth is held out for evaluation, so 5 are needed"),
        ),
        (
            &[("images", "others", 5)],
            Refused("", "images, but no folder of label images; expected one called labels, masks"),
        ),
        (
            &[("images/more", "labels", 5)],
            Refused("images", "no images, but PNG or JPEG files is needed; found the folder more"),
        ),
        (
            &[("images", "labels", 5), ("images/more", "labels", 2)],
            Read("0 1", [4, 1], "left out: 2 images in images/more"),
        ),
        (&[("set/images", "set/labels", 5)], Refused("", "set looks like one; read ")),
        (
            &[("VOCdevkit/VOC2012/JPEGImages", "VOCdevkit/VOC2012/SegmentationClass", 5)],
            Refused("", "VOC2012 looks like one; read"),
        ),
        (&[("photos", "other", 5)], Refused("", "has a folder of images for each class; use `Labelled`")),
    ] {
        let dir = folder(&[]);
        for (images, labels, count) in parts {
            (0..*count).for_each(|i| pair(&dir, images, labels, i));
        }
        check(&format!("{parts:?}"), &dir, segmented(&dir, &DataOptions::default()), &want);
    }
    // Cityscapes, whose labels for test are not public.
    let dir = folder(&[]);
    for (part, city, count) in
        [("train", "aachen", 2), ("train", "bochum", 1), ("val", "lindau", 2), ("test", "bonn", 2)]
    {
        for i in 0..count {
            put(&dir, &format!("leftImg8bit/{part}/{city}/{city}_{i}_leftImg8bit.png"), &rgb());
            for end in ["labelIds", "instanceIds", "color"] {
                let labels = grey([7, 33, if end == "labelIds" { 3 } else { 99 }, 7, 255, 7]);
                put(&dir, &format!("gtFine/{part}/{city}/{city}_{i}_gtFine_{end}.png"), &labels);
            }
        }
    }
    let names = "road sidewalk building wall fence pole traffic light traffic sign vegetation terrain sky person rider car \
                 truck bus train motorcycle bicycle";
    let want = Read(names, [3, 2], "left out: 2 images in leftImg8bit/test, whose labels are not public");
    check("Cityscapes", &dir, segmented(&dir, &DataOptions::default()), &want);
    let data = Segmentation::load(dir.path(), &DataOptions::default()).unwrap();
    assert_eq!((data.train.labels.memory()[..6].to_vec(), data.ignore), (vec![0, 18, 255, 0, 255, 0], Some(255)));
    assert_eq!((data.values.len(), data.values[18], data.colours[18]), (19, 33, [119, 11, 32]));
    let note = &data.notes.taken[0];
    assert!(note.contains("19 classes by") && note.ends_with("; 3, 255 are ignored (33.33 %)"), "{note}");
    // Other classes by a table, or by what occurs.
    let reading = DataOptions { ignore: Some("255".parse().unwrap()), ..DataOptions::default() };
    let want = Read("3 7 33", [3, 2], "left out: 2 images in leftImg8bit/test");
    check("all of Cityscapes", &dir, segmented(&dir, &reading), &want);
    let want = Refused("", "images with label images; use `Segmentation`");
    check("Cityscapes for classes", &dir, classified(&dir, &DataOptions::default()), &want);
    fs::remove_file(dir.path().join("gtFine/train/aachen/aachen_1_gtFine_labelIds.png")).unwrap();
    let want = Refused("aachen_1_gtFine_labelIds.png", "missing; no label image for ");
    check("a missing label image", &dir, segmented(&dir, &DataOptions::default()), &want);
    // Label images in formats that change values, and files that belong nowhere.
    let dir = pairs("images", "labels", 6);
    put(&dir, "labels/alone.png", &grey([0; 6]));
    check(
        "a label image alone",
        &dir,
        segmented(&dir, &DataOptions::default()),
        &Read("0 1", [5, 1], "left out: 1 label image without an image in labels"),
    );
    fs::remove_file(dir.path().join("labels/0.png")).unwrap();
    for (name, cause) in [
        ("labels/0.jpg", "a JPEG image, which changes label values; save label images as PNG"),
        ("labels/0.bmp", "a BMP image; save label images as PNG"),
    ] {
        put(&dir, name, b"x");
        check(name, &dir, segmented(&dir, &DataOptions::default()), &Refused(name, cause));
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    put(&dir, "labels/0.png", b"\xff\xd8\xff\xe0");
    check(
        "JPEG called PNG",
        &dir,
        segmented(&dir, &DataOptions::default()),
        &Refused("labels/0.png", "a JPEG image, which changes"),
    );
    put(&dir, "labels/0.PNG", &grey([0, 1, 0, 1, 0, 1]));
    fs::remove_file(dir.path().join("labels/0.png")).unwrap();
    check(
        "capitals",
        &dir,
        segmented(&dir, &DataOptions::default()),
        &Read("0 1", [5, 1], "left out: 1 label image without"),
    );
}

#[test]
fn lists_of_label_images() {
    let own = |train: &'static str, test: &'static str| [("train.txt", train), ("test.txt", test)];
    let voc = |name: &str| format!("ImageSets/Segmentation/{name}.txt");
    let listed = |counts| Read("0 1", counts, "left out: ");
    for (layout, lists, want) in [
        ("names", own("0\n1\n", "2\n"), listed([2, 1])),
        ("names with suffix", own("0.png\n1.png\n", "2.PNG\n"), listed([2, 1])),
        ("paths and columns", own("/x/train/0.png /x/annot/0.png\nimages/1.png 1\n", "2\n"), listed([2, 1])),
        ("a byte order mark", own("\u{feff}0\n1\n", "2\n"), listed([2, 1])),
        ("CamVid", own("/SegNet/train/0.png /SegNet/trainannot/0.png;\n1\n", "2\n"), listed([2, 1])),
        (
            "a name in both",
            own("0\n1\n2\n", "2.png\n1\n"),
            Refused("test.txt", "line 1: 2.png is in train.txt too, as 1 more; remove it"),
        ),
        ("a name twice", own("0\n1\n0.png\n", "2\n"), Refused("train.txt", "line 3: 0.png is listed twice")),
        ("a name without a file", own("0\n9\n", "2\n"), Refused("images/9", "missing; train.txt lists it in line 2")),
        (
            "an empty list",
            own("0\n1\n", "\n"),
            Refused("test.txt", "no names; write the name of an image in each line"),
        ),
    ] {
        let dir = pairs("images", "labels", 6);
        lists.iter().for_each(|(name, text)| put(&dir, name, text.as_bytes()));
        check(layout, &dir, segmented(&dir, &DataOptions::default()), &want);
    }
    for (layout, lists, want) in [
        ("one list", &[("train", "0\n1\n")][..], Refused("test.txt", "missing; train.txt lists the training images")),
        (
            "VOC",
            &[("train", "0\n1\n"), ("val", "2\n3\n"), ("trainval", "0\n1\n2\n3\n")],
            Read("0 1", [2, 2], "left out: 2 images that no list names"),
        ),
        ("VOC, trainval", &[("trainval", "0\n1\n2\n"), ("test", "3\n4\n5\n")], Read("0 1", [3, 3], "2 classes")),
        (
            "VOC, a name in both",
            &[("train", "0\n1\n"), ("val", "1\n")],
            Refused("val.txt", "line 1: 1 is in train.txt too"),
        ),
    ] {
        let dir = pairs("JPEGImages", "SegmentationClass", 6);
        lists.iter().for_each(|(name, text)| put(&dir, &voc(name), text.as_bytes()));
        check(layout, &dir, segmented(&dir, &DataOptions::default()), &want);
    }
    let dir = pairs("images", "labels", 6);
    put(&dir, "train.txt", b"\xff\xfe0\x00\n\x001\x00\n\x00");
    put(&dir, "test.txt", b"\xfe\xff\x002\x00\n");
    check("UTF-16", &dir, segmented(&dir, &DataOptions::default()), &listed([2, 1]));
    let dir = pairs("images", "labels", 6);
    put(&dir, "train.txt", b"0\x00\n\x001\x00\n\x002\x00\n\x00");
    put(&dir, "test.txt", b"1\n");
    let refused = segmented(&dir, &DataOptions::default()).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(
        refused.contains("train.txt: ") && refused.contains("looks like UTF-16 without a byte order mark"),
        "{refused}"
    );
}

#[test]
fn smoothed_and_compressed_label_images_are_questioned() {
    // A disc of one class on another, as it is and with edges between them.
    let disc = |smooth: bool| {
        let value = |at: i32| {
            let (row, column) = (at / 48 - 24, at % 48 - 24);
            let inside = (18.0 - f64::from(row * row + column * column).sqrt()).clamp(0.0, 1.0);
            // Rounded to 16 steps, as resized masks have.
            if smooth { (inside * 15.0).round() } else { inside.round() }
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 15")]
        let pixels: Vec<u8> = (0..48 * 48).map(|at| 17 * value(at) as u8).collect();
        pixels
    };
    // A mask of thin things on several areas is what it is.
    let poles: Vec<u8> = (0..48 * 48_u32)
        .map(|at| match (at / 48, at % 48) {
            (_, 5 | 17) => 6,
            (8..40, 30) => 7,
            (0..12, _) => 0,
            (12..24, _) => 1,
            (24..36, _) => 2,
            (_, 0..24) => 3,
            (_, _) => 4,
        })
        .collect();
    for (pixels, question) in [
        (disc(true), Some("classes are only lines or single pixels")),
        (disc(false).iter().map(|value| value / 17).collect(), None),
        (poles, None),
    ] {
        let rows: Vec<&[u8]> = pixels.chunks_exact(48).collect();
        let (label, image) = (png([48, 48], 8, 0, None, &rows), png([48, 48], 8, 0, None, &rows));
        let dir = folder(&[]);
        for i in 0..5 {
            put(&dir, &format!("images/{i}.png"), &image);
            put(&dir, &format!("labels/{i}.png"), &label);
        }
        let doubts = segmented(&dir, &DataOptions::default()).unwrap().notes.doubts;
        match question {
            Some(question) => assert!(doubts.len() == 1 && doubts[0].contains(question), "{doubts:?}"),
            None => assert!(doubts.is_empty(), "{doubts:?}"),
        }
    }
}

/// A JPEG file of an image that viewers turn by this EXIF orientation before they show it.
fn jpeg(stored: &DynamicImage, orientation: u8) -> Vec<u8> {
    let mut file = Vec::new();
    let pixels = stored.to_luma8();
    let encoder = JpegEncoder::new_with_quality(&mut file, 100);
    encoder.write_image(&pixels, pixels.width(), pixels.height(), image::ExtendedColorType::L8).expect("memory");
    // The segment APP1 behind the first marker: TIFF, little-endian, with one entry, the orientation.
    let entry = [0x12, 0x01, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0];
    let exif = [&b"Exif\0\0II*\0\x08\0\0\0\x01\0"[..], &entry, &[0; 4]].concat();
    let length = u16::try_from(exif.len() + 2).expect("small").to_be_bytes();
    file.splice(2..2, [&[0xff, 0xe1], &length[..], &exif].concat());
    file
}

/// All eight orientations of one shown image are the same image, of the same size.
#[test]
fn images_are_turned_as_exif_says() {
    let level = |x: u32, y: u32| u8::try_from((x / 8) * 30 + (y / 8) * 90).unwrap();
    let shown = DynamicImage::from(GrayImage::from_fn(32, 16, |x, y| Luma([level(x, y)])));
    let stored = [
        shown.clone(),
        shown.fliph(),
        shown.rotate180(),
        shown.flipv(),
        shown.fliph().rotate270(),
        shown.rotate270(),
        shown.fliph().rotate90(),
        shown.rotate90(),
    ];
    let dir = folder(&[]);
    let label = [[0; 16], [1; 16]].concat();
    for (i, stored) in (1..).zip(&stored) {
        for class in ["a", "b"] {
            put(&dir, &format!("sorted/{class}/{i}.jpg"), &jpeg(stored, i));
        }
        put(&dir, &format!("pixels/images/{i}.jpg"), &jpeg(stored, i));
        put(&dir, &format!("pixels/labels/{i}.png"), &png([16, 32], 8, 0, None, &[&label[..]; 16]));
    }
    let near = |pixels: &[u8], channels: usize, name: &str| {
        assert_eq!(pixels.len(), 16 * 32 * channels, "{name}");
        for (at, pixel) in pixels.chunks_exact(channels).enumerate() {
            let (x, y) = (u32::try_from(at % 32).unwrap(), u32::try_from(at / 32).unwrap());
            assert!(pixel[0].abs_diff(level(x, y)) < 12, "{name}, row {y}, column {x}: {pixel:?}");
        }
    };
    let sorted = Labelled::load(dir.path().join("sorted"), &DataOptions::default()).unwrap();
    assert_eq!((sorted.train.height, sorted.train.width, sorted.train.count), (16, 32, 14));
    (0..14).for_each(|i| near(&sorted.train.image(i).unwrap(), 1, &format!("class image {i}")));
    let pixels = Segmentation::load(dir.path().join("pixels"), &DataOptions::default()).unwrap();
    (0..7).for_each(|i| near(&pixels.train.images.get(i, 16 * 32 * 3).unwrap(), 3, &format!("image {i}")));
    let read = |i: u8| {
        let path = dir.path().join(format!("pixels/images/{i}.jpg"));
        gradscale_cli::data::Picture::read(&path, None).unwrap()
    };
    (1..=8).for_each(|i| near(&read(i).pixels, 3, &format!("predicted image {i}")));
    // Labels for the image as it is stored do not fit the image that is shown.
    put(&dir, "pixels/labels/6.png", &png([32, 16], 8, 0, None, &[&[0; 16][..]; 32]));
    let error = Segmentation::load(dir.path().join("pixels"), &DataOptions::default()).unwrap_err().to_string();
    assert!(
        error.contains("6.png: 32 × 16 (rows × columns), unlike its image after the turn that its EXIF"),
        "{error}"
    );
}
