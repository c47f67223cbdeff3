//! CSV files: rows of numbers and words with one class each.

use super::{
    Cause, Classification, Column, DataError, DataOptions, Element, Fingerprint, Labelled, LoadNotes, Sources,
    classes::sort_names,
    columns::{Cells, Features, check, kinds},
    encoding::{not_utf_8, utf_16},
    files::{Broken, fifths, parts},
    listing, split_note, store,
};
use csv::{ReaderBuilder, StringRecord, Trim};
use std::{
    collections::BTreeMap,
    io::Cursor,
    path::{Path, PathBuf},
};

/// Default names of the column with the classes.
pub(super) const LABELS: [&str; 3] = ["label", "class", "target"];

/// Paths of the CSV file for training, and of those for test and for validation, if there are such.
pub(super) type Files = (PathBuf, [Option<PathBuf>; 2]);

/// Finds the CSV files in a directory, or takes a single file.
pub(super) fn files(path: &Path) -> Result<Option<Files>, DataError> {
    if path.is_file() {
        return Ok(Some((path.to_owned(), [None, None])));
    }
    let found = listing(path)?;
    let there =
        |name: &str| found.iter().find(|one| one.to_lowercase() == format!("{name}.csv")).map(|one| path.join(one));
    if let Some(train) = there("train") {
        return Ok(Some((train, parts(|name| there(name).is_some()).map(|name| name.and_then(there)))));
    }
    let mut tables = found.iter().filter(|name| name.to_lowercase().ends_with(".csv"));
    let (first, others) = (tables.next(), tables.next());
    Ok(first.filter(|_| others.is_none()).map(|name| (path.join(name), [None, None])))
}

/// Parsed line of a CSV file: its cells and its class.
#[derive(Clone, Debug)]
struct Row {
    /// Number of the line in the file.
    line: usize,
    cells: Cells,
    class: String,
}

/// Parsed contents of a CSV file: rows with their classes.
struct Table {
    /// Names of the columns besides that of the classes.
    names: Vec<String>,
    /// Name of the column that contains the classes.
    label: String,
    rows: Vec<Row>,
}

/// Loads a data set of rows from CSV files of training, validation and test.
pub(super) fn load(
    (path, [test_path, validation_path]): &Files, reading: &DataOptions, broken: &mut Broken<'_>,
) -> Result<Labelled, DataError> {
    if reading.crop.is_some() {
        return Err(Cause::Option("`crop` is for images only".into()).at(path));
    }
    if reading.size.is_some() {
        return Err(Cause::Option("`size` is for PNG and JPEG files only".into()).at(path));
    }
    let table = Table::read(path, reading.label.as_deref(), broken)?;
    let (names, label) = (table.names, table.label);
    let kinds = kinds(names.len(), table.rows.iter().map(|row| &row.cells));
    let checked = |path: &Path, rows: Vec<Row>, broken: &mut Broken<'_>| {
        let checked = |row: Row| match check(&row.cells, &names, &kinds) {
            Ok(()) => Ok(row),
            Err(reason) => Err(Cause::Table { line: row.line, reason }.at(path)),
        };
        broken.keep(rows.into_iter().map(checked))
    };
    let rows = checked(path, table.rows, broken)?;
    let mut taken = Vec::new();
    let mut other = |path: &PathBuf| {
        let other = Table::read(path, Some(&label), broken)?;
        if other.names != names {
            let reason = format!("columns {}; those for training are {}", other.names.join(", "), names.join(", "));
            return Err(Cause::Table { line: 1, reason }.at(path));
        }
        checked(path, other.rows, broken)
    };
    let validation = validation_path.as_ref().filter(|_| reading.validation).map(&mut other).transpose()?;
    let [train, test] = match test_path {
        Some(path) => [rows, other(path)?],
        None => {
            let parts = fifths(rows);
            taken.push(split_note(parts[0].len(), parts[1].len()));
            parts
        }
    };
    if train.is_empty() || test.is_empty() {
        return Err(Cause::Empty.at(path));
    }
    let mut classes: Vec<String> =
        train.iter().chain(&test).chain(validation.iter().flatten()).map(|row| row.class.clone()).collect();
    sort_names(&mut classes);
    classes.dedup();
    if classes.len() > 256 {
        let found = classes.len();
        classes.truncate(8);
        let hint = "; `label` names another column";
        return Err(Cause::Classes { found, examples: classes, hint }.at(format!("{}, column {label}", path.display())));
    }
    let features = Features::choose(path, &names, &kinds, &train.iter().map(|row| &row.cells).collect::<Vec<_>>())?;
    let mut notes = features.notes.clone().into_iter();
    let first = notes.next().map(|numbers| format!("{numbers}; the classes are in the column {label}"));
    let taken = first.into_iter().chain(notes).chain(taken).collect();
    let ids: BTreeMap<&str, u32> = classes.iter().map(String::as_str).zip(0..).collect();
    let part = |path: &Path, rows: &[Row]| Classification {
        count: rows.len(),
        height: 1,
        width: features.columns.len(),
        channels: 1,
        element: Element::Number,
        features: rows.iter().flat_map(|row| features.bytes(&row.cells)).collect::<Vec<u8>>().into(),
        labels: rows.iter().map(|row| ids.get(row.class.as_str()).copied().unwrap_or_default()).collect(),
        classes: classes.len(),
        sources: Sources::Lines { path: path.to_owned(), lines: rows.iter().map(|row| row.line).collect() },
        crop: None,
    };
    let of_validation = validation_path.as_deref().unwrap_or(path);
    let validation = validation.filter(|rows| !rows.is_empty()).map(|rows| part(of_validation, &rows));
    let (train, test) = (part(path, &train), part(test_path.as_deref().unwrap_or(path), &test));
    let files = [Some(path), test_path.as_ref(), validation_path.as_ref()].into_iter().flatten();
    let files = Some(Fingerprint::measure(path.parent().unwrap_or(path), files)?);
    let notes = LoadNotes { taken, files, ..LoadNotes::default() };
    Ok(Labelled {
        name: String::new(),
        classes,
        mean: 0.0,
        deviation: 1.0,
        channels: None,
        columns: features.columns,
        train,
        validation,
        test,
        notes,
    })
}

