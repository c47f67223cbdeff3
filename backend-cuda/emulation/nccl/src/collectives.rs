//! Collectives, computed from the calls of all ranks.

use crate::{driver, forbidden};
use core::ffi::{c_int, c_void};

/// Type of the values of a call, those of `ncclDataType_t` that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    I64,
    F16,
    F32,
}

impl Kind {
    pub const fn from_number(number: c_int) -> Option<Self> {
        match number {
            4 => Some(Self::I64),
            6 => Some(Self::F16),
            7 => Some(Self::F32),
            _ => None,
        }
    }

    const fn bytes(self) -> usize {
        match self {
            Self::I64 => 8,
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// Kind of communication that a call of NCCL requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Send(usize),
    Receive(usize),
    Gather { ranks: usize },
    Scatter { ranks: usize },
    Reduce,
}

/// Call of a collective function by one rank.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub way: Way,
    pub from: usize,
    pub to: usize,
    pub count: usize,
    pub kind: Kind,
    pub stream: *mut c_void,
}

// SAFETY: memory of emulated devices is accessible to every thread, and the calling threads wait.
unsafe impl Send for Call {}

impl Call {
    /// Returns how many values the call reads and how many it writes.
    const fn lens(&self) -> [usize; 2] {
        match self.way {
            Way::Send(_) => [self.count, 0],
            Way::Receive(_) => [0, self.count],
            Way::Gather { ranks } => [self.count, self.count * ranks],
            Way::Scatter { ranks } => [self.count * ranks, self.count],
            Way::Reduce => [self.count, self.count],
        }
    }

    /// Checks that the memory which the call reads and writes is allocated on the rank's device.
    pub fn check(&self) {
        let [reads, writes] = self.lens();
        for (at, len) in [(self.from, reads), (self.to, writes)] {
            if len != 0 && !driver::is_allocated(at, len * self.kind.bytes()) {
                forbidden("memory that is not allocated on the device of the rank");
            }
        }
    }

    fn read(&self) -> Vec<u8> {
        let [reads, _] = self.lens();
        // SAFETY: it was seen to be allocated, and all work on it is done.
        unsafe { core::slice::from_raw_parts(self.from as *const u8, reads * self.kind.bytes()) }.to_vec()
    }

    fn write(&self, bytes: &[u8]) {
        let [_, writes] = self.lens();
        if bytes.len() != writes * self.kind.bytes() {
            forbidden("a message of another length than it is received with");
        }
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(self.to as *mut u8, bytes.len()) }.copy_from_slice(bytes);
    }
}

/// Performs a collective: copies or sums the bytes of all ranks' calls.
pub fn perform(ranks: &[Vec<Call>]) {
    let Some(first) = ranks.first().and_then(|calls| calls.first()) else { return };
    if let Way::Send(_) | Way::Receive(_) = first.way {
        return messages(ranks);
    }
    let alike = |calls: &Vec<Call>| match &calls[..] {
        [call] => (call.way, call.count, call.kind) == (first.way, first.count, first.kind),
        _ => false,
    };
    if !ranks.iter().all(alike) {
        forbidden("ranks that ask for different things");
    }
    let all: Vec<Vec<u8>> = ranks.iter().map(|calls| calls[0].read()).collect();
    let result = match first.way {
        Way::Gather { .. } => all.concat(),
        Way::Scatter { .. } | Way::Reduce => sums(first.kind, &all),
        Way::Send(_) | Way::Receive(_) => Vec::new(),
    };
    let share = first.count * first.kind.bytes();
    for (rank, calls) in ranks.iter().enumerate() {
        match first.way {
            Way::Scatter { .. } => calls[0].write(&result[rank * share..(rank + 1) * share]),
            Way::Gather { .. } | Way::Reduce | Way::Send(_) | Way::Receive(_) => calls[0].write(&result),
        }
    }
}

/// Delivers each message from one rank to another, in the order of their calls.
fn messages(ranks: &[Vec<Call>]) {
    for (sender, calls) in ranks.iter().enumerate() {
        for (receiver, takes) in ranks.iter().enumerate() {
            let sent: Vec<&Call> = calls.iter().filter(|call| call.way == Way::Send(receiver)).collect();
            let taken: Vec<&Call> = takes.iter().filter(|call| call.way == Way::Receive(sender)).collect();
            if sent.len() != taken.len() {
                forbidden("a message that nobody takes, or that nobody sends");
            }
            for (sent, taken) in sent.iter().zip(&taken) {
                taken.write(&sent.read());
            }
        }
    }
}

/// Sums values over all ranks; f32 from the last rank to the first, since no order is promised.
fn sums(kind: Kind, all: &[Vec<u8>]) -> Vec<u8> {
    let len = all.first().map_or(0, Vec::len) / kind.bytes();
    let of = |rank: &[u8], i: usize| rank[i * kind.bytes()..(i + 1) * kind.bytes()].to_vec();
    let backwards = |i: usize| all.iter().rev().map(move |rank| of(rank, i));
    let sum = |i: usize| match kind {
        Kind::I64 => {
            let values = backwards(i).filter_map(|bytes| bytes.try_into().ok()).map(i64::from_le_bytes);
            values.fold(0, i64::wrapping_add).to_le_bytes().to_vec()
        }
        Kind::F32 => {
            let values = backwards(i).filter_map(|bytes| bytes.try_into().ok()).map(f32::from_le_bytes);
            values.sum::<f32>().to_le_bytes().to_vec()
        }
        Kind::F16 => forbidden("sums of halves, which are not exact"),
    };
    (0..len).flat_map(sum).collect()
}
