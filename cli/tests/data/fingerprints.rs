//! Files that a data set was read from: each of them counts, and no other.

use crate::files::{folder, grey, put, rgb, wav};
use gradscale_cli::data::{
    Boxed, Corpus, DataError, DataOptions, Fingerprint, Labelled, Parallel, Segmentation, Speech,
};
use std::{fs, path::Path};
use tempfile::TempDir;

/// Files of a layout: names and contents.
type Files<'a> = Vec<(&'a str, &'a [u8])>;
type Load = fn(&Path) -> Result<Option<Fingerprint>, DataError>;

fn classes(dir: &Path) -> Result<Option<Fingerprint>, DataError> {
    Ok(Labelled::load(dir, &DataOptions::default())?.notes.files)
}

fn pixels(dir: &Path) -> Result<Option<Fingerprint>, DataError> {
    Ok(Segmentation::load(dir, &DataOptions::default())?.notes.files)
}

fn boxes(dir: &Path) -> Result<Option<Fingerprint>, DataError> {
    Ok(Boxed::load(dir, &DataOptions { validation: true, ..DataOptions::default() })?.notes.files)
}

fn speech(dir: &Path) -> Result<Option<Fingerprint>, DataError> {
    Ok(Speech::load(dir, &DataOptions::default())?.notes.files)
}

fn sentences(dir: &Path) -> Result<Option<Fingerprint>, DataError> {
    let reading = DataOptions { validation: true, pieces: Some(64), ..DataOptions::default() };
    Ok(Parallel::load(dir, &reading)?.notes.files)
}

fn text(dir: &Path) -> Result<Option<Fingerprint>, DataError> {
    Ok(Corpus::load(dir, &DataOptions { window: Some(4), ..DataOptions::default() })?.notes.files)
}

/// Sets the permissions of a folder, where there are such.
fn set_mode(path: &Path, mode: u32) {
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("permissions");
    #[cfg(not(unix))]
    let _ = (path, mode);
}

const XML: &str = "<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax>\
                   </bndbox></object></annotation>";
const COCO: &str = r#"{"images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b.png"}], "annotations":
    [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 2, 2]}, {"image_id": 2, "category_id": 1, "bbox": [0, 0, 2, 2]}],
    "categories": [{"id": 1, "name": "cat"}]}"#;
const ENGLISH: &str = "one two three\nfour five six";

