//! The contract between the engine and a device.
//!
//! **A step is a function of ([`Control`], batch) to (rows of [`Stats`], loss).** Whatever changes from step to step
//! (exponents, learning rates, the seed, how much to observe) lies in device memory, in a [`Backend::Table`], and
//! operators name it by [`Slot`] or [`Hyperparameter`]. So the launches of one step are the launches of the next: they can be
//! recorded and repeated, and nothing in between asks the host.
//!
//! **Order.** Methods enqueue, in the order of the calls; [`Backend::prefetch`] may overtake. Only [`Backend::read`] and [`Backend::collect`] wait. Where
//! waiting blocks (CPU, CUDA, native wgpu) their futures are ready at the first poll.
//!
//! **Buffers** come from this device, and are what [`Launch`] says of them.
//!
//! **Errors** cover what a caller cannot foresee; anything else (a buffer too short or of a wrong type) may panic. An
//! error of earlier work may surface in any later call; a `read` or `collect` that succeeds vouches for all before
//! it. After [`ErrorKind::DeviceLost`] every buffer, table and recording is void.
//!
//! **A new backend** writes the methods without a body; in [`Backend::launch`] it matches what it has, and answers
//! [`ErrorKind::Unsupported`] to the rest. The conformance suite turns from *unsupported* to *passed* operator by
//! operator.

mod abi;
mod buffer;
mod control;
mod cost;
mod error;
mod launch;
mod operands;
mod store;
mod wire;

pub use abi::ABI;
pub use buffer::{Buffer, DType, Data, DataMut};
pub use control::{Control, Hyperparameter, Slot};
pub use cost::Cost;
pub use error::{Error, ErrorKind};
pub use launch::Launch;
pub use operands::{MapOperands, OnDevice, Operands};
pub use store::{CrossEntropyArgs, CtcArgs, NormSaved, Param, Store};
pub use wire::{Invitation, Wire};

use crate::stats::{FlushRule, Stats};
use core::{future::Future, ops::Range, time::Duration};

/// Result of a call that only enqueues.
pub type Done<B> = Result<(), <B as Backend>::Error>;

/// What a device is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps<'a> {
    /// For people.
    pub name: &'a str,
    /// What its stores of half do with small numbers. Probed at start-up.
    pub flush: FlushRule,
    /// Whether f32 subnormals are kept, in arithmetic and in statistics.
    pub f32_subnormals: bool,
    /// Largest buffer in bytes.
    pub max_buffer: u64,
}

/// Answer of [`Backend::product_engine_availability`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineAvailability {
    /// The device has the engine and can select it.
    Available,
    /// The user has pinned another engine, which stays selected.
    Pinned,
    /// The device lacks the engine.
    Missing,
}

/// A device. Operators read half or f32, accumulate in f32 and write through a [`Store`].
pub trait Backend: Sized {
    /// Device memory.
    type Buffer: Buffer;
    /// Exponents, hyperparameters and rows of the sites that train together.
    type Table;
    /// A recorded step; `()` where nothing is recorded.
    type Recording;
    /// Native error.
    type Error: Error;

    // Memory.

    /// What the device is like.
    fn caps(&self) -> Caps<'_>;

    /// Largest amount of memory, in bytes, that operators have used at once besides their operands since the last
    /// call; `None` where that is not known.
    fn scratch_peak(&self) -> Option<u64> {
        None
    }

    /// Bytes of device memory that operators keep between launches besides their operands: partial sums, lists. 0 where
    /// they keep none, or where it is not known.
    fn workspace(&self) -> u64 {
        0
    }

    /// Memory with any content.
    ///
    /// # Errors
    /// Out of memory, or larger than [`Caps::max_buffer`].
    fn alloc(&self, dtype: DType, len: usize) -> Result<Self::Buffer, Self::Error>;

    /// Memory for tensors that one [`Launch::Optimize`] or [`Launch::GlobalNorm`] takes together, each in the same role:
    /// masters, gradients, one of the states, half copies. A buffer for each of `lens`, in this order, as
    /// [`Backend::alloc`] gives it; after an error some may have been given.
    ///
    /// A device whose kernels see few buffers at once may lay them side by side. Therefore no launch reads one of them
    /// and writes another.
    ///
    /// # Errors
    /// Those of [`Backend::alloc`].
    fn alloc_together(&self, dtype: DType, lens: &[usize], buffers: &mut impl Extend<Self::Buffer>) -> Done<Self> {
        lens.iter().try_for_each(|&len| {
            buffers.extend([self.alloc(dtype, len)?]);
            Ok(())
        })
    }

