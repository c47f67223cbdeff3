//! Events: skipped steps and retried attempts.

use gradscale::SiteReport;
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
}

/// Event as logs store it: older logs have its sentence alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredEvent {
    Sentence(String),
    Event { said: String, magnitude: Option<f64>, decided: Option<i32> },
}

impl From<StoredEvent> for Event {
    fn from(stored: StoredEvent) -> Self {
        match stored {
            StoredEvent::Sentence(said) => Self::from_sentence(said),
            StoredEvent::Event { said, magnitude, decided } => Self { said, magnitude, decided },
        }
    }
}

impl Event {
    /// Creates an event from its sentence alone.
    pub fn from_sentence(said: impl Into<String>) -> Self {
        Self { said: said.into(), magnitude: None, decided: None }
    }

    /// Creates an event, with its site if there is one; `sites` are those after the step.
    pub(super) fn new(said: &impl ToString, site: Option<&str>, sites: &[SiteReport<'_>]) -> Self {
        let at = site.and_then(|name| sites.iter().find(|site| site.name == name));
        Self {
            said: said.to_string(),
            magnitude: at.and_then(|site| site.log2_amax).filter(|log2| log2.is_finite()),
            decided: at.map(|site| site.alpha),
        }
    }
}
