//! Histogram of label values.

use std::collections::BTreeMap;

/// Number of occurrences of a label value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    /// Number of pixels that have the value.
    pub area: u64,
    /// Number of these whose four neighbours have it too. In smoothed edges and noise there are none.
    pub inner: u64,
    /// Number of pixels of all images that contain the value.
    pub within: u64,
    /// Index of the first image that contains the value.
    pub first: usize,
}

/// Number of occurrences of each label value in some images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally(pub BTreeMap<u32, Count>);

impl Tally {
    /// Counts label values without a place, all of them as inner ones.
    pub fn count(values: impl Iterator<Item = u32>) -> Self {
        Self::count_runs(values.map(|value| (value, true)))
    }

    /// Counts the label values of one image with rows of `width`.
    pub fn count_image(values: &[u32], width: usize) -> Self {
        let width = width.max(1);
        let same = |value: u32, at: Option<usize>| at.and_then(|at| values.get(at)).is_none_or(|other| *other == value);
        Self::count_runs(values.iter().enumerate().map(|(at, &value)| {
            let column = at % width;
            let beside = [at.checked_sub(1).filter(|_| column > 0), Some(at + 1).filter(|_| column + 1 < width)];
            let above = [at.checked_sub(width), at.checked_add(width)];
            (value, beside.into_iter().chain(above).all(|at| same(value, at)))
        }))
    }

    /// Counts values and how many of them are inner ones.
    fn count_runs(values: impl Iterator<Item = (u32, bool)>) -> Self {
        let (mut counts, mut pixels) = (BTreeMap::<u32, [u64; 2]>::new(), 0);
        let mut add = |value: u32, run: [u64; 2]| {
            let sums = counts.entry(value).or_default();
            sums.iter_mut().zip(run).for_each(|(sum, more)| *sum += more);
        };
        // Neighbours are mostly alike.
        let mut run: Option<(u32, [u64; 2])> = None;
        for (value, inner) in values {
            pixels += 1;
            let one = [1, u64::from(inner)];
            match &mut run {
                Some((same, sums)) if *same == value => sums.iter_mut().zip(one).for_each(|(sum, more)| *sum += more),
                _ => {
                    if let Some((value, sums)) = run.replace((value, one)) {
                        add(value, sums);
                    }
                }
            }
        }
        if let Some((value, sums)) = run {
            add(value, sums);
        }
        let count = |[area, inner]: [u64; 2]| Count { area, inner, within: pixels, first: 0 };
        Self(counts.into_iter().map(|(value, sums)| (value, count(sums))).collect())
    }

    /// Adds the counts of the image with index `image`.
    pub fn add(&mut self, image: usize, counts: &Self) {
        for (value, count) in &counts.0 {
            let sum = self.0.entry(*value).or_insert(Count { area: 0, inner: 0, within: 0, first: image });
            sum.area += count.area;
            sum.inner += count.inner;
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
        let count = |area, within, first| Count { area, inner: area, within, first };
        let expected = [(0, count(3, 8, 0)), (5, count(3, 4, 0)), (9, count(2, 4, 1))];
        assert_eq!(tally.0, expected.into());
        assert_eq!((tally.pixels(), Tally::count([].into_iter())), (8, Tally::default()));
    }

    #[test]
    fn inner_pixels_have_equal_neighbours() {
        // A block of 3 × 2 at the edge and a line, as in a smoothed border.
        let tally = Tally::count_image(&[1, 1, 7, 0, 1, 1, 7, 0, 1, 1, 7, 0], 4);
        let inner: Vec<(u32, [u64; 2])> =
            tally.0.iter().map(|(value, count)| (*value, [count.area, count.inner])).collect();
        assert_eq!(inner, [(0, [3, 0]), (1, [6, 3]), (7, [3, 0])]);
    }
}
