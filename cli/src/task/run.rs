//! A training: a task's network and batches in the hands of a trainer.

use super::Classes;
use crate::{Failure, data::Element, metrics::Metrics};
use gradscale::{
    Attempt, Batch, Error, Gradients, MemoryReport, Method, Operands, Parameters, Prefetched, SiteReport, StepOutcome,
    TraceError, Trainer, Var,
    core::{backend::Backend, stats::Detail},
    nn::Module,
    optim::Optimizer,
};
use std::collections::BTreeMap;

/// What differs between tasks.
pub(super) trait Task {
    /// The network.
    fn net(&self) -> &impl Module;

    /// Takes the next batch, images and labels, and sends it ahead.
    ///
    /// # Errors
    /// Images on disk that can no longer be read, or the device's.
    fn prefetch<B: Backend<Error: 'static>>(&mut self, trainer: &mut Trainer<B>) -> Result<Prefetched<2>, Failure>;

    /// Forward and backward pass of a batch.
    fn backward<B: Backend>(
        &self, trainer: &mut Trainer<B>, batch: Prefetched<2>,
    ) -> Result<Gradients, Error<B::Error>>;

    /// By what the loss of a step is multiplied to be that of a pixel, or an image.
    fn ratio(&self) -> f64;

    /// Scores on the test images.
    fn evaluate<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>) -> Result<Metrics, Failure>;

    /// Test images that a report shows.
    ///
    /// # Errors
    /// Images on disk that can no longer be read.
    fn shown(&self) -> Result<Shown, Failure>;

    /// Images taken so far.
    fn position(&self) -> u64;

    /// Goes on after so many images.
    fn seek(&mut self, position: u64);

    /// What is predicted.
    fn classes(&self) -> Classes;
}

/// Images that a report shows.
#[derive(Debug)]
pub(super) struct Shown {
    /// [n, h, w, channels].
    pub size: [usize; 4],
    /// What their values are.
    pub element: Element,
    /// One after another.
    pub images: Vec<u8>,
}

/// One training, whatever its task and device.
pub trait Run {
    /// One step. The loss is that of a pixel, or of an image.
    ///
    /// # Errors
    /// Too many skips in a row, or the device's.
    fn step(&mut self) -> Result<StepOutcome, Failure>;

    /// Scores on the test images.
    ///
    /// # Errors
    /// The device's.
    fn evaluate(&mut self) -> Result<Metrics, Failure>;

    /// Classes predicted for the test images that a report shows.
    ///
    /// # Errors
    /// The device's.
    fn samples(&mut self) -> Result<Vec<u8>, Failure>;

    /// Everything that a training needs to go on, with metadata of the caller's.
    ///
    /// # Errors
    /// The device's.
    fn save(&self, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, Failure>;

    /// Goes on from what [`Run::save`] wrote.
    ///
    /// # Errors
    /// Bytes that are no checkpoint of this training.
    fn load(&mut self, bytes: &[u8]) -> Result<(), Failure>;

    /// What rows hold at least, from the next step on.
    fn observe(&mut self, detail: Detail);

    /// What is known of every cast site.
    fn sites(&self) -> Vec<SiteReport<'_>>;

    /// Keeps what the paper's rules would decide from, from the next step on.
    fn observe_operands(&mut self);

    /// What they would decide from, by site.
    fn operands(&self) -> Vec<(&str, &Operands)>;

    /// The attempts of the last step that were repeated, if operands are kept.
    fn attempts(&self) -> &[Attempt];

    /// Bytes on the device.
    fn memory(&self) -> MemoryReport;

    /// Parameters that are as they were before the first step; none while there was no step.
    ///
    /// # Errors
    /// The device's.
    fn unchanged(&self) -> Result<Vec<String>, Failure>;
}

#[derive(Debug)]
pub(super) struct Training<B: Backend, T> {
    task: T,
    trainer: Trainer<B>,
    /// The next step's batch.
    ahead: Option<Prefetched<2>>,
    /// Images that steps have had.
    position: u64,
    /// Checksums of the parameters before the first step, by name.
    first: BTreeMap<String, u32>,
    /// Whether there was one.
    stepped: bool,
}

impl<B: Backend<Error: 'static>, T: Task> Training<B, T> {
    pub fn new(
        device: B, task: T, parameters: Parameters, optimizer: Optimizer, method: Method,
    ) -> Result<Self, Failure> {
        let trainer = Trainer::new(device, parameters, optimizer, method)?;
        let first = checksums(&trainer)?;
        Ok(Self { task, trainer, ahead: None, position: 0, first, stepped: false })
    }
}

