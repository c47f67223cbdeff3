//! Many tensors in one dispatch: what lies in one buffer is seen through one binding, and a list says where each begins.

use crate::{
    Memory, Wgpu,
    memory::{Bytes, padded, word_of},
};
use gradscale_core::backend::Buffer;

/// In place of where something begins that is not there, as in multi_tensor.wgsl.
const ABSENT: u32 = u32::MAX;
/// Most roles, as in multi_tensor.wgsl.
const ROLES: usize = 5;
/// A tensor is cut at multiples of so many elements: there a binding may begin, in f32 and in half.
const CUT: usize = 128;

/// What a kernel takes at once: tensors of the same length in different roles; some are missing.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a, const N: usize> {
    pub len: usize,
    pub roles: [Option<&'a Memory>; N],
}

/// Entries that one dispatch takes.
pub(crate) struct Listed<'a, const N: usize> {
    /// What is bound for each role.
    pub shown: [Option<Bytes<'a>>; N],
    /// The list, for multi_tensor.wgsl.
    pub words: Vec<u32>,
    /// How many.
    pub count: u32,
    /// Workgroups for all.
    pub groups: u32,
}

impl<const N: usize> Listed<'_, N> {
    /// Whether these can be bound for it; for a role that is missing, anything can.
    fn can_show(&self, shown: &[Option<Bytes<'_>>; N]) -> bool {
        self.shown.iter().zip(shown).all(|(here, there)| here.is_none() || there.is_none() || here == there)
    }
}

impl Wgpu {
    /// Lists for a kernel of which a workgroup takes `each` elements of an entry: as few as bindings allow.
    pub(crate) fn listed<'a, const N: usize>(
        &self, each: u32, entries: impl IntoIterator<Item = Entry<'a, N>>,
    ) -> Vec<Listed<'a, N>> {
        let mut lists: Vec<Listed<'a, N>> = Vec::new();
        let mut before = 0;
        for Entry { len, roles } in entries {
            let whole = roles.into_iter().flatten().all(|memory| self.shows_all_beside(memory));
            let most = if whole { len } else { usize::try_from(self.window() / 4).unwrap_or(usize::MAX) }.max(CUT);
            for start in (0..len).step_by(most) {
                let len = most.min(len - start);
                let parts = roles.map(|memory| memory.map(|memory| self.shown(memory, start, len)));
                let shown = parts.map(|part| part.map(|(shown, _)| shown));
                let at = lists.iter().position(|list| list.can_show(&shown)).unwrap_or_else(|| {
                    lists.push(Listed { shown, words: Vec::new(), count: 0, groups: 0 });
                    lists.len() - 1
                });
                let list = &mut lists[at];
                for (here, there) in list.shown.iter_mut().zip(shown) {
                    *here = here.or(there);
                }
                let mut places = [ABSENT; ROLES];
                for (place, part) in places.iter_mut().zip(parts) {
                    *place = part.map_or(ABSENT, |(_, four)| four);
                }
                list.words.extend([word_of(len), list.groups, before]);
                list.words.extend(places);
                list.count += 1;
                let groups = word_of(len).div_ceil(each);
                list.groups += groups;
                before += groups;
            }
        }
        lists
    }

    /// Whether one binding shows a tensor with all that lies beside it.
    fn shows_all_beside(&self, memory: &Memory) -> bool {
        memory.bytes().buffer.size() <= self.largest_binding()
    }

    /// What is bound for so many elements of a tensor from one on, and where they begin there, in fours of elements.
    fn shown<'a>(&self, memory: &'a Memory, start: usize, len: usize) -> (Bytes<'a>, u32) {
        let size = memory.dtype().size();
        let bytes = |elements: usize| (elements * size) as u64;
        let part = memory.part(bytes(start), padded(bytes(len)));
        let shown = if self.shows_all_beside(memory) { Bytes::all(part.buffer) } else { part };
        let four = (part.start - shown.start) / bytes(4);
        (shown, u32::try_from(four).unwrap_or(ABSENT))
    }
}
