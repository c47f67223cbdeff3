//! Figures, which are computed without training.

use serde::Serialize;
use serde_json::Value;

/// Figure of `gradscale regimes`, as text and as numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub name: &'static str,
    pub about: &'static str,
    /// Text of the figure, in lines of at most 80 columns.
    #[serde(skip)]
    pub text: String,
    pub rows: Vec<Value>,
}
