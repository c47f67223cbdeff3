//! PeerTraining steps of candle for `scripts/rust_peers.py`. Its number of threads is that of `RAYON_NUM_THREADS`.

#[path = "../shared.rs"]
mod shared;

use candle_core::{D, Device, Module, Result, Tensor, Var};
use candle_nn::{
    AdamW, Conv2d, Conv2dConfig, Linear, Optimizer, ParamsAdamW, SGD,
    loss::cross_entropy,
    ops::{layer_norm_slow, softmax},
};
use shared::{
    ADAMW_RATE, COLOURS, Failure, NORM_EPS, Network, PeerTraining, SGD_RATE, Settings, WEIGHT_DECAY, Weights,
};

/// Parameters, which layers take by their names.
struct Parameters {
    weights: Weights,
    vars: Vec<Var>,
}

impl Parameters {
    fn take(&mut self, name: &str) -> std::result::Result<Tensor, Failure> {
        let weight = self.weights.take(name)?;
        let var = Var::from_vec(weight.values, weight.shape, &Device::Cpu)?;
        let tensor = var.as_tensor().clone();
        self.vars.push(var);
        Ok(tensor)
    }

    fn linear(&mut self, name: &str) -> std::result::Result<Linear, Failure> {
        Ok(Linear::new(self.take(&format!("{name}.weight"))?, Some(self.take(&format!("{name}.bias"))?)))
    }

    fn norm(&mut self, name: &str) -> std::result::Result<Norm, Failure> {
        Ok(Norm { weight: self.take(&format!("{name}.scale"))?, bias: self.take(&format!("{name}.shift"))? })
    }
}

/// Layer norm in single operations, because the fused one has no gradient.
struct Norm {
    weight: Tensor,
    bias: Tensor,
}

impl Module for Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        layer_norm_slow(x, &self.weight, &self.bias, NORM_EPS as f32)
    }
}

struct Layer {
    norms: [Norm; 2],
    attention: [Linear; 2],
    linear: [Linear; 2],
}

struct Transformer {
    tokens: Tensor,
    places: Tensor,
    layers: Vec<Layer>,
    norm: Norm,
    heads: usize,
    /// Added to the scores of positions: −∞ for those that come later.
    mask: Tensor,
}

impl Transformer {
    fn attend(&self, layer: &Layer, x: &Tensor) -> Result<Tensor> {
        let (n, t, width) = x.dims3()?;
        let depth = width / self.heads;
        let split = |x: &Tensor| x.reshape((n, t, self.heads, depth))?.transpose(1, 2)?.contiguous();
        let parts = layer.attention[0].forward(x)?.chunk(3, D::Minus1)?;
        let [q, k, v] = [split(&parts[0])?, split(&parts[1])?, split(&parts[2])?];
        let scores = (q.matmul(&k.t()?)? * (1.0 / (depth as f64).sqrt()))?.broadcast_add(&self.mask)?;
        let mixed = softmax(&scores, D::Minus1)?.matmul(&v)?;
        layer.attention[1].forward(&mixed.transpose(1, 2)?.reshape((n, t, width))?)
    }

    fn logits(&self, tokens: &Tensor) -> Result<Tensor> {
        let (n, t) = tokens.dims2()?;
        let mut x = self.tokens.embedding(&tokens.flatten_all()?)?.reshape((n, t, ()))?.broadcast_add(&self.places)?;
        for layer in &self.layers {
            x = (&x + self.attend(layer, &layer.norms[0].forward(&x)?)?)?;
            let inside = layer.linear[0].forward(&layer.norms[1].forward(&x)?)?.gelu_erf()?;
            x = (&x + layer.linear[1].forward(&inside)?)?;
        }
        self.norm.forward(&x)?.flatten_to(1)?.matmul(&self.tokens.t()?)
    }
}

enum CandleNet {
    Mlp(Vec<Linear>),
    Cnn(Vec<Conv2d>, Linear),
    Transformer(Box<Transformer>),
}

