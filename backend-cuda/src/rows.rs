//! Gather and scatter of rows by index (embedding lookup and its gradient).

use crate::{Cuda, Error, kernels, memory::Memory, store::StoreParams, workspace::WorkspaceKind};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{DType, Store},
    ops::{GatherScatter, Rows},
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RowsParams {
    y: StoreParams,
    x: u64,
    index: u64,
    counts: u64,
    starts: u64,
    total: u64,
    places: u64,
    unsorted: u64,
    sorted: u64,
    kind: u32,
    count: u32,
    table: u32,
    row: u32,
    len: u32,
    unused: u32,
}

impl Cuda {
    pub(crate) fn run_rows(
        &self, p: &Rows, way: GatherScatter, x: &Memory, index: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let (count, table, row) = (p.count(), p.table(), p.width());
        let (kernel, from, to) = match way {
            GatherScatter::Gather => (&kernels::ROWS_GATHER, table, count),
            GatherScatter::Scatter => (&kernels::ROWS_SCATTER, count, table),
        };
        let n = (to * row) as usize;
        let (len, blocks) = self.elementwise_grid(kernel, n)?;
        let mut params = RowsParams {
            y: self.store(y, n, blocks)?,
            x: x.expect_len((from * row) as usize).at(),
            index: index.expect_len(count as usize).typed_address(DType::U32),
            counts: 0,
            starts: 0,
            total: 0,
            places: 0,
            unsorted: 0,
            sorted: 0,
            kind: x.kind(),
            count,
            table,
            row,
            len,
            unused: 0,
        };
        if way == GatherScatter::Gather {
            // SAFETY: x, the indices and y have the descriptor's sizes; the kernel uses no index beyond the table.
            return unsafe { self.launch(kernel, blocks, &params) };
        }
        let [rows, indices] = [table, count].map(|len| 4 * u64::from(len));
        let words = 2 * table as usize + 3 * count as usize + 1;
        params.counts = self.workspace_address(WorkspaceKind::Intermediates, 4 * words)?;
        params.starts = params.counts + rows;
        params.places = params.starts + rows;
        params.unsorted = params.places + indices;
        params.sorted = params.unsorted + indices;
        params.total = params.sorted + indices;
        let blocks_for = |kernel, len: u32| Ok::<_, Error>([self.fill_device(kernel, len.div_ceil(256))?, 1, 1]);
        for (kernel, len) in [
            (&kernels::ROWS_CLEAR, table),
            (&kernels::ROWS_COUNT, count),
            (&kernels::ROWS_START, table),
            (&kernels::ROWS_PLACE, count),
            (&kernels::ROWS_RANK, count),
        ] {
            // SAFETY: as above, and the scratch memory holds all of the sort.
            unsafe { self.launch(kernel, blocks_for(kernel, len)?, &params)? };
        }
        // SAFETY: as above.
        unsafe { self.launch(kernel, blocks, &params) }
    }
}
