//! Images with one class each as folders of image files, a folder for each class.

use super::{
    Cause, Classification, DataError, DataOptions, Element, Fingerprint, Labelled, LoadNotes, MOST_CLASSES, Sources,
    Store, Stored,
    classify::Moments,
    decode::{self, Form, Header},
    files::{self, Broken, ImageFolder, PartFolders, fifths, file_name, images_below, within},
    image_table::{self, Image, Sorted},
    split_note,
    store::{each_file, read},
};
use std::{
    collections::BTreeSet,
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

/// Means and deviations of ImageNet's channels, as torchvision has them, of values from 0 to 1.
const PHOTOGRAPHS: [[f32; 3]; 2] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];
/// Number of images of a class of which one is the first for evaluation.
const MIN_CLASS_IMAGES: usize = 5;

/// Loads images from one folder for each class, or as a table lists them; returns `None` if the directory has neither.
pub(super) fn load(dir: &Path, reading: &DataOptions, broken: &mut Broken<'_>) -> Result<Option<Labelled>, DataError> {
    let parts = PartFolders::find(dir)?;
    let root = parts.train.clone().unwrap_or_else(|| dir.to_owned());
    let folders = ClassFolders::list(&root, if parts.train.is_some() { None } else { Some(&parts) })?;
    let table = reading.label.is_some() || folders.classes.len() < 2 && !reading.without_classes;
    if table && let Some(sorted) = image_table::load(dir, &parts, reading, broken)? {
        return open(dir, sorted, reading, broken).map(Some);
    }
    if reading.label.is_some() {
        return Ok(None);
    }
    match by_folder(dir, &parts, (&root, folders), reading, broken)? {
        Some(sorted) => open(dir, sorted, reading, broken).map(Some),
        None => Ok(None),
    }
}

/// Sorts images by the folders of their classes.
fn by_folder(
    dir: &Path, parts: &PartFolders, (root, mut folders): (&Path, ClassFolders), reading: &DataOptions,
    broken: &mut Broken<'_>,
) -> Result<Option<Sorted>, DataError> {
    if reading.without_classes && !folders.own.images.is_empty() {
        // Classes do not matter, so images need no folder.
        let own = ImageFolder { images: std::mem::take(&mut folders.own.images), ..ImageFolder::default() };
        folders.classes.push(ClassFolder { path: root.to_owned(), name: file_name(root), content: own });
    }
    let [test, validation] = [&parts.test, &parts.validation].map(|part| match part {
        Some(folder) => ClassFolders::list(folder, None).map(|found| Some((folder, found))),
        None => Ok(None),
    });
    let [test, validation] = [test?, validation?];
    let held = |part: &Option<(&PathBuf, ClassFolders)>| part.as_ref().is_some_and(|(_, part)| part.is_usable(reading));
    if folders.classes.is_empty() {
        if let [first, _, ..] = &folders.nested[..] {
            return Err(nested(dir, first, &folders.nested));
        }
        return match parts.train {
            Some(_) if held(&test) || held(&validation) => Err(without_images(root, "a folder for each class")),
            Some(_) | None => Ok(None),
        };
    }
    folders.note_others(dir, broken);
    if parts.train.is_some() {
        note_beside(dir, parts, broken)?;
    }
    let mut names: Vec<String> = folders.classes.iter().map(|folder| folder.name.clone()).collect();
    if names.len() > MOST_CLASSES {
        let found = names.len();
        names.truncate(8);
        return Err(Cause::Classes { found, examples: names, hint: "" }.at(root));
    }
    let train = images(root, folders.classes, &names, reading, broken)?;
    let mut take = |part: Option<(&PathBuf, ClassFolders)>| match part {
        Some((_, mut found)) if found.is_usable(reading) => {
            found.note_others(dir, broken);
            found.add_own(reading, &names);
            Ok(Some(
                images(root, found.classes, &names, reading, broken)?.into_iter().flatten().collect::<Vec<Image>>(),
            ))
        }
        Some((folder, found)) => {
            let count = found.own.images.len() + found.nested.iter().map(|one| images_below(one)).sum::<usize>();
            let rename = if parts.train.is_none() { "; rename it if it is a class" } else { "" };
            broken.leave_out(format!(
                "{} in {}, which has no folder for each class{rename}",
                files::images(count),
                within(dir, folder)
            ));
            Ok(None)
        }
        None => Ok(None),
    };
    // Images for scores during training are listed on request only.
    let replaces = !held(&test);
    let test = take(test)?;
    let validation = if replaces || reading.validation { take(validation)? } else { None };
    let (test, validation) = if replaces { (validation, None) } else { (test, validation) };
    Ok(Some(Sorted { names, train, test, validation, tables: Vec::new() }))
}

