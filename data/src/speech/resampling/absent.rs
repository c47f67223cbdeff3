//! Resampling in a build without the feature `speech`: there is none.

use crate::describe_missing;

/// Refuses to resample.
///
/// # Errors
/// Always: this build lacks the feature.
pub fn resample(_: Vec<f32>, _: u32, _: u32) -> Result<Vec<f32>, String> {
    Err(describe_missing("speech"))
}

#[cfg(test)]
mod tests {
    use super::resample;
    use crate::describe_missing;

    #[test]
    fn other_rates_are_refused_by_one_line_that_names_the_feature() {
        assert_eq!(resample(vec![0.5; 30], 44100, 8000), Err(describe_missing("speech")));
    }
}
