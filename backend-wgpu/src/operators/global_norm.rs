//! The norm of all gradients.

use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{Call, GROUP},
    memory::word_of,
};
use gradscale_core::backend::Buffer;

/// Buffers of one launch: six and the sums are seven of the eight that every device binds.
const BUFFERS: usize = 6;
/// Elements of a workgroup, as in squares.wgsl.
const ELEMENTS: u32 = 64 * GROUP;
/// Bytes of a workgroup's sums.
const SUMS: u64 = 16;

impl Wgpu {
    pub(crate) fn run_global_norm(&self, grads: &[&Memory], norm: &Memory) -> Result<(), Error> {
        let groups = |memory: &Memory| word_of(memory.len()).div_ceil(ELEMENTS);
        let count: u32 = grads.iter().copied().map(groups).sum();
        let parts = self.totals(SUMS * u64::from(count.max(1)))?;
        let mut part = 0;
        for some in grads.chunks(BUFFERS) {
            // Those that are missing have no elements and come behind all workgroups.
            let (mut lens, mut starts, mut end) = ([0; 8], [u32::MAX; 8], 0);
            for ((len, start), memory) in lens.iter_mut().zip(&mut starts).zip(some) {
                (*len, *start) = (word_of(memory.len()), end);
                end += groups(memory);
            }
            if end == 0 {
                continue;
            }
            let mut call = Call::new(&kernel::SQUARES).params(lens).params(starts).params([part, end]);
            for (binding, i) in (5..).zip(0..BUFFERS) {
                call = call.buffer(binding, &some.get(i).unwrap_or(&some[0]).buffer);
            }
            self.launch(call.buffer(11, &parts), end)?;
            part += end;
        }
        self.launch(Call::new(&kernel::GLOBAL_NORM).params([count]).buffer(3, &norm.buffer).buffer(11, &parts), 1)
    }
}
