//! Networks, initial weights, data and the protocol of `scripts/rust_peers.py`, the same for all frameworks.
//!
//!     peer NETWORK SIZES THREADS METHOD
//!
//! NETWORK with its SIZES, separated by commas:
//!
//!   mlp          images, then the features of each layer: linear layers with ReLU between them, SGD
//!   cnn          images, pixels of a side, channels of each level, classes: 3 × 3 convolution, ReLU and 2 × 2 average pooling
//!                on each level, a linear layer; images have three channels; SGD
//!   transformer  texts, tokens of each, kinds of tokens, width, heads, layers: a GPT-2 decoder, AdamW
//!
//! A line of JSON has the number of parameters. Then one step runs for each line of standard input, and a line of JSON
//! has its time (`seconds`) and its `loss`.

#![allow(dead_code, reason = "each program needs a part")]

use std::{env, error::Error, io, time::Instant};

/// Error of any library.
pub type Failure = Box<dyn Error>;

/// Learning rates of SGD and of AdamW. AdamW has β 0.9 and 0.999, ε 1e-8 and a weight decay of 0.01.
pub const SGD_RATE: f64 = 0.2;
pub const ADAMW_RATE: f64 = 1e-3;
pub const WEIGHT_DECAY: f64 = 0.01;
/// ε of layer norms.
pub const NORM_EPS: f64 = 1e-5;
/// Number of batches, which a training takes in order again and again.
const BATCHES: usize = 4;
/// Channels of an image.
pub const COLOURS: usize = 3;

/// Network with its sizes.
#[derive(Clone, Debug)]
pub enum Network {
    Mlp { images: usize, features: Vec<usize> },
    Cnn { images: usize, side: usize, channels: Vec<usize>, classes: usize },
    Transformer { texts: usize, context: usize, tokens: usize, width: usize, heads: usize, layers: usize },
}

/// Initial values of a parameter. Linear weights are `[out, in]`, convolutions `[out, in, rows, columns]`, and a linear
/// layer after convolutions reads channels, then rows, then columns.
#[derive(Clone, Debug)]
pub struct Weight {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

/// Batch: pixels `[n, channels, rows, columns]` or features `[n, features]` with a label for each image, or tokens
/// `[n, t]` with the next token of each as labels.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub values: Vec<f32>,
    pub tokens: Vec<u32>,
    pub labels: Vec<u32>,
}

/// Training of one framework: number of parameters, and a function that takes a step on a batch of this number and
/// returns the loss.
pub struct PeerTraining {
    pub parameters: usize,
    pub step: Box<dyn FnMut(usize) -> Result<f32, Failure>>,
}

/// Settings of the command line besides the network.
pub struct Settings {
    pub threads: usize,
    pub method: String,
}

/// Linear congruential generator, whose upper bits are used.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 40
    }

    /// Draws a value from −1 to 1, exact in f32.
    fn value(&mut self) -> f32 {
        self.word() as f32 / (1 << 23) as f32 - 1.0
    }

    fn below(&mut self, limit: usize) -> u32 {
        (self.word() % limit as u64) as u32
    }

    fn draw_images(&mut self, images: usize, values: usize, classes: usize) -> Batch {
        Batch {
            values: (0..images * values).map(|_| self.value()).collect(),
            labels: (0..images).map(|_| self.below(classes)).collect(),
            ..Batch::default()
        }
    }
}

impl Network {
    fn parse(network: &str, sizes: &[usize]) -> Result<Self, Failure> {
        Ok(match (network, sizes) {
            ("mlp", &[images, ref features @ ..]) if features.len() > 1 => {
                Self::Mlp { images, features: features.to_vec() }
            }
            ("cnn", &[images, side, ref channels @ .., classes]) if !channels.is_empty() => {
                Self::Cnn { images, side, channels: channels.to_vec(), classes }
            }
            ("transformer", &[texts, context, tokens, width, heads, layers]) => {
                Self::Transformer { texts, context, tokens, width, heads, layers }
            }
            _ => return Err(format!("{network} is not known with {} sizes", sizes.len()).into()),
        })
    }

    /// Returns rows and columns of the last level of a convolutional network.
    pub fn last_side(&self) -> usize {
        match self {
            Self::Cnn { side, channels, .. } => side >> channels.len(),
            Self::Mlp { .. } | Self::Transformer { .. } => 1,
        }
    }

