//! Versions of the rules, so that a method's text in an old file keeps its meaning.
//!
//! `gs` decided from each row alone, before batches could be repeated. Files of that time do not name the rule; newer
//! ones name the history.

use gradscale::{Method, Preset, Scaling};

/// Value of `history=` for a method that does not name one.
pub const CURRENT_HISTORY: &str = "ring";
/// Value of `history=` in files that were written before the option existed.
pub const LEGACY_HISTORY: &str = "0";

/// Returns a method's text with `history=` added, if its rule has a history and the text does not name one.
#[must_use]
pub fn spelled(method: &str, history: &str) -> String {
    let exact = method.parse::<Method>().is_ok_and(|method| match method.scaling {
        Scaling::Gradient(gradient) => gradient.preset == Preset::Exact,
        Scaling::Loss(_) => false,
    });
    if exact && !method.contains("history") { format!("{method},history={history}") } else { method.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_rule_remembers() {
        for (text, expected) in [
            ("gs", "gs,history=0"),
            ("gs:exact,room=4", "gs:exact,room=4,history=0"),
            ("gs:interval=3", "gs:interval=3,history=0"),
            ("gs,history=ring", "gs,history=ring"),
            ("gs:paper", "gs:paper"),
            ("dynamic", "dynamic"),
            ("no method", "no method"),
        ] {
            assert_eq!(spelled(text, LEGACY_HISTORY), expected);
            assert_eq!(spelled(text, LEGACY_HISTORY).parse::<Method>().is_ok(), expected.parse::<Method>().is_ok());
        }
        let default: Method = "gs".parse().expect("a method");
        assert_eq!(spelled("gs", CURRENT_HISTORY).parse::<Method>(), Ok(default.clone()));
        assert_ne!(spelled("gs", LEGACY_HISTORY).parse::<Method>(), Ok(default));
    }
}
