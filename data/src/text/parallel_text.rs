//! Sentences in two languages: line i of one file belongs to line i of the other.

use super::{Pieces, lines, synthetic};
use crate::{
    Cause, DataError, DataOptions, Fingerprint, Languages, LoadNotes, Random,
    files::{fifths, hold_out, visible},
    listing, name, split_note, store,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Maximum number of tokens in a sentence. Longer ones are left out, because they would determine a batch's memory and
/// the number of compiled programs.
const MAX_SENTENCE_TOKENS: usize = 64;
/// Expected layout of a directory for translation, for error messages.
const LAYOUT: &str = "train.LANGUAGE[.gz] in two languages, as train.en and train.de, and the same for val and test";
/// Name prefixes of files that are recognised as the validation set.
const VALIDATION: [&str; 4] = ["val", "valid", "validation", "dev"];
const TEST: &str = "test";

/// Sentence in two languages: source and translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Text of the source sentence and of its translation.
    pub texts: [String; 2],
    /// Byte-pair pieces of both sentences, each with the end token.
    pub pieces: [Vec<u32>; 2],
}

/// Data set of sentences in two languages.
#[derive(Clone, Debug)]
pub struct Parallel {
    /// Name of the translation data set: the last part of the directory's path.
    pub name: String,
    /// Source and target language of the sentence pairs.
    pub languages: Languages,
    /// Byte-pair vocabularies of the source and the target language.
    pub pieces: [Pieces; 2],
    /// Training set: sentences with their translations.
    pub train: Vec<Pair>,
    /// Validation set of sentence pairs, if one was requested.
    pub validation: Option<Vec<Pair>>,
    /// Test set of sentence pairs, for the final evaluation.
    pub test: Vec<Pair>,
    /// Notes about the loaded sentence pairs, which the program prints.
    pub notes: LoadNotes,
}

/// Sentence pairs as text, in both languages.
type Texts = Vec<[String; 2]>;

impl Parallel {
    /// Reads a directory with files `train.LANGUAGE`, plain or gzip'ed (`.gz`), in two languages or more.
    /// [`DataOptions::languages`] selects two; by default they are English and another one, or the first two by name.
    /// Files whose names begin with `test` are for the final scores, the first of them by name. `val`, `valid`,
    /// `validation` or `dev` are for scores during training, and for the final ones if there is no test set. Without
    /// either, every fifth pair is for scores. The pieces are learned from the training part.
    ///
    /// # Errors
    /// A directory of another layout, languages that do not exist, files that cannot be read or are no UTF-8, whose
    /// numbers of lines differ, or that have no usable line.
    pub fn load(dir: &Path, reading: &DataOptions) -> Result<Self, DataError> {
        if dir.is_file() {
            return Err(Cause::Option(format!("is a file, expected a directory with {LAYOUT}")).at(dir));
        }
        let parts = parts(dir)?;
        let Some(train) = parts.get("train") else {
            return Err(Cause::Layout { expected: LAYOUT, found: listing(dir)? }.at(dir));
        };
        let languages = chosen(dir, train, reading)?;
        let of = |known: &dyn Fn(&str) -> bool| parts.keys().map(String::as_str).find(|part| known(part));
        let (test, validation) = (of(&|part| part.starts_with(TEST)), of(&|part| VALIDATION.contains(&part)));
        let (test, validation) = if test.is_some() { (test, validation) } else { (validation, None) };
        let mut paths = Vec::new();
        let mut read = |part: &str| {
            let files = both_files(dir, part, &parts[part], &languages)?;
            paths.extend(files.map(Clone::clone));
            read_pairs(files)
        };
        let mut taken = Vec::new();
        let train = read("train")?;
        let validation = validation.filter(|_| reading.validation).map(&mut read).transpose()?;
        let (train, test) = match test {
            Some(test) => (train, read(test)?),
            None => {
                let [train, test] = fifths(train);
                taken.push(split_note(train.len(), test.len()));
                (train, test)
            }
        };
        let files = Some(Fingerprint::measure(dir, &paths)?);
        let data = Self::new(name(dir), languages, [train, test], validation, reading, taken);
        let data = data.map_err(|cause| cause.at(dir))?;
        Ok(Self { notes: LoadNotes { files, ..data.notes }, ..data })
    }

