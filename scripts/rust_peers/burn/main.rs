//! PeerTraining steps of burn for `scripts/rust_peers.py`. Its number of threads is that of `RAYON_NUM_THREADS`.

#[path = "../shared.rs"]
mod shared;

use burn::{
    module::{Module, Param},
    nn::{
        LayerNorm, LayerNormConfig, Linear, LinearConfig, PaddingConfig2d,
        conv::{Conv2d, Conv2dConfig},
        loss::{CrossEntropyLoss, CrossEntropyLossConfig},
        pool::{AvgPool2d, AvgPool2dConfig},
    },
    optim::{AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig},
    tensor::{
        Bool, Device, Int, Shape, Tensor, TensorData,
        activation::{gelu, relu, softmax},
        module::embedding,
    },
};
use shared::{
    ADAMW_RATE, Batch, COLOURS, Failure, NORM_EPS, Network, PeerTraining, SGD_RATE, Settings, WEIGHT_DECAY, Weight,
    Weights,
};

fn parameter<const N: usize>(weight: Weight, device: &Device) -> Param<Tensor<N>> {
    Param::from_tensor(Tensor::from_data(TensorData::new(weight.values, Shape::from(weight.shape)), device))
}

/// Returns the weight of a linear layer as burn has it, `[in, out]`.
fn transposed(weight: Weight) -> Weight {
    let (outputs, inputs) = (weight.shape[0], weight.shape[1]);
    let values = (0..inputs).flat_map(|i| (0..outputs).map(move |o| o * inputs + i)).map(|at| weight.values[at]);
    Weight { values: values.collect(), shape: vec![inputs, outputs], name: weight.name }
}

fn linear(weights: &mut Weights, name: &str, device: &Device) -> Result<Linear, Failure> {
    let weight = transposed(weights.take(&format!("{name}.weight"))?);
    let mut layer = LinearConfig::new(weight.shape[0], weight.shape[1]).init(device);
    layer.weight = parameter(weight, device);
    layer.bias = Some(parameter(weights.take(&format!("{name}.bias"))?, device));
    Ok(layer)
}

fn norm(weights: &mut Weights, name: &str, device: &Device) -> Result<LayerNorm, Failure> {
    let weight = weights.take(&format!("{name}.scale"))?;
    let mut layer = LayerNormConfig::new(weight.shape[0]).with_epsilon(NORM_EPS).init(device);
    layer.gamma = parameter(weight, device);
    layer.beta = Some(parameter(weights.take(&format!("{name}.shift"))?, device));
    Ok(layer)
}

/// Input of a network: batches that are copied from the host for each step.
enum Values {
    Features(Tensor<2>),
    Images(Tensor<4>),
    Tokens(Tensor<2, Int>),
}

#[derive(Module, Debug)]
struct Perceptron {
    layers: Vec<Linear>,
}

impl Perceptron {
    fn logits(&self, x: Tensor<2>) -> Tensor<2> {
        let mut x = self.layers[0].forward(x);
        for layer in &self.layers[1..] {
            x = layer.forward(relu(x));
        }
        x
    }
}

#[derive(Module, Debug)]
struct Convolutions {
    levels: Vec<Conv2d>,
    pool: AvgPool2d,
    head: Linear,
}

impl Convolutions {
    fn logits(&self, mut x: Tensor<4>) -> Tensor<2> {
        for level in &self.levels {
            x = self.pool.forward(relu(level.forward(x)));
        }
        self.head.forward(x.flatten(1, 3))
    }
}

#[derive(Module, Debug)]
struct Layer {
    norms: [LayerNorm; 2],
    attention: [Linear; 2],
    linear: [Linear; 2],
}

#[derive(Module, Debug)]
struct Decoder {
    tokens: Param<Tensor<2>>,
    places: Param<Tensor<2>>,
    layers: Vec<Layer>,
    norm: LayerNorm,
    heads: usize,
}

impl Decoder {
    fn attend(&self, layer: &Layer, x: Tensor<3>, hidden: &Tensor<4, Bool>) -> Tensor<3> {
        let [n, t, width] = x.dims();
        let depth = width / self.heads;
        let parts = layer.attention[0].forward(x).chunk(3, 2);
        let [q, k, v] = [0, 1, 2].map(|i: usize| parts[i].clone().reshape([n, t, self.heads, depth]).swap_dims(1, 2));
        let scores = q.matmul(k.transpose()).div_scalar((depth as f32).sqrt());
        let mixed = softmax(scores.mask_fill(hidden.clone(), f32::NEG_INFINITY), 3).matmul(v);
        layer.attention[1].forward(mixed.swap_dims(1, 2).reshape([n, t, width]))
    }

    fn logits(&self, tokens: Tensor<2, Int>, hidden: &Tensor<4, Bool>) -> Tensor<2> {
        let [n, t] = tokens.dims();
        let mut x = embedding(self.tokens.val(), tokens) + self.places.val().unsqueeze::<3>();
        for layer in &self.layers {
            x = x.clone() + self.attend(layer, layer.norms[0].forward(x), hidden);
            let inside = gelu(layer.linear[0].forward(layer.norms[1].forward(x.clone())));
            x = x + layer.linear[1].forward(inside);
        }
        let width = x.dims()[2];
        self.norm.forward(x).reshape([n * t, width]).matmul(self.tokens.val().transpose())
    }
}

