//! Data set for classification: training, validation and test set with class names.

use super::{Classification, Column, DataOptions, LoadNotes};

/// Data set with one class for each image or row of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Labelled {
    /// Name of the classification data set: the last part of the directory's path.
    pub name: String,
    /// Names of the classes; the id of a class is its position.
    pub classes: Vec<String>,
    /// Mean of all values in the training set.
    pub mean: f32,
    /// Standard deviation of all values in the training set.
    pub deviation: f32,
    /// Means and deviations of each channel, where these are known and not counted.
    pub channels: Option<[[f32; 3]; 2]>,
    /// Features of a data set of rows; empty for images.
    pub columns: Vec<Column>,
    /// Training set: images with one class label each.
    pub train: Classification,
    /// Validation set, if [`DataOptions::validation`] asks for one and the data have one.
    pub validation: Option<Classification>,
    /// Test set of images with labels, for the final evaluation.
    pub test: Classification,
    /// Notes about the loaded images or rows, which the program prints.
    pub notes: LoadNotes,
}

impl Labelled {
    /// Returns the data with crops, if [`DataOptions::crop`] is set.
    #[must_use]
    pub fn cropped(mut self, reading: &DataOptions) -> Self {
        if let Some(side) = reading.crop {
            let parts = [&mut self.train, &mut self.test].into_iter().chain(&mut self.validation);
            parts.for_each(|part| part.cropped(side.into()));
        }
        self
    }
}
