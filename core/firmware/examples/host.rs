//! Prints on the host the same report as `report` on the device.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    let mut text = String::new();
    gradscale_firmware::print(&mut text).map_err(io::Error::other)?;
    io::stdout().write_all(text.as_bytes())
}
