//! Parts of a network that the backward pass computes again: the same bits in less memory.

use gradscale::{
    Cpu, CustomGradient, CustomOperator, Input, Method, Parameters, Tape, Trainer, TrainerOptions, Var, forward_sites,
    gradscale_core::amp::{AmpPolicy, Level},
    nn::{BatchNorm, Conv2d, LayerNorm, Linear, Module, SelfAttention},
    optim::Sgd,
};

/// Doubles a value, and returns its gradient times 4.
struct Steep;

impl CustomOperator for Steep {
    fn forward<'t>(&self, inputs: &[Var<'t>]) -> Var<'t> {
        inputs[0].scale(2.0)
    }

    fn backward<'t>(&self, of: CustomGradient<'t>) -> Vec<Var<'t>> {
        vec![of.gradient.scale(4.0)]
    }
}

/// Convolution, batch norm, pooling, attention, dropout, and an operator of a user.
struct Block {
    conv: Conv2d,
    norm: BatchNorm,
    attention: SelfAttention,
    layer_norm: LayerNorm,
    linear: Linear,
}

impl Block {
    fn new(parameters: &mut Parameters, name: &str) -> Self {
        let mut scope = parameters.at(name);
        Self {
            conv: Conv2d::new(&mut scope.at("conv"), 4, 4, 3),
            norm: BatchNorm::new(&mut scope.at("norm"), 4),
            attention: SelfAttention::new(&mut scope.at("attention"), 4, 2),
            layer_norm: LayerNorm::new(&mut scope.at("layer_norm"), 4),
            linear: Linear::new(&mut scope.at("linear"), 4, 4),
        }
    }

    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let [n, h, w, c] = x.shape().sizes();
        let y = self.norm.forward(self.conv.forward(x)).relu();
        let pooled = y.max_pool([2, 2]);
        let y = pooled.unpool(pooled) + y;
        let sequence = self.attention.forward(self.layer_norm.forward(y.reshape([n, 1, h * w, c]))).dropout(0.25);
        let y = x.tape().custom("steep", &Steep, &[sequence.reshape([n, h, w, c])]);
        self.linear.forward(y + x).gelu()
    }
}

/// Which parts are computed again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Parts {
    None,
    /// Each block, and parts of a block inside of it, which have no effect of their own.
    Blocks,
    /// The whole network with its loss.
    Whole,
}

fn loss<'t>(tape: &'t Tape, blocks: &[Block], parts: Parts, [x, target]: [Var<'t>; 2]) -> Var<'t> {
    let block = |x: Var<'t>, block: &Block| match parts {
        Parts::Blocks => tape.recompute(|| tape.recompute(|| block.forward(x)).scale(0.5)),
        Parts::None | Parts::Whole => block.forward(x).scale(0.5),
    };
    let network = || blocks.iter().fold(x, block).mse_loss(target);
    if parts == Parts::Whole { tape.recompute(network) } else { network() }
}

/// Everything that a training leaves behind: losses, outcomes, parameters, and all sites with their counts.
fn train(method: &Method, parts: Parts) -> (Vec<String>, u64) {
    let mut parameters = Parameters::seeded(3);
    let blocks: Vec<Block> = (0..3).map(|i| Block::new(&mut parameters, &format!("block{i}"))).collect();
    let device = Cpu::new(1).expect("a CPU");
    let mut trainer = Trainer::new(device, parameters, Sgd::new(0.05), method.clone()).expect("a trainer");
    trainer = trainer.with_options(TrainerOptions::new().with_skip_limit(0));
    let mut left = Vec::new();
    for step in 0..5 {
        // Activations of the third step exceed 65504 in half.
        let size = if step == 2 { 3e4 } else { 1.0 };
        let x: Vec<f32> = (0..2 * 8 * 8 * 4).map(|i| (((i * i + step) % 37) as f32 / 18.0 - 1.0) * size).collect();
        let target: Vec<f32> = x.iter().map(|x| x * 0.25).collect();
        let batch = [Input::f32([2, 8, 8, 4], &x), Input::f32([2, 8, 8, 4], &target)];
        let gradients = trainer.backward(batch, |all| loss(all[0].tape(), &blocks, parts, all)).expect("it fits");
        let outcome = trainer.step(gradients).expect("a step");
        left.push(format!("{:?}", (outcome.loss.to_bits(), outcome.skipped, outcome.repeated)));
        left.extend(trainer.sites().chain(forward_sites(&trainer)).map(|site| format!("{site:?}")));
    }
    for (name, tensor) in trainer.parameters().expect("parameters") {
        let bits: Vec<u32> = tensor.data.iter().map(|x| x.to_bits()).collect();
        left.push(format!("{name} {bits:?}"));
    }
    (left, trainer.memory().activations)
}

#[test]
fn the_same_bits_in_less_memory() {
    for (method, level) in [
        ("fp32", Level::O0),
        ("dynamic", Level::O1),
        ("gs", Level::O2),
        ("gs:exact", Level::O1),
        ("gs:exact:forward=on", Level::O2),
        ("amax", Level::O1),
    ] {
        let method = method.replace("exact:", "exact,").parse::<Method>();
        let method = method.expect("a method").with_amp(AmpPolicy::new(level));
        let (plain, most) = train(&method, Parts::None);
        for parts in [Parts::Blocks, Parts::Whole] {
            let (found, memory) = train(&method, parts);
            for (found, right) in found.iter().zip(&plain) {
                assert_eq!(found, right, "{method:?} {parts:?}");
            }
            assert_eq!(found.len(), plain.len(), "{method:?} {parts:?}");
            println!("{level:?} {parts:?}: {memory} of {most} bytes");
            // One part has all values, so there is nothing to gain.
            assert!(parts == Parts::Whole || 4 * memory < 3 * most, "{method:?} {parts:?}: {memory} of {most} bytes");
        }
    }
}
