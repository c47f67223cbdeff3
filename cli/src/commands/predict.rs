//! `gradscale predict`: a trained network on images.

use crate::{
    Failure,
    commands::train::checkpoints::Found,
    data::{self, Picture, Size, Sound, Spectra},
    device::Device,
    drawing::{LIKELY, framed},
    output,
    tasks::{
        Apply, Choice, Classes, ImageInput, Made, Normal, Reads, Recognised, Task, Trained, Transcript, colour,
        torch::{self, Flattened},
    },
};
use clap::Args;
use gradscale::{CheckpointError, Method, checkpoint_metadata};
use image::{ExtendedColorType, ImageEncoder, codecs::png::PngEncoder};
use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

/// `gradscale predict`.
#[derive(Clone, Debug, Args)]
pub struct Predict {
    /// A checkpoint of `gradscale train`, or a PyTorch model: a safetensors file of its state_dict, whose modules are
    /// called as the layers that `gradscale plan` lists, without the network's name (encoder.conv1.weight). It is applied
    /// in f32.
    #[arg(value_name = "WEIGHTS")]
    weights: PathBuf,
    /// PNG or JPEG files, or directories with such. For segnet each may have a size of its own; for classify all must
    /// have that of the training images, unless these were resized; for detect any. Of a network for numbers, CSV files; of one for
    /// speech, WAV files of the training's rate; of one for translation, files of lines, plain or gzip'ed; of one for
    /// language, text files that it goes on from; of one that makes images, nothing.
    #[arg(value_name = "IMAGES")]
    images: Vec<PathBuf>,
    /// Of a network for text: what it goes on from; beside it, or instead, files with such texts. Words are told apart by
    /// blanks.
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Of text: tokens that are written behind it.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    length: u32,
    /// Of text: by what logits are divided before a token is drawn; 0: the likeliest token.
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = temperature)]
    temperature: f64,
    /// Of text: draws from so many of the likeliest tokens; 0: from all.
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: usize,
    /// Of a network that makes images: how many; they are made of the noise of --seed, the same for every checkpoint.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    count: u16,
    /// Of text: decides what is drawn. Of made images, of which noise: a training's report has that of its seed.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Directory for NAME-labels.png (grey values as in the label images of the training, where these were grey; else
    /// class ids) and NAME-overlay.png, or for classes.tsv of a
    /// network that has one class for an image, transcripts.tsv of one for speech, boxes.tsv (in pixels) with
    /// NAME-boxes.png of one for detect, translations.tsv (side
    /// by side) and translations.txt of one for translation, NAME-continued.txt of one for
    /// language, made.png of one that makes images.
    #[arg(long, value_name = "DIR", default_value = "predictions")]
    out: PathBuf,
    /// Of a PyTorch model: names and colours of its classes, a table as `classes.tsv` of a data set [default: numbers]
    #[arg(long, value_name = "FILE")]
    classes: Option<PathBuf>,
    /// Of a PyTorch model: what is subtracted from its images, of values from 0 to 1; one number, or one for each channel.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0", allow_hyphen_values = true)]
    mean: Vec<f32>,
    /// Of a PyTorch model: what they are divided by then; one number, or one for each channel.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1")]
    std: Vec<f32>,
    /// Where to run.
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: Device,
    /// Threads of the CPU; 0: one for each core.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=4096))]
    threads: u16,
}

fn temperature(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1e3).contains(number));
    number.ok_or_else(|| "must be a number from 0 to 1000".to_owned())
}

