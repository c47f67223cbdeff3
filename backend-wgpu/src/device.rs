//! The device.

use crate::{
    Adapter, Error,
    engine::{EnginePreference, EngineReason, ProductEngine, ProductLaunches, Refusal, RefusalCause},
    kernel::Compiled,
    launch::ALIGNMENT,
    operators::coop::{PlantedFault, Products},
    queue::{Health, Pending},
};
use gradscale_core::stats::FlushRule;
use pollster::block_on;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

#[cfg(test)]
mod tests;

/// Device of the wgpu backend: a GPU with its queue, compiled pipelines and staging memory.
#[derive(Debug)]
pub struct Wgpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    name: String,
    checked: bool,
    limits: wgpu::Limits,
    /// Maximum number of bytes that one binding can cover.
    largest_binding: u64,
    subgroups: bool,
    pub(crate) products: Products,
    pub(crate) planted_fault: PlantedFault,
    pub(crate) flush: FlushRule,
    pub(crate) f32_subnormals: bool,
    pub(crate) compiled: Mutex<Compiled>,
    pub(crate) pending: Mutex<Pending>,
    pub(crate) health: Arc<Health>,
    /// Scratch memory, grown on demand: sums of workgroups, for the launch that adds them to a statistics row.
    partial_sums: Mutex<Option<wgpu::Buffer>>,
    /// Partial sums of split-K.
    split_k_partials: Mutex<Option<wgpu::Buffer>>,
    /// Partial totals of reductions.
    partial_totals: Mutex<Option<wgpu::Buffer>>,
    /// Tables larger than one binding: see [`Wgpu::tables`].
    tables: Mutex<Option<wgpu::Buffer>>,
    /// Values that one kernel of an operator stores for the next.
    intermediates: Mutex<Option<wgpu::Buffer>>,
    /// Buffers bound in place of those that an update lacks.
    placeholders: [Mutex<Option<wgpu::Buffer>>; 3],
    /// Buffer bound after the end of a tensor that is written in windows.
    dummy: Mutex<Option<wgpu::Buffer>>,
    /// Maximum number of bytes of one request for scratch memory since the last call of [`Wgpu::take_peak_scratch_bytes`].
    peak_scratch_bytes: AtomicU64,
    /// Number of dispatches enqueued since the device was opened.
    pub(crate) dispatches: AtomicU64,
    /// Number of launches of products by the SIMT kernels; see [`Wgpu::product_launches`].
    pub(crate) launches_by_simt: AtomicU64,
    pub(crate) launches_by_coop: AtomicU64,
}

impl Wgpu {
    /// Opens the adapter with this index in [`crate::adapters`]. Kernels have run-time checks only in builds with debug
    /// assertions.
    ///
    /// # Errors
    /// [`Error::NoAdapter`], [`Error::NoDevice`], and errors of the first kernels.
    pub fn new(index: usize) -> Result<Self, Error> {
        Self::open(&Adapter::get(index)?, cfg!(debug_assertions))
    }