    /// Draws the initial weights, the same at each call: uniform in ±1/√inputs, norms 1 and 0.
    pub fn weights(&self) -> Vec<Weight> {
        let (mut random, mut all) = (Random(1), Vec::new());
        let mut draw = |name: String, shape: &[usize], inputs: usize| {
            let bound = 1.0 / (inputs as f32).sqrt();
            let values = (0..shape.iter().product()).map(|_| bound * random.value()).collect();
            Weight { name, shape: shape.to_vec(), values }
        };
        let mut push_layer = |all: &mut Vec<Weight>, layer: &str, shape: &[usize]| {
            let inputs = shape[1..].iter().product();
            all.push(draw(format!("{layer}.weight"), shape, inputs));
            all.push(draw(format!("{layer}.bias"), &shape[..1], inputs));
        };
        match self {
            Self::Mlp { features, .. } => {
                for (i, pair) in features.windows(2).enumerate() {
                    push_layer(&mut all, &format!("linear{}", i + 1), &[pair[1], pair[0]]);
                }
            }
            Self::Cnn { channels, classes, .. } => {
                let mut inputs = COLOURS;
                for (i, &outputs) in channels.iter().enumerate() {
                    push_layer(&mut all, &format!("conv{}", i + 1), &[outputs, inputs, 3, 3]);
                    inputs = outputs;
                }
                push_layer(&mut all, "head", &[*classes, inputs * self.last_side().pow(2)]);
            }
            &Self::Transformer { context, tokens, width, layers, .. } => {
                let norm = |all: &mut Vec<Weight>, layer: &str| {
                    for (what, value) in [("scale", 1.0), ("shift", 0.0)] {
                        let name = format!("{layer}.{what}");
                        all.push(Weight { name, shape: vec![width], values: vec![value; width] });
                    }
                };
                for i in 0..layers {
                    let layer = |part: &str| format!("layers.{i}.{part}");
                    norm(&mut all, &layer("norm1"));
                    norm(&mut all, &layer("norm2"));
                    push_layer(&mut all, &layer("self_attn.in"), &[3 * width, width]);
                    push_layer(&mut all, &layer("self_attn.out"), &[width, width]);
                    push_layer(&mut all, &layer("linear1"), &[4 * width, width]);
                    push_layer(&mut all, &layer("linear2"), &[width, 4 * width]);
                }
                norm(&mut all, "norm");
                all.push(draw("tokens.weight".to_owned(), &[tokens, width], width));
                all.push(draw("places.weight".to_owned(), &[context, width], width));
            }
        }
        all
    }

    /// Draws all batches, the same at each call.
    pub fn batches(&self) -> Vec<Batch> {
        let mut random = Random(2);
        let draw = |_| match self {
            Self::Mlp { images, features } => random.draw_images(*images, features[0], features[features.len() - 1]),
            Self::Cnn { images, side, classes, .. } => random.draw_images(*images, COLOURS * side * side, *classes),
            Self::Transformer { texts, context, tokens, .. } => {
                // One more token than positions, because labels are the next tokens.
                let texts: Vec<Vec<u32>> =
                    (0..*texts).map(|_| (0..=*context).map(|_| random.below(*tokens)).collect()).collect();
                let part = |from: usize| texts.iter().flat_map(|text| text[from..][..*context].to_vec()).collect();
                Batch { tokens: part(0), labels: part(1), ..Batch::default() }
            }
        };
        (0..BATCHES).map(draw).collect()
    }
}

/// Weights that a framework takes by their names.
pub struct Weights(Vec<Weight>);

impl Weights {
    pub fn new(network: &Network) -> Self {
        Self(network.weights())
    }

    /// Takes a weight out of the list.
    pub fn take(&mut self, name: &str) -> Result<Weight, Failure> {
        let at = self.0.iter().position(|weight| weight.name == name).ok_or_else(|| format!("no weight {name}"))?;
        Ok(self.0.swap_remove(at))
    }

    /// Checks that every weight has been taken.
    pub fn finish(self) -> Result<(), Failure> {
        match self.0.first() {
            Some(weight) => Err(format!("the network has no {}", weight.name).into()),
            None => Ok(()),
        }
    }
}

/// Takes the steps that standard input asks for.
pub fn serve(prepare: impl FnOnce(&Network, &Settings) -> Result<PeerTraining, Failure>) -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [network, sizes, threads, method] = &arguments[..] else {
        return Err("NETWORK SIZES THREADS METHOD".into());
    };
    let sizes = sizes.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let network = Network::parse(network, &sizes)?;
    let mut training = prepare(&network, &Settings { threads: threads.parse()?, method: method.clone() })?;
    println!("{{\"parameters\": {}}}", training.parameters);
    for (count, line) in io::stdin().lines().enumerate() {
        line?;
        let start = Instant::now();
        let loss = (training.step)(count % BATCHES)?;
        // JSON has no infinity, and Python reads NaN.
        let loss = if loss.is_finite() { loss } else { f32::NAN };
        println!("{{\"seconds\": {}, \"loss\": {loss}}}", start.elapsed().as_secs_f64());
    }
    Ok(())
}
