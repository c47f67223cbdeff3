//! The engine on the emulation.

mod emulated;
mod segnet;

#[test]
fn segnet_on_the_emulation() {
    match emulated::open(80, 2) {
        Ok(_) => segnet::check(|| emulated::open(80, 2).expect("as before")),
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}
