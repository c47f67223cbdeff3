//! What the page asks of a worker, and what it is answered: JSON with these names.

use crate::digits::Stroke;
use serde::{Deserialize, Serialize};

/// What can be asked.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase", tag = "ask", deny_unknown_fields)]
pub enum Request {
    /// To begin anew.
    Open {
        /// As `gradscale` reads it: `gs`, `dynamic` …
        method: String,
        /// Of first weights and digits.
        seed: u64,
        /// The loss is multiplied by 2^this.
        magnitude: i32,
    },
    /// To train on.
    Steps {
        /// How many.
        count: u32,
    },
    /// To multiply the loss by another power of two from now on.
    Magnitude {
        /// Its exponent.
        magnitude: i32,
    },
    /// How many digits of a test set are right.
    Score,
    /// What a drawing is.
    Classify {
        /// The drawing, in any unit.
        strokes: Vec<Stroke>,
    },
    /// Some digits to look at.
    Digits {
        /// How many.
        count: u32,
    },
}

/// Answers, one for each kind of request.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "said")]
pub enum Answer {
    /// To [`Request::Open`] and [`Request::Magnitude`].
    Ready {
        /// The device, in words.
        device: String,
    },
    /// To [`Request::Steps`].
    Steps(Report),
    /// To [`Request::Score`]: a share.
    Score {
        /// Of the digits.
        right: f64,
    },
    /// To [`Request::Classify`].
    Class {
        /// How likely each digit is.
        shares: Vec<f32>,
        /// The drawing as the network sees it.
        image: Vec<f32>,
    },
    /// To [`Request::Digits`].
    Digits {
        /// One behind the other.
        images: Vec<f32>,
        /// What they are.
        labels: Vec<u8>,
    },
    /// What went wrong, in one line.
    Error {
        /// That line.
        why: String,
    },
}

/// What became of some steps.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Steps taken or skipped since the training began.
    pub step: u64,
    /// The mean loss over these steps, divided by its magnitude; none if it is not finite.
    pub loss: Option<f64>,
    /// Steps skipped since the training began.
    pub skipped: u64,
    /// Batches repeated since the training began.
    pub repeated: u64,
    /// How the last step ended, if not as usual.
    pub note: Option<String>,
    /// Each place where a gradient became halves.
    pub sites: Vec<Site>,
}

/// A place where a gradient became halves, as the last step saw it.
#[derive(Clone, Debug, Serialize)]
pub struct Site {
    /// Layer and operator.
    pub name: String,
    /// It was multiplied by 2^this, as it was stored.
    pub scale: i32,
    /// Share of the values that became zeros.
    pub flushed: f64,
    /// How many were zeros before.
    pub zeros: u64,
    /// How many values were stored between 2^(`FIRST_BIN_EXPONENT` + i − 1) and 2^(`FIRST_BIN_EXPONENT` + i); the first and the last have all beyond.
    pub stored: Vec<u32>,
}

/// Exponent of the first bin of [`Site::stored`].
pub const FIRST_BIN_EXPONENT: i32 = -60;

/// How many bins there are.
pub const BINS: usize = 81;

/// An answer as the page reads it.
#[must_use]
pub fn text(answer: &Answer) -> String {
    serde_json::to_string(answer).unwrap_or_else(|error| format!(r#"{{"said":"error","why":"{error}"}}"#))
}
