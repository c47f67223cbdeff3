//! Mapping of label values to classes, and folders of images with label images.

use crate::files::{folder, grey, photographs, png, put, rgb, unpacked};
use crate::{load, refused};
use gradscale_cli::data::{DataError, DataOptions, Ignore, Segmentation, Size, Store};
use tempfile::TempDir;

fn with(dir: &TempDir, reading: &DataOptions) -> Result<Segmentation, DataError> {
    Segmentation::load(dir.path(), reading)
}

/// One training image and one for scores, with these labels, and no table.
fn masked(labels: &[u8], test: &[u8]) -> TempDir {
    folder(&[
        ("images/train/a.png", &rgb()),
        ("labels/train/a.png", labels),
        ("images/test/b.png", &rgb()),
        ("labels/test/b.png", test),
    ])
}

#[test]
fn masks_of_0_and_255_are_two_classes() {
    let dir = masked(&grey([0, 255, 255, 0, 0, 0]), &grey([255; 6]));
    let data = load(&dir).unwrap();
    assert_eq!((data.classes, data.ignore), (vec!["0".to_owned(), "255".to_owned()], None));
    assert_eq!((data.train.labels.memory(), data.test.labels.memory()), (&[0, 1, 1, 0, 0, 0][..], &[1; 6][..]));
    let [line] = &data.notes.taken[..] else { panic!("{:?}", data.notes) };
    let expected = "2 classes by their values in the label images: 0 33.33 %, 255 66.67 %; no pixel is ignored";
    assert!(line.ends_with(expected), "{line}");
    // With `--ignore 255` that value is ignored, so there is one class.
    let reading = DataOptions { ignore: Some(Ignore::Value(255)), ..DataOptions::default() };
    refused(with(&dir, &reading), "", "one class by their values in the label images: 0 33.33 %; 255 is ignored");
    // Among exactly two values 255 is ignored by default.
    let dir = masked(&grey([0, 255, 1, 0, 0, 0]), &grey([0; 6]));
    let data = load(&dir).unwrap();
    assert_eq!((data.classes.len(), data.ignore, data.train.labels.memory()[1]), (2, Some(255), 255));
    let data = with(&dir, &DataOptions { ignore: Some(Ignore::Nothing), ..DataOptions::default() }).unwrap();
    assert_eq!((data.classes.len(), data.ignore, data.train.labels.memory()[1]), (3, None, 2));
}

#[test]
fn one_class_is_refused_with_what_was_found() {
    let dir = masked(&grey([7; 6]), &grey([7; 6]));
    refused(
        load(&dir),
        "",
        "one class by their values in the label images: 7 100.00 %; no pixel is ignored: training needs",
    );
    // One class in training is one class, whatever the test set has.
    refused(load(&masked(&grey([0; 6]), &grey([1; 6]))), "", "1 50.00 %; no pixel is ignored: training needs");
}

#[test]
fn a_table_names_any_values() {
    let dir = masked(&grey([0, 255, 255, 0, 7, 7]), &grey([255; 6]));
    put(&dir, "classes.tsv", b"id\tname\n0\tground\n255\troad\n7\tvoid\n");
    let data = load(&dir).unwrap();
    assert_eq!((data.classes, data.ignore), (vec!["ground".to_owned(), "road".to_owned()], Some(255)));
    assert_eq!(data.train.labels.memory(), [0, 1, 1, 0, 255, 255]);
    put(&dir, "labels/train/a.png", &grey([0, 255, 255, 0, 7, 8]));
    refused(
        load(&dir),
        "labels/train/a.png",
        "label 8 at row 1, column 2, which is not a class; the classes are 0, 7, \
        255",
    );
}

#[test]
fn colours_are_classes() {
    let (red, blue, black) = ([200, 0, 0], [0, 0, 200], [0; 3]);
    let rows = |colours: [[u8; 3]; 6]| [colours[..3].concat(), colours[3..].concat()];
    let coloured = |colours| {
        let [first, second] = rows(colours);
        png([2, 3], 8, 2, None, &[&first, &second])
    };
    let dir = masked(&coloured([red, blue, black, red, red, red]), &coloured([black; 6]));
    let data = load(&dir).unwrap();
    assert_eq!(data.classes, ["#000000", "#0000c8", "#c80000"]);
    assert_eq!((data.train.labels.memory(), data.colours[2]), (&[2, 1, 0, 2, 2, 2][..], red));
    put(&dir, "classes.tsv", b"id\tname\tr\tg\tb\n0\tcar\t200\t0\t0\n1\tsky\t0\t0\t200\n2\tvoid\t0\t0\t0\n");
    let data = load(&dir).unwrap();
    assert_eq!((data.classes, data.ignore), (vec!["car".to_owned(), "sky".to_owned()], Some(2)));
    assert_eq!(data.train.labels.memory(), [0, 1, 2, 0, 0, 0]);
    put(&dir, "labels/train/a.png", &coloured([red, [1, 2, 3], black, red, red, red]));
    refused(load(&dir), "labels/train/a.png", "label #010203 at row 0, column 1, which is not a class");
}

