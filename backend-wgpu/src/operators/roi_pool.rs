//! RoI max pooling: the largest value of each bin of a box.

use crate::{
    Error, Memory, Wgpu,
    kernel::{self, Kernel},
    launch::{KernelLaunch, strided_workgroups},
};
use gradscale_core::{backend::Store, ops::RoiPool};

impl Wgpu {
    pub(crate) fn run_roi_pool(
        &self, p: &RoiPool, x: &Memory, boxes: &Memory, places: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        self.regions(&kernel::ROI_POOL, p, p.y(), [x, boxes, places], y)
    }

    pub(crate) fn run_roi_unpool(
        &self, p: &RoiPool, x: &Memory, boxes: &Memory, places: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        self.regions(&kernel::ROI_UNPOOL, p, p.x(), [x, boxes, places], y)
    }

    fn regions(
        &self, kernel: &'static Kernel, p: &RoiPool, to: [u32; 4], [x, boxes, places]: [&Memory; 3],
        y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let len: u32 = to.iter().product();
        if len == 0 {
            return Ok(());
        }
        let [images, height, width, channels] = p.x();
        let [count, rows, columns, _] = p.y();
        let call = KernelLaunch::new(kernel)
            .params([height, width, rows, columns, images, count, channels, p.scale().to_bits(), len])
            .operand(x)
            .memory(6, boxes)
            .memory(7, places);
        self.launch(call.store(y), strided_workgroups(len.div_ceil(8)))
    }
}
