//! Search for the samples whose losses are infinite or NaN, after a step that was skipped because the loss of its batch
//! was.
//!
//! The data of each sample are tested first, which costs little. If they are usable, each sample is evaluated alone, which
//! takes about as long as the forward pass of the batch. Neither changes anything that a later step depends on.

use crate::{Failure, data::Sample};
use gradscale::{Trainer, gradscale_core::backend::Backend};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of batches of a run whose samples are evaluated one by one, so that a run whose every batch has an
/// infinite loss is not slowed down by its search.
const MAX_EVALUATED_BATCHES: u32 = 8;

/// Samples of a skipped batch whose own losses are infinite or NaN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusableSamples {
    /// Indices of these samples in the training set, from 0 and ascending; at least one.
    pub indices: Vec<u64>,
    /// File of the first of them, with its line or place there; `None` if it is unknown or the data are generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Number of samples in the batch.
    pub batch: usize,
    /// Test that found them.
    pub test: SampleTest,
}

/// Test of a single sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleTest {
    /// The sample has data with which no network has a finite loss, for example NaN.
    Data,
    /// The loss of the sample was infinite or NaN in an evaluation, where the weights may be the cause, too.
    Evaluation,
}

impl UnusableSamples {
    /// Returns the index of the first sample.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.indices.first().copied().unwrap_or_default()
    }

    /// Describes source and number of the samples, to be appended to a message that has the index of the first. Empty if
    /// there is nothing to add.
    #[must_use]
    pub fn details(&self) -> String {
        let (first, count) = (self.first(), self.indices.len());
        let source = self.source.as_ref().map(|source| format!(" {source}"));
        let others = (count > 1).then(|| format!(" the first of {count} such samples in this batch of {}", self.batch));
        let parts: Vec<String> = source.into_iter().chain(others).collect();
        if parts.is_empty() { String::new() } else { format!("; sample {first} is{}", parts.join(",")) }
    }
}

/// Trait of a task whose loss is a mean or sum over samples, which can be tested one by one. By default it is none.
pub trait SampleLosses {
    /// Draws the samples of the next batch, as for a step. Empty if samples have no losses of their own.
    fn draw_samples(&mut self) -> Vec<Sample> {
        Vec::new()
    }

    /// Returns true if no network has a finite loss for a sample, because of its data alone.
    ///
    /// # Errors
    /// Data on disk that can no longer be read.
    fn has_unusable_data(&self, _: Sample) -> Result<bool, Failure> {
        Ok(false)
    }

    /// Computes the loss of a batch of one sample in evaluation mode.
    ///
    /// # Errors
    /// Data on disk that can no longer be read, or the device's.
    fn sample_loss<B: Backend<Error: 'static>>(&self, _: &mut Trainer<B>, _: Sample) -> Result<f32, Failure> {
        Ok(0.0)
    }

    /// Returns the file of a training sample, with its line or place there, if that is known.
    fn sample_source(&self, _index: usize) -> Option<String> {
        None
    }
}

/// Search for unusable samples during one run.
#[derive(Debug)]
pub(super) struct SampleSearch {
    /// Number of batches whose samples may still be evaluated.
    evaluations: u32,
}

impl Default for SampleSearch {
    fn default() -> Self {
        Self { evaluations: MAX_EVALUATED_BATCHES }
    }
}

impl SampleSearch {
    /// Finds the unusable ones of some samples. `None` if none is, or if all are, because then the weights are the cause.
    pub fn find<B: Backend<Error: 'static>>(
        &mut self, task: &impl SampleLosses, trainer: &mut Trainer<B>, samples: &[Sample],
    ) -> Option<UnusableSamples> {
        // A search that fails must not end a training. Whatever is broken fails in the next step, too.
        let by_data = indices(samples, |sample| task.has_unusable_data(sample)).ok()?;
        let (found, test) = if by_data.is_empty() {
            if samples.is_empty() || self.evaluations == 0 {
                return None;
            }
            self.evaluations -= 1;
            let evaluated = indices(samples, |sample| Ok(!task.sample_loss(trainer, sample)?.is_finite())).ok()?;
            let is_unusable = |sample: &Sample| evaluated.contains(&sample.index);
            if samples.len() > 1 && samples.iter().all(is_unusable) {
                return None;
            }
            (evaluated, SampleTest::Evaluation)
        } else {
            (by_data, SampleTest::Data)
        };
        let source = found.first().and_then(|&first| task.sample_source(first));
        let indices: Vec<u64> = found.into_iter().map(|index| index as u64).collect();
        (!indices.is_empty()).then_some(UnusableSamples { indices, source, batch: samples.len(), test })
    }
}

/// Returns the indices of the samples that pass a test. A batch that two epochs share may have one twice.
fn indices(
    samples: &[Sample], mut passes: impl FnMut(Sample) -> Result<bool, Failure>,
) -> Result<BTreeSet<usize>, Failure> {
    let mut found = BTreeSet::new();
    for &sample in samples {
        if passes(sample)? {
            found.insert(sample.index);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
