//! Parts of the program that a build may leave out, because their dependencies take long to compile.

use crate::Failure;

/// Part of the program with a feature of the same name. All are built by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildFeature {
    /// Scores of generated images, by the crate `nalgebra`.
    Generation,
    /// Spectra and resampling of recordings, by the crates `realfft` and `rubato`.
    Speech,
    /// Vocabularies of translation networks, by the crate `tokenizers`.
    Translation,
}

impl BuildFeature {
    /// Returns the feature that builds the part.
    #[must_use]
    pub const fn feature(self) -> &'static str {
        match self {
            Self::Generation => "generation",
            Self::Speech => "speech",
            Self::Translation => "translation",
        }
    }

    /// Returns true if this build has the part.
    #[must_use]
    pub const fn is_built(self) -> bool {
        match self {
            Self::Generation => cfg!(feature = "generation"),
            Self::Speech => cfg!(feature = "speech"),
            Self::Translation => cfg!(feature = "translation"),
        }
    }

    /// Checks that this build has the part.
    ///
    /// # Errors
    /// A build without it.
    pub fn check(self) -> Result<(), Failure> {
        if self.is_built() { Ok(()) } else { Err(Failure::plain(&self.missing())) }
    }

    /// Describes what is missing in a build without the part, and where to get it.
    pub(crate) fn missing(self) -> String {
        let feature = self.feature();
        format!(
            "{feature} is left out of this build, which is made to compile quickly; the program of `cargo install \
             --locked --path cli` has it (feature {feature})"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::BuildFeature;

    /// The rule of a build without parts is that of [`BuildFeature::is_built`], so this test holds in every build.
    #[test]
    fn a_part_that_is_left_out_is_named_with_its_feature() {
        for part in [BuildFeature::Generation, BuildFeature::Speech, BuildFeature::Translation] {
            let missing = part.missing();
            let feature = part.feature();
            assert!(missing.starts_with(&format!("{feature} is left out")), "{missing}");
            assert!(missing.ends_with(&format!("(feature {feature})")) && !missing.contains('\n'), "{missing}");
            assert!(missing.contains("cargo install --locked --path cli"), "{missing}");
            assert_eq!(
                part.check().map_err(|failure| failure.to_string()),
                if part.is_built() { Ok(()) } else { Err(missing) }
            );
        }
    }
}
