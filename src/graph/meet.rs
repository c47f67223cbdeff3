//! What ranks put together where they meet: what each knows of its own batch.

use super::Buf;

/// Ranks meet at a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Meet {
    /// The launch before which they do.
    pub before: usize,
    /// The node that it is of.
    pub node: usize,
    pub channels: usize,
    /// Values of each channel in the batch of this rank.
    pub count: Count,
    pub known: Known,
}

/// A number of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Count {
    Of(u32),
    /// As f32 on the device: it depends on the batch.
    At(Buf),
}

/// What each rank knows, and what comes of it. f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Known {
    /// Means and biased variances, `[2, channels]`: those over all ranks take their place; and another place takes them
    /// with unbiased variances.
    Moments { biased: Buf, unbiased: Option<Buf> },
    /// Two sums of each channel: minus their means over the values of all ranks take their place.
    Sums([Buf; 2]),
}

impl Meet {
    /// All buffers that are read or written.
    pub fn buffers(&mut self) -> impl Iterator<Item = &mut Buf> {
        let count = match &mut self.count {
            Count::Of(_) => None,
            Count::At(buf) => Some(buf),
        };
        let known = match &mut self.known {
            Known::Moments { biased, unbiased } => [Some(biased), unbiased.as_mut()],
            Known::Sums([first, second]) => [Some(first), Some(second)],
        };
        count.into_iter().chain(known.into_iter().flatten())
    }
}