/// Returns the error about folders of classes that have folders instead of images.
fn nested(dir: &Path, first: &Path, all: &[PathBuf]) -> DataError {
    let inner = ImageFolder::list(first).unwrap_or_default().described();
    let others = match all.len() {
        2 => "; 1 more folder is alike".to_owned(),
        all => format!("; {} more folders are alike", all.saturating_sub(1)),
    };
    let parts = if first.parent() == Some(dir) { ", or call the folders of parts train and test" } else { "" };
    Cause::Files(format!(
        "no images; {inner}{others}; images must be in the folder of their class itself: move them there{parts}"
    ))
    .at(first)
}

/// Returns the error about a folder without images, with what it has and what is needed.
pub(super) fn without_images(folder: &Path, needed: &str) -> DataError {
    let found = ImageFolder::list(folder).unwrap_or_default().described();
    Cause::Files(format!("no images, but {needed} is needed; {found}")).at(folder)
}

/// Records images beside the folders of parts, which no part has.
fn note_beside(dir: &Path, parts: &PartFolders, broken: &mut Broken<'_>) -> Result<(), DataError> {
    let content = ImageFolder::list(dir)?;
    if !content.images.is_empty() {
        broken.leave_out(format!("{} beside the folders of parts", files::images(content.images.len())));
    }
    for folder in content.folders.iter().filter(|folder| !parts.contain(folder)) {
        let count = images_below(folder);
        if count > 0 {
            broken.leave_out(format!("{} in {}", files::images(count), within(dir, folder)));
        }
    }
    Ok(())
}

/// Folder with the images of a class.
struct ClassFolder {
    path: PathBuf,
    name: String,
    content: ImageFolder,
}

/// Folders of classes in a directory, and what else it has.
#[derive(Default)]
struct ClassFolders {
    /// Folders with images, sorted by number if all names are numbers.
    classes: Vec<ClassFolder>,
    /// Folders that have images only in folders of their own.
    nested: Vec<PathBuf>,
    /// Folders without any images.
    empty: Vec<PathBuf>,
    /// Content of the directory itself.
    own: ImageFolder,
}

impl ClassFolders {
    /// Lists the folders in a directory, without those that are parts of the data set.
    fn list(root: &Path, parts: Option<&PartFolders>) -> Result<Self, DataError> {
        let mut found = Self { own: ImageFolder::list(root)?, ..Self::default() };
        for path in std::mem::take(&mut found.own.folders) {
            if parts.is_some_and(|parts| parts.contain(&path)) {
                continue;
            }
            let content = ImageFolder::list(&path)?;
            if !content.images.is_empty() {
                found.classes.push(ClassFolder { name: file_name(&path), path, content });
            } else if images_below(&path) > 0 {
                found.nested.push(path);
            } else {
                found.empty.push(path);
            }
        }
        if found.classes.iter().all(|folder| folder.name.parse::<u64>().is_ok()) {
            found.classes.sort_by_key(|folder| folder.name.parse::<u64>().ok());
        }
        Ok(found)
    }

    /// Returns true if the folders can be a test set.
    const fn is_usable(&self, reading: &DataOptions) -> bool {
        !self.classes.is_empty() || reading.without_classes && !self.own.images.is_empty()
    }

    /// Adds images outside of folders to the first class, where classes do not matter.
    fn add_own(&mut self, reading: &DataOptions, names: &[String]) {
        if reading.without_classes && !self.own.images.is_empty() {
            let content = ImageFolder { images: std::mem::take(&mut self.own.images), ..ImageFolder::default() };
            let name = names.first().cloned().unwrap_or_default();
            self.classes.push(ClassFolder { path: PathBuf::new(), name, content });
        }
    }

    /// Records what is not read: images outside of the classes' folders, deeper and empty folders, other files.
    fn note_others(&self, dir: &Path, broken: &mut Broken<'_>) {
        if !self.own.images.is_empty() {
            broken.leave_out(format!("{} outside of the classes' folders", files::images(self.own.images.len())));
        }
        self.classes.iter().for_each(|folder| folder.content.note_others(dir, broken));
        for folder in &self.nested {
            broken.leave_out(format!(
                "{} in folders of {}, which has no images itself",
                files::images(images_below(folder)),
                within(dir, folder)
            ));
        }
        // Folders of other data, for example of tables, are not meant as classes.
        let empty: Vec<String> = self.empty.iter().map(|folder| within(dir, folder)).collect();
        if !empty.is_empty() {
            broken.leave_out(format!("{} (no images)", super::error::few(&empty)));
        }
    }
}

