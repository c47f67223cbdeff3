//! `bad-sample`: one of thousands of training images is damaged and recurs in every epoch.
//!
//! The loss of its batch is not finite in f32 either, so every method leaves that batch out. A dynamic loss scale also
//! halves: one bit in every epoch, which an epoch of fewer clean steps than its growth interval never gives back. The
//! network is an ordinary one with ordinary numbers (SGD with momentum, batch 128, 60 epochs), and nothing is tuned.

use super::{
    data::Data,
    images::Images,
    learn::{Begun, Conditions, Failed, Learn},
    network::right,
};
use crate::data::{Order, Random};
use gradscale::{
    Cpu, Gradients, Input, Parameters, Trainer,
    models::Mlp,
    nn::Module,
    optim::{Optimizer, Schedule, Sgd},
};

/// Number of images in a batch of the classifier regimes.
pub const BATCH: usize = 128;
const HIDDEN: usize = 32;

/// Damage that one training image has in a regime of bad samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Damage of every pixel: NaN, as after 0/0 in an augmentation.
    Nan,
    /// Damage of one pixel: infinite, as after a division by a range of 0.
    Infinite,
    /// Damage of the whole file: corrupt, with values of random bits.
    Corrupt,
}

impl Damage {
    /// Returns a damaged copy of the image.
    fn apply_to(self, image: &[f32]) -> Vec<f32> {
        let mut random = Random::from_key(&[17]);
        let mut image = image.to_vec();
        match self {
            Self::Nan => image.fill(f32::NAN),
            Self::Infinite => image.iter_mut().take(1).for_each(|x| *x = f32::INFINITY),
            #[expect(clippy::cast_possible_truncation, reason = "half of the bits")]
            Self::Corrupt => image.iter_mut().for_each(|x| *x = f32::from_bits(random.word() as u32)),
        }
        image
    }
}

struct Classifier<'a> {
    images: &'a Images,
    net: Mlp,
    order: Order,
    batch: usize,
    damaged: (usize, Vec<f32>),
    /// True if the last batch contained the damaged image.
    met: bool,
}

/// Creates the classifier for a regime of bad samples, before its first step.
pub fn open(damage: Damage, data: &Data, seed: u64, steps: u64) -> Begun<'_> {
    let images = &data.images;
    let mut parameters = Parameters::seeded(seed);
    let net = Mlp::new(&mut parameters.at("net"), &[images.values, HIDDEN, HIDDEN, images.classes]);
    let index = Random::from_key(&[seed, 18]).below(images.labels.len());
    let damaged = (index, damage.apply_to(images.image(index)));
    let (order, batch) = (Order::new(images.labels.len(), seed), BATCH.min(images.labels.len()));
    let learner = Box::new(Classifier { images, net, order, batch, damaged, met: false });
    let sgd = Sgd { momentum: 0.9, weight_decay: 5e-4, ..Sgd::new(0.02) };
    Begun { learner, parameters, optimizer: Optimizer::from(sgd).schedule(Schedule::Cosine { steps }) }
}

impl Learn for Classifier<'_> {
    fn backward(&mut self, trainer: &mut Trainer<Cpu>, _: u64, _: &Conditions) -> Result<Gradients, Failed> {
        let (mut x, mut labels) = (Vec::new(), Vec::new());
        self.met = false;
        for sample in self.order.by_ref().take(self.batch) {
            let damaged = sample.index == self.damaged.0;
            self.met |= damaged;
            x.extend_from_slice(if damaged { &self.damaged.1 } else { self.images.image(sample.index) });
            labels.push(self.images.labels[sample.index]);
        }
        let batch = [Input::f32([self.batch, self.images.values], &x), Input::u32([self.batch], &labels)];
        trainer.backward(batch, |[x, labels]| self.net.forward(x).cross_entropy(labels))
    }

    fn score(&mut self, trainer: &mut Trainer<Cpu>) -> Result<f64, Failed> {
        right(self.images, trainer, |x| self.net.forward(x))
    }

    fn is_finite(&self, _: &Conditions) -> bool {
        !self.met
    }
}
