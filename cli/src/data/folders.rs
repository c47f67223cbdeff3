//! Images with one class each as folders of image files, a folder for each class.

use super::{
    Cause, Classification, DataError, DataOptions, Element, Labelled, LoadNotes, MOST_CLASSES, Store, Stored,
    classify::Moments,
    decode::{self, Form, Header},
    files::{self, Broken, fifths, visible},
    split_note,
    store::{each_file, read},
};
use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

/// Means and deviations of ImageNet's channels, as torchvision has them, of values from 0 to 1.
const PHOTOGRAPHS: [[f32; 3]; 2] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];

/// Image file in a class's folder, with its class id.
struct Image {
    path: PathBuf,
    class: u32,
}

/// Loads images from one folder for each class; returns `None` if the directory has no such folders.
pub(super) fn load(dir: &Path, reading: &DataOptions, broken: &mut Broken<'_>) -> Result<Option<Labelled>, DataError> {
    let inner = |name: &str| Some(dir.join(name)).filter(|path| path.is_dir());
    let root = inner("train").unwrap_or_else(|| dir.to_owned());
    let folders = classes(&root)?;
    let Some((first, _)) = folders.first() else { return Ok(None) };
    let mut names: Vec<String> = folders.iter().map(|(_, name)| name.clone()).collect();
    if names.len() > MOST_CLASSES {
        names.truncate(8);
        return Err(Cause::Classes { found: folders.len(), examples: names }.at(root));
    }
    let (first, mut taken) = (first.clone(), Vec::new());
    let train = images(&folders, &names, broken)?;
    let [test, validation] = match inner("train") {
        Some(_) => files::parts(|name| inner(name).is_some()).map(|name| name.and_then(inner)),
        None => [None, None],
    };
    let of = |folder: PathBuf, broken: &mut Broken<'_>| -> Result<Vec<Image>, DataError> {
        Ok(images(&classes(&folder)?, &names, broken)?.into_iter().flatten().collect())
    };
    let validation = validation.filter(|_| reading.validation).map(|folder| of(folder, broken)).transpose()?;
    let [train, test] = match test {
        Some(test) => [train.into_iter().flatten().collect(), of(test, broken)?],
        None => {
            // Of each class alike.
            let mut parts = [Vec::new(), Vec::new()];
            for class in train {
                let [train, test] = fifths(class);
                parts[0].extend(train);
                parts[1].extend(test);
            }
            taken.push(split_note(parts[0].len(), parts[1].len()));
            parts
        }
    };
    let validation = validation.map(|images| headers(images, broken)).transpose()?.filter(|images| !images.is_empty());
    let [train, test] = [headers(train, broken)?, headers(test, broken)?];
    if train.is_empty() || test.is_empty() {
        return Err(Cause::Empty.at(first));
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
    if reading.crop.is_some() && reading.size.is_none() {
        // Nothing but headers is looked at before the first step: there may be a million files.
        let [train, test] = [train, test].map(|images| streamed(images, form, names.len()));
        let validation = validation.map(|images| streamed(images, form, names.len()));
        let [means, deviations] = PHOTOGRAPHS.map(|all| all.map(|part| 255.0 * part));
        let of_all = |all: [f32; 3]| all.iter().sum::<f32>() / 3.0;
        taken.push("means and deviations of channels are those of ImageNet".to_owned());
        return Ok(Some(Labelled {
            name: String::new(),
            classes: names,
            mean: of_all(means),
            deviation: of_all(deviations),
            channels: (form.channels == 3).then_some([means, deviations]),
            columns: Vec::new(),
            train,
            validation,
            test,
            notes: LoadNotes { taken, left_out: Vec::new() },
        }));
    }
    let (train, moments) = part(train, form, names.len(), reading, broken)?;
    let (test, _) = part(test, form, names.len(), reading, broken)?;
    let validation = validation.map(|images| part(images, form, names.len(), reading, broken)).transpose()?;
    let validation = validation.map(|(validation, _)| validation);
    let [mean, deviation] = moments.mean_and_deviation();
    let notes = LoadNotes { taken, left_out: Vec::new() };
    let (name, channels, columns) = (String::new(), None, Vec::new());
    Ok(Some(Labelled { name, classes: names, mean, deviation, channels, columns, train, validation, test, notes }))
}