#[derive(Module, Debug)]
enum BurnNet {
    Mlp(Perceptron),
    Cnn(Convolutions),
    Transformer(Decoder),
}

impl BurnNet {
    fn new(network: &Network, weights: &mut Weights, device: &Device) -> Result<Self, Failure> {
        Ok(match network {
            Network::Mlp { features, .. } => {
                let layers = (1..features.len()).map(|i| linear(weights, &format!("linear{i}"), device));
                Self::Mlp(Perceptron { layers: layers.collect::<Result<_, _>>()? })
            }
            Network::Cnn { channels, .. } => {
                let mut levels = Vec::new();
                for i in 1..=channels.len() {
                    let weight = weights.take(&format!("conv{i}.weight"))?;
                    let settings = Conv2dConfig::new([weight.shape[1], weight.shape[0]], [3, 3]);
                    let mut level = settings.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(device);
                    level.weight = parameter(weight, device);
                    level.bias = Some(parameter(weights.take(&format!("conv{i}.bias"))?, device));
                    levels.push(level);
                }
                let pool = AvgPool2dConfig::new([2, 2]).init();
                Self::Cnn(Convolutions { levels, pool, head: linear(weights, "head", device)? })
            }
            &Network::Transformer { heads, layers, .. } => {
                let mut all = Vec::new();
                for i in 0..layers {
                    let name = |part: &str| format!("layers.{i}.{part}");
                    let norms = [norm(weights, &name("norm1"), device)?, norm(weights, &name("norm2"), device)?];
                    let mut pair = |first: &str, second: &str| -> Result<_, Failure> {
                        Ok([linear(weights, &name(first), device)?, linear(weights, &name(second), device)?])
                    };
                    let attention = pair("self_attn.in", "self_attn.out")?;
                    all.push(Layer { norms, attention, linear: pair("linear1", "linear2")? });
                }
                Self::Transformer(Decoder {
                    tokens: parameter(weights.take("tokens.weight")?, device),
                    places: parameter(weights.take("places.weight")?, device),
                    layers: all,
                    norm: norm(weights, "norm", device)?,
                    heads,
                })
            }
        })
    }

    fn logits(&self, x: Values, hidden: &Tensor<4, Bool>) -> Tensor<2> {
        match (self, x) {
            (Self::Mlp(net), Values::Features(x)) => net.logits(x),
            (Self::Cnn(net), Values::Images(x)) => net.logits(x),
            (Self::Transformer(net), Values::Tokens(x)) => net.logits(x, hidden),
            (Self::Mlp(_) | Self::Cnn(_) | Self::Transformer(_), _) => unreachable!("batches are of their network"),
        }
    }
}

/// Copies a batch from the host.
fn values(network: &Network, batch: &Batch, device: &Device) -> Values {
    match network {
        Network::Mlp { images, features } => {
            let data = TensorData::new(batch.values.clone(), [*images, features[0]]);
            Values::Features(Tensor::from_data(data, device))
        }
        Network::Cnn { images, side, .. } => {
            let data = TensorData::new(batch.values.clone(), [*images, COLOURS, *side, *side]);
            Values::Images(Tensor::from_data(data, device))
        }
        Network::Transformer { texts, context, .. } => {
            Values::Tokens(Tensor::from_data(TensorData::new(batch.tokens.clone(), [*texts, *context]), device))
        }
    }
}

fn prepare(network: &Network, _: &Settings) -> Result<PeerTraining, Failure> {
    let device = Device::flex().autodiff();
    let mut weights = Weights::new(network);
    let net = BurnNet::new(network, &mut weights, &device)?;
    weights.finish()?;
    let parameters = net.num_params();
    let (rate, mut optimizer): (f64, ModuleOptimizer) = match net {
        BurnNet::Mlp(_) | BurnNet::Cnn(_) => (SGD_RATE, SgdConfig::new().init()),
        BurnNet::Transformer(_) => {
            (ADAMW_RATE, AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(WEIGHT_DECAY as f32).init())
        }
    };
    let context = if let Network::Transformer { context, .. } = network { *context } else { 1 };
    // Positions that come later.
    let hidden = Tensor::<2, Bool>::tril_mask([context, context], 0, &device).unsqueeze::<4>();
    let criterion: CrossEntropyLoss = CrossEntropyLossConfig::new().init(&device);
    let (network, batches, mut net) = (network.clone(), network.batches(), Some(net));
    let step = move |number: usize| {
        let (batch, before) = (&batches[number], net.take().ok_or("no network after an error")?);
        let labels = Tensor::<1, Int>::from_data(TensorData::new(batch.labels.clone(), [batch.labels.len()]), &device);
        let loss = criterion.forward(before.logits(values(&network, batch, &device), &hidden), labels);
        let gradients = GradientsParams::from_grads(loss.backward(), &before);
        net = Some(optimizer.step(rate, before, gradients));
        Ok(loss.into_scalar::<f32>())
    };
    Ok(PeerTraining { parameters, step: Box::new(step) })
}

fn main() -> Result<(), Failure> {
    shared::serve(prepare)
}
