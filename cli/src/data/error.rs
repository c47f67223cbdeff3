//! Errors of data: a path and a cause, shown as one line.

use crate::Failure;
use std::{
    error::Error,
    fmt, io,
    path::{Path, PathBuf},
};

/// A file or directory that cannot be used, and why. Shown as one line, "path: cause".
#[derive(Debug)]
pub struct DataError {
    path: PathBuf,
    cause: Cause,
}

impl DataError {
    /// The file or directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Cause of the error.
    #[must_use]
    pub const fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Returns this error with the number of further files or lines that have errors.
    pub(super) fn and(self, more: usize) -> Self {
        Self { cause: Cause::Several { first: Box::new(self.cause), more }, ..self }
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Paths, and texts from inside files, may contain line breaks and worse.
        let line = format!("{}: {}", self.path.display(), self.cause);
        line.chars()
            .try_for_each(|c| if c.is_control() { write!(f, "{}", c.escape_default()) } else { write!(f, "{c}") })
    }
}

impl Error for DataError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        Self::plain(&error.to_string())
    }
}

/// Cause of a data error.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The system refused.
    Io(io::Error),
    /// A file that must be there is not; who needs it.
    Missing(String),
    /// A directory of no known layout.
    Layout {
        /// Expected layouts.
        expected: &'static str,
        /// The names in it.
        found: Vec<String>,
    },
    /// gzip's data are cut off or corrupt.
    Gzip(io::Error),
    /// The first four bytes are not IDX's.
    NotIdx([u8; 4]),
    /// IDX of something else than bytes.
    Element(u8),
    /// The file ends inside the IDX header, after this many bytes.
    Header(usize),
    /// Sizes whose product no memory can hold.
    TooLarge(Vec<u32>),
    /// Fewer bytes than the sizes announce.
    Truncated {
        /// Bytes that the header declares.
        expected: usize,
        /// Bytes in the file.
        found: usize,
    },
    /// More bytes than the sizes announce.
    Trailing {
        /// Bytes that the header declares.
        expected: usize,
    },
    /// Sizes that cannot be used.
    Shape {
        /// Expected sizes.
        expected: String,
        /// Sizes found.
        found: Vec<usize>,
    },
    /// An image that cannot be decoded.
    Image(image::ImageError),
    /// A JPEG file whose data stop before its end marker.
    Unfinished,
    /// A label image that cannot be decoded.
    Png(png::DecodingError),
    /// An image of another size than expected.
    Size {
        /// Rows and columns.
        expected: [usize; 2],
        /// Object that has the expected size.
        of: &'static str,
        /// Rows and columns.
        found: [usize; 2],
    },
    /// A label that is no class.
    Label {
        /// The label.
        value: String,
        /// Values that are classes, or ignored.
        known: Vec<String>,
        /// Number of the image in its file, from 0, if there are several.
        image: Option<usize>,
        /// Row of its first occurrence, from 0.
        row: usize,
        /// Column of its first occurrence, from 0.
        column: usize,
    },
    /// An image of a kind that cannot be read.
    Format,
    /// The first of several files or lines that cannot be read.
    Several {
        /// The first.
        first: Box<Cause>,
        /// Number of further errors.
        more: usize,
    },
    /// Labels that are all the same.
    OneClass {
        /// Description of the classes found.
        found: String,
    },
    /// Too many classes.
    Classes {
        /// Number of classes.
        found: usize,
        /// Some of the classes.
        examples: Vec<String>,
    },
    /// An option that does not apply to these data, with the reason.
    Option(String),
    /// A recording that cannot be used, and why.
    Sound(String),
    /// A text that cannot be used, and why.
    Text(String),
    /// Pictures with boxes that cannot be used, and why.
    Boxes(String),
    /// Two images with the same stem.
    SameStem,
    /// The data have no images, or images without pixels.
    Empty,
    /// A table that cannot be read.
    Table {
        /// Number of the line, from 1.
        line: usize,
        /// Error of the line.
        reason: String,
    },
    /// A batch size that the split cannot fill.
    Batch {
        /// Images asked for.
        batch: usize,
        /// Images in the training set.
        count: usize,
    },
    /// A [`super::Split`] whose vectors have other lengths than its numbers say.
    Inconsistent {
        /// Images.
        count: usize,
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
        /// Bytes of images.
        images: usize,
        /// Bytes of labels.
        labels: usize,
    },
}

