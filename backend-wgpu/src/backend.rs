//! The contract's methods.

use crate::{Error, Memory, Recording, Table, Wgpu};
use core::ops::Range;
use gradscale_core::{
    backend::{Backend, Caps, Control, DType, Data, DataMut, Done, Normed, Param, Scored, Slot, Store},
    descriptor::{Binary, Conv2d, Gemm, Norm, Optimizer, Pass, Pool, Reduce, Rows, Strided, Unary, Way, Xent},
    scaled::Scaled,
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
        Some(self.take_peak())
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Memory, Error> {
        self.new_memory(dtype, len)
    }

    fn write(&self, src: Data<'_>, dst: &mut Memory) -> Done<Self> {
        self.write_memory(src, dst)
    }

    async fn read(&self, src: &Memory, dst: DataMut<'_>) -> Done<Self> {
        self.read_memory(src, dst)
    }

    fn table(&self, slots: u16, dials: u16) -> Result<Table, Error> {
        self.new_table(slots, dials)
    }

    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Table) -> Done<Self> {
        self.upload_control(control, clear, table)
    }

    async fn collect(
        &self, table: &Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Memory], values: &mut [f32],
    ) -> Done<Self> {
        self.collect_rows(table, rows, out, scalars, values)
    }

    fn record(&self, work: impl FnOnce() -> Done<Self>) -> Result<Option<Recording>, Error> {
        self.start_recording();
        let done = work();
        let recording = self.end_recording();
        done.map(|()| Some(recording))
    }

    fn repeat(&self, step: &Recording) -> Done<Self> {
        self.again(step)
    }

    fn unary(&self, op: Unary, x: &Memory, y: Store<'_, Self>) -> Done<Self> {
        self.run_unary(op, x, &y)
    }

    fn copy(&self, p: &Strided, x: &Memory, y: Store<'_, Self>) -> Done<Self> {
        self.run_copy(p, x, &y)
    }

    fn gemm(&self, p: &Gemm, a: &Memory, b: &Memory, bias: Option<&Memory>, y: Store<'_, Self>) -> Done<Self> {
        self.run_gemm(p, a, b, bias, &y)
    }

    fn conv(
        &self, p: &Conv2d, pass: Pass, a: &Memory, b: &Memory, bias: Option<&Memory>, y: Store<'_, Self>,
    ) -> Done<Self> {
        self.run_conv(p, pass, a, b, bias, &y)
    }

    fn pool(&self, p: &Pool, x: &Memory, at: Option<&mut Memory>, y: Store<'_, Self>) -> Done<Self> {
        self.run_pool(p, x, at.as_deref(), &y)
    }

    fn unpool(&self, p: &Pool, way: Way, x: &Memory, at: Option<&Memory>, y: Store<'_, Self>) -> Done<Self> {
        self.run_unpool(p, way, x, at, &y)
    }

    fn binary(&self, p: &Binary, a: &Memory, b: &Memory, y: Store<'_, Self>) -> Done<Self> {
        self.run_binary(p, a, b, &y)
    }

    fn sum(&self, terms: &[Scaled<&Memory, Slot>], y: Store<'_, Self>) -> Done<Self> {
        self.run_sum(terms, y)
    }

    fn reduce(&self, p: &Reduce, x: &Memory, y: Store<'_, Self>) -> Done<Self> {
        self.run_reduce(p, x, &y)
    }

    fn rows(&self, p: &Rows, way: Way, x: &Memory, index: &Memory, y: Store<'_, Self>) -> Done<Self> {
        self.run_rows(p, way, x, index, &y)
    }

    fn norm(
        &self, p: &Norm, x: &Memory, affine: Option<[&Memory; 2]>, saved: &mut Memory, y: Store<'_, Self>,
    ) -> Done<Self> {
        self.run_norm(p, x, affine, saved, &y)
    }

    fn norm_vjp(
        &self, p: &Norm, x: Normed<'_, Memory>, dy: &Memory, dx: Store<'_, Self>, affine: Option<[Store<'_, Self>; 2]>,
    ) -> Done<Self> {
        self.run_norm_vjp(p, x, dy, &dx, affine.as_ref())
    }

    fn xent(&self, p: &Xent, x: Scored<'_, Memory>, out: &mut Memory) -> Done<Self> {
        self.run_xent(p, x, out)
    }

    fn xent_vjp(&self, p: &Xent, x: Scored<'_, Memory>, out: &Memory, g: &Memory, dx: Store<'_, Self>) -> Done<Self> {
        self.run_xent_vjp(p, x, out, g, &dx)
    }

    fn global_norm(&self, grads: &[&Memory], norm: &mut Memory) -> Done<Self> {
        self.run_global_norm(grads, norm)
    }

    fn optimize(
        &self, p: &Optimizer, table: &Table, guard: Range<u16>, norm: Option<&Memory>, params: &mut [Param<'_, Memory>],
    ) -> Done<Self> {
        self.run_optimize(p, table, guard, norm, params)
    }
}
