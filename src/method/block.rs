//! Parser and formatter of block scaling: `block:format=e4m3,size=128,scale=up`.

use super::{
    Products, StoreFormats, formats,
    options::{Options, Text},
};
use gradscale_core::{
    block_format::{BlockFormat, BlockFormatError, ScaleRounding},
    store_format::StoreFormat,
};

/// Default size of blocks, that of the MX formats.
const MX_SIZE: u32 = 32;

/// Settings of block scaling: 8-bit formats whose values share a power of two in blocks of consecutive values, as in the MX
/// formats. There is no rule and no state: each block takes its exponent from the values of each store.
///
/// Gradients, activations and weights are all stored in blocks. Memory and products stay f32, which holds every value of
/// every block: the formats are simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockScaling {
    gradient: BlockFormat,
    activation: BlockFormat,
    weight: BlockFormat,
}

impl BlockScaling {
    /// Creates block scaling with blocks of `size` values along the last axis of each tensor.
    ///
    /// ```
    /// use gradscale::{BlockScaling, Method, StoreFormats, gradscale_core::store_format::StoreFormat};
    /// let method = Method::block_scaling(BlockScaling::new(StoreFormats::uniform(StoreFormat::E4m3), 128)?);
    /// assert_eq!(method, "block:format=e4m3,size=128".parse()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// FP16 among the formats, or a size that is no power of two from 16 to 1024.
    pub fn new(formats: StoreFormats, size: u32) -> Result<Self, BlockFormatError> {
        let StoreFormats { gradient, activation, weight } = formats;
        Ok(Self {
            gradient: BlockFormat::new(gradient, size)?,
            activation: BlockFormat::new(activation, size)?,
            weight: BlockFormat::new(weight, size)?,
        })
    }

    /// Returns the scaling with the scales of its blocks rounded in that direction. MX rounds them down, which is the
    /// default.
    ///
    /// ```
    /// use gradscale::{BlockScaling, Method, StoreFormats, gradscale_core::{block_format::ScaleRounding, store_format::StoreFormat}};
    /// let scaling = BlockScaling::new(StoreFormats::uniform(StoreFormat::E4m3), 32)?;
    /// let method = Method::block_scaling(scaling.with_scale_rounding(ScaleRounding::Up));
    /// assert_eq!(method, "block:format=e4m3,scale=up".parse()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn with_scale_rounding(self, rounding: ScaleRounding) -> Self {
        Self {
            gradient: self.gradient.with_scale_rounding(rounding),
            activation: self.activation.with_scale_rounding(rounding),
            weight: self.weight.with_scale_rounding(rounding),
        }
    }

    /// Returns the direction in which the scales of blocks are rounded.
    #[must_use]
    pub const fn scale_rounding(self) -> ScaleRounding {
        self.gradient.scale_rounding()
    }

    /// Returns the number of values of a block.
    #[must_use]
    pub const fn size(self) -> u32 {
        self.gradient.size()
    }

    /// Returns the formats of the values in blocks.
    #[must_use]
    pub const fn formats(self) -> StoreFormats {
        StoreFormats {
            gradient: self.gradient.format(),
            activation: self.activation.format(),
            weight: self.weight.format(),
        }
    }

    /// Returns the blocks of values in a format of this scaling; `None` for values that are not stored in blocks.
    pub(crate) fn blocks_of(self, format: StoreFormat) -> Option<BlockFormat> {
        [self.gradient, self.activation, self.weight].into_iter().find(|blocks| blocks.format() == format)
    }
}

pub(super) fn parse(mut options: Options<'_>) -> Result<BlockScaling, String> {
    if let Some(word) = options.first {
        return Err(format!("{word} is not option=value"));
    }
    let size = options.read("size", "a power of two from 16 to 1024")?.unwrap_or(MX_SIZE);
    let rounding = match options.take("scale") {
        None | Some("down") => ScaleRounding::Down,
        Some("up") => ScaleRounding::Up,
        Some(other) => return Err(format!("scale must be down or up, not {other}")),
    };
    let formats = formats::parse(&mut options)?;
    if options.take("wgrad").is_some() {
        return Err("wgrad needs a loss scale, because weight gradients are f32 under block scaling".to_owned());
    }
    options.end("block", "size, scale, format, grad, act, weight")?;
    let scaling = BlockScaling::new(formats, size).map_err(|error| match error {
        BlockFormatError::Format => {
            "blocks need 8 bits for all values: set format, or grad, act and weight, to e5m2 or e4m3".to_owned()
        }
        error => error.to_string(),
    })?;
    Ok(scaling.with_scale_rounding(rounding))
}

pub(super) fn text(scaling: BlockScaling) -> Text {
    let mut text = Text("block".to_owned());
    formats::text(&mut text, scaling.formats(), Products::Half);
    text.unless(MX_SIZE, "size", scaling.size(), scaling.size());
    text.unless(ScaleRounding::Down, "scale", scaling.scale_rounding(), "up");
    text
}
