//! Formats of blocks: consecutive values in 8 bits that share a power of two, as in the MX formats.

use crate::{scale::Factor, store_format::StoreFormat};
use core::fmt;

/// Smallest f32 bits of a normal number, 2^-126.
const F32_MIN_NORMAL: u32 = 0x0080_0000;
const F32_INFINITY: u32 = 0x7F80_0000;
const F32_MAGNITUDE: u32 = 0x7FFF_FFFF;
const F32_DIGITS: u32 = 0x007F_FFFF;

/// Format of blocks: `size` consecutive values of a row in an 8-bit format, with one power of two for each block. Every
/// value is an f32, so memory holds f32: the format is simulated.
///
/// The exponent of a block is ⌊log2 amax⌋ − emax, with the largest finite magnitude of its values, and emax the exponent of
/// the format's largest number (8 for E4M3, 15 for E5M2). It is at least −127, as an E8M0 scale stores it, and 0 for a block
/// of zeros. So the largest value lies in the highest binade of the format. Values above its largest number saturate, and
/// all others round to nearest even. With [`ScaleRounding::Up`] the exponent is one more where values would saturate. The
/// last block of a row may be shorter, and no block reaches into the next row.
///
/// Source: OCP Microscaling Formats (MX) v1.0, §5 and §6.3; exponents rounded up: Mishra et al. 2025, *Recipes for
/// Pre-training LLMs with MXFP8*.
///
/// ```
/// use gradscale_core::{block_format::BlockFormat, store_format::StoreFormat};
/// let blocks = BlockFormat::new(StoreFormat::E4m3, 32)?;
/// let mut row = [1e-6; 33];
/// (row[0], row[1], row[32]) = (1.1, 1e-3, -500.0);
/// assert_eq!(blocks.exponent(&row[..32]), -8);
/// blocks.round_row(&mut row);
/// // Of the first block only its largest values remain, at a distance of 1/8 or less; -500 saturates in its own block.
/// assert_eq!((row[0], row[1], row[2], row[32]), (1.125, 0.0009765625, 0.0, -448.0));
/// # Ok::<(), gradscale_core::block_format::BlockFormatError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockFormat {
    format: StoreFormat,
    size: u32,
    rounding: ScaleRounding,
}

/// Direction in which the scale of a block is rounded to a power of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ScaleRounding {
    /// Down, as MX specifies: the largest values of a block saturate if they are above the format's largest number in its
    /// highest binade. They lose up to an eighth, always towards zero.
    #[default]
    Down,
    /// Up: the least power of two at which no value of the block saturates.
    Up,
}

impl BlockFormat {
    /// Smallest size of a block, in values.
    pub const MIN_SIZE: u32 = 16;
    /// Largest size of a block, in values. Kernels hold a few blocks in cache.
    pub const MAX_SIZE: u32 = 1024;
    /// Smallest exponent of a block, that of E8M0.
    pub const MIN_EXPONENT: i32 = -127;

    /// Creates the format of blocks of `size` values.
    ///
    /// # Errors
    /// A format of more than 8 bits, or a size that is no power of two from 16 to 1024.
    pub const fn new(format: StoreFormat, size: u32) -> Result<Self, BlockFormatError> {
        if !size.is_power_of_two() || size < Self::MIN_SIZE || size > Self::MAX_SIZE {
            return Err(BlockFormatError::Size(size));
        }
        match format {
            StoreFormat::Fp16 => Err(BlockFormatError::Format),
            StoreFormat::E5m2 | StoreFormat::E4m3 => Ok(Self { format, size, rounding: ScaleRounding::Down }),
        }
    }

    /// Returns the format with scales rounded in that direction.
    ///
    /// ```
    /// use gradscale_core::{block_format::{BlockFormat, ScaleRounding}, store_format::StoreFormat};
    /// let down = BlockFormat::new(StoreFormat::E5m2, 32)?;
    /// let up = down.with_scale_rounding(ScaleRounding::Up);
    /// // In the highest binade 1.75 is the largest number.
    /// assert_eq!([down, up].map(|blocks| blocks.round(blocks.exponent(&[0.98]), 0.98)), [0.875, 1.0]);
    /// # Ok::<(), gradscale_core::block_format::BlockFormatError>(())
    /// ```
    #[must_use]
    pub const fn with_scale_rounding(self, rounding: ScaleRounding) -> Self {
        Self { rounding, ..self }
    }

