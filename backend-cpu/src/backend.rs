//! The device.

use crate::{Error, Isa, Memory, Table, scratch::Pool, table::indices};
use core::ops::Range;
use gradscale_core::{
    backend::{Backend, Caps, Control, DType, Data, DataMut, Done, Normed, Param, Scored, Slot, Store},
    descriptor::{self, Binary, Conv2d, Gemm, Norm, Optimizer, Pass, Reduce, Rows, Strided, Unary, Way, Xent},
    scaled::Scaled,
    stats::{FlushRule, Stats},
};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// The CPU as a device.
#[derive(Debug)]
pub struct Cpu {
    threads: ThreadPool,
    isa: Isa,
    name: String,
    scratch: Pool,
}

impl Cpu {
    /// The CPU with so many threads (0: one for each core) and the best instruction set it has.
    ///
    /// # Errors
    /// [`Error::Threads`].
    pub fn new(threads: usize) -> Result<Self, Error> {
        Self::with_isa(threads, Isa::best())
    }

    /// As [`Cpu::new`], with an instruction set from [`Isa::available`].
    ///
    /// # Errors
    /// [`Error::Threads`].
    pub fn with_isa(threads: usize, isa: Isa) -> Result<Self, Error> {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().map_err(Error::Threads)?;
        let name = format!("CPU, {isa}, {} threads", pool.current_num_threads());
        Ok(Self { threads: pool, isa, name, scratch: Pool::default() })
    }

    pub(crate) const fn isa(&self) -> Isa {
        self.isa
    }

    /// Runs parallel work on this device's threads.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.threads.install(work)
    }

    pub(crate) const fn pool(&self) -> &Pool {
        &self.scratch
    }
}

impl Backend for Cpu {
    type Buffer = Memory;
    type Table = Table;
    type Recording = ();
    type Error = Error;

    fn caps(&self) -> Caps<'_> {
        // What a vector can hold.
        Caps { name: &self.name, flush: FlushRule::Nearest, f32_subnormals: true, max_buffer: isize::MAX as u64 }
    }

    fn scratch_peak(&self) -> Option<u64> {
        Some(self.scratch.peak())
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Memory, Error> {
        Memory::new(dtype, len)
    }

    fn write(&self, src: Data<'_>, dst: &mut Memory) -> Done<Self> {
        dst.write(src);
        Ok(())
    }

    async fn read(&self, src: &Memory, dst: DataMut<'_>) -> Done<Self> {
        src.read(dst);
        Ok(())
    }

    fn table(&self, slots: u16, dials: u16) -> Result<Table, Error> {
        Ok(Table::new(slots, dials))
    }

    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Table) -> Done<Self> {
        table.upload(control, clear);
        Ok(())
    }

    async fn collect(
        &self, table: &Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Memory], values: &mut [f32],
    ) -> Done<Self> {
        out.copy_from_slice(&table.rows()[indices(rows)]);
        values.iter_mut().zip(scalars).for_each(|(value, scalar)| *value = scalar.f32()[0]);
        Ok(())
    }

    fn unary(&self, op: Unary, x: &Memory, y: Store<'_, Self>) -> Done<Self> {
        self.run_unary(op, x, y);
        Ok(())
    }

    fn binary(&self, p: &Binary, a: &Memory, b: &Memory, y: Store<'_, Self>) -> Done<Self> {
        self.run_binary(p, a, b, y);
        Ok(())
    }

    fn sum(&self, terms: &[Scaled<&Memory, Slot>], y: Store<'_, Self>) -> Done<Self> {
        self.run_sum(terms, y);
        Ok(())
    }

    fn reduce(&self, p: &Reduce, x: &Memory, y: Store<'_, Self>) -> Done<Self> {
        self.run_reduce(p, x, y);
        Ok(())
    }

    fn copy(&self, p: &Strided, x: &Memory, y: Store<'_, Self>) -> Done<Self> {
        self.run_copy(p, x, y);
        Ok(())
    }

    fn gemm(&self, p: &Gemm, a: &Memory, b: &Memory, bias: Option<&Memory>, y: Store<'_, Self>) -> Done<Self> {
        self.run_gemm(p, a, b, bias, y);
        Ok(())
    }

    fn conv(
        &self, p: &Conv2d, pass: Pass, a: &Memory, b: &Memory, bias: Option<&Memory>, y: Store<'_, Self>,
    ) -> Done<Self> {
        self.run_conv(p, pass, a, b, bias, y);
        Ok(())
    }
    fn pool(&self, p: &descriptor::Pool, x: &Memory, at: Option<&mut Memory>, y: Store<'_, Self>) -> Done<Self> {
        self.run_pool(p, x, at, y);
        Ok(())
    }

    fn unpool(
        &self, p: &descriptor::Pool, way: Way, x: &Memory, at: Option<&Memory>, y: Store<'_, Self>,
    ) -> Done<Self> {
        self.run_unpool(p, way, x, at, y);
        Ok(())
    }

    fn rows(&self, p: &Rows, way: Way, x: &Memory, index: &Memory, y: Store<'_, Self>) -> Done<Self> {
        self.run_rows(p, way, x, index, y);
        Ok(())
    }

    fn norm(
        &self, p: &Norm, x: &Memory, affine: Option<[&Memory; 2]>, saved: &mut Memory, y: Store<'_, Self>,
    ) -> Done<Self> {
        self.run_norm(p, x, affine, saved, y);
        Ok(())
    }

    fn norm_vjp(
        &self, p: &Norm, x: Normed<'_, Memory>, dy: &Memory, dx: Store<'_, Self>, affine: Option<[Store<'_, Self>; 2]>,
    ) -> Done<Self> {
        self.run_norm_vjp(p, x, dy, dx, affine);
        Ok(())
    }

    fn xent(&self, p: &Xent, x: Scored<'_, Memory>, out: &mut Memory) -> Done<Self> {
        self.run_xent(p, x, out);
        Ok(())
    }

    fn xent_vjp(&self, p: &Xent, x: Scored<'_, Memory>, out: &Memory, g: &Memory, dx: Store<'_, Self>) -> Done<Self> {
        self.run_xent_vjp(p, x, out, g, dx);
        Ok(())
    }

    fn global_norm(&self, grads: &[&Memory], norm: &mut Memory) -> Done<Self> {
        self.run_global_norm(grads, norm);
        Ok(())
    }

    fn optimize(
        &self, p: &Optimizer, table: &Table, guard: Range<u16>, norm: Option<&Memory>, params: &mut [Param<'_, Memory>],
    ) -> Done<Self> {
        self.run_optimize(p, table, guard, norm, params);
        Ok(())
    }
}
