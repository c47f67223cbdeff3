//! BLEU score of translations.

use std::collections::HashMap;

/// Maximum length of the n-grams that BLEU counts.
const ORDERS: usize = 4;

/// BLEU over a corpus with one reference for each sentence (Papineni et al. 2002), from 0 to 100, with the defaults of
/// sacrebleu: words are tokenized as by `mteval-v13a`, upper and lower case differ, and precisions of 0 are replaced by
/// halves (NIST's smoothing).
///
/// ```
/// use gradscale::metrics::Bleu;
/// let mut bleu = Bleu::default();
/// bleu.add("A dog runs on the beach.", "A dog runs along the beach.");
/// bleu.add("Two men, one hat.", "Two men, one hat.");
/// assert!((bleu.score() - 68.1561).abs() < 1e-4);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bleu {
    /// Number of n-grams of the translations, from unigrams on, and the number of them that occur in the references.
    total: [u64; ORDERS],
    right: [u64; ORDERS],
    /// Number of words of all references, and of all translations.
    meant: u64,
    said: u64,
}

impl Bleu {
    /// Adds a sentence to the score: its reference and its translation.
    pub fn add(&mut self, reference: &str, translation: &str) {
        let [meant, said] = [reference, translation].map(words);
        self.meant += meant.len() as u64;
        self.said += said.len() as u64;
        for order in 1..=ORDERS {
            let mut known: HashMap<&[String], u64> = HashMap::new();
            meant.windows(order).for_each(|gram| *known.entry(gram).or_default() += 1);
            for gram in said.windows(order) {
                self.total[order - 1] += 1;
                // Each occurrence in the reference counts once.
                if let Some(left) = known.get_mut(gram).filter(|left| **left > 0) {
                    *left -= 1;
                    self.right[order - 1] += 1;
                }
            }
        }
    }

    /// Returns the BLEU score of all sentences; NaN without sentences. 0 if no translation is as long as the longest
    /// n-grams.
    #[must_use]
    pub fn score(&self) -> f64 {
        if self.meant == 0 && self.said == 0 {
            return f64::NAN;
        }
        if self.right == [0; ORDERS] || self.total.contains(&0) {
            return 0.0;
        }
        let (mut halves, mut sum) = (1.0, 0.0);
        for (&right, &total) in self.right.iter().zip(&self.total) {
            let precision = if right == 0 {
                halves *= 2.0;
                1.0 / (halves * total as f64)
            } else {
                right as f64 / total as f64
            };
            sum += (100.0 * precision).ln();
        }
        let brevity = if self.said < self.meant { (1.0 - self.meant as f64 / self.said as f64).exp() } else { 1.0 };
        brevity * (sum / ORDERS as f64).exp()
    }
}

/// Splits a text into words as `mteval-v13a` does: punctuation is separated, except for points, commas and dashes
/// inside of numbers.
fn words(text: &str) -> Vec<String> {
    let text = text.trim_end_matches(is_space).replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
    let text = text.replace("&quot;", "\"").replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
    let mut apart = String::from(" ");
    for c in text.chars() {
        match c {
            // All ASCII punctuation except ' , - and the point.
            '{'..='~' | '['..='`' | ' '..='&' | '('..='+' | ':'..='@' | '/' => apart.extend([' ', c, ' ']),
            other => apart.push(other),
        }
    }
    apart.push(' ');
    let point = |c: char| c == '.' || c == ',';
    let apart = pairs(&apart, |a, b| (!a.is_ascii_digit() && point(b)).then_some([a, ' ', b, ' ']));
    let apart = pairs(&apart, |a, b| (point(a) && !b.is_ascii_digit()).then_some([' ', a, ' ', b]));
    let apart = pairs(&apart, |a, b| (a.is_ascii_digit() && b == '-').then_some([a, ' ', b, ' ']));
    apart.split(is_space).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Returns true for white space as in Python, which has four separators more than Unicode.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Replaces pairs of characters in a text, from the left, each character at most once.
fn pairs(text: &str, replace: impl Fn(char, char) -> Option<[char; 4]>) -> String {
    let mut out = String::with_capacity(2 * text.len());
    let mut rest = text.chars().peekable();
    while let Some(first) = rest.next() {
        match rest.peek().and_then(|&second| replace(first, second)) {
            Some(both) => {
                out.extend(both);
                rest.next();
            }
            None => out.push(first),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Bleu, words};

    /// Compares with sacrebleu on random and real sentences (`tests/golden/translation.py`).
    #[test]
    fn as_sacrebleu() {
        let table = include_str!("../../tests/golden/translation.txt");
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("bleu ")).collect();
        assert!(rows.len() >= 12, "{} rows", rows.len());
        for row in rows {
            let [_, score, _, pairs] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("{row}") };
            let mut found = Bleu::default();
            let escaped = |text: &str| text.replace("\\n", "\n").replace("\\t", "\t");
            for pair in pairs.split("|||") {
                let (meant, said) = pair.split_once("///").expect("two texts");
                found.add(&escaped(meant), &escaped(said));
            }
            let right: f64 = score.parse().expect("a number");
            assert!((found.score() - right).abs() < 1e-9, "{row}: {}", found.score());
        }
        for row in table.lines().filter(|line| line.starts_with("words ")) {
            let [_, text, _, right] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("{row}") };
            assert_eq!(words(&text.replace("\\n", "\n").replace("\\t", "\t")).join(" "), right);
        }
    }

    #[test]
    fn nothing_and_short_sentences() {
        assert!(Bleu::default().score().is_nan());
        let of = |pairs: &[(&str, &str)]| {
            let mut bleu = Bleu::default();
            pairs.iter().for_each(|(meant, said)| bleu.add(meant, said));
            bleu.score()
        };
        assert_eq!(of(&[("a b", "")]), 0.0);
        assert_eq!(of(&[("a b c", "a b c")]), 0.0, "no four words");
        assert!((of(&[("a b c d", "a b c d")]) - 100.0).abs() < 1e-9);
    }
}
