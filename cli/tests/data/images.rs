//! Image files and label files.

use crate::{
    files::{grey, photographs, png, put, rgb},
    load, refused, unpacked_but,
};
use flate2::Crc;

#[test]
fn labels_are_the_files_own_values() {
    // 2 × 3 labels 2 1 0, 0 1 2 in every way that PNG can hold them; palettes have the ids' colours in disorder.
    let palette = [9, 9, 9, 0, 0, 0, 200, 0, 0];
    for (colour, palette) in [(0, None), (3, Some(&palette[..]))] {
        for (depth, rows) in [
            (2, [&[0b10_01_00_00][..], &[0b00_01_10_00]]),
            (4, [&[0x21, 0x00], &[0x01, 0x20]]),
            (8, [&[2, 1, 0], &[0, 1, 2]]),
        ] {
            let labels = png([2, 3], depth, colour, palette, &rows);
            let data = unpacked_but("labels/train/a.png", &labels).unwrap();
            assert_eq!(data.train.labels.memory()[..6], [2, 1, 0, 0, 1, 2], "{depth} bits");
        }
        let data = unpacked_but("labels/train/a.png", &png([2, 3], 1, colour, palette, &[&[0b0110_0000], &[0]]));
        assert_eq!(data.unwrap().train.labels.memory()[..6], [0, 1, 1, 0, 0, 0]);
    }
    // Images of 16 bits, of three equal channels, and with transparency.
    let wide: [&[u8]; 2] = [&[0, 2, 0, 1, 0, 0], &[0, 0, 0, 1, 0, 2]];
    let three: [&[u8]; 2] = [&[2, 2, 2, 1, 1, 1, 0, 0, 0], &[0, 0, 0, 1, 1, 1, 2, 2, 2]];
    let with_alpha: [&[u8]; 2] = [&[2, 9, 1, 8, 0, 7], &[0, 6, 1, 5, 2, 4]];
    for (depth, colour, rows) in [(16, 0, wide), (8, 2, three), (8, 4, with_alpha)] {
        let data = unpacked_but("labels/train/a.png", &png([2, 3], depth, colour, None, &rows)).unwrap();
        assert_eq!(data.train.labels.memory()[..6], [2, 1, 0, 0, 1, 2], "colour type {colour}, {depth} bits");
    }
}

#[test]
fn image_files_that_do_not_fit() {
    let (image, labels) = ("images/train/a.png", "labels/train/a.png");
    let narrow = png([2, 2], 8, 2, None, &[&[0; 6], &[0; 6]]);
    refused(
        unpacked_but("images/train/b.png", &narrow),
        "images/train/b.png",
        "2 × 2 (rows × columns), unlike the first image of its split (2 × 3)",
    );
    refused(
        unpacked_but(labels, &png([1, 3], 8, 0, None, &[&[0; 3]])),
        labels,
        "1 × 3 (rows × columns), unlike its image (2 × 3)",
    );
    refused(
        unpacked_but(labels, &grey([0, 0, 0, 0, 3, 0])),
        labels,
        "label 3 at row 1, column 1, which is not a class; the classes are 0, 1, 2",
    );
    refused(unpacked_but("images/train/a.jpg", &rgb()), image, "another image has the same name");
    refused(unpacked_but("train.txt", b"a\nz\n"), "images/train/z", "missing; train.txt lists it");
    refused(unpacked_but("test.txt", b"\n"), "test.txt", "no names; write the name of an image in each line");
    refused(unpacked_but("images/train/d\n.png", &rgb()), "labels/train/d\n.png", "d\\n.png");
    refused(unpacked_but(image, b"GIF89a"), image, "cannot be decoded: ");
    refused(unpacked_but(image, b""), image, "cannot be decoded: ");
    refused(unpacked_but(labels, b""), labels, "cannot be decoded as PNG: ");
    for end in (9..rgb().len() - 12).chain([4]) {
        refused(unpacked_but(image, &rgb()[..end]), image, "cannot be decoded: ");
    }
    let whole = grey([0; 6]);
    for end in 0..whole.len() - 12 {
        refused(unpacked_but(labels, &whole[..end]), labels, "cannot be decoded as PNG: ");
    }
    let mut broken = whole;
    broken[43] ^= 0x10; // in IDAT
    refused(unpacked_but(labels, &broken), labels, "cannot be decoded as PNG: ");
    // 65535 × 65535 announced in a few bytes.
    let mut vast = rgb();
    vast.splice(16..24, [0, 0, 255, 255, 0, 0, 255, 255]);
    let mut crc = Crc::new();
    crc.update(&vast[12..29]);
    vast.splice(29..33, crc.sum().to_be_bytes());
    refused(unpacked_but(image, &vast), image, "cannot be decoded: ");
}

#[test]
fn jpeg_whole_and_cut_off() {
    let (dir, jpeg) = photographs();
    assert_eq!(load(&dir).unwrap().train.images.memory().len(), 64 * 64 * 3);
    for end in (0..jpeg.len()).step_by(7) {
        put(&dir, "images/train/a.jpeg", &jpeg[..end]);
        refused(load(&dir), "images/train/a.jpeg", if end < 20 { "cannot be decoded: " } else { "" });
    }
    refused(load(&dir), "images/train/a.jpeg", "truncated: JPEG without an end marker");
}
