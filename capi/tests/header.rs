//! Tests that `include/gradscale.h` is the output of cbindgen. `GRADSCALE_WRITE_HEADER=1` writes it.

use std::path::Path;

#[test]
fn the_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut made = Vec::new();
    cbindgen::generate_with_config(root, config).expect("the sources").write(&mut made);
    let made = String::from_utf8(made).expect("a text");
    let path = root.join("include/gradscale.h");
    if std::env::var_os("GRADSCALE_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("the header");
    }
    let there = std::fs::read_to_string(&path).expect("the header");
    assert!(there == made, "gradscale.h is not that of the sources: GRADSCALE_WRITE_HEADER=1 writes it");
}
