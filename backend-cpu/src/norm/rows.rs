//! Layer normalisation: rows, or groups of their channels, each normalised by itself. Statistics, result and gradient
//! of a few rows are computed while these are in cache.

use super::{
    inverses,
    operands::{Operands, with_operands},
};
use crate::{
    Cpu, Memory,
    epilogue::{BLOCK_ELEMENTS, Epilogue, output_slice, report_stats},
    stats_accumulator::StatsAccumulator,
    threading::Cost,
};
use gradscale_core::{
    backend::{NormSaved, Store},
    ops::{Norm, NormOver},
};

/// Maximum number of chunks into which the rows are divided.
const MAX_CHUNKS: usize = 64;
/// Minimum number of elements of a group that is normalised as a row. Shorter groups are vectorised across groups
/// instead, by the general code.
const MIN_GROUP_ELEMENTS: usize = 32;

/// Sizes of a normalisation of rows or of groups of their channels.
#[derive(Clone, Copy, Debug)]
pub struct RowNorm {
    p: Norm,
    rows: usize,
    channels: usize,
    /// Number of groups of a row, and of elements of a group.
    groups: usize,
    size: usize,
}

impl RowNorm {
    /// Returns the sizes of a normalisation of rows; `None` for other normalisations.
    pub fn from_norm(p: &Norm) -> Option<Self> {
        let [n, h, w, channels] = p.x().map(|size| size as usize);
        let NormOver::Group(groups) = p.over() else { return None };
        let rows = Self { p: *p, rows: n, channels, groups: groups as usize, size: channels / groups as usize };
        (h * w == 1 && rows.size >= MIN_GROUP_ELEMENTS).then_some(rows)
    }

    /// Returns the number of normalised rows in a block of at most `BLOCK_ELEMENTS` elements, but at least one.
    fn rows_per_block(&self) -> usize {
        (BLOCK_ELEMENTS / self.channels).max(1)
    }

    /// Returns the number of elements of a chunk of rows.
    fn chunk_len(&self) -> usize {
        self.rows.div_ceil(MAX_CHUNKS).next_multiple_of(self.rows_per_block()) * self.channels
    }

    fn len(&self) -> usize {
        self.rows * self.channels
    }

    /// Returns the ranges of the blocks in a chunk of `len` elements.
    fn blocks(self, len: usize) -> impl Iterator<Item = core::ops::Range<usize>> {
        let block = self.rows_per_block() * self.channels;
        (0..len).step_by(block).map(move |start| start..len.min(start + block))
    }
}

impl Cpu {
    /// Normalises and stores. Reads means and variances from `saved` if they are given, otherwise writes them there.
    pub(super) fn norm_rows(
        &self, rows: RowNorm, x: &Memory, affine: [&[f32]; 2], saved: &mut [f32], y: Store<'_, Self>,
    ) {
        let (isa, RowNorm { p, size, .. }) = (self.isa(), rows);
        let epilogue = Epilogue::from_store(&y, isa);
        let Store { y, table, to, .. } = y;
        let (cost, group_count) = (Cost::elements(rows.len()), rows.rows * rows.groups);
        let chunks: Vec<(StatsAccumulator, [Vec<f32>; 2])> =
            output_slice(y, rows.len()).par_chunks(self, cost, rows.chunk_len(), |i, mut y| {
                let (mut stats, mut block) =
                    (epilogue.new_accumulator(), self.workspace(rows.rows_per_block() * rows.channels));
                let (from, count) = (i * rows.chunk_len() / size, y.len() / size);
                let mut channel_params = [0, group_count].map(|which| saved[which + from..][..count].to_vec());
                for range in rows.blocks(y.len()) {
                    let groups = range.start / size..range.end / size;
                    let block = &mut block[..range.len()];
                    let [means, variances] =
                        channel_params.each_mut().map(|channel_params| &mut channel_params[groups.clone()]);
                    with_operands!(Operands::new(self, [x], i * rows.chunk_len() + range.start, range.len()), x => {
                        if !p.is_given() {
                            means.fill(0.0);
                            if p.is_centered() {
                                isa.row_means(x[0], size, means);
                            }
                            isa.row_variances(x[0], size, means, variances);
                        }
                        isa.normalise_rows(x[0], size, [means, &inverses(variances, p.eps())], affine, block);
                    });
                    epilogue.finish_block(block, y.range(range), &mut stats);
                }
                (stats, channel_params)
            });
        let (mut stats, mut first) = (Vec::with_capacity(chunks.len()), 0);
        for (row, channel_params) in chunks {
            let count = channel_params[0].len();
            for (which, channel_params) in [0, group_count].into_iter().zip(channel_params) {
                saved[which + first..][..count].copy_from_slice(&channel_params);
            }
            first += count;
            stats.push(row);
        }
        report_stats(&epilogue, &stats, |row| table.merge(to, row));
    }

