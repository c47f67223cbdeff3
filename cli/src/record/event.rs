//! Events: skipped steps and retried attempts.

use crate::tasks::UnusableSamples;
use gradscale::{SiteReport, Skipped};
use serde::{Deserialize, Serialize};

/// Skipped step, or attempt at a step that was repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredEvent")]
pub struct Event {
    /// Description of the event in a sentence: site and cause.
    pub said: String,
    /// Largest true magnitude of the batch at the site, as a power of two, if that is a finite number.
    pub magnitude: Option<f64>,
    /// Exponent of the site after the event.
    pub decided: Option<i32>,
    /// Samples whose own losses are infinite or NaN, if the step was skipped because of them and they were found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<UnusableSamples>,
}

/// Event as logs store it: older logs have its sentence alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredEvent {
    Sentence(String),
    Event {
        said: String,
        magnitude: Option<f64>,
        decided: Option<i32>,
        #[serde(default)]
        samples: Option<UnusableSamples>,
    },
}

impl From<StoredEvent> for Event {
    fn from(stored: StoredEvent) -> Self {
        match stored {
            StoredEvent::Sentence(said) => Self::from_sentence(said),
            StoredEvent::Event { said, magnitude, decided, samples } => Self { said, magnitude, decided, samples },
        }
    }
}

impl Event {
    /// Creates an event from its sentence alone.
    pub fn from_sentence(said: impl Into<String>) -> Self {
        Self { said: said.into(), magnitude: None, decided: None, samples: None }
    }

    /// Creates the event of a skipped step, with the samples that caused it if they were found; `sites` are those after the
    /// step.
    pub(super) fn from_skip<'s, 'r: 's>(
        skipped: &Skipped, samples: Option<&UnusableSamples>, sites: impl IntoIterator<Item = &'s SiteReport<'r>>,
    ) -> Self {
        let site = skipped.site.as_ref().map(|(name, _)| name.as_str());
        let said = samples.map_or_else(|| skipped.to_string(), |samples| skipped.to_string() + &samples.details());
        Self { samples: samples.cloned(), ..Self::new(&said, site, sites) }
    }

    /// Creates an event, with its site if there is one; `sites` are those after the step.
    pub(super) fn new<'s, 'r: 's>(
        said: &impl ToString, site: Option<&str>, sites: impl IntoIterator<Item = &'s SiteReport<'r>>,
    ) -> Self {
        let at = site.and_then(|name| sites.into_iter().find(|site| site.name == name));
        Self {
            said: said.to_string(),
            magnitude: at.and_then(|site| site.log2_amax).filter(|log2| log2.is_finite()),
            decided: at.map(|site| site.alpha),
            samples: None,
        }
    }
}
