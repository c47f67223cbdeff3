//! Rows that are normalised by themselves, or groups of their channels: statistics, result and gradient of a few rows at a
//! time, while they are in the cache.

use super::{
    inverses,
    operands::{Operands, either},
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

/// Most parts that rows are divided into.
const PARTS: usize = 64;
/// Least elements of a group: shorter ones are better worked on side by side.
const LEAST: usize = 32;

/// Rows, and how they are cut.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    p: Norm,
    rows: usize,
    channels: usize,
    /// Groups of a row, and their elements.
    groups: usize,
    size: usize,
}

impl Rows {
    /// Of a normalisation that is one of rows.
    pub fn of(p: &Norm) -> Option<Self> {
        let [n, h, w, channels] = p.x().map(|size| size as usize);
        let NormOver::Group(groups) = p.over() else { return None };
        let rows = Self { p: *p, rows: n, channels, groups: groups as usize, size: channels / groups as usize };
        (h * w == 1 && rows.size >= LEAST).then_some(rows)
    }

    /// Rows that are worked on at a time.
    fn together(&self) -> usize {
        (BLOCK_ELEMENTS / self.channels).max(1)
    }

    /// Elements of a part.
    fn part(&self) -> usize {
        self.rows.div_ceil(PARTS).next_multiple_of(self.together()) * self.channels
    }

    fn len(&self) -> usize {
        self.rows * self.channels
    }

    /// The places of a few rows at a time, in a part of so many elements.
    fn blocks(self, len: usize) -> impl Iterator<Item = core::ops::Range<usize>> {
        let block = self.together() * self.channels;
        (0..len).step_by(block).map(move |start| start..len.min(start + block))
    }
}

impl Cpu {
    /// Means and variances are those of `saved` if they are given, else they become it.
    pub(super) fn norm_rows(&self, rows: Rows, x: &Memory, affine: [&[f32]; 2], saved: &mut [f32], y: Store<'_, Self>) {
        let (isa, Rows { p, size, .. }) = (self.isa(), rows);
        let epilogue = Epilogue::from_store(&y, isa);
        let Store { y, table, to, .. } = y;
        let (cost, all) = (Cost::elements(rows.len()), rows.rows * rows.groups);
        let parts: Vec<(StatsAccumulator, [Vec<f32>; 2])> =
            output_slice(y, rows.len()).par_chunks(self, cost, rows.part(), |i, mut y| {
                let (mut seen, mut block) =
                    (epilogue.new_accumulator(), self.workspace(rows.together() * rows.channels));
                let (from, count) = (i * rows.part() / size, y.len() / size);
                let mut numbers = [0, all].map(|which| saved[which + from..][..count].to_vec());
                for range in rows.blocks(y.len()) {
                    let groups = range.start / size..range.end / size;
                    let block = &mut block[..range.len()];
                    let [means, variances] = numbers.each_mut().map(|numbers| &mut numbers[groups.clone()]);
                    either!(Operands::new(self, [x], i * rows.part() + range.start, range.len()), x => {
                        if !p.is_given() {
                            means.fill(0.0);
                            if p.is_centered() {
                                isa.row_means(x[0], size, means);
                            }
                            isa.row_variances(x[0], size, means, variances);
                        }
                        isa.normalise_rows(x[0], size, [means, &inverses(variances, p.eps())], affine, block);
                    });
                    epilogue.finish_block(block, y.range(range), &mut seen);
                }
                (seen, numbers)
            });
        let (mut seen, mut first) = (Vec::with_capacity(parts.len()), 0);
        for (row, numbers) in parts {
            let count = numbers[0].len();
            for (which, numbers) in [0, all].into_iter().zip(numbers) {
                saved[which + first..][..count].copy_from_slice(&numbers);
            }
            first += count;
            seen.push(row);
        }
        report_stats(&epilogue, &seen, |row| table.merge(to, row));
    }

    /// Stores the gradient; returns Σ dy and Σ dy · x̂ of each channel.
    pub(super) fn norm_rows_vjp(
        &self, rows: Rows, x: NormSaved<&Memory>, dy: &Memory, dx: Store<'_, Self>, scale: &[f32],
    ) -> [Vec<f64>; 2] {
        let (isa, Rows { p, size, channels, .. }) = (self.isa(), rows);
        let epilogue = Epilogue::from_store(&dx, isa);
        let Store { y, table, to, .. } = dx;
        let (cost, all) = (Cost::elements(rows.len()), rows.rows * rows.groups);
        let (means, variances) = x.saved.f32()[..2 * all].split_at(all);
        let parts: Vec<(StatsAccumulator, [Vec<f64>; 2])> =
            output_slice(y, rows.len()).par_chunks(self, cost, rows.part(), |i, mut y| {
                let (mut seen, mut sums) = (epilogue.new_accumulator(), [(); 2].map(|()| vec![0f64; channels]));
                let mut block = self.workspace(rows.together() * channels);
                let mut few = [(); 2].map(|()| self.workspace(channels));
                let [mut plain, mut weighted] = [(); 2].map(|()| vec![0f32; rows.together() * rows.groups]);
                for range in rows.blocks(y.len()) {
                    let start = i * rows.part() + range.start;
                    let block = &mut block[..range.len()];
                    let groups = start / size..(start + range.len()) / size;
                    let (means, inverses) = (&means[groups.clone()], inverses(&variances[groups], p.eps()));
                    either!(Operands::new(self, [x.x, dy], start, range.len()), x => {
                        few.iter_mut().for_each(|few| few.fill(0.0));
                        let (out, sums) = ([&mut plain[..], &mut weighted[..]], few.each_mut().map(|few| &mut **few));
                        isa.row_gradients(x, size, [means, &inverses], scale, out, sums);
                        if p.is_given() {
                            weighted.fill(0.0);
                        }
                        if p.is_given() || !p.is_centered() {
                            plain.fill(0.0);
                        }
                        isa.normalise_rows_vjp(x, size, [means, &inverses, &plain, &weighted], scale, block);
                    });
                    for (sums, few) in sums.iter_mut().zip(&few) {
                        sums.iter_mut().zip(&**few).for_each(|(sum, &few)| *sum += f64::from(few));
                    }
                    epilogue.finish_block(block, y.range(range), &mut seen);
                }
                (seen, sums)
            });
        let mut totals = [(); 2].map(|()| vec![0f64; channels]);
        let mut seen = Vec::with_capacity(parts.len());
        for (row, sums) in parts {
            for (totals, sums) in totals.iter_mut().zip(&sums) {
                totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
            }
            seen.push(row);
        }
        report_stats(&epilogue, &seen, |row| table.merge(to, row));
        totals
    }
}
