//! Versions of the rules, so that a method's text in an old file keeps its meaning.
//!
//! `gs` decided from each row alone, before batches could be repeated. Files of that time do not name the rule; newer
//! ones name the history. Later, batches whose activations overflow were skipped before `forward=repeat` became the default.

use gradscale::{ForwardScaling, Method, Preset, Scaling};

/// Value of `history=` for a method that does not name one.
pub const CURRENT_HISTORY: &str = "ring";
/// Value of `history=` in files that were written before the option existed.
pub const LEGACY_HISTORY: &str = "0";

/// Value of `forward=` for a method that does not name one.
pub const CURRENT_FORWARD: &str = "repeat";
/// Value of `forward=` in files that were written before the option existed.
pub const LEGACY_FORWARD: &str = "off";

/// Returns the text of a method from a file in which `forward` was the default of `forward=`.
#[must_use]
pub fn with_forward(method: &str, forward: &str) -> String {
    let repeats = method.parse::<Method>().is_ok_and(|method| match method.scaling {
        Scaling::Gradient(gradient) => gradient.forward == ForwardScaling::Repeat,
        Scaling::Loss(_) | Scaling::Blocks(_) => false,
    });
    if repeats && forward != CURRENT_FORWARD && !method.contains("forward=") {
        format!("{method},forward={forward}")
    } else {
        method.to_owned()
    }
}

/// Returns a method's text with `history=` added, if its rule has a history and the text does not name one.
#[must_use]
pub fn spelled(method: &str, history: &str) -> String {
    let exact = method.parse::<Method>().is_ok_and(|method| match method.scaling {
        Scaling::Gradient(gradient) => gradient.preset == Preset::Exact,
        Scaling::Loss(_) | Scaling::Blocks(_) => false,
    });
    if exact && !method.contains("history") { format!("{method},history={history}") } else { method.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_methods_that_repeat_had_another_default() {
        for (text, expected) in [
            ("gs", "gs,forward=off"),
            ("gs:room=4,amp=O2", "gs:room=4,amp=O2,forward=off"),
            ("gs:f32=net.forward", "gs:f32=net.forward,forward=off"),
            ("gs:forward=on", "gs:forward=on"),
            ("gs:forward=repeat", "gs:forward=repeat"),
            ("gs:history=0", "gs:history=0"),
            ("gs:authors", "gs:authors"),
            ("torch", "torch"),
            ("no method", "no method"),
        ] {
            assert_eq!(with_forward(text, LEGACY_FORWARD), expected);
            assert_eq!(with_forward(text, CURRENT_FORWARD), text);
            assert_eq!(expected.parse::<Method>().is_ok(), text != "no method");
        }
    }

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
