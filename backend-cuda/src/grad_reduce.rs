//! Reduction of gradients over ranks on their GPUs, by NCCL: halves or fixed-point sums are exchanged, added exactly and
//! rounded once, and the means are gathered.

use crate::{
    Cuda, Error,
    kernels::{GRAD_REDUCE_ACCUMULATE, GRAD_REDUCE_MEAN, GRAD_REDUCE_READ},
    memory::Memory,
    nccl::{DataType, Nccl, is_present},
    rank_connection::{GradFormat, RankConnection, ReduceBuffers},
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::backend::{Buffer, DType, GradReduce, UniqueId};
use std::sync::PoisonError;

/// Values of a rank's share: no kernel or message begins in the middle of a word of the memory.
const VALUES_ALIGNMENT: usize = 64;

/// Parameters of the kernels that reduce gradients over ranks: `WireParams` of `grad_reduce.cu`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GradReduceParams {
    from: u64,
    to: u64,
    count: u64,
    stride: u64,
    kind: u32,
    ranks: u32,
    parts: u32,
    exponent: i32,
}

impl Cuda {
    /// Returns the name of the collective library: NCCL, if it is installed and not disabled.
    pub(crate) fn collective_backend(&self) -> Option<&'static str> {
        (self.nccl && is_present()).then_some("NCCL")
    }

    pub(crate) fn join_ranks(&mut self, unique_id: &UniqueId, rank: u32, ranks: u32) -> Result<(), Error> {
        let nccl = Nccl::join(&self.gpu, unique_id, rank, ranks)?;
        *self.connection.get_mut().unwrap_or_else(PoisonError::into_inner) =
            Some(RankConnection { buffers: None, nccl });
        Ok(())
    }

    pub(crate) fn run_grad_reduce(&self, part: GradReduce<'_, Memory>) -> Result<(), Error> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = connection.as_mut().ok_or(Error::Unsupported("wire without other ranks"))?;
        if let GradReduce::Init { len, parts, exact } = part {
            return self.begin_grad_reduce(connection, len, parts, exact);
        }
        let Some(buffers) = &connection.buffers else { return Err(Error::Unsupported("wire before it has begun")) };
        let template = GradReduceParams {
            from: 0,
            to: 0,
            count: 0,
            stride: buffers.values_per_rank as u64,
            kind: buffers.format as u32,
            ranks: u32::try_from(connection.nccl.ranks).unwrap_or(u32::MAX),
            parts: buffers.parts,
            exponent: 0,
        };
        let total = buffers.values_per_rank * connection.nccl.ranks;
        match part {
            GradReduce::Init { .. } => Ok(()),
            GradReduce::Accumulate { at, len, values, exponent } => {
                assert!(at + len <= total, "{len} gradients at {at} of {total}");
                // Elements without an exponent are sent as zeros.
                let exponent = if buffers.format == GradFormat::F32 { Some(0) } else { exponent };
                let Some(exponent) = exponent else { return Ok(()) };
                let from = values.expect_len(len).typed_address(DType::F32);
                let to = buffers.local.at() + (at * buffers.format.bytes()) as u64;
                self.launch_grad_reduce(
                    &GRAD_REDUCE_ACCUMULATE,
                    GradReduceParams { from, to, count: len as u64, exponent, ..template },
                )
            }
            GradReduce::AllReduceMean => {
                self.reduce_means(&connection.nccl, buffers, template)?;
                connection.nccl.wait()
            }
            GradReduce::Read { at, len, values, exponent } => {
                assert!(at + len <= total, "{len} means at {at} of {total}");
                let (from, bytes) = match buffers.format {
                    GradFormat::F16 | GradFormat::FixedPoint => (&buffers.means, 2),
                    GradFormat::F32 => (&buffers.local, 4),
                };
                let from = from.at() + (at * bytes) as u64;
                let to = values.expect_len(len).typed_address(DType::F32);
                self.launch_grad_reduce(
                    &GRAD_REDUCE_READ,
                    GradReduceParams { from, to, count: len as u64, exponent, ..template },
                )
            }
        }
    }

    fn begin_grad_reduce(
        &self, connection: &mut RankConnection, len: usize, parts: u32, exact: bool,
    ) -> Result<(), Error> {
        let ranks = connection.nccl.ranks;
        let format = match exact {
            false => GradFormat::F32,
            true if parts as usize == ranks => GradFormat::F16,
            true => GradFormat::FixedPoint,
        };
        let values_per_rank = len.div_ceil(ranks).next_multiple_of(VALUES_ALIGNMENT);
        let fits = |buffers: &ReduceBuffers| (buffers.format, buffers.values_per_rank) == (format, values_per_rank);
        if !connection.buffers.as_ref().is_some_and(fits) {
            // First its memory goes, then there is other.
            connection.buffers = None;
            let memory = |values: usize, bytes: usize| Memory::new(&self.gpu, DType::U8, values * bytes);
            let (received, means) = match format {
                GradFormat::F16 => (values_per_rank * ranks, values_per_rank * ranks),
                GradFormat::FixedPoint => (values_per_rank, values_per_rank * ranks),
                GradFormat::F32 => (0, 0),
            };
            let local = memory(values_per_rank * ranks, format.bytes())?;
            let (received, means) = (memory(received, format.bytes())?, memory(means, 2)?);
            connection.buffers = Some(ReduceBuffers { format, parts, values_per_rank, local, received, means });
        }
        let Some(buffers) = &mut connection.buffers else { return Ok(()) };
        buffers.parts = parts;
        // SAFETY: so long it is.
        unsafe { self.gpu.zero(buffers.local.at(), buffers.local.len()) }
    }

    fn reduce_means(&self, nccl: &Nccl, buffers: &ReduceBuffers, template: GradReduceParams) -> Result<(), Error> {
        let (local, received, values_per_rank) = (buffers.local.at(), buffers.received.at(), buffers.values_per_rank);
        let means = buffers.means.at();
        // SAFETY: all have room for the shares of all ranks, as they were made.
        unsafe {
            match buffers.format {
                GradFormat::F32 => return nccl.all_reduce(local, values_per_rank * nccl.ranks, DataType::F32),
                GradFormat::F16 => nccl.all_to_all(local, received, values_per_rank, DataType::F16)?,
                GradFormat::FixedPoint => nccl.reduce_scatter(local, received, values_per_rank, DataType::I64)?,
            }
        }
        let to = means + (2 * nccl.rank * values_per_rank) as u64;
        self.launch_grad_reduce(
            &GRAD_REDUCE_MEAN,
            GradReduceParams { from: received, to, count: values_per_rank as u64, ..template },
        )?;
        // SAFETY: as above.
        unsafe { nccl.all_gather(means, values_per_rank, DataType::F16) }
    }

    fn launch_grad_reduce(
        &self, kernel: &'static crate::kernels::Kernel, params: GradReduceParams,
    ) -> Result<(), Error> {
        let blocks = u32::try_from(params.count.div_ceil(256)).unwrap_or(u32::MAX);
        let blocks = [self.fill_device(kernel, blocks)?, 1, 1];
        // SAFETY: callers have seen that memory at both addresses holds as many values.
        unsafe { self.launch(kernel, blocks, &params) }
    }
}
