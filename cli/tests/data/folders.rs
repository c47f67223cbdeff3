//! A folder of images for each class.

use crate::{
    files::{folder, gzip, idx, png, put, rgb},
    refused,
};
use gradscale_cli::data::{DataError, DataOptions, Ignore, Labelled, Size, Store};
use tempfile::TempDir;

fn load(dir: &TempDir) -> Result<Labelled, DataError> {
    Labelled::load(dir.path(), &DataOptions::default())
}

/// A grey image of 2 × 3, all of one value.
fn grey(value: u8) -> Vec<u8> {
    crate::files::grey([value; 6])
}

#[test]
fn every_fifth_of_a_class_is_for_scores() {
    let dir = tempfile::tempdir().unwrap();
    for (class, count) in [("dogs", 6), ("cats", 10)] {
        for i in 0..count {
            put(&dir, &format!("{class}/{i}.png"), &grey(i));
        }
    }
    // Entries that are no class: system files, a table about the images, empty folders.
    put(&dir, "labels.csv", b"file,class\n0.png,cats\n");
    put(&dir, ".DS_Store", b"x");
    put(&dir, "cats/.hidden.png", b"x");
    put(&dir, "cats/notes.txt", b"x");
    put(&dir, "empty/x.txt", b"x");
    let data = load(&dir).unwrap();
    assert_eq!(data.classes, ["cats", "dogs"]);
    let (train, test) = (&data.train, &data.test);
    assert_eq!((train.count, train.height, train.width, train.channels, train.classes), (13, 2, 3, 1, 2));
    assert_eq!(train.labels, [[0; 8].to_vec(), vec![1; 5]].concat());
    let firsts: Vec<u8> = (0..3).map(|i| test.image(i).unwrap()[0]).collect();
    assert_eq!((firsts, &test.labels[..]), (vec![4, 9, 4], &[0, 0, 1][..]));
    let values = [0, 1, 2, 3, 5, 6, 7, 8, 0, 1, 2, 3, 5].map(f64::from);
    let mean = values.iter().sum::<f64>() / 13.0;
    assert!((f64::from(data.mean) - mean).abs() < 1e-6);
    assert!(data.notes.taken[0].ends_with("2 classes, for training: cats 8, dogs 5"), "{:?}", data.notes);
    assert_eq!(data.notes.taken[1], "no test set: every fifth sample is held out for evaluation, 3 of 16");
    // On disk it is the same.
    let streamed = Labelled::load(dir.path(), &DataOptions { memory: 0, ..DataOptions::default() }).unwrap();
    assert!(matches!(streamed.train.features, Store::Files { .. }));
    let indices: Vec<usize> = (0..13).rev().collect();
    let all =
        |data: &Labelled| indices.iter().map(|one| data.train.image(*one).unwrap().into_owned()).collect::<Vec<_>>();
    assert_eq!(all(&streamed), all(&data));
    let source = data.train.source(12).unwrap();
    assert!(source.contains("dogs") && streamed.train.source(12) == Some(source.clone()), "{source}");
    assert_eq!((streamed.mean, streamed.deviation), (data.mean, data.deviation));
}

#[test]
fn test_folders_sizes_and_channels() {
    let dir = folder(&[
        ("train/10/a.png", &grey(1)),
        ("train/9/a.png", &rgb()),
        ("val/9/a.png", &png([1, 1], 16, 0, None, &[&[0x12, 0x34]])),
    ]);
    refused(load(&dir), "val/9/a.png", "1 × 1 (rows × columns), unlike the first image (2 × 3); `size` resizes");
    let resized = DataOptions { size: Some(Size([1, 2])), ..DataOptions::default() };
    let data = Labelled::load(dir.path(), &resized).unwrap();
    // Numbers are sorted as such; one colour among grey images makes all three channels.
    assert_eq!((&data.classes[..], data.train.channels), (&["9".to_owned(), "10".to_owned()][..], 3));
    assert_eq!((data.train.width, data.train.image(1).unwrap()), (2, vec![1; 6].into()));
    assert_eq!((&data.test.labels[..], data.test.image(0).unwrap()), (&[0][..], vec![0x12; 6].into()));
    assert_eq!(data.notes.taken[1..], ["no test image of 10"]);
    put(&dir, "val/11/a.png", &grey(1));
    refused(Labelled::load(dir.path(), &resized), "val/11", "the training set has no images of this class");
}

