//! The device with its memory in other places: results must be the same. Several trainings can have one device, one after
//! another: a driver in software takes seconds to compile a kernel, and does it anew for each device.

use core::{
    future::Future,
    ops::Range,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use gradscale_core::{
    backend::{Backend, Caps, Control, DType, Data, DataMut, DeviceResult, EngineAvailability, Launch, OnDevice},
    ops::Attention,
    stats::Stats,
};
use gradscale_wgpu::{Error, Memory, Recording, Table, Wgpu};
use std::sync::Arc;

pub struct Placed {
    pub inner: Arc<Wgpu>,
    places: Places,
}

enum Places {
    /// Tensors are where the device places them.
    Usual,
    /// Tensors that are allocated together have separate buffers.
    Alone,
    /// Every second tensor is between others in a shared buffer.
    Between(AtomicBool),
}

impl Placed {
    #[allow(dead_code, reason = "not every test needs it")]
    pub fn usual(inner: impl Into<Arc<Wgpu>>) -> Self {
        Self { inner: inner.into(), places: Places::Usual }
    }

    #[allow(dead_code, reason = "likewise")]
    pub fn alone(inner: impl Into<Arc<Wgpu>>) -> Self {
        Self { inner: inner.into(), places: Places::Alone }
    }

    #[allow(dead_code, reason = "likewise")]
    pub fn between(inner: impl Into<Arc<Wgpu>>) -> Self {
        Self { inner: inner.into(), places: Places::Between(AtomicBool::new(false)) }
    }
}

impl Backend for Placed {
    type Buffer = Memory;
    type Table = Table;
    type Recording = Recording;
    type Error = Error;

    fn caps(&self) -> Caps<'_> {
        self.inner.caps()
    }
    fn scratch_peak(&self) -> Option<u64> {
        self.inner.scratch_peak()
    }
    fn workspace(&self) -> u64 {
        self.inner.workspace()
    }
    fn alloc(&self, dtype: DType, len: usize) -> Result<Memory, Error> {
        match &self.places {
            Places::Between(last) if !last.fetch_xor(true, Relaxed) => {
                let mut three = Vec::new();
                self.inner.alloc_group(dtype, &[1, len, 1], &mut three)?;
                Ok(three.swap_remove(1))
            }
            Places::Between(_) | Places::Alone | Places::Usual => self.inner.alloc(dtype, len),
        }
    }
    fn alloc_group(&self, dtype: DType, lens: &[usize], buffers: &mut impl Extend<Memory>) -> DeviceResult<Self> {
        match self.places {
            Places::Between(_) | Places::Usual => self.inner.alloc_group(dtype, lens, buffers),
            Places::Alone => lens.iter().try_for_each(|&len| {
                buffers.extend([self.inner.alloc(dtype, len)?]);
                Ok(())
            }),
        }
    }
    fn write(&self, src: Data<'_>, dst: &mut Memory) -> DeviceResult<Self> {
        self.inner.write(src, dst)
    }
    fn read(&self, src: &Memory, dst: DataMut<'_>) -> impl Future<Output = DeviceResult<Self>> {
        self.inner.read(src, dst)
    }
    fn table(&self, slots: u16, hyperparameters: u16) -> Result<Table, Error> {
        self.inner.table(slots, hyperparameters)
    }
    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Table) -> DeviceResult<Self> {
        self.inner.upload(control, clear, table)
    }
    fn collect(
        &self, table: &Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Memory], values: &mut [f32],
    ) -> impl Future<Output = DeviceResult<Self>> {
        self.inner.collect(table, rows, out, scalars, values)
    }
    fn record(&self, work: impl FnOnce() -> DeviceResult<Self>) -> Result<Option<Recording>, Error> {
        self.inner.record(work)
    }
    fn replay(&self, step: &Recording) -> DeviceResult<Self> {
        self.inner.replay(step)
    }
    /// Small attentions too, which the device itself computes by products, so that trainings reach these kernels.
    fn fuses_attention(&self, _: &Attention) -> bool {
        true
    }
    fn time(&self, times: &mut [Duration], work: impl FnMut(usize) -> DeviceResult<Self>) -> Result<bool, Error> {
        Backend::time(&*self.inner, times, work)
    }
    fn product_engine(&self) -> Option<&str> {
        Backend::product_engine(&*self.inner)
    }
    fn product_engine_availability(&self, name: &str) -> EngineAvailability {
        self.inner.product_engine_availability(name)
    }
    fn launch(&self, launch: Launch<OnDevice<'_, Self>>) -> DeviceResult<Self> {
        self.inner.launch(launch.inside())
    }
}
