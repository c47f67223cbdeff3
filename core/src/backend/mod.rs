//! Contract between the engine and a device: the [`Backend`] trait.
//!
//! **A step is a function of ([`Control`], batch) to (rows of [`Stats`], loss).** Everything that changes from step to
//! step (exponents, learning rates, the seed, how much to observe) is stored in device memory, in a [`Backend::Table`].
//! Operators refer to it by [`Slot`] or [`Hyperparameter`]. Therefore the launches of all steps are the same: they can
//! be recorded and replayed, and no launch waits for the host.
//!
//! **Order.** Methods enqueue work in the order of the calls; only [`Backend::prefetch`] may overtake. Only
//! [`Backend::read`] and [`Backend::collect`] wait. Where waiting blocks (CPU, CUDA, native wgpu) their futures are
//! ready at the first poll.
//!
//! **Buffers** come from this device and have the types and lengths that [`Launch`] specifies.
//!
//! **Errors** cover conditions that a caller cannot foresee; anything else (for example a buffer too short or of a
//! wrong type) may panic. An error of earlier work may be returned by any later call. If a `read` or `collect`
//! succeeds, all work before it has succeeded. After [`ErrorKind::DeviceLost`] every buffer, table and recording is
//! invalid.
//!
//! **A new backend** implements the methods without a default body. In [`Backend::launch`] it matches the operators
//! that it has and returns [`ErrorKind::Unsupported`] for the rest. The conformance suite then reports operator by
//! operator as *passed* instead of *unsupported*.

mod abi;
mod buffer;
mod control;
mod cost;
mod decorator;
mod error;
mod grad_reduce;
mod launch;
mod operands;
mod store;
mod update_guard;

pub use abi::ABI;
pub use buffer::{Buffer, DType, Data, DataMut};
pub use control::{Control, Hyperparameter, Slot};
pub use cost::Cost;
pub use error::{Error, ErrorKind};
pub use grad_reduce::{GradReduce, UniqueId};
pub use launch::Launch;
pub use operands::{MapOperands, OnDevice, Operands};
pub use store::{AttentionArgs, Cast, CellArgs, CrossEntropyArgs, CtcArgs, NormSaved, Param, Store};
pub use update_guard::UpdateGuard;

use crate::{
    ops::Attention,
    stats::{FlushRule, Stats},
};
use core::{future::Future, ops::Range, time::Duration};

/// Result of a device call that only enqueues work.
pub type DeviceResult<B> = Result<(), <B as Backend>::Error>;

/// Capabilities of a device: name, flush rule, limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps<'a> {
    /// Display name of the device, for example of its processor.
    pub name: &'a str,
    /// Flush rule of the device: treatment of small numbers by its stores of half, probed at start-up.
    pub flush: FlushRule,
    /// True if the device keeps f32 subnormals, in arithmetic and in statistics.
    pub f32_subnormals: bool,
    /// Size in bytes of the largest buffer that the device can allocate.
    pub max_buffer: u64,
}

/// Availability of a GEMM engine, returned by [`Backend::product_engine_availability`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineAvailability {
    /// The device has the GEMM engine and can select it.
    Available,
    /// The user has pinned another GEMM engine, which stays selected.
    Pinned,
    /// The device has no GEMM engine of that name.
    Missing,
}

/// Interface of a device: memory, launches of operators, and statistics. Operators read half or f32, accumulate in f32
/// and write their results through a [`Store`].
pub trait Backend: Sized {
    /// Type of a buffer in device memory.
    type Buffer: Buffer;
    /// Type of the device's table: exponents, hyperparameters and statistics rows of the sites that are trained
    /// together.
    type Table;
    /// Type of a recorded step (for example a CUDA graph); `()` if the device records nothing.
    type Recording;
    /// Native error type of the device.
    type Error: Error;

    // Memory.

    /// Returns the capabilities of the device: name, flush rule, limits.
    fn caps(&self) -> Caps<'_>;

