//! Device of the CPU backend: its threads, workspaces and lookup tables, and the dispatch of each operator.

use crate::{
    Error, Isa, Memory, Table,
    f16_lut::LookupTables,
    table::indices,
    threading::ThreadPool,
    workspace::{Workspace, WorkspacePool},
};
use core::ops::Range;
use gradscale_core::{
    backend::{Backend, Caps, Control, DType, Data, DataMut, DeviceResult, Launch, OnDevice},
    ops::Attention,
    stats::{FlushRule, Stats},
};
use std::time::{Duration, Instant};

/// Device that computes on the CPU, with its threads and lookup tables.
#[derive(Debug)]
pub struct Cpu {
    threads: ThreadPool,
    isa: Isa,
    name: String,
    workspaces: WorkspacePool,
    lookup_tables: LookupTables,
}

impl Cpu {
    /// Opens the CPU with `threads` threads (0: one for each core) and its best instruction set.
    ///
    /// # Errors
    /// [`Error::Threads`].
    pub fn new(threads: usize) -> Result<Self, Error> {
        Self::with_isa(threads, Isa::best())
    }

    /// Creates the CPU device with an instruction set from [`Isa::available`].
    ///
    /// # Errors
    /// [`Error::Threads`].
    pub fn with_isa(threads: usize, isa: Isa) -> Result<Self, Error> {
        let threads = ThreadPool::new(threads).map_err(Error::Threads)?;
        let count = threads.count();
        let name = format!("CPU, {isa}, {count} threads");
        Ok(Self {
            threads,
            isa,
            name,
            workspaces: WorkspacePool::new(count - 1),
            lookup_tables: LookupTables::default(),
        })
    }

    pub(crate) const fn isa(&self) -> Isa {
        self.isa
    }

    /// Returns the thread pool of the device.
    pub(crate) const fn thread_pool(&self) -> &ThreadPool {
        &self.threads
    }

    /// Returns a workspace of `len` elements of unspecified content.
    pub(crate) fn workspace(&self, len: usize) -> Workspace<'_> {
        self.workspaces.acquire(len, ThreadPool::worker_index())
    }

    /// Returns a workspace of `len` elements that are 0.
    pub(crate) fn zeroed_workspace(&self, len: usize) -> Workspace<'_> {
        let mut workspace = self.workspace(len);
        workspace.fill(0.0);
        workspace
    }

    /// Returns the lookup tables of functions of halves that the device caches.
    pub(crate) const fn lookup_tables(&self) -> &LookupTables {
        &self.lookup_tables
    }
}

impl Backend for Cpu {
    type Buffer = Memory;
    type Table = Table;
    type Recording = ();
    type Error = Error;

