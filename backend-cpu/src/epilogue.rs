//! The store of every operator: scale, accumulate, observe, round once, write.
//!
//! Results are computed in blocks of f32, stored while they are in cache, and written in their type. Blocks belong to
//! chunks, whose number depends on the length alone. Chunks may run on any thread, and their statistics are merged in
//! order, so that sums are the same for every number of threads.

use crate::{
    Cpu, Memory,
    arch::{Isa, StoreInput},
    eight_bits::round_values,
    stats_accumulator::StatsAccumulator,
    threading::Cost,
};
use gradscale_core::{
    backend::Store,
    scale::Factor,
    stats::{Detail, Stats},
    store_format::StoreFormat,
};
use half::f16;

/// Number of values that are stored at a time: 16 KiB of f32, half of L1.
pub const BLOCK_ELEMENTS: usize = 4096;

/// Block of f32 values, aligned to a cache line. A vector that crosses two lines takes twice as long to load.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Block([f32; BLOCK_ELEMENTS]);

impl Block {
    pub const ZERO: Self = Self([0.0; BLOCK_ELEMENTS]);

    /// Returns the first `len` values of the block.
    pub fn first(&mut self, len: usize) -> &mut [f32] {
        &mut self.0[..len]
    }
}

/// Maximum number of chunks into which an operator's results are divided.
const MAX_CHUNKS: usize = 64;

/// Epilogue of a store: scale factor, exponent and detail of its statistics.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue {
    factor: Factor,
    add: bool,
    /// Exponent at which values are stored and observed, and detail of the statistics.
    to: i32,
    detail: Detail,
    /// Format to which the values are rounded, and whose thresholds the statistics have.
    format: StoreFormat,
    isa: Isa,
}

