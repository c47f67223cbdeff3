//! Encodings of text files: UTF-8 with or without a byte order mark, UTF-16 with one, and what an XML file declares.
//!
//! Other encodings are refused, because no test tells them apart: the byte 0xE9 is é in Latin-1, щ in KOI8-R and ι in
//! ISO 8859-7.

use super::{Cause, DataError, store};
use std::path::Path;

/// Byte order mark of UTF-8.
const UTF_8_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
/// Byte order marks of UTF-16, the low byte first and the high byte first.
const UTF_16_MARKS: [[u8; 2]; 2] = [[0xff, 0xfe], [0xfe, 0xff]];
/// Number of bytes at the begin of a file by which UTF-16 without a mark is recognised.
const SAMPLED_BYTES: usize = 1024;
/// Characters of the bytes 0x80 to 0x9f in Windows-1252; other bytes are as in Latin-1.
const WINDOWS_1252: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘', '’',
    '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// Reads a text file; see [`decode`].
///
/// # Errors
/// A file that cannot be read, or has another encoding.
pub(super) fn read_text(path: &Path) -> Result<String, DataError> {
    decode(store::read(path)?).map_err(|cause| cause.at(path))
}

/// Decodes text in UTF-8 or, with a byte order mark, UTF-16. The mark is dropped.
///
/// # Errors
/// Another encoding, with the line of the first byte that is wrong.
pub(super) fn decode(mut bytes: Vec<u8>) -> Result<String, Cause> {
    if let Some(text) = utf_16(&bytes) {
        return text;
    }
    if bytes.starts_with(&UTF_8_MARK) {
        bytes.drain(..UTF_8_MARK.len());
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count();
        Cause::Table { line, reason: not_utf_8(error.as_bytes().get(valid).copied()) }
    })
}

/// Returns the reason for a byte that no UTF-8 text has.
pub(super) fn not_utf_8(byte: Option<u8>) -> String {
    let byte = byte.map_or_else(String::new, |byte| format!(" (byte 0x{byte:02x})"));
    format!("not UTF-8{byte}; if the file is in Latin-1 or another encoding, convert it to UTF-8")
}

/// Decodes UTF-16 with a byte order mark; `None` for other bytes. Text that is UTF-16 without a mark is an error,
/// because half of its bytes would become characters of their own.
pub(super) fn utf_16(bytes: &[u8]) -> Option<Result<String, Cause>> {
    let marked = UTF_16_MARKS.iter().position(|mark| bytes.starts_with(mark));
    let Some(high_first) = marked else { return unmarked_utf_16(bytes).then(|| Err(Cause::Text(UNMARKED.to_owned()))) };
    let (units, rest) = bytes[2..].as_chunks::<2>();
    let unit = |unit: &[u8; 2]| if high_first == 1 { u16::from_be_bytes(*unit) } else { u16::from_le_bytes(*unit) };
    let text: Result<String, _> = char::decode_utf16(units.iter().map(unit)).collect();
    Some(match text {
        Ok(text) if rest.is_empty() => Ok(text),
        Ok(_) | Err(_) => Err(Cause::Text("invalid UTF-16; save it as UTF-8".to_owned())),
    })
}

const UNMARKED: &str = "looks like UTF-16 without a byte order mark; save it as UTF-8";

/// Returns true if nearly every second byte is zero, as in UTF-16 of western text, and hardly any of the others.
fn unmarked_utf_16(bytes: &[u8]) -> bool {
    let (units, _) = bytes[..bytes.len().min(SAMPLED_BYTES)].as_chunks::<2>();
    let zeros = [0, 1].map(|at: usize| units.iter().filter(|unit| unit[at] == 0).count());
    // Nine of ten, since some characters are not western.
    !units.is_empty() && zeros[0].max(zeros[1]) * 10 >= units.len() * 9 && zeros[0].min(zeros[1]) * 10 <= units.len()
}

