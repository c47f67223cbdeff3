//! Text: files of lines, parallel texts in two languages, and the pieces into which words are split.

mod bpe;
mod buckets;
mod parallel_text;
mod synthetic;

pub use bpe::{BEGIN, END, PAD_TOKEN, PIECES, Pieces};
pub use buckets::Buckets;
pub use parallel_text::{Pair, Parallel};

use super::{Cause, DataError, store};
use flate2::read::MultiGzDecoder;
use std::{io::Read, path::Path};

/// Bytes that every gzip file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Reads the lines of a file in UTF-8, plain or gzip'ed, whatever its name; without their ends, which may be those of
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
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        Cause::Table { line, reason: "not UTF-8".into() }.at(path)
    })?;
    // Some editors begin files with a mark.
    Ok(text.strip_prefix('\u{feff}').unwrap_or(&text).lines().map(str::to_owned).collect())
}
