//! Baseline of an evaluation, and the test samples of a report.

use super::DetectedBox;

/// Baseline that a network must beat, and the number of samples on which its scores are based.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluationBaseline {
    /// Score of the best prediction that ignores its input.
    pub constant: f64,
    /// Number of independent answers: images that are right or wrong. `None` where pixels are counted.
    pub answers: Option<usize>,
}

impl EvaluationBaseline {
    /// Returns the share of the most frequent class.
    #[must_use]
    pub fn most_frequent(counts: &[usize]) -> f64 {
        let all = counts.iter().sum::<usize>().max(1) as f64;
        counts.iter().max().map_or(0.0, |&most| most as f64 / all)
    }
}

/// Test samples of a report, in the order of the predictions of [`super::TrainingRun::samples`].
#[derive(Debug)]
pub enum Samples {
    /// The task shows no samples in a report.
    Nothing,
    /// Images with a class for every pixel.
    Pixels {
        /// Number of rows and of columns of each segmented image.
        size: [usize; 2],
        /// Names and colours of the classes, without the ignored one.
        classes: Vec<(String, [u8; 3])>,
        /// Colour of each of the 256 label values.
        palette: Vec<[u8; 3]>,
        /// R G B of each image, and its labels, as far as they can be read.
        images: Vec<[Option<Vec<u8>>; 2]>,
    },
    /// Images with one true class each, for classification.
    Images {
        /// Number of rows and of columns of each classified image.
        size: [usize; 2],
        /// Names of the classes, by class id.
        names: Vec<String>,
        /// R G B of each image, as far as it can be read, and its class.
        images: Vec<(Option<Vec<u8>>, u32)>,
    },
    /// Source sentences, each with its reference translation.
    Sentences(Vec<[String; 2]>),
    /// Recordings, each with its name and its true transcript.
    Texts(Vec<[String; 2]>),
    /// Beginnings of texts, each with its true continuation.
    Continued(Vec<[String; 2]>),
    /// Real images, whose like a network generates.
    Made {
        /// Number of rows and of columns of each real image.
        size: [usize; 2],
        /// Values of the real images, R G B, one image after another.
        real: Vec<u8>,
    },
    /// Images with boxes around their objects, for detection.
    Boxes {
        /// Names of the object classes, by class id.
        names: Vec<String>,
        /// Test images with their true boxes.
        images: Vec<BoxedSample>,
    },
}

/// Test image with the true boxes of its objects.
#[derive(Debug)]
pub struct BoxedSample {
    /// File name of the test image.
    pub name: String,
    /// Number of rows and of columns of the image.
    pub size: [usize; 2],
    /// Values of the pixels, R G B, if the file can be read.
    pub pixels: Option<Vec<u8>>,
    /// True boxes and classes of the objects.
    pub truths: Vec<DetectedBox>,
}

/// Returns the indices of at most `most` test samples, spread over all.
pub fn samples(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let shown = count.min(most);
    (0..shown).map(move |i| (2 * i + 1) * count / (2 * shown))
}