/// Predicts the classes of all pixels of all images, or of the images.
///
/// # Errors
/// A checkpoint or an image that cannot be used, results that cannot be written.
pub fn run(arguments: &Predict) -> Result<(), Failure> {
    let images = files(&arguments.images)?;
    let (mut applied, classes, fit) = network(arguments, &images)?;
    if images.is_empty() && arguments.prompt.is_none() {
        return make(arguments, &mut *applied);
    }
    fs::create_dir_all(&arguments.out).map_err(|error| Failure::file(&arguments.out, error))?;
    let mut table = String::new();
    if fit.boxes {
        return look(arguments, &images, &mut *applied, &classes);
    }
    if let Some(sound) = classes.sound {
        return hear(arguments, &images, &mut *applied, sound.rate);
    }
    if classes.sentences.is_some() {
        return translate(arguments, &images, &mut *applied);
    }
    if classes.text.is_some() {
        return go_on(arguments, &images, &mut *applied);
    }
    if arguments.prompt.is_some() {
        return Err(Failure::at("--prompt", "the network reads no text"));
    }
    for path in images {
        if !classes.columns.is_empty() {
            for (row, numbers) in data::rows(&path, &classes.columns)?.iter().enumerate() {
                let class = applied.predict([1, classes.columns.len(), 1], numbers)?;
                let class = class.classes().first().map_or(0, |&class| class as usize);
                let name = classes.names.get(class).map_or("?", String::as_str);
                writeln!(table, "{}:{}\t{class}\t{name}", path.display(), row + 1).ok();
            }
            continue;
        }
        let mut picture = Picture::read(&path, fit.resized)?;
        if let Some(ImageInput { size, .. }) = classes.input {
            if fit.middle {
                picture = picture.middle(size[0]);
            }
            let pixels = fitting(&picture, size).map_err(|cause| Failure::file(&path, cause))?;
            let class = applied.predict(size, &pixels)?.classes().first().map_or(0, |&class| class as usize);
            let name = classes.names.get(class).map_or("?", String::as_str);
            writeln!(table, "{}\t{class}\t{name}", path.display()).ok();
            output::print(&format!("{}: {name}\n", path.display()))?;
            continue;
        }
        let labels = applied.predict([picture.height, picture.width, 3], &picture.pixels)?;
        // A class of a pixel is a byte.
        let byte = |&class: &u32| u8::try_from(class).unwrap_or(u8::MAX);
        let labels: Vec<u8> = labels.classes().iter().map(byte).collect();
        let name = path.file_stem().map_or_else(|| "image".into(), |stem| stem.to_string_lossy());
        let labelled = arguments.out.join(format!("{name}-labels.png"));
        let grey = |class: &u8| classes.values.get(usize::from(*class)).copied().unwrap_or(*class);
        let greys: Vec<u8> = labels.iter().map(grey).collect();
        output::write(&labelled, &png(&labelled, &greys, &picture, ExtendedColorType::L8)?)?;
        let overlay = arguments.out.join(format!("{name}-overlay.png"));
        let mixed = mix(&picture, &labels, &classes);
        output::write(&overlay, &png(&overlay, &mixed, &picture, ExtendedColorType::Rgb8)?)?;
        output::print(&format!("{}: {}\n", overlay.display(), shares(&labels, &classes)))?;
    }
    if table.is_empty() {
        return Ok(());
    }
    output::write(&arguments.out.join("classes.tsv"), format!("image\tclass\tname\n{table}").as_bytes())
}

/// What is said in recordings: both texts of each.
fn hear(arguments: &Predict, files: &[PathBuf], applied: &mut dyn Apply, rate: u32) -> Result<(), Failure> {
    let spectra = Spectra::new(rate).map_err(|cause| Failure::file(&arguments.weights, cause))?;
    let mut table = "recording\ttext\tgreedy\n".to_owned();
    for path in files {
        let sound = Sound::read(path)?;
        if sound.rate != rate {
            let cause = format!("{} samples in a second, and the network hears {rate}", sound.rate);
            return Err(Failure::file(path, cause));
        }
        let numbers: Vec<u8> = spectra.of(&sound.samples).iter().flat_map(|x| x.to_le_bytes()).collect();
        let frequencies = spectra.frequencies();
        let answers = applied.predict([numbers.len() / 4 / frequencies, frequencies, 1], &numbers)?;
        for Transcript { text, greedy } in answers.texts() {
            writeln!(table, "{}\t{text}\t{greedy}", path.display()).ok();
            output::print(&format!("{}: {text}\n", path.display()))?;
        }
    }
    output::write(&arguments.out.join("transcripts.tsv"), table.as_bytes())
}

