//! Scores of what a network answers: which there are, what each is called, and the scores of one evaluation.

pub use gradscale::metrics::{AveragePrecision, Bleu, Confusion, ErrorRate, Perplexity, TopK};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A kind of score; its name in `snake_case` is its key in files. Tables have them in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Mean intersection over union of pixels.
    Miou,
    /// Of two towers, the share of images that the first tells right.
    FirstTower,
    /// The same of the second.
    SecondTower,
    /// Of boxes, the mean average precision at an overlap of 0.5 over eleven recalls (PASCAL VOC 2007).
    Map,
    /// The same as an area (PASCAL VOC since 2010).
    MapArea,
    /// Share of images whose class is the likeliest.
    #[serde(rename = "top_1")]
    Top1,
    /// Share of images whose class is among the five likeliest; only where there are more classes than that.
    #[serde(rename = "top_5")]
    Top5,
    /// Character error rate of the likeliest text.
    Cer,
    /// BLEU of translations by beam search, 0 to 100.
    Bleu,
    /// Of text, the share of the bits by how often each token is that a network saves.
    BitsSaved,
    /// Between how many tokens it wavers.
    Perplexity,
    /// Bits that a character takes, where tokens are characters.
    BitsPerCharacter,
    /// Of made images, 1 − their Fréchet distance from real ones / that of always the mean image.
    Nearness,
    /// Variance of made images' pixels, as a share of that of real ones.
    Variety,
    /// Fréchet distance of the features of made images from those of real ones.
    FrechetDistance,
    /// Share of all pixels, or answers of two towers, that is right.
    GlobalAccuracy,
    /// Share of recordings or sentences whose likeliest text is right.
    WholeTexts,
    /// Character error rate of the likeliest alignment.
    CerGreedy,
    /// BLEU of the likeliest words one by one.
    BleuGreedy,
    /// Of translations, between how many pieces of words a network wavers.
    PiecePerplexity,
    /// Share of tokens that were the likeliest.
    LikeliestToken,
    /// Perplexity of the best answer that is always the same: how often training has each token.
    Unigram,
    /// Mean over classes of the share that is right.
    ClassAccuracy,
}

/// What a score is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Methods are judged by it.
    Judged,
    /// It stands beside those.
    Beside,
    /// It is a detail, which tables have after what scaling did.
    Detail,
}

/// How a score is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A share, in percent.
    Share,
    /// A number, with so many digits behind its point.
    Number(usize),
}

impl Metric {
    /// What it is called in tables and sentences, what it is for, how it is written, and its value where all is right.
    const fn row(self) -> (&'static str, Role, Unit, f64) {
        use {
            Role::*,
            Unit::{Number, Share},
        };
        match self {
            Self::Miou => ("mIoU", Judged, Share, 1.0),
            Self::FirstTower => ("first tower", Judged, Share, 1.0),
            Self::SecondTower => ("second tower", Judged, Share, 1.0),
            Self::Map => ("mAP", Judged, Share, 1.0),
            Self::MapArea => ("mAP (area)", Beside, Share, 1.0),
            Self::Top1 => ("top-1", Judged, Share, 1.0),
            Self::Top5 => ("top-5", Beside, Share, 1.0),
            Self::Cer => ("character errors", Judged, Share, 0.0),
            Self::Bleu => ("BLEU", Judged, Number(1), 100.0),
            Self::BitsSaved => ("bits saved", Judged, Share, 1.0),
            Self::Perplexity => ("perplexity", Beside, Number(2), 1.0),
            Self::BitsPerCharacter => ("bits per character", Beside, Number(3), 0.0),
            Self::Nearness => ("nearness", Judged, Share, 1.0),
            Self::Variety => ("variety", Beside, Share, 1.0),
            Self::FrechetDistance => ("Fréchet distance", Beside, Number(4), 0.0),
            Self::GlobalAccuracy => ("global accuracy", Detail, Share, 1.0),
            Self::WholeTexts => ("all right", Detail, Share, 1.0),
            Self::CerGreedy => ("character errors (greedy)", Detail, Share, 0.0),
            Self::BleuGreedy => ("BLEU (greedy)", Detail, Number(1), 100.0),
            Self::PiecePerplexity => ("perplexity of pieces", Detail, Number(2), 1.0),
            Self::LikeliestToken => ("likeliest token right", Detail, Share, 1.0),
            Self::Unigram => ("perplexity of how often tokens are", Detail, Number(1), 1.0),
            Self::ClassAccuracy => ("class accuracy", Detail, Share, 1.0),
        }
    }

    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// What it is for.
    #[must_use]
    pub const fn role(self) -> Role {
        self.row().1
    }

