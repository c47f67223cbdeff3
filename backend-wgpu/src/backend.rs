//! Implementation of the trait `Backend`, with the dispatch of each operator.

use crate::{
    Error, Memory, Recording, Table, Wgpu,
    engine::{EnginePreference, EngineReason},
    operators::{attention::AttentionResults, product::Product},
};
use core::{ops::Range, time::Duration};
use gradscale_core::{
    backend::{Backend, Caps, Control, DType, Data, DataMut, DeviceResult, EngineAvailability, Launch, OnDevice},
    ops::Attention,
    stats::Stats,
};

impl Backend for Wgpu {
    type Buffer = Memory;
    type Table = Table;
    type Recording = Recording;
    type Error = Error;

    fn caps(&self) -> Caps<'_> {
        Caps {
            name: self.name(),
            flush: self.flush,
            f32_subnormals: self.f32_subnormals,
            max_buffer: self.max_buffer(),
        }
    }

    fn scratch_peak(&self) -> Option<u64> {
        Some(self.take_peak_scratch_bytes())
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Memory, Error> {
        self.new_memory(dtype, len)
    }

    fn alloc_group(&self, dtype: DType, lens: &[usize], buffers: &mut impl Extend<Memory>) -> DeviceResult<Self> {
        self.new_memories(dtype, lens, buffers)
    }

    fn write(&self, src: Data<'_>, dst: &mut Memory) -> DeviceResult<Self> {
        self.write_memory(src, dst)
    }

    async fn read(&self, src: &Memory, dst: DataMut<'_>) -> DeviceResult<Self> {
        self.read_memory(src, dst).await
    }

    fn table(&self, slots: u16, hyperparameters: u16) -> Result<Table, Error> {
        self.new_table(slots, hyperparameters)
    }

    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Table) -> DeviceResult<Self> {
        self.upload_control(control, clear, table)
    }

    async fn collect(
        &self, table: &Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Memory], values: &mut [f32],
    ) -> DeviceResult<Self> {
        self.collect_rows(table, rows, out, scalars, values).await
    }

    fn record(&self, work: impl FnOnce() -> DeviceResult<Self>) -> Result<Option<Recording>, Error> {
        self.start_recording();
        let done = work();
        let recording = self.end_recording();
        done.map(|()| Some(recording))
    }

    fn replay(&self, step: &Recording) -> DeviceResult<Self> {
        self.replay(step)
    }

    /// Measures each piece of work by two timestamps; returns `false` without them, and in browsers, where nothing can
    /// wait.
    fn time(&self, times: &mut [Duration], work: impl FnMut(usize) -> DeviceResult<Self>) -> Result<bool, Error> {
        self.time_each(times, work)
    }

    fn product_engine(&self) -> Option<&str> {
        Some(self.products.name())
    }

    fn product_engine_availability(&self, name: &str) -> EngineAvailability {
        match self.products.find_engine(name) {
            Some(engine) if engine == self.products.engine() => EngineAvailability::Available,
            _ if self.products.preference() != EnginePreference::Fastest => EngineAvailability::Pinned,
            Some(_) => EngineAvailability::Available,
            None => EngineAvailability::Missing,
        }
    }

    fn select_product_engine(&mut self, name: &str) -> DeviceResult<Self> {
        let engine = self
            .products
            .find_engine(name)
            .filter(|_| self.product_engine_availability(name) == EngineAvailability::Available);
        let engine = engine.ok_or_else(|| Error::Engine(format!("this device has no products by {name}")))?;
        if engine != self.products.engine() {
            self.products = self.products.with_engine(engine, EngineReason::Recorded);
        }
        Ok(())
    }

    fn fuses_attention(&self, p: &Attention) -> bool {
        self.prefers_fused_attention(p)
    }

    fn launch(&self, launch: Launch<OnDevice<'_, Self>>) -> DeviceResult<Self> {
        match launch {
            Launch::Unary { op, len, x, y } => self.run_unary(op, len, x, &y),
            Launch::Round { format, len, x, y } => self.run_round(format, len, x, &y),
            Launch::RoundBlocks { format, rows, columns, x, y } => {
                self.run_round_blocks(format, [rows, columns], x, &y)
            }
            Launch::Pack { format, len, x, y } => self.run_pack(format, len, x, y),
            Launch::Unpack { format, len, x, y } => self.run_unpack(format, len, x, y),
            Launch::Binary { p, a, b, y } => self.run_binary(&p, a, b, &y),
            Launch::Sum { len, terms, y } => self.run_sum(len, terms, y),
            Launch::Reduce { p, x, y } => self.run_reduce(&p, x, &y),
            Launch::Copy { p, x, y } => self.run_copy(&p, x, &y),
            Launch::Gemm { p, a, b, bias, y } => self.run_product(&Product::from_matrices(&p, [a, b], bias), &y),
            Launch::Conv { p, pass, a, b, bias, y } => {
                self.run_product(&Product::from_convolution(&p, pass, [a, b], bias), &y)
            }
            Launch::Pool { p, x, indices, y } => self.run_pool(&p, x, indices.as_deref(), &y),
            Launch::Unpool { p, way, x, indices, y } => self.run_unpool(&p, way, x, indices, &y),
            Launch::RoiAlign { p, way, x, boxes, y } => self.run_roi_align(&p, way, x, boxes, &y),
            Launch::RoiPool { p, x, boxes, indices, y } => self.run_roi_pool(&p, x, boxes, indices, &y),
            Launch::RoiUnpool { p, x, boxes, indices, y } => self.run_roi_unpool(&p, x, boxes, indices, &y),
            Launch::Rows { p, way, x, indices, y } => self.run_rows(&p, way, x, indices, &y),
            Launch::Norm { p, x, affine, saved, y } => self.run_norm(&p, x, affine, saved, &y),
            Launch::NormVjp { p, x, dy, dx, affine } => self.run_norm_vjp(&p, x, dy, &dx, affine.as_ref()),
            Launch::Softmax { p, x, selection, y } => self.run_softmax(&p, x, selection, &y),
            Launch::SoftmaxVjp { p, y, dy, dx } => self.run_softmax_vjp(&p, y, dy, &dx),
            Launch::Attention { p, x, log_sums, y } => self.run_attention(&p, x, log_sums, &y),
            Launch::AttentionVjp { p, x, y, log_sums, dy, dp, ds, dq, dk, dv } => {
                self.run_attention_vjp(&p, x, AttentionResults { y, log_sums, dy }, [&dp, &ds], [&dq, &dk, &dv])
            }
            Launch::Lstm { p, x, y, state } => self.run_lstm(&p, x, &y, state),
            Launch::LstmVjp { p, x, dh, dc, y, state } => self.run_lstm_vjp(&p, x, dh, dc, &y, state),
            Launch::Gru { p, x, y } => self.run_gru(&p, x, &y),
            Launch::GruVjp { p, x, dh, y, dx, state } => self.run_gru_vjp(&p, x, dh, &y, &dx, state),
            Launch::CrossEntropy { p, x, out } => self.run_cross_entropy(&p, x, out),
            Launch::CrossEntropyVjp { p, x, out, g, dx } => self.run_cross_entropy_vjp(&p, x, out, g, &dx),
            Launch::Ctc { p, x, losses, gradient } => self.run_ctc(&p, x, losses, gradient.as_deref()),
            Launch::GlobalNorm { gradients, norm } => self.run_global_norm(gradients, norm),
            Launch::Optimize { p, table, guard, norm, parameters } => {
                self.run_optimize(&p, table, &guard, norm, parameters)
            }
        }
    }
}
