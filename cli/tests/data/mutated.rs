//! Random changes to valid files: each is read or refused, and nothing panics.

use crate::{
    files::{folder, gzip, idx, photographs, png, put, rgb},
    load,
};
use gradscale_cli::data::{Boxed, Classification, Corpus, DataError, DataOptions, Idx, Parallel};
use std::{fs, path::Path};
use tempfile::TempDir;

/// Pseudo-random numbers, each below its argument.
fn numbers() -> impl FnMut(usize) -> usize {
    let mut state = 1_u64;
    move |n| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(state >> 33).expect("31 bits") % n
    }
}

/// Up to five changes: a bit, a byte, the end, a byte more.
fn mutate(bytes: &mut Vec<u8>, random: &mut impl FnMut(usize) -> usize) {
    for _ in 0..=random(5) {
        let at = random(bytes.len());
        match random(4) {
            0 => bytes[at] ^= 1 << random(8),
            1 => bytes[at] = [0, 1, 0x7f, 0xff][random(4)],
            2 if random(4) == 0 => bytes.truncate(at.max(1)),
            _ => bytes.insert(at, 0),
        }
    }
}

#[test]
fn mutated_idx_is_read_or_refused() {
    let file = idx(&[2, 3, 2], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    let gzipped = gzip(&file);
    let mut random = numbers();
    let (mut read, mut refused) = (0, 0);
    for round in 0..1_000_000 {
        let mut bytes = if round % 3 == 0 { gzipped.clone() } else { file.clone() };
        mutate(&mut bytes, &mut random);
        let result = Idx::parse(&bytes);
        if let Ok(idx) = &result {
            assert_eq!(idx.dims.iter().product::<usize>(), idx.data.len());
        }
        // The kind of a plain file follows from its first bytes and its length.
        if bytes.get(..2) != Some(&[0x1f, 0x8b]) {
            let sizes = bytes.get(3).map_or(0, |&n| usize::from(n));
            let start = 4 + 4 * sizes;
            let valid = bytes.get(..3) == Some(&[0, 0, 8])
                && sizes > 0
                && bytes.get(4..start).is_some_and(|header| {
                    let size = |b: &[u8]| f64::from(u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
                    header.chunks(4).map(size).product::<f64>() == (bytes.len() - start) as f64
                });
            assert_eq!(result.is_ok(), valid, "{bytes:02x?}: {result:?}");
        }
        if result.is_ok() { read += 1 } else { refused += 1 }
    }
    println!("of 1000000 mutated files {read} were read and {refused} refused");
    assert!(read > 1_000 && refused > 100_000);
}

#[test]
fn mutated_cifar_is_read_or_refused() {
    const RECORD: usize = 3073;
    let file: Vec<u8> = (0..2 * RECORD).map(|i| u8::try_from(i % 10).expect("a digit")).collect();
    let gzipped = gzip(&file);
    let mut random = numbers();
    let (mut read, mut refused) = (0, 0);
    for round in 0..1_000_000 {
        let mut bytes = if round % 8 == 0 { file.clone() } else { gzipped.clone() };
        mutate(&mut bytes, &mut random);
        let result = Classification::parse_cifar(&bytes);
        if let Ok(images) = &result {
            assert_eq!(
                (images.features.memory().len(), images.labels.len()),
                (images.count * (RECORD - 1), images.count)
            );
            assert!(images.count > 0 && images.labels.iter().all(|&label| (label as usize) < images.classes));
        }
        // The kind of a plain file follows from its length.
        if bytes.get(..2) != Some(&[0x1f, 0x8b]) {
            assert_eq!(result.is_ok(), bytes.len().is_multiple_of(RECORD), "{} bytes: {result:?}", bytes.len());
        }
        if result.is_ok() { read += 1 } else { refused += 1 }
    }
    println!("of 1000000 mutated files {read} were read and {refused} refused");
    assert!(read > 1_000 && refused > 100_000);
}

#[test]
fn mutated_image_files_are_read_or_refused() {
    let (dir, jpeg) = photographs();
    let labels = png([64, 64], 8, 0, None, &[&[[0; 32], [1; 32]].concat()[..]; 64]);
    let mut random = numbers();
    let (mut read, mut refused) = (0, 0);
    for round in 0..2_000 {
        let (name, file) = [("images/train/a.jpeg", &jpeg), ("labels/train/a.png", &labels)][round % 2];
        let mut bytes = file.clone();
        mutate(&mut bytes, &mut random);
        put(&dir, name, &bytes);
        match load(&dir) {
            Ok(_) => read += 1,
            Err(error) => {
                refused += 1;
                assert!(error.path().ends_with(name) || error.path().ends_with("labels/train/a.png"), "{error}");
                assert!(!error.to_string().chars().any(char::is_control), "{error}");
            }
        }
        put(&dir, name, file);
    }
    println!("of 2000 mutated image files {read} were read and {refused} refused");
    assert!(refused > 500);
}

/// Mutates a file of a data set at random, many times. Every refusal must name the file in one line.
fn mutated<T>(
    dir: &TempDir, names: &[&str], rounds: usize, load: impl Fn(&Path) -> Result<T, DataError>,
) -> [usize; 2] {
    let files = names.iter().map(|name| fs::read(dir.path().join(name)).expect("a file")).collect::<Vec<_>>();
    let mut random = numbers();
    let (mut read, mut refused) = (0, 0);
    for round in 0..rounds {
        let (name, file) = (names[round % names.len()], &files[round % names.len()]);
        let mut bytes = file.clone();
        mutate(&mut bytes, &mut random);
        put(dir, name, &bytes);
        match load(dir.path()) {
            Ok(_) => read += 1,
            Err(error) => {
                refused += 1;
                assert!(error.path().starts_with(dir.path()), "{error}");
                assert!(!error.to_string().chars().any(char::is_control), "{error}");
            }
        }
        put(dir, name, file);
    }
    println!("of {rounds} mutated files {read} were read and {refused} refused: {names:?}");
    [read, refused]
}

#[test]
fn mutated_annotations_are_read_or_refused() {
    // The remark has room for changes that leave it an annotation.
    let xml = format!(
        "<annotation><size><width>3</width><height>2</height></size><!--{}-->\n<object><name>a</name>\n<bndbox>\
         <xmin>1</xmin><ymin>1</ymin>\n<xmax>3</xmax><ymax>2</ymax></bndbox></object></annotation>",
        "remark ".repeat(200)
    );
    let dir = folder(&[]);
    for i in 0..5 {
        put(&dir, &format!("JPEGImages/{i}.png"), &rgb());
        put(&dir, &format!("Annotations/{i}.xml"), xml.as_bytes());
    }
    assert!(Boxed::load(dir.path(), &DataOptions::default()).is_ok());
    let [read, refused] = mutated(&dir, &["Annotations/1.xml"], 600, |path| Boxed::load(path, &DataOptions::default()));
    assert!(read > 20 && refused > 300);
}

#[test]
fn mutated_texts_are_read_or_refused() {
    let dir = folder(&[]);
    let line = |i: usize| format!("the {} is {}\n", ["sun", "moon", "star"][i % 3], ["red", "round", "far"][i % 2]);
    let text: String = (0..60).map(line).collect();
    for name in ["train.en", "train.de", "test.en", "test.de"] {
        put(&dir, name, text.as_bytes());
    }
    let reading = DataOptions { pieces: Some(64), ..DataOptions::default() };
    assert!(Parallel::load(dir.path(), &reading).is_ok());
    let [read, refused] = mutated(&dir, &["train.en", "test.de"], 300, |path| Parallel::load(path, &reading));
    assert!(read > 20 && refused > 20);
    let dir = folder(&[("train.txt", text.as_bytes()), ("test.txt", text.as_bytes())]);
    let [read, refused] =
        mutated(&dir, &["train.txt", "test.txt"], 1_000, |path| Corpus::load(path, &DataOptions::default()));
    assert!(read > 20 && refused > 20);
}
