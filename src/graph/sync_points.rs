//! Synchronisation points of a program: where ranks combine batch statistics, or a bucket of gradients is complete.

use super::{Buf, Fixed, Part, Program, Purpose};
use std::{collections::HashMap, ops::Range};

/// What of a program is for other ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Joint {
    /// Whether batch norm is over the batches of all of them.
    pub world: bool,
    /// How many weights, at least, travel together while the backward pass goes on; none where all do behind it.
    pub together: Option<usize>,
}

/// Why a program stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The gradients of this bucket are there.
    Bucket(usize),
    /// Ranks meet, at this one of the program's.
    Meet(usize),
}

/// A place between launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    /// The launch before which it is.
    pub before: usize,
    pub why: Why,
}

/// Weights whose gradients travel together, in the order in which they are there, and the launch before which they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub before: usize,
    pub weights: Vec<usize>,
}

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

impl Program {
    /// How many stretches of launches there are: one more than stops.
    pub const fn stretches(&self) -> usize {
        self.stops.len() + 1
    }

    /// The launches of a stretch.
    pub fn stretch(&self, stretch: usize) -> Range<usize> {
        let before = |stop: &Stop| stop.before;
        let start = stretch.checked_sub(1).and_then(|last| self.stops.get(last)).map_or(0, before);
        start..self.stops.get(stretch).map_or(self.launches.len(), before)
    }

    /// Divides gradients into buckets of at least so many values, if they are to travel so, and says where to stop.
    pub(super) fn place_stops(&mut self, len: impl Fn(usize) -> usize) {
        if let (Some(least), Purpose::Train { later: false }) = (self.joint.together, self.purpose) {
            self.buckets = buckets(self.complete(), least, len);
        }
        // The last ones are there when the program is over.
        let ahead = self.buckets.iter().take(self.buckets.len().saturating_sub(1));
        let buckets = ahead.enumerate().map(|(i, bucket)| Stop { before: bucket.before, why: Why::Bucket(i) });
        let meets = self.meets.iter().enumerate().map(|(i, meet)| Stop { before: meet.before, why: Why::Meet(i) });
        self.stops = buckets.chain(meets).collect();
        self.stops.sort_by_key(|stop| stop.before);
    }

    /// Behind which launch the gradient of each weight is complete, in that order.
    fn complete(&self) -> Vec<(usize, usize)> {
        let gradient = |&id: &usize| (Fixed::part(id, Part::Gradient), id);
        let weights: HashMap<Buf, usize> = self.contributes.iter().map(gradient).collect();
        let mut last: HashMap<usize, usize> = HashMap::new();
        for (at, launch) in self.launches.iter().enumerate() {
            last.extend(launch.buffers().iter().filter_map(|buf| weights.get(buf)).map(|&id| (id, at)));
        }
        let mut complete: Vec<_> = last.into_iter().map(|(id, at)| (at, id)).collect();
        complete.sort_unstable();
        complete
    }
}

fn buckets(complete: Vec<(usize, usize)>, least: usize, len: impl Fn(usize) -> usize) -> Vec<Bucket> {
    let mut all: Vec<Bucket> = Vec::new();
    let mut room = 0;
    for (at, id) in complete {
        match all.last_mut().filter(|_| room > 0) {
            Some(bucket) => {
                bucket.weights.push(id);
                bucket.before = at + 1;
            }
            None => {
                room = least;
                all.push(Bucket { before: at + 1, weights: vec![id] });
            }
        }
        room = room.saturating_sub(len(id));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_full_and_in_order() {
        let complete = vec![(3, 7), (3, 9), (5, 2), (8, 1), (8, 4)];
        let of = |least| {
            let all = buckets(complete.clone(), least, |id| if id == 2 { 100 } else { 10 });
            all.into_iter().map(|bucket| (bucket.before, bucket.weights)).collect::<Vec<_>>()
        };
        assert_eq!(of(20), [(4, vec![7, 9]), (6, vec![2]), (9, vec![1, 4])]);
        assert_eq!(of(21), [(6, vec![7, 9, 2]), (9, vec![1, 4])]);
        assert_eq!(of(1), [(4, vec![7]), (4, vec![9]), (6, vec![2]), (9, vec![1]), (9, vec![4])]);
        assert_eq!(of(1000), [(9, vec![7, 9, 2, 1, 4])]);
        assert!(buckets(Vec::new(), 5, |_| 1).is_empty());
    }
}
