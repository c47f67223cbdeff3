//! Running what was compiled on a device: its memory, its table of exponents and rows, programs and their recordings.
//!
//! Nothing here knows of optimizers, exponents' rules or steps: [`crate::train`] says what runs when.

mod constants;
mod launch;
mod memory;
mod programs;
mod record;
mod times;
mod transfer;

pub(crate) use constants::Constants;
pub use memory::MemoryReport;
pub(crate) use record::Failed;
pub use times::LaunchTime;

use crate::graph::{Buf, Fixed, Operation};
use gradscale_core::backend::{Backend, Control, DType};
use memory::Memory;
use programs::Programs;
use std::ops::Range;
use times::Times;

/// A device with all that a training has there.
///
/// Fields are dropped in this order: recordings first, the device last.
pub(crate) struct Executor<B: Backend> {
    programs: Programs<B::Recording>,
    memory: Memory<B>,
    table: B::Table,
    /// Slots that the table has.
    slots: usize,
    device: B,
    fixed: Fixed,
    pub constants: Constants,
    recording: bool,
    times: Times,
}

impl<B: Backend> Executor<B> {
    /// With a table for that many slots and hyperparameters.
    pub fn new(device: B, fixed: Fixed, slots: usize, hyperparameters: usize) -> Result<Self, B::Error> {
        let table = device.table(count(slots), count(hyperparameters))?;
        Ok(Self {
            programs: Programs::new(),
            memory: Memory::new(),
            table,
            slots,
            device,
            fixed,
            constants: Constants::default(),
            recording: true,
            times: Times::default(),
        })
    }

    pub const fn device(&self) -> &B {
        &self.device
    }

    /// Selects the engine of products by its name. Recordings of another engine are dropped.
    pub fn select_product_engine(&mut self, name: &str) -> Result<(), B::Error> {
        self.device.select_product_engine(name)?;
        self.programs.forget();
        Ok(())
    }

    /// To join those of other ranks.
    pub const fn device_mut(&mut self) -> &mut B {
        &mut self.device
    }

    pub fn memory(&self) -> MemoryReport {
        MemoryReport { workspace: self.device.workspace(), ..self.memory.report(self.constants.bytes()) }
    }

    /// Whether programs are recorded where the device can.
    pub const fn record(&mut self, recording: bool) {
        self.recording = recording;
    }

    /// All rows of the table.
    pub fn rows(&self) -> Range<u16> {
        0..count(self.slots)
    }

    /// A table for more slots. Recordings name the one that they were made with, and are made anew.
    pub fn fit_table(&mut self, slots: usize, hyperparameters: usize) -> Result<(), B::Error> {
        if self.slots < slots {
            self.table = self.device.table(count(slots), count(hyperparameters))?;
            self.slots = slots;
            self.programs.forget();
        }
        Ok(())
    }

    /// A table for exactly so many slots, where it has others. Recordings are made anew.
    pub fn resize_table(&mut self, slots: usize, hyperparameters: usize) -> Result<(), B::Error> {
        if self.slots != slots {
            self.table = self.device.table(count(slots), count(hyperparameters))?;
            self.slots = slots;
            self.programs.forget();
        }
        Ok(())
    }

    /// Uploads exponents, hyperparameters and seed, and empties rows.
    pub fn upload(&mut self, control: &Control<'_>, clear: Range<u16>) -> Result<(), B::Error> {
        self.device.upload(control, clear, &mut self.table)
    }

    /// Enqueues one operation.
    pub fn run(&mut self, operation: &Operation) -> Result<(), B::Error> {
        let Self { device, table, memory, times, .. } = self;
        if times.are_taken() {
            return times.run(device, table, memory, std::iter::once(operation)).map_err(|(_, error)| error);
        }
        launch::run(device, table, memory, operation, None)
    }

    /// Whether launches are timed from now on. They then run one by one, also those that are recorded. `false`: the device
    /// has no clock.
    pub fn take_times(&mut self, take: bool) -> Result<bool, B::Error> {
        let has_clock = !take || self.device.time(&mut [], |_| Ok(()))?;
        self.times.take(take && has_clock);
        Ok(has_clock)
    }

    /// The times so far, which start anew.
    pub fn drain_times(&mut self) -> Vec<LaunchTime> {
        self.times.drain()
    }

    /// f32 scratch of that length, which no program uses, until [`Executor::free_scratch`].
    pub fn scratch(&mut self, len: usize) -> Result<Buf, B::Error> {
        self.memory.scratch(&self.device, len)
    }

    pub fn free_scratch(&mut self) {
        self.memory.free_scratch();
    }

    pub fn has(&self, buf: Buf) -> bool {
        self.memory.has(buf)
    }

    /// Frees buffers of parameters. Recordings may name them, and are made anew.
    pub fn free(&mut self, all: impl Iterator<Item = Buf>) {
        all.for_each(|buf| self.memory.free(buf));
        self.programs.forget();
    }

    /// Allocates a buffer that is not there yet; whether it was not.
    pub fn allocate(&mut self, buf: Buf, dtype: DType, len: usize) -> Result<bool, B::Error> {
        if self.memory.has(buf) {
            return Ok(false);
        }
        self.memory.put(buf, self.device.alloc(dtype, len)?);
        Ok(true)
    }

    /// Allocates buffers that updates take together, each with its length. Those that are there already become others, of
    /// any content; without memory, they stay.
    pub fn allocate_together(&mut self, dtype: DType, all: &[(Buf, usize)]) -> Result<(), B::Error> {
        let lens: Vec<usize> = all.iter().map(|&(_, len)| len).collect();
        let mut buffers = Vec::with_capacity(all.len());
        self.device.alloc_together(dtype, &lens, &mut buffers)?;
        if all.iter().any(|&(buf, _)| self.memory.has(buf)) {
            self.programs.forget();
        }
        for (&(buf, _), buffer) in all.iter().zip(buffers) {
            self.memory.put(buf, buffer);
        }
        Ok(())
    }
}

/// As tables count: names of sites were limited when they were given.
fn count(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}
