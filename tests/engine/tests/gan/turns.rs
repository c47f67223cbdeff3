//! State of one network that a step of the other must not change; everything else about steps is as usual.

use super::pattern;
use gradscale::{
    Cpu, Init, Input, Method, Parameters, Pass, Trainer, TrainerOptions,
    gradscale_core::{amp::Level, backend::Backend},
    models::{Dcgan, GanSize},
    nn::{BatchNorm, Module},
    optim::{Adam, Optimizer, Schedule, Sgd},
};
use gradscale_conformance::Recorder;
use safetensors::SafeTensors;
use std::collections::BTreeMap;

const SIZE: GanSize = GanSize { noise: 3, width: 2, levels: 1 };

fn cpu() -> Cpu {
    Cpu::new(1).expect("a CPU")
}

fn adam() -> Optimizer {
    let adam = Adam { betas: [0.5, 0.999], weight_decay: 0.01, ..Adam::new(2e-3) };
    Optimizer::from(adam).group("generator", 2e-3, 0.01).group("discriminator", 2e-3, 0.01)
}

fn momentum() -> Optimizer {
    let sgd = Sgd { momentum: 0.9, weight_decay: 0.1, ..Sgd::new(0.05) };
    Optimizer::from(sgd).group("generator", 0.05, 0.1).group("discriminator", 0.05, 0.1)
}

/// Both networks, trained by one method.
struct Pair<B: Backend> {
    trainer: Trainer<B>,
    net: Dcgan,
    images: Vec<f32>,
}

impl<B: Backend> Pair<B> {
    fn new(device: B, optimizer: Optimizer, method: Method) -> Self {
        let mut parameters = Parameters::seeded(3);
        let net = Dcgan::new(&mut parameters, 1, SIZE);
        let trainer = Trainer::new(device, parameters, optimizer, method).expect("a trainer");
        Self {
            trainer: trainer.with_options(TrainerOptions::new().with_statistics_of_each_call()),
            net,
            images: pattern(4 * 8 * 8),
        }
    }

    fn noise(i: usize) -> Vec<f32> {
        pattern(12 * (i + 1))[12 * i..].to_vec()
    }

    /// A step of a network; how often it was repeated.
    fn step(&mut self, network: char, i: usize) -> usize {
        let noise = Self::noise(i);
        let (x, z) = (Input::f32([4, 8, 8, 1], &self.images), Input::f32([4, 1, 1, 3], &noise));
        let net = &self.net;
        let gradients = match network {
            'D' => self.trainer.backward(Pass::new([x, z]).with_loss("D"), |[x, z]| net.discriminator_loss(x, z)),
            _ => self.trainer.backward(Pass::new([z]).with_loss("G"), |[z]| net.generator_loss(z)),
        };
        let outcome = self.trainer.step(gradients.expect("it fits")).expect("a step");
        assert_eq!(outcome.skipped, None);
        outcome.repeated.len()
    }

    fn bytes(&self) -> Vec<u8> {
        self.trainer.save(&BTreeMap::new()).expect("a checkpoint")
    }

    /// Everything that is kept of a network: values, states of the optimizer, running statistics.
    fn kept(&self, network: &str) -> BTreeMap<String, Vec<u8>> {
        let bytes = self.bytes();
        let file = SafeTensors::deserialize(&bytes).expect("a file");
        let own = file.tensors().into_iter().filter(|(name, _)| name.contains(network));
        own.map(|(name, view)| (name, view.data().to_vec())).collect()
    }
}

fn methods() -> Vec<Method> {
    let gs = || "gs".parse::<Method>().expect("a method");
    let levels = [Level::O1, Level::O2, Level::O3].map(|level| Method::mixed().with_level(level));
    [vec![Method::fp32(), gs()], levels.into()].concat()
}

