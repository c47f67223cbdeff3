//! Sums by channel: over all pixels, or over those of one image, where groups of channels are then added up. Sums are
//! f64, over parts whose size depends on the shape alone.

use super::shape::Shape;
use crate::{Cpu, broadcast::Pattern, epilogue::BLOCK_ELEMENTS, threading::Cost};

/// Pixels of a part.
const PART: usize = 1 << 14;

/// Sums of some quantities.
pub struct Sums<const N: usize> {
    /// Of each channel, over everything.
    pub channels: [Vec<f64>; N],
    /// Of each group, with a factor for each channel.
    groups: [Vec<f64>; N],
}

/// What adds the terms of N sums.
pub trait Add<const N: usize>: Fn(usize, usize, [&mut [f32]; N]) + Sync {}

impl<const N: usize, F: Fn(usize, usize, [&mut [f32]; N]) + Sync> Add<N> for F {}

impl<const N: usize> Sums<N> {
    fn new(channels: usize) -> Self {
        Self { channels: [(); N].map(|()| vec![0.0; channels]), groups: [const { Vec::new() }; N] }
    }

    /// Means of quantity `which` over groups of n elements.
    #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
    pub fn means(&self, which: usize, n: f64, out: &mut [f32]) {
        out.iter_mut().zip(&self.groups[which]).for_each(|(out, &sum)| *out = (sum / n) as f32);
    }
}

impl Cpu {
    /// Sums some quantities. `add` adds to sums that stand side by side, as in a pattern, what so many elements from one on,
    /// whole pixels, have of them.
    pub(super) fn sums<const N: usize>(&self, shape: Shape, factors: &[f32], add: impl Add<N>) -> Sums<N> {
        // What is summed by itself, and how much of that makes a part.
        let stretch = if shape.groups.is_some() { shape.image } else { PART }.max(1);
        let (count, together) = (shape.pixels.div_ceil(stretch), (PART / stretch).max(1));
        let all = |part: usize| part * together..count.min((part + 1) * together);
        let pixels = |i: usize| i * stretch..shape.pixels.min((i + 1) * stretch);
        let parts = self.par_map(Cost::elements(shape.pixels * shape.channels), count.div_ceil(together), |part| {
            self.part(shape, factors, all(part).map(pixels), &add)
        });
        let mut all = Sums::new(shape.channels);
        for part in parts {
            for q in 0..N {
                add_up(&mut all.channels[q], &part.channels[q]);
                all.groups[q].extend(&part.groups[q]);
            }
        }
        if shape.groups.is_none() {
            let weighted = |sums: &Vec<f64>| sums.iter().zip(factors).map(|(sum, &f)| sum * f64::from(f)).collect();
            all.groups = all.channels.each_ref().map(weighted);
        }
        all
    }

    /// Sums some stretches of pixels, one after the other.
    fn part<const N: usize>(
        &self, shape: Shape, factors: &[f32], stretches: impl Iterator<Item = core::ops::Range<usize>>,
        add: &impl Add<N>,
    ) -> Sums<N> {
        let channels = shape.channels;
        // Whole pixels at a time; at least one, however wide.
        let block = (BLOCK_ELEMENTS / channels.max(1)).max(1);
        // Sums of few in f32, then f64.
        let wide = Pattern::new(factors).len();
        let mut few = [(); N].map(|()| self.workspace(wide));
        let (mut all, mut here) = (Sums::new(channels), Sums::<N>::new(channels));
        for pixels in stretches {
            here.channels.iter_mut().for_each(|sums| sums.fill(0.0));
            for start in pixels.clone().step_by(block) {
                let len = block.min(pixels.end - start) * channels;
                let mut few = few.each_mut().map(|few| &mut few[..wide.min(len).max(1)]);
                few.iter_mut().for_each(|few| few.fill(0.0));
                add(start * channels, len, few.each_mut().map(|few| &mut **few));
                for (sums, few) in here.channels.iter_mut().zip(&few) {
                    for pixel in few.chunks_exact(channels.max(1)) {
                        sums.iter_mut().zip(pixel).for_each(|(sum, &v)| *sum += f64::from(v));
                    }
                }
            }
            for q in 0..N {
                add_up(&mut all.channels[q], &here.channels[q]);
                let width = shape.groups.map_or(0, |groups| channels / groups);
                if width != 0 {
                    let groups = here.channels[q].chunks(width).zip(factors.chunks(width));
                    all.groups[q].extend(groups.map(|(sums, factors)| self.isa().weighted_sum(sums, factors)));
                }
            }
        }
        all
    }
}

fn add_up(totals: &mut [f64], sums: &[f64]) {
    totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
}
