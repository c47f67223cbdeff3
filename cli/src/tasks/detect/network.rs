//! Interface of detectors for training and inference.

use crate::{
    Failure,
    data::Shown,
    tasks::{DetectedBox, Network, run::BatchInfo, torch::Flattened},
};
use gradscale::{
    Error, Gradients, Input, Parameter, Parameters, PlanRow, Trainer, Var, boxes::Detection,
    gradscale_core::backend::Backend,
};
use std::fmt::Debug;

/// Mean of each channel that torchvision's SSD has, and a deviation near that of photographs.
pub const MEANS: [f32; 3] = [0.482_35, 0.458_82, 0.407_84];
pub const DEVIATION: f32 = 0.25;

/// Trait of a detector for images `[n, side, side, 3]`.
pub trait Detects: Debug + Sized + 'static {
    /// Training batch that the detector reads.
    type Batch: BatchInfo;

    /// Creates a network with its parameters, for `classes` classes. It reads bytes, or numbers if they are `normal`
    /// (normalised) already.
    fn new(parameters: &mut Parameters, network: Network, classes: usize, normal: bool) -> Self;

    /// Returns the number of rows, and of columns, of the network's input.
    fn side(&self) -> usize;

    /// Returns the layers that read a flattened image.
    fn flattened(&self) -> Vec<Flattened> {
        Vec::new()
    }

    /// Returns the mixed-precision plan of its layers.
    fn plan<B: Backend<Error: 'static>>(&self, trainer: &Trainer<B>) -> Result<Vec<PlanRow>, Failure>;

    /// Starts the transfer of a batch of these pictures, each with a random word, to the device. Its loss is multiplied
    /// by `factor`.
    fn batch<B: Backend<Error: 'static>>(
        &self, trainer: &mut Trainer<B>, shown: Vec<Shown>, words: Vec<u64>, factor: f32,
    ) -> Result<Self::Batch, Failure>;

    /// Runs the detector's forward and backward pass on a batch.
    fn backward<B: Backend>(&self, trainer: &mut Trainer<B>, batch: Self::Batch) -> Result<Gradients, Error<B::Error>>;

    /// Computes the loss of a batch of these pictures, each with a random word, in evaluation mode.
    fn evaluated_loss<B: Backend<Error: 'static>>(
        &self, trainer: &mut Trainer<B>, shown: Vec<Shown>, words: Vec<u64>,
    ) -> Result<f32, Failure>;

    /// Detects the boxes of each image; corners are relative to the image size.
    fn found<B: Backend>(
        &self, trainer: &mut Trainer<B>, pictures: Input<'_>,
    ) -> Result<Vec<Vec<Detection>>, Error<B::Error>>;

    /// Exports the network as an ONNX model for these pictures.
    fn onnx<B: Backend>(
        &self, trainer: &mut Trainer<B>, pictures: Input<'_>, half: bool,
    ) -> Result<Vec<u8>, Error<B::Error>>;
}

/// Creates a detector with its parameters; `seed` determines the initial values.
pub fn network<D: Detects>(seed: u64, network: Network, classes: usize, normal: bool) -> (Parameters, D) {
    let mut parameters = Parameters::seeded(seed);
    let net = D::new(&mut parameters, network, classes, normal);
    (parameters, net)
}

/// Normalisation of pictures as the first operation of a network.
#[derive(Debug)]
pub struct Normalised {
    /// Offset of each channel, unless images are normalized already.
    summands: Option<Parameter>,
}

impl Normalised {
    pub fn new(parameters: &mut Parameters, normal: bool) -> Self {
        let summands = MEANS.map(|mean| -mean / DEVIATION);
        Self { summands: (!normal).then(|| parameters.at("input").constant("summands", [3], &summands)) }
    }

    pub fn apply<'t>(&self, x: Var<'t>) -> Var<'t> {
        match &self.summands {
            None => x,
            Some(summands) => x.affine(1.0 / (255.0 * DEVIATION), 0.0) + x.tape().parameter(summands),
        }
    }
}

/// Returns the pixels of all pictures, one after another.
pub fn pixels(shown: &[Shown]) -> Vec<u8> {
    shown.iter().flat_map(|one| &one.pixels).copied().collect()
}

/// Converts detections to the form that results store.
pub fn kept(found: &[Detection]) -> Vec<DetectedBox> {
    let one = |one: &Detection| {
        let class = u32::try_from(one.class).unwrap_or(u32::MAX).saturating_sub(1);
        DetectedBox { class, score: one.score, corners: one.corners }
    };
    found.iter().map(one).collect()
}
