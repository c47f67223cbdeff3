//! Buffers. Halves and bytes are packed into words; every buffer is a multiple of 32 bytes, so that eight f32 can be read
//! wherever one is.

use crate::{
    Error, Wgpu, kernel,
    launch::{ALIGNMENT, Call},
};
use gradscale_core::backend::{Buffer, DType, Data, DataMut};
use pollster::block_on;

/// Device memory of one type.
#[derive(Debug)]
pub struct Memory {
    pub(crate) buffer: wgpu::Buffer,
    dtype: DType,
    len: usize,
}

impl Buffer for Memory {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// Words between two places where a binding may begin.
const WORDS: u32 = 64;
const _: () = assert!(WORDS as u64 * 4 == ALIGNMENT);

/// Bytes of a buffer that holds so many.
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
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        Ok(Memory { buffer: self.new_buffer(padded(bytes), usage)?, dtype, len })
    }

    /// Memory of so many bytes.
    pub(crate) fn new_buffer(&self, size: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer, Error> {
        let scope = self.device().push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        let buffer = self.device().create_buffer(&descriptor);
        match block_on(scope.pop()) {
            None => Ok(buffer),
            Some(error) => Err(Error::OutOfMemory { bytes: size, reason: crate::error::chain(&error) }),
        }
    }

    pub(crate) fn write_memory(&self, src: Data<'_>, dst: &Memory) -> Result<(), Error> {
        assert!(
            src.dtype() == dst.dtype && src.len() <= dst.len,
            "{:?}[{}] written to {:?}[{}]",
            src.dtype(),
            src.len(),
            dst.dtype,
            dst.len
        );
        let bytes: &[u8] = match src {
            Data::F32(data) => bytemuck::cast_slice(data),
            Data::F16(data) => bytemuck::cast_slice(data),
            Data::U8(data) => data,
            Data::U32(data) => bytemuck::cast_slice(data),
        };
        // What has been enqueued still sees what was there.
        self.flush()?;
        let (whole, rest) = bytes.split_at(bytes.len() / 4 * 4);
        if !whole.is_empty() {
            self.queue().write_buffer(&dst.buffer, 0, whole);
        }
        if !rest.is_empty() {
            let (mut word, mut mask) = ([0; 4], [0; 4]);
            word[..rest.len()].copy_from_slice(rest);
            mask[..rest.len()].fill(0xFF);
            if src.len() == dst.len {
                // Behind the end of the buffer there is only padding.
                self.queue().write_buffer(&dst.buffer, whole.len() as u64, &word);
            } else {
                let at = whole.len();
                let start = at as u64 / ALIGNMENT * ALIGNMENT;
                let params = [word_of(at / 4) % WORDS, u32::from_le_bytes(mask), u32::from_le_bytes(word)];
                let size = ALIGNMENT.min(dst.buffer.size() - start);
                self.launch(Call::new(&kernel::TAIL).params(params).part(3, &dst.buffer, start, size), 1)?;
            }
        }
        Ok(())
    }

    pub(crate) fn read_memory(&self, src: &Memory, dst: DataMut<'_>) -> Result<(), Error> {
        assert!(
            src.dtype == dst.dtype() && dst.len() <= src.len,
            "{:?}[{}] read into {:?}[{}]",
            src.dtype,
            src.len,
            dst.dtype(),
            dst.len()
        );
        let out: &mut [u8] = match dst {
            DataMut::F32(data) => bytemuck::cast_slice_mut(data),
            DataMut::F16(data) => bytemuck::cast_slice_mut(data),
            DataMut::U8(data) => data,
            DataMut::U32(data) => bytemuck::cast_slice_mut(data),
        };
        if out.is_empty() {
            return self.flush();
        }
        let size = (out.len() as u64).next_multiple_of(4);
        self.download(&[(&src.buffer, 0, size)], |bytes| out.copy_from_slice(&bytes[..out.len()]))
    }
}

/// A count as a word; those of valid descriptors fit.
#[expect(clippy::cast_possible_truncation, reason = "descriptors hold fewer than 2^32 elements")]
pub(crate) const fn word_of(n: usize) -> u32 {
    n as u32
}
