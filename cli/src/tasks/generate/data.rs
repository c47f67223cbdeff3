//! Generator data as a [`Dataset`].

use super::{
    frame::coloured,
    gallery::Gallery,
    network::optimizer,
    training::{GenerateTraining, REPORT_SAMPLES},
};
use crate::{
    Failure,
    data::LoadNotes,
    tasks::{Dataset, EvaluationBaseline, Samples, Settings, TrainingConfig, TrainingRun, run, samples},
};
use gradscale::optim::Optimizer;

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
