//! Errors of data: a path and a cause, shown as one line.

use std::{
    error::Error,
    fmt, io,
    path::{Path, PathBuf},
};

/// Error about a file or directory that cannot be used, with its cause. Shown as one line, "path: cause".
#[derive(Debug)]
pub struct DataError {
    path: PathBuf,
    cause: Cause,
}

impl DataError {
    /// Returns the file or directory that the error is about.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the cause of the error, without the path.
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

/// Cause of an error in data files.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The operating system failed to read a file or directory.
    Io(io::Error),
    /// A required file is missing; the text says why it is required.
    Missing(String),
    /// The directory has none of the known layouts.
    Layout {
        /// Description of the known layouts of a data directory.
        expected: &'static str,
        /// Names of the entries that the directory has instead.
        found: Vec<String>,
    },
    /// Data compressed by gzip are truncated or corrupt.
    Gzip(io::Error),
    /// The first four bytes are not those of an IDX file.
    NotIdx([u8; 4]),
    /// The IDX file contains another type of elements than bytes; its code.
    Element(u8),
    /// The file ends inside the IDX header, after this many bytes.
    Header(usize),
    /// The dimensions declare more data than any memory can hold.
    TooLarge(Vec<u32>),
    /// The file has fewer bytes than its header declares.
    Truncated {
        /// Number of bytes that the header declares.
        expected: usize,
        /// Number of bytes that the file has.
        found: usize,
    },
    /// The file has more bytes than its header declares.
    Trailing {
        /// Number of bytes that the header declares.
        expected: usize,
    },
    /// The dimensions in the file differ from the required ones.
    Shape {
        /// Description of the dimensions that the data need.
        expected: String,
        /// Dimensions that the file declares.
        found: Vec<usize>,
    },
    /// The image file cannot be decoded, with the decoder's error.
    Image(image::ImageError),
    /// The data of a JPEG file end before its end marker.
    Unfinished,
    /// The PNG file of a label image cannot be decoded.
    Png(png::DecodingError),
    /// An image has another size than expected.
    Size {
        /// Rows and columns that the image must have.
        expected: [usize; 2],
        /// Name of the object that has the expected size.
        of: &'static str,
        /// Rows and columns that the image has.
        found: [usize; 2],
    },
    /// A label value that is no class.
    Label {
        /// Label value in the file that is no class.
        value: String,
        /// Label values that are classes, or ignored.
        known: Vec<String>,
        /// Number of the image in its file, from 0, if there are several.
        image: Option<usize>,
        /// Row of the label's first occurrence, from 0.
        row: usize,
        /// Column of the label's first occurrence, from 0.
        column: usize,
    },
    /// The image file has a format that cannot be read; its name.
    Format(String),
    /// The label image is not a PNG file; the name of its format.
    LabelFormat(String),
    /// The entry is a pipe, socket or device and not a file.
    Irregular,
    /// The files of a directory cannot be used, with the reason.
    Files(String),
    /// No file of the data set can be read.
    NoneReadable {
        /// Number of files that cannot be read.
        count: usize,
        /// First error, with its path.
        first: Box<DataError>,
    },
    /// Several files or lines cannot be read.
    Several {
        /// First of the errors, in the order of files or lines.
        first: Box<Cause>,
        /// Number of further errors after the first.
        more: usize,
    },
    /// All labels are of the same class.
    OneClass {
        /// Description of the class that all labels have.
        found: String,
        /// Description of what was left out; empty for nothing.
        left_out: String,
    },
    /// The data have more classes than the program supports.
    Classes {
        /// Number of classes in the data.
        found: usize,
        /// Names of some of the classes, for the error message.
        examples: Vec<String>,
        /// Possible reason and remedy, after a semicolon; may be empty.
        hint: &'static str,
    },
    /// An option does not apply to these data, with the reason.
    Option(String),
    /// A recording cannot be used, with the reason.
    Sound(String),
    /// A text cannot be used, with the reason.
    Text(String),
    /// Pictures with boxes cannot be used, with the reason.
    Boxes(String),
    /// Two images differ in their extension alone.
    SameStem,
    /// The data have no images, or images without pixels.
    Empty,
    /// A table in a text file cannot be read.
    Table {
        /// Number of the faulty line, from 1.
        line: usize,
        /// Reason why the line cannot be read.
        reason: String,
    },
    /// An example was requested beyond the last one.
    Example {
        /// Index of the requested example, from 0.
        index: usize,
        /// Number of examples that the data set has.
        count: usize,
    },
    /// The split has fewer images than a batch.
    Batch {
        /// Number of images in the requested batch.
        batch: usize,
        /// Number of images in the training set.
        count: usize,
    },
    /// The lengths of a [`super::Split`]'s vectors differ from its sizes.
    Inconsistent {
        /// Number of images that the split declares.
        count: usize,
        /// Number of rows of an image that the split declares.
        height: usize,
        /// Number of columns of an image that the split declares.
        width: usize,
        /// Length of the vector of images in bytes.
        images: usize,
        /// Length of the vector of labels in bytes.
        labels: usize,
    },
}