    /// How it is written.
    #[must_use]
    pub const fn unit(self) -> Unit {
        self.row().2
    }

    /// Its value where all is right.
    #[must_use]
    pub const fn perfect(self) -> f64 {
        self.row().3
    }

    /// Its name in files.
    #[must_use]
    pub fn key(self) -> String {
        serde_json::to_value(self).ok().and_then(|key| key.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Head of a column of a table.
    #[must_use]
    pub fn head(self) -> String {
        match self.unit() {
            Unit::Share => format!("{} %", self.name()),
            Unit::Number(_) => self.name().to_owned(),
        }
    }

    /// The value as a table writes it.
    #[must_use]
    pub const fn shown(self, value: f64) -> f64 {
        match self.unit() {
            Unit::Share => 100.0 * value,
            Unit::Number(_) => value,
        }
    }

    /// Digits behind the point of what a table writes.
    #[must_use]
    pub const fn digits(self) -> usize {
        match self.unit() {
            Unit::Share => 1,
            Unit::Number(digits) => digits,
        }
    }

    /// The value with its unit.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        match self.unit() {
            Unit::Share => format!("{:.1} %", 100.0 * value),
            // A network that has diverged.
            Unit::Number(_) if value >= 1e6 => format!("{value:.1e}"),
            Unit::Number(digits) => format!("{value:.digits$}"),
        }
    }

    /// A difference of two values.
    #[must_use]
    pub fn difference(self, value: f64) -> String {
        match self.unit() {
            Unit::Share => format!("{:.1} points", 100.0 * value),
            Unit::Number(digits) => format!("{value:.digits$}"),
        }
    }
}

/// The scores of one evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Saved")]
pub struct Metrics {
    #[serde(flatten)]
    values: BTreeMap<Metric, f64>,
    /// The class that was predicted everywhere, if there was no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<u32>,
    /// Whether all texts were the same.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub same: bool,
    /// Of boxes, the area of each class; none of a class that is nowhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class_map: Vec<Option<f64>>,
    /// Of boxes, how many were found, whatever they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<u64>,
}