    /// Returns the peak amount of temporary memory, in bytes, that operators have used besides their operands since the
    /// last call. `None` if it is not known.
    fn scratch_peak(&self) -> Option<u64> {
        None
    }

    /// Returns the bytes of device memory that operators keep between launches besides their operands, for example for
    /// partial sums and lists. 0 if there are none, or if it is not known.
    fn workspace(&self) -> u64 {
        0
    }

    /// Allocates a buffer of `len` elements in device memory, with undefined content.
    ///
    /// # Errors
    /// Out of memory, or larger than [`Caps::max_buffer`].
    fn alloc(&self, dtype: DType, len: usize) -> Result<Self::Buffer, Self::Error>;

    /// Allocates memory for tensors that one [`Launch::Optimize`] or [`Launch::GlobalNorm`] uses as a group, each in
    /// the same role: masters, gradients, one of the states, half copies. Appends a buffer for each of `lens`, in this
    /// order, like [`Backend::alloc`]. After an error some may already have been appended.
    ///
    /// A device whose kernels can bind only few buffers may allocate them contiguously. Therefore no launch may read
    /// one of them and write another.
    ///
    /// # Errors
    /// See [`Backend::alloc`].
    fn alloc_group(&self, dtype: DType, lens: &[usize], buffers: &mut impl Extend<Self::Buffer>) -> DeviceResult<Self> {
        lens.iter().try_for_each(|&len| {
            buffers.extend([self.alloc(dtype, len)?]);
            Ok(())
        })
    }

    /// Copies `src` to the start of `dst`, which has the same type. `src` may be reused when the call returns.
    ///
    /// # Errors
    /// Errors of the device.
    fn write(&self, src: Data<'_>, dst: &mut Self::Buffer) -> DeviceResult<Self>;

    /// Copies like [`Backend::write`], concurrently with work in progress. The copy runs after everything enqueued
    /// before the last [`Backend::upload`] (immediately if there was none) and after earlier calls of this method. Work
    /// enqueued later sees the data; work enqueued since that upload must not use `dst`. A device with one queue calls
    /// [`Backend::write`].
    ///
    /// # Errors
    /// Errors of the device.
    fn prefetch(&self, src: Data<'_>, dst: &mut Self::Buffer) -> DeviceResult<Self> {
        self.write(src, dst)
    }

    /// Copies the start of `src` to `dst`, which has the same type, and waits for it.
    fn read(&self, src: &Self::Buffer, dst: DataMut<'_>) -> impl Future<Output = DeviceResult<Self>>;

    // Control of a step.

    /// Allocates a table with all exponents and hyperparameters 0 and empty rows.
    ///
    /// # Errors
    /// Out of memory.
    fn table(&self, slots: u16, hyperparameters: u16) -> Result<Self::Table, Self::Error>;

    /// Uploads the control data of a step to the table, and empties the rows in `clear`.
    ///
    /// # Errors
    /// Errors of the device.
    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Self::Table) -> DeviceResult<Self>;

    /// Reads `rows`, each with the exponent and detail at which it was observed, and element 0 of each of `scalars`
    /// (F32). A row of a slot without a store is empty, with detail [`crate::stats::Detail::None`]. Waits for the
    /// device.
    fn collect(
        &self, table: &Self::Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Self::Buffer], values: &mut [f32],
    ) -> impl Future<Output = DeviceResult<Self>>;

    /// Records the launches of `work`, which calls operators only. If it returns a recording, nothing has run yet, and
    /// the caller must replay it. A device without recording runs `work` and returns `None`.
    ///
    /// # Errors
    /// Errors of `work` and of the device.
    fn record(&self, work: impl FnOnce() -> DeviceResult<Self>) -> Result<Option<Self::Recording>, Self::Error> {
        work()?;
        Ok(None)
    }

    /// Replays a recorded step with the control uploaded last. Its buffers and table must still exist.
    ///
    /// # Errors
    /// Errors of the device.
    #[expect(unused_variables, reason = "its name is documentation")]
    fn replay(&self, step: &Self::Recording) -> DeviceResult<Self> {
        Err(Self::Error::unsupported("replay"))
    }