/// Part of the f32 or half memory that a store writes.
#[derive(Debug)]
pub enum OutputSlice<'a> {
    F32(&'a mut [f32]),
    F16(&'a mut [f16]),
}

impl<'a> OutputSlice<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::F32(y) => y.len(),
            Self::F16(y) => y.len(),
        }
    }

    /// Returns the part of the destination with these indices.
    pub fn range(&mut self, range: core::ops::Range<usize>) -> OutputSlice<'_> {
        match self {
            Self::F32(y) => OutputSlice::F32(&mut y[range]),
            Self::F16(y) => OutputSlice::F16(&mut y[range]),
        }
    }

    /// Splits the destination into chunks of `len` elements.
    pub fn chunks(self, len: usize) -> Vec<Self> {
        match self {
            Self::F32(y) => y.chunks_mut(len.max(1)).map(Self::F32).collect(),
            Self::F16(y) => y.chunks_mut(len.max(1)).map(Self::F16).collect(),
        }
    }

    /// Splits the destination into chunks of `size` elements, calls `work` on each in parallel and returns the results
    /// in order.
    pub fn par_chunks<T: Send>(
        self, cpu: &Cpu, cost: Cost, size: usize, work: impl Fn(usize, OutputSlice<'_>) -> T + Sync,
    ) -> Vec<T> {
        self.par_chunks_with_first(cpu, cost, [size; 2], work)
    }

    /// Splits the destination like [`OutputSlice::par_chunks`], but the first chunk has its own size.
    pub fn par_chunks_with_first<T: Send>(
        self, cpu: &Cpu, cost: Cost, sizes: [usize; 2], work: impl Fn(usize, OutputSlice<'_>) -> T + Sync,
    ) -> Vec<T> {
        match self {
            Self::F32(y) => cpu.par_chunks_mut_with_first(cost, y, sizes, |i, y| work(i, OutputSlice::F32(y))),
            Self::F16(y) => cpu.par_chunks_mut_with_first(cost, y, sizes, |i, y| work(i, OutputSlice::F16(y))),
        }
    }
}

impl Epilogue {
    /// Creates the epilogue of a store from its exponents in the table.
    pub fn from_store(store: &Store<'_, Cpu>, isa: Isa) -> Self {
        let (from, to) = (store.table.exponent(store.from), store.table.exponent(store.to));
        Self {
            factor: Factor::between(from, to),
            add: store.add,
            to,
            detail: store.detail.min(store.table.detail),
            format: StoreFormat::Fp16,
            isa,
        }
    }

    /// Returns the epilogue with the rounding and the thresholds of a format. It stores rounded values as f32, too, unless
    /// the format is FP16.
    pub const fn in_format(self, format: StoreFormat) -> Self {
        Self { format, ..self }
    }

    /// Creates the epilogue of a store into memory that belongs to no table.
    pub const fn between(from: i32, to: i32, detail: Detail, isa: Isa) -> Self {
        Self { factor: Factor::between(from, to), add: false, to, detail, format: StoreFormat::Fp16, isa }
    }

    /// Returns true if the store accumulates to the destination.
    pub const fn accumulates(&self) -> bool {
        self.add
    }

    /// Returns true if the statistics include rounded sums of values.
    pub fn has_moments(&self) -> bool {
        self.detail == Detail::Moments
    }

    /// Returns an empty accumulator of the store's statistics.
    pub const fn new_accumulator(&self) -> StatsAccumulator {
        StatsAccumulator::new(self.to, self.detail, self.format)
    }

    /// Returns the function that stores a chunk of `len` results, for [`OutputSlice::par_chunks`]. `values` writes them
    /// to the first of some blocks. It may use the other blocks, which keep their content within a chunk.
    pub fn store_map<const N: usize>(
        self, len: usize, values: impl Fn(usize, [&mut [f32]; N]) + Sync,
    ) -> impl Fn(usize, OutputSlice<'_>) -> StatsAccumulator + Sync {
        move |i, mut y| {
            let (mut row, mut blocks) = (self.new_accumulator(), [Block::ZERO; N]);
            for start in (0..y.len()).step_by(BLOCK_ELEMENTS) {
                let end = y.len().min(start + BLOCK_ELEMENTS);
                values(i * chunk_len(len) + start, blocks.each_mut().map(|block| block.first(end - start)));
                self.finish_block(blocks[0].first(end - start), y.range(start..end), &mut row);
            }
            row
        }
    }

    /// Returns the function that stores a chunk of values in memory, like [`Epilogue::store_map`].
    pub fn store_from(self, x: StoreInput<'_>) -> impl Fn(usize, OutputSlice<'_>) -> StatsAccumulator + Sync {
        move |i, mut y| {
            let mut row = self.new_accumulator();
            for start in (0..y.len()).step_by(BLOCK_ELEMENTS) {
                let end = y.len().min(start + BLOCK_ELEMENTS);
                let (from, mut y) = (i * chunk_len(x.len()), y.range(start..end));
                let x = x.range(from + start..from + end);
                if !self.try_store_fused(x, &mut y, &mut row) {
                    let mut block = Block::ZERO;
                    let block = block.first(x.len());
                    x.read(self.isa, block);
                    self.finish_block(block, y, &mut row);
                }
            }
            row
        }
    }

    /// Multiplies values by the factor to the exponent of the store.
    fn scale_values(&self, values: &mut [f32]) {
        let [first, second, third] = self.factor.parts();
        if second != 1.0 {
            self.isa.map(values, |v| v * first * second * third);
        } else if first != 1.0 {
            self.isa.map(values, |v| v * first);
        }
    }

    /// Observes the values that a store would write, without storing them. Their content is unspecified afterwards.
    pub fn observe_only(&self, values: &mut [f32], row: &mut StatsAccumulator) {
        self.scale_values(values);
        row.observe(self.isa, values);
    }

    /// Stores at most a block of values in one pass. If that is not possible, returns false with nothing observed; `y`
    /// may be written.
    fn try_store_fused(&self, values: StoreInput<'_>, y: &mut OutputSlice<'_>, row: &mut StatsAccumulator) -> bool {
        let [factor, second, _] = self.factor.parts();
        match y {
            OutputSlice::F16(y) if !self.add && second == 1.0 && self.format == StoreFormat::Fp16 => {
                row.store_fused(self.isa, values, factor, y)
            }
            OutputSlice::F16(_) | OutputSlice::F32(_) => false,
        }
    }

    /// Scales at most a block of values, and adds the destination's if the store accumulates.
    pub fn scale_and_add(&self, values: &mut [f32], y: &OutputSlice<'_>) {
        self.scale_values(values);
        if self.add {
            match y {
                OutputSlice::F32(y) => self.isa.zip(values, y, |v, y| v + y),
                OutputSlice::F16(y) => {
                    let mut before = Block::ZERO;
                    let before = before.first(y.len());
                    self.isa.f16_to_f32(y, before);
                    self.isa.zip(values, before, |v, y| v + y);
                }
            }
        }
    }

    /// Observes values, and rounds them to the format of the store unless that is FP16.
    pub fn observe_and_round(&self, values: &mut [f32], row: &mut StatsAccumulator) {
        row.observe(self.isa, values);
        round_values(self.isa, self.format, values);
    }

    /// Scales, accumulates, observes and rounds values, and writes them to `y`, which is as long. Their content is
    /// unspecified afterwards.
    pub fn finish_block(&self, values: &mut [f32], mut y: OutputSlice<'_>, row: &mut StatsAccumulator) {
        for (i, values) in values.chunks_mut(BLOCK_ELEMENTS).enumerate() {
            let mut y = y.range(i * BLOCK_ELEMENTS..i * BLOCK_ELEMENTS + values.len());
            if self.try_store_fused(StoreInput::F32(values), &mut y, row) {
                continue;
            }
            self.scale_and_add(values, &y);
            self.observe_and_round(values, row);
            match y {
                OutputSlice::F32(y) => y.copy_from_slice(values),
                OutputSlice::F16(y) => self.isa.f32_to_f16(values, y),
            }
        }
    }
}

impl Cpu {
    /// Stores values that are already in memory, through the epilogue.
    pub(crate) fn store_from(&self, store: Store<'_, Self>, x: StoreInput<'_>) {
        let epilogue = Epilogue::from_store(&store, self.isa());
        let Store { y, table, to, .. } = store;
        let work = epilogue.store_from(x);
        let rows = output_slice(y, x.len()).par_chunks(self, Cost::elements(x.len()), chunk_len(x.len()), &work);
        report_stats(&epilogue, &rows, |row| table.merge(to, row));
    }

    /// Stores `len` results. `values` fills a block with the results from an index on, as in [`Epilogue::store_map`].
    pub(crate) fn store_map<const N: usize>(
        &self, store: Store<'_, Self>, len: usize, values: impl Fn(usize, [&mut [f32]; N]) + Sync,
    ) {
        self.store_map_in(StoreFormat::Fp16, store, len, values);
    }

    /// Stores `len` results like [`Cpu::store_map`], with the rounding and the thresholds of a format.
    pub(crate) fn store_map_in<const N: usize>(
        &self, format: StoreFormat, store: Store<'_, Self>, len: usize, values: impl Fn(usize, [&mut [f32]; N]) + Sync,
    ) {
        let epilogue = Epilogue::from_store(&store, self.isa()).in_format(format);
        let Store { y, table, to, .. } = store;
        let work = epilogue.store_map(len, values);
        let rows = output_slice(y, len).par_chunks(self, Cost::elements(len), chunk_len(len), &work);
        report_stats(&epilogue, &rows, |row| table.merge(to, row));
    }
}

/// Returns the number of elements in each chunk of `len` results.
pub const fn chunk_len(len: usize) -> usize {
    len.div_ceil(MAX_CHUNKS).next_multiple_of(BLOCK_ELEMENTS)
}

/// Maximum number of chunks of an operator that stores row by row.
const MAX_ROW_CHUNKS: usize = 128;

impl Cpu {
    /// Stores a result row by row. `make_worker` is called once for each chunk and returns the function that computes a
    /// row. That function may keep memory, and converted input, from one row to the next. `cost` is the cost of the
    /// whole operator.
    pub(crate) fn store_rows<W: FnMut(usize, &mut [f32])>(
        &self, [rows, pixels, channels]: [usize; 3], bias: Option<Vec<f32>>, cost: Cost, y: Store<'_, Self>,
        make_worker: impl Fn() -> W + Sync,
    ) {
        let epilogue = Epilogue::from_store(&y, self.isa());
        let Store { y, table, to, .. } = y;
        let len = (pixels * channels).max(1);
        // Several short rows are stored together.
        let rows_per_block = (BLOCK_ELEMENTS / len).max(1);
        let rows_per_chunk = rows.div_ceil(MAX_ROW_CHUNKS).next_multiple_of(rows_per_block);
        let rows =
            output_slice(y, rows * pixels * channels).par_chunks(self, cost, rows_per_chunk * len, |i, mut y| {
                let (mut row, mut block, mut compute_row) =
                    (epilogue.new_accumulator(), self.workspace(rows_per_block * len), make_worker());
                for (first, start) in
                    (i * rows_per_chunk..).step_by(rows_per_block).zip((0..y.len()).step_by(rows_per_block * len))
                {
                    let end = y.len().min(start + rows_per_block * len);
                    let block = &mut block[..end - start];
                    (first..).zip(block.chunks_exact_mut(len)).for_each(|(r, row)| compute_row(r, row));
                    if let Some(bias) = &bias {
                        for pixel in block.chunks_exact_mut(channels) {
                            pixel.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
                        }
                    }
                    epilogue.finish_block(block, y.range(start..end), &mut row);
                }
                row
            });
        report_stats(&epilogue, &rows, |row| table.merge(to, row));
    }
}

/// Returns the first `len` elements of a destination of floats.
pub fn output_slice(y: &mut Memory, len: usize) -> OutputSlice<'_> {
    match y {
        Memory::F32(y) => OutputSlice::F32(&mut y[..len]),
        Memory::F16(y) => OutputSlice::F16(&mut y[..len]),
        other => panic!("{:?} as a destination of floats", gradscale_core::backend::Buffer::dtype(other)),
    }
}

/// Merges the statistics of all chunks in order and passes them to `then`, unless nothing is observed.
pub fn report_stats<'a>(
    epilogue: &Epilogue, rows: impl IntoIterator<Item = &'a StatsAccumulator>, then: impl FnOnce(&Stats),
) {
    if epilogue.detail != Detail::None {
        then(&merge_stats(epilogue, rows));
    }
}

/// Merges the statistics of all chunks, in order, to one row.
pub fn merge_stats<'a>(epilogue: &Epilogue, rows: impl IntoIterator<Item = &'a StatsAccumulator>) -> Stats {
    let mut all = epilogue.new_accumulator();
    rows.into_iter().for_each(|row| all.merge(row));
    all.stats()
}
