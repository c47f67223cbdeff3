//! Autocast policy: allow and deny lists of operators, and the levels O0 to O3.

use crate::ops::{List, Op};
use core::fmt;
use heapless::LinearMap;

/// Storage type of a tensor under mixed precision: half or f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precision {
    /// 16-bit floats (half). Products accumulate in f32 and are rounded once.
    Half,
    /// 32-bit floats (f32).
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

/// Level of mixed precision, O0 to O3, as in NVIDIA's Apex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Level O0: everything in f32, the baseline.
    O0,
    /// Level O1: operators follow the lists, with casts where types differ. Parameters are f32 with cached half copies.
    O1,
    /// Level O2: half model and half data, normalisation in f32, f32 master weights.
    O2,
    /// Level O3: everything in half, no master weights, no scaling: a baseline that may lose accuracy.
    O3,
}

/// Settings of a mixed-precision level besides the operator lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Storage type of the model's parameters at a mixed-precision level.
    pub parameters: Precision,
    /// Type to which input batches are cast at a mixed-precision level.
    pub data: Precision,
    /// True if the optimizer updates f32 master copies of half parameters.
    pub masters: bool,
    /// True if the mixed-precision level scales gradients.
    pub scaling: bool,
}

impl Level {
    /// All four levels of mixed precision, O0 to O3.
    pub const ALL: [Self; 4] = [Self::O0, Self::O1, Self::O2, Self::O3];

    /// Returns the settings of the level besides its operator lists.
    #[must_use]
    pub const fn settings(self) -> Settings {
        let (parameters, data) = match self {
            Self::O0 | Self::O1 => (Precision::Single, Precision::Single),
            Self::O2 | Self::O3 => (Precision::Half, Precision::Half),
        };
        // Under O0 and O1 the parameters are f32 and therefore need no master copies.
        Settings { parameters, data, masters: matches!(self, Self::O2), scaling: matches!(self, Self::O1 | Self::O2) }
    }
}

/// Maximum number of operators whose list a policy can override.
pub const OVERRIDES: usize = 16;

/// Policy of mixed precision: a level, and the user's changes to its operator lists.
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
    /// Creates the autocast policy of a level with its default lists.
    #[must_use]
    pub const fn new(level: Level) -> Self {
        Self { level, overrides: LinearMap::new() }
    }

    /// Returns the mixed-precision level on which the policy is based.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Moves `op` to another list. Only O1 and O2 use lists, because under O0 and O3 everything has one type.
    ///
    /// # Errors
    /// [`Full`] after [`OVERRIDES`] different operators.
    pub fn set(&mut self, op: Op, list: List) -> Result<(), Full> {
        self.overrides.insert(op, list).map(|_| ()).map_err(|_| Full)
    }

    /// Returns the autocast list of `op` in this policy: the override, or the default.
    #[must_use]
    pub fn list(&self, op: Op) -> List {
        self.overrides.get(&op).copied().unwrap_or(op.list())
    }

    /// Returns the precision in which `op` reads and stores, given the types of its inputs. Without inputs it is that
    /// of the data.
    #[must_use]
    pub fn precision(&self, op: Op, inputs: &[Precision]) -> Precision {
        self.precision_on(self.list(op), inputs)
    }

    /// Returns the precision of an operator on `list`, given the types of its inputs.
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

/// Error: the autocast policy already has [`OVERRIDES`] overrides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a policy holds {OVERRIDES} overrides at most")
    }
}

impl core::error::Error for Full {}
