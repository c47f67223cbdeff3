//! Scores in files.

use super::{Metric, Metrics, Role};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Scores as read from files, including those of earlier versions.
#[derive(Deserialize)]
pub(super) struct SavedScores {
    #[serde(default)]
    only: Option<u32>,
    #[serde(default)]
    same: bool,
    #[serde(default)]
    class_map: Vec<Option<f64>>,
    #[serde(default)]
    found: Option<u64>,
    #[serde(flatten)]
    values: BTreeMap<String, Value>,
}

impl From<SavedScores> for Metrics {
    fn from(SavedScores { only, same, class_map, found, values: saved }: SavedScores) -> Self {
        // JSON has no NaN: it is written as null.
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let mut values = BTreeMap::new();
        for (key, value) in &saved {
            if let Ok(metric) = Metric::deserialize(Value::from(key.as_str())) {
                values.insert(metric, number(value));
            }
        }
        // Once the share of images that are right was called as that of pixels, and both towers, both decoders had a key.
        for (key, metrics) in
            [("towers", [Metric::FirstTower, Metric::SecondTower]), ("cer", [Metric::CerGreedy, Metric::Cer])]
        {
            if let Some(Value::Array(pair)) = saved.get(key) {
                values.extend(metrics.into_iter().zip(pair.iter().map(number)));
            }
        }
        let judged = |metric: &Metric| metric.role() == Role::Judged;
        let global = values.get(&Metric::GlobalAccuracy).copied();
        if let (Some(right), false) = (global, values.keys().any(judged)) {
            values.remove(&Metric::GlobalAccuracy);
            values.insert(Metric::Top1, right);
        }
        Self { values, only, same, class_map, found }
    }
}