#[test]
fn other_folders() {
    // Siblings without a test set: every fifth by name; labels by another name.
    let dir = tempfile::tempdir().unwrap();
    for (i, name) in ["a", "b", "c", "d", "e", "f"].iter().enumerate() {
        let labels = grey([0, 1, 0, 1, 0, u8::try_from(i % 2).unwrap()]);
        put(&dir, &format!("images/{name}.png"), &rgb());
        put(&dir, &format!("masks/{name}_mask.png"), &labels);
    }
    let data = load(&dir).unwrap();
    assert_eq!((data.train.count, data.test.count), (5, 1));
    assert_eq!(data.notes.taken[1], "no test set: every fifth sample is held out for evaluation, 1 of 6");
    // Lists, where there are some.
    put(&dir, "train.txt", b"f\na\n");
    put(&dir, "val.txt", b"b\n");
    let data = load(&dir).unwrap();
    assert_eq!((data.train.count, data.test.count, data.notes.taken.len()), (2, 1, 1));
    assert_eq!(data.train.labels.memory(), [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0]);
    // The split outside.
    let dir = folder(&[
        ("train/images/a.png", &rgb()),
        ("train/masks/a.png", &grey([0, 0, 1, 1, 2, 2])),
        ("valid/images/b.png", &rgb()),
        ("valid/masks/b.png", &grey([2; 6])),
    ]);
    let data = load(&dir).unwrap();
    assert_eq!((data.train.count, data.test.labels.memory()), (1, &[2; 6][..]));
}

#[test]
fn any_sizes_are_resized() {
    let dir = unpacked();
    put(&dir, "images/train/b.png", &png([1, 1], 8, 2, None, &[&[50, 60, 70]]));
    put(&dir, "labels/train/b.png", &png([1, 1], 8, 0, None, &[&[1]]));
    refused(load(&dir), "images/train/b.png", "unlike the first image of its split (2 × 3); `size` resizes");
    let data = with(&dir, &DataOptions { size: Some(Size([4, 6])), ..DataOptions::default() }).unwrap();
    assert_eq!((data.train.height, data.train.width, data.test.width), (4, 6, 6));
    // The first image's labels, each pixel four times; the second is one colour and one class.
    let (images, labels) = (data.train.images.memory(), data.train.labels.memory());
    let first = [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2];
    assert_eq!((&labels[..24], &labels[24..]), (&first[..], &[1; 24][..]));
    assert_eq!(images[72..], [50, 60, 70].repeat(24));
    // Labels must still belong to their image.
    put(&dir, "labels/train/b.png", &grey([1; 6]));
    let error = with(&dir, &DataOptions { size: Some(Size([4, 6])), ..DataOptions::default() });
    refused(error, "labels/train/b.png", "2 × 3 (rows × columns), unlike its image (1 × 1)");
}

#[test]
fn broken_files_are_named_and_left_out_if_asked() {
    let dir = unpacked();
    put(&dir, "images/train/c.png", b"no image");
    put(&dir, "labels/train/c.png", &grey([0; 6]));
    put(&dir, "images/train/d.png", &rgb());
    put(&dir, "images/train/e.tif", b"II*");
    put(&dir, "images/train/f.png", &rgb());
    put(&dir, "labels/train/f.png", &rgb()[..60]);
    refused(load(&dir), "images/train/e.tif", "not a PNG or JPEG image but TIFF; convert it");
    std::fs::remove_file(dir.path().join("images/train/e.tif")).unwrap();
    refused(load(&dir), "labels/train/d.png", "no label image for ");
    put(&dir, "labels/train/d.png", &grey([0; 6]));
    refused(load(&dir), "images/train/c.png", "; 1 more cannot be read; `skip_broken` skips them");
    put(&dir, "images/train/e.tif", b"II*");
    let data = with(&dir, &DataOptions { skip_broken: true, ..DataOptions::default() }).unwrap();
    assert_eq!((data.train.count, data.test.count, data.notes.left_out.len()), (3, 1, 3));
    for (line, name) in data.notes.left_out.iter().zip(["e.tif", "c.png", "labels/train/f.png"]) {
        assert!(line.contains(name), "{line}");
    }
    assert_eq!(data.train.labels.memory()[6..], [2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn on_disk_it_is_the_same() {
    let (photos, _) = photographs();
    let values = masked(&grey([0, 255, 9, 0, 9, 9]), &grey([255; 6]));
    for dir in [unpacked(), photos, crate::files::packed(), values] {
        // Gzip files are kept in memory in any case.
        let streamed = with(&dir, &DataOptions { memory: 0, ..DataOptions::default() }).unwrap();
        let kept = load(&dir).unwrap();
        assert!(!matches!(streamed.train.images, Store::Memory(_)), "{:?}", streamed.train);
        assert_eq!((&streamed.weights, &streamed.classes), (&kept.weights, &kept.classes));
        for (streamed, kept) in [(&streamed.train, &kept.train), (&streamed.test, &kept.test)] {
            let all = |store: &Store, bytes| store.range(0..kept.count, bytes).unwrap().into_owned();
            assert_eq!(all(&streamed.images, 3 * kept.pixels()), kept.images.memory());
            assert_eq!(all(&streamed.labels, kept.pixels()), kept.labels.memory());
            let one = kept.count - 1;
            assert_eq!(streamed.labels.get(one, kept.pixels()).unwrap(), kept.labels.get(one, kept.pixels()).unwrap());
        }
    }
    // Files that have changed since they were validated.
    let dir = crate::files::packed();
    let data = with(&dir, &DataOptions { memory: 0, ..DataOptions::default() }).unwrap();
    put(&dir, "test-labels-idx3-ubyte", &crate::files::idx(&[1, 1, 2], &[3, 9]));
    refused(data.test.labels.get(0, 2), "test-labels-idx3-ubyte", "label 9 at row 0, column 1, which is not a class");
    let dir = unpacked();
    let data = with(&dir, &DataOptions { memory: 0, ..DataOptions::default() }).unwrap();
    put(&dir, "labels/train/a.png", &grey([9; 6]));
    refused(data.train.labels.get(0, 6), "labels/train/a.png", "label 9 at row 0, column 0, which is not a class");
    std::fs::remove_file(dir.path().join("images/train/b.png")).unwrap();
    refused(data.train.images.get(1, 18), "images/train/b.png", "No such file");
}
