//! Images with one class each as a table of file names and classes, as Kaggle has them.

use super::{
    Cause, DataError, DataOptions, MOST_CLASSES,
    csv_rows::LABELS,
    error::few,
    files::{self, Broken, ImageFolder, PartFolders, TEST, TRAIN, VALIDATION, file_name, visible, within},
    lists::read_if_present,
};
use csv::{ReaderBuilder, StringRecord, Trim};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Depth to which folders are searched for the images that tables name.
const MAX_DEPTH: usize = 3;

/// Image file with its class id.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub path: PathBuf,
    pub class: u32,
}

/// Image files of the parts of a data set, with the names of the classes.
#[derive(Debug)]
pub(super) struct Sorted {
    pub names: Vec<String>,
    /// Training images by class.
    pub train: Vec<Vec<Image>>,
    /// Images of the test set; `None` if every fifth training image is held out for it.
    pub test: Option<Vec<Image>>,
    pub validation: Option<Vec<Image>>,
    /// Tables that were read.
    pub tables: Vec<PathBuf>,
}

/// Part of the data set that a table lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Train,
    Test,
    Validation,
    /// Images of all parts, or of one that only the user knows.
    All,
}

/// Table whose rows name image files and their classes.
struct Table {
    path: PathBuf,
    role: Role,
    /// Number of each row's line, with what it names or why it cannot be used.
    rows: Vec<(usize, Result<Row, String>)>,
}

/// Image of a row and its class.
struct Row {
    image: PathBuf,
    class: String,
}

/// Finds a table that names the images of a directory, and sorts these by it; returns `None` if there is none.
pub(super) fn load(
    dir: &Path, parts: &PartFolders, reading: &DataOptions, broken: &mut Broken<'_>,
) -> Result<Option<Sorted>, DataError> {
    let is_table = |path: &PathBuf| {
        let name = file_name(path).to_lowercase();
        let table = [".csv", ".tsv"].iter().any(|suffix| name.ends_with(suffix));
        // Kaggle's example of a submission has invented classes.
        table && !name.contains("submission") && path.is_file()
    };
    let paths: Vec<PathBuf> = visible(dir)?.into_iter().filter(is_table).collect();
    if paths.is_empty() {
        return Ok(None);
    }
    let images = Images::find(dir, parts)?;
    if images.count == 0 {
        return Ok(None);
    }
    let (mut tables, mut unused) = (Vec::new(), Vec::new());
    for path in paths {
        match Table::read(&path, &images, reading.label.as_deref())? {
            Some(table) => tables.push(table),
            None => unused.push(path),
        }
    }
    let mut take = |role: Role| {
        let at = tables.iter().position(|table| table.role == role)?;
        Some(tables.remove(at))
    };
    let train = take(Role::Train).or_else(|| take(Role::All));
    let Some(train) = train else { return Ok(None) };
    let [test, validation] = [take(Role::Test), take(Role::Validation)];
    let (test, validation) = if test.is_some() { (test, validation) } else { (validation, None) };
    let validation = validation.filter(|_| reading.validation);
    for path in unused.iter().chain(tables.iter().map(|table| &table.path)) {
        broken.leave_out(format!("{} (no classes of images)", within(dir, path)));
    }
    let known: BTreeSet<&String> = [Some(&train), test.as_ref(), validation.as_ref()]
        .into_iter()
        .flatten()
        .flat_map(|table| table.rows.iter().filter_map(|(_, row)| row.as_ref().ok()))
        .map(|row| &row.class)
        .collect();
    let mut names: Vec<String> = known.into_iter().cloned().collect();
    if names.iter().all(|name| name.parse::<i64>().is_ok()) {
        names.sort_by_key(|name| name.parse::<i64>().ok());
    }
    if names.len() > MOST_CLASSES {
        let found = names.len();
        names.truncate(8);
        return Err(Cause::Classes { found, examples: names, hint: "" }.at(train.path));
    }
    let mut seen: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut of = |table: &Table, broken: &mut Broken<'_>| {
        let mut listed = Vec::new();
        for (line, row) in &table.rows {
            let wrong = |reason: String| Cause::Table { line: *line, reason }.at(&table.path);
            if let Ok(Row { image, .. }) = row
                && let Some(other) = seen.insert(image.clone(), file_name(&table.path))
            {
                let name = within(dir, image);
                return Err(wrong(if other == file_name(&table.path) {
                    format!("{name} is listed twice")
                } else {
                    format!("{name} is in {other} too; remove it from one")
                }));
            }
            listed.push(row.as_ref().map_err(|reason| wrong(reason.clone())).map(|Row { image, class }| {
                let class = names.iter().position(|name| name == class).unwrap_or_default();
                Image { path: image.clone(), class: u32::try_from(class).unwrap_or_default() }
            }));
        }
        Ok(broken.sift(listed))
    };
    let used = [Some(&train), test.as_ref(), validation.as_ref()].into_iter().flatten();
    let used = used.map(|table| table.path.clone()).collect();
    let all = of(&train, broken)?;
    let test = test.map(|table| of(&table, broken)).transpose()?;
    let validation = validation.map(|table| of(&table, broken)).transpose()?;
    let unnamed = images.count.saturating_sub(seen.len());
    if unnamed > 0 {
        broken.leave_out(format!("{} that no table names", files::images(unnamed)));
    }
    let mut train = vec![Vec::new(); names.len()];
    for image in all {
        train[image.class as usize].push(image);
    }
    Ok(Some(Sorted { names, train, test, validation, tables: used }))
}

