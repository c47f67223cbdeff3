//! Lists and levels.

use crate::ops::{List, Op};
use core::fmt;
use heapless::LinearMap;

/// Storage of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precision {
    /// 16 bits; products accumulate in f32 and are rounded once.
    Half,
    /// f32.
    Single,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Half => "half",
            Self::Single => "f32",
        })
    }
}

/// The usual presets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// All f32: the baseline.
    O0,
    /// Lists, casts where types meet, f32 parameters with cached half copies.
    O1,
    /// Half model and data, normalisation in f32, f32 masters.
    O2,
    /// All half, no masters, no scaling: a baseline that may lose accuracy.
    O3,
}

/// What a level says beyond the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// How the model's parameters are stored.
    pub parameters: Precision,
    /// How batches come in.
    pub data: Precision,
    /// Whether the optimizer updates f32 copies.
    pub masters: bool,
    /// Whether gradients are scaled.
    pub scaling: bool,
}

impl Level {
    /// All four.
    pub const ALL: [Self; 4] = [Self::O0, Self::O1, Self::O2, Self::O3];

    /// What the level says beyond the lists.
    #[must_use]
    pub const fn settings(self) -> Settings {
        let (parameters, data) = match self {
            Self::O0 | Self::O1 => (Precision::Single, Precision::Single),
            Self::O2 | Self::O3 => (Precision::Half, Precision::Half),
        };
        // Under O0 and O1 the parameters are f32, and so their own masters.
        Settings { parameters, data, masters: matches!(self, Self::O2), scaling: matches!(self, Self::O1 | Self::O2) }
    }
}

/// Overrides that a policy can hold.
pub const OVERRIDES: usize = 16;

/// A level and the user's changes to the lists.
///
/// ```
/// use gradscale_core::{amp::{AmpPolicy, Level, List, Precision}, ops::Op};
/// let mut policy = AmpPolicy::new(Level::O1);
/// assert_eq!(policy.precision(Op::Gelu, &[Precision::Half]), Precision::Half);
/// policy.set(Op::Gelu, List::Deny)?;
/// assert_eq!(policy.precision(Op::Gelu, &[Precision::Half]), Precision::Single);
/// # Ok::<(), gradscale_core::amp::Full>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct AmpPolicy {
    level: Level,
    overrides: LinearMap<Op, List, OVERRIDES>,
}

impl AmpPolicy {
    /// The level's own lists.
    #[must_use]
    pub const fn new(level: Level) -> Self {
        Self { level, overrides: LinearMap::new() }
    }

    /// The level.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Puts `op` on another list. Only O1 and O2 have lists; under O0 and O3 all is one type.
    ///
    /// # Errors
    /// [`Full`] after [`OVERRIDES`] different operators.
    pub fn set(&mut self, op: Op, list: List) -> Result<(), Full> {
        self.overrides.insert(op, list).map(|_| ()).map_err(|_| Full)
    }

    /// The list on which `op` stands.
    #[must_use]
    pub fn list(&self, op: Op) -> List {
        self.overrides.get(&op).copied().unwrap_or(op.list())
    }

    /// The precision in which `op` reads and stores, for inputs of these types. Without inputs, that of the data.
    #[must_use]
    pub fn precision(&self, op: Op, inputs: &[Precision]) -> Precision {
        self.precision_on(self.list(op), inputs)
    }

    /// The same of an operator on that list.
    pub(super) fn precision_on(&self, list: List, inputs: &[Precision]) -> Precision {
        let widest = inputs.iter().copied().max().unwrap_or(self.level.settings().data);
        match (self.level, list) {
            (Level::O0, _) => Precision::Single,
            (Level::O3, _) => Precision::Half,
            (_, List::Allow) => Precision::Half,
            (_, List::Deny) => Precision::Single,
            (_, List::Inside | List::Infer) => widest,
        }
    }
}

/// A policy has no room for another override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a policy holds {OVERRIDES} overrides at most")
    }
}

impl core::error::Error for Full {}