impl Cause {
    /// Returns the error with this cause at a path.
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
            Self::Gzip(error) => write!(f, "truncated or corrupt gzip data: {error}"),
            Self::NotIdx([a, b, c, d]) => {
                write!(
                    f,
                    "not an IDX file: begins with {a:02x} {b:02x} {c:02x} {d:02x}, expected 00 00 08 and the \
                    number of dimensions"
                )
            }
            Self::Element(code) => write!(f, "IDX of element type {code:#04x}, expected 0x08 (unsigned bytes)"),
            Self::Header(after) => write!(f, "truncated: ends inside the IDX header, after {after} bytes"),
            Self::TooLarge(sizes) => {
                write!(f, "its header declares {} bytes, more than any memory holds", times(sizes))
            }
            Self::Truncated { expected, found } => write!(
                f,
                "truncated: {found} bytes of the {expected} that its \
                header declares"
            ),
            Self::Trailing { expected } => write!(f, "more bytes than the {expected} that its header declares"),
            Self::Shape { expected, found } => write!(f, "shape {}, expected {expected}", times(found)),
            Self::Image(error) => write!(f, "cannot be decoded: {error}"),
            Self::Unfinished => f.write_str("truncated: JPEG without an end marker"),
            Self::Png(error) => write!(f, "cannot be decoded as PNG: {error}"),
            Self::Size { expected, of, found } => {
                write!(f, "{} (rows × columns), unlike {of} ({})", times(found), times(expected))?;
                if [ITS_IMAGE, ITS_TURNED_IMAGE].contains(of) {
                    Ok(())
                } else {
                    f.write_str("; `size` resizes all images")
                }
            }
            Self::Format(name) => write!(f, "not a PNG or JPEG image but {name}; convert it"),
            Self::LabelFormat(name) => {
                let loss = if name == "JPEG" { ", which changes label values" } else { "" };
                write!(f, "a {name} image{loss}; save label images as PNG")
            }
            Self::Irregular => f.write_str("not a file but a pipe, socket or device"),
            Self::NoneReadable { count: 1, first } => write!(f, "no file can be read: {first}"),
            Self::NoneReadable { count, first } => {
                write!(f, "none of {count} files can be read; the first is {first}")
            }
            Self::Several { first, more } => {
                write!(f, "{first}; {more} more cannot be read; `skip_broken` skips them")
            }
            Self::OneClass { found, left_out } => {
                write!(f, "{found}: training needs at least two classes")?;
                if left_out.is_empty() { Ok(()) } else { write!(f, "; left out: {left_out}") }
            }
            Self::Classes { found, examples, hint } => {
                write!(f, "{found} different classes ({} …), more than the maximum of 255{hint}", examples.join(", "))
            }
            Self::Option(reason)
            | Self::Sound(reason)
            | Self::Text(reason)
            | Self::Boxes(reason)
            | Self::Files(reason) => f.write_str(reason),
            Self::Label { value, known, image, row, column } => {
                write!(f, "label {value} ")?;
                image.map_or(Ok(()), |image| write!(f, "in image {image} "))?;
                write!(f, "at row {row}, column {column}, which is not a class; the classes are {}", few(known))
            }
            Self::SameStem => f.write_str("another image has the same name with another extension; rename one"),
            Self::Empty => f.write_str("no images"),
            Self::Table { line, reason } => write!(f, "line {line}: {reason}"),
            Self::Example { index, count } => write!(f, "example {index} of {count}, numbered from 0"),
            Self::Batch { batch, count } => write!(
                f,
                "a batch of {batch} images needs as many, but the training set \
                has {count}"
            ),
            Self::Inconsistent { count, height, width, images, labels } => {
                write!(
                    f,
                    "{images} bytes of images and {labels} bytes of labels do not fit {count} images of {height} \
                    × {width}"
                )
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
            Self::NoneReadable { first, .. } => Some(first),
            _ => None,
        }
    }
}

/// Name of the object whose size a label image must have.
pub(super) const ITS_IMAGE: &str = "its image";
/// Name of that object if its file is shown turned.
pub(super) const ITS_TURNED_IMAGE: &str = "its image after the turn that its EXIF orientation asks for";

/// Joins sizes, as in `2 × 3 × 4`.
fn times<T: fmt::Display>(sizes: &[T]) -> String {
    sizes.iter().map(T::to_string).collect::<Vec<_>>().join(" × ")
}

/// Returns the first names of a list and the number of the others.
pub(super) fn few(names: &[String]) -> String {
    const MAX_NAMES: usize = 5;
    match names.len() {
        0 => "nothing".into(),
        1..=MAX_NAMES => names.join(", "),
        more => format!("{} and {} more", names[..MAX_NAMES].join(", "), more - MAX_NAMES),
    }
}
