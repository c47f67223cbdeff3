//! Conversions of the devices that are there, and planted faults.

use super::ConversionFaults;
use crate::{Conversions, Decoding, Encoding, EnginePreference, Wgpu, adapters};
use pollster::block_on;

/// A single wrong number, at the ends and in the middle, refuses the hardware's conversion of its direction alone.
#[test]
fn one_wrong_conversion_is_refused() {
    for adapter in adapters() {
        let mut device = Wgpu::open_with(&adapter, false, EnginePreference::Simt).expect("a device");
        let right = device.conversions();
        println!("{}: {right}", adapter.name());
        let mut chosen = |faults| {
            block_on(device.choose_conversions(faults)).expect("a test");
            device.conversions()
        };
        for half in [0, 0xffff] {
            let wrong = chosen(ConversionFaults { decoded: half, ..ConversionFaults::NONE });
            assert_eq!(wrong, Conversions { decoding: Decoding::Integers, ..right }, "{half}");
        }
        // Zero, an f32 beside a tie, and NaN.
        for encoded in [0, 8 * 0x3c01 + 4, 8 * 0xffff + 7] {
            let wrong = chosen(ConversionFaults { encoded, ..ConversionFaults::NONE });
            assert_eq!(wrong, Conversions { encoding: Encoding::Integers, ..right }, "{encoded}");
        }
    }
}