/// Lists the image files of each class's folder.
fn images(
    root: &Path, folders: Vec<ClassFolder>, names: &[String], reading: &DataOptions, broken: &mut Broken<'_>,
) -> Result<Vec<Vec<Image>>, DataError> {
    let mut all = Vec::new();
    for ClassFolder { path: folder, name, content } in folders {
        let class = names.iter().position(|known| *known == name).or_else(|| reading.without_classes.then_some(0));
        let class = class.and_then(|class| u32::try_from(class).ok());
        let Some(class) = class else {
            let own = root.join(&name);
            if own.is_dir() {
                let cause = format!("no images of the class {name} for training, but {} has some", folder.display());
                return Err(Cause::Files(cause).at(own));
            }
            let alike = names.iter().find(|known| known.eq_ignore_ascii_case(&name));
            let alike = alike.map_or_else(String::new, |known| format!(", but of {known}"));
            let user = format!("the training set has no images of this class{alike}, so {} is needed", own.display());
            return Err(Cause::Missing(user).at(folder));
        };
        let images = broken.sift(content.images);
        all.push(images.into_iter().map(|path| Image { path, class }).collect());
    }
    Ok(all)
}

/// Reads the images that were found.
fn open(dir: &Path, sorted: Sorted, reading: &DataOptions, broken: &mut Broken<'_>) -> Result<Labelled, DataError> {
    let Sorted { names, train, test, validation, tables } = sorted;
    let mut taken = Vec::new();
    let counts: Vec<usize> = train.iter().map(Vec::len).collect();
    let held_out = test.is_none();
    let (train, test) = match test {
        Some(test) => (train.into_iter().flatten().collect(), test),
        None => {
            // Of each class alike.
            let mut parts = [Vec::new(), Vec::new()];
            for class in train {
                let [train, test] = fifths(class);
                parts[0].extend(train);
                parts[1].extend(test);
            }
            taken.push(split_note(parts[0].len(), parts[1].len()));
            let [train, test] = parts;
            (train, test)
        }
    };
    let without_test = without_test(&names, &test, held_out);
    let validation = validation.map(|images| headers(images, broken)).filter(|images| !images.is_empty());
    let [train, test] = [train, test].map(|images| headers(images, broken));
    let all = train.len() + test.len() + validation.as_ref().map_or(0, Vec::len);
    if train.is_empty() || test.is_empty() {
        broken.check(all, dir)?;
        return Err(too_few(&names, &counts, train.is_empty()).at(dir));
    }
    if let Some(without) = without_test {
        taken.push(without);
    }
    let form = Form {
        size: reading.size.map_or(train[0].1.size, |size| size.0),
        channels: if train.iter().chain(&test).chain(validation.iter().flatten()).all(|(_, header)| header.grey) {
            1
        } else {
            3
        },
        resize: reading.size.is_some(),
    };
    let paths = |images: &[(Image, Header)]| images.iter().map(|(image, _)| image.path.clone()).collect::<Vec<_>>();
    let (files, first) = {
        let all = [&train, &test].into_iter().chain(&validation);
        let all: Vec<PathBuf> = all.flat_map(|images| paths(images)).collect();
        (Some(Fingerprint::measure(dir, all.iter().chain(&tables))?), all.into_iter().next())
    };
    let notes = LoadNotes { taken, files, first, ..LoadNotes::default() };
    if reading.crop.is_some() && reading.size.is_none() {
        // Nothing but headers is looked at before the first step: there may be a million files.
        broken.check(all, dir)?;
        let [train, test] = [train, test].map(|images| streamed(images, form, names.len()));
        let validation = validation.map(|images| streamed(images, form, names.len()));
        let [means, deviations] = PHOTOGRAPHS.map(|all| all.map(|part| 255.0 * part));
        let of_all = |all: [f32; 3]| all.iter().sum::<f32>() / 3.0;
        let mut notes = notes;
        notes.taken.push("means and deviations of channels are those of ImageNet".to_owned());
        return Ok(Labelled {
            name: String::new(),
            classes: names,
            mean: of_all(means),
            deviation: of_all(deviations),
            channels: (form.channels == 3).then_some([means, deviations]),
            columns: Vec::new(),
            train,
            validation,
            test,
            notes,
        });
    }
    let differs = |(_, header): &&(Image, Header)| !form.resize && header.size != form.size;
    if let Some((image, header)) = [&train, &test].into_iter().chain(&validation).flatten().find(differs) {
        broken.check(all, dir)?;
        let cause = Cause::Size { expected: form.size, of: "the first image", found: header.size };
        return Err(cause.at(&image.path));
    }
    let (train, moments) = part(train, form, names.len(), reading, broken);
    let (test, _) = part(test, form, names.len(), reading, broken);
    let validation = validation.map(|images| part(images, form, names.len(), reading, broken).0);
    let validation = validation.filter(|part| part.count > 0);
    broken.check(train.count + test.count, dir)?;
    if train.count == 0 || test.count == 0 {
        return Err(too_few(&names, &counts, train.count == 0).at(dir));
    }
    let [mean, deviation] = moments.mean_and_deviation();
    let (name, channels, columns) = (String::new(), None, Vec::new());
    Ok(Labelled { name, classes: names, mean, deviation, channels, columns, train, validation, test, notes })
}

