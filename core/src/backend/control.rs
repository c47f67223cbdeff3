//! Per-step control data: exponents, hyperparameters and the seed.

use crate::{scaled::Scaled, stats::Detail};

/// Index of one exponent and one statistics row. Every cast site, every observed forward store and every parameter
/// gradient owns one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

impl Slot {
    /// Slot whose exponent is always 0: data that is not scaled.
    pub const ONE: Self = Self(0);
    /// Scratch slot for decisions of exponents made inside a step.
    pub const PROBE: Self = Self(1);
    /// First slot that an engine may assign to a site.
    pub const FIRST_SITE: Self = Self(2);
}

impl<T> Scaled<T, Slot> {
    /// Replaces the slot by its exponent from the table; `None` for a slot beyond the table.
    #[must_use]
    pub fn resolve(self, exponents: &[i32]) -> Option<Scaled<T>> {
        let alpha = *exponents.get(usize::from(self.alpha.0))?;
        Some(Scaled { data: self.data, alpha })
    }
}

/// Index of one f32 that may change from step to step, for example a learning rate or a bias correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hyperparameter(pub u16);

/// Word offsets in the uploaded control data: detail, seed (low word first), number of slots; then exponents, then
/// hyperparameters.
pub(super) const DETAIL: usize = 0;
pub(super) const SEED: usize = 1;
pub(super) const SLOTS: usize = 3;
pub(super) const HEADER: usize = 4;

/// Control data that the host uploads to the device's table before a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Control<'a> {
    /// Accumulated exponent of every slot; the first is always 0.
    pub exponents: &'a [i32],
    /// Value of every optimizer hyperparameter in this step, by index.
    pub hyperparameters: &'a [f32],
    /// Random seed of the step, for dropout.
    pub seed: u64,
    /// Maximum detail of statistics that any store observes in this step.
    pub detail: Detail,
}

impl Control<'_> {
    /// Number of 32-bit words before the exponents in the control data that is uploaded.
    pub const HEADER: usize = HEADER;

    /// Returns the words that devices read: detail, seed (low word first), number of slots, exponents, hyperparameters.
    /// Kernels find them by the names of [`ABI`](super::ABI).
    pub fn words(&self) -> impl Iterator<Item = u32> {
        let [a, b, c, d, e, f, g, h] = self.seed.to_le_bytes();
        let seed = [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])];
        // Cannot saturate, because a slot is a u16.
        let slots = u32::try_from(self.exponents.len()).unwrap_or(u32::MAX);
        let mut header = [0; HEADER];
        (header[DETAIL], header[SEED], header[SEED + 1], header[SLOTS]) = (self.detail.code(), seed[0], seed[1], slots);
        let exponents = self.exponents.iter().map(|exponent| u32::from_ne_bytes(exponent.to_ne_bytes()));
        header
            .into_iter()
            .chain(exponents)
            .chain(self.hyperparameters.iter().map(|hyperparameter| hyperparameter.to_bits()))
    }
}
