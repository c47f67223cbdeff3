//! CIFAR's binary format: records of a label and 32 × 32 values of each colour.

use super::{Cause, Classification, DataError, Element, Sources, packed::find, store};
use flate2::read::MultiGzDecoder;
use std::{
    io::Read,
    path::{Path, PathBuf},
};

const SIDE: usize = 32;
const PLANE: usize = SIDE * SIDE;
const RECORD: usize = 1 + 3 * PLANE;
/// Maximum size of an unpacked archive. CIFAR-10's training set has 150 MB, so a larger file is something else.
const MAX_UNPACKED_BYTES: u64 = 1 << 30;

impl Classification {
    /// Reads `data_batch_1.bin` … (as many as there are, in order) and `test_batch.bin`, plain or with `.gz`.
    ///
    /// # Errors
    /// Files that are missing, corrupt or no whole number of records.
    pub fn load_cifar(dir: impl AsRef<Path>) -> Result<(Self, Self), DataError> {
        let dir = dir.as_ref();
        let mut train = read(&find(dir, "data_batch_1.bin")?)?;
        let mut features = train.features.memory().to_vec();
        for number in 2.. {
            let Ok(path) = find(dir, &format!("data_batch_{number}.bin")) else { break };
            let more = read(&path)?;
            train.count += more.count;
            train.classes = train.classes.max(more.classes);
            features.extend_from_slice(more.features.memory());
            train.labels.extend(more.labels);
        }
        train.features = features.into();
        let mut test = read(&find(dir, "test_batch.bin")?)?;
        let classes = train.classes.max(test.classes);
        (train.classes, test.classes) = (classes, classes);
        Ok((train, test))
    }

    /// Parses the images of one CIFAR file, plain or compressed by gzip.
    ///
    /// # Errors
    /// Corrupt gzip, no whole number of records, or none.
    pub fn parse_cifar(bytes: &[u8]) -> Result<Self, Cause> {
        let mut unpacked = Vec::new();
        let data = if bytes.starts_with(&[0x1F, 0x8B]) {
            let read = MultiGzDecoder::new(bytes).take(MAX_UNPACKED_BYTES).read_to_end(&mut unpacked);
            read.map_err(Cause::Gzip)?;
            &unpacked
        } else {
            bytes
        };
        if data.is_empty() {
            return Err(Cause::Empty);
        }
        if data.len() % RECORD != 0 {
            let expected = format!("a whole number of records of {RECORD} bytes");
            return Err(Cause::Shape { expected, found: vec![data.len()] });
        }
        let (mut features, mut labels) = (Vec::with_capacity(data.len()), Vec::new());
        for record in data.chunks_exact(RECORD) {
            labels.push(u32::from(record[0]));
            // Planes to pixels.
            let planes = &record[1..];
            features.extend((0..PLANE).flat_map(|i| [planes[i], planes[PLANE + i], planes[2 * PLANE + i]]));
        }
        let classes = labels.iter().max().map_or(0, |&most| most as usize + 1);
        let (count, features, element) = (labels.len(), features.into(), Element::Byte);
        Ok(Self {
            count,
            height: SIDE,
            width: SIDE,
            channels: 3,
            element,
            features,
            labels,
            classes,
            sources: Sources::Unnamed,
            crop: None,
        })
    }
}

/// Returns the file that holds a training image, and its number there; both from 0.
pub(super) fn file_of(dir: &Path, mut image: usize) -> Result<(PathBuf, usize), DataError> {
    let mut number = 1;
    loop {
        let path = find(dir, &format!("data_batch_{number}.bin"))?;
        let count = read(&path)?.count;
        if image < count {
            return Ok((path, image));
        }
        (image, number) = (image - count, number + 1);
    }
}

fn read(path: &Path) -> Result<Classification, DataError> {
    Classification::parse_cifar(&store::read(path)?).map_err(|cause| cause.at(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::{fs, io::Write};

    #[test]
    fn records_become_pixels() {
        let dir = tempfile::tempdir().expect("a directory");
        let record = |label: u8| {
            let planes = (0..3 * PLANE).map(|i| u8::try_from((i / PLANE * 80 + i % 50) % 256).expect("a byte"));
            std::iter::once(label).chain(planes).collect::<Vec<u8>>()
        };
        fs::write(dir.path().join("data_batch_1.bin"), [record(3), record(9)].concat()).expect("a file");
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&record(1)).expect("memory");
        fs::write(dir.path().join("test_batch.bin.gz"), packed.finish().expect("memory")).expect("a file");
        let (train, test) = Classification::load_cifar(dir.path()).expect("records");
        assert_eq!((train.count, train.classes, &train.labels[..]), (2, 10, &[3, 9][..]));
        assert_eq!(train.features.memory()[..6], [0, 80 + 24, 160 + 48, 1, 80 + 25, 160 + 49]);
        assert_eq!((test.count, test.features.memory().len(), test.classes), (1, 3 * PLANE, 10));

        fs::write(dir.path().join("data_batch_2.bin"), &record(3)[..100]).expect("a file");
        let error = Classification::load_cifar(dir.path()).expect_err("cut off").to_string();
        assert!(error.contains("data_batch_2.bin") && error.contains("100"), "{error}");
        fs::write(dir.path().join("data_batch_2.bin"), [0x1F, 0x8B, 8, 0, 1]).expect("a file");
        let error = Classification::load_cifar(dir.path()).expect_err("corrupt").to_string();
        assert!(error.contains("data_batch_2.bin") && error.lines().count() == 1, "{error}");
    }
}
