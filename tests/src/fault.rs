//! Ways to break the reference backend, so that the suite itself can be tested: each must make some case fail.

use crate::Reference;
use gradscale_core::{
    backend::DType,
    cast::{Round, f16_from_f32},
    stats::{Convention, Detail},
    store_format::StoreFormat,
};

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Stores of halves that observe nothing round toward zero.
    TruncatingCast,
    /// Subnormal halves become zeros.
    FlushToZero,
    /// Overflowing values become the largest half instead of infinity.
    InfinityToMax,
    /// Stores in a format of eight bits round to half first.
    RoundedTwice,
    /// Stores in a format of eight bits are counted with the thresholds of FP16.
    FormatNotCounted,
    /// Blocks of eight bits reach into the next row.
    BlocksAcrossRows,
    /// Codes of eight bits lose their sign.
    PackedSignDropped,
    /// The sums of a matrix product are rounded to half after every addition.
    HalfAccumulator,
    /// Statistics take NaN for zero.
    NanIgnored,
    /// Statistics take −0 for a non-zero number.
    NegativeZeroCounted,
    /// The row summarises the rounded values.
    StatsAfterRounding,
    /// The row of the slot before is written.
    WrongSlot,
    /// Half results are rounded, then scaled, then rounded a second time.
    FactorAfterRounding,
    /// A product whose last tile has one column loses it.
    LastTileOffByOne,
    /// A transposed B is read as if it were not.
    TransposedB,
    /// `add` overwrites.
    AddDropped,
    /// Stores of halves that observe nothing write four at a time, also where fewer are left.
    CanaryOverwritten,
    /// The optimizer steps although a gradient is not finite.
    GuardIgnored,
    /// The optimizer steps although an activation has overflowed.
    ActivationsUnguarded,
    /// Only the first exponents uploaded count.
    ControlIgnored,
    /// Clipping by norm does nothing.
    ClipDropped,
    /// If a window has several equal maxima, the last one wins.
    LastOfTies,
    /// Rows with the ignored label count.
    IgnoredCounted,
    /// Boxes are not moved by half a place.
    BoxesNotAligned,
    /// Boxes end before their last place.
    BoxesEndBefore,
    /// A row of a softmax reads the column behind its last one.
    HiddenColumnRead,
    /// The gradient of a softmax lacks the sum over its row.
    RowSumDropped,
    /// The gradient of an attention observes a column that a row does not read.
    HiddenScoreObserved,
    /// The gradient of an attention observes a score twice.
    ScoreObservedTwice,
    /// The gradient of an attention's scores is not rounded before its products.
    ScoresNotRounded,
    /// The sums δ of an attention's gradient stay at the exponent of dy.
    DeltaNotRescaled,
    /// A step of a recurrent cell reads the products of the first step.
    StepIgnored,
    /// The gradient of an LSTM's cell state is taken at another exponent than its own.
    StateNotRescaled,
    /// The gradient of a GRU's products with the hidden state is that of its products with the input.
    ResetDropped,
    /// The gradient of a GRU's products with the inputs is written at the exponent of the other gradients.
    InputsNotRescaled,
    /// The variance of a normalisation is divided by n − 1.
    UnbiasedVariance,
    /// Dropout draws the same mask in every step.
    SeedIgnored,
}

impl Fault {
    /// All faults that a test can plant.
    pub const ALL: [Self; 37] = [
        Self::TruncatingCast,
        Self::FlushToZero,
        Self::InfinityToMax,
        Self::RoundedTwice,
        Self::FormatNotCounted,
        Self::BlocksAcrossRows,
        Self::PackedSignDropped,
        Self::HalfAccumulator,
        Self::NanIgnored,
        Self::NegativeZeroCounted,
        Self::StatsAfterRounding,
        Self::WrongSlot,
        Self::FactorAfterRounding,
        Self::LastTileOffByOne,
        Self::TransposedB,
        Self::AddDropped,
        Self::CanaryOverwritten,
        Self::GuardIgnored,
        Self::ActivationsUnguarded,
        Self::ControlIgnored,
        Self::ClipDropped,
        Self::LastOfTies,
        Self::IgnoredCounted,
        Self::BoxesNotAligned,
        Self::BoxesEndBefore,
        Self::HiddenColumnRead,
        Self::RowSumDropped,
        Self::HiddenScoreObserved,
        Self::ScoreObservedTwice,
        Self::ScoresNotRounded,
        Self::DeltaNotRescaled,
        Self::StepIgnored,
        Self::StateNotRescaled,
        Self::ResetDropped,
        Self::InputsNotRescaled,
        Self::UnbiasedVariance,
        Self::SeedIgnored,
    ];
}

/// The arithmetic of the reference backend, which may be broken.
impl Reference {
    /// Creates a reference backend with a planted fault.
    #[must_use]
    pub const fn broken(fault: Fault) -> Self {
        Self { fault: Some(fault) }
    }

    pub(crate) fn on(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// An f32 as the half that a store makes of it.
    pub(crate) fn round(&self, v: f32, detail: Detail) -> f32 {
        let truncates = self.on(Fault::TruncatingCast) && detail == Detail::None;
        let y = f16_from_f32(v, if truncates { Round::TowardZero } else { Round::NearestEven });
        if self.on(Fault::FlushToZero) && y.to_bits() & 0x7C00 == 0 {
            0f32.copysign(v)
        } else if self.on(Fault::InfinityToMax) && y.is_infinite() {
            65504f32.copysign(v)
        } else {
            y.to_f32()
        }
    }

    /// An f32 as a store in a format makes of it.
    pub(crate) fn round_to(&self, format: StoreFormat, v: f32) -> f32 {
        let v = if self.on(Fault::RoundedTwice) { f16_from_f32(v, Round::NearestEven).to_f32() } else { v };
        format.round(v).to_f32()
    }

    /// The convention of the rows of stores in a format.
    pub(crate) fn convention(&self, format: StoreFormat) -> Convention {
        if self.on(Fault::FormatNotCounted) { Convention::FP16 } else { format.convention() }
    }

    /// Σ of products in the order given.
    pub(crate) fn dot(&self, products: impl Iterator<Item = f32>) -> f32 {
        let half = self.on(Fault::HalfAccumulator);
        products.fold(0.0, |sum, v| if half { self.round(sum + v, Detail::Counts) } else { sum + v })
    }

    /// Overwrites the element after the last of `end` results, if that fault is planted.
    pub(crate) fn overrun(&self, dtype: DType, detail: Detail, memory: &mut [f64], end: usize) {
        if self.on(Fault::CanaryOverwritten)
            && detail == Detail::None
            && dtype == DType::F16
            && !end.is_multiple_of(4)
            && let Some(next) = memory.get_mut(end)
        {
            *next = 0.0;
        }
    }

    /// Returns the value that the statistics count for a value `s` that is stored as `rounded`.
    pub(crate) fn seen(&self, s: f32, rounded: f32) -> f32 {
        match self.fault {
            Some(Fault::StatsAfterRounding) => rounded,
            Some(Fault::NanIgnored) if s.is_nan() => 0.0,
            Some(Fault::NegativeZeroCounted) if s.to_bits() == 1 << 31 => -1.0,
            _ => s,
        }
    }
}