#[test]
fn a_step_leaves_the_other_network_as_it_is() {
    for method in methods() {
        for optimizer in [adam, momentum] {
            let mut pair = Pair::new(cpu(), optimizer(), method.clone());
            // Without masters (O3) a first step rounds the initial values.
            pair.step('D', 7);
            pair.step('G', 7);
            for (i, network) in "DGDDGG".chars().enumerate() {
                let before = ["generator", "discriminator"].map(|name| pair.kept(name));
                pair.step(network, i);
                let after = ["generator", "discriminator"].map(|name| pair.kept(name));
                let moved = |one: usize| {
                    let changed = before[one].iter().filter(|(name, bytes)| after[one][*name] != **bytes);
                    changed.map(|(name, _)| name.clone()).collect::<Vec<String>>()
                };
                let (of_generator, of_discriminator) = (moved(0), moved(1));
                if network == 'D' {
                    assert_eq!(of_generator, [""; 0], "{method:?}");
                    assert!(of_discriminator.contains(&"master.discriminator.main.0.weight".to_owned()));
                } else {
                    // Running statistics follow each call.
                    assert!(of_discriminator.iter().all(|name| name.ends_with("running")), "{of_discriminator:?}");
                    assert!(of_generator.contains(&"master.generator.main.0.weight".to_owned()), "{method:?}");
                    assert!(of_generator.contains(&"master.generator.main.1.running".to_owned()), "{method:?}");
                }
            }
        }
    }
}

/// Networks of two levels have a normalisation in the discriminator; its running statistics follow three batches.
#[test]
fn running_statistics_of_the_discriminator_follow_each_call() {
    let mut pair = Pair::new(cpu(), adam(), Method::fp32());
    let mut parameters = Parameters::seeded(3);
    pair.net = Dcgan::new(&mut parameters, 1, GanSize { levels: 2, ..SIZE });
    pair.images = pattern(4 * 16 * 16);
    pair.trainer = Trainer::new(cpu(), parameters, adam(), Method::fp32())
        .unwrap()
        .with_options(TrainerOptions::new().with_statistics_of_each_call());
    let noise = Pair::<Cpu>::noise(0);
    let z = || Input::f32([4, 1, 1, 3], &noise);
    let running = |pair: &Pair<Cpu>| pair.trainer.parameter("discriminator.main.3.running").unwrap().data;
    let mut seen = vec![running(&pair)];
    let x = Input::f32([4, 16, 16, 1], &pair.images);
    let gradients =
        pair.trainer.backward(Pass::new([x, z()]).with_loss("D"), |[x, z]| pair.net.discriminator_loss(x, z)).unwrap();
    pair.trainer.step(gradients).unwrap();
    seen.push(running(&pair));
    let gradients = pair.trainer.backward(Pass::new([z()]).with_loss("G"), |[z]| pair.net.generator_loss(z)).unwrap();
    pair.trainer.step(gradients).unwrap();
    seen.push(running(&pair));
    assert!(seen.windows(2).all(|two| two[0] != two[1]), "{seen:?}");
}

#[test]
fn each_call_and_each_micro_batch_counts_by_itself_or_all_as_one() {
    // The normalised values have the means 2, 4 and 7.
    let batches = [[1.0, 3.0], [2.0, 6.0], [6.0, 8.0]];
    let run = |each: bool| {
        let mut parameters = Parameters::seeded(1);
        let norm = BatchNorm::new(&mut parameters.at("norm"), 1);
        let trainer = Trainer::new(cpu(), parameters, Sgd::new(0.1), Method::fp32()).unwrap();
        let mut trainer =
            if each { trainer.with_options(TrainerOptions::new().with_statistics_of_each_call()) } else { trainer };
        let input = |i: usize| Input::f32([2, 1], &batches[i]);
        let two = [input(0), input(1)];
        let first = trainer.backward(two, |[x, y]| (norm.forward(x) * norm.forward(y)).mean()).unwrap();
        let second =
            trainer.backward(Pass::new([input(2)]).accumulate(first), |[x]| norm.forward(x).square().mean()).unwrap();
        trainer.step(second).unwrap();
        trainer.parameter("norm.running").unwrap().data
    };
    let near = |found: &[f32], right: [f32; 2]| found.iter().zip(right).all(|(x, y)| (x - y).abs() < 1e-6);
    // Unbiased variances 2, 8 and 2.
    let follow = |from: f32, seen: [f32; 3]| seen.iter().fold(from, |kept, x| 0.9 * kept + 0.1 * x);
    let each = run(true);
    assert!(near(&each, [follow(0.0, [2.0, 4.0, 7.0]), follow(1.0, [2.0, 8.0, 2.0])]), "{each:?}");
    let one = run(false);
    assert!(near(&one, [0.1 * 13.0 / 3.0, 0.9 + 0.1 * 4.0]), "{one:?}");
}

