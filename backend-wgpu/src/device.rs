//! The device.

use crate::{
    Adapter, Error,
    kernel::Compiled,
    queue::{Health, Pending},
};
use gradscale_core::stats::FlushRule;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

#[cfg(test)]
mod tests;

/// A GPU as a device.
#[derive(Debug)]
pub struct Wgpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    name: String,
    checked: bool,
    limits: wgpu::Limits,
    pub(crate) flush: FlushRule,
    pub(crate) f32_subnormals: bool,
    pub(crate) compiled: Mutex<Compiled>,
    pub(crate) pending: Mutex<Pending>,
    pub(crate) health: Arc<Health>,
    /// Sums of workgroups, between a launch and the one that adds them up.
    partials: Mutex<Option<wgpu::Buffer>>,
    /// Sums of slices of a product, likewise.
    slices: Mutex<Option<wgpu::Buffer>>,
    /// Totals of the parts of a sum, and numbers that one kernel leaves for the next, likewise.
    totals: Mutex<Option<wgpu::Buffer>>,
    numbers: Mutex<Option<wgpu::Buffer>>,
    /// Memory in the place of buffers that an update does not have.
    nothing: [Mutex<Option<wgpu::Buffer>>; 3],
    /// Most bytes of one since somebody asked.
    peak: AtomicU64,
}

impl Wgpu {
    /// The adapter of this number in [`crate::adapters`]. Kernels run without run-time checks, but for builds with
    /// debug assertions.
    ///
    /// # Errors
    /// [`Error::NoAdapter`], [`Error::NoDevice`], and what the first kernels meet.
    pub fn new(index: usize) -> Result<Self, Error> {
        Self::open(&Adapter::get(index)?, cfg!(debug_assertions))
    }

    /// An adapter; `checked` lets kernels check every index, divisor and loop.
    ///
    /// # Errors
    /// [`Error::NoDevice`], and what the first kernels meet.
    pub fn open(adapter: &Adapter, checked: bool) -> Result<Self, Error> {
        let (device, queue) = adapter.open()?;
        let (health, limits) = (Health::of(&device), device.limits());
        let mut opened = Self {
            device,
            queue,
            name: adapter.name(),
            checked,
            limits,
            flush: FlushRule::Nearest,
            f32_subnormals: false,
            compiled: Mutex::default(),
            pending: Mutex::default(),
            health,
            partials: Mutex::default(),
            slices: Mutex::default(),
            totals: Mutex::default(),
            numbers: Mutex::default(),
            nothing: <[Mutex<_>; 3]>::default(),
            peak: AtomicU64::new(0),
        };
        opened.probe()?;
        Ok(opened)
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

    /// Most workgroups in one direction of a grid.
    pub(crate) const fn max_groups(&self) -> u32 {
        self.limits.max_compute_workgroups_per_dimension
    }

    /// The largest buffer that a kernel can see at once.
    pub(crate) fn max_buffer(&self) -> u64 {
        // A multiple of 16, to which buffers are padded.
        self.limits.max_buffer_size.min(self.limits.max_storage_buffer_binding_size) / 16 * 16
    }

    /// Scratch memory for the sums of a launch's workgroups; the next launch may overwrite it.
    pub(crate) fn partials(&self, bytes: u64) -> Result<wgpu::Buffer, Error> {
        self.scratch(&self.partials, bytes)
    }

    /// Scratch memory for the slices of a product; the next product may overwrite it.
    pub(crate) fn slices(&self, bytes: u64) -> Result<wgpu::Buffer, Error> {
        self.scratch(&self.slices, bytes)
    }

    /// Scratch memory for the totals of parts; the next sum may overwrite it.
    pub(crate) fn totals(&self, bytes: u64) -> Result<wgpu::Buffer, Error> {
        self.scratch(&self.totals, bytes)
    }

    /// Scratch memory for what one kernel of an operator leaves for the next.
    pub(crate) fn numbers(&self, bytes: u64) -> Result<wgpu::Buffer, Error> {
        self.scratch(&self.numbers, bytes)
    }

    /// Three buffers that stand where a kernel asks for one and does not touch it: no two are the same, because it
    /// might write.
    pub(crate) fn nothing(&self) -> Result<[wgpu::Buffer; 3], Error> {
        let [a, b, c] = &self.nothing;
        Ok([self.scratch(a, 16)?, self.scratch(b, 16)?, self.scratch(c, 16)?])
    }

    fn scratch(&self, kept: &Mutex<Option<wgpu::Buffer>>, bytes: u64) -> Result<wgpu::Buffer, Error> {
        self.peak.fetch_max(bytes, Relaxed);
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some(buffer) if buffer.size() >= bytes => Ok(buffer.clone()),
            _ => {
                let size = bytes.next_power_of_two().max(1 << 12);
                let buffer = self.new_buffer(size, wgpu::BufferUsages::STORAGE)?;
                *kept = Some(buffer.clone());
                Ok(buffer)
            }
        }
    }

    /// The most scratch memory that one operator has asked for since the last call.
    pub(crate) fn take_peak(&self) -> u64 {
        self.peak.swap(0, Relaxed)
    }
}
