//! Text corpus: a sequence of tokens.

mod synthetic;
mod vocabulary;

pub use vocabulary::{Tokens, Vocabulary};

use super::{Cause, DataError, DataOptions, Fingerprint, LoadNotes, encoding::read_text, files::visible, name};
use std::path::{Path, PathBuf};

/// Default number of tokens in a window.
const WINDOW: usize = 32;
/// Expected layout of a directory for language models, for error messages.
const LAYOUT: &str =
    "one text file (*.txt or *.tokens), or files named train, valid and test, of which one may be missing";

/// Text for a language model: splits as token numbers, with their vocabulary.
#[derive(Clone, Debug)]
pub struct Corpus {
    /// Name of the corpus: the last part of its path.
    pub name: String,
    /// Vocabulary of the corpus: the tokens that the model predicts.
    pub vocabulary: Vocabulary,
    /// Count of each token in the training set.
    pub counts: Vec<u64>,
    /// Token ids of the training text.
    pub train: Vec<u32>,
    /// Tokens of the validation set, if one was requested.
    pub validation: Option<Vec<u32>>,
    /// Tokens of the test set, for the final evaluation.
    pub test: Vec<u32>,
    /// Number of tokens that a network reads at a time.
    pub window: usize,
    /// Notes about the loaded text, which the program prints.
    pub notes: LoadNotes,
}

/// Text of each split, with notes about its source.
struct CorpusSplits {
    /// Training text, with its path for error messages.
    train: (PathBuf, String),
    validation: Option<(PathBuf, String)>,
    test: Option<(PathBuf, String)>,
    taken: Vec<String>,
}

impl Corpus {
    /// Reads a text file, or a directory with one file or with files named by split. Of a single text the first 95 % of
    /// the tokens are for training, the others for evaluation, as in char-rnn; where scores are wanted while a training
    /// goes on, the last twentieth of training is for these. Without a part for training, the one for validation is it.
    ///
    /// Tokens are words, between blanks, with a mark at the end of each line, or characters.
    ///
    /// # Errors
    /// A directory of another layout, a file that is not UTF-8, or is shorter than a window, or takes more memory than
    /// may be.
    pub fn load(path: &Path, reading: &DataOptions) -> Result<Self, DataError> {
        let parts = if path.is_file() { single(path)? } else { directory(path, reading)? };
        let all: Vec<&(PathBuf, String)> =
            [Some(&parts.train), parts.validation.as_ref(), parts.test.as_ref()].into_iter().flatten().collect();
        let bytes: u64 = all.iter().map(|(_, text)| 4 * text.len() as u64).sum();
        if bytes > reading.memory.saturating_mul(1_000_000) {
            return Err(Cause::Text("may exceed `memory`; raise it or train on less text".to_owned()).at(path));
        }
        let root = if path.is_file() { path.parent().unwrap_or(path) } else { path };
        let files = Some(Fingerprint::measure(root, all.into_iter().map(|(path, _)| path))?);
        let corpus = Self::from_parts(&name(path), parts, reading)?;
        Ok(Self { notes: LoadNotes { files, ..corpus.notes }, ..corpus })
    }

    /// Generates a corpus of sentences by a small grammar, always the same for a seed.
    ///
    /// # Errors
    /// A window longer than they are.
    pub fn synthetic(seed: u64, reading: &DataOptions) -> Result<Self, DataError> {
        let part = |part: u64, count: usize| (PathBuf::from("synthetic text"), synthetic::text(seed, part, count));
        let validation = reading.validation.then(|| part(2, synthetic::TEST));
        let (train, test) = (part(0, synthetic::TRAIN), Some(part(1, synthetic::TEST)));
        let tokens = Some(reading.tokens.unwrap_or(Tokens::Words));
        let reading = DataOptions { tokens, ..reading.clone() };
        Self::from_parts("synthetic sentences", CorpusSplits { train, validation, test, taken: Vec::new() }, &reading)
    }

