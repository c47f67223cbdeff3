//! Formats of stores by the kind of value, and their options in the text of a method.

use super::options::{Options, Text};
use gradscale_core::store_format::StoreFormat;

/// Options of a method's text for formats; the first one sets all three.
const KEYS: [&str; 4] = ["format", "grad", "act", "weight"];

/// Formats to which values are rounded where they are stored in half (`format=`, `grad=`, `act=`, `weight=`). Memory and
/// products stay those of half, which holds every value of each format: the 8-bit formats are simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFormats {
    /// Format of gradients of intermediate values, at cast sites (`grad=`).
    pub gradient: StoreFormat,
    /// Format of activations and inputs, at forward stores (`act=`).
    pub activation: StoreFormat,
    /// Format of weights with two dimensions or more that products read in half (`weight=`). Master weights stay f32.
    pub weight: StoreFormat,
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

/// Checks that a method without formats has none of their options.
pub(super) fn refuse(options: &mut Options<'_>, why: &str) -> Result<(), String> {
    match KEYS.into_iter().find(|key| options.take(key).is_some()) {
        Some(key) => Err(format!("{key} {why}; formats of 8 bits need gs or amax")),
        None => Ok(()),
    }
}

/// Writes the formats of a method's text that are not FP16.
pub(super) fn text(text: &mut Text, formats: StoreFormats) {
    let StoreFormats { gradient, activation, weight } = formats;
    if formats == StoreFormats::uniform(gradient) {
        return text.unless(StoreFormat::Fp16, KEYS[0], gradient, gradient);
    }
    for (key, format) in KEYS.into_iter().skip(1).zip([gradient, activation, weight]) {
        text.unless(StoreFormat::Fp16, key, format, format);
    }
}
