//! Rounding to formats of blocks, whose values have an exponent of their own.

use crate::{
    Cpu, Memory,
    elementwise::load_f32,
    epilogue::{BLOCK_ELEMENTS, Block, Epilogue, OutputSlice, output_slice, report_stats},
    threading::Cost,
};
use gradscale_core::{
    backend::{DType, Store},
    block_format::BlockFormat,
    scale::Factor,
};

/// Maximum number of chunks of rows, which run in parallel.
const MAX_CHUNKS: usize = 128;

impl Cpu {
    pub(crate) fn run_round_blocks(
        &self, format: BlockFormat, [rows, columns]: [usize; 2], x: &Memory, y: Store<'_, Self>,
    ) {
        let (len, isa) = (rows * columns, self.isa());
        if len == 0 {
            return;
        }
        let epilogue = Epilogue::from_store(&y, isa).in_format(format.format());
        let Store { y, table, to, .. } = y;
        // Several short rows are rounded together. A part of a long row begins with a block, because sizes of blocks divide
        // BLOCK_ELEMENTS.
        let rows_together = (BLOCK_ELEMENTS / columns).max(1);
        let chunk = rows.div_ceil(MAX_CHUNKS).next_multiple_of(rows_together) * columns;
        let work = |i: usize, y: OutputSlice<'_>| {
            let OutputSlice::F32(y) = y else { panic!("{:?} as a destination of blocks", DType::F16) };
            let (mut row, mut block, mut exponents) = (epilogue.new_accumulator(), Block::ZERO, Vec::new());
            let mut start = i * chunk;
            for rows in y.chunks_mut(rows_together * columns) {
                for y in rows.chunks_mut(BLOCK_ELEMENTS) {
                    let values = block.first(y.len());
                    load_f32(isa, x, start, values);
                    epilogue.scale_and_add(values, &OutputSlice::F32(&mut *y));
                    scale_blocks(format, columns, values, &mut exponents);
                    epilogue.observe_and_round(values, &mut row);
                    y.copy_from_slice(values);
                    unscale_blocks(format, columns, y, &exponents);
                    start += y.len();
                }
            }
            row
        };
        let rows = output_slice(y, len).par_chunks(self, Cost::elements(len), chunk, work);
        report_stats(&epilogue, &rows, |row| table.merge(to, row));
    }
}

/// Divides values into the blocks of their rows. A slice begins with a block, and has whole rows or a part of one.
fn blocks(format: BlockFormat, columns: usize, values: &mut [f32]) -> impl Iterator<Item = &mut [f32]> {
    values.chunks_mut(columns).flat_map(move |row| row.chunks_mut(format.size() as usize))
}

/// Brings values to the exponents of their blocks, and returns these in `exponents`.
fn scale_blocks(format: BlockFormat, columns: usize, values: &mut [f32], exponents: &mut Vec<i32>) {
    exponents.clear();
    for block in blocks(format, columns, values) {
        let exponent = format.exponent(block);
        exponents.push(exponent);
        block.iter_mut().for_each(|u| *u = format.scaled(exponent, *u));
    }
}

/// Brings rounded values back to the exponent of the store.
fn unscale_blocks(format: BlockFormat, columns: usize, values: &mut [f32], exponents: &[i32]) {
    for (block, &exponent) in blocks(format, columns, values).zip(exponents) {
        let factor = Factor::between(0, exponent);
        block.iter_mut().for_each(|value| *value = factor.apply(*value));
    }
}