/// Lists the folders with images and their names, sorted by number if all names are numbers.
fn classes(root: &Path) -> Result<Vec<(PathBuf, String)>, DataError> {
    let mut folders = Vec::new();
    for path in visible(root)?.into_iter().filter(|path| path.is_dir()) {
        if !files::images(&path)?.is_empty() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            folders.push((path, name));
        }
    }
    if folders.iter().all(|(_, name)| name.parse::<u64>().is_ok()) {
        folders.sort_by_key(|(_, name)| name.parse::<u64>().ok());
    }
    Ok(folders)
}

/// Lists the image files of each class's folder.
fn images(
    folders: &[(PathBuf, String)], names: &[String], broken: &mut Broken<'_>,
) -> Result<Vec<Vec<Image>>, DataError> {
    let mut all = Vec::new();
    for (folder, name) in folders {
        let class = names.iter().position(|known| known == name).and_then(|class| u32::try_from(class).ok());
        let Some(class) = class else {
            return Err(Cause::Missing("the training set has no images of this class".into()).at(folder));
        };
        let images = broken.keep(files::images(folder)?)?;
        all.push(images.into_iter().map(|path| Image { path, class }).collect());
    }
    Ok(all)
}

/// Reads the headers of all image files.
fn headers(images: Vec<Image>, broken: &mut Broken<'_>) -> Result<Vec<(Image, Header)>, DataError> {
    let header = |path: &Path| {
        let file = File::open(path).map_err(|error| Cause::Io(error).at(path))?;
        decode::header(BufReader::new(file)).map_err(|cause| cause.at(path))
    };
    let headers = each_file(images.len(), |i| header(&images[i].path));
    broken.keep(images.into_iter().zip(headers).map(|(image, header)| Ok((image, header?))))
}

/// Creates a set of image files of any sizes, which are read and cropped when they are needed.
fn streamed(images: Vec<(Image, Header)>, form: Form, classes: usize) -> Classification {
    let (count, [height, width], channels) = (images.len(), form.size, form.channels);
    let (paths, labels) = images.into_iter().map(|(image, _)| (image.path, image.class)).unzip();
    let (features, element) = (Store::Files { paths, form, values: None }, Element::Byte);
    Classification { count, height, width, channels, element, features, labels, classes, crop: Some(Stored::Any) }
}

/// Looks at all images, and keeps them if there is memory for them.
fn part(
    images: Vec<(Image, Header)>, form: Form, classes: usize, reading: &DataOptions, broken: &mut Broken<'_>,
) -> Result<(Classification, Moments), DataError> {
    if let Some((image, header)) = images.iter().find(|(_, header)| !form.resize && header.size != form.size) {
        let cause = Cause::Size { expected: form.size, of: "the first image", found: header.size };
        return Err(cause.at(&image.path));
    }
    let [height, width] = form.size;
    let keep = reading.keeps(images.len(), height.saturating_mul(width).saturating_mul(form.channels));
    let look = |path: &Path| {
        let pixels = decode::image(&read(path)?, form).map_err(|cause| cause.at(path))?;
        let moments = Moments::measure(&pixels);
        Ok((if keep { pixels } else { Vec::new() }, moments))
    };
    let looked = each_file(images.len(), |i| look(&images[i].0.path));
    let whole = broken.keep(images.into_iter().zip(looked).map(|((image, _), looked)| Ok((image, looked?))))?;
    let (mut bytes, mut moments, mut paths, mut labels) = (Vec::new(), Moments::default(), Vec::new(), Vec::new());
    for (image, (pixels, sums)) in whole {
        bytes.extend(pixels);
        moments.add(sums);
        paths.push(image.path);
        labels.push(image.class);
    }
    let (count, channels, element) = (paths.len(), form.channels, Element::Byte);
    let features = if keep { bytes.into() } else { Store::Files { paths, form, values: None } };
    Ok((Classification { count, height, width, channels, element, features, labels, classes, crop: None }, moments))
}
