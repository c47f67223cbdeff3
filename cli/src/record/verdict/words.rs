//! Pieces of sentences.

use super::{MethodResult, Sentence};

pub fn strong(about: &str, text: String) -> Sentence {
    Sentence { about: about.to_owned(), text }
}

/// Joins names of methods, for example `fp32, dynamic and gs`.
pub fn listed(names: &[&str]) -> String {
    match names {
        [] => "no method".to_owned(),
        [one] => (*one).to_owned(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

/// Formats a score with its name: `mIoU 9.0 %`, `second tower 10.4 %`; of several seeds the mean.
pub fn reached(stand: &MethodResult<'_>, score: usize) -> String {
    let name = stand.scores.get(score).map_or("score", |(metric, _)| metric.name());
    format!("{name} {}", stand.text(score, stand.mean(score)))
}