/// Decodes XML: by its byte order mark, by the encoding that it declares, or else as UTF-8.
///
/// # Errors
/// A declared encoding that is not supported, by its name; bytes that are not in the declared one.
pub(super) fn decode_xml(bytes: Vec<u8>) -> Result<String, Cause> {
    let marked = bytes.starts_with(&UTF_8_MARK) || UTF_16_MARKS.iter().any(|mark| bytes.starts_with(mark));
    let declared = if marked { None } else { declared_encoding(&bytes) };
    match declared.as_deref() {
        // All encodings in use agree on these.
        Some(_) if bytes.is_ascii() => decode(bytes),
        Some("iso-8859-1" | "latin1" | "latin-1" | "windows-1252" | "cp1252") => {
            let high = |byte: u8| WINDOWS_1252.get(usize::from(byte).wrapping_sub(0x80)).copied();
            Ok(bytes.into_iter().map(|byte| high(byte).unwrap_or(char::from(byte))).collect())
        }
        None | Some("utf-8" | "utf8" | "us-ascii" | "ascii") => decode(bytes),
        Some(other) => Err(Cause::Text(format!("declares the encoding {other}; save it as UTF-8"))),
    }
}

/// Returns the encoding in an XML declaration, in small letters.
fn declared_encoding(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|&byte| byte == b'>')?;
    let declaration = std::str::from_utf8(&bytes[..end]).ok().filter(|text| text.trim_start().starts_with("<?xml"))?;
    let (_, value) = declaration.split_once("encoding")?;
    let value = value.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|c| ['"', '\''].contains(c))?;
    value[1..].split(quote).next().map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(bytes).collect()
    }

    #[test]
    fn texts_are_decoded_or_refused() {
        let (little, big) = (u16::to_le_bytes as fn(u16) -> [u8; 2], u16::to_be_bytes as fn(u16) -> [u8; 2]);
        for bytes in [
            "aé€\n𝄞".as_bytes().to_vec(),
            "\u{feff}aé€\n𝄞".as_bytes().to_vec(),
            units("\u{feff}aé€\n𝄞", little),
            units("\u{feff}aé€\n𝄞", big),
        ] {
            assert_eq!(decode(bytes.clone()).expect("text"), "aé€\n𝄞", "{bytes:x?}");
        }
        let odd = [units("\u{feff}ab", little), vec![0]].concat();
        for (bytes, reason) in [
            (b"a\ncaf\xe9\n".to_vec(), "line 2: not UTF-8 (byte 0xe9); if the file is in Latin-1"),
            (units("plain text", little), "looks like UTF-16 without"),
            (units("plain text", big), "looks like UTF-16 without"),
            (odd, "invalid UTF-16"),
            (units("\u{feff}", little).into_iter().chain([0, 0xd8]).collect(), "invalid UTF-16"),
        ] {
            let cause = decode(bytes.clone()).expect_err("a refusal").to_string();
            assert!(cause.starts_with(reason), "{bytes:x?}: {cause}");
        }
        // Nothing, and zeros that are no UTF-16.
        assert_eq!(decode(Vec::new()).expect("text"), "");
        assert_eq!(decode(b"a\0bcd".to_vec()).expect("text"), "a\0bcd");
    }

    #[test]
    fn xml_declares_its_encoding() {
        let with = |encoding: &str, byte: &[u8]| {
            [format!("<?xml version='1.0' encoding={encoding}?>\n<a>").as_bytes(), byte, b"</a>"].concat()
        };
        for (bytes, inside) in [
            (with("\"ISO-8859-1\"", b"\xe9"), "<a>é<"),
            (with("'Windows-1252'", b"\x80\xfc"), "<a>€ü<"),
            (with("'utf-8'", "ü".as_bytes()), "<a>ü<"),
            (with("'gb2312'", b"plain"), "<a>plain<"),
            (units("\u{feff}<?xml version='1.0' encoding='utf-16'?><a>ü</a>", u16::to_le_bytes), "<a>ü<"),
            (b"<a>\xc3\xbc</a>".to_vec(), "<a>ü<"),
        ] {
            assert!(decode_xml(bytes).expect("text").contains(inside), "{inside}");
        }
        let refused = |bytes| decode_xml(bytes).expect_err("a refusal").to_string();
        assert_eq!(refused(with("'GB2312'", b"\xb0\xa1")), "declares the encoding gb2312; save it as UTF-8");
        assert!(refused(with("'utf-8'", b"\xb0\xa1")).starts_with("line 2: not UTF-8 (byte 0xb0)"));
    }
}
