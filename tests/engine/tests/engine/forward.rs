//! Exponents of forward stores: activations beyond half train as in f32, every operator computes the same at any
//! exponent, and without an overflow nothing changes.

use crate::{
    gradients::{all_with_gradients, distance, lists},
    run::Run,
};
use gradscale::{
    Cause, Cpu, ForwardScaling, GradientScaling, Init, Input, Method, Parameter, Parameters, StepOutcome, Trainer,
    TrainerOptions, Var,
    distributed::{Group, Threads},
    forward_sites,
    gradscale_core::amp::{AmpPolicy, Level},
    gradscale_core::backend::DType,
    nn::{Conv2d, Linear, Module, RmsNorm},
    optim::Sgd,
};
use std::{collections::BTreeMap, thread};

fn scaled_forward() -> Method {
    Method::gradient_scaling(GradientScaling::exact().with_forward(ForwardScaling::On))
}

/// With exponents from the first step on, each gradient has the error bound of its stores.
fn check_operators(policy: AmpPolicy, stores_per_node: usize) -> usize {
    let method = scaled_forward().with_amp(policy.clone());
    let mut exponents = 0;
    for (name, graph, right) in all_with_gradients() {
        let mut run = Run::new(Cpu::new(1).expect("a CPU"), &graph, Sgd::new(0.0).into(), &method);
        let gradients = run.backward().expect("the graph fits");
        let found = run.gradients(&gradients);
        let ran = run.trainer.ran(&gradients).expect("just run");
        let halves = ran.iter().filter(|row| row.stored == Some(DType::F16)).count();
        assert_eq!(run.trainer.step(gradients).expect("a step").skipped, None, "{name}");
        let stores = halves + run.trainer.sites().count();
        exponents += forward_sites(&run.trainer).filter(|site| site.alpha != 0).count();
        let distance = distance(&found, right);
        let share = distance / (2f64.powi(-11) * (stores_per_node * stores + 1) as f64);
        assert!(share < 0.5, "{name}: {distance:e} with {stores} stores, {policy:?}");
    }
    exponents
}

#[test]
fn every_operator_has_the_same_gradient_at_other_exponents() {
    for level in [Level::O1, Level::O2] {
        let exponents = check_operators(AmpPolicy::new(level), 1);
        println!("{level:?}: {exponents} exponents");
        assert!(exponents > 40, "operators are tested at exponents");
    }
    for seed in 1..=2 {
        let level = if seed % 2 == 0 { Level::O1 } else { Level::O2 };
        let exponents = check_operators(lists(level, seed), 2);
        println!("{seed}: {exponents} exponents");
        assert!(exponents > 40, "operators are tested at exponents");
    }
}

/// Networks whose activations exceed half, as in the failures of FP16 that people report.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Network {
    /// Feed-forward blocks with a residual, as in T5: their result grows to 10^6.
    FeedForward,
    /// Convolutions with a skip connection and without norms, as in a VAE.
    Unet,
    /// Squares in half, of a norm that a user wrote.
    Squares,
}

const NETS: [Network; 3] = [Network::FeedForward, Network::Unet, Network::Squares];
const CLASSES: usize = 3;

struct Training {
    net: Network,
    trainer: Trainer<Cpu>,
    layers: Vec<Linear>,
    convs: Vec<Conv2d>,
    norm: Option<RmsNorm>,
    ones: Parameter,
}

impl Training {
    fn new(net: Network, method: &str) -> Self {
        let mut all = Parameters::seeded(3);
        let ones = all.at("ones").constant("weight", [1, 16], &[1.0; 16]);
        let linear =
            |all: &mut Parameters, name: &str, from: usize, to: usize| Linear::new(&mut all.at(name), from, to);
        let mut layers = Vec::new();
        let mut convs = Vec::new();
        let norm = (net == Network::FeedForward).then(|| RmsNorm::new(&mut all.at("norm"), 16));
        let large: &[&str] = match net {
            Network::FeedForward => {
                layers.extend([linear(&mut all, "in", 16, 16), linear(&mut all, "wi", 16, 32)]);
                layers.push(linear(&mut all, "wo", 32, 16));
                &["wi.weight", "wo.weight"]
            }
            Network::Unet => {
                convs.push(Conv2d::new(&mut all.at("down"), 4, 8, 3).pad([1, 1]));
                convs.push(Conv2d::new(&mut all.at("middle"), 8, 8, 3).pad([1, 1]));
                convs.push(Conv2d::new(&mut all.at("up"), 16, 16, 1));
                &["down.weight", "middle.weight"]
            }
            Network::Squares => {
                layers.push(linear(&mut all, "in", 16, 16));
                &["in.weight", "in.bias"]
            }
        };
        layers.push(linear(&mut all, "head", 16, CLASSES));
        let method: Method = method.parse().expect("a method");
        let trainer = Trainer::new(Cpu::new(1).expect("a CPU"), all, Sgd::new(0.02), method).expect("a trainer");
        let mut trainer = trainer.with_options(TrainerOptions::new().with_skip_limit(0));
        for name in large {
            let values = trainer.parameter(name).expect("a parameter").data;
            let values: Vec<f32> = values.iter().map(|x| x * 2000.0).collect();
            trainer.set_parameter(name, &values).expect("a parameter");
        }
        Self { net, trainer, layers, convs, norm, ones }
    }