impl Metrics {
    /// These scores.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = (Metric, f64)>) -> Self {
        Self { values: values.into_iter().collect(), ..Self::default() }
    }

    /// One more.
    #[must_use]
    pub fn with(mut self, metric: Metric, value: f64) -> Self {
        self.values.insert(metric, value);
        self
    }

    /// With the class that was predicted everywhere, if there was no other.
    #[must_use]
    pub fn always(mut self, only: Option<u32>) -> Self {
        self.only = only;
        self
    }

    /// Of images with one class each.
    #[must_use]
    pub fn of_images(confusion: &Confusion) -> Self {
        let values = [(Metric::Top1, confusion.global_accuracy()), (Metric::ClassAccuracy, confusion.class_accuracy())];
        Self::new(values).always(only(confusion))
    }

    /// Of images that two towers tell. If either of them takes all for one class, that is said of both.
    #[must_use]
    pub fn of_towers(first: &Confusion, second: &Confusion) -> Self {
        let towers = [(Metric::FirstTower, first.global_accuracy()), (Metric::SecondTower, second.global_accuracy())];
        Self::new(towers).always(only(first).or_else(|| only(second)))
    }

    /// Of texts, by the likeliest alignment and the likeliest text, of which such a share is all right.
    #[must_use]
    pub fn of_texts([greedy, beam]: [ErrorRate; 2], right: f64) -> Self {
        Self::new([(Metric::Cer, beam.share()), (Metric::WholeTexts, right), (Metric::CerGreedy, greedy.share())])
    }

    /// Of translations by both decoders, of which such a share is right word for word.
    #[must_use]
    pub fn of_translations([greedy, beam]: [Bleu; 2], perplexity: f64, right: f64) -> Self {
        Self::new([
            (Metric::Bleu, beam.score()),
            (Metric::WholeTexts, right),
            (Metric::BleuGreedy, greedy.score()),
            (Metric::PiecePerplexity, perplexity),
        ])
    }

    /// Of tokens, perhaps characters, beside the perplexity of how often each is; such a share of the likeliest is right.
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

    /// Of boxes. `only`: the class of all that were found, from 0, where there is more than one to find.
    #[must_use]
    pub fn of_boxes(precision: &AveragePrecision, only: Option<u32>) -> Self {
        let [eleven, area] = [precision.mean_eleven(), precision.mean_area()].map(|mean| mean.unwrap_or(f64::NAN));
        let found = Some(precision.detections() as u64);
        let means = Self::new([(Metric::Map, eleven), (Metric::MapArea, area)]);
        Self { class_map: precision.area(), found, ..means.always(only) }
    }

    /// Of made images: their distance from real ones, that of always the mean image, and how much they vary.
    #[must_use]
    pub fn of_made(distance: f64, constant: f64, variety: f64) -> Self {
        let nearness = 1.0 - distance / constant;
        Self::new([(Metric::Nearness, nearness), (Metric::Variety, variety), (Metric::FrechetDistance, distance)])
    }

    /// Whether all texts were the same.
    #[must_use]
    pub fn all_the_same(mut self, same: bool) -> Self {
        self.same = same;
        self
    }

    /// Of pixels.
    #[must_use]
    pub fn of_pixels(confusion: &Confusion) -> Self {
        let accuracies = [
            (Metric::GlobalAccuracy, confusion.global_accuracy()),
            (Metric::ClassAccuracy, confusion.class_accuracy()),
        ];
        Self::new(accuracies).with(Metric::Miou, confusion.miou()).always(only(confusion))
    }

    /// A score, if it was taken.
    #[must_use]
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.values.get(&metric).copied()
    }

    /// All that were taken, in the order of tables.
    pub fn iter(&self) -> impl Iterator<Item = (Metric, f64)> {
        self.values.iter().map(|(&metric, &value)| (metric, value))
    }

    /// Those that say most.
    pub fn first(&self) -> impl Iterator<Item = (Metric, f64)> {
        self.iter().filter(|(metric, _)| metric.role() != Role::Detail)
    }

    /// Those that methods are judged by.
    pub fn judged(&self) -> impl Iterator<Item = (Metric, f64)> {
        self.iter().filter(|(metric, _)| metric.role() == Role::Judged)
    }

    /// Some of them in words.
    #[must_use]
    pub fn words(values: impl Iterator<Item = (Metric, f64)>) -> String {
        let words: Vec<String> =
            values.map(|(metric, value)| format!("{} {}", metric.name(), metric.text(value))).collect();
        words.join(", ")
    }
}

/// Scores as files have them, those that earlier versions wrote too.
#[derive(Deserialize)]
struct Saved {
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

impl From<Saved> for Metrics {
    fn from(Saved { only, same, class_map, found, values: saved }: Saved) -> Self {
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

/// A number that JSON may have none for: `null` is read as NaN.
pub(crate) fn or_nan<'de, D: Deserializer<'de>, T: Deserialize<'de> + From<f32>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_else(|| f32::NAN.into()))
}

/// The class that was predicted everywhere, if there was no other.
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
        let lost = read(&serde_json::to_string(&Metrics::new([(Metric::Miou, f64::NAN)])).unwrap());
        assert!(lost.get(Metric::Miou).is_some_and(f64::is_nan) && lost.iter().count() == 1);
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