    /// Generates synthetic data: 2000 training and 100 test sentences of numbers, in English and German words.
    ///
    /// # Errors
    /// None; as [`Parallel::load`].
    pub fn synthetic(seed: u64, reading: &DataOptions) -> Result<Self, String> {
        let languages = Languages(["en", "de"].map(str::to_owned));
        let wanted = reading.languages.as_ref().unwrap_or(&languages);
        let back = match wanted.0.each_ref().map(String::as_str) {
            ["en", "de"] => false,
            ["de", "en"] => true,
            [_, _] => return Err(format!("`languages` {wanted}: choose en-de or de-en")),
        };
        let part = |part: usize| -> Texts {
            let mut random = Random::from_key(&[seed, part as u64]);
            let one = |_| {
                let mut pair = synthetic::pair(&mut random);
                if back {
                    pair.reverse();
                }
                pair
            };
            (0..synthetic::COUNTS[part]).map(one).collect()
        };
        let (name, texts) = ("synthetic numbers".to_owned(), [part(0), part(1)]);
        let made = Self::new(name, wanted.clone(), texts, None, reading, Vec::new());
        made.map_err(|cause| cause.to_string())
    }

    fn new(
        name: String, languages: Languages, [train, test]: [Texts; 2], validation: Option<Texts>,
        reading: &DataOptions, mut taken: Vec<String>,
    ) -> Result<Self, Cause> {
        let (train, validation) = crate::parted(train, validation, reading, &mut taken, |all| hold_out(all), Vec::len);
        let most = reading.pieces.unwrap_or(super::PIECES);
        let learn = |language: usize| {
            let texts = train.iter().map(|pair| pair[language].as_str());
            Pieces::learn(texts, most).map_err(Cause::Option)
        };
        // In parallel, because this takes most of the loading time.
        let mut learned = store::each(2, learn).into_iter();
        let mut next = || learned.next().unwrap_or_else(|| learn(0));
        let pieces = [next()?, next()?];
        let mut left_out = Vec::new();
        let mut keep = |part: &'static str, texts: Texts| {
            let (kept, without) = fitting(texts, &pieces);
            let all = kept.len() + without.iter().sum::<usize>();
            let why = without.into_iter().zip(["empty in one language", "longer than 64 tokens"]);
            let why = why.filter(|(count, _)| *count > 0);
            if kept.is_empty() {
                let why: Vec<String> = why.map(|(count, why)| format!("{count} of {all} are {why}")).collect();
                let why = if why.is_empty() { String::new() } else { format!(": {}", why.join(", ")) };
                return Err(Cause::Option(format!("no sentences for {part}{why}")));
            }
            left_out.extend(why.map(|(count, why)| format!("{count} of {all} pairs of the {part} set, {why}")));
            Ok(kept)
        };
        let (train, test) = (keep("training", train)?, keep("test", test)?);
        let validation = validation.map(|texts| keep("validation", texts)).transpose()?;
        let [source, target] = pieces.each_ref().map(Pieces::count);
        let found = format!("{name}: {} pairs, {languages}, vocabularies of {source} and {target} tokens", train.len());
        taken.insert(0, found);
        Ok(Self {
            name,
            languages,
            pieces,
            train,
            validation,
            test,
            notes: LoadNotes { taken, left_out, ..LoadNotes::default() },
        })
    }
}

