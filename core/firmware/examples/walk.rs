//! Prints the short part of the report, for an interpreter (Miri).

use std::io::{self, Write};

fn main() -> io::Result<()> {
    let mut text = String::new();
    gradscale_firmware::walk::print(&mut text).map_err(io::Error::other)?;
    io::stdout().write_all(text.as_bytes())
}
