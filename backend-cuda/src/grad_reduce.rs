//! Gradients of several GPUs, added up by them: rounded to halves here, sent by NCCL, added exactly and rounded once there.

use crate::{
    Cuda, Error,
    kernels::{WIRE_ADD, WIRE_MEAN, WIRE_TAKE},
    memory::Memory,
    nccl::{Kind, Nccl, is_present},
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::backend::{Buffer, DType, Invitation, Wire};
use std::sync::PoisonError;

/// Values of a rank's share: no kernel or message begins in the middle of a word of the memory.
const ALIGNED: usize = 64;

/// `WireParams` of `grad_reduce.cu`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct WireParams {
    from: u64,
    to: u64,
    count: u64,
    stride: u64,
    kind: u32,
    ranks: u32,
    parts: u32,
    exponent: i32,
}

/// What travels, as kernels know it (`kernels::WIRE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Travels {
    /// A half of each value: of one part for each rank.
    Halves,
    /// Sums of several, whole.
    Sums,
    /// Sums in f32.
    Singles,
}

impl Travels {
    /// Bytes of a value.
    const fn bytes(self) -> usize {
        match self {
            Self::Halves => 2,
            Self::Sums => 8,
            Self::Singles => 4,
        }
    }
}

/// A step's gradients.
#[derive(Debug)]
struct Room {
    travels: Travels,
    parts: u32,
    /// Values of a rank's share.
    share: usize,
    /// Those of this rank's parts, and what has come of them.
    own: Memory,
    come: Memory,
    /// Halves of all ranks' shares.
    means: Memory,
}

/// A place among the GPUs of all ranks.
#[derive(Debug)]
pub(crate) struct Wired {
    room: Option<Room>,
    nccl: Nccl,
}

impl Cuda {
    /// NCCL, if it is there and nobody does without it.
    pub(crate) fn reaches_others(&self) -> Option<&'static str> {
        (self.nccl && is_present()).then_some("NCCL")
    }

    pub(crate) fn join_others(&mut self, invitation: &Invitation, rank: u32, ranks: u32) -> Result<(), Error> {
        let nccl = Nccl::join(&self.gpu, invitation, rank, ranks)?;
        *self.wire.get_mut().unwrap_or_else(PoisonError::into_inner) = Some(Wired { room: None, nccl });
        Ok(())
    }

    pub(crate) fn run_wire(&self, part: Wire<'_, Memory>) -> Result<(), Error> {
        let mut wire = self.wire.lock().unwrap_or_else(PoisonError::into_inner);
        let wire = wire.as_mut().ok_or(Error::Unsupported("wire without other ranks"))?;
        if let Wire::Begin { len, parts, exact } = part {
            return self.begin_wire(wire, len, parts, exact);
        }
        let Some(room) = &wire.room else { return Err(Error::Unsupported("wire before it has begun")) };
        let plain = WireParams {
            from: 0,
            to: 0,
            count: 0,
            stride: room.share as u64,
            kind: room.travels as u32,
            ranks: u32::try_from(wire.nccl.ranks).unwrap_or(u32::MAX),
            parts: room.parts,
            exponent: 0,
        };
        let all = room.share * wire.nccl.ranks;
        match part {
            Wire::Begin { .. } => Ok(()),
            Wire::Add { at, len, values, exponent } => {
                assert!(at + len <= all, "{len} gradients at {at} of {all}");
                // Halves that nobody adds are zeros.
                let exponent = if room.travels == Travels::Singles { Some(0) } else { exponent };
                let Some(exponent) = exponent else { return Ok(()) };
                let from = values.holds(len).of(DType::F32);
                let to = room.own.at() + (at * room.travels.bytes()) as u64;
                self.launch_wire(&WIRE_ADD, WireParams { from, to, count: len as u64, exponent, ..plain })
            }
            Wire::Mean => {
                self.form_means(&wire.nccl, room, plain)?;
                wire.nccl.wait()
            }
            Wire::Take { at, len, values, exponent } => {
                assert!(at + len <= all, "{len} means at {at} of {all}");
                let (from, bytes) = match room.travels {
                    Travels::Halves | Travels::Sums => (&room.means, 2),
                    Travels::Singles => (&room.own, 4),
                };
                let from = from.at() + (at * bytes) as u64;
                let to = values.holds(len).of(DType::F32);
                self.launch_wire(&WIRE_TAKE, WireParams { from, to, count: len as u64, exponent, ..plain })
            }
        }
    }

    fn begin_wire(&self, wire: &mut Wired, len: usize, parts: u32, exact: bool) -> Result<(), Error> {
        let ranks = wire.nccl.ranks;
        let travels = match exact {
            false => Travels::Singles,
            true if parts as usize == ranks => Travels::Halves,
            true => Travels::Sums,
        };
        let share = len.div_ceil(ranks).next_multiple_of(ALIGNED);
        let fits = |room: &Room| (room.travels, room.share) == (travels, share);
        if !wire.room.as_ref().is_some_and(fits) {
            // First its memory goes, then there is other.
            wire.room = None;
            let memory = |values: usize, bytes: usize| Memory::new(&self.gpu, DType::U8, values * bytes);
            let (come, means) = match travels {
                Travels::Halves => (share * ranks, share * ranks),
                Travels::Sums => (share, share * ranks),
                Travels::Singles => (0, 0),
            };
            let own = memory(share * ranks, travels.bytes())?;
            let (come, means) = (memory(come, travels.bytes())?, memory(means, 2)?);
            wire.room = Some(Room { travels, parts, share, own, come, means });
        }
        let Some(room) = &mut wire.room else { return Ok(()) };
        room.parts = parts;
        // SAFETY: so long it is.
        unsafe { self.gpu.zero(room.own.at(), room.own.len()) }
    }

    fn form_means(&self, nccl: &Nccl, room: &Room, plain: WireParams) -> Result<(), Error> {
        let (own, come, share) = (room.own.at(), room.come.at(), room.share);
        let means = room.means.at();
        // SAFETY: all have room for the shares of all ranks, as they were made.
        unsafe {
            match room.travels {
                Travels::Singles => return nccl.all_reduce(own, share * nccl.ranks, Kind::F32),
                Travels::Halves => nccl.all_to_all(own, come, share, Kind::F16)?,
                Travels::Sums => nccl.reduce_scatter(own, come, share, Kind::I64)?,
            }
        }
        let to = means + (2 * nccl.rank * share) as u64;
        self.launch_wire(&WIRE_MEAN, WireParams { from: come, to, count: share as u64, ..plain })?;
        // SAFETY: as above.
        unsafe { nccl.all_gather(means, share, Kind::F16) }
    }

    fn launch_wire(&self, kernel: &'static crate::kernels::Kernel, params: WireParams) -> Result<(), Error> {
        let blocks = u32::try_from(params.count.div_ceil(256)).unwrap_or(u32::MAX);
        let blocks = [self.filling(kernel, blocks)?, 1, 1];
        // SAFETY: callers have seen that memory at both addresses holds as many values.
        unsafe { self.launch(kernel, blocks, &params) }
    }
}
