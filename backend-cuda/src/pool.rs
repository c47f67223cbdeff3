//! Pooling and unpooling.

use crate::{
    Cuda, Error,
    kernels::{self, Kernel},
    memory::Memory,
    store::StoreParams,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{DType, Store},
    ops::{GatherScatter, Pool, PoolOp},
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PoolParams {
    y: StoreParams,
    x: u64,
    at: u64,
    kind: u32,
    len: u32,
    /// Height, width and channels of the unpooled image.
    image: [u32; 3],
    windows: [u32; 2],
    window: [u32; 2],
    stride: [u32; 2],
    pad: [u32; 2],
    max: u32,
}

impl Cuda {
    pub(crate) fn run_pool(&self, p: &Pool, x: &Memory, at: Option<&Memory>, y: &Store<'_, Self>) -> Result<(), Error> {
        self.windows(&kernels::POOL, p, [p.x(), p.y()], x, at, y)
    }

    pub(crate) fn run_unpool(
        &self, p: &Pool, way: GatherScatter, x: &Memory, at: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        assert!(p.op() == PoolOp::Average || at.is_some(), "unpooling needs offsets");
        match (way, p.op()) {
            (GatherScatter::Scatter, _) => self.windows(&kernels::UNPOOL_SCATTER, p, [p.y(), p.x()], x, at, y),
            (GatherScatter::Gather, PoolOp::Max) => self.windows(&kernels::UNPOOL_GATHER, p, [p.x(), p.y()], x, at, y),
            (GatherScatter::Gather, PoolOp::Average) => self.run_pool(p, x, None, y),
        }
    }

    fn windows(
        &self, kernel: &'static Kernel, p: &Pool, shapes: [[u32; 4]; 2], x: &Memory, at: Option<&Memory>,
        y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let [from, to] = shapes.map(|shape| shape.into_iter().product::<u32>() as usize);
        let (len, blocks) = self.elementwise_grid(kernel, to)?;
        let [_, rows, cols, channels] = p.y();
        let offsets = p.y().into_iter().product::<u32>() as usize;
        let at = at.filter(|_| p.op() == PoolOp::Max);
        let params = PoolParams {
            y: self.store(y, to, blocks)?,
            x: x.expect_len(from).at(),
            at: at.map_or(0, |at| at.expect_len(offsets).typed_address(DType::U8)),
            kind: x.kind(),
            len,
            image: [p.x()[1], p.x()[2], channels],
            windows: [rows, cols],
            window: p.window(),
            stride: p.strides(),
            pad: p.padding(),
            max: u32::from(p.op() == PoolOp::Max),
        };
        // SAFETY: x, offsets and y hold their shapes, and the kernel reads only places inside them.
        unsafe { self.launch(kernel, blocks, &params) }
    }
}
