//! Character error rate.

/// Character error rate: the minimum number of insertions, deletions and substitutions, over all texts, divided by the
/// number of reference characters. It can exceed 1. Like jiwer's `cer`, it ignores spaces at either end.
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
    /// Adds one text to the error rate: the reference `meant` and the output `said`.
    pub fn add(&mut self, meant: &str, said: &str) {
        let [meant, said] = [meant, said].map(|text| text.trim().chars().collect::<Vec<char>>());
        self.edits += edits(&meant, &said) as u64;
        self.letters += meant.len() as u64;
    }

    /// Returns the character error rate: errors per reference character; NaN without any.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.letters == 0 { f64::NAN } else { self.edits as f64 / self.letters as f64 }
    }
}

/// Computes the edit distance of two sequences (Levenshtein 1966).
fn edits<T: PartialEq>(from: &[T], to: &[T]) -> usize {
    // Distances from the elements of `from` so far to each prefix of `to`.
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

    /// Compares with jiwer on random texts and texts with errors (`tests/golden/speech.py`).
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
