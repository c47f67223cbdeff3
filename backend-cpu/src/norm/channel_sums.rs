//! Sums by channel: over all pixels, or over those of one image, whose groups of channels are then added. Sums are f64,
//! over chunks whose size depends on the shape alone.

use super::shape::NormShape;
use crate::{Cpu, broadcast::BroadcastBuffer, epilogue::BLOCK_ELEMENTS, threading::Cost};

/// Approximate number of pixels of a chunk that one task sums.
const CHUNK_PIXELS: usize = 1 << 14;

/// Sums of N quantities of a normalisation, by channel and by group.
pub struct ChannelSums<const N: usize> {
    /// Sums of each quantity over all pixels, by channel.
    pub channels: [Vec<f64>; N],
    /// Sums of each quantity by group, with its channels multiplied by their factors.
    groups: [Vec<f64>; N],
}

/// Function that adds the terms of a block of elements to N buffers of f32 sums.
pub trait AddTerms<const N: usize>: Fn(usize, usize, [&mut [f32]; N]) + Sync {}

impl<const N: usize, F: Fn(usize, usize, [&mut [f32]; N]) + Sync> AddTerms<N> for F {}

impl<const N: usize> ChannelSums<N> {
    fn new(channels: usize) -> Self {
        Self { channels: [(); N].map(|()| vec![0.0; channels]), groups: [const { Vec::new() }; N] }
    }

    /// Computes the means of quantity `which` over groups of n elements.
    #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
    pub fn means(&self, which: usize, n: f64, out: &mut [f32]) {
        out.iter_mut().zip(&self.groups[which]).for_each(|(out, &sum)| *out = (sum / n) as f32);
    }
}

impl Cpu {
    /// Sums N quantities. `add` receives first element and length of a block of whole pixels, and adds their terms to
    /// f32 sums laid out as in a [`BroadcastBuffer`].
    pub(super) fn channel_sums<const N: usize>(
        &self, shape: NormShape, factors: &[f32], add: impl AddTerms<N>,
    ) -> ChannelSums<N> {
        // A segment is summed by itself: the pixels of an image, or of a chunk.
        let segment_pixels = if shape.groups.is_some() { shape.image } else { CHUNK_PIXELS }.max(1);
        let (count, segments_per_chunk) =
            (shape.pixels.div_ceil(segment_pixels), (CHUNK_PIXELS / segment_pixels).max(1));
        let chunk_segments = |chunk: usize| chunk * segments_per_chunk..count.min((chunk + 1) * segments_per_chunk);
        let pixels = |i: usize| i * segment_pixels..shape.pixels.min((i + 1) * segment_pixels);
        let chunks =
            self.par_map(Cost::elements(shape.pixels * shape.channels), count.div_ceil(segments_per_chunk), |chunk| {
                self.sum_segments(shape, factors, chunk_segments(chunk).map(pixels), &add)
            });
        let mut totals = ChannelSums::new(shape.channels);
        for chunk in chunks {
            for q in 0..N {
                add_to(&mut totals.channels[q], &chunk.channels[q]);
                totals.groups[q].extend(&chunk.groups[q]);
            }
        }
        if shape.groups.is_none() {
            let weighted = |sums: &Vec<f64>| sums.iter().zip(factors).map(|(sum, &f)| sum * f64::from(f)).collect();
            totals.groups = totals.channels.each_ref().map(weighted);
        }
        totals
    }

    /// Sums N quantities over segments of pixels, one segment after the other.
    fn sum_segments<const N: usize>(
        &self, shape: NormShape, factors: &[f32], segments: impl Iterator<Item = core::ops::Range<usize>>,
        add: &impl AddTerms<N>,
    ) -> ChannelSums<N> {
        let channels = shape.channels;
        // At least one whole pixel, however many channels it has.
        let block = (BLOCK_ELEMENTS / channels.max(1)).max(1);
        // Sums of a block in f32, then in f64.
        let buffer_len = BroadcastBuffer::new(factors).len();
        let mut partial_f32 = [(); N].map(|()| self.workspace(buffer_len));
        let (mut totals, mut segment_sums) = (ChannelSums::new(channels), ChannelSums::<N>::new(channels));
        for pixels in segments {
            segment_sums.channels.iter_mut().for_each(|sums| sums.fill(0.0));
            for start in pixels.clone().step_by(block) {
                let len = block.min(pixels.end - start) * channels;
                let mut partial_f32 =
                    partial_f32.each_mut().map(|partial_f32| &mut partial_f32[..buffer_len.min(len).max(1)]);
                partial_f32.iter_mut().for_each(|partial_f32| partial_f32.fill(0.0));
                add(start * channels, len, partial_f32.each_mut().map(|partial_f32| &mut **partial_f32));
                for (sums, partial_f32) in segment_sums.channels.iter_mut().zip(&partial_f32) {
                    for pixel in partial_f32.chunks_exact(channels.max(1)) {
                        sums.iter_mut().zip(pixel).for_each(|(sum, &v)| *sum += f64::from(v));
                    }
                }
            }
            for q in 0..N {
                add_to(&mut totals.channels[q], &segment_sums.channels[q]);
                let width = shape.groups.map_or(0, |groups| channels / groups);
                if width != 0 {
                    let groups = segment_sums.channels[q].chunks(width).zip(factors.chunks(width));
                    totals.groups[q].extend(groups.map(|(sums, factors)| self.isa().weighted_sum(sums, factors)));
                }
            }
        }
        totals
    }
}

fn add_to(totals: &mut [f64], sums: &[f64]) {
    totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
}
