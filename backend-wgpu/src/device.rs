//! State of a device: handles of wgpu, limits, scratch buffers, and what the other files of the crate store with it.

use crate::{
    Error,
    conversions::Conversions,
    engine::{EnginePreference, EngineReason, ProductEngine, ProductLaunches},
    health::Health,
    kernel::Compiled,
    product_engine::{PlantedFault, Products},
    product_tile::ProductTile,
    recording::Pending,
    tile_choice::{TileChoice, TileReason},
};
use gradscale_core::stats::FlushRule;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

#[cfg(test)]
mod tests;

/// Alignment of bindings in bytes: the largest that WebGPU allows a device to require.
pub(crate) const ALIGNMENT: u64 = 256;

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
    f16: bool,
    conversions: Conversions,
    pub(crate) products: Products,
    /// Tile of all SIMT products, if a test or a timing has chosen it.
    pub(crate) product_tile: Option<ProductTile>,
    pub(crate) tile_choice: TileChoice,
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
    /// Buffers for later downloads.
    pub(crate) staging: Mutex<Vec<wgpu::Buffer>>,
    /// Maximum number of bytes of one request for scratch memory since the last call of [`Wgpu::take_peak_scratch_bytes`].
    peak_scratch_bytes: AtomicU64,
    /// Number of dispatches enqueued since the device was opened.
    pub(crate) dispatches: AtomicU64,
    /// Number of launches of products by the SIMT kernels; see [`Wgpu::product_launches`].
    pub(crate) launches_by_simt: AtomicU64,
    pub(crate) launches_by_coop: AtomicU64,
}

impl Wgpu {
    /// Returns a device on these handles of wgpu, with SIMT for all products, until it is probed.
    pub(crate) fn from_handles(device: wgpu::Device, queue: wgpu::Queue, name: String, checked: bool) -> Self {
        let (health, limits) = (Health::watch(&device), device.limits());
        let has = |feature| device.features().contains(feature);
        let (subgroups, f16) = (has(wgpu::Features::SUBGROUP), has(wgpu::Features::SHADER_F16));
        Self {
            device,
            queue,
            name,
            checked,
            largest_binding: limits.max_storage_buffer_binding_size,
            subgroups,
            f16,
            conversions: Conversions::default(),
            limits,
            products: Products::simt(EnginePreference::Simt, EngineReason::Pinned),
            product_tile: None,
            tile_choice: TileChoice { tile: ProductTile::Side128, reason: TileReason::Guessed },
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
            staging: Mutex::default(),
            peak_scratch_bytes: AtomicU64::new(0),
            dispatches: AtomicU64::new(0),
            launches_by_simt: AtomicU64::new(0),
            launches_by_coop: AtomicU64::new(0),
        }
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

    /// Returns the device with one tile for all SIMT products, in place of the one that suits a shape: for tests.
    #[must_use]
    pub fn with_product_tile(self, tile: ProductTile) -> Self {
        Self { product_tile: Some(tile), ..self }
    }

    /// Returns the tile that large SIMT products use, and why: see [`crate::TilePreference`].
    #[must_use]
    pub const fn product_tile_choice(&self) -> &TileChoice {
        &self.tile_choice
    }

    pub(crate) const fn has_subgroups(&self) -> bool {
        self.subgroups
    }

    pub(crate) const fn has_f16(&self) -> bool {
        self.f16
    }

    /// Returns the conversions between halves and f32 that kernels use, as the test at opening has chosen them.
    #[must_use]
    pub const fn conversions(&self) -> Conversions {
        self.conversions
    }

    /// Sets the conversions of all kernels that are compiled from now on, and forgets those that are compiled.
    pub(crate) fn set_conversions(&mut self, conversions: Conversions) {
        self.conversions = conversions;
        self.compiled = Mutex::default();
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

    /// Runs `work` and returns the validation error that wgpu reported, if it did at once. Browsers report later: see
    /// [`Health`].
    pub(crate) fn capture_validation_error<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        let result = work();
        self.health.capture_validation_error().map(|()| result)
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

    /// Allocates a wgpu buffer of `size` bytes.
    pub(crate) fn new_buffer(&self, size: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer, Error> {
        let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        let buffer = self.device().create_buffer(&descriptor);
        match self.health.refused() {
            None => Ok(buffer),
            Some(reason) => Err(Error::OutOfMemory { bytes: size, reason }),
        }
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
