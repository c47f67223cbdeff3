//! Columns of tables: the features that a network reads from their cells, and the normalization of these.
//!
//! A column is one of numbers if at least half of its cells in the training file are, and else one of words. A number
//! that is missing counts as the column's mean, and a feature of its own tells so. Words become one feature each (one-hot
//! encoding). Checkpoints keep the features, so that a prediction reads a table in the same way.

use super::{Cause, DataError};
use csv::StringRecord;
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeSet, path::Path};

/// Cells that count as missing, in small letters. pandas reads the same, and UCI's data sets write a question mark.
const MISSING: [&str; 10] = ["", "?", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none"];
/// Maximum number of different words in a column. More are names or texts, of which each is too rare to learn from.
const MAX_WORDS: usize = 100;
/// Number of training rows up to which half of them may have different words, for small examples.
const SMALL_TABLE_ROWS: usize = 20;

/// Feature that a network reads from a column of a table, with its normalization.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Name of the column in the header line.
    pub name: String,
    /// Mean of the feature in the training set.
    pub mean: f64,
    /// Standard deviation of the feature in the training set; 1 if all values are alike.
    pub deviation: f64,
    /// Meaning of the feature.
    #[serde(default, skip_serializing_if = "Feature::is_number")]
    pub feature: Feature,
}

/// Meaning of a feature of a column.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// Number in the cell, or the mean if that is missing.
    #[default]
    Number,
    /// 1 if the cell is missing, or else 0.
    Missing,
    /// 1 if the cell has this word, or else 0.
    Category(String),
}

impl Feature {
    fn is_number(&self) -> bool {
        *self == Self::Number
    }

    /// Returns the feature of a cell; `None` for a missing number.
    fn value(&self, cells: &Cells, at: usize) -> Option<f64> {
        match self {
            Self::Number => Some(cells.numbers[at]).filter(|number| !number.is_nan()),
            Self::Missing => Some(f64::from(cells.is_missing(at))),
            Self::Category(word) => Some(f64::from(cells.word(at).is_some_and(|found| found == *word))),
        }
    }
}

impl Column {
    /// Measures mean and deviation of a feature over training rows.
    fn measure<'a>(name: &str, feature: Feature, at: usize, rows: impl Iterator<Item = &'a Cells> + Clone) -> Self {
        let values = rows.filter_map(|cells| feature.value(cells, at));
        let count = values.clone().count().max(1) as f64;
        let mean = values.clone().sum::<f64>() / count;
        let deviation = (values.map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        let deviation = if deviation > 0.0 && deviation.is_finite() { deviation } else { 1.0 };
        Self { name: name.to_owned(), mean, deviation, feature }
    }

    /// Returns the normalized feature of a cell, (x − mean)/deviation, as the bytes of an f32.
    #[expect(clippy::cast_possible_truncation, reason = "rounded")]
    pub(super) fn bytes(&self, cells: &Cells, at: usize) -> [u8; 4] {
        let value = self.feature.value(cells, at).unwrap_or(self.mean);
        (((value - self.mean) / self.deviation) as f32).to_le_bytes()
    }
}

/// Cells of a row in some columns.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    /// Number of each cell; NaN where there is none.
    numbers: Vec<f64>,
    /// Texts of the other cells that are not missing, by the index of their column.
    words: Vec<(usize, Box<str>)>,
}

impl Cells {
    /// Parses the cells of a CSV line in the columns at these places.
    pub fn parse(record: &StringRecord, places: &[usize]) -> Self {
        let mut cells = Self { numbers: Vec::with_capacity(places.len()), words: Vec::new() };
        for (at, place) in places.iter().enumerate() {
            let text = record.get(*place).unwrap_or("");
            let number = text.parse::<f64>().ok().filter(|number| number.abs() <= f64::from(f32::MAX));
            if number.is_none() && !MISSING.contains(&text.to_lowercase().as_str()) {
                cells.words.push((at, text.into()));
            }
            cells.numbers.push(number.unwrap_or(f64::NAN));
        }
        cells
    }

    /// Returns the text of a cell that is no number.
    fn text(&self, at: usize) -> Option<&str> {
        let found = self.words.binary_search_by_key(&at, |(column, _)| *column).ok()?;
        Some(&*self.words[found].1)
    }

    /// Returns the word in a cell, which may be a number; `None` if it is missing.
    fn word(&self, at: usize) -> Option<Cow<'_, str>> {
        let number = self.numbers[at];
        if number.is_nan() { self.text(at).map(Cow::Borrowed) } else { Some(number.to_string().into()) }
    }

    fn is_missing(&self, at: usize) -> bool {
        self.numbers[at].is_nan() && self.text(at).is_none()
    }
}

/// Kind of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Numbers,
    Categorical,
    /// No row has anything in the column.
    Empty,
}

/// Returns the kind of each column by the rows of the training file.
pub(super) fn kinds<'a>(count: usize, rows: impl Iterator<Item = &'a Cells>) -> Vec<Kind> {
    let mut counts = vec![[0_usize; 2]; count];
    for cells in rows {
        cells.numbers.iter().zip(&mut counts).for_each(|(number, count)| count[0] += usize::from(!number.is_nan()));
        cells.words.iter().for_each(|(at, _)| counts[*at][1] += 1);
    }
    let kind = |[numbers, words]: [usize; 2]| match (numbers, words) {
        (0, 0) => Kind::Empty,
        _ if numbers >= words => Kind::Numbers,
        _ => Kind::Categorical,
    };
    counts.into_iter().map(kind).collect()
}

