//! Speech data: recordings with transcripts.

mod frames;
mod resampling;
mod spectrum;
mod synthetic;
mod wav;

pub use spectrum::Spectra;
pub use wav::Sound;

use super::{
    Cause, DataError, DataOptions, Fingerprint, LoadNotes,
    encoding::read_text,
    files::{Broken, fifths, hold_out, visible},
    name, parted, split_note,
};
use gradscale::gradscale_core::ops::Ctc;
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    path::{Path, PathBuf},
};

/// Transcripts of recordings whose file names begin with a digit.
const WORDS: [&str; 10] = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
/// Name of the file with the transcripts.
const TRANSCRIPTS: &str = "transcripts.tsv";
/// Expected layout of a directory of recordings, for error messages.
const LAYOUT: &str = "recordings/*.wav or *.wav, named DIGIT_….wav or listed with transcripts in transcripts.tsv; \
    train.txt and test.txt may list the names";

/// Recording of speech, as log spectra, with its transcript.
#[derive(Clone, Debug, PartialEq)]
pub struct Spoken {
    /// Name of the recording's audio file.
    pub name: String,
    /// Transcript of the recording, in letters and spaces.
    pub text: String,
    /// Length of the recording in spectra.
    pub frames: usize,
    /// Log spectra of the recording, `[frames, frequencies]`.
    pub spectra: Vec<f32>,
}

impl Spoken {
    fn new(name: String, text: String, spectra: &Spectra, samples: &[f32]) -> Self {
        let all = spectra.compute(samples);
        Self { name, text, frames: all.len() / spectra.frequencies(), spectra: all }
    }
}

/// Data set of recordings of one sampling rate, with their transcripts.
#[derive(Clone, Debug)]
pub struct Speech {
    /// Name of the speech data set: the last part of the directory's path.
    pub name: String,
    /// Letters that the transcripts contain, in order.
    pub letters: Vec<char>,
    /// Sampling rate of the recordings, in samples a second.
    pub rate: u32,
    /// Number of frequency bins of a spectrum.
    pub frequencies: usize,
    /// Training set: recordings with their transcripts.
    pub train: Vec<Spoken>,
    /// Validation set of recordings, if one was requested.
    pub validation: Option<Vec<Spoken>>,
    /// Test set of recordings, for the final evaluation.
    pub test: Vec<Spoken>,
    /// Notes about the loaded recordings, which the program prints.
    pub notes: LoadNotes,
    /// True if the loss of a recording that is too short for its transcript stays infinite, as with PyTorch's default
    /// `zero_infinity=False`; otherwise such a recording counts 0.
    pub keeps_infinite_losses: bool,
}