/// Images of noise, in one file.
fn make(arguments: &Predict, applied: &mut dyn Apply) -> Result<(), Failure> {
    let Some(made) = applied.make(arguments.count.into(), arguments.seed)? else {
        return Err(Failure::file(&arguments.weights, "its network reads images, recordings or texts: which?"));
    };
    fs::create_dir_all(&arguments.out).map_err(|error| Failure::file(&arguments.out, error))?;
    let Made { size: [height, width], pixels } = made.tiled();
    let path = arguments.out.join("made.png");
    let picture = Picture { height, width, pixels: Vec::new() };
    output::write(&path, &png(&path, &pixels, &picture, ExtendedColorType::Rgb8)?)?;
    output::print(&format!("{}: {} images\n", path.display(), arguments.count))
}

/// What sentences of files mean in the other language: side by side, and the translations alone.
fn translate(arguments: &Predict, files: &[PathBuf], applied: &mut dyn Apply) -> Result<(), Failure> {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (mut table, mut alone) = ("file\tline\tsource\ttranslation\tgreedy\n".to_owned(), String::new());
    for path in files {
        let sources = data::lines(path)?;
        let text = sources.iter().map(|source| plain(source) + "\n").collect::<String>();
        let answers = applied.predict([sources.len(), 1, 1], text.as_bytes());
        let answers = answers.map_err(|failure| Failure::file(path, failure))?;
        for (i, (source, Transcript { text, greedy })) in sources.iter().zip(answers.texts()).enumerate() {
            writeln!(table, "{}\t{}\t{}\t{text}\t{greedy}", path.display(), i + 1, plain(source)).ok();
            writeln!(alone, "{text}").ok();
            output::print(&format!("{}\n  → {text}\n", plain(source)))?;
        }
    }
    output::write(&arguments.out.join("translations.tsv"), table.as_bytes())?;
    output::write(&arguments.out.join("translations.txt"), alone.as_bytes())
}

/// How texts go on: that of `--prompt`, and those of files.
fn go_on(arguments: &Predict, files: &[PathBuf], applied: &mut dyn Apply) -> Result<(), Failure> {
    let Predict { length, temperature, top_k, seed, .. } = *arguments;
    let choice = Choice { temperature, top_k, seed };
    let mut prompts: Vec<(String, String)> =
        arguments.prompt.iter().map(|text| ("prompt".to_owned(), text.clone())).collect();
    for path in files {
        let stem = path.file_stem().map_or_else(|| "text".into(), |stem| stem.to_string_lossy());
        prompts.push((stem.into_owned(), data::text(path)?));
    }
    for (name, prompt) in prompts {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let text = applied.go_on(&prompt, length, choice)?;
        output::print(&format!("{text}\n"))?;
        output::write(&arguments.out.join(format!("{name}-continued.txt")), text.as_bytes())?;
    }
    Ok(())
}

/// What is in pictures: boxes drawn on each, and all of them in a table.
fn look(arguments: &Predict, files: &[PathBuf], applied: &mut dyn Apply, classes: &Classes) -> Result<(), Failure> {
    let mut table = "image\tclass\tscore\tleft\ttop\tright\tbottom\n".to_owned();
    for path in files {
        let picture = Picture::read(path, None)?;
        let size = [picture.height, picture.width];
        let answers = applied.predict([size[0], size[1], 3], &picture.pixels)?;
        let found = answers.boxes().first().map_or(&[][..], |found| found);
        let mut counts = vec![0usize; classes.names.len()];
        for one in found {
            let name = classes.names.get(one.class as usize).map_or("?", String::as_str);
            let [left, right] = [0, 2].map(|i| one.corners[i] * size[1] as f32);
            let [top, bottom] = [1, 3].map(|i| one.corners[i] * size[0] as f32);
            let place = format!("{left:.1}\t{top:.1}\t{right:.1}\t{bottom:.1}");
            writeln!(table, "{}\t{name}\t{:.4}\t{place}", path.display(), one.score).ok();
            if let (true, Some(count)) = (one.score >= LIKELY, counts.get_mut(one.class as usize)) {
                *count += 1;
            }
        }
        let name = path.file_stem().map_or_else(|| "image".into(), |stem| stem.to_string_lossy());
        let drawn = arguments.out.join(format!("{name}-boxes.png"));
        let pixels = framed(&picture.pixels, size, found, colour);
        output::write(&drawn, &png(&drawn, &pixels, &picture, ExtendedColorType::Rgb8)?)?;
        let counted = classes.names.iter().zip(&counts).filter(|(_, count)| **count > 0);
        let words: Vec<String> = counted.map(|(name, count)| format!("{count} × {name}")).collect();
        let words = if words.is_empty() { "nothing likely".to_owned() } else { words.join(", ") };
        output::print(&format!("{}: {words}\n", drawn.display()))?;
    }
    output::write(&arguments.out.join("boxes.tsv"), table.as_bytes())
}

