//! What can be wrong with a method, a name or a saved state.

use std::fmt;

/// Why sites cannot be what was asked for. Its text is one line.
#[derive(Clone, PartialEq, Eq)]
pub enum Error {
    /// No method, or one that needs what an adapter does not have: the method and why.
    Method(String, String),
    /// A site of that name is there already.
    Name(String),
    /// More sites than a table holds.
    Sites(String),
    /// A saved state that is none, or that of another model.
    State(String),
    /// The threads that store gradients cannot be started.
    Threads(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(method, cause) => write!(f, "method {method}: {cause}"),
            Self::Name(name) => write!(f, "site {name}: there is one of that name already"),
            Self::Sites(name) => write!(f, "site {name}: too many sites"),
            Self::State(cause) => write!(f, "saved scales: {cause}"),
            Self::Threads(cause) => write!(f, "threads for storing gradients: {cause}"),
        }
    }
}

/// The sentence of [`fmt::Display`].
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
