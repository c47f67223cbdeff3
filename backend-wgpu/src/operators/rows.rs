//! Gather and scatter of rows by index (embedding lookup and its gradient).

use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{KernelLaunch, strided_workgroups},
};
use gradscale_core::{
    backend::Store,
    ops::{GatherScatter, Rows},
};

/// Maximum number of workgroups that scatter rows; each handles row after row.
const SCATTERING: u32 = 1 << 14;

impl Wgpu {
    pub(crate) fn run_rows(
        &self, p: &Rows, way: GatherScatter, x: &Memory, index: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let (count, table, width) = (p.count(), p.table(), p.width());
        let rows = if way == GatherScatter::Gather { count } else { table };
        if rows == 0 || width == 0 {
            return Ok(());
        }
        let (kernel, len, groups) = match way {
            GatherScatter::Gather => (&kernel::GATHER, count * width, strided_workgroups((count * width).div_ceil(8))),
            GatherScatter::Scatter => (&kernel::SCATTER, count, table.min(SCATTERING)),
        };
        let call = KernelLaunch::new(kernel).params([len, table, width]).operand(x).memory(6, index);
        self.launch(call.store(y), groups)
    }
}
