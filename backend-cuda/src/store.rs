//! Parameters of the fused store (epilogue) of a kernel: `Store` of `store.cuh`.

use crate::{Cuda, Error, workspace::WorkspaceKind};
use bytemuck::{Pod, Zeroable};
use gradscale_core::backend::{Buffer, Cast, DType, Store};

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
    /// Returns the parameters of stores that a kernel with this number of blocks finishes one after the other. Blocks may be
    /// at different stores at one time, so each has memory of its own for their sums.
    pub(crate) fn separate_sums<const N: usize>(
        &self, mut stores: [StoreParams; N], blocks: [u32; 3],
    ) -> Result<[StoreParams; N], Error> {
        let sums = self.block_sums(blocks, N as u64)?;
        for (i, store) in (0..).zip(&mut stores) {
            store.sums = sums + i * block_sums_bytes(blocks);
            store.done += 4 * i;
        }
        Ok(stores)
    }

    /// Returns the parameters of a cast by a kernel with this number of blocks: a store of halves without a destination.
    pub(crate) fn cast(&self, cast: &Cast<'_, Self>, blocks: [u32; 3]) -> Result<StoreParams, Error> {
        let Cast { table, from, to, detail } = cast;
        Ok(StoreParams {
            y: 0,
            exponents: table.exponents(),
            control: table.control(),
            rows: table.rows(),
            sums: self.block_sums(blocks, 1)?,
            done: self.workspace_address(WorkspaceKind::BlockCounters, 4096)?,
            kind: DType::F16.code(),
            add: 0,
            detail: detail.code(),
            from: table.slot(*from),
            to: table.slot(*to),
            unused: 0,
        })
    }

    /// Returns the parameters of a store by a kernel with this number of blocks, into a buffer of at least `len`
    /// elements.
    pub(crate) fn store(&self, y: &Store<'_, Self>, len: usize, blocks: [u32; 3]) -> Result<StoreParams, Error> {
        let &Store { ref y, table, from, to, detail, add } = y;
        let y = y.expect_len(len);
        let cast = self.cast(&Cast { table, from, to, detail }, blocks)?;
        Ok(StoreParams { y: y.at(), kind: y.dtype().code(), add: u32::from(add), ..cast })
    }

    /// Returns the address of memory for the sums of all blocks of a launch with this number of stores.
    fn block_sums(&self, blocks: [u32; 3], stores: u64) -> Result<u64, Error> {
        let bytes = stores * block_sums_bytes(blocks);
        let sums = usize::try_from(bytes).map_err(|_| Error::OutOfMemory { bytes })?;
        self.workspace_address(WorkspaceKind::BlockSums, sums)
    }
}

/// Returns the bytes of the sums of all blocks of a store.
fn block_sums_bytes(blocks: [u32; 3]) -> u64 {
    blocks.into_iter().map(u64::from).product::<u64>() * BLOCK_SUMS_BYTES
}
