//! Segmentation data as a [`Dataset`].

use super::{
    REPORT_SAMPLES,
    training::{SegnetTraining, optimizer},
};
use crate::{
    Failure,
    data::{LoadNotes, Segmentation},
    tasks::{Dataset, EvaluationBaseline, Samples, Settings, TrainingConfig, TrainingRun, run, samples},
};
use gradscale::optim::Optimizer;

/// Number of label images that determine the most frequent class. More would be read from disk without changing it.
const SAMPLED_LABEL_IMAGES: usize = 500;

impl Dataset for Segmentation {
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

    fn counts(&self) -> [usize; 2] {
        [self.train.count, self.test.count]
    }

    fn validation_count(&self) -> Option<usize> {
        self.validation.as_ref().map(|part| part.count)
    }

    fn loss_of(&self) -> &'static str {
        "loss of a pixel"
    }

    fn optimizer(&self, settings: &Settings) -> Result<Optimizer, Failure> {
        optimizer(settings, self)
    }

    fn open<'a>(&'a self, opening: TrainingConfig<'a>) -> Result<Box<dyn TrainingRun + 'a>, Failure> {
        run::start(opening, |settings, seed| SegnetTraining::new(self, settings, seed))
    }

    /// Returns the score of always answering the same class: its share as intersection over union, 0 for the others.
    fn baseline(&self) -> EvaluationBaseline {
        let mut counts = [0usize; 256];
        // Unreadable images are reported elsewhere.
        let some = (0..self.test.count.min(SAMPLED_LABEL_IMAGES))
            .filter_map(|i| self.test.labels.get(i, self.test.pixels()).ok());
        for labels in some {
            let counting = labels.iter().filter(|label| Some(**label) != self.ignore);
            counting.for_each(|&label| counts[usize::from(label)] += 1);
        }
        let classes = counts.iter().filter(|&&count| count > 0).count().max(1);
        EvaluationBaseline { constant: EvaluationBaseline::most_frequent(&counts) / classes as f64, answers: None }
    }

    fn samples(&self) -> Samples {
        let (test, pixels) = (&self.test, self.test.pixels());
        // Labels without a class are black, whatever their number.
        let mut palette = vec![[0; 3]; 256];
        for (entry, colour) in palette.iter_mut().zip(&self.colours) {
            *entry = *colour;
        }
        if let Some(ignore) = self.ignore {
            palette[usize::from(ignore)] = [0; 3];
        }
        let named = self.classes.iter().zip(&self.colours).zip(0u8..);
        let named = named.filter(|(_, class)| self.ignore != Some(*class));
        let image = |image| {
            let part = |store: &crate::data::Store, len| store.get(image, len).ok().map(std::borrow::Cow::into_owned);
            [part(&test.images, 3 * pixels), part(&test.labels, pixels)]
        };
        Samples::Pixels {
            size: [test.height, test.width],
            classes: named.map(|((name, colour), _)| (name.clone(), *colour)).collect(),
            palette,
            images: samples(test.count, REPORT_SAMPLES).map(image).collect(),
        }
    }
}
