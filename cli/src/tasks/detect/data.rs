//! Detection data as a [`Dataset`].

use super::{REPORT_SAMPLES, multibox::Multibox, proposing::Proposing, training::DetectTraining};
use crate::{
    Failure,
    data::{Boxed, LoadNotes, Pictured},
    tasks::{
        BoxedSample, Dataset, DetectedBox, EvaluationBaseline, Net, Samples, Settings, TrainingConfig, TrainingRun,
        run, samples,
    },
};
use gradscale::optim::Optimizer;

/// Maximum number of columns of a picture in a report.
const COLUMNS: usize = 256;

impl Dataset for Boxed {
    fn name(&self) -> &str {
        &self.name
    }

    fn notes(&self) -> &LoadNotes {
        &self.notes
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Returns the size of the first training image.
    fn size(&self) -> [usize; 2] {
        self.train.first().and_then(|one| one.whole().ok()).map_or([0; 2], |whole| whole.size)
    }

    fn counts(&self) -> [usize; 2] {
        [self.train.len(), self.test.len()]
    }

    fn validation_count(&self) -> Option<usize> {
        self.validation.as_ref().map(Vec::len)
    }

    fn loss_of(&self) -> &'static str {
        "loss of a box"
    }

    fn optimizer(&self, settings: &Settings) -> Result<Optimizer, Failure> {
        settings.recipe.optimizer(settings.pixels.ratio(settings.batch))
    }

    fn open<'a>(&'a self, opening: TrainingConfig<'a>) -> Result<Box<dyn TrainingRun + 'a>, Failure> {
        if opening.settings.network.net == Net::FasterRcnn {
            return run::start(opening, |settings, seed| DetectTraining::<Proposing>::new(self, settings, seed));
        }
        run::start(opening, |settings, seed| DetectTraining::<Multibox>::new(self, settings, seed))
    }

    /// Returns the baseline of a detector that finds nothing: a score of 0.
    fn baseline(&self) -> EvaluationBaseline {
        EvaluationBaseline { constant: 0.0, answers: None }
    }

    fn samples(&self) -> Samples {
        let one = |picture: &Pictured| {
            let truth = |truth: &gradscale::metrics::Truth| DetectedBox {
                class: u32::try_from(truth.class - 1).unwrap_or(u32::MAX),
                score: 1.0,
                corners: truth.corners,
            };
            let whole = picture.whole().ok();
            let size = whole.as_ref().map_or([0; 2], |whole| {
                let [rows, columns] = whole.size;
                let shown = columns.min(COLUMNS);
                [(rows * shown).div_ceil(columns.max(1)).max(1), shown]
            });
            BoxedSample {
                name: picture.name.clone(),
                size,
                pixels: whole.map(|whole| whole.resized_to(size)),
                truths: picture.truths.iter().map(truth).collect(),
            }
        };
        let images = samples(self.test.len(), REPORT_SAMPLES).map(|i| one(&self.test[i])).collect();
        Samples::Boxes { names: self.classes.clone(), images }
    }
}
