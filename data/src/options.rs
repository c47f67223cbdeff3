//! Command-line options for reading data, stored in checkpoints.

use super::Tokens;
use crate::{Cause, DataError, as_text};
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf, str::FromStr};

/// Heading of these options in the help of a program.
#[cfg(feature = "clap")]
const HEADING: &str = "Data";

/// Options for all kinds of data. With the feature `clap` they are arguments of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct DataOptions {
    /// Rows and columns to which PNG and JPEG images are resized; masks by nearest pixels. Set by `--size`, which
    /// checkpoints store as a whole.
    #[cfg_attr(feature = "clap", arg(skip))]
    #[serde(skip)]
    pub size: Option<Size>,
    /// Trains on random crops of N × N, for images with one class each
    ///
    /// Crops are resized, mirrored and recoloured (colour images), and evaluation is on centre crops. Files may have any
    /// size and stay on disk, so damaged ones are reported when they are read [default: with --size paper 224, for
    /// inception-v3 299]
    #[cfg_attr(feature = "clap", arg(long, help_heading = HEADING, value_name = "N", value_parser = clap::value_parser!(u16).range(8..=4096)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crop: Option<u16>,
    /// Value of mask pixels that are ignored, or `none` [default: the class that classes.tsv names void, ignore or
    /// Unlabelled; without classes.tsv 255, or 65535 in 16-bit masks, if at least two other values occur and fill more
    /// than half of 0…n. If only 0 and 255 occur, they are two classes]
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, help_heading = HEADING, value_name = "N|none"))]
    pub ignore: Option<Ignore>,
    /// Column of a CSV file that contains the classes [default: the column named label, class or target, or else the
    /// last]
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, help_heading = HEADING, value_name = "NAME"))]
    pub label: Option<String>,
    /// For translation: two file extensions, source first, as in en-de or de-en [default:
    /// from en to the other]
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, help_heading = HEADING, value_name = "FROM-TO"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub languages: Option<Languages>,
    /// For translation: vocabulary size of each language (byte-pair encoding) [default: 2000]
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, help_heading = HEADING, value_name = "N", value_parser = clap::value_parser!(u16).range(64..)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pieces: Option<u16>,
    /// For text: words, separated by blanks and with an end-of-line token, or characters [default: words if unknown
    /// words are marked in the text, as in wikitext, else characters]
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, help_heading = HEADING, value_name = "words|characters"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// For text: length of a training sequence in tokens [default: 32 for biglstm, 64 for decoders; with --size paper
    /// 20 and 1024]
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, help_heading = HEADING, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=16384)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u16>,
    /// Skips files that cannot be read
    ///
    /// Also lines of a CSV file. A line counts them and names the first. By default such a file is an error.
    #[cfg_attr(feature = "clap", arg(long, help_heading = HEADING))]
    pub skip_broken: bool,
    /// For generators: a checkpoint of `gradscale train --task classify` on the same data, whose outputs compare
    /// generated with real images [default: pixels]
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, help_heading = HEADING, value_name = "FILE"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<PathBuf>,
    /// Memory limit for data in megabytes. Larger data stay on disk and are read for every batch, with the same
    /// results.
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, help_heading = HEADING, value_name = "MB", default_value_t = MEMORY))]
    pub memory: u64,
    /// Load a validation set for evaluations during training. Earlier versions used the test set for these.
    #[cfg_attr(feature = "clap", arg(skip))]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub validation: bool,
    /// Classes are ignored, so one is enough.
    #[cfg_attr(feature = "clap", arg(skip))]
    #[serde(skip)]
    pub without_classes: bool,
    /// Accept recordings that are too short for their transcript.
    #[cfg_attr(feature = "clap", arg(skip))]
    #[serde(skip)]
    pub short_recordings: bool,
    /// Generate the images of [`crate::Labelled::with_bad_image`], if there is no path.
    #[cfg_attr(feature = "clap", arg(skip))]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bad_image: bool,
}

const MEMORY: u64 = 1024;

impl Default for DataOptions {
    fn default() -> Self {
        Self {
            size: None,
            crop: None,
            ignore: None,
            label: None,
            languages: None,
            pieces: None,
            tokens: None,
            window: None,
            skip_broken: false,
            features: None,
            memory: MEMORY,
            validation: false,
            without_classes: false,
            short_recordings: false,
            bad_image: false,
        }
    }
}