    /// Stores the gradient of a normalisation of rows, and returns Σ dy and Σ dy · x̂ of each channel.
    pub(super) fn norm_rows_vjp(
        &self, rows: RowNorm, x: NormSaved<&Memory>, dy: &Memory, dx: Store<'_, Self>, scale: &[f32],
    ) -> [Vec<f64>; 2] {
        let (isa, RowNorm { p, size, channels, .. }) = (self.isa(), rows);
        let epilogue = Epilogue::from_store(&dx, isa);
        let Store { y, table, to, .. } = dx;
        let (cost, group_count) = (Cost::elements(rows.len()), rows.rows * rows.groups);
        let (means, variances) = x.saved.f32()[..2 * group_count].split_at(group_count);
        let chunks: Vec<(StatsAccumulator, [Vec<f64>; 2])> =
            output_slice(y, rows.len()).par_chunks(self, cost, rows.chunk_len(), |i, mut y| {
                let (mut stats, mut sums) = (epilogue.new_accumulator(), [(); 2].map(|()| vec![0f64; channels]));
                let mut block = self.workspace(rows.rows_per_block() * channels);
                let mut partial_f32 = [(); 2].map(|()| self.workspace(channels));
                let [mut plain, mut weighted] = [(); 2].map(|()| vec![0f32; rows.rows_per_block() * rows.groups]);
                for range in rows.blocks(y.len()) {
                    let start = i * rows.chunk_len() + range.start;
                    let block = &mut block[..range.len()];
                    let groups = start / size..(start + range.len()) / size;
                    let (means, inverses) = (&means[groups.clone()], inverses(&variances[groups], p.eps()));
                    with_operands!(Operands::new(self, [x.x, dy], start, range.len()), x => {
                        partial_f32.iter_mut().for_each(|partial_f32| partial_f32.fill(0.0));
                        let (out, sums) = ([&mut plain[..], &mut weighted[..]], partial_f32.each_mut().map(|partial_f32| &mut **partial_f32));
                        isa.row_gradients(x, size, [means, &inverses], scale, out, sums);
                        if p.is_given() {
                            weighted.fill(0.0);
                        }
                        if p.is_given() || !p.is_centered() {
                            plain.fill(0.0);
                        }
                        isa.normalise_rows_vjp(x, size, [means, &inverses, &plain, &weighted], scale, block);
                    });
                    for (sums, partial_f32) in sums.iter_mut().zip(&partial_f32) {
                        sums.iter_mut().zip(&**partial_f32).for_each(|(sum, &partial_f32)| *sum += f64::from(partial_f32));
                    }
                    epilogue.finish_block(block, y.range(range), &mut stats);
                }
                (stats, sums)
            });
        let mut totals = [(); 2].map(|()| vec![0f64; channels]);
        let mut stats = Vec::with_capacity(chunks.len());
        for (row, sums) in chunks {
            for (totals, sums) in totals.iter_mut().zip(&sums) {
                totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
            }
            stats.push(row);
        }
        report_stats(&epilogue, &stats, |row| table.merge(to, row));
        totals
    }
}
