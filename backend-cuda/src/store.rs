//! Parameters of the fused store (epilogue) of a kernel: `Store` of `store.cuh`.

use crate::{Cuda, Error, workspace::WorkspaceKind};
use bytemuck::{Pod, Zeroable};
use gradscale_core::backend::{Buffer, DType, Store};

/// Parameters of a store as kernels read them: `Store` of `store.cuh`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct StoreParams {
    y: u64,
    exponents: u64,
    control: u64,
    rows: u64,
    sums: u64,
    done: u64,
    kind: u32,
    add: u32,
    detail: u32,
    from: u32,
    to: u32,
    unused: u32,
}

impl StoreParams {
    /// Returns the same store with an f32 destination at `y`, without rescaling and statistics.
    pub(crate) const fn into_workspace(self, y: u64) -> Self {
        Self { y, kind: DType::F32.code(), add: 0, detail: 0, to: self.from, ..self }
    }
}

impl Cuda {
    /// Returns the parameters of a store by a kernel with this number of blocks, into a buffer of at least `len`
    /// elements.
    pub(crate) fn store(&self, y: &Store<'_, Self>, len: usize, blocks: [u32; 3]) -> Result<StoreParams, Error> {
        let blocks: u64 = blocks.into_iter().map(u64::from).product();
        let sums = usize::try_from(blocks * 4 * 8).map_err(|_| Error::OutOfMemory { bytes: blocks * 4 * 8 })?;
        Ok(StoreParams {
            y: y.y.expect_len(len).at(),
            exponents: y.table.exponents(),
            control: y.table.control(),
            rows: y.table.rows(),
            sums: self.workspace_address(WorkspaceKind::BlockSums, sums)?,
            done: self.workspace_address(WorkspaceKind::BlockCounters, 4096)?,
            kind: y.y.dtype().code(),
            add: u32::from(y.add),
            detail: y.detail.code(),
            from: y.table.slot(y.from),
            to: y.table.slot(y.to),
            unused: 0,
        })
    }
}
