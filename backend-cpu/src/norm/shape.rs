//! What is normalised together, and the numbers that its elements meet.

use crate::broadcast::Pattern;
use core::ops::Range;
use gradscale_core::ops::{Norm, NormOver};

/// The numbers of a normalisation, as usize.
#[derive(Clone, Copy)]
pub struct Shape {
    pub pixels: usize,
    /// Pixels of an image.
    pub image: usize,
    pub channels: usize,
    /// Groups of one image; none: over the batch.
    pub groups: Option<usize>,
}

impl Shape {
    pub fn of(p: &Norm) -> Self {
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

    /// The same where each channel of an image has numbers of its own.
    pub const fn apart(self) -> Self {
        let groups = if self.groups.is_some() { Some(self.channels) } else { None };
        Self { groups, ..self }
    }

    /// A number for each channel, of every image if they have groups of their own: made of the indices of the group, among
    /// those of all images, and of the channel.
    pub fn channels(&self, number: impl Fn(usize, usize) -> f32) -> Vec<f32> {
        let (images, groups) = match self.groups {
            None => (1, self.channels),
            Some(groups) => (self.pixels / self.image.max(1), groups),
        };
        let width = self.channels / groups.max(1);
        let all = (0..images).flat_map(|image| (0..self.channels).map(move |channel| (image, channel)));
        all.map(|(image, channel)| number(image * groups + channel / width, channel)).collect()
    }

    /// Images that a block from element `start` on meets, and their places in the block.
    fn images(&self, start: usize, len: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let size = (self.image * self.channels).max(1);
        let images = start / size..(start + len).div_ceil(size);
        images.map(move |i| (i, (i * size).max(start) - start..((i + 1) * size).min(start + len) - start))
    }
}

/// Numbers of channels or groups, as patterns.
pub enum Numbers<'a, const N: usize> {
    /// Of the channels of all images.
    Channels([Pattern; N]),
    /// Of the groups of each image.
    Groups(Shape, usize, [&'a [f32]; N]),
}

impl<'a, const N: usize> Numbers<'a, N> {
    /// Numbers of all that is normalised together.
    pub fn new(shape: Shape, numbers: [&'a [f32]; N]) -> Self {
        match shape.groups {
            None => Self::Channels(numbers.map(Pattern::new)),
            Some(groups) => Self::Groups(shape, groups, numbers),
        }
    }

    /// Calls with places in a block from element `start` on, and the numbers that its elements meet there.
    pub fn each(&self, start: usize, len: usize, mut work: impl FnMut(Range<usize>, [&[f32]; N])) {
        match self {
            Self::Channels(patterns) => work(0..len, patterns.each_ref().map(|pattern| pattern.from(start))),
            &Self::Groups(shape, groups, numbers) => {
                let width = shape.channels / groups;
                let mut patterns = [(); N].map(|()| Pattern::default());
                for (image, range) in shape.images(start, len) {
                    for (pattern, numbers) in patterns.iter_mut().zip(numbers) {
                        pattern.lay_out(&numbers[image * groups..(image + 1) * groups], width, range.len());
                    }
                    work(range.clone(), patterns.each_ref().map(|pattern| pattern.from(start + range.start)));
                }
            }
        }
    }
}