impl Cause {
    /// This cause, at a path.
    #[must_use]
    pub fn at(self, path: impl Into<PathBuf>) -> DataError {
        DataError { path: path.into(), cause: self }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Missing(user) => write!(f, "missing; {user}"),
            Self::Layout { expected, found } => {
                write!(f, "not a data set: expected {expected}; found {}", few(found))
            }
            Self::Gzip(error) => write!(f, "gzip data are cut off or corrupt: {error}"),
            Self::NotIdx([a, b, c, d]) => {
                write!(f, "not IDX: begins with {a:02x} {b:02x} {c:02x} {d:02x}, expected 00 00 08 and 1 or more sizes")
            }
            Self::Element(code) => write!(f, "IDX of element type {code:#04x}, expected 0x08 (unsigned bytes)"),
            Self::Header(after) => write!(f, "truncated: ends inside the IDX header, after {after} bytes"),
            Self::TooLarge(sizes) => write!(f, "announces {} bytes, too many for any memory", times(sizes)),
            Self::Truncated { expected, found } => write!(f, "truncated: {found} bytes of the {expected} announced"),
            Self::Trailing { expected } => write!(f, "more bytes follow the {expected} announced"),
            Self::Shape { expected, found } => write!(f, "sizes {}, expected {expected}", times(found)),
            Self::Image(error) => write!(f, "cannot be decoded: {error}"),
            Self::Unfinished => f.write_str("truncated: JPEG without an end marker"),
            Self::Png(error) => write!(f, "cannot be decoded as PNG: {error}"),
            Self::Size { expected, of, found } => {
                write!(f, "{} (rows × columns), unlike {of} ({})", times(found), times(expected))?;
                if *of == ITS_IMAGE { Ok(()) } else { f.write_str("; --size HxW makes images in files alike") }
            }
            Self::Format => f.write_str("only PNG and JPEG images can be read"),
            Self::Several { first, more } => {
                write!(f, "{first}; {more} more cannot be read; --skip-broken leaves them out")
            }
            Self::OneClass { found } => write!(f, "{found}: with one class there is nothing to learn"),
            Self::Classes { found, examples } => {
                write!(f, "{found} different classes ({} …), and there may be at most 255", examples.join(", "))
            }
            Self::Option(reason) | Self::Sound(reason) | Self::Text(reason) | Self::Boxes(reason) => {
                f.write_str(reason)
            }
            Self::Label { value, known, image, row, column } => {
                write!(f, "label {value} ")?;
                image.map_or(Ok(()), |image| write!(f, "in image {image} "))?;
                write!(f, "at row {row}, column {column}, which is no class: there are {}", few(known))
            }
            Self::SameStem => f.write_str("another image has the same name but for the extension"),
            Self::Empty => f.write_str("no images"),
            Self::Table { line, reason } => write!(f, "line {line}: {reason}"),
            Self::Batch { batch, count } => write!(f, "batches of {batch} images, and there are {count} to train with"),
            Self::Inconsistent { count, height, width, images, labels } => {
                write!(f, "{images} bytes of images and {labels} of labels for {count} images of {height} × {width}")
            }
        }
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(error) | Self::Gzip(error) => Some(error),
            Self::Image(error) => Some(error),
            Self::Png(error) => Some(error),
            Self::Several { first, .. } => Some(first),
            _ => None,
        }
    }
}

/// Subject of a size mismatch between a label image and its image.
pub(super) const ITS_IMAGE: &str = "its image";

/// Joins sizes, as in `2 × 3 × 4`.
fn times<T: fmt::Display>(sizes: &[T]) -> String {
    sizes.iter().map(T::to_string).collect::<Vec<_>>().join(" × ")
}

/// Returns the first names of a list and the number of the others.
fn few(names: &[String]) -> String {
    const MAX_NAMES: usize = 5;
    match names.len() {
        0 => "nothing".into(),
        1..=MAX_NAMES => names.join(", "),
        more => format!("{} and {} more", names[..MAX_NAMES].join(", "), more - MAX_NAMES),
    }
}
