//! DCGAN (Radford et al. 2016), as in PyTorch's examples.

use crate::{
    Init, Scope, Var,
    nn::{BatchNorm, Conv2d, ConvTranspose2d, Module},
};

/// Height and width of the smallest feature maps, in pixels.
const MIN_SIDE: usize = 4;
/// Kernel height and width of all convolutions of both networks.
const KERNEL: usize = 4;
/// Slope of the discriminator's leaky ReLU for negative values.
const SLOPE: f32 = 0.2;
/// Initialisation of the weights of convolutions and the scales of normalisations.
const WEIGHTS: Init = Init::Normal { mean: 0.0, std: 0.02 };
const SCALES: Init = Init::Normal { mean: 1.0, std: 0.02 };

/// Sizes of the two networks of a GAN.
///
/// ```
/// use gradscale::models::GanSize;
/// assert_eq!(GanSize::PAPER.side(), 64);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GanSize {
    /// Number of random values from which the generator computes an image.
    pub noise: usize,
    /// Number of channels of the layer next to the images, in both networks. It doubles with every further layer.
    pub width: usize,
    /// Number of doublings of the images' side, starting from 4 pixels.
    pub levels: u32,
}

impl GanSize {
    /// Sizes of the paper's networks and of PyTorch's example: images of 64 × 64.
    pub const PAPER: Self = Self { noise: 100, width: 64, levels: 4 };

    /// Returns the sizes for images of 32 × 32, with one level fewer.
    #[must_use]
    pub const fn small(width: usize) -> Self {
        Self { width, levels: 3, ..Self::PAPER }
    }

    /// Returns the height and width of the generated images in pixels.
    #[must_use]
    pub const fn side(self) -> usize {
        MIN_SIDE << self.levels
    }

    /// Returns the number of channels of the layer in which images are halved `halved` times.
    const fn channels(self, halved: u32) -> usize {
        self.width << (halved - 1)
    }
}

/// Generator from noise `[n, 1, 1, noise]` to images `[n, side, side, channels]` in −1 … 1. Layers have the names of
/// PyTorch's example, `main.0` and so on.
#[derive(Clone, Debug)]
pub struct Generator {
    name: String,
    /// Transposed convolutions of the generator with their indices; the last has no normalisation.
    layers: Vec<(usize, ConvTranspose2d, Option<BatchNorm>)>,
}

impl Generator {
    /// Creates the generator for images of `channels` channels. Weights are initialised as in the paper: normal with
    /// standard deviation 0.02, around 1 for the scales of normalisations.
    pub fn new(scope: &mut Scope<'_>, channels: usize, size: GanSize) -> Self {
        let mut layers = Vec::new();
        let mut from = size.noise;
        for level in 0..=size.levels {
            let (place, last) = (3 * level as usize, level == size.levels);
            let to = if last { channels } else { size.channels(size.levels - level) };
            let mut at = scope.at(&format!("main.{place}"));
            let conv = ConvTranspose2d::with_init(&mut at, from, to, KERNEL, WEIGHTS);
            let conv = if level == 0 { conv } else { conv.stride(2).pad(1) };
            let norm = (!last).then(|| BatchNorm::with_init(&mut scope.at(&format!("main.{}", place + 1)), to, SCALES));
            layers.push((place, conv, norm));
            from = to;
        }
        Self { name: scope.path().to_owned(), layers }
    }
}

impl Module for Generator {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.layers.iter().fold(x, |x, (place, conv, norm)| {
            let x = conv.forward(x);
            let named = |x: Var<'t>, place: usize| x.named(&format!("{}.main.{place}", self.name));
            match norm {
                Some(norm) => named(norm.forward(x).relu(), place + 2),
                None => named(x.tanh(), place + 1),
            }
        })
    }
}

/// Discriminator from images `[n, side, side, channels]` to one logit per image, `[n, 1, 1, 1]`, which is positive for
/// images that it classifies as real. Layers have the names of PyTorch's example.
#[derive(Clone, Debug)]
pub struct Discriminator {
    name: String,
    /// Convolutions of the discriminator with their indices; the first has no normalisation.
    layers: Vec<(usize, Conv2d, Option<BatchNorm>)>,
    last: Conv2d,
}