    fn caps(&self) -> Caps<'_> {
        // The maximum length of a `Vec`.
        Caps { name: &self.name, flush: FlushRule::Nearest, f32_subnormals: true, max_buffer: isize::MAX as u64 }
    }

    fn scratch_peak(&self) -> Option<u64> {
        Some(self.workspaces.peak())
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Memory, Error> {
        Memory::new(dtype, len)
    }

    fn write(&self, src: Data<'_>, dst: &mut Memory) -> DeviceResult<Self> {
        dst.write(src);
        Ok(())
    }

    async fn read(&self, src: &Memory, dst: DataMut<'_>) -> DeviceResult<Self> {
        src.read(dst);
        Ok(())
    }

    fn table(&self, slots: u16, hyperparameters: u16) -> Result<Table, Error> {
        Ok(Table::new(slots, hyperparameters))
    }

    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Table) -> DeviceResult<Self> {
        table.upload(control, clear);
        Ok(())
    }

    async fn collect(
        &self, table: &Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Memory], values: &mut [f32],
    ) -> DeviceResult<Self> {
        out.copy_from_slice(&table.rows()[indices(rows)]);
        values.iter_mut().zip(scalars).for_each(|(value, scalar)| *value = scalar.f32()[0]);
        Ok(())
    }

    /// Measures with the host's clock, because a launch has finished when it returns.
    fn time(&self, times: &mut [Duration], mut work: impl FnMut(usize) -> DeviceResult<Self>) -> Result<bool, Error> {
        for (i, time) in times.iter_mut().enumerate() {
            let start = Instant::now();
            work(i)?;
            *time = start.elapsed();
        }
        Ok(true)
    }

    fn fuses_attention(&self, _: &Attention) -> bool {
        self.attention_is_fast()
    }

    fn launch(&self, launch: Launch<OnDevice<'_, Self>>) -> DeviceResult<Self> {
        match launch {
            Launch::Unary { op, len, x, y } => self.run_unary(op, len, x, y),
            Launch::Round { format, len, x, y } => self.run_round(format, len, x, y),
            Launch::RoundBlocks { format, rows, columns, x, y } => {
                self.run_round_blocks(format, [rows, columns].map(|size| size as usize), x, y)
            }
            Launch::Pack { format, len, x, y } => self.run_pack(format, len, x, y)?,
            Launch::Unpack { format, len, x, y } => self.run_unpack(format, len, x, y)?,
            Launch::Binary { p, a, b, y } => self.run_binary(&p, a, b, y),
            Launch::Sum { len, terms, y } => self.run_sum(len, terms, y),
            Launch::Reduce { p, x, y } => self.run_reduce(&p, x, y),
            Launch::Copy { p, x, y } => self.run_copy(&p, x, y),
            Launch::Gemm { p, a, b, bias, y } => self.run_gemm(&p, a, b, bias, y),
            Launch::Conv { p, pass, a, b, bias, y } => self.run_conv(&p, pass, a, b, bias, y),
            Launch::Pool { p, x, indices, y } => self.run_pool(&p, x, indices, y),
            Launch::Unpool { p, way, x, indices, y } => self.run_unpool(&p, way, x, indices, y),
            Launch::RoiAlign { p, way, x, boxes, y } => self.run_roi_align(&p, way, x, boxes, y),
            Launch::RoiPool { p, x, boxes, indices, y } => self.run_roi_pool(&p, x, boxes, indices, y),
            Launch::RoiUnpool { p, x, boxes, indices, y } => self.run_roi_unpool(&p, x, boxes, indices, y),
            Launch::Rows { p, way, x, indices, y } => self.run_rows(&p, way, x, indices, y),
            Launch::Norm { p, x, affine, saved, y } => self.run_norm(&p, x, affine, saved, y),
            Launch::NormVjp { p, x, dy, dx, affine } => self.run_norm_vjp(&p, x, dy, dx, affine),
            Launch::Softmax { p, x, selection, y } => self.run_softmax(&p, x, selection, y),
            Launch::SoftmaxVjp { p, y, dy, dx } => self.run_softmax_vjp(&p, y, dy, dx),
            Launch::Attention { p, x, log_sums, y } => self.run_attention(&p, x, log_sums, y),
            Launch::AttentionVjp { p, x, y, log_sums, dy, dp, ds, dq, dk, dv } => {
                self.run_attention_vjp(&p, x, [y, log_sums, dy], [dp, ds], [dq, dk, dv]);
            }
            Launch::Lstm { p, x, y, state } => self.run_lstm(&p, x, y, state),
            Launch::LstmVjp { p, x, dh, dc, y, state } => self.run_lstm_vjp(&p, x, dh, dc, y, state),
            Launch::Gru { p, x, y } => self.run_gru(&p, x, y),
            Launch::GruVjp { p, x, dh, y, dx, state } => self.run_gru_vjp(&p, x, dh, y, dx, state),
            Launch::CrossEntropy { p, x, out } => self.run_cross_entropy(&p, x, out),
            Launch::CrossEntropyVjp { p, x, out, g, dx } => self.run_cross_entropy_vjp(&p, x, out, g, dx),
            Launch::Ctc { p, x, losses, gradient } => self.run_ctc(&p, x, losses, gradient),
            Launch::GlobalNorm { gradients, norm } => self.run_global_norm(gradients, norm),
            Launch::Optimize { p, table, guard, norm, parameters } => {
                self.run_optimize(&p, table, &guard, norm, parameters);
            }
        }
        Ok(())
    }
}
