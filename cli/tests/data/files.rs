//! Files made from the definitions of their formats, and small data sets of them.

use flate2::{Compression, Crc, write::GzEncoder, write::ZlibEncoder};
use hound::{SampleFormat, WavSpec, WavWriter};
use image::ImageEncoder;
use std::{
    fs,
    io::{Cursor, Write},
};
use tempfile::TempDir;

/// An IDX file as its definition has it.
pub fn idx(sizes: &[u32], data: &[u8]) -> Vec<u8> {
    let dimensions = u8::try_from(sizes.len()).expect("few sizes");
    let sizes: Vec<_> = sizes.iter().flat_map(|size| size.to_be_bytes()).collect();
    [&[0, 0, 8, dimensions], &sizes[..], data].concat()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// A PNG file put together from its definition, not by the library that reads it. `rows` are packed and unfiltered.
pub fn png(size: [u8; 2], depth: u8, colour: u8, palette: Option<&[u8]>, rows: &[&[u8]]) -> Vec<u8> {
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    for row in rows {
        zlib.write_all(&[&[0], *row].concat()).expect("memory");
    }
    let [height, width] = size;
    let header = [0, 0, 0, width, 0, 0, 0, height, depth, colour, 0, 0, 0];
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let data = zlib.finish().expect("memory");
    for (name, bytes) in
        [(b"IHDR", Some(&header[..])), (b"PLTE", palette), (b"IDAT", Some(&data)), (b"IEND", Some(&[]))]
    {
        let Some(bytes) = bytes else { continue };
        let mut crc = Crc::new();
        crc.update(name);
        crc.update(bytes);
        let length = u32::try_from(bytes.len()).expect("small").to_be_bytes();
        file.extend([&length, &name[..], bytes, &crc.sum().to_be_bytes()].concat());
    }
    file
}

/// A recording of a second.
pub fn wav() -> Vec<u8> {
    let spec = WavSpec { channels: 1, sample_rate: 8000, bits_per_sample: 16, sample_format: SampleFormat::Int };
    let mut bytes = Vec::new();
    let mut file = WavWriter::new(Cursor::new(&mut bytes), spec).expect("memory");
    (0..8000).for_each(|i| file.write_sample(i16::try_from(i % 50).expect("small")).expect("memory"));
    file.finalize().expect("memory");
    bytes
}

/// An R G B image of 2 × 3.
pub fn rgb() -> Vec<u8> {
    png([2, 3], 8, 2, None, &[&[1, 2, 3, 4, 5, 6, 7, 8, 9], &[11, 12, 13, 14, 15, 16, 17, 18, 19]])
}

/// A grey label image of 2 × 3.
pub fn grey(labels: [u8; 6]) -> Vec<u8> {
    png([2, 3], 8, 0, None, &[&labels[..3], &labels[3..]])
}

/// A directory with these files.
pub fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory for the test");
    files.iter().for_each(|(name, bytes)| put(&dir, name, bytes));
    dir
}

pub fn put(dir: &TempDir, name: &str, bytes: &[u8]) {
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().unwrap_or(dir.path())).and_then(|()| fs::write(path, bytes)).expect("a test file");
}

/// A data set of IDX files, two training images of 1 × 2 and a test image.
pub fn packed() -> TempDir {
    folder(&[
        ("train-images-idx4-ubyte", &idx(&[2, 1, 2, 3], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])),
        ("train-labels-idx3-ubyte.gz", &gzip(&idx(&[2, 1, 2], &[0, 1, 2, 255]))),
        ("test-images-idx4-ubyte.gz", &gzip(&idx(&[1, 1, 2, 3], &[1; 6]))),
        ("test-labels-idx3-ubyte", &idx(&[1, 1, 2], &[3, 0])),
    ])
}

/// A data set of image files, two training images of 2 × 3 and a test image.
pub fn unpacked() -> TempDir {
    folder(&[
        ("images/train/b.png", &rgb()),
        ("images/train/a.png", &rgb()),
        ("labels/train/a.png", &grey([0, 1, 2, 0, 1, 2])),
        ("labels/train/b.png", &grey([2; 6])),
        ("images/test/c.png", &rgb()),
        ("labels/test/c.png", &grey([1; 6])),
        ("classes.tsv", b"id\tname\tr\tg\tb\n0\tSky\t1\t2\t3\n1\tRoad\t4\t5\t6\n2\tUnlabelled\t0\t0\t0\n"),
    ])
}

/// A data set of JPEG images of 64 × 64, and the image.
pub fn photographs() -> (TempDir, Vec<u8>) {
    let mut jpeg = Vec::new();
    let pixels: Vec<u8> = (0..64 * 64 * 3_u32).map(|at| (at * at % 251).to_le_bytes()[0]).collect();
    let encoder = image::codecs::jpeg::JpegEncoder::new(&mut jpeg);
    encoder.write_image(&pixels, 64, 64, image::ExtendedColorType::Rgb8).expect("memory");
    let labels = png([64, 64], 8, 0, None, &[&[[0; 32], [1; 32]].concat()[..]; 64]);
    let (image, test) = ("images/train/a.jpeg", "images/test/a.JPG");
    let dir = [(image, &jpeg), (test, &jpeg), ("labels/train/a.png", &labels), ("labels/test/a.png", &labels)];
    (folder(&dir.map(|(name, bytes)| (name, &bytes[..]))), jpeg)
}
