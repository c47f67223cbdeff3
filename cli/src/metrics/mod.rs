//! Scores of a network's predictions.

mod metric;
mod saved;

pub use gradscale::metrics::{AveragePrecision, Bleu, Confusion, ErrorRate, Perplexity, TopK};
pub use metric::{MISSING_VALUE, Metric, Role, Unit};
use saved::SavedScores;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Scores of one evaluation of a network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "SavedScores")]
pub struct Metrics {
    #[serde(flatten)]
    values: BTreeMap<Metric, f64>,
    /// Class that was predicted for everything, if there was no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<u32>,
    /// True if the predicted texts were all equal.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub same: bool,
    /// Average precision of each class of boxes; `None` for a class without boxes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class_map: Vec<Option<f64>>,
    /// Number of detected boxes of any class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<u64>,
}

impl Metrics {
    /// Creates scores from pairs of metric and value. ±∞ is stored as NaN, because JSON has one `null` for both: scores
    /// that are read from a file equal those that were written.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = (Metric, f64)>) -> Self {
        values.into_iter().fold(Self::default(), |all, (metric, value)| all.with(metric, value))
    }

    /// Adds a metric with its value to the scores; ±∞ is stored as NaN.
    #[must_use]
    pub fn with(mut self, metric: Metric, value: f64) -> Self {
        self.values.insert(metric, if value.is_finite() { value } else { f64::NAN });
        self
    }

    /// Sets the class that was predicted everywhere, if there was only one.
    #[must_use]
    pub fn always(mut self, only: Option<u32>) -> Self {
        self.only = only;
        self
    }

    /// Computes the scores of an image classifier from its confusion matrix.
    #[must_use]
    pub fn of_images(confusion: &Confusion) -> Self {
        let values = [(Metric::Top1, confusion.global_accuracy()), (Metric::ClassAccuracy, confusion.class_accuracy())];
        Self::new(values).always(only(confusion))
    }

    /// Computes the scores of two towers. A single predicted class of either is reported for both.
    #[must_use]
    pub fn of_towers(first: &Confusion, second: &Confusion) -> Self {
        let towers = [(Metric::FirstTower, first.global_accuracy()), (Metric::SecondTower, second.global_accuracy())];
        Self::new(towers).always(only(first).or_else(|| only(second)))
    }

    /// Computes the scores of transcripts by greedy and by beam decoding; `right` is the share of exact matches.
    #[must_use]
    pub fn of_texts([greedy, beam]: [ErrorRate; 2], right: f64) -> Self {
        Self::new([(Metric::Cer, beam.share()), (Metric::WholeTexts, right), (Metric::CerGreedy, greedy.share())])
    }

    /// Computes the scores of translations by both decoders; `right` is the share of exact matches.
    #[must_use]
    pub fn of_translations([greedy, beam]: [Bleu; 2], perplexity: f64, right: f64) -> Self {
        Self::new([
            (Metric::Bleu, beam.score()),
            (Metric::WholeTexts, right),
            (Metric::BleuGreedy, greedy.score()),
            (Metric::PiecePerplexity, perplexity),
        ])
    }

    /// Computes the scores of a language model against a unigram model; `right` is the token accuracy.
    #[must_use]
    pub fn of_tokens(perplexity: &Perplexity, unigram: f64, characters: bool, right: f64) -> Self {
        let (value, bits) = (perplexity.value(), characters.then(|| (Metric::BitsPerCharacter, perplexity.bits())));
        let all = [
            (Metric::BitsSaved, 1.0 - value.ln() / unigram.ln()),
            (Metric::Perplexity, value),
            (Metric::LikeliestToken, right),
            (Metric::Unigram, unigram),
        ];
        Self::new(all.into_iter().chain(bits))
    }

    /// Computes the scores of a detector. `only` is the class of all detections, if the data have more than one class.
    #[must_use]
    pub fn of_boxes(precision: &AveragePrecision, only: Option<u32>) -> Self {
        let [eleven, area] = [precision.mean_eleven(), precision.mean_area()].map(|mean| mean.unwrap_or(f64::NAN));
        let found = Some(precision.detections() as u64);
        let means = Self::new([(Metric::Map, eleven), (Metric::MapArea, area)]);
        Self { class_map: precision.area(), found, ..means.always(only) }
    }

    /// Computes the scores of a generator: distance from real images, that of a constant mean image, and variety.
    #[must_use]
    pub fn of_made(distance: f64, constant: f64, variety: f64) -> Self {
        let nearness = 1.0 - distance / constant;
        Self::new([(Metric::Nearness, nearness), (Metric::Variety, variety), (Metric::FrechetDistance, distance)])
    }

    /// Sets whether all predicted texts were equal.
    #[must_use]
    pub fn all_the_same(mut self, same: bool) -> Self {
        self.same = same;
        self
    }

    /// Computes the scores of a segmentation from its confusion matrix.
    #[must_use]
    pub fn of_pixels(confusion: &Confusion) -> Self {
        let accuracies = [
            (Metric::GlobalAccuracy, confusion.global_accuracy()),
            (Metric::ClassAccuracy, confusion.class_accuracy()),
        ];
        Self::new(accuracies).with(Metric::Miou, confusion.miou()).always(only(confusion))
    }

    /// Returns the value of a score, if the evaluation has it.
    #[must_use]
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.values.get(&metric).copied()
    }

    /// Returns all scores in the order of table columns.
    pub fn iter(&self) -> impl Iterator<Item = (Metric, f64)> {
        self.values.iter().map(|(&metric, &value)| (metric, value))
    }

    /// Returns the primary and secondary scores, without details.
    pub fn first(&self) -> impl Iterator<Item = (Metric, f64)> {
        self.iter().filter(|(metric, _)| metric.role() != Role::Detail)
    }

    /// Returns the primary scores, by which methods are judged.
    pub fn judged(&self) -> impl Iterator<Item = (Metric, f64)> {
        self.iter().filter(|(metric, _)| metric.role() == Role::Judged)
    }

    /// Formats scores as text, separated by commas.
    #[must_use]
    pub fn words(values: impl Iterator<Item = (Metric, f64)>) -> String {
        let words: Vec<String> =
            values.map(|(metric, value)| format!("{} {}", metric.name(), metric.text(value))).collect();
        words.join(", ")
    }
}