    /// Copies `src`, of the buffer's type and free for reuse on return, to the start of `dst`.
    ///
    /// # Errors
    /// The device's.
    fn write(&self, src: Data<'_>, dst: &mut Self::Buffer) -> Done<Self>;

    /// As [`Backend::write`], beside work under way: runs after everything enqueued before the last
    /// [`Backend::upload`] (without one, at once) and after earlier calls of this. Whatever is enqueued later sees it;
    /// what was enqueued since that upload must not use `dst`. A device with one queue writes.
    ///
    /// # Errors
    /// The device's.
    fn prefetch(&self, src: Data<'_>, dst: &mut Self::Buffer) -> Done<Self> {
        self.write(src, dst)
    }

    /// Copies the start of `src` to `dst`, of the buffer's type. Waits.
    fn read(&self, src: &Self::Buffer, dst: DataMut<'_>) -> impl Future<Output = Done<Self>>;

    // A step.

    /// A table with exponents 0, hyperparameters 0 and empty rows.
    ///
    /// # Errors
    /// Out of memory.
    fn table(&self, slots: u16, hyperparameters: u16) -> Result<Self::Table, Self::Error>;

    /// Uploads `control` and empties the rows in `clear`.
    ///
    /// # Errors
    /// The device's.
    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Self::Table) -> Done<Self>;

    /// Reads `rows`, each at the exponent and in the detail in which it was observed, and element 0 of each of
    /// `scalars` (F32). A row into which nothing was stored is empty, of detail [`crate::stats::Detail::None`].
    /// Waits.
    fn collect(
        &self, table: &Self::Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Self::Buffer], values: &mut [f32],
    ) -> impl Future<Output = Done<Self>>;

    /// Keeps the launches of `work`, which calls operators only. With a recording nothing has run yet: repeat it. A
    /// device that keeps nothing runs `work` and returns `None`.
    ///
    /// # Errors
    /// Those of `work`, and the device's.
    fn record(&self, work: impl FnOnce() -> Done<Self>) -> Result<Option<Self::Recording>, Self::Error> {
        work()?;
        Ok(None)
    }

    /// Repeats a recorded step, whose buffers and table must still live, with the control last uploaded.
    ///
    /// # Errors
    /// The device's.
    #[expect(unused_variables, reason = "its name is documentation")]
    fn repeat(&self, step: &Self::Recording) -> Done<Self> {
        Err(Self::Error::unsupported("repeat"))
    }

    // What is computed.

    /// Enqueues one operator. A device that lacks it answers [`Error::unsupported`] with its name.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn launch(&self, launch: Launch<OnDevice<'_, Self>>) -> Done<Self>;

    /// Runs `work` for each of `times`, with its number, and writes how long the device worked on it, by the device's own
    /// clock. Each call enqueues operators only, and they give the same bits as without this. Waits. `false`: the device has
    /// no clock, and nothing has run.
    ///
    /// # Errors
    /// Those of `work`, and the device's.
    #[expect(unused_variables, reason = "its name is documentation")]
    fn time(&self, times: &mut [Duration], work: impl FnMut(usize) -> Done<Self>) -> Result<bool, Self::Error> {
        Ok(false)
    }

    // Engines of products.

    /// Name of the engine that computes products, on a device that has several. They sum in different orders, so a
    /// training keeps its engine: a checkpoint records this name. `None` where there is one engine only.
    fn product_engine(&self) -> Option<&str> {
        None
    }

    /// Reports if [`Backend::select_product_engine`] would select the engine of this name.
    #[expect(unused_variables, reason = "its name is documentation")]
    fn product_engine_availability(&self, name: &str) -> EngineAvailability {
        EngineAvailability::Missing
    }

    /// Selects the engine of products by its name, for later launches. Recordings made before keep theirs.
    ///
    /// # Errors
    /// Unsupported, of an engine that is not [`EngineAvailability::Available`].
    #[expect(unused_variables, reason = "its name is documentation")]
    fn select_product_engine(&mut self, name: &str) -> Done<Self> {
        Err(Self::Error::unsupported("select_product_engine"))
    }

    // Several ranks.

    /// By what the devices of several ranks reach one another without the memory of the host; none if they do not.
    fn reaches_by(&self) -> Option<&'static str> {
        None
    }

    /// What all ranks join by. One of them asks, and tells the others.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    fn invite(&self) -> Result<Invitation, Self::Error> {
        Err(Self::Error::unsupported("invite"))
    }

    /// Joins the devices of so many ranks, as this one of them, from 0. Waits until all have come.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    #[expect(unused_variables, reason = "its name is documentation")]
    fn join(&mut self, invitation: &Invitation, rank: u32, ranks: u32) -> Done<Self> {
        Err(Self::Error::unsupported("join"))
    }

    /// A part of adding up gradients, on a device that has joined others. All ranks do the same.
    ///
    /// # Errors
    /// Unsupported, and the device's.
    #[expect(unused_variables, reason = "its name is documentation")]
    fn wire(&self, part: Wire<'_, Self::Buffer>) -> Done<Self> {
        Err(Self::Error::unsupported("wire"))
    }
}
