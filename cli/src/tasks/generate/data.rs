//! Generator data as a [`Dataset`].

use super::{
    features::Features,
    frame::coloured,
    network::optimizer,
    training::{GenerateTraining, REPORT_SAMPLES},
};
use crate::{
    Failure,
    data::{DataOptions, Labelled, LoadNotes},
    tasks::{Dataset, EvaluationBaseline, Samples, Settings, TrainingConfig, TrainingRun, run, samples},
};
use gradscale::optim::Optimizer;
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
            return Err(Failure::at(&data.name, "rows of numbers, and a generator makes images"));
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

impl Dataset for Gallery {
    fn name(&self) -> &str {
        &self.data.name
    }

    fn notes(&self) -> &LoadNotes {
        &self.data.notes
    }

    fn classes(&self) -> &[String] {
        &self.data.classes
    }

    fn size(&self) -> [usize; 2] {
        [self.data.train.height, self.data.train.width]
    }

    fn counts(&self) -> [usize; 2] {
        [self.data.train.count, self.data.test.count]
    }

    fn validation_count(&self) -> Option<usize> {
        self.data.validation.as_ref().map(|part| part.count)
    }

    fn loss_of(&self) -> &'static str {
        "loss of an image"
    }

    fn optimizer(&self, settings: &Settings) -> Result<Optimizer, Failure> {
        optimizer(settings)
    }

    fn open<'a>(&'a self, opening: TrainingConfig<'a>) -> Result<Box<dyn TrainingRun + 'a>, Failure> {
        run::start(opening, |settings, seed| GenerateTraining::new(self, settings, seed))
    }

    /// Returns a baseline of 0: the mean image is as far from the real ones as where the score's nearness begins.
    fn baseline(&self) -> EvaluationBaseline {
        EvaluationBaseline { constant: 0.0, answers: None }
    }

    fn samples(&self) -> Samples {
        let (test, [height, width, channels]) = (&self.data.test, self.image());
        let image = |image| test.image(image).ok().map(|bytes| coloured(&bytes, channels));
        Samples::Made {
            size: [height, width],
            real: samples(test.count, REPORT_SAMPLES).filter_map(image).flatten().collect(),
        }
    }
}
