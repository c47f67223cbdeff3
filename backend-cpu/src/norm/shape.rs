//! Extents of a normalisation, and its parameters per channel or group.

use crate::broadcast::BroadcastBuffer;
use core::ops::Range;
use gradscale_core::ops::{Norm, NormOver};

/// Sizes of a normalisation as usize: pixels, channels, groups.
#[derive(Clone, Copy)]
pub struct NormShape {
    pub pixels: usize,
    /// Number of pixels of one image; `pixels` counts those of the whole batch.
    pub image: usize,
    pub channels: usize,
    /// Number of groups of one image; `None` for a normalisation over the batch.
    pub groups: Option<usize>,
}

impl NormShape {
    pub fn new(p: &Norm) -> Self {
        let [n, h, w, c] = p.x().map(|size| size as usize);
        let groups = match p.over() {
            NormOver::Batch => None,
            NormOver::Group(groups) => Some(groups as usize),
        };
        Self { pixels: n * h * w, image: h * w, channels: c, groups }
    }

    pub const fn len(&self) -> usize {
        self.pixels * self.channels
    }

    /// Returns the same sizes with one group for each channel of an image.
    pub const fn per_channel(self) -> Self {
        let groups = if self.groups.is_some() { Some(self.channels) } else { None };
        Self { groups, ..self }
    }

    /// Returns one value for each channel, of every image if groups belong to images. `value` receives the index of the
    /// group among those of all images, and of the channel.
    pub fn map_channels(&self, value: impl Fn(usize, usize) -> f32) -> Vec<f32> {
        let (images, groups) = match self.groups {
            None => (1, self.channels),
            Some(groups) => (self.pixels / self.image.max(1), groups),
        };
        let width = self.channels / groups.max(1);
        let all = (0..images).flat_map(|image| (0..self.channels).map(move |channel| (image, channel)));
        all.map(|(image, channel)| value(image * groups + channel / width, channel)).collect()
    }

    /// Returns the images that a block from element `start` on overlaps, with their ranges in the block.
    fn image_ranges(&self, start: usize, len: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let size = (self.image * self.channels).max(1);
        let images = start / size..(start + len).div_ceil(size);
        images.map(move |i| (i, (i * size).max(start) - start..((i + 1) * size).min(start + len) - start))
    }
}

/// Parameters per channel or per group (mean, 1/σ, scale, …), broadcast over a block.
pub enum ChannelParams<'a, const N: usize> {
    /// Parameters with one value for each channel, the same for all images.
    Channels([BroadcastBuffer; N]),
    /// Parameters with one value for each group of each image.
    Groups(NormShape, usize, [&'a [f32]; N]),
}

impl<'a, const N: usize> ChannelParams<'a, N> {
    /// Creates the parameters from one value for each channel (batch) or group.
    pub fn new(shape: NormShape, channel_params: [&'a [f32]; N]) -> Self {
        match shape.groups {
            None => Self::Channels(channel_params.map(BroadcastBuffer::new)),
            Some(groups) => Self::Groups(shape, groups, channel_params),
        }
    }

    /// Calls `visit` with ranges of a block from element `start` on, and the parameters of their elements.
    pub fn for_each_range(&self, start: usize, len: usize, mut visit: impl FnMut(Range<usize>, [&[f32]; N])) {
        match self {
            Self::Channels(buffers) => visit(0..len, buffers.each_ref().map(|buffer| buffer.starting_at(start))),
            &Self::Groups(shape, groups, channel_params) => {
                let width = shape.channels / groups;
                let mut buffers = [(); N].map(|()| BroadcastBuffer::default());
                for (image, range) in shape.image_ranges(start, len) {
                    for (buffer, channel_params) in buffers.iter_mut().zip(channel_params) {
                        buffer.fill(&channel_params[image * groups..(image + 1) * groups], width, range.len());
                    }
                    visit(range.clone(), buffers.each_ref().map(|buffer| buffer.starting_at(start + range.start)));
                }
            }
        }
    }
}
