//! Settings of a training, as a checkpoint stores and compares them: names and values.

use crate::checkpoint::Difference;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use std::collections::BTreeMap;

/// Settings by name. All of them are stored, defaults too, because a default may change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Configuration(BTreeMap<String, Value>);

impl Configuration {
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.0.insert(name.into(), value.into());
    }

    /// Adds an f32 as its shortest decimal form, which parses to the same number.
    pub fn set_single(&mut self, name: impl Into<String>, value: f32) {
        let text = value.to_string();
        let number = text.parse().ok().and_then(Number::from_f64);
        self.set(name, number.map_or(Value::String(text), Value::Number));
    }

    /// Returns true if there is a setting of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Removes the setting of this name.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Returns the settings in which this configuration, a checkpoint's, differs from `here`, that of the trainer. If
    /// some settings have values in both, settings that only one of them has (for example the momentum of another rule)
    /// are not reported.
    pub fn differences(&self, here: &Self) -> Vec<Difference> {
        let names = self.0.keys().chain(here.0.keys().filter(|name| !self.0.contains_key(*name)));
        let different = names.filter(|name| self.0.get(*name) != here.0.get(*name));
        let (both, one): (Vec<_>, Vec<_>) =
            different.partition(|name| self.0.contains_key(*name) && here.0.contains_key(*name));
        let told = if both.is_empty() { one } else { both };
        let words = |configuration: &Self, name: &str| configuration.0.get(name).map_or_else(none, words);
        let of = |name: &String| Difference { name: name.clone(), there: words(self, name), here: words(here, name) };
        told.into_iter().map(of).collect()
    }
}

fn none() -> String {
    "none".to_owned()
}

/// Formats the value of a setting for a message.
fn words(value: &Value) -> String {
    match value {
        Value::Null => none(),
        Value::String(text) => text.clone(),
        Value::Array(values) if values.is_empty() => none(),
        Value::Array(values) => values.iter().map(words).collect::<Vec<_>>().join(" and "),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(settings: &[(&str, Value)]) -> Configuration {
        let mut all = Configuration::default();
        settings.iter().for_each(|(name, value)| all.set(*name, value.clone()));
        all
    }

    #[test]
    fn differences_are_named() {
        let there = configuration(&[("rule", "Sgd".into()), ("momentum", 0.9.into()), ("lr", 0.1.into())]);
        let here = configuration(&[("rule", "Adam".into()), ("betas", vec![0.9, 0.999].into()), ("lr", 0.1.into())]);
        let said = |there: &Configuration, here: &Configuration| {
            there.differences(here).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(said(&there, &here), ["rule Sgd in the checkpoint, Adam here"]);
        let more = configuration(&[
            ("rule", "Sgd".into()),
            ("momentum", 0.9.into()),
            ("lr", 0.1.into()),
            ("head", Value::Null),
        ]);
        let group =
            configuration(&[("rule", "Sgd".into()), ("momentum", 0.9.into()), ("lr", 0.1.into()), ("head", 2.into())]);
        assert_eq!(said(&more, &group), ["head none in the checkpoint, 2 here"]);
        assert_eq!(said(&there, &group), ["head none in the checkpoint, 2 here"]);
        assert_eq!(said(&there, &there), [""; 0]);
    }

    /// Includes numbers of f32 that are not equal to any f64, and values that are not numbers.
    #[test]
    fn what_is_read_is_what_was_written() {
        let mut all = configuration(&[
            ("a", 0.1.into()),
            ("b", (-3).into()),
            ("c", u64::MAX.into()),
            ("d", f64::MIN_POSITIVE.into()),
        ]);
        for (name, value) in [("e", 0.1), ("f", f32::MIN_POSITIVE), ("g", f32::INFINITY), ("h", 1e-8), ("i", 3e38)] {
            all.set_single(name, value);
        }
        let text = serde_json::to_string(&all).expect("JSON");
        assert!(text.contains("\"e\":0.1,"), "{text}");
        assert_eq!(serde_json::from_str::<Configuration>(&text).expect("the same"), all);
    }
}
