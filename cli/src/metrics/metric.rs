//! Scores and their names.

use serde::{Deserialize, Serialize};

/// Score of a network by its kind; its name in `snake_case` is its key in files. Tables have them in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Mean intersection over union (mIoU) of a segmentation.
    Miou,
    /// Share of images that the first of two towers classifies correctly.
    FirstTower,
    /// Share of images that the second of two towers classifies correctly.
    SecondTower,
    /// Mean average precision of boxes at an overlap of 0.5 over eleven recalls (PASCAL VOC 2007).
    Map,
    /// Mean average precision as an area (PASCAL VOC since 2010).
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
    /// Share of the bits of a unigram model that a language model saves.
    BitsSaved,
    /// Perplexity: the number of equally likely tokens that a language model's uncertainty corresponds to.
    Perplexity,
    /// Bits per character of a language model whose tokens are characters.
    BitsPerCharacter,
    /// 1 − Fréchet distance of generated images from real ones / that of a constant mean image.
    Nearness,
    /// Variance of made images' pixels, as a share of that of real ones.
    Variety,
    /// Fréchet distance of the features of made images from those of real ones.
    FrechetDistance,
    /// Share of all pixels, or of answers of two towers, that is correct.
    GlobalAccuracy,
    /// Share of recordings or sentences whose most likely text is correct.
    WholeTexts,
    /// Character error rate of the likeliest alignment.
    CerGreedy,
    /// BLEU of translations by greedy decoding, 0 to 100.
    BleuGreedy,
    /// Perplexity of reference translations per byte-pair piece.
    PiecePerplexity,
    /// Share of tokens to which a language model gave the highest probability.
    LikeliestToken,
    /// Perplexity of the best answer that is always the same: how often training has each token.
    Unigram,
    /// Mean over classes of the share that is correct.
    ClassAccuracy,
}

/// Text of a number that is not defined.
pub const MISSING_VALUE: &str = "–";

/// Role of a score in tables and verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Primary score, by which methods are compared.
    Judged,
    /// Secondary score, shown next to the primary ones.
    Beside,
    /// Detail, shown in tables after the columns about scaling.
    Detail,
}

/// Unit in which a score is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Fraction of 1, formatted in percent.
    Share,
    /// Number, formatted with the given count of decimals.
    Number(usize),
}

impl Metric {
    /// Returns name, role, unit and the value of a perfect result, or of people where no result is perfect.
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
            // 100 is out of reach: human translations of the same sentence agree to about 50.
            Self::Bleu => ("BLEU", Judged, Number(1), 50.0),
            Self::BitsSaved => ("bits saved", Judged, Share, 1.0),
            Self::Perplexity => ("perplexity", Beside, Number(2), 1.0),
            Self::BitsPerCharacter => ("bits per character", Beside, Number(3), 0.0),
            Self::Nearness => ("nearness", Judged, Share, 1.0),
            Self::Variety => ("variety", Beside, Share, 1.0),
            Self::FrechetDistance => ("Fréchet distance", Beside, Number(4), 0.0),
            Self::GlobalAccuracy => ("global accuracy", Detail, Share, 1.0),
            Self::WholeTexts => ("exact match", Detail, Share, 1.0),
            Self::CerGreedy => ("character errors (greedy)", Detail, Share, 0.0),
            Self::BleuGreedy => ("BLEU (greedy)", Detail, Number(1), 50.0),
            Self::PiecePerplexity => ("token perplexity", Detail, Number(2), 1.0),
            Self::LikeliestToken => ("token accuracy", Detail, Share, 1.0),
            Self::Unigram => ("unigram perplexity", Detail, Number(1), 1.0),
            Self::ClassAccuracy => ("class accuracy", Detail, Share, 1.0),
        }
    }

    /// Returns the name in tables and sentences.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns the score's role in tables and verdicts.
    #[must_use]
    pub const fn role(self) -> Role {
        self.row().1
    }

    /// Returns the unit in which the score is formatted.
    #[must_use]
    pub const fn unit(self) -> Unit {
        self.row().2
    }

    /// Returns the value of a perfect result, or of people where no result is perfect.
    #[must_use]
    pub const fn perfect(self) -> f64 {
        self.row().3
    }

    /// Returns the score's key in JSON files.
    #[must_use]
    pub fn key(self) -> String {
        serde_json::to_value(self).ok().and_then(|key| key.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Returns the head of the score's column in a table.
    #[must_use]
    pub fn head(self) -> String {
        match self.unit() {
            Unit::Share => format!("{} %", self.name()),
            Unit::Number(_) => self.name().to_owned(),
        }
    }

    /// Returns a value as tables write it, shares in percent.
    #[must_use]
    pub const fn shown(self, value: f64) -> f64 {
        match self.unit() {
            Unit::Share => 100.0 * value,
            Unit::Number(_) => value,
        }
    }

    /// Returns the number of decimals in tables.
    #[must_use]
    pub const fn digits(self) -> usize {
        match self.unit() {
            Unit::Share => 1,
            Unit::Number(digits) => digits,
        }
    }

    /// Formats a value of this score with its unit.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        match self.unit() {
            // A score without anything to count, as the precision of boxes that are all difficult.
            _ if value.is_nan() => MISSING_VALUE.to_owned(),
            Unit::Share => format!("{:.1} %", 100.0 * value),
            // A network that has diverged.
            Unit::Number(_) if value >= 1e6 => format!("{value:.1e}"),
            Unit::Number(digits) => format!("{value:.digits$}"),
        }
    }

    /// Formats a difference between two values of this score.
    #[must_use]
    pub fn difference(self, value: f64) -> String {
        match self.unit() {
            Unit::Share => format!("{:.1} points", 100.0 * value),
            Unit::Number(digits) => format!("{value:.digits$}"),
        }
    }
}
