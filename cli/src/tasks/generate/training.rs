//! Training of a DCGAN: batches, both losses, and the distance between generated and real images.

use super::{
    frame::{Frame, coloured},
    frechet::Gaussian,
    gallery::Gallery,
    network::{LOSSES, Noise, network, optimizer, size},
};
use crate::{
    Failure,
    data::{Classification, Order, Sample},
    metrics::Metrics,
    tasks::{Classes, GeneratedImages, ImageInput, LossDivisor, On, Predictions, Settings, run, samples},
};
use gradscale::{
    Error, Gradients, Input, Parameters, Pass, Prefetched, TorchModule, Trainer, TrainerOptions, Var,
    gradscale_core::backend::Backend,
    models::{Dcgan, GanSize, Generator},
    nn::Module,
    optim::Optimizer,
};
use std::cell::OnceCell;

/// Number of generated images that a report shows.
pub const REPORT_SAMPLES: usize = 64;
/// Images that scores are of, at most: as many made as real ones.
const SCORED: usize = 2000;
/// Number of images that are generated at once.
const CHUNK: usize = 100;

/// Statistics of the real test images, with which generated images are compared.
#[derive(Debug)]
struct Real {
    count: usize,
    features: Gaussian,
    /// Fréchet distance of a constant image, the mean of the training images.
    constant: f64,
    /// Sum of the variances of all pixels.
    spread: f64,
}

#[derive(Debug)]
pub struct GenerateTraining<'a> {
    gallery: &'a Gallery,
    settings: Settings,
    net: Dcgan,
    size: GanSize,
    frame: Frame,
    order: Order,
    seed: u64,
    real: [OnceCell<Real>; 2],
}

impl<'a> GenerateTraining<'a> {
    pub fn new(gallery: &'a Gallery, settings: Settings, seed: u64) -> Result<(Self, Parameters, Optimizer), Failure> {
        let (image, size) = (gallery.image(), size(settings.network));
        let frame = Frame::new(image, size.side())?;
        let (parameters, net) = network(seed, settings.network, image[2]);
        let (order, optimizer) = (Order::new(gallery.data.train.count, seed), optimizer(&settings)?);
        Ok((Self { gallery, settings, net, size, frame, order, seed, real: Default::default() }, parameters, optimizer))
    }

    /// Returns a loss as a mean, or divided by another number of images.
    fn divided<'t>(&self, loss: Var<'t>) -> Var<'t> {
        match self.settings.pixels {
            LossDivisor::Batch => loss,
            #[expect(clippy::cast_possible_truncation, reason = "rounded")]
            LossDivisor::Fixed(_) => loss.scale((1.0 / self.settings.pixels.ratio(self.settings.batch)) as f32),
        }
    }

    /// Returns the statistics of the real images of a split, computed once.
    fn real(&self, on: On) -> Result<&Real, Failure> {
        let data = &self.gallery.data;
        let (place, part) = match (on, &data.validation) {
            (On::Validation, Some(validation)) => (0, validation),
            (On::Validation | On::Test, _) => (1, &data.test),
        };
        if self.real[place].get().is_none() {
            let real = self.looked_at(part)?;
            self.real[place].set(real).ok();
        }
        self.real[place].get().ok_or_else(|| Failure::at(on, "no images"))
    }

    fn looked_at(&self, part: &Classification) -> Result<Real, Failure> {
        let (gallery, image) = (self.gallery, self.frame.image);
        let collected = |part: &Classification| -> Result<Vec<u8>, Failure> {
            let mut bytes = Vec::new();
            for i in samples(part.count, SCORED) {
                bytes.extend_from_slice(&part.image(i)?);
            }
            Ok(bytes)
        };
        let (images, training) = (collected(part)?, collected(&gallery.data.train)?);
        let too_few = || Failure::at(&gallery.data.name, "one test image; the distance needs at least two");
        let features = Gaussian::fit(&gallery.features.extract(&images, image)?, gallery.features.count(image));
        let features = features.ok_or_else(too_few)?;
        let mean = gallery.features.extract(&mean(&training, image.iter().product()), image)?;
        let constant = features.distance_to_point(&mean);
        let count = images.len() / image.iter().product::<usize>().max(1);
        Ok(Real { count, features, constant, spread: spread(&images, image.iter().product()) })
    }

    /// Generates images in the data's format from this noise.
    fn make<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>, noise: &[f32]) -> Result<Vec<u8>, Failure> {
        make(trainer, &self.net.generator, &self.frame, noise, self.size.noise)
    }
}

/// Generates images from noise, with running statistics in batch norm.
pub fn make<B: Backend<Error: 'static>>(
    trainer: &mut Trainer<B>, net: &Generator, frame: &Frame, noise: &[f32], each: usize,
) -> Result<Vec<u8>, Failure> {
    let (mut images, square) = (Vec::new(), frame.side * frame.side * frame.image[2]);
    for part in noise.chunks(CHUNK * each) {
        let z = Input::f32([part.len() / each, 1, 1, each], part);
        let made = trainer.evaluate([z], |[z]| net.forward(z))?;
        images.extend(made.data.chunks_exact(square).flat_map(|square| frame.take(square)));
    }
    Ok(images)
}

/// Returns the mean of several images of `bytes` bytes each.
fn mean(images: &[u8], bytes: usize) -> Vec<u8> {
    let count = (images.len() / bytes.max(1)).max(1) as u64;
    let sum = |at: usize| images[at..].iter().step_by(bytes).map(|&value| u64::from(value)).sum::<u64>();
    (0..bytes).map(|at| u8::try_from((sum(at) + count / 2) / count).unwrap_or(u8::MAX)).collect()
}

