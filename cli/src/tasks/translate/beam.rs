//! Beam search for the likeliest sequences; the caller evaluates the network.

/// Length penalty of Wu et al. 2016, equation 14: its offset and exponent.
const LENGTH: (f64, f64) = (5.0, 0.6);

/// Parameters of a beam search for translations.
#[derive(Clone, Debug)]
pub struct Search<'a> {
    /// Sequences that are kept of each sentence; one: the likeliest word at every step.
    pub width: usize,
    /// Maximum number of pieces of each sentence's translation.
    pub longest: &'a [usize],
    /// Word with which a sequence begins, and word with which it ends.
    pub ends: [u32; 2],
    /// Number of the first ordinary word; of those before, only the end may occur.
    pub first: u32,
}

/// Input of a decoder step: the last token of each row, and the row of the last step that it continues.
#[derive(Clone, Debug)]
pub struct DecoderInput {
    pub words: Vec<u32>,
    pub from: Vec<usize>,
}

/// Sequence of words with the logarithm of its probability.
#[derive(Clone, Debug)]
struct Kept {
    words: Vec<u32>,
    log: f64,
}

impl Kept {
    fn score(&self) -> f64 {
        let (first, exponent) = LENGTH;
        self.log / ((first + self.words.len() as f64) / (first + 1.0)).powf(exponent)
    }
}

/// State of the beam search for one sentence: open and ended sequences.
#[derive(Clone, Debug)]
struct Sentence {
    live: Vec<Kept>,
    ended: Vec<Kept>,
}

impl Search<'_> {
    /// Returns the best sequence for each sentence, without its end. `ask` gives the logarithms of all words'
    /// probabilities, a row for each of `width` rows for each sentence.
    ///
    /// # Errors
    /// Those of `ask`.
    pub fn run<E>(&self, mut ask: impl FnMut(DecoderInput) -> Result<Vec<f32>, E>) -> Result<Vec<Vec<u32>>, E> {
        let first = Sentence { live: vec![Kept { words: Vec::new(), log: 0.0 }], ended: Vec::new() };
        let mut all = vec![first; self.longest.len()];
        let rows = all.len() * self.width;
        let mut from: Vec<usize> = (0..rows).collect();
        loop {
            let mut words = vec![self.ends[0]; rows];
            for (i, sentence) in all.iter().enumerate() {
                for (k, kept) in sentence.live.iter().enumerate() {
                    words[i * self.width + k] = kept.words.last().copied().unwrap_or(self.ends[0]);
                }
            }
            if all.iter().all(|sentence| sentence.live.is_empty()) {
                return Ok(all.into_iter().map(Sentence::best).collect());
            }
            let logs = ask(DecoderInput { words, from })?;
            let wide = logs.len().checked_div(rows).unwrap_or(0);
            from = (0..rows).collect();
            for (i, (sentence, &longest)) in all.iter_mut().zip(self.longest).enumerate() {
                let row = i * self.width;
                let parents = sentence.step(self, longest, |k| &logs[(row + k) * wide..(row + k + 1) * wide]);
                parents.iter().enumerate().for_each(|(k, &parent)| from[row + k] = row + parent);
            }
        }
    }
}

