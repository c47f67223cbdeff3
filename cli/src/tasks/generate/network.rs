//! DCGAN with first values, noise for it, and its optimizer.

use crate::{
    Failure,
    data::Random,
    optimizer::{Moments, Recipe, Rule},
    tasks::{Network, Settings},
};
use gradscale::{
    Parameters,
    models::{Dcgan, GanSize},
    optim::Optimizer,
};

/// Names of both losses, the discriminator's first, in sites and curves.
pub const LOSSES: [&str; 2] = ["D", "G"];
/// Default learning rate of Adam (Radford et al. 2016, section 4).
pub const LR: f64 = 2e-4;
/// Default update rule, that of the paper: Adam with β₁ = ½.
pub const RULE: Rule = Rule::Adam(Moments { betas: [0.5, 0.999], eps: 1e-8 });

/// Noise that images are generated from, by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    /// Noise of the training batch that ends at this position in the data.
    Batch(u64),
    /// Noise of images for evaluation and for the report, the same throughout a training.
    Scores,
    Shown,
}

impl Noise {
    /// Draws standard normal noise for `images` images.
    pub fn draw(self, seed: u64, images: usize, each: usize) -> Vec<f32> {
        let mut random = match self {
            Self::Batch(position) => Random::from_key(&[seed, 20, position]),
            Self::Scores => Random::from_key(&[seed, 21]),
            Self::Shown => Random::from_key(&[seed, 22]),
        };
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        (0..images * each).map(|_| random.normal() as f32).collect()
    }
}

/// Returns the size of generator and discriminator.
pub const fn size(network: Network) -> GanSize {
    let Network { width, small, .. } = network;
    if small { GanSize::small(width) } else { GanSize { width, ..GanSize::PAPER } }
}

/// Creates both networks with parameters that `seed` initializes.
pub fn network(seed: u64, network: Network, channels: usize) -> (Parameters, Dcgan) {
    let mut parameters = Parameters::seeded(seed);
    let net = Dcgan::new(&mut parameters, channels, size(network));
    (parameters, net)
}

/// Returns an optimizer with one parameter group per network, so that each counts its own steps.
///
/// # Errors
/// See [`Recipe::optimizer`].
pub fn optimizer(settings: &Settings) -> Result<Optimizer, Failure> {
    let (recipe, ratio) = (&settings.recipe, settings.pixels.ratio(settings.batch));
    let Recipe { lr, rule, .. } = *recipe;
    let lr = if matches!(rule, Rule::Sgd { .. }) { lr * ratio } else { lr };
    let decay = recipe.decay(if rule.adds_decay() { ratio } else { 1.0 });
    let optimizer = recipe.optimizer(ratio)?;
    Ok(Dcgan::NAMES.into_iter().fold(optimizer, |optimizer, name| optimizer.group(name, lr, decay)))
}
