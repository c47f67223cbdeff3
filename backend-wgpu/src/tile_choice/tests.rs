//! Preferences, and the choice with invented times: nothing is timed here.

use super::*;
use pollster::block_on;

fn times(milliseconds: &[(ProductTile, u64)]) -> Vec<TileTime> {
    milliseconds.iter().map(|&(tile, time)| TileTime { tile, time: Duration::from_millis(time) }).collect()
}

#[test]
fn preferences_have_names() {
    let parse = |text: &str| TilePreference::from_variable(Some(text.into()));
    for (text, preference) in [
        ("", TilePreference::Auto),
        ("auto", TilePreference::Auto),
        ("measure", TilePreference::Measure),
        ("keep", TilePreference::Keep),
        ("128x64", TilePreference::Pinned(ProductTile::Rows128)),
        ("16x16", TilePreference::Pinned(ProductTile::Side16)),
    ] {
        assert_eq!(parse(text).ok(), Some(preference), "{text}");
    }
    for tile in ProductTile::ALL {
        assert_eq!(parse(&tile.to_string()).ok(), Some(TilePreference::Pinned(tile)));
    }
    assert_eq!(TilePreference::from_variable(None).ok(), Some(TilePreference::Auto));
}

#[test]
fn a_wrong_name_is_an_error_with_the_right_ones() {
    for wrong in ["7x7", "128X64", "fastest", " 128x64"] {
        let error = TilePreference::from_variable(Some(wrong.into())).expect_err(wrong);
        assert!(matches!(error, Error::Tile(_)), "{error}");
        let names = "auto, measure, keep or one of 128x128, 128x64, 64x128, 256x16, 64x64, 16x16";
        assert_eq!(error.to_string(), format!("GRADSCALE_WGPU_TILE must be {names}, not {wrong}"));
    }
}

#[test]
fn the_fastest_tile_wins_if_it_is_clearly_faster() {
    use ProductTile::{Rows128, Side16, Side64, Side128};
    assert_eq!(fastest_tile(Side128, &times(&[(Side128, 100), (Rows128, 94), (Side64, 93)])), Side64);
    // Within the noise of times the guess remains, also where it is the slowest.
    assert_eq!(fastest_tile(Side128, &times(&[(Side128, 100), (Rows128, 96), (Side64, 99)])), Side128);
    assert_eq!(fastest_tile(Side64, &times(&[(Side128, 100), (Rows128, 96), (Side64, 99)])), Side64);
    // The guess did not compile, or a clock is too coarse.
    assert_eq!(fastest_tile(Side128, &times(&[(Rows128, 7), (Side16, 8)])), Rows128);
    assert_eq!(fastest_tile(Side64, &times(&[(Side128, 0), (Side64, 0)])), Side64);
    assert_eq!(fastest_tile(Side64, &[]), Side64);
}

/// A choice whose timing returns an error or, without one, that 64×64 is the fastest; and whether it was timed.
fn choose(
    preference: TilePreference, is_software: bool, cache: Option<&TileCache>, error: Option<Error>,
) -> (Result<TileChoice, Error>, bool) {
    let mut was_timed = false;
    let measured = times(&[(ProductTile::Side128, 9), (ProductTile::Side64, 5)]);
    let time = async || {
        was_timed = true;
        error.map_or(Ok(measured), Err)
    };
    let choice = block_on(preference.choose(is_software, ProductTile::Side128, cache.cloned(), time));
    (choice, was_timed)
}

#[test]
fn a_pinned_tile_is_not_timed() {
    for is_software in [false, true] {
        let (choice, was_timed) = choose(TilePreference::Pinned(ProductTile::Rows256), is_software, None, None);
        let choice = choice.expect("a tile");
        assert_eq!((choice.tile, choice.reason.clone()), (ProductTile::Rows256, TileReason::Pinned));
        assert_eq!((choice.to_string().as_str(), was_timed), ("256x16 (pinned)", false));
    }
}

#[test]
fn a_gpu_is_timed_and_a_driver_on_a_cpu_only_on_request() {
    for (preference, is_software, timed) in [
        (TilePreference::Auto, false, true),
        (TilePreference::Auto, true, false),
        (TilePreference::Keep, true, false),
        (TilePreference::Measure, true, true),
    ] {
        let (choice, was_timed) = choose(preference, is_software, None, None);
        let text = if timed { "64x64 (measured: 128x128 9.00ms, 64x64 5.00ms)" } else { "128x128 (guessed by vendor)" };
        assert_eq!((choice.expect("a tile").to_string().as_str(), was_timed), (text, timed), "{preference:?}");
    }
}

#[test]
fn a_failed_timing_leaves_the_guess_and_a_lost_device_is_an_error() {
    let (choice, was_timed) = choose(TilePreference::Auto, false, None, Some(Error::Failed("no memory".into())));
    assert_eq!(choice.expect("a guess").reason, TileReason::Guessed);
    assert!(was_timed);
    let (choice, _) = choose(TilePreference::Auto, false, None, Some(Error::Lost("gone".into())));
    assert!(matches!(choice, Err(Error::Lost(_))));
}

/// Only `keep` reads and writes the file; a damaged one is timed again and replaced.
#[test]
fn a_kept_tile_is_not_timed_again() {
    let folder = std::env::temp_dir().join(format!("gradscale-tile-choice-{}", std::process::id()));
    let cache = TileCache::new(&folder, "a GPU");
    let reason = |preference| {
        let (choice, was_timed) = choose(preference, false, Some(&cache), None);
        let choice = choice.expect("a tile");
        assert_eq!(choice.tile, ProductTile::Side64);
        assert_eq!(was_timed, matches!(choice.reason, TileReason::Measured(_)));
        choice.reason
    };
    reason(TilePreference::Auto);
    assert!(!folder.exists(), "auto kept it");
    assert!(matches!(reason(TilePreference::Keep), TileReason::Measured(_)));
    assert_eq!(reason(TilePreference::Keep), TileReason::Kept);
    assert!(matches!(reason(TilePreference::Auto), TileReason::Measured(_)));
    let files: Vec<_> =
        std::fs::read_dir(&folder).expect("a folder").map(|file| file.expect("a file").path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    std::fs::write(&files[0], "tile 16x16").expect("a file");
    assert!(matches!(reason(TilePreference::Keep), TileReason::Measured(_)));
    assert_eq!(reason(TilePreference::Keep), TileReason::Kept);
    std::fs::remove_dir_all(&folder).expect("a folder");
}

#[test]
fn vendors_have_first_guesses() {
    let guess = |device_type, backend, vendor| {
        guess_tile(&wgpu::AdapterInfo { vendor, ..wgpu::AdapterInfo::new(device_type, backend) })
    };
    use wgpu::{Backend, DeviceType};
    assert_eq!(guess(DeviceType::DiscreteGpu, Backend::Vulkan, 0x10de), ProductTile::Side128);
    assert_eq!(guess(DeviceType::IntegratedGpu, Backend::Dx12, 0x1002), ProductTile::Side128);
    assert_eq!(guess(DeviceType::IntegratedGpu, Backend::Vulkan, 0x8086), ProductTile::Side64);
    assert_eq!(guess(DeviceType::IntegratedGpu, Backend::Metal, 0), ProductTile::Rows128);
    assert_eq!(guess(DeviceType::Other, Backend::BrowserWebGpu, 0), ProductTile::Side64);
    assert_eq!(guess(DeviceType::Cpu, Backend::Vulkan, 0x10005), ProductTile::Side128);
}