/// Schedules and corrections of a group go by its own steps.
#[test]
fn groups_count_their_own_steps() {
    let mut parameters = Parameters::seeded(1);
    let [one, two] = ["one", "two"].map(|name| parameters.at(name).weight("x", [1], Init::Constant(0.0)));
    let optimizer = Optimizer::from(Sgd::new(1.0)).group("one", 1.0, 0.0).group("two", 1.0, 0.0);
    let optimizer = optimizer.schedule(Schedule::Step { every: 1, factor: 0.5 });
    let mut trainer = Trainer::new(cpu(), parameters, optimizer, Method::fp32()).unwrap();
    for which in [&one, &one, &two, &one] {
        let gradients = trainer.backward([Input::f32([1], &[1.0])], |[x]| x * x.tape().parameter(which)).unwrap();
        trainer.step(gradients).unwrap();
    }
    let values = ["one.x", "two.x"].map(|name| trainer.parameter(name).unwrap().data[0]);
    assert_eq!(values, [-1.75, -1.0]);
    assert_eq!(trainer.steps(), 4);
}

/// A parameter that is a constant in one use and trained in another gets its gradient only from the second.
#[test]
fn a_parameter_may_be_frozen_in_one_place_alone() {
    let mut parameters = Parameters::seeded(1);
    let weight = parameters.at("w").weight("x", [1], Init::Constant(3.0));
    let mut trainer = Trainer::new(cpu(), parameters, Sgd::new(1.0), Method::fp32()).unwrap();
    let gradients = trainer.backward([Input::f32([1], &[5.0])], |[x]| {
        let tape = x.tape();
        let frozen = tape.frozen(|| x * tape.parameter(&weight));
        frozen * tape.parameter(&weight)
    });
    let gradients = gradients.unwrap();
    // d(x·c·w)/dw = x·c = 15, not 2·x·w = 30.
    assert_eq!(trainer.gradient(&gradients, "w.x").unwrap().unwrap().data, [15.0]);
}

fn format(bytes: &[u8]) -> u64 {
    let (_, header) = SafeTensors::read_metadata(bytes).expect("a file");
    let json: serde_json::Value =
        serde_json::from_str(&header.metadata().as_ref().expect("metadata")["gradscale"]).expect("JSON");
    json["format"].as_u64().expect("a number")
}

/// Tests also a resume in the middle of an iteration, on a device that records and on one that does not.
#[test]
fn resumed_or_recorded_it_is_the_same_training() {
    for method in ["gs", "dynamic", "fp32"] {
        let method: Method = method.parse().expect("a method");
        let turns: Vec<char> = "DGDGDDGDGDG".chars().collect();
        let mut whole = Pair::new(Recorder::new(cpu()), adam(), method.clone());
        let mut broken: Option<Pair<Recorder<Cpu>>> = None;
        for (i, &network) in turns.iter().enumerate() {
            whole.step(network, i);
            if let Some(broken) = &mut broken {
                broken.step(network, i);
            }
            if i == 4 {
                let bytes = whole.bytes();
                assert_eq!(format(&bytes), 4, "the groups have had unlike steps");
                let mut pair = Pair::new(Recorder::new(cpu()), adam(), method.clone());
                pair.trainer.load(&bytes).expect("the same training");
                broken = Some(pair);
            }
        }
        let broken = broken.expect("resumed");
        assert!(whole.bytes() == broken.bytes(), "{method:?}: a resumed training differs");
        let mut plain = Pair::new(cpu(), adam(), method.clone());
        plain.trainer = plain.trainer.with_options(TrainerOptions::new().with_recording(false));
        turns.iter().enumerate().for_each(|(i, &network)| assert!(plain.step(network, i) < 3));
        assert!(whole.bytes() == plain.bytes(), "{method:?}: a recorded training differs");
    }
}