impl Speech {
    /// Reads a directory with WAV files, in it or in its folder `recordings`. Several channels are mixed down, and other
    /// rates than that of the first training recording are resampled. Transcripts are in `transcripts.tsv`, with a line
    /// `NAME.wav`, tab, text for each recording. Without that file, names begin with a digit and an underscore, which
    /// mean the digit's English name. `train.txt` and `test.txt` list the names of both parts, and `val.txt` those for
    /// validation; without them every fifth recording is for scores.
    ///
    /// # Errors
    /// A directory of another layout, sounds that cannot be read, transcripts that no alignment can produce, names in
    /// two lists.
    pub fn load(dir: &Path, reading: &DataOptions) -> Result<Self, DataError> {
        let folder = dir.join("recordings");
        let folder = if folder.is_dir() { folder } else { dir.to_owned() };
        let is_wav = |path: &PathBuf| path.extension().is_some_and(|end| end.eq_ignore_ascii_case("wav"));
        let files: Vec<PathBuf> = visible(&folder)?.into_iter().filter(is_wav).collect();
        if files.is_empty() {
            return Err(Cause::Layout { expected: LAYOUT, found: super::listing(dir)? }.at(dir));
        }
        let texts = Texts::read(dir)?;
        let list_paths = ["train", "test", "val"].map(|part| dir.join(format!("{part}.txt")));
        let [train, test, validation] = list_paths.each_ref().map(|path| list(&folder, path));
        let (train, test, validation) = (train?, test?, validation?);
        check_disjoint(dir, [("train", &train), ("test", &test), ("val", &validation)])?;
        let (mut broken, mut taken) = (Broken::new(reading), Vec::new());
        let (train, test, validation) = match (train, test) {
            (Some(train), Some(test)) => (train, test, validation.filter(|_| reading.validation)),
            (None, None) => {
                let [train, test] = fifths(files);
                taken.push(split_note(train.len(), test.len()));
                (train, test, None)
            }
            (Some(_), None) => return Err(Cause::Missing("train.txt is there".into()).at(dir.join("test.txt"))),
            (None, Some(_)) => {
                return Err(Cause::Missing(
                    "test.txt needs a list of training recordings beside \
                it"
                    .into(),
                )
                .at(dir.join("train.txt")));
            }
        };
        let mut reader =
            RecordingReader { reading, texts, spectra: None, bytes: 0, mixed: 0, resampled: 0, files: Vec::new() };
        let train = reader.read_files(&train, &mut broken)?;
        let test = reader.read_files(&test, &mut broken)?;
        let validation = validation.map(|files| reader.read_files(&files, &mut broken)).transpose()?;
        let validation = validation.filter(|all| !all.is_empty());
        for (part, list) in [(&train, "train"), (&test, "test")] {
            if part.is_empty() {
                return Err(Cause::Sound(format!("no recordings for {list}")).at(dir));
            }
        }
        taken.extend(reader.conversions());
        let tables = reader.texts.table().into_iter().chain(&list_paths).filter(|path| path.is_file());
        let files = Some(Fingerprint::measure(dir, reader.files.iter().chain(tables))?);
        let Some((rate, spectra)) = reader.spectra else { return Err(Cause::Empty.at(dir)) };
        let frequencies = spectra.frequencies();
        let (train, validation) = parted(train, validation, reading, &mut taken, |all| hold_out(all), Vec::len);
        let letters = letters([&train, &test].into_iter().chain(&validation));
        taken.insert(0, format!("{}: {} letters, sampled at {rate} Hz", name(dir), letters.len()));
        let notes = LoadNotes { taken, left_out: broken.lines(), files, ..LoadNotes::default() };
        Ok(Self {
            name: name(dir),
            letters,
            rate,
            frequencies,
            train,
            validation,
            test,
            notes,
            keeps_infinite_losses: false,
        })
    }

    /// Generates feature frames of 1800 spoken words for training and 200 for the test, some of which are said too fast for
    /// a network that keeps every fourth frame. Their infinite losses are kept.
    #[must_use]
    pub fn with_short_recordings(seed: u64) -> Self {
        let [train, test] = frames::recordings(seed);
        let letters = letters([&train, &test]);
        let (name, notes) = ("words of which some are too short".into(), LoadNotes::default());
        let (rate, frequencies) = (frames::RATE, frames::BANDS);
        Self { name, letters, rate, frequencies, train, validation: None, test, notes, keeps_infinite_losses: true }
    }

    /// Generates synthetic data: 240 training and 60 test recordings of ten words, whose letters are tones.
    ///
    /// # Errors
    /// None; as [`Spectra::new`].
    pub fn synthetic(seed: u64, reading: &DataOptions) -> Result<Self, String> {
        let spectra = Spectra::new(synthetic::RATE)?;
        let [train, test] = synthetic::recordings(seed, &spectra);
        let mut notes = LoadNotes::default();
        let letters = letters([&train, &test]);
        let (train, validation) = parted(train, None, reading, &mut notes.taken, |all| hold_out(all), Vec::len);
        let (rate, frequencies) = (synthetic::RATE, spectra.frequencies());
        Ok(Self {
            name: "synthetic words".into(),
            letters,
            rate,
            frequencies,
            train,
            validation,
            test,
            notes,
            keeps_infinite_losses: false,
        })
    }
}