/// Returns a note about classes without test images, where these are a set of their own or held out.
fn without_test(names: &[String], test: &[Image], held_out: bool) -> Option<String> {
    let tested: BTreeSet<u32> = test.iter().map(|image| image.class).collect();
    let without = (0..).zip(names).filter(|(class, _)| !tested.contains(class));
    let without: Vec<String> = without.map(|(_, name)| name.clone()).collect();
    let why = match held_out {
        true => format!(", as classes of fewer than {MIN_CLASS_IMAGES} images have none"),
        false => String::new(),
    };
    (!without.is_empty() && !test.is_empty()).then(|| format!("no test image of {}{why}", super::error::few(&without)))
}

/// Returns the error about a set without training or test images.
fn too_few(names: &[String], counts: &[usize], training: bool) -> Cause {
    if training {
        return Cause::Files("no images for training can be read".to_owned());
    }
    let all: Vec<String> = names.iter().zip(counts).map(|(name, count)| format!("{count} of {name}")).collect();
    Cause::Files(format!(
        "no images for evaluation: every fifth of a class is held out, so a class needs {MIN_CLASS_IMAGES} images, and \
         there are {}; add images, or a folder test with a folder for each class",
        super::error::few(&all)
    ))
}

/// Reads the headers of all image files.
fn headers(images: Vec<Image>, broken: &mut Broken<'_>) -> Vec<(Image, Header)> {
    let header = |path: &Path| {
        let file = File::open(path).map_err(|error| Cause::Io(error).at(path))?;
        decode::header(BufReader::new(file)).map_err(|cause| cause.at(path))
    };
    let headers = each_file(images.len(), |i| header(&images[i].path));
    broken.sift(images.into_iter().zip(headers).map(|(image, header)| Ok((image, header?))))
}

/// Creates a set of image files of any sizes, which are read and cropped when they are needed.
fn streamed(images: Vec<(Image, Header)>, form: Form, classes: usize) -> Classification {
    let (count, [height, width], channels) = (images.len(), form.size, form.channels);
    let (paths, labels) = images.into_iter().map(|(image, _)| (image.path, image.class)).unzip();
    let (features, element) = (Store::Files { paths, form, values: None }, Element::Byte);
    let (sources, crop) = (Sources::Unnamed, Some(Stored::Any));
    Classification { count, height, width, channels, element, features, labels, classes, sources, crop }
}

/// Looks at all images, and keeps them if there is memory for them.
fn part(
    images: Vec<(Image, Header)>, form: Form, classes: usize, reading: &DataOptions, broken: &mut Broken<'_>,
) -> (Classification, Moments) {
    let [height, width] = form.size;
    let keep = reading.keeps(images.len(), height.saturating_mul(width).saturating_mul(form.channels));
    let look = |path: &Path| {
        let pixels = decode::image(&read(path)?, form).map_err(|cause| cause.at(path))?;
        let moments = Moments::measure(&pixels);
        Ok((if keep { pixels } else { Vec::new() }, moments))
    };
    let looked = each_file(images.len(), |i| look(&images[i].0.path));
    let whole = broken.sift(images.into_iter().zip(looked).map(|((image, _), looked)| Ok((image, looked?))));
    let (mut bytes, mut moments, mut paths, mut labels) = (Vec::new(), Moments::default(), Vec::new(), Vec::new());
    for (image, (pixels, sums)) in whole {
        bytes.extend(pixels);
        moments.add(sums);
        paths.push(image.path);
        labels.push(image.class);
    }
    let (count, channels, element) = (paths.len(), form.channels, Element::Byte);
    let (features, sources) = match keep {
        true => (bytes.into(), Sources::Files(paths)),
        false => (Store::Files { paths, form, values: None }, Sources::Unnamed),
    };
    let set =
        Classification { count, height, width, channels, element, features, labels, classes, sources, crop: None };
    (set, moments)
}

/// Returns true if a directory has a folder of images for each class, in it or in its training set.
pub(super) fn is_sorted(dir: &Path) -> bool {
    let classes = |root: &Path| {
        let folders = files::folders(root).unwrap_or_default();
        folders
            .iter()
            .filter(|folder| ImageFolder::list(folder).is_ok_and(|content| !content.images.is_empty()))
            .count()
    };
    let train = PartFolders::find(dir).ok().and_then(|parts| parts.train);
    train.map_or_else(|| classes(dir) >= 2, |train| classes(&train) >= 1)
}
