//! Stores between slices of a caller: the cast of a runtime that has its own tensors.

use crate::{
    Cpu,
    arch::StoreInput,
    epilogue::{BLOCK_ELEMENTS, Block, Epilogue, OutputSlice, chunk_len, merge_stats},
    threading::Cost,
};
use gradscale_core::{
    cast::SliceError,
    stats::{Detail, Stats},
    store_format::StoreFormat,
};
use half::f16;

/// Caller's slice of values to be stored: f32 or half.
#[derive(Clone, Copy, Debug)]
pub enum Slice<'a> {
    /// f32 values to be stored, read in place.
    F32(&'a [f32]),
    /// Halves, converted to f32, which is exact.
    F16(&'a [f16]),
}

/// Caller's slice to which values are stored: f32 or half.
#[derive(Debug)]
pub enum SliceMut<'a> {
    /// f32 destination, to which values are stored without rounding.
    F32(&'a mut [f32]),
    /// Half destination, rounded once, to nearest even.
    F16(&'a mut [f16]),
}

impl Slice<'_> {
    /// Returns the number of elements of the slice.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::F32(x) => x.len(),
            Self::F16(x) => x.len(),
        }
    }

    /// Returns true if the slice has no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Cpu {
    /// Stores values that have the exponent `from` with the exponent `to`, on all threads if that is worthwhile.
    /// Multiplies them by 2^(to − from), and returns the statistics of these f32 values (none with [`Detail::None`]).
    /// The bits are the same for every number of threads.
    ///
    /// ```
    /// use gradscale_core::stats::Detail;
    /// use gradscale_cpu::{Cpu, Slice, SliceMut};
    /// use half::f16;
    ///
    /// let mut y = [f16::ZERO; 3];
    /// let row = Cpu::new(1)?.store(Slice::F32(&[1e-9, -3e-9, 0.0]), 0, SliceMut::F16(&mut y), 30, Detail::Full)?;
    /// assert_eq!((row.exponent(), row.counts().zeros, row.counts().flushed), (30, 1, 0));
    /// assert_eq!(y, [f16::from_f32(1.0737418), f16::from_f32(-3.2212255), f16::ZERO]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SliceError::Length`] if the lengths differ; nothing is written then.
    pub fn store(
        &self, x: Slice<'_>, from: i32, y: SliceMut<'_>, to: i32, detail: Detail,
    ) -> Result<Stats, SliceError> {
        self.store_in(StoreFormat::Fp16, x, from, y, to, detail)
    }

    /// Stores values like [`Cpu::store`], rounded once to a format, with a row of its convention. Where `y` is f32 it
    /// has the rounded values, too, unless the format is FP16.
    ///
    /// ```
    /// use gradscale_core::{stats::Detail, store_format::StoreFormat};
    /// use gradscale_cpu::{Cpu, Slice, SliceMut};
    /// use half::f16;
    ///
    /// let (cpu, mut y) = (Cpu::new(1)?, [f16::ZERO; 3]);
    /// let (x, y_slice) = (Slice::F32(&[0.1, 0.0004, 500.0]), SliceMut::F16(&mut y));
    /// let row = cpu.store_in(StoreFormat::E4m3, x, 0, y_slice, 0, Detail::Counts)?;
    /// assert_eq!((y[0].to_f32(), row.counts().flushed, row.counts().overflowed), (0.1015625, 1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SliceError::Length`] if the lengths differ; nothing is written then.
    pub fn store_in(
        &self, format: StoreFormat, x: Slice<'_>, from: i32, y: SliceMut<'_>, to: i32, detail: Detail,
    ) -> Result<Stats, SliceError> {
        let len = x.len();
        let y = match y {
            SliceMut::F32(y) => OutputSlice::F32(y),
            SliceMut::F16(y) => OutputSlice::F16(y),
        };
        if y.len() != len {
            return Err(SliceError::Length { src: len, dst: y.len() });
        }
        let epilogue = Epilogue::between(from, to, detail, self.isa()).in_format(format);
        let (cost, chunk) = (Cost::elements(len), chunk_len(len));
        let rows = match x {
            Slice::F32(x) => y.par_chunks(self, cost, chunk, epilogue.store_from(StoreInput::F32(x))),
            Slice::F16(_) => {
                y.par_chunks(self, cost, chunk, epilogue.store_map(len, |start, [out]| self.load_slice(x, start, out)))
            }
        };
        Ok(merge_stats(&epilogue, &rows).counted_in(format))
    }

    /// Computes the statistics that [`Cpu::store`] would return, without storing: for a decision before the store.
    #[must_use]
    pub fn observe(&self, x: Slice<'_>, from: i32, to: i32, detail: Detail) -> Stats {
        self.observe_in(StoreFormat::Fp16, x, from, to, detail)
    }

    /// Computes the statistics that [`Cpu::store_in`] would return, without storing.
    #[must_use]
    pub fn observe_in(&self, format: StoreFormat, x: Slice<'_>, from: i32, to: i32, detail: Detail) -> Stats {
        let (len, chunk) = (x.len(), chunk_len(x.len()));
        let epilogue = Epilogue::between(from, to, detail, self.isa()).in_format(format);
        let observe_chunk = |i: usize| {
            // Blocks are converted into memory that stays in cache.
            let (mut block_memory, first) = (Block::ZERO, i * chunk);
            let mut row = epilogue.new_accumulator();
            for start in (first..len.min(first + chunk)).step_by(BLOCK_ELEMENTS) {
                let block = block_memory.first(BLOCK_ELEMENTS.min(len - start));
                self.load_slice(x, start, block);
                epilogue.observe_only(block, &mut row);
            }
            row
        };
        let chunks = if chunk == 0 { 0 } else { len.div_ceil(chunk) };
        let rows = self.par_map(Cost::elements(len), chunks, observe_chunk);
        merge_stats(&epilogue, &rows).counted_in(format)
    }

    /// Calls `work` for chunks of `size` elements of both slices, on all threads if that is worthwhile, with the index
    /// of the first element. Results are in order. If one slice is longer, its rest is ignored.
    pub fn par_chunks<T: Sync, W: Send, R: Send>(
        &self, x: &[T], y: &mut [W], size: usize, work: impl Fn(usize, &[T], &mut [W]) -> R + Sync,
    ) -> Vec<R> {
        let (size, len) = (size.max(1), x.len().min(y.len()));
        self.par_chunks_mut(Cost::elements(len), &mut y[..len], size, |i, y| {
            let from = i * size;
            work(from, &x[from..from + y.len()], y)
        })
    }

    /// Converts elements `start..` of a caller's slice to f32.
    fn load_slice(&self, x: Slice<'_>, start: usize, out: &mut [f32]) {
        match x {
            Slice::F32(x) => out.copy_from_slice(&x[start..start + out.len()]),
            Slice::F16(x) => self.isa().f16_to_f32(&x[start..start + out.len()], out),
        }
    }
}
