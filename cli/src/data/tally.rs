//! Histogram of label values.

use std::collections::BTreeMap;

/// Number of occurrences of a label value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    /// Number of pixels that have the value.
    pub area: u64,
    /// Number of pixels of all images that contain the value.
    pub within: u64,
    /// Index of the first image that contains the value.
    pub first: usize,
}

/// Number of occurrences of each label value in some images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally(pub BTreeMap<u32, Count>);

impl Tally {
    /// Counts the label values of one image.
    pub fn count(values: impl Iterator<Item = u32>) -> Self {
        let (mut counts, mut pixels) = (BTreeMap::new(), 0);
        // Neighbours are mostly alike.
        let mut run: Option<(u32, u64)> = None;
        for value in values {
            pixels += 1;
            match &mut run {
                Some((same, length)) if *same == value => *length += 1,
                _ => {
                    if let Some((value, length)) = run.replace((value, 1)) {
                        *counts.entry(value).or_insert(0) += length;
                    }
                }
            }
        }
        if let Some((value, length)) = run {
            *counts.entry(value).or_insert(0) += length;
        }
        Self(counts.into_iter().map(|(value, area)| (value, Count { area, within: pixels, first: 0 })).collect())
    }

    /// Adds the counts of the image with index `image`.
    pub fn add(&mut self, image: usize, counts: &Self) {
        for (value, count) in &counts.0 {
            let sum = self.0.entry(*value).or_insert(Count { area: 0, within: 0, first: image });
            sum.area += count.area;
            sum.within += count.within;
        }
    }

    /// Returns the number of pixels that were counted.
    pub fn pixels(&self) -> u64 {
        self.0.values().map(|count| count.area).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let mut tally = Tally::count([5, 5, 0, 5].into_iter());
        tally.add(1, &Tally::count([0, 0, 9, 9].into_iter()));
        let count = |area, within, first| Count { area, within, first };
        let expected = [(0, count(3, 8, 0)), (5, count(3, 4, 0)), (9, count(2, 4, 1))];
        assert_eq!(tally.0, expected.into());
        assert_eq!((tally.pixels(), Tally::count([].into_iter())), (8, Tally::default()));
    }
}