    // Computation.

    /// Enqueues one operator. A device without the operator returns [`Error::unsupported`] with its name.
    ///
    /// # Errors
    /// Unsupported operators, and errors of the device.
    fn launch(&self, launch: Launch<OnDevice<'_, Self>>) -> DeviceResult<Self>;

    /// Returns true if the device has [`Launch::Attention`] and [`Launch::AttentionVjp`] of this shape. Otherwise scores and
    /// weights are stored.
    #[expect(unused_variables, reason = "its name is documentation")]
    fn fuses_attention(&self, p: &Attention) -> bool {
        false
    }

    /// Measures device time. Runs `work` with each index of `times`, and writes the time that the device needed, by the
    /// device's own clock. Each call of `work` enqueues operators only, and their results have the same bits as without
    /// measuring. Waits for the device. Returns `false` if the device has no clock; nothing has run then.
    ///
    /// # Errors
    /// Errors of `work` and of the device.
    #[expect(unused_variables, reason = "its name is documentation")]
    fn time(&self, times: &mut [Duration], work: impl FnMut(usize) -> DeviceResult<Self>) -> Result<bool, Self::Error> {
        Ok(false)
    }

    // GEMM engines.

    /// Returns the name of the engine that computes matrix products, on a device with several engines. A checkpoint
    /// records this name, because engines sum in different orders and a training must keep its engine. `None` if there
    /// is one engine only.
    fn product_engine(&self) -> Option<&str> {
        None
    }

    /// Returns the availability of the GEMM engine `name` for [`Backend::select_product_engine`].
    #[expect(unused_variables, reason = "its name is documentation")]
    fn product_engine_availability(&self, name: &str) -> EngineAvailability {
        EngineAvailability::Missing
    }

    /// Selects the GEMM engine `name` for later launches. Earlier recordings keep theirs.
    ///
    /// # Errors
    /// Unsupported, if the engine is not [`EngineAvailability::Available`].
    #[expect(unused_variables, reason = "its name is documentation")]
    fn select_product_engine(&mut self, name: &str) -> DeviceResult<Self> {
        Err(Self::Error::unsupported("select_product_engine"))
    }

    /// Returns an error if the device can neither multiply operands of eight bits in units for these nor replaces such
    /// units by those for halves. A trainer calls this before it allocates memory, if its method has products in eight
    /// bits (`products=fp8`).
    ///
    /// # Errors
    /// The device refuses products in eight bits, for example a CUDA device below compute capability 8.9.
    fn check_eight_bit_products(&self) -> DeviceResult<Self> {
        Ok(())
    }

    // Collective operations of several ranks.

    /// Returns the name of the library by which the devices of several ranks exchange data without host memory (for
    /// example NCCL); `None` if there is none.
    fn collective_backend(&self) -> Option<&'static str> {
        None
    }

    /// Creates the unique identifier by which all ranks form a group. One rank calls this and sends the result to the
    /// others.
    ///
    /// # Errors
    /// Unsupported, and errors of the device.
    fn new_unique_id(&self) -> Result<UniqueId, Self::Error> {
        Err(Self::Error::unsupported("new_unique_id"))
    }

    /// Joins a group of `ranks` devices as number `rank`, counted from 0. Waits until all ranks have joined.
    ///
    /// # Errors
    /// Unsupported, and errors of the device.
    #[expect(unused_variables, reason = "its name is documentation")]
    fn init_rank(&mut self, unique_id: &UniqueId, rank: u32, ranks: u32) -> DeviceResult<Self> {
        Err(Self::Error::unsupported("init_rank"))
    }

    /// Executes one phase of a gradient reduction over the group that this device has joined. All ranks make the same
    /// calls.
    ///
    /// # Errors
    /// Unsupported, and errors of the device.
    #[expect(unused_variables, reason = "its name is documentation")]
    fn grad_reduce(&self, part: GradReduce<'_, Self::Buffer>) -> DeviceResult<Self> {
        Err(Self::Error::unsupported("grad_reduce"))
    }
}
