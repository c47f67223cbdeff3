//! Metrics of a network's predictions.
//!
//! Each metric accumulates batches and then returns one number; NaN if nothing was counted. Classes are bytes or words,
//! from 0.
//!
//! ```
//! use gradscale::{Input, Cpu, Method, Parameters, Trainer, metrics::Accuracy, optim::Sgd};
//! let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(1), Sgd::new(0.1), Method::mixed())?;
//! let scores = [Input::f32([2, 3], &[0.0, 5.0, 1.0, 9.0, 0.0, 1.0])];
//! let best = trainer.evaluate_integers(scores, |[x]| x.argmax())?;
//! let mut accuracy = Accuracy::default();
//! accuracy.add(&[1u8, 2], &best.data, None)?;
//! assert_eq!(accuracy.share(), 0.5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod average_precision;
mod bleu;
mod confusion;
mod error_rate;
mod perplexity;
mod share;

pub use average_precision::{AveragePrecision, Truth};
pub use bleu::Bleu;
pub use confusion::Confusion;
pub use error_rate::ErrorRate;
pub use perplexity::Perplexity;
pub use share::{Accuracy, TopK};

use std::fmt;

/// Reason why a call could not be counted; nothing of it was. [`fmt::Debug`] writes the sentence of [`fmt::Display`].
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricError {
    /// The numbers of labels and predictions differ.
    Length {
        /// Number of labels in the call.
        labels: usize,
        /// Number of predictions, or of rows of logits, that were passed.
        predictions: usize,
    },
    /// A label or a prediction is not a class.
    Class {
        /// Value of the label that is not a class, or whose prediction is not.
        label: u32,
        /// Prediction for the label, if the metric needs one.
        prediction: Option<u32>,
        /// Index in the batch of the example with this label, from 0.
        place: usize,
        /// Number of classes that the metric counts.
        classes: usize,
    },
}

impl fmt::Display for MetricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { labels, predictions } => write!(f, "{labels} labels for {predictions} predictions"),
            Self::Class { label, prediction: Some(prediction), place, classes } => {
                write!(f, "{place}: label {label} and prediction {prediction} do not fit {classes} classes")
            }
            Self::Class { label, prediction: None, place, classes } => {
                write!(f, "{place}: label {label} does not fit {classes} classes")
            }
        }
    }
}

impl fmt::Debug for MetricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for MetricError {}

fn same_length(labels: usize, predictions: usize) -> Result<(), MetricError> {
    if labels == predictions { Ok(()) } else { Err(MetricError::Length { labels, predictions }) }
}