    /// Eight samples; there are two such batches.
    fn batch(step: usize) -> (Vec<f32>, Vec<u8>) {
        let step = step % 2;
        let x = (0..8 * 16).map(|i| ((i * 37 + step * 11) % 29) as f32 / 8.0 - 1.5).collect();
        (x, (0..8).map(|i| ((i + step) % CLASSES) as u8).collect())
    }

    fn step(&mut self, step: usize) -> StepOutcome {
        let (x, labels) = Self::batch(step);
        let batch = [Input::f32([8, 2, 2, 4], &x), Input::u8([8], &labels)];
        let Self { net, trainer, layers, convs, norm, ones } = self;
        let gradients = trainer
            .backward(batch, |[x, labels]| forward(*net, layers, convs, norm.as_ref(), ones, x).cross_entropy(labels));
        trainer.step(gradients.expect("the network fits")).expect("a step")
    }

    fn logits(&mut self, step: usize) -> Vec<f32> {
        let (x, _) = Self::batch(step);
        let Self { net, trainer, layers, convs, norm, ones } = self;
        let logits = trainer.evaluate([Input::f32([8, 2, 2, 4], &x)], |[x]| {
            forward(*net, layers, convs, norm.as_ref(), ones, x).output("hidden")
        });
        logits.expect("the network fits").data
    }

    fn bits(&self) -> Vec<Vec<u32>> {
        let all = self.trainer.parameters().expect("parameters");
        all.into_iter().map(|(_, tensor)| tensor.data.into_iter().map(f32::to_bits).collect()).collect()
    }
}

fn forward<'t>(
    net: Network, layers: &[Linear], convs: &[Conv2d], norm: Option<&RmsNorm>, ones: &Parameter, x: Var<'t>,
) -> Var<'t> {
    let head = layers.last().expect("a head");
    match net {
        Network::FeedForward => {
            let h = layers[0].forward(x.reshape([8, 16]));
            let h = h + layers[2].forward(layers[1].forward(h).relu());
            head.forward(norm.expect("a norm").forward(h))
        }
        Network::Unet => {
            let down = convs[0].forward(x).relu();
            let middle = convs[1].forward(down.max_pool([1, 1])).relu();
            let up = convs[2].forward(down.concat(&[middle], 3)).relu();
            head.forward(up.average_pool([2, 2]).reshape([8, 16]) * (1.0 / 4194304.0))
        }
        Network::Squares => {
            let h = layers[0].forward(x.reshape([8, 16]));
            let squares = (h * h).linear("squares", h.tape().parameter(ones), None);
            head.forward(h * (squares * (1.0 / 16.0) + 1e-6).pow(-0.5))
        }
    }
}