    /// Returns the direction in which scales are rounded.
    #[must_use]
    pub const fn scale_rounding(self) -> ScaleRounding {
        self.rounding
    }

    /// Returns the format of the values in a block.
    #[must_use]
    pub const fn format(self) -> StoreFormat {
        self.format
    }

    /// Returns the number of values of a block.
    #[must_use]
    pub const fn size(self) -> u32 {
        self.size
    }

    /// Returns the exponent of a block: its stored values are the format's numbers times 2^exponent. Values that are not
    /// finite do not count.
    #[inline]
    #[must_use]
    pub fn exponent(self, block: &[f32]) -> i32 {
        let magnitudes = block.iter().map(|u| u.to_bits() & F32_MAGNITUDE).filter(|&bits| bits < F32_INFINITY);
        self.exponent_of(f32::from_bits(magnitudes.max().unwrap_or(0)))
    }

    /// Returns the exponent of a block with this largest finite magnitude.
    #[must_use]
    pub const fn exponent_of(self, amax: f32) -> i32 {
        if amax.to_bits() == 0 {
            return 0;
        }
        let (bits, largest) = (amax.to_bits(), self.format.largest_bits());
        let saturates = bits & F32_DIGITS > largest & F32_DIGITS;
        let is_rounded_up = matches!(self.rounding, ScaleRounding::Up) && saturates;
        // The exponent field of a subnormal f32 is 0, which is below the least exponent of a block anyway.
        let exponent = exponent_field(bits) - exponent_field(largest) + is_rounded_up as i32;
        if exponent < Self::MIN_EXPONENT { Self::MIN_EXPONENT } else { exponent }
    }

    /// Returns a value of a block as the format is to round it: times 2^-exponent, saturated at the format's largest
    /// number. Statistics count this value. One that is so small that f32 would lose it becomes ±2^-126, which counts as
    /// flushed like every other value that rounds to zero. Values that are not finite stay.
    #[inline]
    #[must_use]
    pub fn scaled(self, exponent: i32, u: f32) -> f32 {
        let s = Factor::between(exponent, 0).apply(u).to_bits();
        let (magnitude, sign) = (s & F32_MAGNITUDE, s & !F32_MAGNITUDE);
        if u == 0.0 || magnitude >= F32_INFINITY {
            return f32::from_bits(s);
        }
        f32::from_bits(sign | magnitude.clamp(F32_MIN_NORMAL, self.format.largest_bits()))
    }

    /// Returns the f32 that a block with this exponent stores for a value.
    #[must_use]
    pub fn round(self, exponent: i32, u: f32) -> f32 {
        Factor::between(0, exponent).apply(self.format.round(self.scaled(exponent, u)).to_f32())
    }

    /// Rounds the values of a row in its blocks.
    pub fn round_row(self, row: &mut [f32]) {
        for block in row.chunks_mut(self.size as usize) {
            let exponent = self.exponent(block);
            block.iter_mut().for_each(|u| *u = self.round(exponent, *u));
        }
    }
}

/// Returns the exponent field of an f32.
#[expect(clippy::cast_possible_wrap, reason = "at most 255")]
const fn exponent_field(bits: u32) -> i32 {
    (bits >> (f32::MANTISSA_DIGITS - 1)) as i32
}

impl fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounded = match self.rounding {
            ScaleRounding::Down => "",
            ScaleRounding::Up => ", scale up",
        };
        write!(f, "{} by {}{rounded}", self.format, self.size)
    }
}

/// Reason why there is no such format of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockFormatError {
    /// The format of the values has more than 8 bits.
    Format,
    /// The number of values of a block is no power of two from 16 to 1024.
    Size(u32),
}

impl fmt::Display for BlockFormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format => f.write_str("values of blocks must be e5m2 or e4m3"),
            Self::Size(size) => write!(f, "size must be a power of two from 16 to 1024, not {size}"),
        }
    }
}

impl core::error::Error for BlockFormatError {}