/// Checks that a row has no words in columns of numbers.
///
/// # Errors
/// The first such word, with its column, as a text.
pub(super) fn check(cells: &Cells, names: &[String], kinds: &[Kind]) -> Result<(), String> {
    let wrong = cells.words.iter().find(|(at, _)| kinds[*at] == Kind::Numbers);
    let Some((at, word)) = wrong else { return Ok(()) };
    Err(reason(word, &names[*at]))
}

/// Returns true for a number with a decimal comma.
fn has_decimal_comma(word: &str) -> bool {
    word.contains(',') && word.replace(',', ".").parse::<f64>().is_ok()
}

fn reason(word: &str, name: &str) -> String {
    // 1e300 and above; f64 parses what is larger still as infinite.
    if word.parse::<f64>().is_ok() {
        return format!("{word} in the column {name} is too large for f32");
    }
    format!("{word:?} in the column {name} is not a number")
}

/// Features of a table's columns.
#[derive(Debug)]
pub(super) struct Features {
    /// Features in the order of the network's input.
    pub columns: Vec<Column>,
    /// Index of each feature's column.
    pub at: Vec<usize>,
    /// Notes about columns that are not plain numbers.
    pub notes: Vec<String>,
}

impl Features {
    /// Chooses the features of columns by the training rows.
    ///
    /// # Errors
    /// A column of numbers with decimal commas; no column that is of use.
    pub fn choose(path: &Path, names: &[String], kinds: &[Kind], rows: &[&Cells]) -> Result<Self, DataError> {
        let mut all = Self { columns: Vec::new(), at: Vec::new(), notes: Vec::new() };
        let (mut numbers, mut words, mut gaps) = (0, Vec::new(), Vec::new());
        for (at, (name, kind)) in names.iter().zip(kinds).enumerate() {
            let missing = rows.iter().filter(|cells| cells.is_missing(at)).count();
            let mut features = Vec::new();
            match kind {
                Kind::Empty => all.notes.push(format!("the column {name} is empty and left out")),
                Kind::Numbers => {
                    numbers += 1;
                    features.push(Feature::Number);
                    if missing > 0 {
                        gaps.push(format!("{name} {missing}"));
                    }
                }
                Kind::Categorical => {
                    let found: BTreeSet<Cow<'_, str>> = rows.iter().filter_map(|cells| cells.word(at)).collect();
                    if let Some(word) = found.iter().find(|word| has_decimal_comma(word)) {
                        let reason = format!("{word:?} in the column {name} has a decimal comma; write a point");
                        return Err(Cause::Text(reason).at(path));
                    }
                    if found.len() > MAX_WORDS || found.len() * 2 > rows.len().max(SMALL_TABLE_ROWS) {
                        let [count, rows] = [found.len(), rows.len()];
                        all.notes.push(format!(
                            "the column {name} has {count} different words in {rows} rows and is left out"
                        ));
                        continue;
                    }
                    words.push(format!("{name} {}", found.len()));
                    features.extend(found.into_iter().map(|word| Feature::Category(word.into_owned())));
                }
            }
            features.extend((missing > 0 && !features.is_empty()).then_some(Feature::Missing));
            for feature in features {
                all.columns.push(Column::measure(name, feature, at, rows.iter().copied()));
                all.at.push(at);
            }
        }
        if all.columns.is_empty() {
            return Err(Cause::Table { line: 1, reason: "no column has numbers, or words that repeat".into() }.at(path));
        }
        if !gaps.is_empty() {
            all.notes
                .insert(0, format!("missing numbers count as the mean, and a feature tells so: {}", gaps.join(", ")));
        }
        if !words.is_empty() {
            all.notes.insert(0, format!("columns of words, with a feature for each: {}", words.join(", ")));
        }
        let columns = if numbers == 1 { "column" } else { "columns" };
        all.notes.insert(0, format!("{numbers} {columns} of numbers"));
        Ok(all)
    }

    /// Returns the normalized features of a row as bytes.
    pub fn bytes<'a>(&'a self, cells: &'a Cells) -> impl Iterator<Item = u8> + 'a {
        self.columns.iter().zip(&self.at).flat_map(|(column, at)| column.bytes(cells, *at))
    }

    /// Checks a row against features of a checkpoint: columns that are read as numbers must have numbers.
    ///
    /// # Errors
    /// See [`check`].
    pub fn check(&self, cells: &Cells) -> Result<(), String> {
        let wrong = self.columns.iter().zip(&self.at).find_map(|(column, at)| {
            let text = cells.text(*at).filter(|_| column.feature.is_number())?;
            Some(reason(text, &column.name))
        });
        wrong.map_or(Ok(()), Err)
    }

    /// Returns the first cell of a row whose word did not occur in training, with its column.
    pub fn unknown_word<'a>(&'a self, cells: &'a Cells) -> Option<(Cow<'a, str>, &'a str)> {
        let of_words = |column: &Column| match column.feature {
            Feature::Category(_) => true,
            Feature::Number | Feature::Missing => false,
        };
        self.columns.iter().zip(&self.at).filter(|(column, _)| of_words(column)).find_map(|(column, at)| {
            let word = cells.word(*at)?;
            let is_known = |(other, place): (&Column, &usize)| {
                place == at && matches!(&other.feature, Feature::Category(known) if *known == word)
            };
            let known = self.columns.iter().zip(&self.at).any(is_known);
            (!known).then_some((word, column.name.as_str()))
        })
    }
}
