//! What networks answer.

use serde::{Deserialize, Serialize};

/// Of images, recordings, sentences or texts. Files keep classes as numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answers {
    /// The class of every pixel, or of every image, one after another.
    Classes(Vec<u32>),
    /// What is said in each recording, what each sentence means, or how each text goes on.
    Texts(Vec<Transcript>),
    /// What is found in each picture.
    Boxes(Vec<Vec<Found>>),
}

/// What is said in a recording, a sentence in another language, or how a text goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transcript {
    /// The likeliest text.
    pub text: String,
    /// That of the likeliest alignment, or of the likeliest words one by one.
    pub greedy: String,
}

/// A box in a picture, with what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The class, from 0.
    pub class: u32,
    /// How likely it is.
    pub score: f32,
    /// Left, top, right and bottom, in shares of the picture.
    pub corners: [f32; 4],
}

impl Answers {
    /// Nothing was asked.
    pub const NONE: Self = Self::Classes(Vec::new());

    /// Classes, if they are such.
    #[must_use]
    pub fn classes(&self) -> &[u32] {
        match self {
            Self::Classes(classes) => classes,
            Self::Texts(_) | Self::Boxes(_) => &[],
        }
    }

    /// Texts, if they are such.
    #[must_use]
    pub fn texts(&self) -> &[Transcript] {
        match self {
            Self::Classes(_) | Self::Boxes(_) => &[],
            Self::Texts(texts) => texts,
        }
    }

    /// Boxes of each picture, if they are such.
    #[must_use]
    pub fn boxes(&self) -> &[Vec<Found>] {
        match self {
            Self::Classes(_) | Self::Texts(_) => &[],
            Self::Boxes(boxes) => boxes,
        }
    }
}
