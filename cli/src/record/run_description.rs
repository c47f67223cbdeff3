//! Description of a run: network, data and settings.

use crate::{
    machine::Origin,
    setup::Setup,
    tasks::{Dataset, LossDivisor},
};
use serde::Serialize;

/// Description of the data set and of the run, for reports.
#[derive(Debug, Serialize)]
pub struct Description {
    pub name: String,
    pub height: usize,
    pub width: usize,
    pub training_images: usize,
    pub test_images: usize,
    pub classes: Vec<String>,
}

impl Description {
    pub fn from_dataset(data: &dyn Dataset) -> Self {
        let ([height, width], [training_images, test_images]) = (data.size(), data.counts());
        let (name, classes) = (data.name().to_owned(), data.classes().to_vec());
        Self { name, height, width, training_images, test_images, classes }
    }

    /// Returns network and data in one line.
    pub fn title(&self, setup: &Setup) -> String {
        let (name, height, columns) = (&self.name, self.height, self.width);
        // Sentences have a length alone.
        let size = if columns == 1 { String::new() } else { format!(" ({height}×{columns})") };
        format!("{} on {name}{size}", setup.words())
    }

    /// Describes the length of a run in steps and in passes over the training data, for example
    /// `400 steps of 8 images = 20 epochs of 160 training images`.
    pub fn passes(&self, setup: &Setup, iters: u64) -> String {
        let (count, examples) = (self.training_images, setup.task().kind().sample_noun());
        format!(
            "{iters} steps of {} {examples} = {} of {count} training {examples}",
            setup.batch(),
            self.epochs(setup, iters)
        )
    }

    /// Formats the number of passes over the training data, for example `0.5 epochs`.
    fn epochs(&self, setup: &Setup, iters: u64) -> String {
        let epochs = iters as f64 * setup.batch() as f64 / self.training_images.max(1) as f64;
        match epochs {
            epochs if epochs >= 9.95 => format!("{epochs:.0} epochs"),
            epochs if epochs >= 0.095 => {
                format!("{epochs:.1} epochs").replace(".0 ", " ").replace("1 epochs", "1 epoch")
            }
            epochs => format!("{epochs:.3} epochs"),
        }
    }

    /// Describes how the run was made: settings, seeds, program and machine.
    pub fn circumstances(
        &self, setup: &Setup, pixels: LossDivisor, iters: u64, seeds: &[u64], origin: &Origin,
    ) -> String {
        let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
        let amp = setup.amp.words().map_or(String::new(), |words| format!("{words} "));
        let updated = setup.updated(iters).map_or(String::new(), |words| format!("{words} "));
        let examples = setup.task().kind().sample_noun();
        format!(
            "{iters} steps of {} {examples} ({}), {} training and {} test {examples}, seed {}. {} {updated}{amp}gradscale {} ({}) on {}.",
            setup.batch(),
            self.epochs(setup, iters),
            self.training_images,
            self.test_images,
            seeds.join(", "),
            setup.divisor(pixels, self.height * self.width),
            origin.version,
            origin.commit,
            origin.machine,
        )
    }
}
