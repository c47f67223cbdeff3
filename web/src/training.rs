//! Training whose steps are requested one by one.

use crate::{
    digits::{self, PEN, PIXELS},
    message::{Answer, BINS, FIRST_BIN_EXPONENT, Report, Request, Site},
    speed,
};
use gradscale::{
    Input, InputType, Method, Observation, Parameters, Program, ProgramKind, SiteReport, Trainer, TrainerOptions,
    data::Random,
    gradscale_core::{backend::Backend, stats::Detail},
    models::Mlp,
    nn::Module,
    optim::Sgd,
};
use std::{collections::HashMap, num::NonZeroU64};

/// Number of digits in the batch of a training step.
const BATCH: usize = 64;

/// Number of digits in the test set, and their random key, which no training step uses.
const TEST: (usize, u64) = (500, u64::MAX);

/// Learning rate for a loss of magnitude 1.
const RATE: f64 = 0.2;

/// Number of units in each layer of the network: pixels, two hidden layers, classes.
const SIZES: [usize; 4] = [PIXELS, 96, 64, 10];

/// Maximum exponent of the loss factor. f32 itself overflows beyond it.
const MAX_LOSS_EXPONENT: i32 = 60;

/// Error of a training, described in one line.
type Failure = Box<dyn std::error::Error>;

/// Training of a small network on digits on one device.
#[derive(Debug)]
pub struct Training<B: Backend> {
    trainer: Trainer<B>,
    net: Mlp,
    seed: u64,
    magnitude: i32,
    /// Compiled training step for each magnitude of the loss.
    programs: HashMap<i32, Program<2>>,
    answer: Program<1>,
    step: u64,
    skipped: u64,
    repeated: u64,
    /// Number of digits in an epoch of which one is broken.
    epoch: Option<NonZeroU64>,
    /// Number of batches with the broken image so far.
    broken: u64,
    /// Mean loss over the intact batches of the last report that had any.
    loss: Option<f64>,
    /// Statistics of the last step with an intact batch.
    sites: Vec<Site>,
}