/// Rows of a table as a network takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRows {
    /// Normalized features of each row, as the bytes of f32 values.
    pub features: Vec<Vec<u8>>,
    /// Note about words that did not occur in training, if there are any.
    pub unknown: Option<String>,
}

/// Reads the rows of a file with these features, whether it has classes or not.
///
/// # Errors
/// A file that cannot be read, lacks a column, or has something else than numbers in a column of numbers.
pub fn rows(path: &Path, columns: &[Column]) -> Result<TableRows, DataError> {
    let reading = DataOptions::default();
    let mut reader = Reader::open(path)?;
    let find = |column: &Column| {
        let at = reader.head.iter().position(|name| *name == column.name);
        at.ok_or_else(|| Cause::Table { line: 1, reason: format!("no column {}", column.name) }.at(path))
    };
    let places = columns.iter().map(find).collect::<Result<Vec<usize>, _>>()?;
    // Several features may read one column.
    let mut unique = places.clone();
    unique.sort_unstable();
    unique.dedup();
    let at = places.iter().filter_map(|place| unique.binary_search(place).ok()).collect();
    let features = Features { columns: columns.to_vec(), at, notes: Vec::new() };
    let rows = reader.rows(|_, record| {
        let cells = Cells::parse(record, &unique);
        features.check(&cells).map(|()| cells)
    });
    let rows = Broken::new(&reading).keep(rows)?;
    let mut unknown = rows.iter().filter_map(|cells| features.unknown_word(cells)).peekable();
    let first = unknown.peek().map(|(word, name)| format!("“{word}” in the column {name}"));
    let count = unknown.count();
    let unknown = first.map(|first| {
        let rows = if count == 1 { "1 row has a word".to_owned() } else { format!("{count} rows have words") };
        format!("{rows} that did not occur in training, for example {first}")
    });
    Ok(TableRows { features: rows.iter().map(|cells| features.bytes(cells).collect()).collect(), unknown })
}