#[test]
fn activations_beyond_half_train_as_in_f32() {
    for net in NETS {
        let mut single = Training::new(net, "fp32");
        let losses: Vec<f32> = (0..30).map(|step| single.step(step).loss).collect();
        for method in ["gs:forward=repeat", "gs:forward=on", "gs:forward=repeat,amp=O2", "gs:forward=on,amp=O2"] {
            let mut half = Training::new(net, method);
            let mut repeats = 0;
            for (step, single) in losses.iter().enumerate() {
                let outcome = half.step(step);
                assert_eq!(outcome.skipped, None, "{net:?} {method} {step}");
                repeats += outcome.repeated.len();
                let distance = (outcome.loss - single).abs() / single;
                // Roundings of 2^-11 at each store, next to a loss near 1.
                assert!(distance < 0.02, "{net:?} {method} {step}: {} instead of {single}", outcome.loss);
            }
            println!("{net:?} {method}: {repeats} repeats, loss {} to {}", losses[0], losses[28]);
            assert!(losses[28] < losses[0], "{net:?} learns: {} to {}", losses[0], losses[28]);
            // Also where no gradient shows the first overflow: ∞ in 1/√x is 0.
            assert!(
                if method.contains("repeat") { (1..=2).contains(&repeats) } else { repeats == 0 },
                "{net:?} {method}: {repeats} repeats"
            );
            let largest = forward_sites(&half.trainer).filter_map(|site| site.log2_amax).fold(0.0, f64::max);
            assert!(largest > 16.0, "{net:?}: 2^{largest}");
            assert!(forward_sites(&half.trainer).any(|site| site.alpha < 0), "{net:?} {method}");
            // Evaluation stores at the exponents of the training.
            let (own, single) = (half.logits(5), single.logits(5));
            for (own, single) in own.iter().zip(&single) {
                assert!((own - single).abs() < 0.05, "{net:?} {method}: {own} instead of {single}");
            }
        }
        for method in ["gs:forward=off", "dynamic", "fixed:1"] {
            if net == Network::Squares {
                continue;
            }
            let mut half = Training::new(net, method);
            for step in 0..5 {
                let skipped = half.step(step).skipped.expect("an overflow that this method does not cure");
                assert_eq!(skipped.cause, Cause::NotFinite, "{net:?} {method}");
                assert!(skipped.site.expect("it is found").0.ends_with("/forward"), "{net:?} {method}");
            }
        }
    }
}

/// Layers around an activation of 2^`shift` times the magnitude: all roundings are the same.
fn shifted(method: &str, shift: i32) -> (Vec<u32>, Vec<i32>) {
    let mut all = Parameters::seeded(5);
    let layers = [("one", 16, 16), ("two", 16, 16), ("head", 16, CLASSES)];
    let layers = layers.map(|(name, from, to)| Linear::new(&mut all.at(name), from, to));
    let gain = all.at("gain").weight("weight", [16], Init::Constant(1.0));
    let method: Method = method.parse().expect("a method");
    let mut trainer = Trainer::new(Cpu::new(1).expect("a CPU"), all, Sgd::new(0.1), method).expect("a trainer");
    for name in ["one.weight", "one.bias"] {
        let values = trainer.parameter(name).expect("a parameter").data;
        let values: Vec<f32> = values.iter().map(|x| x * 2f32.powi(shift)).collect();
        trainer.set_parameter(name, &values).expect("a parameter");
    }
    let (x, labels) = Training::batch(0);
    let x: Vec<f32> = x.iter().map(|x| x * 16.0).collect();
    let mut bits = Vec::new();
    let batch = [Input::f32([8, 16], &x), Input::u8([8], &labels)];
    let gradients = trainer.backward(batch, |[x, labels]| {
        let [one, two, head] = &layers;
        let large = one.forward(x).relu();
        let joined = (large + large.leaky_relu(0.5)) * 2f32.powi(-shift);
        let gained = two.forward(joined) * joined.tape().parameter(&gain);
        head.forward(gained + joined).cross_entropy(labels)
    });
    let gradients = gradients.expect("the network fits");
    for name in ["one.weight", "one.bias", "two.weight", "two.bias", "gain.weight", "head.weight"] {
        let gradient = trainer.gradient(&gradients, name).expect("a parameter").expect("a gradient").data;
        let back = if name.starts_with("one") { shift } else { 0 };
        bits.extend(gradient.into_iter().map(|x| (x * 2f32.powi(back)).to_bits()));
    }
    let outcome = trainer.step(gradients).expect("a step");
    assert_eq!(outcome.skipped, None);
    bits.push(outcome.loss.to_bits());
    let exponents = forward_sites(&trainer).map(|site| site.alpha).collect();
    (bits, exponents)
}

#[test]
fn a_shift_of_activations_changes_no_bit() {
    let (plain, _) = shifted("gs:forward=off", 0);
    let (own, first) = shifted("gs:forward=on", 0);
    assert_eq!(own, plain);
    for shift in [4, 10, 14] {
        let (bits, exponents) = shifted("gs:forward=on", shift);
        assert_eq!(bits, plain, "2^{shift}");
        let moved = first.iter().zip(&exponents).filter(|(first, now)| *first - *now == shift).count();
        assert!(moved >= 3, "2^{shift}: {first:?} {exponents:?}");
    }
}

