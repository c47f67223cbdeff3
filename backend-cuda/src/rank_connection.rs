//! Connection of a rank to the GPUs of all ranks: its NCCL communicator and the buffers of a step's gradients.

use crate::{memory::Memory, nccl::Nccl};

/// Wire format of gradients, numbered as in `kernels::GRAD_REDUCE_KINDS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradFormat {
    /// Gradients as one f16 per value, for ranks of one micro-batch each.
    F16,
    /// Exact sums of several micro-batches in fixed point, 8 bytes a value.
    FixedPoint,
    /// Sums of gradients in f32, 4 bytes a value.
    F32,
}

impl GradFormat {
    /// Returns the bytes of a gradient value in this format.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::FixedPoint => 8,
            Self::F32 => 4,
        }
    }
}

/// Buffers for reducing a step's gradients over all ranks.
#[derive(Debug)]
pub struct ReduceBuffers {
    pub format: GradFormat,
    pub parts: u32,
    /// Number of gradient values that each rank reduces.
    pub values_per_rank: usize,
    /// Gradients of this rank's micro-batches, and later their sums.
    pub local: Memory,
    pub received: Memory,
    /// Means of all gradients as halves, gathered from all ranks.
    pub means: Memory,
}

/// Connection of a rank to the GPUs of all ranks, with its buffers.
#[derive(Debug)]
pub struct RankConnection {
    pub buffers: Option<ReduceBuffers>,
    pub nccl: Nccl,
}