    /// Opens a device on an adapter; `checked` lets kernels check every index, divisor and loop. The environment
    /// variable `GRADSCALE_WGPU_PRODUCTS` (`fastest`, `simt` or `cooperative`) chooses the engine of products.
    ///
    /// If the adapter offers cooperative matrices, they are tested and timed first: see [`Wgpu::product_engine_reason`].
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::Engine`], and errors of the first kernels.
    pub fn open(adapter: &Adapter, checked: bool) -> Result<Self, Error> {
        block_on(Self::open_async(adapter, checked))
    }

    /// Opens a device as [`Wgpu::open`] does, without blocking: where there is an event loop, as in a browser, a device
    /// answers only once the program has returned to it. Errors that a browser tells late (a kernel that does not
    /// compile, memory that is not there) are those of a later call; each call that reads waits for them.
    ///
    /// # Errors
    /// As [`Wgpu::open`].
    pub async fn open_async(adapter: &Adapter, checked: bool) -> Result<Self, Error> {
        Self::open_with_async(adapter, checked, EnginePreference::from_environment()?).await
    }

    /// Opens a device as [`Wgpu::open`] does, with a preference for an engine of products that overrides the
    /// environment variable.
    ///
    /// # Errors
    /// As [`Wgpu::open`].
    pub fn open_with(adapter: &Adapter, checked: bool, preference: EnginePreference) -> Result<Self, Error> {
        block_on(Self::open_with_async(adapter, checked, preference))
    }

    /// Opens a device as [`Wgpu::open_with`] does, without blocking, as [`Wgpu::open_async`].
    ///
    /// # Errors
    /// As [`Wgpu::open`].
    pub async fn open_with_async(
        adapter: &Adapter, checked: bool, preference: EnginePreference,
    ) -> Result<Self, Error> {
        Self::open_planted(adapter, checked, preference, PlantedFault::None).await
    }

    pub(crate) async fn open_planted(
        adapter: &Adapter, checked: bool, preference: EnginePreference, planted_fault: PlantedFault,
    ) -> Result<Self, Error> {
        let candidates = adapter.cooperative();
        let offered = preference != EnginePreference::Simt && candidates.is_ok();
        let mut opened = Self { planted_fault, ..Self::connect(adapter, checked, offered).await? };
        let chosen = opened.choose_engine(candidates.clone(), preference, adapter.is_software()).await;
        opened.products = match (chosen, candidates, preference) {
            (Ok(products), _, _) => products,
            // A driver that loses its device over cooperative matrices may well do without them.
            (Err(Error::Lost(reason)), Ok(candidates), EnginePreference::Fastest) => {
                opened = Self::connect(adapter, checked, false).await?;
                let cause = RefusalCause::Failed(format!("the device is lost: {reason}"));
                let refusals = candidates.first().map(|coop| Refusal { engine: coop.engine(), cause });
                Products::simt(preference, EngineReason::Refused(refusals.into_iter().collect()))
            }
            (Err(error), _, _) => return Err(error),
        };
        // Launches of the self-test are not counted.
        opened.launches_by_simt = AtomicU64::new(0);
        opened.launches_by_coop = AtomicU64::new(0);
        Ok(opened)
    }

    /// Opens a device whose engine of products is not yet chosen.
    async fn connect(adapter: &Adapter, checked: bool, cooperative: bool) -> Result<Self, Error> {
        let (device, queue) = adapter.open(cooperative).await?;
        let (health, limits) = (Health::watch(&device), device.limits());
        let subgroups = device.features().contains(wgpu::Features::SUBGROUP);
        let mut opened = Self {
            device,
            queue,
            name: adapter.name(),
            checked,
            largest_binding: limits.max_storage_buffer_binding_size,
            subgroups,
            limits,
            products: Products::simt(EnginePreference::Simt, EngineReason::Pinned),
            planted_fault: PlantedFault::None,
            flush: FlushRule::Nearest,
            f32_subnormals: false,
            compiled: Mutex::default(),
            pending: Mutex::default(),
            health,
            partial_sums: Mutex::default(),
            split_k_partials: Mutex::default(),
            partial_totals: Mutex::default(),
            tables: Mutex::default(),
            intermediates: Mutex::default(),
            placeholders: <[Mutex<_>; 3]>::default(),
            dummy: Mutex::default(),
            peak_scratch_bytes: AtomicU64::new(0),
            dispatches: AtomicU64::new(0),
            launches_by_simt: AtomicU64::new(0),
            launches_by_coop: AtomicU64::new(0),
        };
        opened.probe().await?;
        Ok(opened)
    }

    /// Returns the device with a limit on the bytes of a binding (256 at least). Larger tensors are bound through
    /// several windows, as on devices with small bindings. For tests; results are the same, but slower.
    #[must_use]
    pub fn with_largest_binding(self, bytes: u64) -> Self {
        Self { largest_binding: bytes.clamp(ALIGNMENT, self.largest_binding), ..self }
    }

    /// Returns the device as if it had no subgroups, and so no cooperative matrices: for tests.
    #[must_use]
    pub fn without_subgroups(self) -> Self {
        Self { subgroups: false, compiled: Mutex::default(), ..self }.without_cooperative_matrices()
    }

    pub(crate) const fn has_subgroups(&self) -> bool {
        self.subgroups
    }

    /// Returns how many dispatches were enqueued so far, those of repeated recordings included.
    #[must_use]
    pub fn dispatches(&self) -> u64 {
        self.dispatches.load(Relaxed)
    }

    /// Returns the device as if its adapter had no cooperative matrices: for tests, and to measure how much they help.
    #[must_use]
    pub fn without_cooperative_matrices(self) -> Self {
        let products = Products::simt(self.products.preference(), EngineReason::Pinned);
        Self { products, ..self }
    }

    /// Returns the engine that multiplies matrices of halves. Products that cooperative matrices cannot compute, and
    /// all convolutions, go by [`ProductEngine::Simt`] in any case; [`Wgpu::product_launches`] counts both.
    #[must_use]
    pub const fn product_engine(&self) -> ProductEngine {
        self.products.engine()
    }

    /// Returns the reason why [`Wgpu::product_engine`] was chosen.
    #[must_use]
    pub const fn product_engine_reason(&self) -> &EngineReason {
        self.products.reason()
    }

    /// Returns the number of products launched or recorded since the device was opened, by the kernel that computes
    /// them.
    #[must_use]
    pub fn product_launches(&self) -> ProductLaunches {
        ProductLaunches { simt: self.launches_by_simt.load(Relaxed), cooperative: self.launches_by_coop.load(Relaxed) }
    }

    pub(crate) const fn device(&self) -> &wgpu::Device {
        &self.device
    }

    pub(crate) const fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn is_checked(&self) -> bool {
        self.checked
    }

    /// Returns the maximum number of workgroups in one direction of a grid.
    pub(crate) const fn max_groups(&self) -> u32 {
        self.limits.max_compute_workgroups_per_dimension
    }

    /// Returns the maximum number of bytes that one binding can cover.
    pub(crate) const fn largest_binding(&self) -> u64 {
        self.largest_binding
    }

    /// Returns the bytes of a window on a tensor that is larger than a binding.
    pub(crate) const fn window_bytes(&self) -> u64 {
        1 << self.largest_binding.ilog2()
    }

    /// Returns the maximum number of windows on a tensor, if a kernel binds five tensors and three other buffers.
    pub(crate) fn max_windows(&self) -> u32 {
        (self.limits.max_storage_buffers_per_shader_stage.saturating_sub(3) / 5).clamp(1, 16)
    }

    /// Returns the size of the largest buffer that kernels can bind, through windows if necessary.
    pub(crate) fn max_buffer(&self) -> u64 {
        let seen = (self.window_bytes() * u64::from(self.max_windows())).max(self.largest_binding);
        // A multiple of 32, to which buffers are padded.
        self.limits.max_buffer_size.min(seen) / 32 * 32
    }

    /// Returns scratch memory for the sums of a launch's workgroups; the next launch may overwrite it.
    pub(crate) fn partial_sums(&self, bytes: u64) -> Result<wgpu::Buffer, Error> {
        self.scratch_buffer(&self.partial_sums, bytes)
    }

    /// Returns scratch memory for the slices of a product; the next product may overwrite it.
    pub(crate) fn split_k_partials(&self, bytes: u64) -> Result<wgpu::Buffer, Error> {
        self.scratch_buffer(&self.split_k_partials, bytes)
    }

    /// Returns scratch memory for the totals of parts; the next sum may overwrite it.
    pub(crate) fn partial_totals(&self, bytes: u64) -> Result<wgpu::Buffer, Error> {
        self.check_binding_size(bytes)?;
        self.scratch_buffer(&self.partial_totals, bytes)
    }

    /// Returns scratch memory that an operator binds through windows. It may be larger than one binding, and so is not
    /// that of totals, which are bound as a whole by operators that ask for less, too.
    pub(crate) fn tables(&self, bytes: u64) -> Result<wgpu::Buffer, Error> {
        self.scratch_buffer(&self.tables, bytes)
    }

    /// Returns scratch memory for intermediate results between the kernels of an operator.
    pub(crate) fn intermediates(&self, bytes: u64) -> Result<wgpu::Buffer, Error> {
        self.check_binding_size(bytes)?;
        self.scratch_buffer(&self.intermediates, bytes)
    }

    /// Returns three buffers for bindings that a kernel declares but does not use. They differ, because it might write
    /// to them.
    pub(crate) fn placeholder_buffers(&self) -> Result<[wgpu::Buffer; 3], Error> {
        let [a, b, c] = &self.placeholders;
        Ok([self.scratch_buffer(a, 16)?, self.scratch_buffer(b, 16)?, self.scratch_buffer(c, 16)?])
    }

    /// Returns scratch memory that is bound as the windows after the end of a written tensor.
    pub(crate) fn dummy_buffer(&self) -> Result<wgpu::Buffer, Error> {
        self.scratch_buffer(&self.dummy, 32 * ALIGNMENT)
    }

    /// Returns an error unless one binding can cover `bytes` bytes.
    pub(crate) fn check_binding_size(&self, bytes: u64) -> Result<(), Error> {
        if bytes <= self.largest_binding {
            return Ok(());
        }
        let reason = "an operator must see that at once, and it is larger than the device's largest binding";
        Err(Error::OutOfMemory { bytes, reason: reason.into() })
    }

    fn scratch_buffer(&self, cached: &Mutex<Option<wgpu::Buffer>>, bytes: u64) -> Result<wgpu::Buffer, Error> {
        self.peak_scratch_bytes.fetch_max(bytes, Relaxed);
        let mut cached = cached.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cached {
            Some(buffer) if buffer.size() >= bytes => Ok(buffer.clone()),
            _ => {
                // Rounded up to a power of two, so that it grows rarely; limited, because one binding must hold it.
                let size = bytes.next_power_of_two().max(1 << 12).min(self.largest_binding.max(bytes));
                let buffer = self.new_buffer(size, wgpu::BufferUsages::STORAGE)?;
                *cached = Some(buffer.clone());
                Ok(buffer)
            }
        }
    }

    /// Returns the most scratch memory that one operator has used since the last call.
    pub(crate) fn take_peak_scratch_bytes(&self) -> u64 {
        self.peak_scratch_bytes.swap(0, Relaxed)
    }
}
