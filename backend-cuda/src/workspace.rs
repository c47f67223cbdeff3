//! Workspaces of operators. Operators run one after another, so each purpose has one buffer, which grows and is never
//! freed, because a recording may use it. Outgrown buffers are kept for the recordings that refer to them.

use crate::{Error, gpu::Gpu, memory::Memory};
use gradscale_core::backend::DType;
use std::sync::Arc;

/// Purpose of a workspace, of which a device has one each.
#[derive(Clone, Copy, Debug)]
pub enum WorkspaceKind {
    /// Partial sums of thread blocks, before they are reduced.
    BlockSums,
    /// Counters by which the last block of a launch is found; 0 between launches.
    BlockCounters,
    /// Intermediate results between the launches of an operator.
    Intermediates,
    /// Copies of operands: with channels padded to eight, packed to bytes, or split into three bfloat16.
    PaddedOperands,
    /// Partial sums of a product whose sums are cut: [`split_k_workspace_bytes`] bytes from its first use on.
    SplitKPartials,
}

/// Largest room for partial sums. A weight gradient of 64 outputs and 49 · 64 weights for each is 0.8 MB, of which it
/// takes 5 to 21 splits to fill 132 multiprocessors; one of 512 · 2048 is 4 MB, and takes up to 15.
const MAX_SPLIT_K_BYTES: u64 = 64 << 20;
/// Share of a device's memory that the room is at most: 8 GiB or more have all of it.
const MEMORY_PER_SPLIT_K_BYTE: u64 = 128;

/// Returns the number of bytes that all launches of a device share for partial sums.
///
/// The number of splits determines the order of a sum, and therefore its bits. So it depends only on the device's total
/// memory, never on the free memory: a training that is resumed on the device has the same bits. If the bytes cannot be
/// allocated, the launch fails like any other launch without memory.
pub fn split_k_workspace_bytes(memory: u64) -> usize {
    usize::try_from((memory / MEMORY_PER_SPLIT_K_BYTE).min(MAX_SPLIT_K_BYTES)).unwrap_or(usize::MAX)
}

/// Workspaces of a device, one for each purpose.
#[derive(Debug, Default)]
pub struct WorkspacePool {
    buffers: [Option<Memory>; 5],
    outgrown: Vec<Memory>,
    /// Largest number of bytes in use since the last call of `take_peak`.
    peak: u64,
}

impl WorkspacePool {
    /// Returns the address of at least `bytes` bytes.
    pub fn reserve(&mut self, gpu: &Arc<Gpu>, kind: WorkspaceKind, bytes: usize) -> Result<u64, Error> {
        use gradscale_core::backend::Buffer;
        let buffer = &mut self.buffers[kind as usize];
        if buffer.as_ref().is_none_or(|buffer| buffer.len() < bytes) {
            // Twice as much as before, so that it soon ends.
            let first =
                if let WorkspaceKind::SplitKPartials = kind { split_k_workspace_bytes(gpu.memory()) } else { 4096 };
            let least = buffer.as_ref().map_or(first, |buffer| 2 * buffer.len());
            let new = Memory::new(gpu, DType::U8, bytes.max(least))?;
            if let WorkspaceKind::BlockCounters = kind {
                // SAFETY: so long is the piece.
                unsafe { gpu.zero(new.at(), new.len())? };
            }
            self.outgrown.extend(buffer.replace(new));
        }
        if let WorkspaceKind::Intermediates | WorkspaceKind::PaddedOperands | WorkspaceKind::SplitKPartials = kind {
            self.peak = self.peak.max(bytes as u64);
        }
        Ok(buffer.as_ref().map_or(0, Memory::at))
    }

    /// Returns the bytes of all workspaces, including outgrown ones that recordings use.
    pub fn bytes(&self) -> u64 {
        use gradscale_core::backend::Buffer;
        self.buffers.iter().flatten().chain(&self.outgrown).map(|buffer| buffer.len() as u64).sum()
    }

    /// Returns the largest number of bytes since the last call, and resets it.
    pub fn take_peak(&mut self) -> u64 {
        core::mem::take(&mut self.peak)
    }
}
