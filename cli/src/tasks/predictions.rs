//! Predictions of networks.

use crate::metrics::or_nan;
use serde::{Deserialize, Deserializer, Serialize};

/// Predictions for images, recordings, sentences or texts. Files store classes as numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Predictions {
    /// The class of every pixel, or of every image, one after another.
    Classes(Vec<u32>),
    /// Transcript of each recording, translation of each sentence, or continuation of each text.
    Texts(Vec<Transcript>),
    /// Boxes detected in each of the images.
    Boxes(Vec<Vec<DetectedBox>>),
    /// Images that a generator network produced from noise.
    Made(GeneratedImages),
}

/// Generated images of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratedImages {
    /// Number of rows and of columns of each generated image.
    pub size: [usize; 2],
    /// Values of the pixels, R G B, one image after another.
    pub pixels: Vec<u8>,
}

/// Transcript of a recording, translation of a sentence, or continuation of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transcript {
    /// Likeliest text that was found for the recording or sentence.
    pub text: String,
    /// Greedy result: of the likeliest alignment, or of the likeliest tokens one by one.
    pub greedy: String,
}

/// Box in a picture, with its class and confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DetectedBox {
    /// Class id of the box, from 0.
    pub class: u32,
    /// Confidence that the box contains its class, from 0 to 1.
    #[serde(deserialize_with = "or_nan")]
    pub score: f32,
    /// Left, top, right and bottom edge, as shares of the picture.
    #[serde(deserialize_with = "corners_or_nan")]
    pub corners: [f32; 4],
}

/// Deserializes corners in which `null`, which JSON has for NaN, becomes NaN.
fn corners_or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f32; 4], D::Error> {
    Ok(<[Option<f32>; 4]>::deserialize(deserializer)?.map(|corner| corner.unwrap_or(f32::NAN)))
}

impl GeneratedImages {
    /// Tiles all images into one, eight in a row or as many as fit 256 columns.
    #[must_use]
    pub fn tiled(&self) -> Self {
        const TILES_PER_ROW: usize = 8;
        const COLUMNS: usize = 256;
        let [height, width] = self.size;
        let row = 3 * width;
        let count = self.pixels.len() / (height * row).max(1);
        let across = (COLUMNS / width.max(1)).clamp(1, TILES_PER_ROW).min(count.max(1));
        let down = count.div_ceil(across);
        let mut pixels = vec![0; down * height * across * row];
        for (i, line) in self.pixels.chunks_exact(row.max(1)).enumerate() {
            let (image, y) = (i / height, i % height);
            let at = ((image / across * height + y) * across + image % across) * row;
            pixels[at..at + row].copy_from_slice(line);
        }
        Self { size: [down * height, across * width], pixels }
    }
}

impl Predictions {
    /// Predictions for no samples at all.
    pub const NONE: Self = Self::Classes(Vec::new());

    /// Returns the predicted classes, or an empty slice for other predictions.
    #[must_use]
    pub fn classes(&self) -> &[u32] {
        match self {
            Self::Classes(classes) => classes,
            Self::Texts(_) | Self::Boxes(_) | Self::Made(_) => &[],
        }
    }

    /// Returns the predicted texts, or an empty slice for other predictions.
    #[must_use]
    pub fn texts(&self) -> &[Transcript] {
        match self {
            Self::Classes(_) | Self::Boxes(_) | Self::Made(_) => &[],
            Self::Texts(texts) => texts,
        }
    }

    /// Returns the boxes of each picture, or an empty slice for other predictions.
    #[must_use]
    pub fn boxes(&self) -> &[Vec<DetectedBox>] {
        match self {
            Self::Classes(_) | Self::Texts(_) | Self::Made(_) => &[],
            Self::Boxes(boxes) => boxes,
        }
    }

    /// Returns the generated images, or `None` for other predictions.
    #[must_use]
    pub const fn made(&self) -> Option<&GeneratedImages> {
        match self {
            Self::Made(made) => Some(made),
            Self::Classes(_) | Self::Texts(_) | Self::Boxes(_) => None,
        }
    }
}
