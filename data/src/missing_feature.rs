//! Parts that a build may leave out, because their dependencies take long to compile.

/// Describes what is missing in a build without a feature, and where to get it.
#[must_use]
pub fn describe_missing(feature: &str) -> String {
    format!("{feature} is left out of this build; the feature {feature} of gradscale-data has it")
}
