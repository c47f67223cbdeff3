//! Requests of the page to a worker, and the worker's answers, as JSON with these names.

use crate::digits::Stroke;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

/// Request of the web page to the worker.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase", tag = "ask", deny_unknown_fields)]
pub enum Request {
    /// Starts a new training, and ends the previous one.
    Open {
        /// Name of the method, as `gradscale` reads it: `gs`, `dynamic` …
        method: String,
        /// Seed of the first weights and of the digits.
        seed: u64,
        /// Exponent of the factor of the loss: it is multiplied by 2^magnitude.
        magnitude: i32,
        /// Number of digits in an epoch of which one is broken: all its pixels are NaN. Without it all digits are intact.
        #[serde(default)]
        broken: Option<NonZeroU64>,
    },
    /// Runs training steps, and reports on the last of them.
    Steps {
        /// Number of training steps to run.
        count: u32,
    },
    /// Multiplies the loss by another power of two from now on.
    Magnitude {
        /// New exponent of the factor of the loss.
        magnitude: i32,
    },
    /// Evaluates the network on a test set of digits.
    Score,
    /// Computes matrix products of halves, and waits for them: the page measures the time.
    Multiply {
        /// Rows and columns of both operands.
        size: u32,
        /// Number of products.
        count: u32,
    },
    /// Classifies a digit that a visitor has drawn.
    Classify {
        /// Strokes of the drawing, in any unit of length.
        strokes: Vec<Stroke>,
    },
    /// Returns the strokes of a random handwritten digit, for visitors who cannot draw.
    Write {
        /// Digit, from 0 to 9.
        digit: u8,
        /// Key of the random shape. Equal keys return equal strokes.
        key: u64,
    },
    /// Returns sample digits to show on the page.
    Digits {
        /// Number of sample digits to return.
        count: u32,
    },
}

/// Answer of the worker to the page, one for each kind of request.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "said")]
pub enum Answer {
    /// Answer to [`Request::Open`] and [`Request::Magnitude`]: the training is ready.
    Ready {
        /// Name of the device that trains.
        device: String,
    },
    /// Answer to [`Request::Steps`]: the results of these steps.
    Steps(Report),
    /// Answer to [`Request::Score`]: the share of digits that are classified correctly.
    Score {
        /// Share of the test digits that are classified correctly.
        right: f64,
    },
    /// Answer to [`Request::Multiply`].
    Multiplied,
    /// Answer to [`Request::Classify`]: probabilities and image.
    Class {
        /// Probability of each of the ten digits.
        shares: Vec<f32>,
        /// Image of the drawing as the network reads it.
        image: Vec<f32>,
    },
    /// Answer to [`Request::Write`]: the strokes of a digit.
    Strokes {
        /// Strokes of the digit. Its longer side is about 1, and its center is near 0.
        strokes: Vec<Stroke>,
    },
    /// Answer to [`Request::Digits`]: images and labels.
    Digits {
        /// Pixels of all digits, one image after another.
        images: Vec<f32>,
        /// Digit that each image shows.
        labels: Vec<u8>,
    },
    /// Answer to a request that failed, with the reason.
    Error {
        /// Error message, as one line.
        why: String,
    },
}

/// Results of some training steps for the page.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Steps taken or skipped since the training began.
    pub step: u64,
    /// Mean loss over those of these steps whose batch is intact, divided by its magnitude. If all of them are broken, it
    /// is the loss of the previous report. None if it is not finite.
    pub loss: Option<f64>,
    /// Exponent of the loss scale in the next step; 0 for methods without one.
    pub loss_scale: i32,
    /// Number of batches with the broken image since the training began.
    pub broken: u64,
    /// Number of steps skipped since the training began.
    pub skipped: u64,
    /// Number of batches repeated since the training began.
    pub repeated: u64,
    /// Note about a skip or repeat in the last step.
    pub note: Option<String>,
    /// Statistics of each cast site in the last step whose batch is intact.
    pub sites: Vec<Site>,
}

/// Statistics of a cast site, where a gradient became halves, in one step.
#[derive(Clone, Debug, Serialize)]
pub struct Site {
    /// Name of the cast site: layer and operator.
    pub name: String,
    /// Exponent of the scale that the gradient was stored with.
    pub scale: i32,
    /// Share of the values that became zeros by the store.
    pub flushed: f64,
    /// Number of values that were zero before the store.
    pub zeros: u64,
    /// Numbers of values stored between 2^(`FIRST_BIN_EXPONENT` + i − 1) and 2^(`FIRST_BIN_EXPONENT` + i); the first
    /// and the last count all beyond.
    pub stored: Vec<u32>,
}

/// Exponent of the first bin of [`Site::stored`].
pub const FIRST_BIN_EXPONENT: i32 = -60;

/// Number of bins of [`Site::stored`].
pub const BINS: usize = 81;

/// Serializes an answer as the JSON that the page reads.
#[must_use]
pub fn text(answer: &Answer) -> String {
    serde_json::to_string(answer).unwrap_or_else(|error| format!(r#"{{"said":"error","why":"{error}"}}"#))
}
