//! Candidates of adapters.

use super::Coop;
use core::ops::RangeInclusive;
use gradscale_core::ops::GemmShape;

fn sizes(sides: &[u32], sizes: RangeInclusive<u32>) -> Vec<(u32, u32)> {
    Coop::arrangements(sides, sizes).into_iter().map(|coop| (coop.side, coop.size)).collect()
}

#[test]
fn every_power_of_two_between_minimum_and_maximum_is_a_candidate() {
    // NVIDIA, RDNA, Intel, Apple.
    assert_eq!(sizes(&[16], 32..=32), [(16, 32)]);
    assert_eq!(sizes(&[16], 32..=64), [(16, 32), (16, 64)]);
    assert_eq!(sizes(&[16, 8], 8..=32), [(16, 32), (8, 8), (8, 16), (8, 32)]);
    assert_eq!(sizes(&[8], 32..=32), [(8, 32)]);
    // Sizes that no arrangement fills 256 invocations with.
    assert_eq!(sizes(&[8], 4..=4), []);
    assert_eq!(sizes(&[8, 16], 128..=256), []);
    for coop in Coop::arrangements(&[8, 16], 1..=128) {
        let [rows, columns] = coop.subgroups;
        assert_eq!(rows * columns * coop.size, 256, "{coop:?}");
        // The memory for blocks of results, in coop.wgsl.
        assert!(rows * columns * coop.side * coop.side <= 2048, "{coop:?}");
        for (m, n) in [(4096, 4096), (4096, 64), (64, 4096), (40, 40)] {
            let subgroups = coop.arrange_subgroups(GemmShape { m, n, k: 64 });
            assert_eq!(subgroups[0] * subgroups[1], rows * columns, "{coop:?}");
            let tile = coop.tile_sides(subgroups);
            // Invocations load at most two eights of each operand; the lines of both tiles in coop.wgsl.
            assert!(tile.iter().all(|&side| side <= 256) && tile.iter().sum::<u32>() <= 320, "{coop:?}: {tile:?}");
        }
    }
}

#[test]
fn the_arrangement_of_subgroups_leaves_few_results_empty() {
    let tile = |side, size, m, n| {
        let coop = Coop::arrangements(&[side], size..=size)[0];
        coop.tile_sides(coop.arrange_subgroups(GemmShape { m, n, k: 64 }))
    };
    // NVIDIA: large products, 64 channels forward, weight gradients of 64 outputs.
    assert_eq!(tile(16, 32, 4096, 4096), [128, 128]);
    assert_eq!(tile(16, 32, 2_000_000, 64), [256, 64]);
    assert_eq!(tile(16, 32, 64, 3136), [64, 256]);
    // 128 columns fill a tile of 128, and 192 one of 64.
    assert_eq!(tile(16, 32, 2_000_000, 128), [128, 128]);
    assert_eq!(tile(16, 32, 2_000_000, 192), [256, 64]);
    // RDNA, Apple.
    assert_eq!(tile(16, 64, 2_000_000, 64), [128, 64]);
    assert_eq!(tile(8, 32, 2_000_000, 64), [64, 64]);
}