#[test]
fn without_an_overflow_no_bit_and_no_byte_differs() {
    for net in NETS {
        let mut both = ["gs:forward=off", "gs:forward=repeat"].map(|method| Training::new(net, method));
        for training in &mut both {
            for name in ["in.weight", "in.bias", "wi.weight", "wo.weight", "down.weight", "middle.weight"] {
                if let Ok(tensor) = training.trainer.parameter(name) {
                    let values: Vec<f32> = tensor.data.iter().map(|x| x / 2000.0).collect();
                    training.trainer.set_parameter(name, &values).expect("a parameter");
                }
            }
        }
        let [off, repeat] = &mut both;
        for step in 0..12 {
            assert_eq!(off.step(step), repeat.step(step), "{net:?}");
        }
        assert_eq!((off.bits(), off.trainer.memory()), (repeat.bits(), repeat.trainer.memory()), "{net:?}");
        assert!(forward_sites(&repeat.trainer).all(|site| site.alpha == 0), "{net:?}");
        // Checkpoints from before this option are those of `off`, and either can be resumed as the other.
        let saved = [&*off, &*repeat].map(|training| training.trainer.save(&BTreeMap::new()).expect("a checkpoint"));
        assert_eq!(saved[0], saved[1], "{net:?}");
        repeat.trainer.load(&saved[0]).expect("the same settings");
        assert_eq!(off.step(12), repeat.step(12), "{net:?}");
    }
}

#[test]
fn a_checkpoint_keeps_exponents_of_activations() {
    for method in ["gs:forward=repeat", "gs:forward=on"] {
        let mut through = Training::new(Network::Unet, method);
        (0..7).for_each(|step| drop(through.step(step)));
        let saved = through.trainer.save(&BTreeMap::new()).expect("a checkpoint");
        let mut resumed = Training::new(Network::Unet, method);
        resumed.trainer.load(&saved).expect("its own checkpoint");
        for step in 7..20 {
            let (one, other) = (through.step(step), resumed.step(step));
            assert_eq!(one, other, "{method} {step}");
            assert_eq!(one.repeated.len(), 0, "{method} {step}");
        }
        assert_eq!(through.bits(), resumed.bits(), "{method}");
    }
}

/// Several micro-batches have programs of their own, which the first repeat compiles again.
#[test]
fn micro_batches_repeat_together() {
    let mut single = Training::new(Network::FeedForward, "fp32");
    let mut half = Training::new(Network::FeedForward, "gs:forward=repeat");
    for step in 0..10 {
        let mut losses = Vec::new();
        for training in [&mut single, &mut half] {
            let Training { net, trainer, layers, convs, norm, ones } = training;
            let outcome = trainer.step_with(|trainer| {
                let mut gradients = None;
                for part in 0..2 {
                    let (x, labels) = Training::batch(2 * step + part);
                    let batch = [Input::f32([8, 2, 2, 4], &x), Input::u8([8], &labels)];
                    let mut pass = gradscale::Pass::new(batch);
                    if let Some(gradients) = gradients {
                        pass = pass.accumulate(gradients);
                    }
                    gradients = Some(trainer.backward(pass, |[x, labels]| {
                        forward(*net, layers, convs, norm.as_ref(), ones, x).cross_entropy(labels) * 0.5
                    })?);
                }
                Ok(gradients.expect("two parts"))
            });
            let outcome = outcome.expect("a step");
            assert_eq!(outcome.skipped, None, "{step}");
            losses.push(outcome.loss);
        }
        assert!((losses[0] - losses[1]).abs() < 0.02 * losses[0], "{step}: {losses:?}");
    }
}

