//! RoIAlign: boxes of images, resampled to one size by bilinear interpolation.

use crate::{Cuda, Error, kernels, memory::Memory, store::StoreParams};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{DType, Store},
    ops::{GatherScatter, RoiAlign},
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RoiAlignParams {
    y: StoreParams,
    x: u64,
    boxes: u64,
    kind: u32,
    len: u32,
    x_size: [u32; 2],
    y_size: [u32; 2],
    images: u32,
    count: u32,
    channels: u32,
    samples: u32,
    scale: f32,
    unused: u32,
}

impl Cuda {
    pub(crate) fn run_roi_align(
        &self, p: &RoiAlign, way: GatherScatter, x: &Memory, boxes: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let [images, height, width, channels] = p.x();
        let [count, rows, columns, _] = p.y();
        let [pixels, bins] = [p.x(), p.y()].map(|shape| shape.into_iter().product::<u32>() as usize);
        let (kernel, from, to) = match way {
            GatherScatter::Gather => (&kernels::ROI_ALIGN, pixels, bins),
            GatherScatter::Scatter => (&kernels::ROI_ALIGN_VJP, bins, pixels),
        };
        let (len, blocks) = self.elementwise_grid(kernel, to)?;
        let params = RoiAlignParams {
            y: self.store(y, to, blocks)?,
            x: x.expect_len(from).at(),
            boxes: boxes.expect_len(5 * count as usize).typed_address(DType::F32),
            kind: x.kind(),
            len,
            x_size: [height, width],
            y_size: [rows, columns],
            images,
            count,
            channels,
            samples: p.samples(),
            scale: p.scale(),
            unused: 0,
        };
        // SAFETY: x, boxes and y hold their shapes, and the kernel reads only places inside them.
        unsafe { self.launch(kernel, blocks, &params) }
    }
}
