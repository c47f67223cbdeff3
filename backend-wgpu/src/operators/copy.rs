//! Strided copies.

use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{KernelLaunch, strided_workgroups},
};
use gradscale_core::{
    backend::Store,
    ops::{MAX_DIMS, Strided},
};

impl Wgpu {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "strides wrap, indices fit")]
    pub(crate) fn run_copy(&self, p: &Strided, x: &Memory, y: &Store<'_, Self>) -> Result<(), Error> {
        let count = p.count();
        if count == 0 {
            return Ok(());
        }
        let mut dims = [[1, 0, 0, 0]; MAX_DIMS];
        for (words, dim) in dims.iter_mut().zip(p.dims().iter().rev()) {
            *words = [dim.len, dim.x as u32, dim.y as u32, 0];
        }
        let [x0, y0] = p.start();
        let call = KernelLaunch::new(&kernel::COPY).params(dims.into_iter().flatten()).params([count, x0, y0]);
        self.launch(call.operand(x).store(y), strided_workgroups(count))
    }
}