/// Trains on logits with a mask of −10^38, whose store in half is −∞ by intention. Returns the losses, and the number of
/// repeats in each step.
fn train_masked(method: &str, steps: usize, checkpoint: Option<usize>) -> (Vec<f32>, Vec<usize>) {
    let new = || {
        let mut all = Parameters::seeded(9);
        let head = Linear::new(&mut all.at("head"), 16, CLASSES);
        let method: Method = method.parse().expect("a method");
        (head, Trainer::new(Cpu::new(1).expect("a CPU"), all, Sgd::new(0.05), method).expect("a trainer"))
    };
    let (mut head, mut trainer) = new();
    let mask = [0.0, 0.0, -1e38].repeat(8);
    let (mut losses, mut repeats) = (Vec::new(), Vec::new());
    for step in 0..steps {
        if checkpoint == Some(step) {
            let saved = trainer.save(&BTreeMap::new()).expect("a checkpoint");
            (head, trainer) = new();
            trainer.load(&saved).expect("its own checkpoint");
        }
        let x = Training::batch(step).0;
        let labels: Vec<u8> = (0..8).map(|i| ((i + step) % 2) as u8).collect();
        let batch = [Input::f32([8, 16], &x), Input::f32([8, CLASSES], &mask), Input::u8([8], &labels)];
        let gradients = trainer.backward(batch, |[x, mask, labels]| (head.forward(x) + mask).cross_entropy(labels));
        let outcome = trainer.step(gradients.expect("the network fits")).expect("a step");
        assert_eq!(outcome.skipped, None, "{method} {step}");
        losses.push(outcome.loss);
        repeats.push(outcome.repeated.len());
    }
    (losses, repeats)
}

/// A mask overflows in every step, whatever its exponent. It costs one repeat, and blocks no later update.
#[test]
fn a_mask_that_stays_infinite_blocks_no_later_step() {
    let (single, _) = train_masked("fp32", 8, None);
    for method in ["gs:forward=repeat,amp=O2", "gs:forward=on,amp=O2"] {
        let (losses, repeats) = train_masked(method, 8, None);
        for (half, single) in losses.iter().zip(&single) {
            assert!((half - single).abs() < 0.01 * single, "{method}: {losses:?} instead of {single:?}");
        }
        assert_eq!(repeats, [1, 0, 0, 0, 0, 0, 0, 0], "{method}");
        assert_eq!(train_masked(method, 8, Some(3)), (losses, repeats), "{method}: a checkpoint remembers the mask");
    }
}

/// An overflow that gradients do not show repeats its batch, also later in a training.
#[test]
fn a_hidden_overflow_repeats_its_batch() {
    for method in ["gs:forward=repeat", "gs:forward=on"] {
        let [mut half, mut single] = [method, "fp32"].map(|method| Training::new(Network::Squares, method));
        for step in 0..6 {
            if step == 3 {
                for training in [&mut half, &mut single] {
                    let values = training.trainer.parameter("in.weight").expect("a parameter").data;
                    let values: Vec<f32> = values.iter().map(|x| x * 30.0).collect();
                    training.trainer.set_parameter("in.weight", &values).expect("a parameter");
                }
            }
            let (half, single) = (half.step(step), single.step(step));
            assert_eq!(half.skipped, None, "{method} {step}");
            assert!((half.loss - single.loss).abs() < 0.02 * single.loss, "{method} {step}: {half:?} {single:?}");
            // With `on`, the first step has decided its exponents, and they leave enough space for the other.
            let is_repeated = method.contains("repeat") && (step == 0 || step == 3);
            assert_eq!(half.repeated.len(), usize::from(is_repeated), "{method} {step}: {half:?}");
        }
    }
}

#[test]
fn a_value_that_no_exponent_cures_is_left_out_by_name() {
    let mut training = Training::new(Network::FeedForward, "gs:forward=repeat");
    assert_eq!(training.step(0).skipped, None);
    // Half copies of weights have no exponent.
    let weights = training.trainer.parameter("wo.weight").expect("a parameter").data;
    training.trainer.set_parameter("wo.weight", &vec![1e5; weights.len()]).expect("a parameter");
    let skipped = training.step(1).skipped.expect("a weight of half that is ∞");
    assert_eq!(skipped.site.expect("a site").0, "wo/forward");
    training.trainer.set_parameter("wo.weight", &weights).expect("a parameter");
    assert_eq!(training.step(2).skipped, None);
}

