//! Memory for the time of an operator. Operators run one after the other, so each use has one piece, which grows and
//! stays: a recording may use it for ever. What was outgrown is kept for recordings that know it.

use crate::{Error, gpu::Gpu, memory::Memory};
use gradscale_core::backend::DType;
use std::sync::Arc;

/// What a piece is for.
#[derive(Clone, Copy, Debug)]
pub enum Use {
    /// Sums of blocks.
    Sums,
    /// Counters of blocks, 0 between launches.
    Done,
    /// What an operator hands from launch to launch.
    Work,
    /// Operands with more channels than they have.
    Padded,
}

/// The pieces.
#[derive(Debug, Default)]
pub struct Scratch {
    pieces: [Option<Memory>; 4],
    outgrown: Vec<Memory>,
    /// Largest amount since the last look.
    peak: u64,
}

impl Scratch {
    /// At least so many bytes.
    pub fn get(&mut self, gpu: &Arc<Gpu>, what: Use, bytes: usize) -> Result<u64, Error> {
        use gradscale_core::backend::Buffer;
        let piece = &mut self.pieces[what as usize];
        if piece.as_ref().is_none_or(|piece| piece.len() < bytes) {
            // Twice as much as before, so that it soon ends.
            let least = piece.as_ref().map_or(4096, |piece| 2 * piece.len());
            let new = Memory::new(gpu, DType::U8, bytes.max(least))?;
            if let Use::Done = what {
                // SAFETY: so long is the piece.
                unsafe { gpu.zero(new.at(), new.len())? };
            }
            self.outgrown.extend(piece.replace(new));
        }
        if let Use::Work | Use::Padded = what {
            self.peak = self.peak.max(bytes as u64);
        }
        Ok(piece.as_ref().map_or(0, Memory::at))
    }

    /// The peak, which starts anew.
    pub fn take_peak(&mut self) -> u64 {
        core::mem::take(&mut self.peak)
    }
}
