//! Candidates of adapters.

use super::Coop;
use core::ops::RangeInclusive;

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
        assert!(coop.tile().into_iter().all(|side| side <= 128), "{coop:?}");
        // The memory for blocks of results, in coop.wgsl.
        assert!(rows * columns * coop.side * coop.side <= 2048, "{coop:?}");
    }
}