#[test]
fn what_cannot_be_used() {
    let one = folder(&[("cats/a.png", &grey(1)), ("cats/b.png", &grey(1))]);
    for i in 0..4 {
        put(&one, &format!("cats/{i}.png"), &grey(2));
    }
    refused(load(&one), "", "one class, for training: cats 5: training needs at least two classes");
    put(&one, "dogs/a.png", b"no image");
    refused(load(&one), "dogs/a.png", "cannot be decoded");
    put(&one, "dogs/b.png", &grey(9));
    let skipping = DataOptions { skip_broken: true, ..DataOptions::default() };
    let data = Labelled::load(one.path(), &skipping).unwrap();
    assert_eq!((data.train.count, data.notes.left_out.len()), (6, 1));
    let reading = DataOptions { ignore: Some(Ignore::Value(0)), ..DataOptions::default() };
    refused(Labelled::load(one.path(), &reading), "", "`ignore` is for label images");
    let reading = DataOptions { label: Some("x".into()), ..DataOptions::default() };
    refused(Labelled::load(one.path(), &reading), "", "`label` is for CSV files");
    refused(load(&tempfile::tempdir().unwrap()), "", "found nothing");
    for names in [["images/a.png", "masks/a.png"], ["train/imgs/a.png", "train/labels/a.png"]] {
        let image = rgb();
        let dir = folder(&names.map(|name| (name, &image[..])));
        refused(load(&dir), "", "images with label images; use `Segmentation`");
    }
}

#[test]
fn labels_of_0_and_255_are_two_classes_here_too() {
    let dir = folder(&[
        ("train-images-idx3-ubyte", &idx(&[3, 1, 2], &[1, 2, 3, 4, 5, 6])),
        ("train-labels-idx1-ubyte.gz", &gzip(&idx(&[3], &[0, 255, 255]))),
        ("t10k-images-idx3-ubyte", &idx(&[1, 1, 2], &[1, 2])),
        ("t10k-labels-idx1-ubyte", &idx(&[1], &[255])),
    ]);
    let data = load(&dir).unwrap();
    assert_eq!(
        (data.classes, data.train.labels, data.test.labels),
        (vec!["0".into(), "255".into()], vec![0, 1, 1], vec![1])
    );
    let streamed = Labelled::load(dir.path(), &DataOptions { memory: 0, ..DataOptions::default() }).unwrap();
    assert!(matches!(streamed.train.features, Store::Part { .. }));
    assert_eq!(streamed.train.image(1).unwrap()[..], [3, 4]);
    // A file that is shorter or longer than declared is refused with the same error as in memory.
    for (bytes, cause) in [(&[1, 2, 3][..], "truncated: 3 bytes of the 6"), (&[0; 7], "more bytes than the 6")] {
        put(&dir, "train-images-idx3-ubyte", &idx(&[3, 1, 2], bytes));
        for memory in [0, 1] {
            let reading = DataOptions { memory, ..DataOptions::default() };
            refused(Labelled::load(dir.path(), &reading), "train-images-idx3-ubyte", cause);
        }
    }
    put(&dir, "train-images-idx3-ubyte", &idx(&[3, 1, 2], &[0; 6]));
    put(&dir, "train-labels-idx1-ubyte.gz", &gzip(&idx(&[3], &[7; 3])));
    refused(load(&dir), "", "7 3, 255 0: training needs at least two classes");
}
