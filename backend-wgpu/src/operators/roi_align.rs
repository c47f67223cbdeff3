//! RoIAlign: boxes of images, resampled to one size by bilinear interpolation.

use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{KernelLaunch, strided_workgroups},
};
use gradscale_core::{
    backend::Store,
    ops::{GatherScatter, RoiAlign},
};

impl Wgpu {
    pub(crate) fn run_roi_align(
        &self, p: &RoiAlign, way: GatherScatter, x: &Memory, boxes: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let shape = if way == GatherScatter::Gather { p.y() } else { p.x() };
        let len: u32 = shape.iter().product();
        if len == 0 {
            return Ok(());
        }
        let [images, height, width, channels] = p.x();
        let [count, rows, columns, _] = p.y();
        let call = KernelLaunch::new(&kernel::ROI_ALIGN)
            .constant("SCATTER", u32::from(way == GatherScatter::Scatter))
            .params([height, width, rows, columns, images, count, channels, p.samples()])
            .params([p.scale().to_bits(), len])
            .operand(x)
            .memory(6, boxes);
        self.launch(call.store(y), strided_workgroups(len.div_ceil(8)))
    }
}
