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
    head: u64,
    tail: u64,
    next: u64,
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
            head: 0,
            tail: 0,
            next: 0,
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
        let words = 2 * table as usize + count as usize;
        params.head = self.workspace_address(WorkspaceKind::Intermediates, 4 * words)?;
        params.tail = params.head + 4 * u64::from(table);
        params.next = params.tail + 4 * u64::from(table);
        let (_, clearing) = self.elementwise_grid(&kernels::ROWS_CLEAR, table as usize)?;
        // SAFETY: as above, and the scratch memory holds all lists.
        unsafe {
            self.launch(&kernels::ROWS_CLEAR, clearing, &params)?;
            self.launch(&kernels::ROWS_LINK, [1, 1, 1], &params)?;
            self.launch(kernel, blocks, &params)
        }
    }
}
