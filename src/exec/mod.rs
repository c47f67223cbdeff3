//! Execution of compiled programs on a device: memory, table of exponents and rows, programs and their recordings.
//!
//! This module does not depend on optimizers, rules for exponents or steps; [`crate::train`] controls it.

mod constants;
mod launch;
mod memory;
mod programs;
mod record;
mod times;
mod transfer;

pub(crate) use constants::Constants;
pub use memory::MemoryReport;
pub(crate) use record::LaunchFailure;
pub use times::LaunchTime;

use crate::graph::{BufferId, Fixed, Launch, Operation, Value};
use gradscale_core::backend::{Backend, Control, DType};
use memory::Memory;
use programs::ProgramCache;
use std::ops::Range;
use times::Times;

/// Executor of programs: a device with all state of a training on it.
///
/// Fields are dropped in this order: recordings first, the device last.
pub(crate) struct Executor<B: Backend> {
    programs: ProgramCache<B::Recording>,
    memory: Memory<B>,
    table: B::Table,
    /// Number of slots in the table of exponents and rows.
    slots: usize,
    device: B,
    fixed: Fixed,
    pub constants: Constants,
    recording: bool,
    times: Times,
}

impl<B: Backend> Executor<B> {
    /// Creates the executor with a table for this number of slots and hyperparameters.
    pub fn new(device: B, fixed: Fixed, slots: usize, hyperparameters: usize) -> Result<Self, B::Error> {
        let table = device.table(count(slots), count(hyperparameters))?;
        Ok(Self {
            programs: ProgramCache::new(),
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

    /// Returns the constants of programs, which a compilation adds to, and the device.
    pub const fn constants_and_device(&mut self) -> (&mut Constants, &B) {
        (&mut self.constants, &self.device)
    }

    /// Selects the GEMM engine by its name. Recordings of another engine are dropped.
    pub fn select_product_engine(&mut self, name: &str) -> Result<(), B::Error> {
        self.device.select_product_engine(name)?;
        self.programs.invalidate_captures();
        Ok(())
    }

    /// Returns the device mutably, so that it can be joined with those of other ranks.
    pub const fn device_mut(&mut self) -> &mut B {
        &mut self.device
    }

    pub fn memory(&self) -> MemoryReport {
        MemoryReport { workspace: self.device.workspace(), ..self.memory.report(self.constants.bytes()) }
    }

    /// Enables or disables recording of programs, on devices that support it.
    pub const fn record(&mut self, recording: bool) {
        self.recording = recording;
    }

    /// Returns the slots of all statistics rows of the table.
    pub fn rows(&self) -> Range<u16> {
        0..count(self.slots)
    }

    /// Grows the table if there are more slots. Recordings contain the table and are dropped then.
    pub fn grow_table(&mut self, slots: usize, hyperparameters: usize) -> Result<(), B::Error> {
        if self.slots < slots {
            self.table = self.device.table(count(slots), count(hyperparameters))?;
            self.slots = slots;
            self.programs.invalidate_captures();
        }
        Ok(())
    }

    /// Replaces the table by one with exactly this number of slots, if it has another. Recordings are dropped then.
    pub fn resize_table(&mut self, slots: usize, hyperparameters: usize) -> Result<(), B::Error> {
        if self.slots != slots {
            self.table = self.device.table(count(slots), count(hyperparameters))?;
            self.slots = slots;
            self.programs.invalidate_captures();
        }
        Ok(())
    }

    /// Uploads exponents, hyperparameters and seed to the device's table, and empties statistics rows.
    pub fn upload(&mut self, control: &Control<'_>, clear: Range<u16>) -> Result<(), B::Error> {
        self.device.upload(control, clear, &mut self.table)
    }

    /// Enqueues the launch of one operation on the device.
    pub fn run(&mut self, operation: &Operation) -> Result<(), B::Error> {
        let Self { device, table, memory, times, .. } = self;
        if times.are_taken() {
            return times.run(device, table, memory, std::iter::once(operation)).map_err(|(_, error)| error);
        }
        launch::run(device, table, memory, operation, None)
    }

    /// Enables or disables timing of launches. Timed launches run one by one, also those that are recorded. Returns
    /// `false` if the device has no clock.
    pub fn take_times(&mut self, take: bool) -> Result<bool, B::Error> {
        let has_clock = !take || self.device.time(&mut [], |_| Ok(()))?;
        self.times.take(take && has_clock);
        Ok(has_clock)
    }

    /// Returns the measured times of launches so far and resets them.
    pub fn drain_times(&mut self) -> Vec<LaunchTime> {
        self.times.drain()
    }

    /// Allocates f32 scratch of the given length, which no program uses, until [`Executor::free_scratch`].
    pub fn scratch(&mut self, len: usize) -> Result<BufferId, B::Error> {
        self.memory.scratch(&self.device, len)
    }

    pub fn free_scratch(&mut self) {
        self.memory.free_scratch();
    }

    /// Allocates the buffers that launches store to in the place of a fused one, until [`Executor::free_unfused`].
    pub fn allocate_unfused(&mut self, launches: &[Launch]) -> Result<(), B::Error> {
        let mut stored = Vec::new();
        for launch in launches {
            launch.with_stores(|y| {
                stored.push(y.y);
                y
            });
        }
        for Value { buf, dtype, len } in stored {
            if let BufferId::Unfused(_) = buf {
                self.memory.put(buf, self.device.alloc(dtype, len)?);
            }
        }
        Ok(())
    }

    pub fn free_unfused(&mut self) {
        self.memory.free_unfused();
    }

    pub fn has(&self, buf: BufferId) -> bool {
        self.memory.has(buf)
    }

    /// Frees buffers of parameters. Recordings may contain them and are dropped.
    pub fn free(&mut self, all: impl Iterator<Item = BufferId>) {
        all.for_each(|buf| self.memory.free(buf));
        self.programs.invalidate_captures();
    }

    /// Allocates a buffer if it does not exist yet; returns true if it did not.
    pub fn allocate(&mut self, buf: BufferId, dtype: DType, len: usize) -> Result<bool, B::Error> {
        if self.memory.has(buf) {
            return Ok(false);
        }
        self.memory.put(buf, self.device.alloc(dtype, len)?);
        Ok(true)
    }

    /// Allocates buffers that an update uses as a group, each with its length. Existing ones are replaced by buffers
    /// with undefined content; if memory is exhausted, they are kept.
    pub fn allocate_together(&mut self, dtype: DType, all: &[(BufferId, usize)]) -> Result<(), B::Error> {
        let lens: Vec<usize> = all.iter().map(|&(_, len)| len).collect();
        let mut buffers = Vec::with_capacity(all.len());
        self.device.alloc_group(dtype, &lens, &mut buffers)?;
        if all.iter().any(|&(buf, _)| self.memory.has(buf)) {
            self.programs.invalidate_captures();
        }
        for (&(buf, _), buffer) in all.iter().zip(buffers) {
            self.memory.put(buf, buffer);
        }
        Ok(())
    }
}

/// Converts a number of slots to the table's type. It fits, because the number of sites is limited when they are named.
fn count(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}
