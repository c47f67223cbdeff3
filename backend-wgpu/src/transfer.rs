//! Copies between memory of the host and of the device.

use crate::{
    Error, Memory, Wgpu,
    device::ALIGNMENT,
    kernel,
    launch::KernelLaunch,
    memory::{Bytes, word_of},
};
use gradscale_core::backend::{Buffer, Data, DataMut};

/// Number of words between two offsets at which a binding may begin.
const WORDS: u32 = 64;
const _: () = assert!(WORDS as u64 * 4 == ALIGNMENT);

impl Wgpu {
    pub(crate) fn write_memory(&self, src: Data<'_>, dst: &Memory) -> Result<(), Error> {
        assert!(
            src.dtype() == dst.dtype() && src.len() <= dst.len(),
            "{:?}[{}] written to {:?}[{}]",
            src.dtype(),
            src.len(),
            dst.dtype(),
            dst.len()
        );
        let bytes: &[u8] = match src {
            Data::F32(data) => bytemuck::cast_slice(data),
            Data::F16(data) => bytemuck::cast_slice(data),
            Data::U8(data) => data,
            Data::U32(data) => bytemuck::cast_slice(data),
        };
        // Enqueued work must still read the old content.
        self.flush()?;
        let Bytes { buffer, start: offset, size } = dst.bytes();
        let (whole, rest) = bytes.split_at(bytes.len() / 4 * 4);
        if !whole.is_empty() {
            self.queue().write_buffer(buffer, offset, whole);
        }
        if !rest.is_empty() {
            let (mut word, mut mask) = ([0; 4], [0; 4]);
            word[..rest.len()].copy_from_slice(rest);
            mask[..rest.len()].fill(0xFF);
            if src.len() == dst.len() {
                // After the end of a tensor there is only padding.
                self.queue().write_buffer(buffer, offset + whole.len() as u64, &word);
            } else {
                let at = whole.len();
                let start = at as u64 / ALIGNMENT * ALIGNMENT;
                let params = [word_of(at / 4) % WORDS, u32::from_le_bytes(mask), u32::from_le_bytes(word)];
                let part = dst.part(start, ALIGNMENT.min(size - start));
                self.launch(KernelLaunch::new(&kernel::PARTIAL_WORD_WRITE).params(params).part(3, part), 1)?;
            }
        }
        Ok(())
    }

    pub(crate) async fn read_memory(&self, src: &Memory, dst: DataMut<'_>) -> Result<(), Error> {
        assert!(
            src.dtype() == dst.dtype() && dst.len() <= src.len(),
            "{:?}[{}] read into {:?}[{}]",
            src.dtype(),
            src.len(),
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
        self.download(&[src.part(0, size)], |bytes| out.copy_from_slice(&bytes[..out.len()])).await
    }
}