/// Source of the recordings' transcripts: a table, or file names with digits.
enum Texts {
    /// Path of the table, and the texts by the names of the recordings without folder and ending.
    Table(PathBuf, BTreeMap<String, String>),
    Digits,
}

impl Texts {
    fn read(dir: &Path) -> Result<Self, DataError> {
        let path = dir.join(TRANSCRIPTS);
        if !path.is_file() {
            return Ok(Self::Digits);
        }
        let text = read_text(&path)?;
        let mut texts = BTreeMap::new();
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |reason: String| Cause::Table { line: i + 1, reason }.at(&path);
            let fields: Vec<&str> = line.split('\t').map(str::trim).collect();
            let (file, said) = match fields[..] {
                [file, said] => (file, said),
                [file, said, ref others @ ..] if others.iter().all(|other| other.is_empty()) => (file, said),
                [_] => return Err(wrong("no tab between file name and transcript".into())),
                _ => return Err(wrong(format!("{} columns; keep two, NAME.wav and its transcript", fields.len()))),
            };
            match texts.entry(bare_name(file).to_owned()) {
                Entry::Vacant(entry) => drop(entry.insert(said.to_owned())),
                Entry::Occupied(known) if known.get() == said => {}
                Entry::Occupied(known) => {
                    return Err(wrong(format!("{file} is “{said}” here and “{}” in another line", known.get())));
                }
            }
        }
        Ok(Self::Table(path, texts))
    }

    /// Returns the path of the table, if there is one.
    const fn table(&self) -> Option<&PathBuf> {
        match self {
            Self::Table(path, _) => Some(path),
            Self::Digits => None,
        }
    }

    fn find_text(&self, path: &Path) -> Result<String, DataError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match self {
            Self::Table(table, texts) => {
                let missing =
                    || Cause::Sound(format!("{} has no transcript for this recording", table.display())).at(path);
                texts.get(bare_name(&name)).cloned().ok_or_else(missing)
            }
            Self::Digits => {
                let digit = name.split_once('_').and_then(|(digit, _)| digit.parse::<usize>().ok());
                let word = digit.and_then(|digit| WORDS.get(digit)).map(|word| (*word).to_owned());
                let words = format!("no transcript: name the file DIGIT_….wav or list it in {TRANSCRIPTS}");
                word.ok_or_else(|| Cause::Sound(words).at(path))
            }
        }
    }
}

/// Returns the name of a recording without folders and without `.wav`, since tables spell it both ways.
fn bare_name(name: &str) -> &str {
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
    match name.len().checked_sub(4).and_then(|at| name.split_at_checked(at)) {
        Some((stem, end)) if end.eq_ignore_ascii_case(".wav") => stem,
        Some(_) | None => name,
    }
}

/// State of reading the recordings of a data set.
struct RecordingReader<'a> {
    reading: &'a DataOptions,
    texts: Texts,
    /// Sampling rate of the first recording, and the transform to spectra.
    spectra: Option<(u32, Spectra)>,
    bytes: u64,
    /// Number of recordings whose channels were mixed down.
    mixed: usize,
    /// Number of recordings that were resampled.
    resampled: usize,
    /// Recordings that were read.
    files: Vec<PathBuf>,
}