/// What becomes of images first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Fit {
    resized: Option<Size>,
    /// Whether their middle is taken.
    middle: bool,
    /// Whether boxes are found in it.
    boxes: bool,
}

/// A network, ready; what it tells apart; what becomes of images.
type Ready = (Box<dyn Apply>, Classes, Fit);

/// The network of a file of either kind.
fn network(arguments: &Predict, images: &[PathBuf]) -> Result<Ready, Failure> {
    let path = &arguments.weights;
    let failed = |cause: String| Failure::file(path, cause);
    let (device, threads) = (arguments.device, usize::from(arguments.threads));
    let bytes = fs::read(path).map_err(|error| Failure::file(path, error))?;
    if checkpoint_metadata(&bytes) != Err(CheckpointError::Foreign) {
        let found = Found::new(path, bytes)?;
        let (plan, classes) = (found.plan()?, found.classes()?);
        let (network, method) = (plan.setup.chosen.network()?, plan.method()?);
        let fill = |parameters: &mut gradscale::Parameters, _: &[Flattened]| {
            parameters.load(&found.bytes).map(|_| ()).map_err(|error| failed(error.to_string()))
        };
        // Images with one class each are resized or cut as those for scores were.
        let (reading, whole) = (plan.setup.reading(), classes.input.is_some());
        let boxes = plan.setup.task() == Task::Detect;
        let fit = Fit { resized: reading.size.filter(|_| whole), middle: whole && reading.crop.is_some(), boxes };
        let trained = Trained { device, threads, network, classes: &classes, method, normal: None };
        return Ok((plan.setup.task().kind().apply(trained, &fill)?, classes, fit));
    }
    let recognised = Recognised::of(&bytes).map_err(failed)?;
    let mut classes = named(arguments.classes.as_deref(), recognised.classes)?;
    let (mut size, mut fit) = (None, Fit { boxes: recognised.task == Task::Detect, ..Fit::default() });
    if let Some((side, Reads::Channels(channels))) = recognised.network.image().map(|side| (side, recognised.input)) {
        classes.input = Some(ImageInput::new([side, side, channels], [0.0, 1.0]));
        (size, fit) = (Some([side, side, channels]), Fit { middle: true, ..fit });
    } else if let Reads::Noise(image) = recognised.input {
        classes.input = Some(ImageInput::new(image, [0.0, 1.0]));
    } else if recognised.whole {
        // All images must have the size of the first.
        let first = images.first().ok_or_else(|| failed("no images".to_owned()))?;
        let picture = Picture::read(first, None)?;
        let image = recognised.image([picture.height, picture.width]).map_err(|cause| Failure::file(first, cause))?;
        classes.input = Some(ImageInput::new(image, [0.0, 1.0]));
        size = Some(image);
    }
    for (option, numbers) in [("--mean", &arguments.mean), ("--std", &arguments.std)] {
        let fits = [1, size.map_or(3, |[_, _, channels]| channels)].contains(&numbers.len());
        if !fits || numbers.iter().any(|number| !number.is_finite() || option == "--std" && *number <= 0.0) {
            return Err(Failure::at(option, "must be one number, or one for each channel; deviations are positive"));
        }
    }
    let normal = Some(Normal { mean: arguments.mean.clone(), deviation: arguments.std.clone() });
    let (network, method) = (recognised.network, Method::fp32());
    let fill = |parameters: &mut gradscale::Parameters, flattened: &[Flattened]| {
        torch::fill(parameters, &bytes, flattened).map_err(failed)
    };
    let trained = Trained { device, threads, network, classes: &classes, method, normal };
    Ok((recognised.task.kind().apply(trained, &fill)?, classes, fit))
}

