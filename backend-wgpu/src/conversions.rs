//! Conversions between halves and f32 in kernels: the device's own, if it has the same bits, else integers.

use core::fmt;

/// Conversions between halves and f32 that a device's kernels use. Both directions have the same bits on every device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Conversions {
    /// Conversion of halves to f32.
    pub decoding: Decoding,
    /// Conversion of f32 to halves.
    pub encoding: Encoding,
}

/// Conversion of halves to f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Decoding {
    /// Integer arithmetic.
    #[default]
    Integers,
    /// The device's `unpack2x16float`.
    Hardware,
    /// The device's `unpack2x16float`, and then NaN is made quiet.
    Quieted,
}

/// Conversion of f32 to halves, to nearest even.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Integer arithmetic.
    #[default]
    Integers,
    /// The device's `pack2x16float`.
    Pack,
    /// The device's conversion to f16, packed. Needs f16 in shaders.
    Round,
}

impl fmt::Display for Conversions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decoding = match self.decoding {
            Decoding::Integers => "integers",
            Decoding::Hardware => "hardware",
            Decoding::Quieted => "hardware, NaN by integers",
        };
        let encoding = match self.encoding {
            Encoding::Integers => "integers",
            Encoding::Pack => "hardware",
            Encoding::Round => "hardware through f16",
        };
        write!(f, "f16 to f32 by {decoding}; f32 to f16 by {encoding}")
    }
}

#[test]
fn conversions_are_described() {
    let text = Conversions { decoding: Decoding::Quieted, encoding: Encoding::Round }.to_string();
    assert_eq!(text, "f16 to f32 by hardware, NaN by integers; f32 to f16 by hardware through f16");
    assert_eq!(Conversions::default().to_string(), "f16 to f32 by integers; f32 to f16 by integers");
}
