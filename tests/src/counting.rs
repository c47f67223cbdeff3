//! Decorator that counts the calls of a backend.

use core::{
    fmt,
    future::Future,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use gradscale_core::{
    backend::{Backend, Caps, Control, DType, Data, DataMut, DeviceResult, GradReduce, Launch, OnDevice, UniqueId},
    ops::Attention,
    stats::{Stats, WORDS},
};

/// Calls and bytes since the last [`Counting::take`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Number of allocated buffers, with those of joint allocations.
    pub allocs: u64,
    /// Bytes allocated.
    pub allocated: u64,
    /// Host data written.
    pub writes: u64,
    /// Bytes written by `write`, `prefetch` and `upload`.
    pub bytes_up: u64,
    /// Buffers read.
    pub reads: u64,
    /// Bytes read by `read` and, a full row for each, by `collect`.
    pub bytes_down: u64,
    /// Control uploads.
    pub uploads: u64,
    /// Row read-backs.
    pub collects: u64,
    /// Operators called, recorded or not.
    pub operators: u64,
    /// Recorded steps repeated.
    pub repeats: u64,
}

/// Backend that passes every call to another backend and counts it. With it a test can prove that a training step
/// uploads once, collects once, and neither reads nor allocates.
///
/// ```
/// use gradscale_conformance::{Counting, Reference};
/// use gradscale_core::backend::{Backend, DType};
/// let backend = Counting::new(Reference::default());
/// let _buffer = backend.alloc(DType::F16, 10)?;
/// let calls = backend.take();
/// assert_eq!((calls.allocs, calls.allocated, calls.operators), (1, 20, 0));
/// # Ok::<(), gradscale_core::backend::ErrorKind>(())
/// ```
#[derive(Debug, Default)]
pub struct Counting<B> {
    inner: B,
    counters: [AtomicU64; 10],
    /// Number of operators launched, whether or not they were recorded.
    launched: AtomicU64,
    watch: Option<Watch>,
    /// True if the device hides that it has attention in one launch.
    unfused: bool,
}

/// Called before each operator with its number, from 0.
struct Watch(Box<dyn Fn(u64) + Send + Sync>);

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// Indices of counters, in the order of [`Calls`].
const ALLOCS: usize = 0;
const ALLOCATED: usize = 1;
const WRITES: usize = 2;
const BYTES_UP: usize = 3;
const READS: usize = 4;
const BYTES_DOWN: usize = 5;
const UPLOADS: usize = 6;
const COLLECTS: usize = 7;
const OPERATORS: usize = 8;
const REPEATS: usize = 9;

impl<B> Counting<B> {
    /// Creates a counting decorator around `inner`.
    pub fn new(inner: B) -> Self {
        Self { inner, counters: Default::default(), launched: AtomicU64::new(0), watch: None, unfused: false }
    }

    /// Calls `watch` with the index of each operator, from 0, before the operator runs. A test can delay it in that
    /// way.
    #[must_use]
    pub fn watched(self, watch: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self { watch: Some(Watch(Box::new(watch))), ..self }
    }

    /// Hides attention in one launch from the engine.
    #[must_use]
    pub fn without_fused_attention(self) -> Self {
        Self { unfused: true, ..self }
    }

    /// The backend inside.
    pub const fn inner(&self) -> &B {
        &self.inner
    }

    /// Returns the counts so far, and resets them to 0.
    pub fn take(&self) -> Calls {
        let [allocs, allocated, writes, bytes_up, reads, bytes_down, uploads, collects, operators, repeats] =
            self.counters.each_ref().map(|counter| counter.swap(0, Relaxed));
        Calls { allocs, allocated, writes, bytes_up, reads, bytes_down, uploads, collects, operators, repeats }
    }

    fn count(&self, counter: usize, by: usize) {
        self.counters[counter].fetch_add(by as u64, Relaxed);
    }
}

impl<B: Backend> Backend for Counting<B> {
    type Buffer = B::Buffer;
    type Table = B::Table;
    type Recording = B::Recording;
    type Error = B::Error;

