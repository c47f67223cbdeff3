//! IDX, the container of MNIST: an array of bytes with its sizes.
//!
//! ```text
//! 00 00 08 N      N dimensions of unsigned bytes
//! N × u32         the sizes, big-endian, the slowest first
//! bytes           as many as the sizes' product
//! ```

use super::{Cause, DataError, Store};
use flate2::read::MultiGzDecoder;
use std::{
    cmp::Ordering,
    fs::File,
    io::{self, BufReader, Cursor, Read, Seek},
    path::Path,
};

/// Bytes that every gzip file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Array of bytes, as read from an IDX file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idx {
    /// Dimensions of the array, slowest first; at least one.
    pub dims: Vec<usize>,
    /// Elements; their number is the product of the dimensions.
    pub data: Vec<u8>,
}

impl Idx {
    /// Reads an IDX file, plain or compressed by gzip, whatever its name.
    ///
    /// # Errors
    /// See [`Idx::from_reader`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| Cause::Io(error).at(path))?;
        Self::from_reader(BufReader::new(file)).map_err(|cause| cause.at(path))
    }

    /// Opens an IDX file, and returns the sizes of its array and its elements. `keep` gets the number of images (the
    /// first size) and the bytes of each, and returns true if they should be in memory. Gzip files have no random
    /// access, so they are always read to memory.
    pub(super) fn open(path: &Path, keep: impl Fn(usize, usize) -> bool) -> Result<(Vec<usize>, Store), DataError> {
        let plain = || -> Result<Option<(Vec<usize>, Store)>, Cause> {
            let mut file = File::open(path).map_err(Cause::Io)?;
            let first = up_to(&mut file, 2).map_err(Cause::Io)?;
            if first == GZIP {
                return Ok(None);
            }
            let (dims, expected) = header(Cursor::new(first).chain(&mut file), Cause::Io)?;
            if dims[0] == 0 || keep(dims[0], expected / dims[0]) {
                return Ok(None);
            }
            let start = file.stream_position().map_err(Cause::Io)?;
            let found = file.metadata().map_err(Cause::Io)?.len().saturating_sub(start);
            match found.cmp(&(expected as u64)) {
                Ordering::Less => Err(Cause::Truncated { expected, found: usize::try_from(found).unwrap_or(0) }),
                Ordering::Equal => {
                    Ok(Some((dims, Store::Part { path: path.to_owned(), start, which: None, values: None })))
                }
                Ordering::Greater => Err(Cause::Trailing { expected }),
            }
        };
        if let Some(found) = plain().map_err(|cause| cause.at(path))? {
            return Ok(found);
        }
        let Self { dims, data } = Self::read(path)?;
        Ok((dims, data.into()))
    }

    /// Parses an IDX file in memory, plain or compressed by gzip.
    ///
    /// # Errors
    /// See [`Idx::from_reader`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Cause> {
        Self::from_reader(bytes)
    }

    /// Reads an IDX array from a stream, plain or compressed by gzip.
    ///
    /// Memory grows with the received bytes, not with the size in the header, and reading stops one byte after that
    /// size.
    ///
    /// # Errors
    /// The stream is not IDX of bytes, ends early or late, is corrupt gzip, or cannot be read.
    pub fn from_reader(mut reader: impl Read) -> Result<Self, Cause> {
        let first = up_to(&mut reader, 2).map_err(Cause::Io)?;
        let packed = first == GZIP;
        let reader = Cursor::new(first).chain(reader);
        if packed { unpacked(MultiGzDecoder::new(reader), Cause::Gzip) } else { unpacked(reader, Cause::Io) }
    }
}

/// Reads an IDX array from a stream that is not compressed.
fn unpacked(mut reader: impl Read, failed: fn(io::Error) -> Cause) -> Result<Idx, Cause> {
    let (dims, expected) = header(&mut reader, failed)?;
    let data = up_to(&mut reader, expected + 1).map_err(failed)?;
    match data.len() {
        found if found < expected => Err(Cause::Truncated { expected, found }),
        found if found > expected => Err(Cause::Trailing { expected }),
        _ => Ok(Idx { dims, data }),
    }
}

/// Reads the header: returns the dimensions and the number of bytes that follow.
fn header(mut reader: impl Read, failed: fn(io::Error) -> Cause) -> Result<(Vec<usize>, usize), Cause> {
    let magic = up_to(&mut reader, 4).map_err(failed)?;
    let &[zero, nought, element, dimensions] = &magic[..] else {
        return Err(Cause::Header(magic.len()));
    };
    if [zero, nought] != [0, 0] || dimensions == 0 {
        return Err(Cause::NotIdx([zero, nought, element, dimensions]));
    }
    if element != 0x08 {
        return Err(Cause::Element(element));
    }
    let header = up_to(&mut reader, 4 * usize::from(dimensions)).map_err(failed)?;
    if header.len() < 4 * usize::from(dimensions) {
        return Err(Cause::Header(4 + header.len()));
    }
    let sizes: Vec<u32> =
        header.chunks_exact(4).map(|b| b.iter().fold(0, |size, &byte| size << 8 | u32::from(byte))).collect();
    let dims: Option<Vec<usize>> = sizes.iter().map(|&size| size.try_into().ok()).collect();
    let product = dims.as_ref().and_then(|dims| dims.iter().try_fold(1_usize, |product, &d| product.checked_mul(d)));
    // One more byte must be readable, to see that there is none.
    match (dims, product) {
        (Some(dims), Some(expected @ ..usize::MAX)) => Ok((dims, expected)),
        _ => Err(Cause::TooLarge(sizes)),
    }
}

/// Reads up to `most` bytes; fewer only if the stream ends.
fn up_to(reader: &mut impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.by_ref().take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}