/// Option that only some kinds of data take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meant {
    /// The option `size`, which resizes images.
    Size,
    /// The option `crop`, which crops images.
    Crop,
    /// The option `ignore`, which excludes a label value.
    Ignore,
    /// The option `label`, which names the column of labels.
    Label,
}

/// Options that apply only to images with classes.
pub const IMAGES: &[Meant] = &[Meant::Size, Meant::Crop, Meant::Ignore, Meant::Label];

impl DataOptions {
    /// Checks that none of these options is given, because they do not apply to such data.
    ///
    /// # Errors
    /// The first that is.
    pub fn refuse(&self, data: &str, options: &[Meant]) -> Result<(), DataError> {
        let given = |option: &Meant| match option {
            Meant::Size => self.size.map(|_| "`size`"),
            Meant::Crop => self.crop.map(|_| "`crop`"),
            Meant::Ignore => self.ignore.map(|_| "`ignore`"),
            Meant::Label => self.label.as_ref().map(|_| "`label`"),
        };
        match options.iter().find_map(given) {
            Some(option) => Err(Cause::Option(format!("does not apply to {data}")).at(option)),
            None => Ok(()),
        }
    }

    /// Returns true if `images` of `bytes` each fit the memory limit.
    pub(super) fn keeps(&self, images: usize, bytes: usize) -> bool {
        images.saturating_mul(bytes) as u64 <= self.memory.saturating_mul(1_000_000)
    }
}

/// Rows and columns of images, written as `240x320`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub [usize; 2]);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let side = |text: &str| text.parse().ok().filter(|side| (1..=1 << 14).contains(side));
        let sides = text.split_once(['x', '×']).and_then(|(rows, columns)| Some([side(rows)?, side(columns)?]));
        sides.map(Self).ok_or_else(|| "must be rows and columns from 1 to 16384, as 240x320".to_owned())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.0[0], self.0[1])
    }
}

/// Label value that counts for nothing, as the option `ignore` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignore {
    /// Every label value counts as a class.
    Nothing,
    /// Label value that is excluded from losses and scores.
    Value(u16),
}

impl FromStr for Ignore {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("none", _) => Ok(Self::Nothing),
            (_, Ok(value)) => Ok(Self::Value(value)),
            (_, Err(_)) => Err("must be `none` or a value from 0 to 65535".to_owned()),
        }
    }
}

impl fmt::Display for Ignore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("none"),
            Self::Value(value) => write!(f, "{value}"),
        }
    }
}

/// Languages of a translation by the endings of their files, the source first: `en-de`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Languages(pub [String; 2]);

impl FromStr for Languages {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('-').map(|(source, target)| [source.to_owned(), target.to_owned()]);
        let parts = parts.filter(|parts| parts[0] != parts[1] && parts.iter().all(|one| !one.is_empty()));
        parts.map(Self).ok_or_else(|| "must be two file extensions, source first, as in en-de".to_owned())
    }
}

impl fmt::Display for Languages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0[0], self.0[1])
    }
}

as_text!(Size, Ignore, Languages);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_people_write_them() {
        assert_eq!("240x320".parse(), Ok(Size([240, 320])));
        assert_eq!(
            ["none", "255", "65535"].map(str::parse),
            [Ignore::Nothing, Ignore::Value(255), Ignore::Value(u16::MAX)].map(Ok)
        );
        for wrong in ["240", "0x3", "3x", "x", "99999x1", "-1x2", "1x2x3"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
        assert!(["", "-1", "65536", "None"].iter().all(|wrong| wrong.parse::<Ignore>().is_err()));
    }

    #[test]
    fn a_checkpoint_keeps_them() {
        let reading = DataOptions {
            size: None,
            crop: Some(224),
            ignore: Some(Ignore::Value(7)),
            label: Some("x".into()),
            languages: "fr-de".parse().ok(),
            pieces: Some(500),
            tokens: Some(Tokens::Words),
            window: Some(9),
            skip_broken: true,
            features: Some("classes.safetensors".into()),
            memory: 0,
            validation: true,
            without_classes: false,
            short_recordings: false,
            bad_image: false,
        };
        let text = serde_json::to_string(&reading).expect("JSON");
        assert_eq!(serde_json::from_str::<DataOptions>(&text).expect("options"), reading);
        // One that was written before there were any.
        assert_eq!(serde_json::from_str::<DataOptions>("{}").expect("options"), DataOptions::default());
    }
}