    fn from_parts(name: &str, parts: CorpusSplits, reading: &DataOptions) -> Result<Self, DataError> {
        let CorpusSplits { train, validation, test, mut taken } = parts;
        let (tokens, why) = match reading.tokens {
            Some(tokens) => (tokens, ""),
            None if Tokens::Words.split(&train.1).any(|word| word == vocabulary::UNKNOWN) => {
                (Tokens::Words, ", because <unk> is among them (`tokens` characters overrides)")
            }
            None => (Tokens::Characters, " (`tokens` words overrides)"),
        };
        let all: Vec<&str> = tokens.split(&train.1).collect();
        let (of_train, of_test) = match &test {
            Some((_, text)) => (&all[..], tokens.split(text).collect()),
            None => {
                let (train, end) = without_end(&all);
                (train, end.to_vec())
            }
        };
        let (of_train, of_validation): (_, Option<Vec<&str>>) = match &validation {
            Some((_, text)) => (of_train, Some(tokens.split(text).collect())),
            None if reading.validation => {
                let (train, end) = without_end(of_train);
                let kept = format!("{} of {} tokens", end.len(), of_train.len());
                taken.push(format!(
                    "no validation set: the end of the training text is held out for `validation`, {kept}"
                ));
                (train, Some(end.to_vec()))
            }
            None => (of_train, None),
        };

        let mut vocabulary = Vocabulary::new(tokens, of_train);
        let known = vocabulary.len();
        let missing = |of: &[&str]| of.iter().filter(|token| vocabulary.find(token).is_none()).count();
        let [unknown, others] = [missing(&of_test), of_validation.as_deref().map_or(0, missing)];
        if unknown + others > 0 {
            vocabulary.with_unknown();
        }
        let numbers = |of: &[&str]| of.iter().filter_map(|token| vocabulary.number(token)).collect::<Vec<u32>>();
        let corpus = Self {
            name: name.to_owned(),
            counts: vocabulary.counts(of_train),
            train: numbers(of_train),
            validation: of_validation.as_deref().map(numbers),
            test: numbers(&of_test),
            window: reading.window.map_or(WINDOW, usize::from),
            notes: LoadNotes::default(),
            vocabulary,
        };
        let mark = match tokens {
            Tokens::Words => "words, and the ends of lines",
            Tokens::Characters => "characters",
        };
        let [for_training, for_scores] = [corpus.train.len(), corpus.test.len()];
        taken.push(format!(
            "{name}: tokens are {mark}{why}: {for_training} for training, {known} distinct; {for_scores} for \
             evaluation, {unknown} of them unknown{}",
            if unknown > 0 { " and count as <unk>" } else { "" }
        ));
        let parts =
            [(&train.0, Some(&corpus.train)), (test.as_ref().map_or(&train.0, |test| &test.0), Some(&corpus.test))];
        let of_validation = (validation.as_ref().map_or(&train.0, |part| &part.0), corpus.validation.as_ref());
        for (path, part) in parts.into_iter().chain([of_validation]) {
            if let Some(part) = part.filter(|part| part.len() <= corpus.window) {
                let (found, window) = (part.len(), corpus.window);
                let words = if test.is_none() && *path == train.0 {
                    let [all, held] = [all.len(), all.len() / 20];
                    format!(
                        "{all} tokens, of which {held} (5 %) are for evaluation, but a window of {window} takes {}; \
                             add text or lower `window`",
                        window + 1
                    )
                } else {
                    format!("{found} tokens are too few for a window of {window} and the next token; lower `window`")
                };
                return Err(Cause::Text(words).at(path));
            }
        }
        Ok(Self { notes: LoadNotes { taken, ..LoadNotes::default() }, ..corpus })
    }

    /// Returns the number of windows in a split, each followed by at least one token.
    #[must_use]
    pub const fn windows(&self, part: &[u32]) -> usize {
        part.len().saturating_sub(1) / self.window
    }
}

/// Splits off the last 5 % of the tokens.
fn without_end<'a, 't>(all: &'a [&'t str]) -> (&'a [&'t str], &'a [&'t str]) {
    all.split_at(all.len() - all.len() / 20)
}

/// Splits one text file into training and test set.
fn single(path: &Path) -> Result<CorpusSplits, DataError> {
    let text = (path.to_owned(), text(path)?);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let line = format!("{name}: the first 95 % of the tokens are for training, the others for evaluation");
    Ok(CorpusSplits { train: text, validation: None, test: None, taken: vec![line] })
}

fn directory(path: &Path, reading: &DataOptions) -> Result<CorpusSplits, DataError> {
    let is_text = |path: &PathBuf| {
        let end = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        path.is_file() && ["txt", "tokens"].contains(&end.as_str())
    };
    let files: Vec<PathBuf> = visible(path)?.into_iter().filter(is_text).collect();
    let named = |words: &[&str]| {
        let says = |path: &&PathBuf| {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
            stem.split(['.', '_', '-']).any(|part| words.contains(&part))
        };
        let mut all = files.iter().filter(says);
        // Two of a name are none.
        all.next().filter(|_| all.next().is_none())
    };
    let [train, validation, test] = [named(&["train"]), named(&["valid", "val", "validation"]), named(&["test"])];
    let read = |path: &PathBuf| Ok((path.clone(), text(path)?));
    let shown = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match (train, validation, test, &files[..]) {
        (Some(train), validation, Some(test), _) => {
            let validation = validation.filter(|_| reading.validation).map(read).transpose()?;
            Ok(CorpusSplits { train: read(train)?, validation, test: Some(read(test)?), taken: Vec::new() })
        }
        (Some(train), Some(test), None, _) | (None, Some(train), Some(test), _) => {
            let line = format!("{}: for training, {} for evaluation", shown(train), shown(test));
            Ok(CorpusSplits { train: read(train)?, validation: None, test: Some(read(test)?), taken: vec![line] })
        }
        (_, _, _, [one]) => single(one),
        (_, _, _, _) => Err(Cause::Layout { expected: LAYOUT, found: super::listing(path)? }.at(path)),
    }
}

/// Reads a text file.
///
/// # Errors
/// A file that cannot be read, is empty or has another encoding than UTF-8 or marked UTF-16.
pub fn text(path: &Path) -> Result<String, DataError> {
    let text = read_text(path)?;
    if text.is_empty() {
        return Err(Cause::Text("empty".to_owned()).at(path));
    }
    Ok(text)
}
