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

/// Bytes of the sums of a block: four f64.
const BLOCK_SUMS_BYTES: u64 = 4 * 8;

impl StoreParams {
    /// Returns the same store with an f32 destination at `y`, without rescaling and statistics.
    pub(crate) const fn into_workspace(self, y: u64) -> Self {
        Self { y, kind: DType::F32.code(), add: 0, detail: 0, to: self.from, ..self }
    }
}

impl Cuda {
    /// Returns the parameters of two stores that a kernel with this number of blocks finishes one after the other. Blocks
    /// may be at different stores at one time, so each has memory of its own for their sums.
    pub(crate) fn store_both(
        &self, stores: [&Store<'_, Self>; 2], len: usize, [x, y, z]: [u32; 3],
    ) -> Result<[StoreParams; 2], Error> {
        let both = [2 * x, y, z];
        let [first, second] = [self.store(stores[0], len, both)?, self.store(stores[1], len, both)?];
        let blocks = [x, y, z].into_iter().map(u64::from).product::<u64>();
        Ok([first, StoreParams { sums: second.sums + blocks * BLOCK_SUMS_BYTES, done: second.done + 4, ..second }])
    }

    /// Returns the parameters of a store by a kernel with this number of blocks, into a buffer of at least `len`
    /// elements.
    pub(crate) fn store(&self, y: &Store<'_, Self>, len: usize, blocks: [u32; 3]) -> Result<StoreParams, Error> {
        let blocks: u64 = blocks.into_iter().map(u64::from).product();
        let bytes = blocks * BLOCK_SUMS_BYTES;
        let sums = usize::try_from(bytes).map_err(|_| Error::OutOfMemory { bytes })?;
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
