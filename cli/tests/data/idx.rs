//! IDX files: invalid ones, and the memory that valid ones may take.

use crate::files::{gzip, idx};
use gradscale_cli::data::{Cause, Idx};
use std::io::{self, Read};

#[test]
fn idx_that_is_none() {
    let file = idx(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    assert_eq!(Idx::parse(&file).unwrap(), Idx::parse(&gzip(&file)).unwrap());
    for end in 0..file.len() {
        let message = Idx::parse(&file[..end]).unwrap_err().to_string();
        assert!(message.starts_with("truncated: "), "{message}");
    }
    let message = |bytes: &[u8]| Idx::parse(bytes).unwrap_err().to_string();
    assert_eq!(message(&file[..15]), "truncated: 3 bytes of the 6 that its header declares");
    assert_eq!(message(&[&file[..], &[0]].concat()), "more bytes than the 6 that its header declares");
    assert_eq!(message(&[0, 0, 0x0d, 1, 0, 0, 0, 0]), "IDX of element type 0x0d, expected 0x08 (unsigned bytes)");
    assert!(message(b"\x89PNG\r\n").starts_with("not an IDX file: begins with 89 50 4e 47"));
    assert!(message(&[0, 0, 8, 0, 5]).starts_with("not an IDX file"));
    let packed = gzip(&file);
    for end in 2..packed.len() {
        assert!(matches!(Idx::parse(&packed[..end]), Err(Cause::Gzip(_))), "gzip cut off after {end} bytes");
    }
    let mut wrong = packed.clone();
    wrong[packed.len() - 6] ^= 1; // in the checksum
    assert!(message(&wrong).starts_with("truncated or corrupt gzip data: "));
    assert!(matches!(Idx::parse(&[&packed[..], b"more"].concat()), Err(Cause::Gzip(_))));
}

#[test]
fn memory_is_bounded_by_what_arrives() {
    let most = u32::MAX;
    // 2⁶⁴ − 2³³ + 1 bytes; allocating them would fail.
    let huge = idx(&[most, most], &[0; 100]);
    assert!(matches!(Idx::parse(&huge), Err(Cause::Truncated { found: 100, .. })));
    assert!(matches!(Idx::parse(&gzip(&huge)), Err(Cause::Truncated { found: 100, .. })));
    assert!(matches!(Idx::parse(&idx(&[most, most, 2], &[])), Err(Cause::TooLarge(_))));
    assert!(matches!(Idx::parse(&idx(&[most; 255], &[])), Err(Cause::TooLarge(_))));
    assert!(matches!(Idx::parse(&idx(&[most, 0], &[])), Ok(Idx { data, .. }) if data.is_empty()));
    // Streams without end, and gzip of far more than announced: reading stops.
    let endless = io::Cursor::new(idx(&[2, 3], &[])).chain(io::repeat(7));
    assert!(matches!(Idx::from_reader(endless), Err(Cause::Trailing { expected: 6 })));
    let bomb = gzip(&idx(&[2, 3], &vec![0; 1 << 26]));
    let mut rest = &bomb[..];
    assert!(matches!(Idx::from_reader(&mut rest), Err(Cause::Trailing { expected: 6 })));
    assert!(rest.len() > bomb.len() / 4, "{} of {} bytes left", rest.len(), bomb.len());
}