impl Discriminator {
    /// Creates the discriminator, with weights initialised as in [`Generator::new`].
    pub fn new(scope: &mut Scope<'_>, channels: usize, size: GanSize) -> Self {
        let mut layers = Vec::new();
        let mut from = channels;
        for level in 0..size.levels {
            let (place, to) = ((3 * level as usize).saturating_sub(1), size.channels(level + 1));
            let mut at = scope.at(&format!("main.{place}"));
            let conv = Conv2d::with_init(&mut at, from, to, KERNEL, WEIGHTS).stride(2).pad([1; 2]);
            let norm =
                (level > 0).then(|| BatchNorm::with_init(&mut scope.at(&format!("main.{}", place + 1)), to, SCALES));
            layers.push((place, conv, norm));
            from = to;
        }
        let place = 3 * size.levels as usize - 1;
        let last = Conv2d::with_init(&mut scope.at(&format!("main.{place}")), from, 1, KERNEL, WEIGHTS).pad([0; 2]);
        Self { name: scope.path().to_owned(), layers, last }
    }
}

impl Module for Discriminator {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let x = self.layers.iter().fold(x, |x, (place, conv, norm)| {
            let x = conv.forward(x);
            let (x, place) = norm.as_ref().map_or((x, place + 1), |norm| (norm.forward(x), place + 2));
            x.leaky_relu(SLOPE).named(&format!("{}.main.{place}", self.name))
        });
        self.last.forward(x)
    }
}

/// Generator and discriminator with their losses. They are trained alternately, each by its own step. Both are
/// parameters of one trainer, in separate groups of its optimizer ([`crate::optim::Optimizer::group`]) with separate
/// step counts.
///
/// ```
/// use gradscale::{Cpu, Input, Method, Parameters, Pass, Trainer, TrainerOptions, models::{Dcgan, GanSize}, optim::{Adam, Optimizer}};
/// let mut parameters = Parameters::seeded(1);
/// let net = Dcgan::new(&mut parameters, 1, GanSize { noise: 2, width: 1, levels: 1 });
/// let adam = Adam { betas: [0.5, 0.999], ..Adam::new(2e-4) };
/// let optimizer = Optimizer::from(adam).group("generator", 2e-4, 0.0).group("discriminator", 2e-4, 0.0);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, optimizer, Method::mixed())?.with_options(TrainerOptions::new().with_statistics_of_each_call());
/// let (images, noise) = ([0.5; 3 * 8 * 8], [0.1, -0.2, 0.3, 0.4, -0.5, 0.6]);
/// let (x, z) = (Input::f32([3, 8, 8, 1], &images), Input::f32([3, 1, 1, 2], &noise));
/// let gradients = trainer.backward(Pass::new([x, z]).with_loss("D"), |[x, z]| net.discriminator_loss(x, z))?;
/// trainer.step(gradients)?;
/// let gradients = trainer.backward(Pass::new([z]).with_loss("G"), |[z]| net.generator_loss(z))?;
/// trainer.step(gradients)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Dcgan {
    /// Network that generates images from noise.
    pub generator: Generator,
    /// Network that distinguishes generated from real images.
    pub discriminator: Discriminator,
}

impl Dcgan {
    /// Names of both networks, the prefixes of their parameters' names.
    pub const NAMES: [&str; 2] = ["generator", "discriminator"];

    /// Creates generator and discriminator for images of `channels` channels.
    pub fn new(parameters: &mut crate::Parameters, channels: usize, size: GanSize) -> Self {
        let [generator, discriminator] = Self::NAMES;
        Self {
            generator: Generator::new(&mut parameters.at(generator), channels, size),
            discriminator: Discriminator::new(&mut parameters.at(discriminator), channels, size),
        }
    }

    /// Computes −ln D(x) − ln(1 − D(G(z))), the mean of each: the loss of the discriminator. The generator is frozen.
    /// Its running statistics are updated by its own step, which uses the same noise.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn discriminator_loss<'t>(&self, images: Var<'t>, noise: Var<'t>) -> Var<'t> {
        let tape = images.tape();
        // Real images first, as in PyTorch's example.
        let real = self.discriminator.forward(images);
        let made = tape.frozen(|| tape.freeze_running_stats(|| self.generator.forward(noise)));
        taken_for(real, 1.0) + taken_for(self.discriminator.forward(made), 0.0)
    }

    /// Computes −ln D(G(z)): the loss of the generator. The discriminator is frozen, but its running statistics are
    /// updated by this batch too, as in PyTorch.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn generator_loss<'t>(&self, noise: Var<'t>) -> Var<'t> {
        let made = self.generator.forward(noise);
        taken_for(made.tape().frozen(|| self.discriminator.forward(made)), 1.0)
    }
}

/// Computes the loss of a GAN: the binary cross-entropy of logits with one common label.
fn taken_for(logits: Var<'_>, real: f32) -> Var<'_> {
    let zeros = logits.tape().zeros(logits.shape());
    logits.bce_with_logits(if real == 0.0 { zeros } else { zeros.affine(0.0, real) })
}
