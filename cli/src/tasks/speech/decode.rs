//! From logits of characters to text: the likeliest alignment, or the likeliest text.

use std::collections::{BTreeMap, HashMap};

/// Number of prefixes that beam search keeps from one step to the next.
pub const BEAM: usize = 16;

/// Returns the log probabilities of a step's characters, the blank first.
fn logarithms(logits: &[f32]) -> Vec<f64> {
    let most = logits.iter().fold(f64::NEG_INFINITY, |most, &x| most.max(f64::from(x)));
    let sum = logits.iter().map(|&x| (f64::from(x) - most).exp()).sum::<f64>().ln();
    logits.iter().map(|&x| f64::from(x) - most - sum).collect()
}

/// Decodes greedily: takes the likeliest character of each step, merges repetitions and drops blanks. Characters count
/// from 1; `logits` has `characters` values per step.
pub fn greedy(logits: &[f32], characters: usize) -> Vec<usize> {
    let best = |step: &[f32]| {
        let wins = |best: usize, (i, &x): (usize, &f32)| if x > step[best] { i } else { best };
        step.iter().enumerate().fold(0, wins)
    };
    let mut said: Vec<usize> = logits.chunks_exact(characters.max(1)).map(best).collect();
    said.dedup();
    said.retain(|&character| character != 0);
    said
}

/// Log probabilities that all alignments so far produce a prefix: with a blank at the end, and with its last character
/// at the end.
#[derive(Clone, Copy)]
struct Beginning {
    blank: f64,
    letter: f64,
}

const IMPOSSIBLE: Beginning = Beginning { blank: f64::NEG_INFINITY, letter: f64::NEG_INFINITY };

impl Beginning {
    fn sum(self) -> f64 {
        add(self.blank, self.letter)
    }
}

/// Adds two probabilities given as logarithms: ln(e^a + e^b).
fn add(a: f64, b: f64) -> f64 {
    let most = a.max(b);
    if most == f64::NEG_INFINITY { most } else { most + ((a - most).exp() + (b - most).exp()).ln() }
}

/// Number of the empty text among the prefixes of a beam search.
const EMPTY: usize = 0;

/// Prefixes that beam search has kept. A prefix is stored as the number of the prefix before its last character, and
/// that character. A step then takes the same time after any number of characters; whole texts would make the search
/// quadratic.
struct Prefixes {
    all: Vec<(usize, usize)>,
    known: HashMap<(usize, usize), usize>,
}

impl Prefixes {
    /// Creates the set of the empty prefix, whose last character is the blank.
    fn new() -> Self {
        Self { all: vec![(EMPTY, 0)], known: HashMap::from([((EMPTY, 0), EMPTY)]) }
    }

    /// Returns the number of a prefix, which is new or was kept before.
    fn number(&mut self, prefix: (usize, usize)) -> usize {
        *self.known.entry(prefix).or_insert_with(|| {
            self.all.push(prefix);
            self.all.len() - 1
        })
    }

    /// Returns the characters of a prefix in order.
    fn characters(&self, mut prefix: usize) -> Vec<usize> {
        let mut text = Vec::new();
        while prefix != EMPTY {
            let (before, last) = self.all[prefix];
            text.push(last);
            prefix = before;
        }
        text.reverse();
        text
    }
}

/// Returns the most likely text over all alignments that produce it: prefix beam search (Graves et al. 2006, section
/// 3.2; Hannun et al. 2014), which keeps `width` prefixes. Characters are numbered from 1.
pub fn beam(logits: &[f32], characters: usize, width: usize) -> Vec<usize> {
    let mut prefixes = Prefixes::new();
    let mut kept = vec![(EMPTY, Beginning { blank: 0.0, ..IMPOSSIBLE })];
    for step in logits.chunks_exact(characters.max(1)) {
        let log = logarithms(step);
        let mut next: BTreeMap<(usize, usize), Beginning> = BTreeMap::new();
        for &(prefix, beginning) in &kept {
            let (before, last) = prefixes.all[prefix];
            let same = next.entry((before, last)).or_insert(IMPOSSIBLE);
            same.blank = add(same.blank, beginning.sum() + log[0]);
            if prefix != EMPTY {
                same.letter = add(same.letter, beginning.letter + log[last]);
            }
            for (character, log) in log.iter().enumerate().skip(1) {
                // The same character again is a new one only after a blank.
                let from = if last == character { beginning.blank } else { beginning.sum() };
                let longer = next.entry((prefix, character)).or_insert(IMPOSSIBLE);
                longer.letter = add(longer.letter, from + log);
            }
        }
        let mut best: Vec<_> = next.into_iter().collect();
        best.sort_by(|(_, a), (_, b)| b.sum().total_cmp(&a.sum()));
        best.truncate(width.max(1));
        kept = best.into_iter().map(|(prefix, beginning)| (prefixes.number(prefix), beginning)).collect();
    }
    kept.first().map(|&(best, _)| prefixes.characters(best)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{beam, greedy, logarithms};
    use gradscale::data::Random;
    use std::collections::BTreeMap;

    /// Returns the most likely text, by summing over all alignments.
    fn likeliest(logits: &[f32], characters: usize) -> Vec<usize> {
        let steps: Vec<Vec<f64>> = logits.chunks(characters).map(logarithms).collect();
        let mut all: BTreeMap<Vec<usize>, f64> = BTreeMap::new();
        for number in 0..characters.pow(u32::try_from(steps.len()).expect("few")) {
            let mut rest = number;
            let mut path = Vec::new();
            let mut log = 0.0;
            for step in &steps {
                path.push(rest % characters);
                log += step[rest % characters];
                rest /= characters;
            }
            path.dedup();
            path.retain(|&character| character != 0);
            *all.entry(path).or_default() += log.exp();
        }
        let best = all.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        best.expect("a text").0
    }

    #[test]
    fn a_wide_beam_finds_the_likeliest_text() {
        let (mut other, mut random) = (0, Random::from_key(&[7]));
        for _ in 0..200 {
            let logits: Vec<f32> = (0..5 * 3).map(|_| random.below(1000) as f32 / 250.0).collect();
            assert_eq!(beam(&logits, 3, 1000), likeliest(&logits, 3), "{logits:?}");
            other += usize::from(beam(&logits, 3, 1000) != greedy(&logits, 3));
        }
        assert!(other > 20, "the likeliest alignment says the same but {other} times");
    }

    #[test]
    fn where_the_likeliest_alignment_is_wrong() {
        // Blank 0.4 and a 0.6·… in two steps: "a" has three alignments, the blank alone one.
        let step = [0.55f32.ln(), 0.45f32.ln()];
        let logits = [step, step].concat();
        assert_eq!((greedy(&logits, 2), beam(&logits, 2, 4)), (vec![], vec![1]));
    }

    #[test]
    fn repeated_letters_and_nothing() {
        let sure = |path: &[usize]| -> Vec<f32> {
            path.iter().flat_map(|&c| (0..3).map(move |i| if i == c { 9.0 } else { 0.0 })).collect()
        };
        for (path, text) in [(&[1, 1, 0, 1, 2, 2][..], vec![1, 1, 2]), (&[0, 0], vec![]), (&[], vec![])] {
            assert_eq!(greedy(&sure(path), 3), text);
            assert_eq!(beam(&sure(path), 3, 8), text);
        }
    }
}
