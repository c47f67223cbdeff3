//! Exponents, hyperparameters, seed and statistics rows of sites that train together.

use gradscale_core::{
    backend::{Control, Slot},
    stats::{Convention, Detail, Stats},
};
use std::{
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Statistics row of a slot before a store.
const EMPTY: Stats = Stats::new(Convention::FP16, 0, Detail::None);

/// Table of the CPU backend: exponents, hyperparameters, seed and statistics rows of a step.
#[derive(Debug)]
pub struct Table {
    pub(crate) exponents: Vec<i32>,
    pub(crate) hyperparameters: Vec<f32>,
    pub(crate) seed: u64,
    pub(crate) detail: Detail,
    // Stores have shared references to the table. Operators run one after another, so the lock is never contended.
    rows: Mutex<Vec<Stats>>,
}

impl Table {
    pub(crate) fn new(slots: u16, hyperparameters: u16) -> Self {
        let slots = usize::from(slots);
        Self {
            exponents: vec![0; slots],
            hyperparameters: vec![0.0; usize::from(hyperparameters)],
            seed: 0,
            detail: Detail::Moments,
            rows: Mutex::new(vec![EMPTY; slots]),
        }
    }

    pub(crate) fn upload(&mut self, control: &Control<'_>, clear: Range<u16>) {
        self.exponents.copy_from_slice(control.exponents);
        self.hyperparameters.copy_from_slice(control.hyperparameters);
        (self.seed, self.detail) = (control.seed, control.detail);
        self.rows()[indices(clear)].fill(EMPTY);
    }

    pub(crate) fn exponent(&self, slot: Slot) -> i32 {
        self.exponents[usize::from(slot.0)]
    }

    /// Merges the statistics of a store into the row of its slot.
    pub(crate) fn merge(&self, slot: Slot, seen: &Stats) {
        let row = &mut self.rows()[usize::from(slot.0)];
        *row = if row.detail() == Detail::None {
            *seen
        } else {
            row.merge(seen).expect("a step stores into a slot with one detail, and exponents change between steps")
        };
    }

    pub(crate) fn rows(&self) -> MutexGuard<'_, Vec<Stats>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn indices(range: Range<u16>) -> Range<usize> {
    usize::from(range.start)..usize::from(range.end)
}
