//! Storage of images: in memory, or on disk and read on demand.

use super::{
    Cause, DataError, Whole,
    classes::Values,
    decode::{self, Form},
};
use crate::progress;
use std::{
    borrow::Cow,
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    ops::Range,
    panic,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

/// Storage of the bytes of many images, each of the same number of them, or of their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// Values of all images in memory, one after another.
    Memory(Vec<u8>),
    /// Images in one file, one after another.
    Part {
        /// Path of the file that contains the values.
        path: PathBuf,
        /// Offset of the first image in bytes.
        start: u64,
        /// Indices of the images in the file, if the store has not all of them.
        which: Option<Arc<[usize]>>,
        /// Class ids by label value, if the file contains labels.
        values: Option<Arc<Values>>,
    },
    /// Encoded images on disk, one file each.
    Files {
        /// Paths of the encoded image files, by image index.
        paths: Vec<PathBuf>,
        /// Size and channels that images are decoded to.
        form: Form,
        /// Class ids by label value, if the files contain labels.
        values: Option<Arc<Values>>,
    },
}

impl From<Vec<u8>> for Store {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Memory(bytes)
    }
}

impl Store {
    /// Returns the bytes in memory, or an empty slice if images are on disk.
    #[must_use]
    pub fn memory(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Part { .. } | Self::Files { .. } => &[],
        }
    }

    /// Returns the bytes of one image; `len` is their number.
    ///
    /// # Errors
    /// A file that cannot be read, or has changed since the data set was opened.
    pub fn get(&self, index: usize, len: usize) -> Result<Cow<'_, [u8]>, DataError> {
        match self {
            Self::Memory(bytes) => Ok(Cow::Borrowed(&bytes[index * len..(index + 1) * len])),
            Self::Part { path, start, which, values } => {
                let index = which.as_ref().map_or(index, |which| which[index]);
                let read = || {
                    let mut file = File::open(path)?;
                    file.seek(SeekFrom::Start(start + (index * len) as u64))?;
                    let mut bytes = vec![0; len];
                    file.read_exact(&mut bytes).map(|()| bytes)
                };
                let bytes = read().map_err(|error| Cause::Io(error).at(path))?;
                let Some(values) = values else { return Ok(Cow::Owned(bytes)) };
                // The file may have changed since it was looked at.
                let labels: Vec<u32> = bytes.into_iter().map(u32::from).collect();
                values.classes(&labels, len).map(Cow::Owned).map_err(|cause| cause.at(path))
            }
            Self::Files { paths, form, values } => {
                let path = &paths[index];
                let file = read(path)?;
                let decode = || match values {
                    None => decode::image(&file, *form),
                    Some(values) => values.classes(&decode::labels(&file, *form)?, form.size[1]),
                };
                decode().map(Cow::Owned).map_err(|cause| cause.at(path))
            }
        }
    }

    /// Decodes an image file at its own size.
    ///
    /// # Errors
    /// See [`Store::get`].
    pub fn whole(&self, index: usize, channels: usize) -> Result<Whole<'_>, DataError> {
        let Self::Files { paths, .. } = self else {
            return Err(Cause::Option("images of any sizes are in files of their own".into()).at("images"));
        };
        let path = &paths[index];
        let (pixels, size) = decode::whole(&read(path)?, channels).map_err(|cause| cause.at(path))?;
        Ok(Whole { pixels: pixels.into(), size, channels })
    }

    /// Describes the file of an image on disk, with its place there from 0; `None` for an image in memory.
    #[must_use]
    pub fn source(&self, index: usize) -> Option<String> {
        match self {
            Self::Memory(_) => None,
            Self::Part { path, which, .. } => {
                let place = which.as_ref().map_or(Some(index), |which| which.get(index).copied())?;
                Some(format!("{}, image {place}", path.display()))
            }
            Self::Files { paths, .. } => paths.get(index).map(|path| path.display().to_string()),
        }
    }

    /// Returns a store of the chosen images of `len` bytes each.
    #[must_use]
    pub fn pick(&self, images: &[usize], len: usize) -> Self {
        match self {
            Self::Memory(bytes) => {
                let picked = images.iter().flat_map(|&image| &bytes[image * len..(image + 1) * len]);
                Self::Memory(picked.copied().collect())
            }
            Self::Part { path, start, which, values } => {
                let of_file = |&image: &usize| which.as_ref().map_or(image, |which| which[image]);
                let which = Some(images.iter().map(of_file).collect());
                Self::Part { path: path.clone(), start: *start, which, values: values.clone() }
            }
            Self::Files { paths, form, values } => {
                let paths = images.iter().map(|&image| paths[image].clone()).collect();
                Self::Files { paths, form: *form, values: values.clone() }
            }
        }
    }

    /// Returns the bytes of several consecutive images.
    ///
    /// # Errors
    /// See [`Store::get`].
    pub fn range(&self, images: Range<usize>, len: usize) -> Result<Cow<'_, [u8]>, DataError> {
        if let Self::Memory(bytes) = self {
            return Ok(Cow::Borrowed(&bytes[images.start * len..images.end * len]));
        }
        let parts = each(images.len(), |i| self.get(images.start + i, len));
        let mut all = Vec::with_capacity(images.len() * len);
        for part in parts {
            all.extend_from_slice(&part?);
        }
        Ok(Cow::Owned(all))
    }
}

/// Reads all bytes of a file; errors name its path.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, DataError> {
    fs::read(path).map_err(|error| Cause::Io(error).at(path))
}

/// Applies `work` to every file of a data set in parallel, with a progress bar on a terminal.
pub(super) fn each_file<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    const MIN_FILES_FOR_PROGRESS: usize = 2000;
    if count < MIN_FILES_FOR_PROGRESS {
        return each(count, work);
    }
    let bar = progress::start(count as u64, "looking at all files");
    each(count, |i| {
        let done = work(i);
        bar.advance();
        done
    })
}

/// Returns the number of cores that this process may use.
fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Applies `work` to 0 … count − 1 on all cores; returns the results in order.
pub(super) fn each<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = cores().min(count.max(1));
    if threads == 1 {
        return (0..count).map(work).collect();
    }
    let (work, share) = (&work, count.div_ceil(threads));
    thread::scope(|scope| {
        let part = |first: usize| (first.min(count)..(first + share).min(count)).map(work).collect::<Vec<_>>();
        let workers: Vec<_> = (0..threads).map(|i| scope.spawn(move || part(i * share))).collect();
        let parts = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|fault| panic::resume_unwind(fault)));
        parts.flatten().collect()
    })
}