/// Layouts with the content of their files. Those that begin with a minus are not read.
#[test]
fn every_file_that_is_read_counts() {
    let (image, label, sound) = (rgb(), grey([0, 1, 0, 1, 0, 1]), wav());
    let (image, label, sound) = (&image[..], &label[..], &sound[..]);
    let other = ("-notes.md", &b"x"[..]);
    let tree = "abcdefghij".chars().map(|name| format!("train/{name}.png")).collect::<Vec<_>>();
    let each: [(&str, Load, Files<'_>); 13] = [
        (
            "a folder for each class",
            classes,
            vec![("train/a/0.png", image), ("train/b/0.png", image), ("test/a/0.png", image), other],
        ),
        (
            "tables of images",
            classes,
            tree.iter()
                .map(|name| (name.as_str(), image))
                .chain([
                    ("train.csv", &b"a,x\nb,y\nc,x\nd,y\ne,x\nf,y\ng,x\nh,y\ni,x\nj,y\n"[..]),
                    ("-sample_submission.csv", b"a,x\n"),
                ])
                .collect(),
        ),
        ("rows", classes, vec![("train.csv", b"x,c\n1,a\n2,b\n"), ("test.csv", b"x,c\n1,a\n"), other]),
        (
            "label images, with classes and an order",
            pixels,
            vec![
                ("images/train/0.png", image),
                ("labels/train/0.png", label),
                ("images/test/1.png", image),
                ("labels/test/1.png", label),
                ("train.txt", b"0\n"),
                ("classes.tsv", b"id\tname\n0\ta\n1\tb\n"),
                other,
            ],
        ),
        (
            "label images by lists",
            pixels,
            vec![
                ("images/0.png", image),
                ("masks/0.png", label),
                ("images/1.png", image),
                ("masks/1.png", label),
                ("-images/2.png", image),
                ("-masks/2.png", label),
                ("train.txt", b"0\n"),
                ("test.txt", b"1\n"),
            ],
        ),
        (
            "PASCAL VOC",
            boxes,
            vec![
                ("JPEGImages/0.png", image),
                ("Annotations/0.xml", XML.as_bytes()),
                ("JPEGImages/1.png", image),
                ("Annotations/1.xml", XML.as_bytes()),
                ("ImageSets/Main/train.txt", b"0\n"),
                ("ImageSets/Main/val.txt", b"1\n"),
                ("classes.txt", b"cat\n"),
                ("-ImageSets/Main/cat_train.txt", b"0 1\n"),
                ("-SegmentationClass/0.png", label),
            ],
        ),
        (
            "labelImg",
            boxes,
            vec![
                ("train/0.png", image),
                ("train/0.xml", XML.as_bytes()),
                ("val/1.png", image),
                ("val/1.xml", XML.as_bytes()),
                ("test/2.png", image),
                ("test/2.xml", XML.as_bytes()),
                ("-train/3.png", image),
                other,
            ],
        ),
        (
            "COCO",
            boxes,
            vec![
                ("train/a.png", image),
                ("train/b.png", image),
                ("train/_annotations.coco.json", COCO.as_bytes()),
                ("test/a.png", image),
                ("test/b.png", image),
                ("test/_annotations.coco.json", COCO.as_bytes()),
                other,
            ],
        ),
        (
            "YOLO",
            boxes,
            vec![
                ("images/train/a.png", image),
                ("images/train/b.png", image),
                ("labels/train/b.txt", b"0 0.5 0.5 0.5 0.5\n"),
                ("images/val/a.png", image),
                ("labels/val/a.txt", b"0 0.5 0.5 0.5 0.5\n"),
                ("data.yaml", b"names: [cat]\n"),
                other,
            ],
        ),
        (
            "recordings by lists",
            speech,
            vec![
                ("recordings/a.wav", sound),
                ("recordings/b.wav", sound),
                ("-recordings/c.wav", sound),
                ("transcripts.tsv", b"a\tx\nb\ty\n"),
                ("train.txt", b"a\n"),
                ("test.txt", b"b\n"),
                other,
            ],
        ),
        (
            "sentences",
            sentences,
            vec![
                ("train.en", ENGLISH.as_bytes()),
                ("train.de", ENGLISH.as_bytes()),
                ("dev.en", ENGLISH.as_bytes()),
                ("dev.de", ENGLISH.as_bytes()),
                ("test_2016.en", ENGLISH.as_bytes()),
                ("test_2016.de", ENGLISH.as_bytes()),
                ("-test_2017.en", ENGLISH.as_bytes()),
                ("-test_2017.de", ENGLISH.as_bytes()),
            ],
        ),
        ("texts in capitals", text, vec![("TRAIN.TXT", &[b'a'; 40]), ("test.txt", &[b'a'; 40]), other]),
        ("one text", text, vec![("all.tokens", &[b'a'; 200]), other]),
    ];
    for (layout, load, files) in each {
        let names: Vec<&str> = files.iter().map(|(name, _)| name.trim_start_matches('-')).collect();
        let dir = folder(&[]);
        names.iter().zip(&files).for_each(|(name, (_, bytes))| put(&dir, name, bytes));
        let measure = |dir: &TempDir| {
            load(dir.path()).unwrap_or_else(|error| panic!("{layout}: {error}")).expect("a fingerprint")
        };
        let begun = measure(&dir);
        let read = files.iter().filter(|(name, _)| !name.starts_with('-')).count();
        assert_eq!(begun.files, read, "{layout}");
        for (name, (marked, bytes)) in names.iter().zip(&files) {
            // A byte behind the end, which none of these formats minds.
            put(&dir, name, &[bytes, &b"\n"[..]].concat());
            let changed = measure(&dir);
            assert_eq!(changed != begun, !marked.starts_with('-'), "{layout}: {name}");
            put(&dir, name, bytes);
        }
        // Nor does it matter where the directory is, or whether a folder beside the data can be read.
        let moved = folder(&[]);
        names.iter().zip(&files).for_each(|(name, (_, bytes))| put(&moved, name, bytes));
        let lost = moved.path().join("lost+found");
        fs::create_dir(&lost).expect("a directory");
        set_mode(&lost, 0);
        let found = measure(&moved);
        set_mode(&lost, 0o700);
        assert_eq!(found, begun, "{layout}");
    }
}
