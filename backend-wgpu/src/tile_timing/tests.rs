//! Timing on the first adapter, a small product by two tiles; no time is compared.

use crate::{ProductTile, TilePreference, TileReason, Wgpu, adapters};
use core::time::Duration;
use gradscale_core::ops::GemmShape;
use pollster::block_on;

#[test]
fn each_tile_is_timed_and_a_pinned_one_is_not() {
    let Some(adapter) = adapters().into_iter().next() else {
        assert!(std::env::var("GRADSCALE_REQUIRE_DEVICE").as_deref() != Ok("1"), "no device, and one is required");
        println!("SKIPPED: no adapter");
        return;
    };
    let device = Wgpu::open(&adapter, false).expect("a device");
    if adapter.is_software() && std::env::var_os("GRADSCALE_WGPU_TILE").is_none() {
        assert_eq!(device.product_tile_choice().reason, TileReason::Guessed);
    }
    let pinned = TilePreference::Pinned(ProductTile::Columns128);
    let mut device = device.with_tile_preference(&adapter, pinned).expect("a tile");
    assert_eq!(device.product_tile_choice().to_string(), "64x128 (pinned)");
    let candidates = [ProductTile::Side64, ProductTile::Side16];
    let times = block_on(device.time_tiles(&candidates, GemmShape { m: 64, n: 64, k: 64 })).expect("times");
    assert_eq!(times.iter().map(|one| one.tile).collect::<Vec<_>>(), candidates);
    assert!(times.iter().all(|one| one.time < Duration::MAX), "{times:?}");
    assert_eq!((device.product_tile, device.product_tile_choice().tile), (None, ProductTile::Columns128));
}