/// A checkpoint of an earlier version has one step count for all groups.
#[test]
fn one_number_of_steps_is_that_of_all_groups() {
    let start = || {
        let mut parameters = Parameters::seeded(1);
        let weight = parameters.at("w").weight("x", [2], Init::Constant(1.0));
        let optimizer = Optimizer::from(Adam::new(0.1)).group("w", 0.1, 0.0);
        (Trainer::new(cpu(), parameters, optimizer, Method::fp32()).unwrap(), weight)
    };
    let step = |(trainer, weight): &mut (Trainer<Cpu>, gradscale::Parameter), value: f32| {
        let x = [value, -2.0];
        let gradients = trainer.backward([Input::f32([2], &x)], |[x]| (x * x.tape().parameter(weight)).sum()).unwrap();
        trainer.step(gradients).unwrap();
    };
    let mut one = start();
    (0..3u8).for_each(|i| step(&mut one, f32::from(i)));
    let bytes = one.0.save(&BTreeMap::new()).unwrap();
    // The rest has no weight: it does not count apart.
    assert_eq!(format(&bytes), 3);
    let mut two = start();
    two.0.load(&bytes).unwrap();
    [&mut one, &mut two].into_iter().for_each(|training| step(training, 9.0));
    assert!(one.0.save(&BTreeMap::new()).unwrap() == two.0.save(&BTreeMap::new()).unwrap());
}

/// An overflow in either network's step is repeated, and does not affect the other network.
#[test]
fn a_batch_that_overflows_is_repeated() {
    let mut pair = Pair::new(cpu(), momentum(), "gs:exact".parse().expect("a method"));
    // Weights of the last layer make gradients small, and then far larger than any in the sites' history.
    let name = "discriminator.main.2.weight";
    let times = |pair: &mut Pair<Cpu>, factor: f32| {
        let weights: Vec<f32> = pair.trainer.parameter(name).unwrap().data.iter().map(|x| x * factor).collect();
        pair.trainer.set_parameter(name, &weights).unwrap();
    };
    pair.trainer.set_lr(Some("discriminator"), 0.0).unwrap();
    times(&mut pair, 2f32.powi(-16));
    for i in 0..6 {
        pair.step('D', i);
        pair.step('G', i);
    }
    let generator = pair.kept("generator");
    times(&mut pair, 2f32.powi(32));
    assert!(pair.step('D', 6) > 0, "nothing overflowed in the discriminator's step");
    assert!(pair.kept("generator") == generator);
    let weights = |pair: &Pair<Cpu>| {
        let all = pair.kept("discriminator");
        all.into_iter().filter(|(name, _)| !name.ends_with("running")).collect::<BTreeMap<_, _>>()
    };
    let discriminator = weights(&pair);
    assert!(pair.step('G', 6) > 0, "nothing overflowed in the generator's step");
    assert!(weights(&pair) == discriminator);
}

/// A layer has separate scales in the steps of the two networks.
#[test]
fn sites_of_both_steps_have_scales_of_their_own() {
    let mut pair = Pair::new(cpu(), adam(), "gs".parse().expect("a method"));
    for i in 0..4 {
        pair.step('D', i);
        pair.step('G', i);
    }
    let alphas: BTreeMap<String, i32> = pair.trainer.sites().map(|site| (site.name.to_owned(), site.alpha)).collect();
    let of = |loss: &str| {
        let own = alphas.iter().filter(|(name, _)| name.starts_with(&format!("{loss}:discriminator.")));
        own.map(|(name, alpha)| (name[2..].to_owned(), *alpha)).collect::<BTreeMap<_, _>>()
    };
    let (own, through) = (of("D"), of("G"));
    // In the generator's step gradients propagate to the images too.
    assert!(own.keys().all(|name| through.contains_key(name)) && through.len() > own.len(), "{own:?} {through:?}");
    assert!(own.iter().any(|(name, alpha)| through[name] != *alpha), "{own:?} {through:?}");
    assert!(!alphas.keys().any(|name| name.starts_with("D:generator.")), "{alphas:?}");
}