impl CandleNet {
    fn new(network: &Network, parameters: &mut Parameters) -> std::result::Result<Self, Failure> {
        Ok(match network {
            Network::Mlp { features, .. } => {
                let layers = (1..features.len()).map(|i| parameters.linear(&format!("linear{i}")));
                Self::Mlp(layers.collect::<std::result::Result<_, _>>()?)
            }
            Network::Cnn { channels, .. } => {
                let mut convolutions = Vec::new();
                for i in 1..=channels.len() {
                    let weight = parameters.take(&format!("conv{i}.weight"))?;
                    let bias = parameters.take(&format!("conv{i}.bias"))?;
                    convolutions.push(Conv2d::new(
                        weight,
                        Some(bias),
                        Conv2dConfig { padding: 1, ..Conv2dConfig::default() },
                    ));
                }
                Self::Cnn(convolutions, parameters.linear("head")?)
            }
            &Network::Transformer { context, heads, layers, .. } => {
                let hidden =
                    |row: usize| (0..context).map(move |column| if column > row { f32::NEG_INFINITY } else { 0.0 });
                let mask: Vec<f32> = (0..context).flat_map(hidden).collect();
                let mut all = Vec::new();
                for i in 0..layers {
                    let name = |part: &str| format!("layers.{i}.{part}");
                    all.push(Layer {
                        norms: [parameters.norm(&name("norm1"))?, parameters.norm(&name("norm2"))?],
                        attention: [
                            parameters.linear(&name("self_attn.in"))?,
                            parameters.linear(&name("self_attn.out"))?,
                        ],
                        linear: [parameters.linear(&name("linear1"))?, parameters.linear(&name("linear2"))?],
                    });
                }
                Self::Transformer(Box::new(Transformer {
                    tokens: parameters.take("tokens.weight")?,
                    places: parameters.take("places.weight")?,
                    layers: all,
                    norm: parameters.norm("norm")?,
                    heads,
                    mask: Tensor::from_vec(mask, (context, context), &Device::Cpu)?,
                }))
            }
        })
    }

    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Mlp(layers) => {
                let mut x = layers[0].forward(x)?;
                for layer in &layers[1..] {
                    x = layer.forward(&x.relu()?)?;
                }
                Ok(x)
            }
            Self::Cnn(convolutions, head) => {
                let mut x = x.clone();
                for conv in convolutions {
                    x = conv.forward(&x)?.relu()?.avg_pool2d(2)?;
                }
                head.forward(&x.flatten_from(1)?)
            }
            Self::Transformer(net) => net.logits(x),
        }
    }
}

enum CandleOptimizer {
    Sgd(SGD),
    AdamW(AdamW),
}

fn prepare(network: &Network, _: &Settings) -> std::result::Result<PeerTraining, Failure> {
    let mut parameters = Parameters { weights: Weights::new(network), vars: Vec::new() };
    let net = CandleNet::new(network, &mut parameters)?;
    parameters.weights.finish()?;
    let count = parameters.vars.iter().map(|var| var.elem_count()).sum();
    let mut rule = match net {
        CandleNet::Mlp(_) | CandleNet::Cnn(..) => CandleOptimizer::Sgd(SGD::new(parameters.vars, SGD_RATE)?),
        CandleNet::Transformer(_) => {
            let settings = ParamsAdamW { lr: ADAMW_RATE, weight_decay: WEIGHT_DECAY, ..ParamsAdamW::default() };
            CandleOptimizer::AdamW(AdamW::new(parameters.vars, settings)?)
        }
    };
    let (network, batches) = (network.clone(), network.batches());
    let step = move |number: usize| {
        let batch = &batches[number];
        let x = match &network {
            Network::Mlp { images, features } => {
                Tensor::from_slice(&batch.values, (*images, features[0]), &Device::Cpu)?
            }
            Network::Cnn { images, side, .. } => {
                Tensor::from_slice(&batch.values, (*images, COLOURS, *side, *side), &Device::Cpu)?
            }
            Network::Transformer { texts, context, .. } => {
                Tensor::from_slice(&batch.tokens, (*texts, *context), &Device::Cpu)?
            }
        };
        let labels = Tensor::from_slice(&batch.labels, batch.labels.len(), &Device::Cpu)?;
        let loss = cross_entropy(&net.logits(&x)?, &labels)?;
        match &mut rule {
            CandleOptimizer::Sgd(rule) => rule.backward_step(&loss)?,
            CandleOptimizer::AdamW(rule) => rule.backward_step(&loss)?,
        }
        Ok(loss.to_scalar::<f32>()?)
    };
    Ok(PeerTraining { parameters: count, step: Box::new(step) })
}

fn main() -> std::result::Result<(), Failure> {
    shared::serve(prepare)
}
