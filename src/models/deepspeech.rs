//! Deep Speech 2, a speech recogniser (Amodei et al. 2016).

use crate::{
    Init, Parameter, Scope, Var,
    nn::{BatchNorm, Gru, Linear, Module},
    ops::Places,
};
use gradscale_core::ops::Conv2d;

/// Kernels of both convolutions, frames × frequencies, and their strides; the second keeps the number of frames. The
/// padding keeps sizes at stride 1.
const KERNELS: [[u32; 2]; 2] = [[11, 41], [11, 21]];
const STRIDES: [[u32; 2]; 2] = [[2, 2], [1, 2]];
/// Upper limit of the clipped ReLU, as in Deep Speech 2.
const RELU_LIMIT: f32 = 20.0;

/// Network from frames of a spectrogram to logits of characters: two convolutions over time and frequency with clipped
/// ReLU, bidirectional GRU layers, and a linear layer. The input of every layer except the first recurrent one is
/// batch-normalised over the frames of all sequences (section 3.2 of the paper), as in its common implementations.
///
/// The directions of a layer are **summed**, as in the paper (section 3.1, `h = h→ + h←`). The next layer therefore has
/// half the weights that a concatenation would need.
///
/// Frames after a sequence's end have no influence: convolutions read zeros there, normalisations ignore them, and the
/// recurrent layers use packed sequences.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, models::DeepSpeech, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// // 9 frequencies, 2 channels, 2 layers of 4 units, 3 characters.
/// let net = DeepSpeech::new(&mut parameters.at("net"), 9, [2, 4, 2], 3);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let lengths = [12, 5];
/// let steps = lengths.map(DeepSpeech::steps);
/// let batch = [Input::f32([2, 12, 9, 1], &[0.5; 216]), Input::u32([2], &lengths), Input::u32([2], &steps)];
/// let y = trainer.evaluate(batch, |[x, lengths, steps]| net.logits(x, lengths, steps))?;
/// assert_eq!(y.shape.sizes(), [2, 1, 6, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DeepSpeech {
    convolutions: Vec<(Convolution, BatchNorm)>,
    recurrent: Vec<Recurrent>,
    norm: BatchNorm,
    characters: Linear,
}

/// Convolution with separate kernel sizes and strides for both axes.
#[derive(Clone, Debug)]
struct Convolution {
    name: String,
    weight: Parameter,
    outputs: u32,
    kernel: [u32; 2],
    stride: [u32; 2],
}

/// Recurrent layer of the network with the normalisation of its input.
#[derive(Clone, Debug)]
struct Recurrent {
    name: String,
    norm: Option<BatchNorm>,
    gru: Gru,
    hidden: usize,
}

impl Convolution {
    fn new(scope: &mut Scope<'_>, inputs: usize, outputs: u32, kernel: [u32; 2], stride: [u32; 2]) -> Self {
        let [high, wide] = kernel.map(|size| size as usize);
        // Without a bias, because a normalisation follows.
        let weight = scope.weight("weight", [outputs as usize, high, wide, inputs], Init::FanIn);
        Self { name: scope.path().to_owned(), weight, outputs, kernel, stride }
    }
}

impl Module for Convolution {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let pad = self.kernel.map(|size| (size - 1) / 2);
        let conv = |x| Conv2d::padded(x, self.outputs, self.kernel, pad)?.stride(self.stride);
        x.conv(&self.name, conv, x.tape().parameter(&self.weight), None)
    }
}