/// Returns the sum of the variances of all values of images of `bytes` bytes each.
fn spread(images: &[u8], bytes: usize) -> f64 {
    let of = |at: usize| {
        let values = || images[at..].iter().step_by(bytes).map(|&value| f64::from(value));
        let count = values().count() as f64;
        let mean = values().sum::<f64>() / count;
        values().map(|value| (value - mean).powi(2)).sum::<f64>() / count
    };
    (0..bytes).map(of).sum()
}

/// Scales pixels from bytes to −1 … 1, as the networks read them.
fn pixels(x: Var<'_>) -> Var<'_> {
    x.affine(1.0 / 127.5, -1.0)
}

/// Two networks have no loss of a single sample.
impl run::SampleLosses for GenerateTraining<'_> {}

impl run::TrainingTask for GenerateTraining<'_> {
    type Batch = Prefetched<2>;

    /// Maps a layer to the module of a PyTorch file, which has the same name.
    fn module(&self, layer: &str) -> Option<TorchModule> {
        Some(TorchModule::named(layer))
    }

    /// Sets the trainer so that running statistics of the discriminator follow all three batches of an iteration, as
    /// PyTorch's do.
    fn begin<B: Backend>(&self, trainer: Trainer<B>) -> Trainer<B> {
        trainer.with_options(TrainerOptions::new().with_statistics_of_each_call())
    }

    fn prefetch<B: Backend<Error: 'static>>(&mut self, trainer: &mut Trainer<B>) -> Result<Prefetched<2>, Failure> {
        let (count, side, channels) = (self.settings.batch, self.frame.side, self.frame.image[2]);
        let chosen: Vec<Sample> = self.order.by_ref().take(count).collect();
        let mut images = Vec::with_capacity(count * side * side * channels);
        for image in self.gallery.data.train.batch(&chosen) {
            self.frame.place(&image?, &mut images);
        }
        let noise = Noise::Batch(self.order.position()).draw(self.seed, count, self.size.noise);
        let noise = Input::f32([count, 1, 1, self.size.noise], &noise);
        Ok(trainer.prefetch([Input::u8([count, side, side, channels], &images), noise])?)
    }

    /// Runs the discriminator's forward and backward pass.
    fn backward<B: Backend>(
        &self, trainer: &mut Trainer<B>, batch: Prefetched<2>,
    ) -> Result<Gradients, Error<B::Error>> {
        let net = &self.net;
        trainer.backward(Pass::new(batch).with_loss(LOSSES[0]), |[x, noise]| {
            self.divided(net.discriminator_loss(pixels(x), noise))
        })
    }

    fn losses(&self) -> &'static [&'static str] {
        &LOSSES
    }

    /// Runs the generator's forward and backward pass, with the discriminator's noise.
    fn second_network_backward<B: Backend>(
        &self, trainer: &mut Trainer<B>, position: u64,
    ) -> Option<Result<Gradients, Error<B::Error>>> {
        let (count, each) = (self.settings.batch, self.size.noise);
        let noise = Noise::Batch(position).draw(self.seed, count, each);
        let batch = [Input::f32([count, 1, 1, each], &noise)];
        Some(
            trainer.backward(Pass::new(batch).with_loss(LOSSES[1]), |[noise]| {
                self.divided(self.net.generator_loss(noise))
            }),
        )
    }

    fn ratio(&self) -> f64 {
        self.settings.pixels.ratio(self.settings.batch)
    }

    fn evaluate<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>, on: On) -> Result<Metrics, Failure> {
        let (gallery, image, real) = (self.gallery, self.frame.image, self.real(on)?);
        let made = self.make(trainer, &Noise::Scores.draw(self.seed, real.count, self.size.noise))?;
        let features = gallery.features.extract(&made, image)?;
        let features = Gaussian::fit(&features, gallery.features.count(image));
        let distance = features.map_or(f64::INFINITY, |features| features.distance(&real.features));
        let variety = spread(&made, image.iter().product()) / real.spread;
        Ok(Metrics::of_made(distance, real.constant, variety))
    }

    fn samples<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>) -> Result<Predictions, Failure> {
        let made = self.make(trainer, &Noise::Shown.draw(self.seed, REPORT_SAMPLES, self.size.noise))?;
        let [height, width, channels] = self.frame.image;
        Ok(Predictions::Made(GeneratedImages { size: [height, width], pixels: coloured(&made, channels) }))
    }

    fn supports_micro_batches(&self) -> bool {
        false
    }

    fn position(&self) -> u64 {
        self.order.position()
    }

    fn seek(&mut self, position: u64) {
        self.order = self.order.clone().at(position);
    }

    /// Returns the input format of the generated images, for networks that read them.
    fn classes(&self) -> Classes {
        Classes { input: Some(ImageInput::new(self.frame.image, [0.0, 1.0])), ..Classes::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_spreads() {
        let images = [0, 10, 4, 10, 2, 11];
        assert_eq!(mean(&images, 2), [2, 10]);
        assert!((spread(&images, 2) - (8.0 / 3.0 + 2.0 / 9.0)).abs() < 1e-12);
        assert_eq!(spread(&[7; 12], 4).to_bits(), 0.0f64.to_bits());
    }
}
