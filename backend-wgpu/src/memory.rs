//! Buffers. Halves and bytes are packed into words. The size of every tensor is a multiple of 32 bytes, so that eight
//! f32 can be read at each vector index. Tensors that are allocated together are contiguous in one buffer, or in as few
//! as the size of bindings allows.

use crate::{Error, Wgpu, device::ALIGNMENT};
use gradscale_core::backend::{Buffer, DType};

/// Device memory of one type: a buffer, or a part of one.
#[derive(Debug)]
pub struct Memory {
    buffer: wgpu::Buffer,
    /// Offset of the memory in its buffer in bytes, a multiple of [`ALIGNMENT`].
    start: u64,
    /// Size of this memory in bytes, including padding.
    size: u64,
    dtype: DType,
    len: usize,
}

/// Range of bytes of a buffer, as a binding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bytes<'a> {
    pub buffer: &'a wgpu::Buffer,
    pub start: u64,
    pub size: u64,
}

impl<'a> Bytes<'a> {
    /// Returns the range of all bytes of a buffer.
    pub fn whole(buffer: &'a wgpu::Buffer) -> Self {
        Self { buffer, start: 0, size: buffer.size() }
    }
}

impl Memory {
    /// Returns the range of all bytes of the memory.
    pub(crate) const fn bytes(&self) -> Bytes<'_> {
        self.part(0, self.size)
    }

    /// Returns the range of `size` bytes that begins `start` bytes into the memory.
    pub(crate) const fn part(&self, start: u64, size: u64) -> Bytes<'_> {
        Bytes { buffer: &self.buffer, start: self.start + start, size }
    }
}

impl Buffer for Memory {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn len(&self) -> usize {
        self.len
    }
}

const USAGE: wgpu::BufferUsages =
    wgpu::BufferUsages::STORAGE.union(wgpu::BufferUsages::COPY_SRC).union(wgpu::BufferUsages::COPY_DST);

/// Returns the size of a buffer for `bytes` bytes, padded to a multiple of 32.
pub(crate) const fn padded(bytes: u64) -> u64 {
    let bytes = if bytes < 32 { 32 } else { bytes };
    bytes.next_multiple_of(32)
}

impl Wgpu {
    pub(crate) fn new_memory(&self, dtype: DType, len: usize) -> Result<Memory, Error> {
        let bytes = (len as u64).saturating_mul(dtype.size() as u64);
        if bytes > self.max_buffer() {
            return Err(Error::OutOfMemory {
                bytes,
                reason: "larger than the device's bindings and buffers allow".into(),
            });
        }
        let size = padded(bytes);
        Ok(Memory { buffer: self.new_buffer(size, USAGE)?, start: 0, size, dtype, len })
    }

    /// Allocates memory of these lengths: as many in one buffer as one binding covers.
    pub(crate) fn new_memories(
        &self, dtype: DType, lens: &[usize], all: &mut impl Extend<Memory>,
    ) -> Result<(), Error> {
        let most = self.largest_binding().min(self.max_buffer());
        let mut rest = lens;
        while let Some(&first) = rest.first() {
            let (mut places, mut end) = (Vec::new(), 0u64);
            for &len in rest {
                let bytes = (len as u64).saturating_mul(dtype.size() as u64);
                let start = end.next_multiple_of(ALIGNMENT);
                if bytes > most || start + padded(bytes) > most {
                    break;
                }
                places.push((len, start, padded(bytes)));
                end = start + padded(bytes);
            }
            if places.is_empty() {
                all.extend([self.new_memory(dtype, first)?]);
                rest = &rest[1..];
                continue;
            }
            let buffer = self.new_buffer(end, USAGE)?;
            rest = &rest[places.len()..];
            let place = |(len, start, size)| Memory { buffer: buffer.clone(), start, size, dtype, len };
            all.extend(places.into_iter().map(place));
        }
        Ok(())
    }

    /// Creates a buffer with these words, which one launch reads.
    pub(crate) fn words(&self, words: &[u32]) -> Result<wgpu::Buffer, Error> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        let buffer = self.new_buffer(4 * words.len() as u64, usage)?;
        self.queue().write_buffer(&buffer, 0, bytemuck::cast_slice(words));
        Ok(buffer)
    }
}

/// Converts a count to a word; the counts of valid descriptors fit.
#[expect(clippy::cast_possible_truncation, reason = "descriptors hold fewer than 2^32 elements")]
pub(crate) const fn word_of(n: usize) -> u32 {
    n as u32
}
