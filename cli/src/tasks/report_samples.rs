//! Baseline of an evaluation, and the test samples of a report.

use super::DetectedBox;

/// Baseline that a network must beat, and the sample count behind its scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluationBaseline {
    /// Score of the best constant answer.
    pub constant: f64,
    /// Number of independent answers: images that are right or wrong. `None` where pixels are counted.
    pub answers: Option<usize>,
}

impl EvaluationBaseline {
    /// The share of the most frequent class.
    #[must_use]
    pub fn most_frequent(counts: &[usize]) -> f64 {
        let all = counts.iter().sum::<usize>().max(1) as f64;
        counts.iter().max().map_or(0.0, |&most| most as f64 / all)
    }
}

/// Test samples of a report, in the order of what [`super::TrainingRun::samples`] predicts of them.
#[derive(Debug)]
pub enum Samples {
    /// There is nothing to look at.
    Nothing,
    /// Images with a class for every pixel.
    Pixels {
        /// Rows and columns.
        size: [usize; 2],
        /// Names and colours of the classes that count.
        classes: Vec<(String, [u8; 3])>,
        /// A colour for each of 256 labels.
        palette: Vec<[u8; 3]>,
        /// R G B of each image, and its labels, as far as they can be read.
        images: Vec<[Option<Vec<u8>>; 2]>,
    },
    /// Images with one class each.
    Images {
        /// Rows and columns.
        size: [usize; 2],
        /// Names of the classes.
        names: Vec<String>,
        /// R G B of each image, as far as it can be read, and its class.
        images: Vec<(Option<Vec<u8>>, u32)>,
    },
    /// Sentences, each with what it means in the other language.
    Sentences(Vec<[String; 2]>),
    /// Recordings, each with its name and what is said.
    Texts(Vec<[String; 2]>),
    /// Beginnings of texts, each with how it goes on.
    Continued(Vec<[String; 2]>),
    /// Real images, of which a network is to make the like.
    Made {
        /// Rows and columns.
        size: [usize; 2],
        /// R G B of one image after another.
        real: Vec<u8>,
    },
    /// Images with boxes.
    Boxes {
        /// Names of the classes.
        names: Vec<String>,
        /// The pictures.
        images: Vec<BoxedSample>,
    },
}

/// A picture with what is in it.
#[derive(Debug)]
pub struct BoxedSample {
    /// Name of the file.
    pub name: String,
    /// Rows and columns.
    pub size: [usize; 2],
    /// R G B, as far as they can be read.
    pub pixels: Option<Vec<u8>>,
    /// True boxes.
    pub truths: Vec<DetectedBox>,
}

/// Test images that a report shows: so many, spread over all.
pub fn samples(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let shown = count.min(most);
    (0..shown).map(move |i| (2 * i + 1) * count / (2 * shown))
}
