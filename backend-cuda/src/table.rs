//! Exponents, hyperparameters, seed and rows in device memory.
//!
//! | words | content |
//! |---|---|
//! | first | a control: [`Control::words`] |
//! | then, from an even word on | rows |

use crate::{Error, gpu::Gpu, memory::Memory};
use core::ops::Range;
use gradscale_core::{
    backend::{Control, DType, Hyperparameter, Slot},
    stats::{Convention, Detail, Stats, WORDS},
};
use std::sync::Arc;

/// Device table of everything that changes between steps: exponents, statistics rows and hyperparameters.
#[derive(Debug)]
pub struct Table {
    gpu: Arc<Gpu>,
    memory: Memory,
    exponents: Vec<i32>,
    hyperparameters: usize,
}

impl Table {
    pub(crate) fn new(gpu: &Arc<Gpu>, slots: u16, hyperparameters: u16) -> Result<Self, Error> {
        let (slots, hyperparameters) = (usize::from(slots), usize::from(hyperparameters));
        let memory = Memory::new(gpu, DType::U32, rows_at(slots, hyperparameters) + slots * WORDS)?;
        let mut table = Self { gpu: gpu.clone(), memory, exponents: vec![0; slots], hyperparameters };
        let all = table.rows_at() + slots * WORDS;
        // SAFETY: the memory has that many words.
        unsafe { gpu.zero(table.memory.at(), 4 * all)? };
        let (exponents, values) = (vec![0; slots], vec![0.0; hyperparameters]);
        let control = Control { exponents: &exponents, hyperparameters: &values, seed: 0, detail: Detail::Moments };
        table.upload(&control, 0..0)?;
        Ok(table)
    }

    const fn rows_at(&self) -> usize {
        rows_at(self.exponents.len(), self.hyperparameters)
    }

    pub(crate) fn upload(&mut self, control: &Control<'_>, clear: Range<u16>) -> Result<(), Error> {
        self.exponents.copy_from_slice(control.exponents);
        assert_eq!(control.hyperparameters.len(), self.hyperparameters, "as many hyperparameters as the table has");
        let bytes: Vec<u8> = control.words().flat_map(u32::to_ne_bytes).collect();
        let row = |slot: u16| self.memory.at() + 4 * (self.rows_at() + usize::from(slot) * WORDS) as u64;
        let rows = usize::from(clear.end.saturating_sub(clear.start));
        assert!(rows == 0 || usize::from(clear.end) <= self.exponents.len(), "rows of the table");
        // SAFETY: the table is as long as its parts, and the rows are its own.
        unsafe {
            self.gpu.copy_in(&bytes, self.memory.at())?;
            if rows != 0 {
                self.gpu.zero(row(clear.start), 4 * rows * WORDS)?;
            }
        }
        Ok(())
    }

    /// Returns address and length in bytes of rows.
    pub(crate) fn row_range(&self, rows: &Range<u16>) -> (u64, usize) {
        let (start, count) = (usize::from(rows.start), rows.len());
        assert!(start + count <= self.exponents.len(), "rows beyond the table");
        (self.rows() + 4 * (start * WORDS) as u64, 4 * WORDS * count)
    }

    /// Decodes the bytes of statistics rows, as read from the device.
    pub(crate) fn decode_rows(&self, rows: &Range<u16>, bytes: &[u8], out: &mut [Stats]) -> Result<(), Error> {
        let exponents = &self.exponents[usize::from(rows.start)..usize::from(rows.end)];
        let (words, _) = bytes.as_chunks();
        for ((row, words), &exponent) in out.iter_mut().zip(words.chunks_exact(WORDS)).zip(exponents) {
            let words: Vec<u32> = words.iter().map(|&bytes| u32::from_ne_bytes(bytes)).collect();
            *row = Stats::from_words(&words, Convention::FP16, exponent).map_err(|error| Error::Driver {
                doing: "read statistics",
                name: error.to_string(),
                lost: true,
            })?;
        }
        Ok(())
    }

    /// Returns the device address of seed and level of detail.
    pub(crate) fn control(&self) -> u64 {
        self.memory.at()
    }

    /// Returns the device address of the slots' exponents.
    pub(crate) fn exponents(&self) -> u64 {
        self.memory.at() + 4 * Control::HEADER as u64
    }

    /// Returns the device address of the hyperparameters.
    pub(crate) fn hyperparameters(&self) -> u64 {
        self.exponents() + 4 * self.exponents.len() as u64
    }

    /// Returns the device address of the statistics rows.
    pub(crate) fn rows(&self) -> u64 {
        self.memory.at() + 4 * self.rows_at() as u64
    }

    /// Returns the number of a hyperparameter, which must be in the table.
    pub(crate) fn hyperparameter(&self, hyperparameter: Hyperparameter) -> u32 {
        assert!(usize::from(hyperparameter.0) < self.hyperparameters, "a hyperparameter beyond the table");
        u32::from(hyperparameter.0)
    }

    /// Returns the device address of a range of statistics rows.
    pub(crate) fn rows_of(&self, rows: &Range<u16>) -> u64 {
        assert!(rows.is_empty() || usize::from(rows.end) <= self.exponents.len(), "rows beyond the table");
        self.rows() + 4 * (usize::from(rows.start) * WORDS) as u64
    }

    /// Returns the number of a slot, which must be in the table.
    pub(crate) fn slot(&self, slot: Slot) -> u32 {
        assert!(usize::from(slot.0) < self.exponents.len(), "a slot beyond the table");
        u32::from(slot.0)
    }
}

const fn rows_at(slots: usize, hyperparameters: usize) -> usize {
    (Control::HEADER + slots + hyperparameters).next_multiple_of(2)
}
