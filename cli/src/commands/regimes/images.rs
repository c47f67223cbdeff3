//! Labelled images in memory as f32 values.

use crate::{
    Failure,
    data::{Classification, Element, Labelled},
    tasks::samples,
};

/// Maximum number of training and test images; more would not help networks so small.
const MAX_IMAGES: [usize; 2] = [10_000, 1000];

/// Training and test images for regimes, with values around 0.
#[derive(Debug)]
pub struct Images {
    pub name: String,
    train: Vec<f32>,
    pub labels: Vec<u32>,
    pub test: Vec<f32>,
    pub test_labels: Vec<u32>,
    /// Number of values of one image: pixels times channels.
    pub values: usize,
    pub classes: usize,
}

impl Images {
    /// Reads the images of a data set, or an evenly spaced subset of a large one.
    ///
    /// # Errors
    /// Images on disk that can no longer be read.
    pub fn read(data: &Labelled) -> Result<Self, Failure> {
        let read_part = |part: &Classification, most: usize| -> Result<(Vec<f32>, Vec<u32>), Failure> {
            let (mut values, mut labels) = (Vec::new(), Vec::new());
            for index in samples(part.count, most) {
                let image = part.image(index)?;
                let about_0 = |value: f32| (value - data.mean) / data.deviation;
                match part.element {
                    Element::Byte => values.extend(image.iter().copied().map(f32::from).map(about_0)),
                    Element::Number => {
                        values.extend(image.as_chunks().0.iter().map(|bytes| about_0(f32::from_le_bytes(*bytes))));
                    }
                }
                labels.push(part.labels[index]);
            }
            Ok((values, labels))
        };
        let (train, labels) = read_part(&data.train, MAX_IMAGES[0])?;
        let (test, test_labels) = read_part(&data.test, MAX_IMAGES[1])?;
        let values = data.train.height * data.train.width * data.train.channels;
        Ok(Self { name: data.name.clone(), train, labels, test, test_labels, values, classes: data.classes.len() })
    }

    /// Returns the values of a training image.
    pub fn image(&self, index: usize) -> &[f32] {
        &self.train[index * self.values..(index + 1) * self.values]
    }
}
