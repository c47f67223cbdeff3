//! How far what was said is from what was meant.

/// The share of letters that are wrong: the fewest letters to put in, take out or exchange, over all texts, divided by
/// the letters that were meant. More may be wrong than there are: it can exceed 1. As jiwer's `cer`, spaces at either end
/// do not count.
///
/// ```
/// use gradscale::metrics::ErrorRate;
/// let mut letters = ErrorRate::default();
/// letters.add("seven", "seben");
/// letters.add("one", "one ");
/// assert_eq!(letters.share(), 1.0 / 8.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorRate {
    edits: u64,
    letters: u64,
}

impl ErrorRate {
    /// One text: what was meant, and what was said.
    pub fn add(&mut self, meant: &str, said: &str) {
        let [meant, said] = [meant, said].map(|text| text.trim().chars().collect::<Vec<char>>());
        self.edits += edits(&meant, &said) as u64;
        self.letters += meant.len() as u64;
    }

    /// Wrong letters of a letter; NaN while none was meant.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.letters == 0 { f64::NAN } else { self.edits as f64 / self.letters as f64 }
    }
}

/// The fewest parts to put in, take out or exchange that make one sequence of the other (Levenshtein 1966).
fn edits<T: PartialEq>(from: &[T], to: &[T]) -> usize {
    // Of the parts of `from` so far, to each beginning of `to`.
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let fewest = (diagonal + usize::from(a != b)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], fewest);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::ErrorRate;

    /// jiwer's, over random texts and such with mistakes (`tests/golden/speech.py`).
    #[test]
    fn as_jiwer() {
        let table = include_str!("../../tests/golden/speech.txt");
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("cer ")).collect();
        assert_eq!(rows.len(), 12);
        for row in rows {
            let [_, rate, _, pairs] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("{row}") };
            let mut found = ErrorRate::default();
            pairs.split('|').filter_map(|pair| pair.split_once('/')).for_each(|(meant, said)| found.add(meant, said));
            let right: f64 = rate.parse().expect("a number");
            assert!((found.share() - right).abs() < 1e-15, "{row}: {}", found.share());
        }
        assert!(ErrorRate::default().share().is_nan());
    }
}
