//! PeerTraining steps of gradscale for `scripts/rust_peers.py`.

#[path = "../shared.rs"]
mod shared;

use gradscale::{
    Cpu, Input, Parameters, Trainer, Var,
    models::{Decoder, DecoderSize, Mlp},
    nn::{Conv2d, Linear, Module},
    optim::{AdamW, Optimizer, Sgd},
};
use shared::{ADAMW_RATE, Batch, COLOURS, Failure, Network, PeerTraining, SGD_RATE, Settings, WEIGHT_DECAY};

enum EngineNet {
    Mlp(Mlp),
    Cnn(Vec<Conv2d>, Linear),
    Transformer(Decoder),
}

impl EngineNet {
    fn new(network: &Network, parameters: &mut Parameters) -> Self {
        let mut scope = parameters.at("net");
        match network {
            Network::Mlp { features, .. } => Self::Mlp(Mlp::new(&mut scope, features)),
            Network::Cnn { channels, classes, .. } => {
                let mut inputs = COLOURS;
                let convolutions = channels.iter().enumerate().map(|(i, &outputs)| {
                    let mut scope = scope.at(&format!("conv{}", i + 1));
                    let from = std::mem::replace(&mut inputs, outputs);
                    Conv2d::new(&mut scope, from, outputs, 3).bias(&mut scope)
                });
                let convolutions = convolutions.collect();
                let features = inputs * network.last_side().pow(2);
                Self::Cnn(convolutions, Linear::new(&mut scope.at("head"), features, *classes))
            }
            &Network::Transformer { context, tokens, width, heads, layers, .. } => {
                let size = DecoderSize { context, width, heads, layers, dropout: 0.0 };
                Self::Transformer(Decoder::new(&mut scope, tokens, size))
            }
        }
    }

    fn loss<'t>(&self, [x, labels]: [Var<'t>; 2]) -> Var<'t> {
        let logits = match self {
            Self::Mlp(net) => net.forward(x),
            Self::Cnn(convolutions, head) => {
                let x = convolutions.iter().fold(x, |x, conv| conv.forward(x).relu().average_pool([2, 2]));
                head.forward(x.flatten())
            }
            Self::Transformer(net) => net.logits(x),
        };
        logits.cross_entropy(labels)
    }
}

/// Moves channels behind rows and columns, for each of the leading items: `[n, c, pixels]` to `[n, pixels, c]`.
fn channels_last(values: &[f32], channels: usize, pixels: usize) -> Vec<f32> {
    let item = |item: &[f32]| -> Vec<f32> {
        (0..pixels)
            .flat_map(|pixel| (0..channels).map(move |c| (c, pixel)))
            .map(|(c, pixel)| item[c * pixels + pixel])
            .collect()
    };
    values.chunks(channels * pixels).flat_map(item).collect()
}

/// Returns the values of a weight in the layout of the engine.
fn weight_values(network: &Network, weight: &shared::Weight) -> Vec<f32> {
    match (network, &weight.shape[..]) {
        (Network::Cnn { .. }, &[_, inputs, rows, columns]) => channels_last(&weight.values, inputs, rows * columns),
        (Network::Cnn { channels, .. }, &[_, _]) => {
            channels_last(&weight.values, channels[channels.len() - 1], network.last_side().pow(2))
        }
        (Network::Mlp { .. } | Network::Cnn { .. } | Network::Transformer { .. }, _) => weight.values.clone(),
    }
}

fn prepare(network: &Network, settings: &Settings) -> Result<PeerTraining, Failure> {
    let mut parameters = Parameters::seeded(0);
    let net = EngineNet::new(network, &mut parameters);
    let optimizer = match net {
        EngineNet::Mlp(_) | EngineNet::Cnn(..) => Optimizer::from(Sgd::new(SGD_RATE)),
        EngineNet::Transformer(_) => {
            Optimizer::from(AdamW { weight_decay: WEIGHT_DECAY as f32, ..AdamW::new(ADAMW_RATE) })
        }
    };
    let (count, names) = (parameters.count(), parameters.names().count());
    let mut trainer = Trainer::new(Cpu::new(settings.threads)?, parameters, optimizer, settings.method.parse()?)?;
    let weights = network.weights();
    if weights.len() != names {
        return Err(format!("{} weights for {names} parameters", weights.len()).into());
    }
    for weight in &weights {
        trainer.set_parameter(&format!("net.{}", weight.name), &weight_values(network, weight))?;
    }
    let mut batches = network.batches();
    if let Network::Cnn { side, .. } = network {
        for batch in &mut batches {
            batch.values = channels_last(&batch.values, COLOURS, side * side);
        }
    }
    let network = network.clone();
    let step = move |number: usize| {
        let Batch { values, tokens, labels } = &batches[number];
        let batch = match &network {
            Network::Mlp { images, features } => {
                [Input::f32([*images, features[0]], values), Input::u32([*images], labels)]
            }
            Network::Cnn { images, side, .. } => {
                [Input::f32([*images, *side, *side, COLOURS], values), Input::u32([*images], labels)]
            }
            Network::Transformer { texts, context, .. } => {
                [Input::u32([*texts, *context], tokens), Input::u32([*texts, *context], labels)]
            }
        };
        let gradients = trainer.backward(batch, |all| net.loss(all))?;
        Ok(trainer.step(gradients)?.loss)
    };
    Ok(PeerTraining { parameters: count, step: Box::new(step) })
}

fn main() -> Result<(), Failure> {
    shared::serve(prepare)
}