/// Returns the files by part, then by language. Of a file and the same gzip'ed, the plain one.
fn parts(dir: &Path) -> Result<BTreeMap<String, BTreeMap<String, PathBuf>>, DataError> {
    let mut parts: BTreeMap<String, BTreeMap<String, PathBuf>> = BTreeMap::new();
    for path in visible(dir)?.into_iter().filter(|path| path.is_file()) {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let plain = file.strip_suffix(".gz").unwrap_or(&file);
        if let Some((part, language)) = plain.rsplit_once('.') {
            parts.entry(part.to_owned()).or_default().entry(language.to_owned()).or_insert(path);
        }
    }
    Ok(parts)
}

/// Chooses source and target language among those of the training files.
fn chosen(dir: &Path, train: &BTreeMap<String, PathBuf>, reading: &DataOptions) -> Result<Languages, DataError> {
    let there: Vec<&str> = train.keys().map(String::as_str).collect();
    let names = there.join(", ");
    if let Some(languages) = &reading.languages {
        return match languages.0.iter().find(|language| !train.contains_key(*language)) {
            Some(missing) => Err(Cause::Option(format!(
                "`languages` {languages}: no train.{missing}; the languages are \
                    {names}"
            ))
            .at(dir)),
            None => Ok(languages.clone()),
        };
    }
    let pair = |source: &str, target: &str| Ok(Languages([source.to_owned(), target.to_owned()]));
    match there[..] {
        [first, "en"] => pair("en", first),
        [first, second] => pair(first, second),
        [one] => Err(Cause::Option(format!("only train.{one}; add train.LANGUAGE for a second language")).at(dir)),
        _ => Err(Cause::Option(format!(
            "train in {names}; choose two, for example `languages` {}-{}",
            there[0], there[1]
        ))
        .at(dir)),
    }
}

/// Returns the files of a split in both languages.
fn both_files<'a>(
    dir: &Path, part: &str, files: &'a BTreeMap<String, PathBuf>, Languages(languages): &Languages,
) -> Result<[&'a PathBuf; 2], DataError> {
    let file = |language: &String| {
        let missing =
            || Cause::Missing(format!("the {part} set lacks this language")).at(dir.join(format!("{part}.{language}")));
        files.get(language).ok_or_else(missing)
    };
    Ok([file(&languages[0])?, file(&languages[1])?])
}

/// Reads the lines of a split in both languages.
fn read_pairs([source, target]: [&PathBuf; 2]) -> Result<Texts, DataError> {
    let (sources, targets) = (lines(source)?, lines(target)?);
    let (shorter, longer) = if sources.len() < targets.len() { (source, target) } else { (target, source) };
    let counts = [sources.len(), targets.len()];
    if counts[0] != counts[1] {
        let [fewer, more] = [counts[0].min(counts[1]), counts[0].max(counts[1])];
        let longer = longer.file_name().unwrap_or_default().to_string_lossy();
        let reason = format!("missing: the file has {fewer} lines, but {longer} has {more}");
        return Err(Cause::Table { line: fewer + 1, reason }.at(shorter));
    }
    Ok(sources.into_iter().zip(targets).map(|(source, target)| [source, target]).collect())
}

/// Returns the pairs that can be used; how many are empty, and how many too long.
fn fitting(texts: Texts, pieces: &[Pieces; 2]) -> (Vec<Pair>, [usize; 2]) {
    let apart = |i: usize| [0, 1].map(|language: usize| pieces[language].apart(&texts[i][language]));
    let apart: Vec<[Vec<u32>; 2]> = store::each(texts.len(), apart);
    let (mut kept, mut without) = (Vec::new(), [0; 2]);
    for (texts, pieces) in texts.into_iter().zip(apart) {
        match pieces.each_ref().map(Vec::len) {
            // The end alone.
            [0 | 1, _] | [_, 0 | 1] => without[0] += 1,
            [source, target] if source.max(target) > MAX_SENTENCE_TOKENS => without[1] += 1,
            [_, _] => kept.push(Pair { texts, pieces }),
        }
    }
    (kept, without)
}
