//! Normalisations.
//!
//! Everything that is summed is summed by channel: over all pixels, or over those of one image, where groups of channels
//! are then added up. Sums are f64, over parts whose size depends on the shape alone.

use crate::{Cpu, Memory, channels::Pattern, elementwise::load, epilogue::BLOCK};
use gradscale_core::{
    backend::{Normed, Store},
    descriptor::{Norm, NormOver},
};
use rayon::prelude::*;

/// Pixels of a part in batch normalisation.
const PART: usize = 1 << 14;

/// The numbers of a normalisation, as usize.
#[derive(Clone, Copy)]
struct Shape {
    pixels: usize,
    /// Pixels of an image.
    image: usize,
    channels: usize,
    /// Groups of one image; none: over the batch.
    groups: Option<usize>,
}

impl Shape {
    fn of(p: &Norm) -> Self {
        let [n, h, w, c] = p.x().map(|size| size as usize);
        let groups = match p.over() {
            NormOver::Batch => None,
            NormOver::Group(groups) => Some(groups as usize),
        };
        Self { pixels: n * h * w, image: h * w, channels: c, groups }
    }

    const fn part(&self) -> usize {
        if self.groups.is_some() { self.image } else { PART }
    }

    /// The group of an element of image `image`, channel `channel`.
    const fn group(&self, image: usize, channel: usize) -> usize {
        match self.groups {
            None => channel,
            Some(groups) => image * groups + channel / (self.channels / groups),
        }
    }

    /// Numbers of channels laid over pixels; none where the numbers of an image are its own.
    fn patterns<const N: usize>(&self, numbers: [&[f32]; N]) -> Option<[Pattern; N]> {
        (self.groups.is_none() && self.channels != 0).then(|| numbers.map(Pattern::new))
    }

    /// Calls with (place in the block, image, channel) of all elements of a block from element `start` on.
    fn each(&self, start: usize, len: usize, mut work: impl FnMut(usize, usize, usize)) {
        if len == 0 {
            return;
        }
        let per_image = self.image * self.channels;
        let (mut image, mut rest) = (start / per_image, start % per_image);
        let mut channel = start % self.channels;
        for i in 0..len {
            work(i, image, channel);
            (channel, rest) = (channel + 1, rest + 1);
            if channel == self.channels {
                channel = 0;
            }
            if rest == per_image {
                (image, rest) = (image + 1, 0);
            }
        }
    }
}

/// Sums by channel of some quantities, for each part.
type Sums<const N: usize> = Vec<[Vec<f64>; N]>;

impl Cpu {
    /// Sums some quantities by channel; `terms` fills blocks with them for the elements from an index on.
    fn by_channel<const N: usize>(&self, shape: Shape, terms: impl Fn(usize, &mut [&mut [f32]; N]) + Sync) -> Sums<N> {
        let (part, channels) = (shape.part().max(1), shape.channels);
        // Whole pixels at a time; at least one, however wide.
        let block = (BLOCK / channels.max(1)).max(1);
        // Sums of few in f32, side by side as in a pattern, then f64.
        let wide = Pattern::new(&vec![0.0; channels.max(1)]).len();
        self.run(|| {
            (0..shape.pixels.div_ceil(part))
                .into_par_iter()
                .map(|i| {
                    let mut sums = [const { Vec::new() }; N].map(|_: Vec<f64>| vec![0f64; channels]);
                    let mut blocks = [(); N].map(|()| self.scratch(block * channels));
                    let mut few = self.scratch(wide);
                    let end = shape.pixels.min((i + 1) * part);
                    for start in (i * part..end).step_by(block) {
                        let len = block.min(end - start) * channels;
                        let mut blocks = blocks.each_mut().map(|block| &mut block[..len]);
                        terms(start * channels, &mut blocks);
                        for (sums, block) in sums.iter_mut().zip(&blocks) {
                            few.fill(0.0);
                            self.isa().add_by_channel(block, &mut few);
                            for pixel in few.chunks_exact(channels.max(1)) {
                                sums.iter_mut().zip(pixel).for_each(|(sum, &v)| *sum += f64::from(v));
                            }
                        }
                    }
                    sums
                })
                .collect()
        })
    }