impl Table {
    fn read(path: &Path, label: Option<&str>, broken: &mut Broken<'_>) -> Result<Self, DataError> {
        let mut reader = Reader::open(path)?;
        let head = &reader.head;
        let wrong = |reason: String| Cause::Table { line: 1, reason }.at(path);
        let class = match label {
            Some(name) => {
                let at = head.iter().position(|one| one == name);
                at.ok_or_else(|| wrong(format!("no column {name}; the columns are {}", head.join(", "))))?
            }
            None => {
                let usual = head.iter().position(|one| LABELS.contains(&one.to_lowercase().as_str()));
                usual.unwrap_or(head.len().saturating_sub(1))
            }
        };
        // A column without a name counts the lines.
        let places: Vec<usize> = (0..head.len()).filter(|at| *at != class && !head[*at].is_empty()).collect();
        if places.is_empty() {
            return Err(wrong("only the column of classes; add columns of numbers or words".into()));
        }
        let (names, label): (Vec<_>, _) = (places.iter().map(|at| head[*at].clone()).collect(), head[class].clone());
        let rows = reader.rows(|line, record| {
            let name = record.get(class).unwrap_or("");
            if name.is_empty() {
                return Err(format!("no class in the column {label}"));
            }
            Ok(Row { line, cells: Cells::parse(record, &places), class: name.to_owned() })
        });
        let rows = broken.keep(rows)?;
        Ok(Self { names, label, rows })
    }
}

/// Returns the separator that a table's first line has most often: tab, semicolon or comma.
pub(super) fn find_separator(first_line: &[u8]) -> u8 {
    let count = |separator: &u8| first_line.iter().filter(|byte| *byte == separator).count();
    [b'\t', b';', b','].into_iter().max_by_key(count).unwrap_or(b',')
}

/// Open CSV file with its header line.
struct Reader {
    path: PathBuf,
    head: Vec<String>,
    csv: csv::Reader<Cursor<Vec<u8>>>,
}

impl Reader {
    /// Opens a CSV file and reads its header line.
    fn open(path: &Path) -> Result<Self, DataError> {
        let mut bytes = store::read(path)?;
        if let Some(text) = utf_16(&bytes) {
            bytes = text.map_err(|cause| cause.at(path))?.into_bytes();
        }
        let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut csv =
            ReaderBuilder::new().delimiter(find_separator(first)).trim(Trim::All).from_reader(Cursor::new(bytes));
        let head = csv.headers().map_err(|error| Cause::Table { line: 1, reason: error.to_string() }.at(path))?;
        let head: Vec<String> = head.iter().map(|name| name.trim_start_matches('\u{feff}').to_owned()).collect();
        let number = |name: &&String| name.parse::<f64>().is_ok();
        let reason = match head.iter().find(number) {
            Some(number) => format!("expected the names of the columns, found the number {number}; add a header line"),
            None if head.len() < 2 => "expected a header of at least two column names, separated by commas".to_owned(),
            None => match head.iter().enumerate().find(|(at, name)| !name.is_empty() && head[..*at].contains(name)) {
                Some((_, twice)) => format!("two columns are called {twice}; rename one"),
                None => return Ok(Self { path: path.to_owned(), head, csv }),
            },
        };
        Err(Cause::Table { line: 1, reason }.at(path))
    }

    /// Applies `work` to the number and the cells of each line; errors name the line number.
    fn rows<T>(&mut self, work: impl Fn(usize, &StringRecord) -> Result<T, String>) -> Vec<Result<T, DataError>> {
        let Self { path, csv, .. } = self;
        let mut rows = Vec::new();
        for record in csv.records() {
            let line =
                |at: Option<&csv::Position>| usize::try_from(at.map_or(0, csv::Position::line)).unwrap_or(usize::MAX);
            let (line, row) = match &record {
                Ok(record) => (line(record.position()), work(line(record.position()), record)),
                Err(error) => (line(error.position()), Err(kind(error))),
            };
            rows.push(row.map_err(|reason| Cause::Table { line, reason }.at(&*path)));
            if record.is_err_and(|error| error.is_io_error()) {
                break;
            }
        }
        rows
    }
}

/// Returns the message of a CSV error without its position.
fn kind(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => format!("{len} values, expected {expected_len}"),
        csv::ErrorKind::Utf8 { .. } => not_utf_8(None),
        _ => error.to_string(),
    }
}