impl DeepSpeech {
    /// Creates the speech network for spectra of `frequencies` frequencies. The other sizes are the channels of the
    /// convolutions, the units of each direction of a recurrent layer, the number of recurrent layers, and the number
    /// of characters with the blank. Common implementations have 161 frequencies, 32 channels and five layers of 800
    /// units.
    ///
    /// # Panics
    /// If there are 2^32 channels or more.
    pub fn new(
        scope: &mut Scope<'_>, frequencies: usize, [channels, hidden, layers]: [usize; 3], characters: usize,
    ) -> Self {
        let outputs = u32::try_from(channels).expect("fewer channels than 2^32");
        let mut convolutions = Vec::new();
        let mut width = frequencies;
        for (i, (kernel, stride)) in KERNELS.into_iter().zip(STRIDES).enumerate() {
            let inputs = if i == 0 { 1 } else { channels };
            let conv = Convolution::new(&mut scope.at(&format!("conv{}", i + 1)), inputs, outputs, kernel, stride);
            convolutions.push((conv, BatchNorm::new(&mut scope.at(&format!("norm{}", i + 1)), channels)));
            width = width.div_ceil(stride[1] as usize);
        }
        let recurrent = |i: usize| {
            let inputs = if i == 0 { width * channels } else { hidden };
            let norm = (i > 0).then(|| BatchNorm::new(&mut scope.at(&format!("recurrent{}.norm", i + 1)), inputs));
            let mut scope = scope.at(&format!("recurrent{}", i + 1));
            let gru = Gru::bidirectional(&mut scope.at("gru"), inputs, hidden, 1);
            Recurrent { name: scope.path().to_owned(), norm, gru, hidden }
        };
        let recurrent: Vec<Recurrent> = (0..layers).map(recurrent).collect();
        let width = if layers == 0 { width * channels } else { hidden };
        let norm = BatchNorm::new(&mut scope.at("norm"), width);
        Self { convolutions, recurrent, norm, characters: Linear::new(&mut scope.at("characters"), width, characters) }
    }

    /// Returns the number of time steps after the convolutions for `frames` frames: half as many, rounded up.
    #[must_use]
    pub const fn steps(frames: u32) -> u32 {
        let [[first, _], [second, _]] = STRIDES;
        frames.div_ceil(first).div_ceil(second)
    }

    /// Computes logits `[n, 1, steps, characters]` of frames `[n, t, frequencies, 1]`. The lengths of sequences are
    /// integers `[n]`, at least 1: `frames` before and `steps` after the convolutions ([`DeepSpeech::steps`] of each).
    /// Logits after a sequence's end are undefined.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn logits<'t>(&self, x: Var<'t>, frames: Var<'t>, steps: Var<'t>) -> Var<'t> {
        let mut x = before_the_end(x, "frames", frames);
        for (conv, norm) in &self.convolutions {
            let normal = norm.frames(conv.forward(x), steps);
            x = before_the_end(
                normal.clipped_relu(RELU_LIMIT).named(&format!("{}.relu", conv.name)),
                &conv.name,
                steps,
            );
        }
        // From here on frames have width 1.
        let [n, t, w, c] = x.shape().sizes();
        let mut x = x.reshape([n, t, 1, w * c]);
        for layer in &self.recurrent {
            let of_layer = layer.norm.as_ref().map_or(x, |norm| norm.frames(x, steps));
            let (both, _) = layer.gru.sequence(sequence(of_layer), None, Some(steps));
            let [forwards, backwards] = [0, layer.hidden].map(|first| both.slice(3, first, layer.hidden));
            let sum = (forwards + backwards).named(&format!("{}.sum", layer.name));
            x = sum.reshape([n, t, 1, layer.hidden]);
        }
        let x = before_the_end(self.norm.frames(x, steps), "characters", steps);
        self.characters.forward(sequence(x))
    }
}

/// Reshapes frames `[n, t, w, c]` to `[n, 1, t, w·c]`.
fn sequence(x: Var<'_>) -> Var<'_> {
    let [n, t, w, c] = x.shape().sizes();
    x.reshape([n, 1, t, w * c])
}

/// Keeps the frames before each sequence's end and replaces the others by 0.
fn before_the_end<'t>(x: Var<'t>, name: &str, lengths: Var<'t>) -> Var<'t> {
    let steps = x.shape().sizes()[1];
    let before = sequence(x).select(&format!("{name}.before_the_end"), lengths, steps, Places::All);
    before.reshape(x.shape())
}
