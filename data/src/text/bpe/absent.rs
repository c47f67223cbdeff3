//! Vocabularies in a build without the feature `translation`: there are none.

use crate::describe_missing;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;

/// Vocabulary that cannot exist, because this build can neither learn nor read one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pieces(Infallible);

impl Pieces {
    /// Refuses to learn a vocabulary.
    ///
    /// # Errors
    /// Always: this build lacks the feature.
    pub fn learn<'a>(_: impl Iterator<Item = &'a str> + Send, _: u16) -> Result<Self, String> {
        Err(describe_missing("translation"))
    }

    /// Returns the size of the vocabulary.
    #[must_use]
    pub const fn count(&self) -> usize {
        match self.0 {}
    }

    /// Splits a text into pieces.
    #[must_use]
    pub const fn apart(&self, _: &str) -> Vec<u32> {
        match self.0 {}
    }

    /// Decodes pieces to the text that they encode.
    #[must_use]
    pub const fn text(&self, _: &[u32]) -> String {
        match self.0 {}
    }
}

impl TryFrom<String> for Pieces {
    type Error = String;

    fn try_from(_: String) -> Result<Self, String> {
        Err(describe_missing("translation"))
    }
}

impl From<Pieces> for String {
    fn from(pieces: Pieces) -> Self {
        match pieces.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vocabularies_are_refused_by_one_line_that_names_the_feature() {
        let right = describe_missing("translation");
        assert_eq!(Pieces::learn(["ein Hund"].into_iter(), 80), Err(right.clone()));
        assert_eq!(serde_json::from_str::<Pieces>("\"{}\"").expect_err("no vocabulary").to_string(), right);
    }
}
