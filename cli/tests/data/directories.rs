//! Layouts of directories, and files that do not fit each other.

use crate::{
    files::{folder, gzip, idx, packed, put, unpacked},
    load, packed_but, refused,
};
use gradscale_cli::data::{Classification, DataOptions, Segmentation};
use std::fs;

#[test]
fn idx_layout() {
    let dir = packed();
    let data = load(&dir).unwrap();
    assert_eq!(dir.path().file_name().unwrap().to_str(), Some(&*data.name));
    assert_eq!((data.classes.len(), data.colours.len(), data.ignore), (4, 4, Some(255)));
    assert_eq!((data.train.count, data.train.height, data.train.width), (2, 1, 2));
    assert_eq!(data.train.images.memory(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!((data.train.labels.memory(), data.test.labels.memory()), (&[0, 1, 2, 255][..], &[3, 0][..]));
    // If there is only val, it is the test set; otherwise it is ignored.
    put(&dir, "val-images-idx4-ubyte", &idx(&[1, 1, 2, 3], &[9; 6]));
    put(&dir, "val-labels-idx3-ubyte", &idx(&[1, 1, 2], &[1, 1]));
    assert_eq!(load(&dir).unwrap().test.labels.memory(), [3, 0]);
    fs::remove_file(dir.path().join("test-images-idx4-ubyte.gz")).unwrap();
    assert_eq!(load(&dir).unwrap().test.labels.memory(), [1, 1]);
}

#[test]
fn folder_layout() {
    let dir = unpacked();
    let data = load(&dir).unwrap();
    assert_eq!((data.classes, data.ignore), (vec!["Sky".into(), "Road".into()], Some(2)));
    assert_eq!((data.train.count, data.train.height, data.train.width), (2, 2, 3));
    assert_eq!(data.train.images.memory()[..18], [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
    assert_eq!(data.train.labels.memory(), [0, 1, 2, 0, 1, 2, 2, 2, 2, 2, 2, 2]);
    put(&dir, "train.txt", b"b\r\n\na\n");
    assert_eq!(load(&dir).unwrap().train.labels.memory(), [2, 2, 2, 2, 2, 2, 0, 1, 2, 0, 1, 2]);
    fs::rename(dir.path().join("images/test"), dir.path().join("images/val")).unwrap();
    fs::rename(dir.path().join("labels/test"), dir.path().join("labels/val")).unwrap();
    assert_eq!(load(&dir).unwrap().test.labels.memory(), [1; 6]);
}

#[test]
fn idx_files_that_do_not_fit() {
    let labels = "train-labels-idx3-ubyte";
    refused(
        packed_but("train-images-idx4-ubyte", &idx(&[2, 1, 2], &[0; 4])),
        "train-images-idx4-ubyte",
        "shape 2 × 1 × 2",
    );
    refused(packed_but("train-images-idx4-ubyte", &idx(&[0, 1, 2, 3], &[])), "train-images-idx4-ubyte", "no images");
    refused(
        packed_but(labels, &idx(&[2, 2, 1], &[0; 4])),
        labels,
        "shape 2 × 2 × 1, expected 2 × 1 × 2, as in the image file",
    );
    refused(packed_but(labels, b""), labels, "truncated: ends inside the IDX header, after 0 bytes");
    refused(
        packed_but("classes.tsv", b"id\tname\n0\ta\n1\tb\n255\tvoid"),
        "train-labels-idx3-ubyte.gz",
        "label 2 in image 1 at row 0, column 0, which is not a class; the classes are 0, 1, 255",
    );
    refused(packed_but("classes.tsv", b"id\tname\n0\tm\xfcll\n"), "classes.tsv", "line 2: not UTF-8 (byte 0xfc)");
    refused(packed_but("classes.tsv", b"id\tname\n0\ta\r\nx\nb\t\n"), "classes.tsv", "line 3: \"x\" for id");
    let dir = packed();
    put(&dir, "test-images-idx4-ubyte", &idx(&[1, 2, 1, 3], &[0; 6]));
    put(&dir, "test-labels-idx3-ubyte", &idx(&[1, 2, 1], &[0; 2]));
    refused(load(&dir), "test-labels-idx3-ubyte", "2 × 1 (rows × columns), unlike the training images (1 × 2)");
    fs::remove_file(dir.path().join("train-labels-idx3-ubyte.gz")).unwrap();
    refused(load(&dir), labels, "missing; train-labels-idx3-ubyte.gz is missing too");
}

#[test]
fn directories_that_are_no_data_set() {
    let empty = folder(&[]);
    refused(load(&empty), "", "expected images/{train,test}/*.png|jpg with");
    refused(load(&empty), "", "found nothing");
    let other = folder(&[("1", b""), ("2", b""), ("3", b""), ("4", b""), ("5", b""), ("6\n", b""), ("7", b"")]);
    refused(load(&other), "", "found 1, 2, 3, 4, 5 and 2 more");
    refused(Segmentation::load(other.path().join("1"), &DataOptions::default()), "1", "a file, expected a directory");
    refused(Segmentation::load(other.path().join("none"), &DataOptions::default()), "none", "os error 2");
    refused(load(&folder(&[("images/x", b"")])), "images", "no images");
    refused(load(&folder(&[("images/train/x.txt", b"")])), "images/train", "no images");
    refused(
        Classification::load_idx(empty.path(), &DataOptions::default()),
        "train-images-idx3-ubyte",
        "missing; train-images-idx3-ubyte.gz is missing too",
    );
}

#[test]
fn images_with_one_label() {
    let set = |prefix: &str, images: &[u8], labels: &[u8]| {
        let dir = folder(&[("train-images-idx3-ubyte", &idx(&[2, 2, 2], &[1, 2, 3, 4, 5, 6, 7, 8]))]);
        put(&dir, "train-labels-idx1-ubyte.gz", &gzip(&idx(&[2], &[4, 0])));
        put(&dir, &format!("{prefix}-images-idx3-ubyte"), images);
        put(&dir, &format!("{prefix}-labels-idx1-ubyte"), labels);
        Classification::load_idx(dir.path(), &DataOptions::default())
    };
    let (image, label) = (idx(&[1, 2, 2], &[9; 4]), idx(&[1], &[6]));
    for prefix in ["t10k", "test"] {
        let (train, test) = set(prefix, &image, &label).unwrap();
        assert_eq!((train.count, train.height, train.width, train.channels), (2, 2, 2, 1));
        assert_eq!((train.labels, train.classes), (vec![4, 0], 7));
        assert_eq!(train.features.memory(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((test.labels, test.classes), (vec![6], 7));
    }
    refused(
        set("t10k", &image, &idx(&[2], &[0, 0])),
        "t10k-labels-idx1-ubyte",
        "shape 2, expected 1, one for each image",
    );
    refused(set("t10k", &idx(&[1, 4], &[0; 4]), &label), "t10k-images-idx3-ubyte", "shape 1 × 4, expected images");
    refused(
        set("t10k", &idx(&[1, 1, 4], &[0; 4]), &label),
        "t10k-images-idx3-ubyte",
        "shape 1 × 4 × 1, expected 2 × 2 × 1 as in the training set",
    );
    refused(set("t10k", &idx(&[0, 2, 2], &[]), &idx(&[0], &[])), "t10k-images-idx3-ubyte", "no images");
    refused(
        set("t10k", &image, &label[..8]),
        "t10k-labels-idx1-ubyte",
        "truncated: 0 bytes of the 1 that its header \
        declares",
    );
    refused(set("other", &image, &label), "t10k-images-idx3-ubyte", "missing");
}
