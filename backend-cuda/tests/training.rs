//! The engine on the emulation.

mod emulated;
mod segnet;

use gradscale_cuda::{HaloTiles, kernels::CONV_HALO};

#[test]
fn segnet_on_the_emulation() {
    match emulated::open(80, 2) {
        Ok(_) => segnet::check(|| emulated::open(80, 2).expect("as before")),
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}

#[test]
fn segnet_by_halo_tiles() {
    match emulated::Emulated::new(90, 2) {
        Ok(emulated) => {
            segnet::check_few_channels(|| emulated.open().expect("a device").with_halo_tiles(HaloTiles::Always));
            let used = emulated.used();
            assert!(CONV_HALO.iter().all(|kernel| used.contains_key(kernel.module.name)), "{used:?}");
        }
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}
