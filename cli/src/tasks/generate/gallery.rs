//! Images for a generator, and the features by which generated ones are compared with them.

use super::features::Features;
use crate::{
    Failure,
    data::{DataOptions, Labelled},
};
use std::path::Path;

/// Images, whose classes count for nothing, and how they are compared with made ones.
#[derive(Debug)]
pub struct Gallery {
    pub data: Labelled,
    pub features: Features,
}

impl Gallery {
    /// Loads a directory, or generates synthetic data.
    ///
    /// # Errors
    /// A directory without images; a file of [`DataOptions::features`] that is no classifier for them.
    pub fn load(path: Option<&Path>, reading: &DataOptions, seed: u64) -> Result<Self, Failure> {
        let images = DataOptions { without_classes: true, ..reading.clone() };
        let mut data = match path {
            Some(path) => Labelled::load(path, &images)?,
            None => Labelled::synthetic(seed).cropped(reading),
        };
        if !data.columns.is_empty() {
            return Err(Failure::at(&data.name, "has rows of numbers, but a generator needs images"));
        }
        data.validation = data.validation.filter(|_| reading.validation);
        let size = [data.train.height, data.train.width, data.train.channels];
        let features = Features::new(reading.features.as_deref(), size)?;
        data.notes.taken.push(format!("{}: {}", data.name, features.words(size)));
        Ok(Self { data, features })
    }

    /// Returns the rows, columns and channels of an image.
    pub const fn image(&self) -> [usize; 3] {
        [self.data.train.height, self.data.train.width, self.data.train.channels]
    }
}