/// Image files of a directory and of its folders, by all names that a table may use.
struct Images {
    /// Paths by name; `None` if several images have the name.
    by_name: BTreeMap<String, Option<PathBuf>>,
    count: usize,
}

impl Images {
    fn find(dir: &Path, parts: &PartFolders) -> Result<Self, DataError> {
        let mut found = Self { by_name: BTreeMap::new(), count: 0 };
        found.add(dir, dir, MAX_DEPTH)?;
        // A name that several folders have means the image of the training set.
        if let Some(train) = &parts.train {
            for path in ImageFolder::list(train)?.images.into_iter().flatten() {
                names_of(train, &path).into_iter().for_each(|name| {
                    found.by_name.insert(name, Some(path.clone()));
                });
            }
        }
        Ok(found)
    }

    fn add(&mut self, dir: &Path, folder: &Path, depth: usize) -> Result<(), DataError> {
        let content = ImageFolder::list(folder)?;
        for path in content.images.into_iter().flatten() {
            self.count += 1;
            for name in names_of(dir, &path) {
                self.by_name.entry(name).and_modify(|known| *known = None).or_insert_with(|| Some(path.clone()));
            }
        }
        let deeper = content.folders.iter().filter(|_| depth > 0);
        deeper.into_iter().try_for_each(|folder| self.add(dir, folder, depth - 1))
    }
}

/// Returns the names by which a table may mean an image: its path, its file name, and that without suffix.
fn names_of(dir: &Path, path: &Path) -> BTreeSet<String> {
    let whole = within(dir, path).replace('\\', "/");
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let whole_stem = whole.rsplit_once('.').map_or_else(|| whole.clone(), |(stem, _)| stem.to_owned());
    [whole, whole_stem, file_name(path), stem].into()
}

impl Table {
    /// Reads a table; returns `None` if no column names images or none has their classes.
    fn read(path: &Path, images: &Images, label: Option<&str>) -> Result<Option<Self>, DataError> {
        // A table in another encoding is not one of images: if it is one of numbers, its own reader reports it.
        let Some(text) = read_if_present(path).ok().flatten() else { return Ok(None) };
        let first = text.lines().next().unwrap_or_default();
        let count = |separator: u8| first.bytes().filter(|byte| *byte == separator).count();
        let separator = [b'\t', b';', b','].into_iter().max_by_key(|separator| count(*separator)).unwrap_or(b',');
        let mut reader = ReaderBuilder::new();
        reader.delimiter(separator).trim(Trim::All).has_headers(false).flexible(true);
        let records: Result<Vec<StringRecord>, _> = reader.from_reader(text.as_bytes()).records().collect();
        let Ok(records) = records else { return Ok(None) };
        let Some(head) = records.first() else { return Ok(None) };
        let found = |record: &StringRecord, column: usize| {
            record.get(column).is_some_and(|name| images.by_name.contains_key(name.trim_start_matches("./")))
        };
        let named = |column: usize| records.iter().filter(|record| found(record, column)).count();
        let Some(file) = (0..head.len()).max_by_key(|column| (named(*column), head.len() - column)) else {
            return Ok(None);
        };
        // A column of other numbers may name some images by chance.
        if 2 * named(file) < records.len() {
            return Ok(None);
        }
        let headless = found(head, file);
        let others: Vec<usize> = (0..head.len()).filter(|column| *column != file).collect();
        let called = |name: &str| others.iter().find(|column| head[**column].eq_ignore_ascii_case(name)).copied();
        let class = match label {
            Some(name) if !headless => called(name),
            Some(_) | None => match others[..] {
                [] => None,
                [one] => Some(one),
                [..] if headless => None,
                [..] => LABELS.iter().find_map(|name| called(name)),
            },
        };
        let Some(class) = class else {
            let mistaken = !others.is_empty() && role(path) != Role::Test;
            let columns: Vec<String> = others.iter().map(|column| head[*column].to_owned()).collect();
            let reason =
                format!("which column has the classes? --label NAME names it; the columns are {}", few(&columns));
            return if mistaken { Err(Cause::Table { line: 1, reason }.at(path)) } else { Ok(None) };
        };
        let row = |record: &StringRecord| {
            let name = record.get(file).unwrap_or_default();
            let class = record.get(class).filter(|class| !class.is_empty());
            let image = match images.by_name.get(name.trim_start_matches("./")) {
                Some(Some(image)) => image.clone(),
                Some(None) => {
                    return Err(format!("several images are called {name}; write the folder before the name"));
                }
                None => return Err(format!("no image {name}")),
            };
            let class = class.ok_or_else(|| format!("no class of {name}"))?;
            Ok(Row { image, class: class.to_owned() })
        };
        let line = |record: &StringRecord| {
            record.position().map_or(0, |position| usize::try_from(position.line()).unwrap_or(usize::MAX))
        };
        let rows = records.iter().skip(usize::from(!headless)).map(|record| (line(record), row(record))).collect();
        Ok(Some(Self { path: path.to_owned(), role: role(path), rows }))
    }
}

/// Returns the part that a table lists, by its name.
fn role(path: &Path) -> Role {
    let name = file_name(path).to_lowercase();
    let named = |names: &[&str]| names.iter().any(|part| name.starts_with(part));
    if named(&TRAIN) {
        Role::Train
    } else if named(&TEST) {
        Role::Test
    } else if named(&VALIDATION) {
        Role::Validation
    } else {
        Role::All
    }
}
