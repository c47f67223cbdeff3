//! Figures, which are computed without training.

use serde::Serialize;
use serde_json::Value;

/// A figure as text and as numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub name: &'static str,
    pub about: &'static str,
    /// Lines of at most 80 columns.
    #[serde(skip)]
    pub text: String,
    pub rows: Vec<Value>,
}
