//! The norm of all gradients.

use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{Call, GROUP},
    memory::{padded, word_of},
};
use gradscale_core::backend::Buffer;

/// Buffers of one launch: six and the sums are seven of the eight that every device binds.
const BUFFERS: usize = 6;
/// Elements of a workgroup, as in squares.wgsl.
const ELEMENTS: u32 = 64 * GROUP;
/// Bytes of a workgroup's sums.
const SUMS: u64 = 16;

/// Elements of a gradient from one on, as many as one binding shows.
struct Piece<'a> {
    memory: &'a Memory,
    start: usize,
    len: usize,
}

impl Piece<'_> {
    fn groups(&self) -> u32 {
        word_of(self.len).div_ceil(ELEMENTS)
    }
}

impl Wgpu {
    pub(crate) fn run_global_norm(&self, grads: &[&Memory], norm: &Memory) -> Result<(), Error> {
        // Whole workgroups, so that sums are the same however a gradient is cut.
        let most = usize::try_from(self.window() / 4).unwrap_or(usize::MAX).max(ELEMENTS as usize);
        let pieces = grads.iter().flat_map(|&memory| {
            let len = memory.len();
            (0..len).step_by(most).map(move |start| Piece { memory, start, len: most.min(len - start) })
        });
        let pieces: Vec<Piece<'_>> = pieces.collect();
        let count: u32 = pieces.iter().map(Piece::groups).sum();
        let parts = self.totals(SUMS * u64::from(count.max(1)))?;
        let mut part = 0;
        for some in pieces.chunks(BUFFERS) {
            // Those that are missing have no elements and come behind all workgroups.
            let (mut lens, mut starts, mut end) = ([0; 8], [u32::MAX; 8], 0);
            for ((len, start), piece) in lens.iter_mut().zip(&mut starts).zip(some) {
                (*len, *start) = (word_of(piece.len), end);
                end += piece.groups();
            }
            let mut call = Call::new(&kernel::SQUARES).params(lens).params(starts).params([part, end]);
            for (binding, i) in (5..).zip(0..BUFFERS) {
                call = match some.get(i) {
                    Some(Piece { memory, start, len }) => {
                        call.part(binding, &memory.buffer, 4 * *start as u64, padded(4 * *len as u64))
                    }
                    None => call.unused(binding, &some[0].memory.buffer),
                };
            }
            self.launch(call.buffer(11, &parts), end)?;
            part += end;
        }
        self.launch(Call::new(&kernel::GLOBAL_NORM).params([count]).buffer(3, &norm.buffer).buffer(11, &parts), 1)
    }
}
