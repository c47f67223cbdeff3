//! Errors of methods, names and saved states.

use std::fmt;

/// Error of the adapters. Its text is one line.
#[derive(Clone, PartialEq, Eq)]
pub enum Error {
    /// Error: the text is not a method, or the method needs features that an adapter does not have.
    Method {
        /// Text of the method.
        method: String,
        /// Reason why it was rejected.
        cause: String,
    },
    /// Error: the scaler already has a site with that name.
    Name(String),
    /// Error: the model has more sites than a table can hold.
    Sites(String),
    /// Error: the text is not a saved state, or is the state of another model.
    State(String),
    /// Error: the threads that store gradients cannot be started.
    Threads(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method { method, cause } => write!(f, "method {method}: {cause}"),
            Self::Name(name) => write!(f, "site {name}: the name is taken; choose another"),
            Self::Sites(name) => write!(f, "site {name}: too many sites"),
            Self::State(cause) => write!(f, "saved scales: {cause}"),
            Self::Threads(cause) => write!(f, "threads for storing gradients: {cause}"),
        }
    }
}

/// Debug impl of the error, which writes the same sentence as [`fmt::Display`].
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