impl RecordingReader<'_> {
    fn read_files(&mut self, files: &[PathBuf], broken: &mut Broken<'_>) -> Result<Vec<Spoken>, DataError> {
        let mut all = Vec::new();
        for path in files {
            let one = self.read_file(path);
            if let Ok(spoken) = &one {
                self.bytes += 4 * spoken.spectra.len() as u64;
                if self.bytes > self.reading.memory.saturating_mul(1_000_000) {
                    let words = "the spectra up to this recording exceed `memory`; raise it or train on fewer \
                        recordings"
                        .to_owned();
                    return Err(Cause::Sound(words).at(path));
                }
            }
            all.push(one);
        }
        broken.keep(all)
    }

    fn read_file(&mut self, path: &Path) -> Result<Spoken, DataError> {
        let failed = |words: String| Cause::Sound(words).at(path);
        let (text, sound) = (self.texts.find_text(path)?, Sound::read(path)?);
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (rate, spectra) = match &self.spectra {
            Some(known) => known.clone(),
            None => (sound.rate, Spectra::new(sound.rate).map_err(failed)?),
        };
        let (seconds, mixed, resampled) = (sound.seconds(), sound.channels > 1, sound.rate != rate);
        let sound = sound.resampled(rate).map_err(failed)?;
        let spoken = Spoken::new(file, text, &spectra, &sound.samples);
        let letters: Vec<u32> = spoken.text.chars().map(u32::from).collect();
        let (frames, least) = (spoken.frames, 2 * Ctc::least_frames(&letters));
        if frames + 1 < least && !self.reading.short_recordings {
            let needed = spectrum::min_seconds(least - 1);
            return Err(failed(format!(
                "too short for “{}”: {seconds:.3} s, at least {needed:.3} s needed",
                spoken.text
            )));
        }
        self.spectra = Some((rate, spectra));
        self.mixed += usize::from(mixed);
        self.resampled += usize::from(resampled);
        self.files.push(path.to_owned());
        Ok(spoken)
    }

    /// Returns a line for each kind of conversion that recordings went through.
    fn conversions(&self) -> Vec<String> {
        let rate = self.spectra.as_ref().map_or(0, |(rate, _)| *rate);
        let counted = |count: usize, one: String, several: String| match count {
            0 => None,
            1 => Some(format!("1 recording {one}")),
            count => Some(format!("{count} recordings {several}")),
        };
        let [one, several] = ["is", "are"].map(|verb| format!("of several channels {verb} mixed down to one"));
        let mixed = counted(self.mixed, one, several);
        let [one, several] = ["another rate is", "other rates are"].map(|of| format!("of {of} resampled to {rate} Hz"));
        let resampled = counted(self.resampled, one, several);
        mixed.into_iter().chain(resampled).collect()
    }
}

/// Reads the files that a list names, if there is one.
fn list(folder: &Path, path: &Path) -> Result<Option<Vec<PathBuf>>, DataError> {
    if !path.is_file() {
        return Ok(None);
    }
    let mut files = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, line) in read_text(path)?.lines().enumerate() {
        let name = line.trim();
        if name.is_empty() {
            continue;
        }
        let wrong = |reason: String| Cause::Table { line: i + 1, reason }.at(path);
        // Names stand there with or without folder and ending.
        let spellings = [name.to_owned(), format!("{}.wav", bare_name(name)), format!("{}.WAV", bare_name(name))];
        let Some(file) = spellings.iter().map(|name| folder.join(name)).find(|path| path.is_file()) else {
            return Err(wrong(format!("{} is missing", folder.join(name).display())));
        };
        if !seen.insert(file.clone()) {
            return Err(wrong(format!("{name} is listed twice")));
        }
        files.push(file);
    }
    Ok(Some(files))
}

/// Checks that no recording is in two lists, because its score would be that of a known text.
fn check_disjoint(dir: &Path, lists: [(&str, &Option<Vec<PathBuf>>); 3]) -> Result<(), DataError> {
    let mut known: BTreeMap<&Path, &str> = BTreeMap::new();
    for (part, list) in lists {
        for path in list.iter().flatten() {
            if let Some(other) = known.insert(path, part) {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let words = format!("{name} is in {other}.txt, too; keep it in one list");
                return Err(Cause::Sound(words).at(dir.join(format!("{part}.txt"))));
            }
        }
    }
    Ok(())
}

/// Returns all letters that occur, in order.
fn letters<'a>(parts: impl IntoIterator<Item = &'a Vec<Spoken>>) -> Vec<char> {
    let letters: BTreeSet<char> = parts.into_iter().flatten().flat_map(|one| one.text.chars()).collect();
    letters.into_iter().collect()
}