    pub(crate) fn run_norm(
        &self, p: &Norm, x: &Memory, affine: Option<[&Memory; 2]>, saved: &mut Memory, y: Store<'_, Self>,
    ) {
        let (shape, groups, n) = (Shape::of(p), p.groups() as usize, f64::from(p.size()));
        let saved = &mut saved.f32_mut()[..2 * groups];
        if !p.is_given() {
            let (means, variances) = saved.split_at_mut(groups);
            means.fill(0.0);
            if p.is_centered() {
                let sums = self.by_channel(shape, |start, [values]| load(self.isa(), x, start, values));
                group_sums(&shape, &sums, 0, |_| 1.0, means, n);
            }
            let means = &*means;
            let patterns = shape.patterns([means]);
            let sums = self.by_channel(shape, |start, [values]| {
                load(self.isa(), x, start, values);
                if let Some([means]) = &patterns {
                    return self.isa().squared_distances(values, means.from(start));
                }
                shape.each(start, values.len(), |i, image, channel| {
                    let distance = values[i] - means[shape.group(image, channel)];
                    values[i] = distance * distance;
                });
            });
            group_sums(&shape, &sums, 0, |_| 1.0, variances, n);
        }
        let (means, inverses) = (&saved[..groups], inverses(&saved[groups..], p.eps()));
        let affine = affine.map(|affine| affine.map(Memory::f32));
        let [scale, shift] = affine.map_or([vec![1.0; shape.channels], vec![0.0; shape.channels]], |numbers| {
            numbers.map(|numbers| numbers[..shape.channels].to_vec())
        });
        let patterns = shape.patterns([means, &inverses, &scale, &shift]);
        self.dense(y, shape.pixels * shape.channels, |start, out| {
            load(self.isa(), x, start, out);
            if let Some(patterns) = &patterns {
                return self.isa().normalise(out, patterns.each_ref().map(|pattern| pattern.from(start)));
            }
            shape.each(start, out.len(), |i, image, channel| {
                let group = shape.group(image, channel);
                out[i] = (out[i] - means[group]) * inverses[group] * scale[channel] + shift[channel];
            });
        });
    }

    pub(crate) fn run_norm_vjp(
        &self, p: &Norm, x: Normed<'_, Memory>, dy: &Memory, dx: Store<'_, Self>, affine: Option<[Store<'_, Self>; 2]>,
    ) {
        let (shape, groups, n) = (Shape::of(p), p.groups() as usize, f64::from(p.size()));
        let saved = &x.saved.f32()[..2 * groups];
        let (means, inverses) = (&saved[..groups], inverses(&saved[groups..], p.eps()));
        let scale = x.scale.map_or(vec![1.0; shape.channels], |scale| scale.f32()[..shape.channels].to_vec());
        let factor = |channel: usize| scale[channel];
        let patterns = shape.patterns([means, &inverses]);
        // Σ dy and Σ dy · x̂.
        let sums = self.by_channel(shape, |start, [plain, weighted]| {
            load(self.isa(), dy, start, plain);
            load(self.isa(), x.x, start, weighted);
            if let Some(patterns) = &patterns {
                let patterns = patterns.each_ref().map(|pattern| pattern.from(start));
                return self.isa().weigh(weighted, plain, patterns);
            }
            shape.each(start, plain.len(), |i, image, channel| {
                let group = shape.group(image, channel);
                weighted[i] = plain[i] * ((weighted[i] - means[group]) * inverses[group]);
            });
        });
        let (mut plain, mut weighted) = (vec![0f32; groups], vec![0f32; groups]);
        if !p.is_given() {
            if p.is_centered() {
                group_sums(&shape, &sums, 0, |channel| f64::from(factor(channel)), &mut plain, n);
            }
            group_sums(&shape, &sums, 1, |channel| f64::from(factor(channel)), &mut weighted, n);
        }
        let patterns = shape.patterns([means, &inverses, &scale, &plain, &weighted]);
        self.dense(dx, shape.pixels * shape.channels, |start, out| {
            load(self.isa(), dy, start, out);
            let mut values = [0f32; BLOCK];
            let values = &mut values[..out.len()];
            load(self.isa(), x.x, start, values);
            if let Some(patterns) = &patterns {
                let patterns = patterns.each_ref().map(|pattern| pattern.from(start));
                return self.isa().normalise_vjp(out, values, patterns);
            }
            shape.each(start, out.len(), |i, image, channel| {
                let group = shape.group(image, channel);
                let normal = (values[i] - means[group]) * inverses[group];
                out[i] = (out[i] * factor(channel) - plain[group] - normal * weighted[group]) * inverses[group];
            });
        });
        if let Some([scale, shift]) = affine {
            // dscale = Σ dy · x̂, dshift = Σ dy, over everything.
            for (store, which) in [(scale, 1), (shift, 0)] {
                let total = |channel: usize| sums.iter().map(|part| part[which][channel]).sum::<f64>();
                #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
                let totals: Vec<f32> = (0..shape.channels).map(|channel| total(channel) as f32).collect();
                self.dense(store, shape.channels, |start, out| out.copy_from_slice(&totals[start..start + out.len()]));
            }
        }
    }
}

/// Adds parts, in order, to the groups they belong to, with a factor for each channel, and divides.
#[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
fn group_sums<const N: usize>(
    shape: &Shape, sums: &Sums<N>, which: usize, factor: impl Fn(usize) -> f64, out: &mut [f32], n: f64,
) {
    let mut totals = vec![0f64; out.len()];
    for (part, sums) in sums.iter().enumerate() {
        for (channel, &sum) in sums[which].iter().enumerate() {
            totals[shape.group(part, channel)] += sum * factor(channel);
        }
    }
    out.iter_mut().zip(totals).for_each(|(out, total)| *out = (total / n) as f32);
}

fn inverses(variances: &[f32], eps: f32) -> Vec<f32> {
    variances.iter().map(|&variance| 1.0 / (variance + eps).sqrt()).collect()
}
