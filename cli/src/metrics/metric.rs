//! Which scores there are, and what each is called.

use serde::{Deserialize, Serialize};

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
    /// What it is called in tables and sentences, what it is for, how it is written, and its value where all is right, or as right as people are.
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
            // 100 is nobody's: people who translate the same sentence agree about as far.
            Self::Bleu => ("BLEU", Judged, Number(1), 50.0),
            Self::BitsSaved => ("bits saved", Judged, Share, 1.0),
            Self::Perplexity => ("perplexity", Beside, Number(2), 1.0),
            Self::BitsPerCharacter => ("bits per character", Beside, Number(3), 0.0),
            Self::Nearness => ("nearness", Judged, Share, 1.0),
            Self::Variety => ("variety", Beside, Share, 1.0),
            Self::FrechetDistance => ("Fréchet distance", Beside, Number(4), 0.0),
            Self::GlobalAccuracy => ("global accuracy", Detail, Share, 1.0),
            Self::WholeTexts => ("all right", Detail, Share, 1.0),
            Self::CerGreedy => ("character errors (greedy)", Detail, Share, 0.0),
            Self::BleuGreedy => ("BLEU (greedy)", Detail, Number(1), 50.0),
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

    /// Its value where all is right, or as right as people are.
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
