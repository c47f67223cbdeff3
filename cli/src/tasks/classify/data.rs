//! Classification data as a [`Dataset`].

use super::{
    REPORT_SAMPLES,
    training::{ClassifyTraining, optimizer},
};
use crate::{
    Failure,
    data::{Labelled, LoadNotes},
    tasks::{
        ClassifyNet, Dataset, EvaluationBaseline, Net, Samples, Settings, TrainingConfig, TrainingRun, run, samples,
    },
};
use gradscale::optim::Optimizer;

impl Dataset for Labelled {
    fn name(&self) -> &str {
        &self.name
    }

    fn notes(&self) -> &LoadNotes {
        &self.notes
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn size(&self) -> [usize; 2] {
        [self.train.height, self.train.width]
    }

    fn channels(&self) -> usize {
        self.train.channels
    }

    fn counts(&self) -> [usize; 2] {
        [self.train.count, self.test.count]
    }

    fn validation_count(&self) -> Option<usize> {
        self.validation.as_ref().map(|part| part.count)
    }

    fn loss_of(&self) -> &'static str {
        "loss of an image"
    }

    /// Checks that the network can read the data: rows of numbers are not for networks for images.
    fn check_network(&self, net: Net) -> Result<(), Failure> {
        match net.classifier() {
            Some(ClassifyNet::Mlp | ClassifyNet::Towers) => return Ok(()),
            Some(ClassifyNet::Resnet | ClassifyNet::Vision(_)) | None if self.columns.is_empty() => return Ok(()),
            Some(ClassifyNet::Resnet | ClassifyNet::Vision(_)) | None => {}
        }
        let cause = format!("{} has rows of numbers; train them with --network mlp, not {net}", self.name);
        Err(Failure::at("--network", cause))
    }

    fn optimizer(&self, settings: &Settings) -> Result<Optimizer, Failure> {
        optimizer(settings)
    }

    fn open<'a>(&'a self, opening: TrainingConfig<'a>) -> Result<Box<dyn TrainingRun + 'a>, Failure> {
        run::start(opening, |settings, seed| ClassifyTraining::new(self, settings, seed))
    }

    fn baseline(&self) -> EvaluationBaseline {
        let mut counts = vec![0usize; self.classes.len()];
        self.test.labels.iter().for_each(|&label| counts[label as usize] += 1);
        EvaluationBaseline { constant: EvaluationBaseline::most_frequent(&counts), answers: Some(self.test.count) }
    }

    /// Returns samples of the test images; rows of numbers have none.
    fn samples(&self) -> Samples {
        if !self.columns.is_empty() {
            return Samples::Nothing;
        }
        let test = &self.test;
        let image = |image| {
            let pixels = test.image(image).ok().map(|values| match test.channels {
                3 => values.into_owned(),
                channels => values.chunks_exact(channels.max(1)).flat_map(|pixel| [pixel[0]; 3]).collect(),
            });
            (pixels, test.labels[image])
        };
        Samples::Images {
            size: [test.height, test.width],
            names: self.classes.clone(),
            images: samples(test.count, REPORT_SAMPLES).map(image).collect(),
        }
    }
}