/// Each of seven calls of one layer multiplies by 2^16, so no common exponent fits them.
#[test]
fn an_overflow_that_outlasts_all_repeats_is_left_out_by_name() {
    let mut all = Parameters::seeded(1);
    let cell = Linear::new(&mut all.at("cell"), 16, 16);
    let method: Method = "gs".parse().expect("a method");
    let mut trainer = Trainer::new(Cpu::new(1).expect("a CPU"), all, Sgd::new(0.0), method).expect("a trainer");
    for (weight, cause) in [(4096.0, Some(Cause::Repeats)), (0.05, None)] {
        trainer.set_parameter("cell.weight", &[weight; 256]).expect("a parameter");
        let gradients = trainer.backward([Input::f32([2, 16], &[0.5; 32])], |[x]| {
            let last = (0..7).fold(x, |x, _| cell.forward(x));
            (last * 2f32.powi(-100)).mean()
        });
        let outcome = trainer.step(gradients.expect("the network fits")).expect("a step");
        assert_eq!(outcome.skipped.as_ref().map(|skipped| skipped.cause), cause, "{outcome:?}");
        if let Some(skipped) = &outcome.skipped {
            assert_eq!(outcome.repeated.len(), 3, "{outcome:?}");
            let text = skipped.to_string();
            let said = "; cell/forward overflowed at 2^0: keep this layer in f32: f32=cell, after three repeats";
            assert!(text.ends_with(said), "{text}");
        }
    }
}

#[test]
fn other_rules_refuse_exponents_of_activations() {
    let message = |text: &str| text.parse::<Method>().expect_err("not a method").to_string();
    assert_eq!(
        message("gs:history=0,forward=on"),
        "method gs:history=0,forward=on: exponents of forward stores need history=ring, which repeats batches"
    );
    assert!(message("gs:paper,forward=on").contains("paper has no option forward"));
    assert!(message("gs:forward=maybe").contains("forward must be on, repeat or off, not maybe"));
    assert_eq!("gs:forward=on".parse::<Method>().expect("a method").to_string(), "gs:forward=on");
}

/// Ranks decide alike from merged rows, change programs together, and have the same weights.
#[test]
fn ranks_change_programs_together() {
    for (network, method) in [
        (Network::FeedForward, "gs:forward=repeat"),
        (Network::FeedForward, "gs:forward=on"),
        (Network::Squares, "gs:forward=repeat"),
    ] {
        let groups = Threads::world(2);
        let train = |rank: Threads| {
            let Training { net, trainer, layers, convs, norm, ones } = Training::new(network, method);
            let mut trainer = trainer.join_group(Group::new(rank)).expect("a group");
            let mut repeats = 0;
            for step in 0..6 {
                let outcome = trainer.step_micro_batches(4, |trainer, part| {
                    let (x, labels) = Training::batch(4 * step + part as usize);
                    let batch = [Input::f32([8, 2, 2, 4], &x), Input::u8([8], &labels)];
                    trainer.backward(batch, |[x, labels]| {
                        forward(net, &layers, &convs, norm.as_ref(), &ones, x).cross_entropy(labels)
                    })
                });
                let outcome = outcome.unwrap_or_else(|error: gradscale::Error<_>| panic!("{error}"));
                assert_eq!(outcome.skipped, None, "{method} {step}");
                repeats += outcome.repeated.len();
            }
            let exponents: Vec<i32> = forward_sites(&trainer).map(|site| site.alpha).collect();
            (repeats, exponents, trainer.parameters().expect("parameters"))
        };
        let trained: Vec<_> = thread::scope(|scope| {
            let ranks: Vec<_> = groups.into_iter().map(|rank| scope.spawn(|| train(rank))).collect();
            ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect()
        });
        assert!(trained[0] == trained[1], "{method}: {:?} and {:?}", trained[0].1, trained[1].1);
        assert!(trained[0].1.iter().any(|&alpha| alpha < 0), "{method}: {:?}", trained[0].1);
        assert_eq!(trained[0].0 > 0, method.ends_with("repeat"), "{method}");
    }
}

/// A model with halves has no infinite weight: a parameter that does not fit stays in f32.
#[test]
fn a_model_with_halves_keeps_weights_that_do_not_fit() {
    let mut parameters = Parameters::seeded(1);
    let layer = Linear::new(&mut parameters.at("layer"), 2, 2);
    let mut trainer =
        Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(0.1), Method::mixed()).expect("a trainer");
    let mut export = |weights: [f32; 4]| {
        trainer.set_parameter("layer.weight", &weights).expect("a shape");
        let inputs = [Input::f32([1, 2], &[0.0; 2])];
        trainer.onnx(inputs, true, |[x]| layer.forward(x)).expect("a model")
    };
    let contains = |model: &[u8], weight: f32| model.windows(4).any(|bytes| bytes == weight.to_le_bytes());
    let (large, small) = (export([1e5, 0.3, 0.3, 0.3]), export([6e4, 0.3, 0.3, 0.3]));
    assert!(contains(&large, 1e5) && !contains(&small, 6e4));
}
