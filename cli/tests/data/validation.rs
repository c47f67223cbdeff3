//! Images for scores during training: the data set's own validation set, or every tenth training image.

use crate::{
    files::{folder, idx, packed, put, rgb, unpacked, wav},
    refused,
};
use gradscale_cli::data::{Boxed, Classification, DataOptions, Labelled, Segmentation, Speech, Store};
use std::fs;

fn wanted() -> DataOptions {
    DataOptions { validation: true, ..DataOptions::default() }
}

#[test]
fn parts_of_their_own() {
    let dir = packed();
    put(&dir, "val-images-idx4-ubyte", &idx(&[1, 1, 2, 3], &[9; 6]));
    put(&dir, "val-labels-idx3-ubyte", &idx(&[1, 1, 2], &[1, 1]));
    let data = Segmentation::load(dir.path(), &wanted()).unwrap();
    assert_eq!(data.validation.unwrap().labels.memory(), [1, 1]);
    assert_eq!((data.train.count, data.test.labels.memory()), (2, &[3, 0][..]));
    // A validation set is read only on request. Without a test set it serves as one.
    assert_eq!(Segmentation::load(dir.path(), &DataOptions::default()).unwrap().validation, None);
    fs::remove_file(dir.path().join("test-images-idx4-ubyte.gz")).unwrap();
    let data = Segmentation::load(dir.path(), &wanted()).unwrap();
    assert_eq!((data.validation, data.test.labels.memory()), (None, &[1, 1][..]));
    assert!(data.notes.taken.iter().any(|line| line.contains("too few training images")), "{:?}", data.notes);

    // The same in folders; images of other sizes are refused by name.
    let dir = unpacked();
    for kind in ["images", "labels"] {
        let [test, val] = ["test", "val"].map(|part| dir.path().join(kind).join(part));
        fs::create_dir(&val).unwrap();
        for file in fs::read_dir(&test).unwrap().map(|file| file.unwrap().path()) {
            fs::copy(&file, val.join(file.file_name().unwrap())).unwrap();
        }
    }
    let data = Segmentation::load(dir.path(), &wanted()).unwrap();
    let validation = data.validation.unwrap();
    assert_eq!((&validation.images, &validation.labels), (&data.test.images, &data.test.labels));
    for (part, name) in [(&validation, "val"), (&data.test, "test")] {
        let source = part.source(0).unwrap();
        assert!(source.starts_with(&dir.path().join("images").join(name).display().to_string()), "{source}");
    }
}

/// A validation set of which nothing can be read is replaced, as one that does not exist.
#[test]
fn broken_parts_are_replaced() {
    let reading = DataOptions { skip_broken: true, ..wanted() };
    let held = "every tenth training image is held out for `validation`";
    let torn = &rgb()[..60];
    let dir = folder(&[("val/a/0.png", torn), ("test/a/0.png", &rgb()), ("test/b/0.png", &rgb())]);
    for class in ["a", "b"] {
        (0..10).for_each(|i| put(&dir, &format!("train/{class}/{i}.png"), &rgb()));
    }
    let data = Labelled::load(dir.path(), &reading).unwrap();
    assert_eq!((data.train.count, data.validation.map(|part| part.count)), (18, Some(2)));
    assert!(data.notes.taken.iter().any(|line| line.contains(held)), "{:?}", data.notes);

    let xml = b"<annotation><object><name>x</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax>\
                </bndbox></object></annotation>";
    let dir = folder(&[("val/a.png", torn), ("val/a.xml", xml), ("test/a.png", &rgb()), ("test/a.xml", xml)]);
    for i in 0..10 {
        put(&dir, &format!("train/{i}.png"), &rgb());
        put(&dir, &format!("train/{i}.xml"), xml);
    }
    let data = Boxed::load(dir.path(), &reading).unwrap();
    assert_eq!((data.train.len(), data.validation.map(|part| part.len())), (9, Some(1)));
    fs::write(dir.path().join("test/a.png"), torn).unwrap();
    refused(Boxed::load(dir.path(), &reading), "", "no images for scores");

    let dir = folder(&[("val.txt", b"0_val\n"), ("0_val.wav", b"RIFF"), ("test.txt", b"0_0\n")]);
    (0..10).for_each(|i| put(&dir, &format!("{i}_0.wav"), &wav()));
    put(&dir, "train.txt", (0..10).map(|i| format!("{i}_0\n")).skip(1).collect::<String>().as_bytes());
    let data = Speech::load(dir.path(), &reading).unwrap();
    assert_eq!((data.train.len(), data.validation), (9, None));
}