impl<B: Backend> Training<B>
where
    gradscale::Error<B::Error>: std::error::Error + 'static,
    B::Error: std::error::Error + 'static,
{
    /// Starts a training of a new network with the given method.
    ///
    /// # Errors
    /// No method of that name, a magnitude outside f32's range, or the device's.
    pub fn open(device: B, method: &str, seed: u64, magnitude: i32) -> Result<Self, Failure> {
        let method: Method = method.parse()?;
        let mut parameters = Parameters::seeded(seed);
        let net = Mlp::new(&mut parameters.at("net"), &SIZES);
        // No skip limit, because the page shows how a method skips step after step.
        let mut trainer = Trainer::new(device, parameters, Sgd::new(RATE), method)?
            .with_options(TrainerOptions::new().with_skip_limit(0));
        // Every step collects histograms, which the page draws.
        trainer.observe(Observation::Rows(Detail::Full));
        let answer =
            trainer.compile(ProgramKind::Evaluation, [InputType::f32([1, PIXELS])], |[x]| net.forward(x).softmax())?;
        let mut training = Self {
            trainer,
            net,
            seed,
            magnitude,
            programs: HashMap::new(),
            answer,
            step: 0,
            skipped: 0,
            repeated: 0,
            epoch: None,
            broken: 0,
            loss: None,
            sites: Vec::new(),
        };
        training.set_magnitude(magnitude)?;
        Ok(training)
    }

    /// Breaks one digit in each epoch of that many: its pixels are NaN.
    #[must_use]
    pub fn with_broken_image(mut self, epoch: Option<NonZeroU64>) -> Self {
        self.epoch = epoch;
        self
    }

    /// Returns the name of the device on which the training runs.
    #[must_use]
    pub fn device(&self) -> String {
        self.trainer.device().caps().name.to_owned()
    }

    /// Carries out a request of the page and returns the answer.
    ///
    /// # Errors
    /// An invalid request, or the device's.
    pub async fn answer(&mut self, request: Request) -> Result<Answer, Failure> {
        match request {
            Request::Open { .. } => Err("a training is open already; call open() to start another".into()),
            Request::Steps { count } => self.steps(count).await.map(Answer::Steps),
            Request::Magnitude { magnitude } => {
                self.set_magnitude(magnitude)?;
                Ok(Answer::Ready { device: self.device() })
            }
            Request::Score => self.score().await.map(|right| Answer::Score { right }),
            Request::Multiply { size, count } => {
                speed::multiply(self.trainer.device(), size, count).await?;
                Ok(Answer::Multiplied)
            }
            Request::Classify { strokes } => {
                let image = digits::image(&strokes, PEN);
                let batch = [Input::f32([1, PIXELS], &image)];
                let shares = self.trainer.non_blocking().evaluate_compiled(&self.answer, batch).await?.data;
                Ok(Answer::Class { shares, image: image.to_vec() })
            }
            Request::Write { digit, .. } if digit > 9 => Err(format!("{digit} is no digit: choose 0 to 9").into()),
            Request::Write { digit, key } => {
                Ok(Answer::Strokes { strokes: digits::written(digit, &mut Random::from_key(&[key])) })
            }
            Request::Digits { count } => {
                let (images, labels) = digits::batch((count as usize).min(1000), self.seed);
                Ok(Answer::Digits { images, labels })
            }
        }
    }

    /// Sets the magnitude of the loss, and divides the learning rate by it. In exact arithmetic the training does not
    /// change.
    fn set_magnitude(&mut self, magnitude: i32) -> Result<(), Failure> {
        if magnitude.abs() > MAX_LOSS_EXPONENT {
            return Err(format!(
                "a loss times 2^{magnitude} is out of range: choose 2^-{MAX_LOSS_EXPONENT} to 2^{MAX_LOSS_EXPONENT}"
            )
            .into());
        }
        if !self.programs.contains_key(&magnitude) {
            let (net, factor) = (&self.net, 2f32.powi(magnitude));
            let kinds = [InputType::f32([BATCH, PIXELS]), InputType::u8([BATCH])];
            let step = self
                .trainer
                .compile(ProgramKind::Training, kinds, |[x, labels]| net.forward(x).cross_entropy(labels) * factor)?;
            self.programs.insert(magnitude, step);
        }
        self.trainer.set_lr(None, RATE * 2f64.powi(-magnitude))?;
        self.magnitude = magnitude;
        Ok(())
    }

    /// Makes all pixels of the broken image NaN if the batch of the current step contains it. Returns true if so.
    fn break_image(&self, images: &mut [f32]) -> bool {
        let Some(epoch) = self.epoch else { return false };
        let batch = BATCH as u64;
        let first = self.step.saturating_mul(batch);
        let mut found = false;
        // A batch can reach into a second epoch, or contain several.
        for number in first / epoch..=(first + batch - 1) / epoch {
            // Random, as after a shuffle. The third word keeps this stream apart from those of the digits.
            let place = Random::from_key(&[self.seed, number, u64::MAX]).word() % epoch;
            let index = (number * epoch.get() + place).checked_sub(first).and_then(|index| usize::try_from(index).ok());
            if let Some(image) = index.and_then(|index| images.chunks_mut(PIXELS).nth(index)) {
                // As a broken decoder leaves an image, or 0/0 in an augmentation.
                image.fill(f32::NAN);
                found = true;
            }
        }
        found
    }

    async fn steps(&mut self, count: u32) -> Result<Report, Failure> {
        let (mut sum, mut intact, mut note) = (0.0, 0u32, None);
        for _ in 0..count {
            let (mut images, labels) = digits::batch(BATCH, self.seed.wrapping_add(self.step));
            let broken = self.break_image(&mut images);
            let batch = [Input::f32([BATCH, PIXELS], &images), Input::u8([BATCH], &labels)];
            let gradients =
                self.trainer.non_blocking().backward_compiled(&self.programs[&self.magnitude], batch).await?;
            let outcome = self.trainer.non_blocking().step(gradients).await?;
            self.step += 1;
            self.skipped += u64::from(outcome.skipped.is_some());
            self.repeated += u64::from(!outcome.repeated.is_empty());
            if broken {
                // Its loss and its gradients are NaN, whatever the method.
                self.broken += 1;
            } else {
                sum += f64::from(outcome.loss) * 2f64.powi(-self.magnitude);
                intact += 1;
                self.sites = self.trainer.sites().map(|site| seen(&site)).collect();
            }
            note = outcome.skipped.map(|why| why.to_string()).or(outcome.repeated.first().map(ToString::to_string));
        }
        if intact > 0 {
            self.loss = Some(sum / f64::from(intact)).filter(|loss| loss.is_finite());
        }
        Ok(Report {
            step: self.step,
            loss: self.loss,
            loss_scale: self.trainer.loss_scale(),
            broken: self.broken,
            skipped: self.skipped,
            repeated: self.repeated,
            note,
            sites: self.sites.clone(),
        })
    }

    async fn score(&mut self) -> Result<f64, Failure> {
        let (count, key) = TEST;
        let (images, labels) = digits::batch(count, key);
        let net = &self.net;
        let batch = [Input::f32([count, PIXELS], &images)];
        let best = self.trainer.non_blocking().evaluate_integers(batch, |[x]| net.forward(x).argmax()).await?.data;
        let right = best.iter().zip(&labels).filter(|(best, label)| **best == u32::from(**label)).count();
        Ok(right as f64 / count as f64)
    }
}

/// Returns a site's statistics in the form that the page draws.
fn seen(site: &SiteReport<'_>) -> Site {
    let mut stored = vec![0u32; BINS];
    for (key, &count) in (-127..).zip(site.row.bins().into_iter().flatten()) {
        let bin = usize::try_from(key - FIRST_BIN_EXPONENT).unwrap_or(0).min(BINS - 1);
        stored[bin] = stored[bin].saturating_add(count);
    }
    let (flushed, zeros) = (site.gamma_measured, site.row.counts().zeros);
    Site { name: site.name.to_owned(), scale: site.row.exponent(), flushed, zeros, stored }
}
