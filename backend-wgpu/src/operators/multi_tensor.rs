//! Multi-tensor apply: one dispatch for many tensors. Tensors in one buffer share a binding, and a table has the offset of
//! each.

use crate::{
    Memory, Wgpu,
    memory::{Bytes, padded, word_of},
};
use gradscale_core::backend::Buffer;

/// Offset of a missing tensor, as in multi_tensor.wgsl.
const NO_TENSOR: u32 = u32::MAX;
/// Maximum number of roles, as in multi_tensor.wgsl.
const MAX_ROLES: usize = 5;
/// Elements at whose multiples a tensor may be divided. A binding may begin there in f32 and in f16, because 128 f16 values
/// are 256 bytes.
const SPLIT_ALIGNMENT: usize = 128;

/// Tensors of one parameter in different roles, all of the same length. Some roles may be missing.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a, const N: usize> {
    pub len: usize,
    pub roles: [Option<&'a Memory>; N],
}

/// Tensors that one dispatch of a multi-tensor kernel handles.
pub(crate) struct TensorBatch<'a, const N: usize> {
    /// Bytes that are bound for each role of a tensor, for example gradient or weight.
    pub bound: [Option<Bytes<'a>>; N],
    /// Table of the tensors' lengths and offsets, in the words that multi_tensor.wgsl reads.
    pub words: Vec<u32>,
    /// Number of tensors that one launch updates.
    pub count: u32,
    /// Number of workgroups for all tensors of the dispatch.
    pub groups: u32,
}

impl<const N: usize> TensorBatch<'_, N> {
    /// Returns whether these bytes can be bound for the dispatch. A missing role matches anything.
    fn can_bind(&self, bound: &[Option<Bytes<'_>>; N]) -> bool {
        self.bound
            .iter()
            .zip(bound)
            .all(|(bound_here, bound_there)| bound_here.is_none() || bound_there.is_none() || bound_here == bound_there)
    }
}

impl Wgpu {
    /// Lists for a kernel of which a workgroup takes `each` elements of an entry: as few as bindings allow.
    pub(crate) fn batch_tensors<'a, const N: usize>(
        &self, elements_per_group: u32, entries: impl IntoIterator<Item = Entry<'a, N>>,
    ) -> Vec<TensorBatch<'a, N>> {
        let mut batches: Vec<TensorBatch<'a, N>> = Vec::new();
        let mut groups_before = 0;
        for Entry { len, roles } in entries {
            let whole = roles.into_iter().flatten().all(|memory| self.fits_one_binding(memory));
            let most = if whole { len } else { usize::try_from(self.window_bytes() / 4).unwrap_or(usize::MAX) }
                .max(SPLIT_ALIGNMENT);
            for start in (0..len).step_by(most) {
                let len = most.min(len - start);
                let parts = roles.map(|memory| memory.map(|memory| self.bound(memory, start, len)));
                let bound = parts.map(|part| part.map(|(bound, _)| bound));
                let at = batches.iter().position(|list| list.can_bind(&bound)).unwrap_or_else(|| {
                    batches.push(TensorBatch { bound, words: Vec::new(), count: 0, groups: 0 });
                    batches.len() - 1
                });
                let list = &mut batches[at];
                for (bound_here, bound_there) in list.bound.iter_mut().zip(bound) {
                    *bound_here = bound_here.or(bound_there);
                }
                let mut offsets = [NO_TENSOR; MAX_ROLES];
                for (place, part) in offsets.iter_mut().zip(parts) {
                    *place = part.map_or(NO_TENSOR, |(_, four)| four);
                }
                list.words.extend([word_of(len), list.groups, groups_before]);
                list.words.extend(offsets);
                list.count += 1;
                let groups = word_of(len).div_ceil(elements_per_group);
                list.groups += groups;
                groups_before += groups;
            }
        }
        batches
    }

    /// Returns whether one binding covers the whole buffer of a tensor.
    fn fits_one_binding(&self, memory: &Memory) -> bool {
        memory.bytes().buffer.size() <= self.largest_binding()
    }

    /// Returns the bytes to bind for `len` elements of a tensor from `start` on, and the offset of the first one there in
    /// 4-wide vectors.
    fn bound<'a>(&self, memory: &'a Memory, start: usize, len: usize) -> (Bytes<'a>, u32) {
        let size = memory.dtype().size();
        let bytes = |elements: usize| (elements * size) as u64;
        let part = memory.part(bytes(start), padded(bytes(len)));
        let bound = if self.fits_one_binding(memory) { Bytes::whole(part.buffer) } else { part };
        let four = (part.start - bound.start) / bytes(4);
        (bound, u32::try_from(four).unwrap_or(NO_TENSOR))
    }
}
