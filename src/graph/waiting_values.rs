//! Values that wait for the backward pass, in less memory: those of 8 bits as bytes, and f32 copies of halves not at all.
//!
//! Kernels read halves and f32. So launches pack a value after its last use in the forward pass, and unpack it before its
//! first use in the backward pass. Both are exact. An f32 copy of another value is made again instead.

use super::{BufferId, Compiler, Launch, Operation, StatsSync, StoreSpec, Value, operand_formats::formats_of_halves};
use gradscale_core::{backend::DType, ops::Unary, store_format::StoreFormat};
use std::{collections::HashMap, mem};

/// Least number of launches between two uses of a value that waits. Values of the last layers are needed again before their
/// memory could serve anything else.
const MIN_WAIT: usize = 8;

/// Uses of a buffer by launches.
#[derive(Clone, Copy, Debug, Default)]
struct Uses {
    /// Number of launches that write the buffer, and the last of them.
    writes: usize,
    last_write: usize,
    /// Last use in the forward pass and first use in the backward pass.
    last_forward: Option<usize>,
    first_backward: Option<usize>,
}

impl Uses {
    /// Returns the last use in the forward pass and the first in the backward pass, if the value waits between them.
    fn wait(&self, start_of_backward: usize) -> Option<[usize; 2]> {
        let [last, first] = [self.last_forward?, self.first_backward?];
        (self.last_write < start_of_backward && first - last >= MIN_WAIT).then_some([last, first])
    }
}

/// Launches to insert, each before the launch of that index, and new names of buffers in the backward pass.
#[derive(Debug, Default)]
struct Insertions {
    before: Vec<(usize, Launch)>,
    renamed: HashMap<BufferId, BufferId>,
}

impl Compiler<'_, '_> {
    /// Shrinks the values that wait for the backward pass. `outputs` are read after the program has run.
    pub(super) fn shrink_waiting_values(&mut self, outputs: impl Iterator<Item = BufferId>) {
        let is_backward = |&(_, backward): &(usize, bool)| backward;
        // Buffers that are retained can be read after a step, so they share no memory.
        if !self.scales_forward || self.shared.retain_buffers || !self.origins.iter().any(is_backward) {
            return;
        }
        let synced = self.stats_syncs.iter_mut().flat_map(StatsSync::buffers).map(|buf| *buf);
        let held: Vec<BufferId> = outputs.chain(synced).collect();
        let start = |compiler: &Self| compiler.origins.iter().position(is_backward).unwrap_or(compiler.origins.len());
        // Copies first, because a copy that is made again reads its source, which may be packed.
        let copies = self.copies_to_repeat(&held, start(self));
        self.insert(copies, start(self));
        let packed = self.values_to_pack(&held, start(self));
        self.insert(packed, start(self));
    }

    /// Returns the casts of waiting f32 copies, to be repeated in the backward pass.
    fn copies_to_repeat(&mut self, held: &[BufferId], start: usize) -> Insertions {
        let (uses, mut insertions) = (self.uses_of_buffers(start), Insertions::default());
        for at in 0..start {
            let Operation::Unary { op: Unary::Id, len, x, y } = self.launches[at].operation else { continue };
            let (Some(copy), Some(source)) = (uses.get(&y.y.buf), uses.get(&x)) else { continue };
            let is_plain = y.y.dtype == DType::F32 && !y.add && copy.writes == 1 && !held.contains(&y.y.buf);
            let has_source = matches!(x, BufferId::Arena(_)) && source.last_write < at;
            if let (true, true, Some([_, first])) = (is_plain, has_source, copy.wait(start)) {
                let value = self.new_buffer(y.y.dtype, y.y.len);
                insertions.renamed.insert(y.y.buf, value.buf);
                // The row of the first store has counted the values.
                let y = StoreSpec::rescaled(value, y.from, y.to);
                insertions.before.push((first, Operation::Unary { op: Unary::Id, len, x, y }.into()));
            }
        }
        insertions
    }

    /// Returns the launches that pack and unpack waiting values of 8 bits.
    fn values_to_pack(&mut self, held: &[BufferId], start: usize) -> Insertions {
        let (uses, mut insertions) = (self.uses_of_buffers(start), Insertions::default());
        let formats = formats_of_halves(&self.launches, self.fixed.scalar_zero());
        for i in 0..self.buffers.len() {
            let (buf, (dtype, len)) = (BufferId::Arena(i), self.buffers[i]);
            let format = formats.get(&buf).copied().unwrap_or_default();
            let wait = uses.get(&buf).and_then(|uses| uses.wait(start));
            let (DType::F16, StoreFormat::E5m2 | StoreFormat::E4m3, Some([last, first])) = (dtype, format, wait) else {
                continue;
            };
            if held.contains(&buf) {
                continue;
            }
            let bytes = self.new_buffer(DType::U8, len).buf;
            let again: Value = self.new_buffer(DType::F16, len);
            let len = again.elements();
            insertions.before.push((last + 1, Operation::Pack { format, len, x: buf, y: bytes }.into()));
            insertions.before.push((first, Operation::Unpack { format, len, x: bytes, y: again.buf }.into()));
            insertions.renamed.insert(buf, again.buf);
        }
        insertions
    }

    /// Returns the uses of each buffer by launches.
    fn uses_of_buffers(&self, start_of_backward: usize) -> HashMap<BufferId, Uses> {
        let mut all: HashMap<BufferId, Uses> = HashMap::new();
        for (at, launch) in self.launches.iter().enumerate() {
            for buf in launch.buffers() {
                let uses = all.entry(buf).or_default();
                if at < start_of_backward {
                    uses.last_forward = Some(at);
                } else {
                    uses.first_backward.get_or_insert(at);
                }
            }
            for buf in launch.written_buffers() {
                let uses = all.entry(buf).or_default();
                (uses.writes, uses.last_write) = (uses.writes + 1, at);
            }
        }
        all
    }

    /// Inserts launches, and renames buffers in the backward pass, which begins with launch `start`.
    fn insert(&mut self, insertions: Insertions, start: usize) {
        let Insertions { mut before, renamed } = insertions;
        before.sort_by_key(|&(at, _)| at);
        let (launches, origins) = (mem::take(&mut self.launches), mem::take(&mut self.origins));
        let (mut before, mut places) = (before.into_iter().peekable(), Vec::with_capacity(launches.len() + 1));
        for (at, (mut launch, origin)) in launches.into_iter().zip(origins).enumerate() {
            while let Some((_, inserted)) = before.next_if(|&(place, _)| place == at) {
                self.launches.push(inserted);
                self.origins.push(origin);
            }
            places.push(self.launches.len());
            if at >= start {
                launch.rename(|buf| renamed.get(&buf).copied().unwrap_or(buf));
            }
            self.launches.push(launch);
            self.origins.push(origin);
        }
        places.push(self.launches.len());
        self.stats_syncs.iter_mut().for_each(|sync| sync.before = places[sync.before]);
    }
}
