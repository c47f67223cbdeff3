//! Images with one class each as a table of file names and classes, as Kaggle has them.

use super::{
    Cause, DataError, DataOptions, MOST_CLASSES,
    classes::sort_names,
    csv_rows::{LABELS, find_separator},
    error::few,
    files::{self, Broken, ImageFolder, PartFolders, TEST, TRAIN, VALIDATION, file_name, lower_name, visible, within},
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
        let name = lower_name(path);
        let table = [".csv", ".tsv"].iter().any(|suffix| name.ends_with(suffix));
        // Kaggle's example of a submission has invented classes.
        table && !name.contains("submission") && path.is_file()
    };
    let paths: Vec<PathBuf> = visible(dir)?.into_iter().filter(is_table).collect();
    if paths.is_empty() {
        return Ok(None);
    }
    let images = Images::find(dir, parts)?;
    if images.all.count == 0 {
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
    sort_names(&mut names);
    if names.len() > MOST_CLASSES {
        let found = names.len();
        names.truncate(8);
        return Err(Cause::Classes { found, examples: names, hint: "" }.at(train.path));
    }
    let ids: BTreeMap<&str, u32> = names.iter().map(String::as_str).zip(0..).collect();
    let mut seen: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut resolve_rows = |table: &Table, broken: &mut Broken<'_>| {
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
            listed.push(row.as_ref().map_err(|reason| wrong(reason.clone())).map(|Row { image, class }| Image {
                path: image.clone(),
                class: ids.get(class.as_str()).copied().unwrap_or_default(),
            }));
        }
        Ok(broken.sift(listed))
    };
    let used = [Some(&train), test.as_ref(), validation.as_ref()].into_iter().flatten();
    let used = used.map(|table| table.path.clone()).collect();
    let all = resolve_rows(&train, broken)?;
    let test = test.map(|table| resolve_rows(&table, broken)).transpose()?;
    let validation = validation.map(|table| resolve_rows(&table, broken)).transpose()?;
    let unnamed = images.all.count.saturating_sub(seen.len());
    if unnamed > 0 {
        broken.leave_out(format!("{} that no table names", files::images(unnamed)));
    }
    let mut train = vec![Vec::new(); names.len()];
    for image in all {
        train[image.class as usize].push(image);
    }
    Ok(Some(Sorted { names, train, test, validation, tables: used }))
}

/// Image files of a directory, and of the folders of its parts.
struct Images {
    all: NamedImages,
    train: NamedImages,
    test: NamedImages,
    validation: NamedImages,
}

impl Images {
    fn find(dir: &Path, parts: &PartFolders) -> Result<Self, DataError> {
        let below = |folder: &Option<PathBuf>| match folder {
            Some(folder) => NamedImages::find(folder),
            None => Ok(NamedImages::default()),
        };
        Ok(Self {
            all: NamedImages::find(dir)?,
            train: below(&parts.train)?,
            test: below(&parts.test)?,
            validation: below(&parts.validation)?,
        })
    }

    /// Returns the image that a table means by a name: that of the table's own part, or else any. Tables of no part mean
    /// training images. `Some(None)`: several images have the name.
    fn get(&self, name: &str, role: Role) -> Option<Option<&PathBuf>> {
        let own = match role {
            Role::Train | Role::All => &self.train,
            Role::Test => &self.test,
            Role::Validation => &self.validation,
        };
        let name = name.trim_start_matches("./");
        own.by_name.get(name).or_else(|| self.all.by_name.get(name)).map(Option::as_ref)
    }
}

/// Image files of a directory and of its folders, by all names that a table may use.
#[derive(Default)]
struct NamedImages {
    /// Paths by name; `None` if several images have the name.
    by_name: BTreeMap<String, Option<PathBuf>>,
    count: usize,
}

impl NamedImages {
    fn find(dir: &Path) -> Result<Self, DataError> {
        let mut found = Self::default();
        found.add(dir, dir, MAX_DEPTH)?;
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
        let (mut reader, role) = (ReaderBuilder::new(), find_role(path));
        reader.delimiter(find_separator(first.as_bytes())).trim(Trim::All).has_headers(false).flexible(true);
        let records: Result<Vec<StringRecord>, _> = reader.from_reader(text.as_bytes()).records().collect();
        let Ok(records) = records else { return Ok(None) };
        let Some(head) = records.first() else { return Ok(None) };
        let found = |record: &StringRecord, column: usize| {
            record.get(column).is_some_and(|name| images.get(name, role).is_some())
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
            let mistaken = !others.is_empty() && role != Role::Test;
            let columns: Vec<String> = others.iter().map(|column| head[*column].to_owned()).collect();
            let reason = format!("which column has the classes? `label` names it; the columns are {}", few(&columns));
            return if mistaken { Err(Cause::Table { line: 1, reason }.at(path)) } else { Ok(None) };
        };
        let row = |record: &StringRecord| {
            let name = record.get(file).unwrap_or_default();
            let class = record.get(class).filter(|class| !class.is_empty());
            let image = match images.get(name, role) {
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
        Ok(Some(Self { path: path.to_owned(), role, rows }))
    }
}

/// Returns the part that a table lists, by its name.
fn find_role(path: &Path) -> Role {
    let name = lower_name(path);
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
