//! Spectra in a build without the feature `speech`: there are none.

use crate::describe_missing;
use std::convert::Infallible;

/// Transform that cannot exist, because this build lacks it.
#[derive(Clone, Debug)]
pub struct Spectra(Infallible);

impl Spectra {
    /// Refuses to create a transform.
    ///
    /// # Errors
    /// Always: this build lacks the feature.
    pub fn new(_: u32) -> Result<Self, String> {
        Err(describe_missing("speech"))
    }

    /// Returns the number of frequencies of a spectrum.
    #[must_use]
    pub const fn frequencies(&self) -> usize {
        match self.0 {}
    }

    /// Computes the spectra of a recording.
    #[must_use]
    pub const fn compute(&self, _: &[f32]) -> Vec<f32> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::Spectra;
    use crate::describe_missing;

    #[test]
    fn spectra_are_refused_by_one_line_that_names_the_feature() {
        assert_eq!(Spectra::new(8000).expect_err("no transform"), describe_missing("speech"));
    }
}