/// Every tenth, from memory and from disk alike.
#[test]
fn a_tenth_of_the_training_images() {
    let images: Vec<u8> = (0..25 * 6).map(|i: u32| (i % 251) as u8).collect();
    let labels: Vec<u8> = (0..25 * 2).map(|i: u32| (i / 2 % 3) as u8).collect();
    let dir = packed();
    for name in ["train-images-idx4-ubyte", "train-labels-idx3-ubyte"] {
        fs::remove_file(dir.path().join(name)).ok();
        fs::remove_file(dir.path().join(format!("{name}.gz"))).ok();
    }
    put(&dir, "train-images-idx4-ubyte", &idx(&[25, 1, 2, 3], &images));
    put(&dir, "train-labels-idx3-ubyte", &idx(&[25, 1, 2], &labels));
    let of = |memory: u64| {
        let data = Segmentation::load(dir.path(), &DataOptions { memory, ..wanted() }).unwrap();
        let held = data.validation.unwrap();
        assert_eq!((data.train.count, held.count), (23, 2));
        let all = |store: &Store, count: usize, len: usize| store.range(0..count, len).unwrap().into_owned();
        assert_eq!(all(&held.images, 2, 6), [&images[54..60], &images[114..120]].concat());
        assert_eq!(all(&held.labels, 2, 2), [&labels[18..20], &labels[38..40]].concat());
        let kept = [&images[..54], &images[60..114], &images[120..]].concat();
        assert_eq!(all(&data.train.images, 23, 6), kept);
        assert!(data.notes.taken.iter().any(|line| line.ends_with("for `validation`, 2 of 25")), "{:?}", data.notes);
        (data.weights, matches!(data.train.images, Store::Part { .. }))
    };
    let (in_memory, on_disk) = (of(1024), of(0));
    assert_eq!((in_memory.1, on_disk.1), (false, true));
    // Weights of classes are those of all training images.
    let all = Segmentation::load(dir.path(), &DataOptions::default()).unwrap();
    assert_eq!((in_memory.0, on_disk.0), (all.weights.clone(), all.weights));
}

/// The same share of each class is taken, for any order of the images.
#[test]
fn a_tenth_of_each_class() {
    let row = |i: u32| format!("{},{}\n", i * i % 97, if i % 7 < 2 { "rare" } else { "common" });
    let table = |rows: std::ops::Range<u32>| format!("x,class\n{}", rows.map(row).collect::<String>()).into_bytes();
    let dir = folder(&[("train.csv", &table(0..100)), ("test.csv", &table(100..130))]);
    let data = Labelled::load(dir.path(), &wanted()).unwrap();
    let whole = Labelled::load(dir.path(), &DataOptions::default()).unwrap();
    let held: Classification = data.validation.unwrap();
    let count = |labels: &[u32], class: u32| labels.iter().filter(|label| **label == class).count();
    for class in [0, 1] {
        assert_eq!(count(&held.labels, class), count(&whole.train.labels, class) / 10);
        assert_eq!(count(&data.train.labels, class) + count(&held.labels, class), count(&whole.train.labels, class));
    }
    assert!(held.count > 0 && data.columns == whole.columns);
    assert_eq!(data.test, whole.test);
}