/// Names and colours of so many classes, from a table or by their numbers.
fn named(table: Option<&Path>, count: usize) -> Result<Classes, Failure> {
    let numbers = || (0..count).map(|id| format!("{id}\t{id}\n")).collect::<String>();
    let (path, text) = match table {
        None if count == 0 => return Ok(classes(Vec::new(), Vec::new())),
        Some(path) => (path, fs::read_to_string(path).map_err(|error| Failure::file(path, error))?),
        None => (Path::new("classes"), format!("id\tname\n{}", numbers())),
    };
    let parsed = data::Classes::parse(&text);
    let parsed = parsed.map_err(|(line, cause)| Failure::file(path, format!("line {line}: {cause}")))?;
    let data::Classes { names, colours, .. } = parsed;
    if names.len() != count {
        return Err(Failure::file(path, format!("{} classes, and the network has {count}", names.len())));
    }
    Ok(classes(names, colours))
}

fn classes(names: Vec<String>, colours: Vec<[u8; 3]>) -> Classes {
    Classes { names, colours, ..Classes::default() }
}

/// The pixels of a picture as a network for one size takes them: of grey images, one value each.
fn fitting(picture: &Picture, [height, width, channels]: [usize; 3]) -> Result<Vec<u8>, String> {
    if [picture.height, picture.width] != [height, width] {
        let (found, expected) = ((picture.height, picture.width), (height, width));
        return Err(format!("{} × {}, and the network takes {} × {}", found.0, found.1, expected.0, expected.1));
    }
    if channels == 3 {
        return Ok(picture.pixels.clone());
    }
    // Luma of ITU-R BT.601, in 1000ths; of grey images, the grey.
    let luma =
        |pixel: &[u8]| (299 * u32::from(pixel[0]) + 587 * u32::from(pixel[1]) + 114 * u32::from(pixel[2])) / 1000;
    Ok(picture.pixels.chunks_exact(3).map(|pixel| u8::try_from(luma(pixel)).unwrap_or(u8::MAX)).collect())
}

/// Files as they are named, and all images of directories.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.map_err(|error| Failure::file(path, error))?;
        let image = |path: &PathBuf| {
            let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
            extension.is_some_and(|extension| ["png", "jpg", "jpeg", "wav", "txt"].contains(&extension.as_str()))
        };
        let mut found: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).filter(image).collect();
        if found.is_empty() {
            return Err(Failure::file(path, "no PNG, JPEG, WAV or text files"));
        }
        found.sort();
        files.extend(found);
    }
    // Results are named after the files.
    let mut stems: Vec<_> = files.iter().map(|path| path.file_stem()).collect();
    stems.sort();
    if let Some(twice) = stems.windows(2).find(|pair| pair[0] == pair[1]).and_then(|pair| pair[0]) {
        return Err(Failure::at(twice.to_string_lossy(), "two images of this name would overwrite each other"));
    }
    Ok(files)
}

/// Half image, half colour of the class.
fn mix(picture: &Picture, labels: &[u8], classes: &Classes) -> Vec<u8> {
    let colour = |label: u8| classes.colours.get(usize::from(label)).copied().unwrap_or([0; 3]);
    let pixels = picture.pixels.chunks_exact(3).zip(labels);
    pixels.flat_map(|(pixel, &label)| [0, 1, 2].map(|i| pixel[i].midpoint(colour(label)[i]))).collect()
}

/// The three classes with the largest areas.
fn shares(labels: &[u8], classes: &Classes) -> String {
    let count = |class: usize| labels.iter().filter(|&&label| usize::from(label) == class).count();
    let mut counts: Vec<(usize, &String)> =
        classes.names.iter().enumerate().map(|(i, name)| (count(i), name)).collect();
    counts.sort_by(|a, b| b.cmp(a));
    let percent = |count: usize| 100.0 * count as f64 / labels.len().max(1) as f64;
    let parts = counts.iter().take(3).map(|(count, name)| format!("{name} {:.0} %", percent(*count)));
    parts.collect::<Vec<_>>().join(", ")
}

fn png(path: &Path, data: &[u8], picture: &Picture, colour: ExtendedColorType) -> Result<Vec<u8>, Failure> {
    let side = |size: usize| u32::try_from(size).map_err(|error| Failure::file(path, error));
    let mut bytes = Vec::new();
    let encoder = PngEncoder::new(&mut bytes);
    let done = encoder.write_image(data, side(picture.width)?, side(picture.height)?, colour);
    done.map_err(|error| Failure::file(path, error))?;
    Ok(bytes)
}