/// Deserializes a number; `null`, which JSON has for NaN, becomes NaN.
pub(crate) fn or_nan<'de, D: Deserializer<'de>, T: Deserialize<'de> + From<f32>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_else(|| f32::NAN.into()))
}

/// Deserializes a list of numbers in which `null` becomes NaN.
pub(crate) fn each_or_nan<'de, D: Deserializer<'de>, T: Deserialize<'de> + From<f32>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let numbers = Vec::<Option<T>>::deserialize(deserializer)?;
    Ok(numbers.into_iter().map(|number| number.unwrap_or_else(|| f32::NAN.into())).collect())
}

/// Returns the class that was predicted for everything, if there was no other.
fn only(confusion: &Confusion) -> Option<u32> {
    confusion.only().and_then(|class| u32::try_from(class).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_class_everywhere() {
        let mut confusion = Confusion::new(3);
        assert_eq!(Metrics::of_pixels(&confusion).only, None);
        confusion.add(&[0u8, 1, 2, 9], &[2u8, 2, 2, 0], Some(9)).unwrap();
        assert_eq!(Metrics::of_pixels(&confusion).only, Some(2));
        confusion.add(&[0u8], &[1u8], None).unwrap();
        assert_eq!(Metrics::of_pixels(&confusion).only, None);
    }

    fn read(text: &str) -> Metrics {
        serde_json::from_str(text).expect("scores")
    }

    #[test]
    fn files_keep_them() {
        let scores = Metrics::new([(Metric::Top1, 0.25), (Metric::Top5, 0.5)]).always(Some(3));
        let text = serde_json::to_string(&scores).unwrap();
        assert_eq!(text, r#"{"top_1":0.25,"top_5":0.5,"only":3}"#);
        assert_eq!(read(&text), scores);
        // A language model that has diverged saves -∞ bits.
        for value in [f64::NAN, f64::NEG_INFINITY, f64::INFINITY] {
            let scores = Metrics::default().with(Metric::BitsSaved, value);
            let read = read(&serde_json::to_string(&scores).unwrap());
            for scores in [scores, read] {
                assert!(scores.get(Metric::BitsSaved).is_some_and(f64::is_nan) && scores.iter().count() == 1);
            }
        }
    }

    #[test]
    fn files_of_earlier_versions() {
        let images = read(r#"{"class_accuracy": 0.5, "global_accuracy": 0.75, "top_5": 1.0}"#);
        assert_eq!(images, Metrics::new([(Metric::Top1, 0.75), (Metric::Top5, 1.0), (Metric::ClassAccuracy, 0.5)]));
        let pixels = read(r#"{"miou": 0.25, "class_accuracy": 0.5, "global_accuracy": 0.75}"#);
        let expected = [(Metric::Miou, 0.25), (Metric::ClassAccuracy, 0.5), (Metric::GlobalAccuracy, 0.75)];
        assert_eq!(pixels, Metrics::new(expected));
        let towers = read(r#"{"class_accuracy": null, "global_accuracy": 0.75, "towers": [0.5, 1.0]}"#);
        assert_eq!((towers.get(Metric::FirstTower), towers.get(Metric::SecondTower)), (Some(0.5), Some(1.0)));
        let texts = read(r#"{"class_accuracy": 0.5, "global_accuracy": 0.5, "cer": [0.25, 0.125]}"#);
        assert_eq!((texts.get(Metric::CerGreedy), texts.get(Metric::Cer)), (Some(0.25), Some(0.125)));
    }
}