impl<B: Backend<Error: 'static>, T: Task> Run for Training<B, T> {
    fn step(&mut self) -> Result<StepOutcome, Failure> {
        let batch = match self.ahead.take() {
            Some(batch) => batch,
            None => self.task.prefetch(&mut self.trainer)?,
        };
        self.position = self.task.position();
        let gradients = self.task.backward(&mut self.trainer, batch)?;
        // While the device is at work.
        self.ahead = Some(self.task.prefetch(&mut self.trainer)?);
        let outcome = self.trainer.step(gradients)?;
        self.stepped = true;
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        let loss = (f64::from(outcome.loss) * self.task.ratio()) as f32;
        Ok(StepOutcome { loss, ..outcome })
    }

    fn evaluate(&mut self) -> Result<Metrics, Failure> {
        self.task.evaluate(&mut self.trainer)
    }

    fn samples(&mut self) -> Result<Vec<u8>, Failure> {
        let Shown { size, element, images } = self.task.shown()?;
        predict(&mut self.trainer, self.task.net(), (size, element), &images)
    }

    fn save(&self, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, Failure> {
        let mut metadata = metadata.clone();
        metadata.insert("position".to_owned(), self.position.to_string());
        let classes = serde_json::to_string(&self.task.classes());
        metadata.insert("classes".to_owned(), classes.map_err(|error| Failure::at("checkpoint", error))?);
        Ok(self.trainer.save(&metadata)?)
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let metadata = self.trainer.load(bytes)?;
        let position = metadata.get("position").and_then(|position| position.parse().ok());
        self.position = position.ok_or_else(|| Failure::at("checkpoint", "no position in the data"))?;
        self.task.seek(self.position);
        self.ahead = None;
        (self.first, self.stepped) = (checksums(&self.trainer)?, false);
        Ok(())
    }

    fn observe(&mut self, detail: Detail) {
        self.trainer.set_detail(detail);
    }

    fn sites(&self) -> Vec<SiteReport<'_>> {
        self.trainer.sites().collect()
    }

    fn observe_operands(&mut self) {
        self.trainer.observe_operands();
    }

    fn operands(&self) -> Vec<(&str, &Operands)> {
        self.trainer.operands().collect()
    }

    fn attempts(&self) -> &[Attempt] {
        self.trainer.attempts()
    }

    fn memory(&self) -> MemoryReport {
        self.trainer.memory()
    }

    fn unchanged(&self) -> Result<Vec<String>, Failure> {
        if !self.stepped {
            return Ok(Vec::new());
        }
        let now = checksums(&self.trainer)?;
        let same = now.into_iter().filter(|(name, sum)| self.first.get(name) == Some(sum));
        Ok(same.map(|(name, _)| name).collect())
    }
}

/// Of all parameters, by name.
fn checksums<B: Backend<Error: 'static>>(trainer: &Trainer<B>) -> Result<BTreeMap<String, u32>, Failure> {
    let sum = |values: &[f32]| values.iter().fold(0, |sum, value| crc32c::crc32c_append(sum, &value.to_le_bytes()));
    Ok(trainer.parameters()?.into_iter().map(|(name, tensor)| (name, sum(&tensor.data))).collect())
}

/// The likeliest class of every pixel, or image; images are [n, h, w, channels].
pub(super) fn predict<B: Backend<Error: 'static>>(
    trainer: &mut Trainer<B>, net: &impl Module, (size, element): ([usize; 4], Element), images: &[u8],
) -> Result<Vec<u8>, Failure> {
    let values = match element {
        Element::Byte => Vec::new(),
        Element::Number => numbers(images),
    };
    let batch = match element {
        Element::Byte => Batch::u8(size, images),
        Element::Number => Batch::f32(size, &values),
    };
    best(trainer, net, batch)
}

/// The same of a batch of any type.
pub(super) fn best<B: Backend<Error: 'static>>(
    trainer: &mut Trainer<B>, net: &impl Module, images: Batch<'_>,
) -> Result<Vec<u8>, Failure> {
    let best =
        trainer.evaluate([images], |[x]: [Var<'_>; 1]| -> Result<Var<'_>, TraceError> { net.forward(x)?.argmax() })?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "classes are bytes")]
    Ok(best.data.into_iter().map(|class| class as u8).collect())
}

/// Numbers from their bytes.
pub(super) fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}
