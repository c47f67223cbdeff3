//! Errors of the program: one line with place, cause and remedy.

use crate::data_messages::with_program_options;
use gradscale::{TraceError, TraceErrorKind, gradscale_core::ops::ShapeError};
use std::{fmt, path::Path};

/// Error that ends the program, with its message.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// Creates the error about a named thing, for example an option, with its cause.
    pub fn at(place: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self(format!("{place}: {cause}"))
    }

    /// Creates the error with this text as its only line.
    pub fn plain(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Creates the error about a file, with its cause.
    pub fn file(path: &Path, cause: impl fmt::Display) -> Self {
        Self::at(path.display(), cause)
    }

    /// Appends a hint about the remedy.
    pub(crate) fn hint(self, hint: &str) -> Self {
        Self(format!("{}; {hint}", self.0))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names come from outside and may hold anything; a message is one line.
        self.0
            .chars()
            .try_for_each(|c| if c.is_control() { write!(f, "{}", c.escape_default()) } else { write!(f, "{c}") })
    }
}

impl std::error::Error for Failure {}

impl From<gradscale_data::DataError> for Failure {
    fn from(error: gradscale_data::DataError) -> Self {
        Self::plain(&with_program_options(&error.to_string()))
    }
}

impl From<gradscale::metrics::MetricError> for Failure {
    fn from(error: gradscale::metrics::MetricError) -> Self {
        Self::at("scores", error)
    }
}

impl From<gradscale::distributed::DistributedError> for Failure {
    fn from(error: gradscale::distributed::DistributedError) -> Self {
        Self(error.to_string())
    }
}

impl<E: std::error::Error + 'static> From<gradscale::Error<E>> for Failure {
    fn from(error: gradscale::Error<E>) -> Self {
        let failure = Self(error.to_string());
        let window = |trace: &TraceError| matches!(trace.kind, TraceErrorKind::Input { error: ShapeError::Window, .. });
        if matches!(&error, gradscale::Error::Trace(trace) if window(trace)) {
            return failure.hint("the samples are too small for this network (--size HxW enlarges images)");
        }
        failure
    }
}
