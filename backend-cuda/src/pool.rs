//! Pooling and unpooling.

use crate::{
    Cuda, Error,
    kernels::{self, Kernel},
    memory::Memory,
    store::StoreParams,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{Buffer, DType, Store},
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

/// Selects among the kernels for windows of 2 × 2, of 3 × 3, and of any size. The first two need halves whose channels come
/// in eights, and a stride of 2; the first has no padding.
fn select_kernel([two, three, any]: [&'static Kernel; 3], p: &Pool, x: &Memory) -> &'static Kernel {
    let [_, _, _, channels] = p.x();
    let is_in_eights = x.dtype() == DType::F16 && channels.is_multiple_of(8) && p.strides() == [2, 2];
    match (is_in_eights, p.window(), p.padding()) {
        (true, [2, 2], [0, 0]) => two,
        (true, [3, 3], _) => three,
        _ => any,
    }
}

impl Cuda {
    pub(crate) fn run_pool(&self, p: &Pool, x: &Memory, at: Option<&Memory>, y: &Store<'_, Self>) -> Result<(), Error> {
        let kernel = select_kernel([&kernels::POOL_2X2, &kernels::POOL_3X3, &kernels::POOL], p, x);
        self.windows(kernel, p, [p.x(), p.y()], x, at, y)
    }

    pub(crate) fn run_unpool(
        &self, p: &Pool, way: GatherScatter, x: &Memory, at: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        assert!(p.op() == PoolOp::Average || at.is_some(), "unpooling needs offsets");
        match (way, p.op()) {
            (GatherScatter::Scatter, _) => {
                let kernels = [&kernels::UNPOOL_SCATTER_2X2, &kernels::UNPOOL_SCATTER_3X3, &kernels::UNPOOL_SCATTER];
                self.windows(select_kernel(kernels, p, x), p, [p.y(), p.x()], x, at, y)
            }
            (GatherScatter::Gather, PoolOp::Max) => {
                let kernels = [&kernels::UNPOOL_GATHER_2X2, &kernels::UNPOOL_GATHER, &kernels::UNPOOL_GATHER];
                self.windows(select_kernel(kernels, p, x), p, [p.x(), p.y()], x, at, y)
            }
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