impl Sentence {
    /// Makes all sequences longer by a word; which of them each of those that are kept comes from.
    fn step<'l>(&mut self, search: &Search<'_>, longest: usize, logs: impl Fn(usize) -> &'l [f32]) -> Vec<usize> {
        let (mut live, mut parents) = (Vec::new(), Vec::new());
        // Enough candidates remain even if every kept sequence ends.
        for (place, (log, parent, word)) in self.candidates(search, 2 * search.width, logs).into_iter().enumerate() {
            let mut words = self.live[parent].words.clone();
            if word == search.ends[1] {
                if place < search.width {
                    self.ended.push(Kept { words, log });
                }
            } else if live.len() < search.width {
                words.push(word);
                live.push(Kept { words, log });
                parents.push(parent);
            }
        }
        let done = self.ended.len() >= search.width;
        let long = live.first().is_none_or(|kept| kept.words.len() >= longest);
        if done || long {
            if self.ended.is_empty() {
                self.ended = live;
            }
            (live, parents) = (Vec::new(), Vec::new());
        }
        self.live = live;
        parents
    }

    /// Returns the most likely sequences with one more word: their log probabilities, predecessors and words. Of equal
    /// ones the first.
    fn candidates<'l>(
        &self, search: &Search<'_>, most: usize, logs: impl Fn(usize) -> &'l [f32],
    ) -> Vec<(f64, usize, u32)> {
        let mut best: Vec<(f64, usize, u32)> = Vec::with_capacity(most + 1);
        for (parent, kept) in self.live.iter().enumerate() {
            for (word, &log) in (0u32..).zip(logs(parent)) {
                let log = kept.log + f64::from(log);
                let full = best.len() >= most;
                let known = word >= search.first || word == search.ends[1];
                if !known || log.is_nan() || full && best.last().is_some_and(|worst| log <= worst.0) {
                    continue;
                }
                let place = best.partition_point(|other| other.0 >= log);
                best.insert(place, (log, parent, word));
                best.truncate(most);
            }
        }
        best
    }

    fn best(self) -> Vec<u32> {
        let by_score = |a: &Kept, b: &Kept| b.score().total_cmp(&a.score());
        let mut ended = self.ended;
        ended.sort_by(by_score);
        ended.into_iter().next().map(|kept| kept.words).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradscale::data::Random;
    use std::convert::Infallible;

    const WORDS: usize = 5;
    const ENDS: [u32; 2] = [0, 1];

    /// Returns log probabilities of the next word that depend on sentence and words so far.
    fn logs(sentence: usize, words: &[u32]) -> Vec<f32> {
        let mut key = vec![7, sentence as u64];
        key.extend(words.iter().map(|&word| u64::from(word)));
        let mut random = Random::from_key(&key);
        let mut all: Vec<f32> = (0..WORDS).map(|_| random.below(1000) as f32 / 250.0).collect();
        // So that some sequences are long.
        all[ENDS[1] as usize] -= 2.0;
        let sum = all.iter().map(|x| x.exp()).sum::<f32>().ln();
        all.iter().map(|x| x - sum).collect()
    }

    /// Runs the beam search with a network whose states follow the rows.
    fn search(width: usize, longest: &[usize]) -> Vec<Vec<u32>> {
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); longest.len() * width];
        let mut first = true;
        let found = Search { width, longest, ends: ENDS, first: 2 }.run(|DecoderInput { words, from }| {
            rows = from.iter().map(|&row| rows[row].clone()).collect();
            if !first {
                rows.iter_mut().zip(&words).for_each(|(row, &word)| row.push(word));
            }
            first = false;
            Ok::<_, Infallible>(rows.iter().enumerate().flat_map(|(row, words)| logs(row / width, words)).collect())
        });
        found.unwrap_or_default()
    }

    /// Returns the most likely of all sequences that end, by exhaustive search.
    fn likeliest(sentence: usize, longest: usize) -> Vec<u32> {
        let (mut open, mut ended) = (vec![Kept { words: Vec::new(), log: 0.0 }], Vec::new());
        for _ in 0..longest {
            for Kept { words, log } in std::mem::take(&mut open) {
                let next = logs(sentence, &words);
                ended.push(Kept { words: words.clone(), log: log + f64::from(next[1]) });
                for (word, &of_word) in (0u32..).zip(&next).skip(2) {
                    let words = words.iter().copied().chain([word]).collect();
                    open.push(Kept { words, log: log + f64::from(of_word) });
                }
            }
        }
        Sentence { live: Vec::new(), ended }.best()
    }

    #[test]
    fn a_beam_of_all_finds_the_likeliest() {
        let longest = [4; 20];
        let found = search(3usize.pow(4) + 30, &longest);
        for (sentence, found) in found.iter().enumerate() {
            assert_eq!(found, &likeliest(sentence, 4), "sentence {sentence}");
        }
        assert!(found.iter().any(|words| words.len() > 1));
    }

    #[test]
    fn a_beam_of_one_takes_the_likeliest_word() {
        let longest = [6, 3, 8, 1, 5];
        for (sentence, found) in search(1, &longest).into_iter().enumerate() {
            let mut words = Vec::new();
            while words.len() < longest[sentence] {
                let next = logs(sentence, &words);
                let all = (0u32..).zip(&next).skip(1);
                let (best, _) = all.max_by(|a, b| a.1.total_cmp(b.1)).expect("a word");
                if best == ENDS[1] {
                    break;
                }
                words.push(best);
            }
            assert_eq!(found, words, "sentence {sentence}");
        }
    }

    #[test]
    fn a_wider_beam_is_no_worse_and_each_sentence_is_its_own() {
        let longest = [5; 12];
        let score = |sentence: usize, words: &[u32]| {
            let all = (0..words.len()).map(|i| f64::from(logs(sentence, &words[..i])[words[i] as usize]));
            let log = all.sum::<f64>() + f64::from(logs(sentence, words)[1]);
            Kept { words: words.to_vec(), log }.score()
        };
        let total = |width: usize| -> f64 {
            search(width, &longest).iter().enumerate().map(|(sentence, words)| score(sentence, words)).sum()
        };
        assert!(total(4) >= total(1) && total(300) >= total(4), "{} {} {}", total(1), total(4), total(300));
        assert_eq!(search(4, &[5]), search(4, &longest)[..1]);
        assert!(search(3, &[]).is_empty());
    }
}
