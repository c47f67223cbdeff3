//! Places of the arena with a search for the smallest one that is free during a live range.
//!
//! A network that runs step by step over a long input has as many values alive at once as steps. A search of all places
//! for each value would take quadratic time. So a binary tree over the places knows in which parts of the program all
//! places below a node are taken, and a search leaves these out.

use std::{
    collections::BTreeMap,
    ops::{Range, RangeInclusive},
};

/// Number of parts of a program. Of places that are taken for many launches a search then looks at those only that
/// become free in the same part, at most one of 512 of a network's steps.
const PARTS: usize = 512;
const WORDS: usize = PARTS / 64;

/// Parts in which all places below a node are taken throughout, a bit for each.
type Mask = [u64; WORDS];

const ALL: Mask = [u64::MAX; WORDS];

/// Places of one type, the largest first.
pub(super) struct FreePlaces {
    /// Live ranges of each place: the end by the start. Ranges of one place do not overlap.
    taken: Vec<BTreeMap<usize, usize>>,
    /// Binary tree over the places: the root is node 1, the children of node n are 2n and 2n + 1, and the last half are
    /// the places. Places that do not exist yet are taken throughout.
    masks: Vec<Mask>,
    /// Number of launches in a part.
    part: usize,
}

impl FreePlaces {
    /// Creates an empty list for a program with so many launches.
    pub(super) fn new(launches: usize) -> Self {
        Self { taken: Vec::new(), masks: vec![ALL; 2], part: (launches + 1).div_ceil(PARTS).max(1) }
    }

    /// Takes the last place that is free during `used`, or adds one. Returns its index.
    pub(super) fn take(&mut self, used: &RangeInclusive<usize>) -> usize {
        let at = self.search(used, &mut 0).unwrap_or_else(|| self.add());
        self.taken[at].insert(*used.start(), *used.end());
        let mut node = self.leaves() + at;
        // The first part that begins in the range, and the first that does not end in it.
        let (first, last) = (used.start().div_ceil(self.part), used.end().saturating_add(1) / self.part);
        set(&mut self.masks[node], first..last.min(PARTS));
        while node > 1 {
            node /= 2;
            let [left, right] = [self.masks[2 * node], self.masks[2 * node + 1]];
            self.masks[node] = std::array::from_fn(|word| left[word] & right[word]);
        }
        at
    }

    /// Returns the last place that is free during `used`; `visited` counts the nodes.
    fn search(&self, used: &RangeInclusive<usize>, visited: &mut usize) -> Option<usize> {
        let mut parts = [0; WORDS];
        set(&mut parts, used.start() / self.part..(used.end() / self.part).min(PARTS - 1) + 1);
        self.search_below(1, &parts, used, visited)
    }

    fn search_below(
        &self, node: usize, parts: &Mask, used: &RangeInclusive<usize>, visited: &mut usize,
    ) -> Option<usize> {
        *visited += 1;
        if self.masks[node].iter().zip(parts).any(|(taken, wanted)| taken & wanted != 0) {
            return None;
        }
        match node.checked_sub(self.leaves()) {
            Some(at) => self.taken.get(at).filter(|taken| is_free(taken, used)).map(|_| at),
            None => {
                [2 * node + 1, 2 * node].into_iter().find_map(|child| self.search_below(child, parts, used, visited))
            }
        }
    }

    /// Adds a place that is free throughout, and returns its index.
    fn add(&mut self) -> usize {
        let at = self.taken.len();
        self.taken.push(BTreeMap::new());
        if at == self.leaves() {
            // A level more: the old root becomes the left child of the new one.
            let mut masks = vec![ALL; 4 * at];
            let mut level = 1;
            while level <= at {
                masks[2 * level..3 * level].copy_from_slice(&self.masks[level..2 * level]);
                level *= 2;
            }
            self.masks = masks;
        }
        let mut node = self.leaves() + at;
        while node > 0 {
            self.masks[node] = [0; WORDS];
            node /= 2;
        }
        at
    }

    /// Returns the number of leaves of the tree.
    fn leaves(&self) -> usize {
        self.masks.len() / 2
    }
}

/// Sets the bits of some parts.
fn set(mask: &mut Mask, parts: Range<usize>) {
    parts.for_each(|part| mask[part / 64] |= 1 << (part % 64));
}

/// Returns true if no live range overlaps `used`. Only the last that starts before its end can, because the others end
/// earlier.
fn is_free(taken: &BTreeMap<usize, usize>, used: &RangeInclusive<usize>) -> bool {
    taken.range(..=*used.end()).next_back().is_none_or(|(_, end)| end < used.start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Random;

    /// Compares with a search of all places.
    #[test]
    fn the_last_free_place_is_taken() {
        for seed in 0..40 {
            let mut random = Random::from_key(&[seed]);
            let launches = 1 + random.below(3000);
            let (mut found, mut right): (FreePlaces, Vec<BTreeMap<usize, usize>>) =
                (FreePlaces::new(launches), Vec::new());
            for _ in 0..400 {
                let start = random.below(launches + 1);
                let length = 1 << random.below(12);
                let end = if random.below(20) == 0 { usize::MAX } else { start + random.below(length) };
                let used = start..=end;
                let at = right.iter().rposition(|taken| is_free(taken, &used)).unwrap_or_else(|| {
                    right.push(BTreeMap::new());
                    right.len() - 1
                });
                right[at].insert(start, end);
                assert_eq!(found.take(&used), at, "seed {seed}, {used:?}");
            }
        }
    }

    /// Values that all live to the end, each followed by one that lives for a launch, need few visits.
    #[test]
    fn a_search_does_not_visit_all_places() {
        let steps = 20_000;
        let mut places = FreePlaces::new(2 * steps);
        let mut visited = 0;
        for step in 0..steps {
            for used in [2 * step..=2 * steps, 2 * step..=2 * step + 1] {
                places.search(&used, &mut visited);
                places.take(&used);
            }
        }
        assert_eq!(places.taken.len(), steps + 1);
        println!("{} visits of a search", visited / (2 * steps));
        assert!(visited / (2 * steps) < 200, "{visited}");
    }
}
