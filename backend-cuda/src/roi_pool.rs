//! RoI max pooling: the largest value of each bin of a box.

use crate::{
    Cuda, Error,
    kernels::{self, Kernel},
    memory::Memory,
    store::StoreParams,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{DType, Store},
    ops::RoiPool,
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RoiPoolParams {
    y: StoreParams,
    x: u64,
    boxes: u64,
    places: u64,
    kind: u32,
    len: u32,
    x_size: [u32; 2],
    y_size: [u32; 2],
    images: u32,
    count: u32,
    channels: u32,
    scale: f32,
}

impl Cuda {
    pub(crate) fn run_roi_pool(
        &self, p: &RoiPool, x: &Memory, boxes: &Memory, places: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        self.regions(&kernels::ROI_POOL, p, [p.x(), p.y()], [x, boxes, places], y)
    }

    pub(crate) fn run_roi_unpool(
        &self, p: &RoiPool, x: &Memory, boxes: &Memory, places: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        self.regions(&kernels::ROI_UNPOOL, p, [p.y(), p.x()], [x, boxes, places], y)
    }

    fn regions(
        &self, kernel: &'static Kernel, p: &RoiPool, shapes: [[u32; 4]; 2], [x, boxes, places]: [&Memory; 3],
        y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let [from, to] = shapes.map(|shape| shape.into_iter().product::<u32>() as usize);
        let (len, blocks) = self.elementwise_grid(kernel, to)?;
        let [images, height, width, channels] = p.x();
        let [count, rows, columns, _] = p.y();
        let bins = p.y().into_iter().product::<u32>() as usize;
        let params = RoiPoolParams {
            y: self.store(y, to, blocks)?,
            x: x.expect_len(from).at(),
            boxes: boxes.expect_len(5 * count as usize).typed_address(DType::F32),
            places: places.expect_len(bins).typed_address(DType::U32),
            kind: x.kind(),
            len,
            x_size: [height, width],
            y_size: [rows, columns],
            images,
            count,
            channels,
            scale: p.scale(),
        };
        // SAFETY: x, boxes, places and y hold their shapes, and the kernel follows no place beyond them.
        unsafe { self.launch(kernel, blocks, &params) }
    }
}