    fn caps(&self) -> Caps<'_> {
        self.inner.caps()
    }
    fn scratch_peak(&self) -> Option<u64> {
        self.inner.scratch_peak()
    }
    fn workspace(&self) -> u64 {
        self.inner.workspace()
    }
    fn alloc(&self, dtype: DType, len: usize) -> Result<B::Buffer, B::Error> {
        self.count(ALLOCS, 1);
        self.count(ALLOCATED, len.saturating_mul(dtype.size()));
        self.inner.alloc(dtype, len)
    }
    fn alloc_group(&self, dtype: DType, lens: &[usize], buffers: &mut impl Extend<B::Buffer>) -> DeviceResult<Self> {
        self.count(ALLOCS, lens.len());
        self.count(ALLOCATED, lens.iter().sum::<usize>().saturating_mul(dtype.size()));
        self.inner.alloc_group(dtype, lens, buffers)
    }
    fn write(&self, src: Data<'_>, dst: &mut B::Buffer) -> DeviceResult<Self> {
        self.count(WRITES, 1);
        self.count(BYTES_UP, src.len() * src.dtype().size());
        self.inner.write(src, dst)
    }
    fn prefetch(&self, src: Data<'_>, dst: &mut B::Buffer) -> DeviceResult<Self> {
        self.count(WRITES, 1);
        self.count(BYTES_UP, src.len() * src.dtype().size());
        self.inner.prefetch(src, dst)
    }
    fn read(&self, src: &B::Buffer, dst: DataMut<'_>) -> impl Future<Output = DeviceResult<Self>> {
        self.count(READS, 1);
        self.count(BYTES_DOWN, dst.len() * dst.dtype().size());
        self.inner.read(src, dst)
    }
    fn table(&self, slots: u16, hyperparameters: u16) -> Result<B::Table, B::Error> {
        self.inner.table(slots, hyperparameters)
    }
    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut B::Table) -> DeviceResult<Self> {
        self.count(UPLOADS, 1);
        self.count(BYTES_UP, size_of_val(control.exponents) + size_of_val(control.hyperparameters) + 12);
        self.inner.upload(control, clear, table)
    }
    fn collect(
        &self, table: &B::Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&B::Buffer], values: &mut [f32],
    ) -> impl Future<Output = DeviceResult<Self>> {
        self.count(COLLECTS, 1);
        self.count(BYTES_DOWN, rows.len() * WORDS * 4 + scalars.len() * 4);
        self.inner.collect(table, rows, out, scalars, values)
    }
    fn record(&self, work: impl FnOnce() -> DeviceResult<Self>) -> Result<Option<B::Recording>, B::Error> {
        self.inner.record(work)
    }
    fn replay(&self, step: &B::Recording) -> DeviceResult<Self> {
        self.count(REPEATS, 1);
        self.inner.replay(step)
    }
    fn fuses_attention(&self, p: &Attention) -> bool {
        !self.unfused && self.inner.fuses_attention(p)
    }
    fn time(&self, times: &mut [Duration], work: impl FnMut(usize) -> DeviceResult<Self>) -> Result<bool, B::Error> {
        self.inner.time(times, work)
    }
    fn launch(&self, launch: Launch<OnDevice<'_, Self>>) -> DeviceResult<Self> {
        self.count(OPERATORS, 1);
        let number = self.launched.fetch_add(1, Relaxed);
        self.watch.iter().for_each(|Watch(watch)| watch(number));
        self.inner.launch(launch.inside())
    }
    fn collective_backend(&self) -> Option<&'static str> {
        self.inner.collective_backend()
    }
    fn new_unique_id(&self) -> Result<UniqueId, B::Error> {
        self.inner.new_unique_id()
    }
    fn init_rank(&mut self, unique_id: &UniqueId, rank: u32, ranks: u32) -> DeviceResult<Self> {
        self.inner.init_rank(unique_id, rank, ranks)
    }
    fn grad_reduce(&self, part: GradReduce<'_, B::Buffer>) -> DeviceResult<Self> {
        self.inner.grad_reduce(part)
    }
}
