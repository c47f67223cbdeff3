//! Text: files of lines, parallel texts in two languages, and the pieces into which words are split.

mod bpe;
mod buckets;
mod parallel_text;
mod synthetic;

pub use bpe::{BEGIN, END, PAD_TOKEN, PIECES, Pieces};
pub use buckets::Buckets;
pub use parallel_text::{Pair, Parallel};

use super::{Cause, DataError, encoding::decode, store};
use flate2::read::MultiGzDecoder;
use std::{io::Read, path::Path};

/// Bytes that every gzip file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Reads the lines of a text file, plain or gzip'ed, whatever its name; without their ends, which may be those of
/// Windows.
///
/// # Errors
/// A file that cannot be read, gzip data that are cut off or corrupt, the first line that is no UTF-8.
pub fn lines(path: &Path) -> Result<Vec<String>, DataError> {
    let mut bytes = store::read(path)?;
    if bytes.starts_with(&GZIP) {
        let mut plain = Vec::new();
        MultiGzDecoder::new(&bytes[..]).read_to_end(&mut plain).map_err(|error| Cause::Gzip(error).at(path))?;
        bytes = plain;
    }
    let text = decode(bytes).map_err(|cause| cause.at(path))?;
    Ok(text.lines().map(str::to_owned).collect())
}
