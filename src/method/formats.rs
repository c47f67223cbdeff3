//! Formats of stores by the kind of value, and their options in the text of a method.

use super::options::{Options, Text};
use gradscale_core::store_format::StoreFormat;

/// Options of a method's text for formats; the first one sets all three.
const KEYS: [&str; 4] = ["format", "grad", "act", "weight"];
/// Option of a method's text for products.
const PRODUCTS: &str = "products";

/// Formats to which values are rounded where they are stored in half (`format=`, `grad=`, `act=`, `weight=`). Memory
/// stays that of half, which holds every value of each format: the 8-bit formats are simulated. Products read halves unless
/// [`Products::EightBits`] is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFormats {
    /// Format of gradients of intermediate values, at cast sites (`grad=`).
    pub gradient: StoreFormat,
    /// Format of activations and inputs, at forward stores (`act=`).
    pub activation: StoreFormat,
    /// Format of weights with two dimensions or more that products read in half (`weight=`). Master weights stay f32.
    pub weight: StoreFormat,
}

/// Units that multiply operands of 8 bits (`products=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Products {
    /// Products read all operands as halves and sum in f32.
    #[default]
    Half,
    /// Matrix products and convolutions of two operands of 8 bits may be computed by units for 8 bits (`products=fp8`). CUDA
    /// devices from compute capability 8.9 on have them, and a trainer on an earlier one is refused. Other devices multiply
    /// halves. So do gradients of a convolution's weights, and sums over channels that are no multiple of 16.
    EightBits,
}

impl StoreFormats {
    /// Creates the same format for all values (`format=`).
    #[must_use]
    pub const fn uniform(format: StoreFormat) -> Self {
        Self { gradient: format, activation: format, weight: format }
    }

    /// Returns true if values of the forward pass have another format than FP16, and so need exponents of their own.
    #[must_use]
    pub fn scales_forward(self) -> bool {
        [self.activation, self.weight] != [StoreFormat::Fp16; 2]
    }

    /// Returns true if some product has two operands of 8 bits: two activations, or a gradient and a weight.
    #[must_use]
    pub fn has_eight_bit_products(self) -> bool {
        let is_half = |format| format == StoreFormat::Fp16;
        !is_half(self.activation) || !is_half(self.gradient) && !is_half(self.weight)
    }
}

/// Removes the options of formats and returns the formats. A single kind overrides `format=`.
pub(super) fn parse(options: &mut Options<'_>) -> Result<StoreFormats, String> {
    let [all, gradient, activation, weight] = KEYS.map(|key| {
        let Some(text) = options.take(key) else { return Ok(None) };
        let known = StoreFormat::ALL.into_iter().find(|format| format.name() == text);
        known.map(Some).ok_or_else(|| format!("{key} must be fp16, e5m2 or e4m3, not {text}"))
    });
    let all = all?.unwrap_or_default();
    Ok(StoreFormats {
        gradient: gradient?.unwrap_or(all),
        activation: activation?.unwrap_or(all),
        weight: weight?.unwrap_or(all),
    })
}

/// Removes the option of products and returns their units.
pub(super) fn parse_products(options: &mut Options<'_>, formats: StoreFormats) -> Result<Products, String> {
    match options.take(PRODUCTS) {
        None | Some("half") => Ok(Products::Half),
        Some("fp8") if formats.has_eight_bit_products() => Ok(Products::EightBits),
        Some("fp8") => Err("products=fp8 needs operands of 8 bits, for example format=e4m3".to_owned()),
        Some(other) => Err(format!("products must be half or fp8, not {other}")),
    }
}

/// Checks that a method without formats has none of their options.
pub(super) fn refuse(options: &mut Options<'_>, why: &str) -> Result<(), String> {
    match KEYS.into_iter().chain([PRODUCTS]).find(|key| options.take(key).is_some()) {
        Some(key) => Err(format!("{key} {why}; formats of 8 bits need gs, amax or block")),
        None => Ok(()),
    }
}

/// Writes the formats of a method's text that are not FP16, and units of products for them.
pub(super) fn text(text: &mut Text, formats: StoreFormats, products: Products) {
    stores(text, formats);
    text.unless(Products::Half, PRODUCTS, products, "fp8");
}

fn stores(text: &mut Text, formats: StoreFormats) {
    let StoreFormats { gradient, activation, weight } = formats;
    if formats == StoreFormats::uniform(gradient) {
        return text.unless(StoreFormat::Fp16, KEYS[0], gradient, gradient);
    }
    for (key, format) in KEYS.into_iter().skip(1).zip([gradient, activation, weight]) {
        text.unless(StoreFormat::Fp16, key, format, format);
    }
}
