//! Data-parallel training: any number of ranks gives the same bits.

mod ahead;

use gradscale::{
    Cpu, Error, Gradients, Input, Method, Parameters, Pass, StepOutcome, Trainer, TrainerOptions,
    distributed::{BatchNormScope, Group, Overlap, ReduceMode, Threads},
    models::{Decoder, DecoderSize, SegNet},
    nn::Module,
    optim::{Adafactor, Adam, Optimizer, Sgd},
};
use std::{collections::BTreeMap, hash, hash::BuildHasher, thread};

/// Parts of a step.
const PARTS: u32 = 12;
const WORLDS: [usize; 4] = [2, 3, 4, 6];

#[derive(Clone, Copy, Debug)]
enum Net {
    Segnet,
    Transformer,
}

enum Built {
    Segnet(SegNet),
    Transformer(Decoder),
}

/// Settings of a training.
#[derive(Clone, Copy, Debug)]
struct Told {
    net: Net,
    method: &'static str,
    recorded: bool,
    /// Factor of the losses of some steps, for one micro-batch only.
    large: f32,
    exchange: ReduceMode,
    /// Overlap of communication with the backward pass, if there are several ranks.
    overlap: Overlap,
    batch_norm: BatchNormScope,
    parts: u32,
    /// True if the optimizer is sharded.
    sharded: bool,
    /// True if the optimizer is Adafactor, whose states have other shapes than the weights.
    factored: bool,
}

/// Small buckets: networks are small.
const USUAL: Told = Told {
    net: Net::Segnet,
    method: "gs",
    recorded: true,
    large: 1.0,
    exchange: ReduceMode::ExactF16,
    overlap: Overlap::BucketSize(500),
    batch_norm: BatchNormScope::Rank,
    parts: PARTS,
    sharded: false,
    factored: false,
};

struct Training {
    net: Built,
    trainer: Trainer<Cpu>,
    large: f32,
    parts: u32,
}

impl Training {
    fn new(told: Told, group: Group) -> Result<Self, Error> {
        // Ranks need not begin with the same weights.
        let mut parameters = Parameters::seeded(group.rank() as u64);
        let scope = &mut parameters.at("net");
        let (net, optimizer): (_, Optimizer) = match told.net {
            Net::Segnet => (Built::Segnet(SegNet::new(scope, 3, 4, 4)), Sgd { momentum: 0.9, ..Sgd::new(0.05) }.into()),
            Net::Transformer => {
                let size = DecoderSize { context: 8, width: 16, heads: 2, layers: 1, dropout: 0.1 };
                let optimizer = if told.factored { Adafactor::new(0.01).into() } else { Adam::new(0.003).into() };
                (Built::Transformer(Decoder::new(scope, 11, size)), optimizer)
            }
        };
        let method: Method = told.method.parse().expect("a method");
        let trainer = Trainer::new(Cpu::new(1)?, parameters, optimizer, method)?;
        let trainer = trainer.with_options(
            TrainerOptions::new().with_recording(told.recorded).with_skip_limit(0).with_reduce_mode(told.exchange),
        );
        // Averages of the weights, which a sharded optimizer does not divide.
        let trainer = match told.net {
            Net::Segnet => trainer,
            Net::Transformer => trainer.with_options(TrainerOptions::new().with_weight_average(0.9)),
        };
        let trainer =
            if told.sharded { trainer.with_options(TrainerOptions::new().with_sharded_optimizer()) } else { trainer };
        let trainer = trainer
            .with_options(TrainerOptions::new().with_overlap(told.overlap).with_batch_norm_scope(told.batch_norm))
            .join_group(group)?;
        Ok(Self { net, trainer, large: told.large, parts: told.parts })
    }

    fn step(&mut self, step: u32) -> Result<StepOutcome, Error> {
        let (net, large, parts) = (&self.net, self.large, self.parts);
        self.trainer.step_micro_batches(parts, |trainer, part| {
            let factor = if step % 5 == 3 && part == 7 { large } else { 1.0 };
            backward(net, trainer, step * parts + part, factor)
        })
    }

    fn saved(&self) -> Vec<u8> {
        self.trainer.save(&BTreeMap::new()).expect("a checkpoint")
    }
}

fn backward(net: &Built, trainer: &mut Trainer<Cpu>, seed: u32, factor: f32) -> Result<Gradients, Error> {
    let number = |k: u32| k.wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(0x9E37_79B9)) >> 13;
    match net {
        Built::Segnet(net) => {
            let images: Vec<u8> = (0..16 * 16 * 3).map(|k| (number(k) % 251) as u8).collect();
            let labels: Vec<u8> = (0..16 * 16).map(|k: u32| ((k / 50 + seed) % 4) as u8).collect();
            let batch = [Input::u8([1, 16, 16, 3], &images), Input::u8([1, 16, 16, 1], &labels)];
            trainer.backward(batch, |[x, labels]| net.forward(x).dropout(0.1).cross_entropy(labels).scale(factor))
        }
        Built::Transformer(net) => {
            let tokens: Vec<u32> = (0..2 * 9).map(|k| number(k) % 11).collect();
            let row = |at: usize| [&tokens[at..at + 8], &tokens[at + 9..at + 17]].concat();
            let (tokens, targets) = (row(0), row(1));
            let batch = [Input::u32([2, 8], &tokens), Input::u32([2, 8], &targets)];
            trainer.backward(batch, |[tokens, targets]| net.logits(tokens).cross_entropy(targets).scale(factor))
        }
    }
}

/// Results of a group of ranks.
#[derive(Clone, Debug, PartialEq)]
struct Ended {
    losses: Vec<u32>,
    taken: Vec<(bool, usize)>,
    checkpoint: Vec<u8>,
}

fn run(told: Told, group: Group, steps: u32) -> Result<Ended, Error> {
    let mut training = Training::new(told, group)?;
    let mut result = Ended { losses: Vec::new(), taken: Vec::new(), checkpoint: Vec::new() };
    for step in 0..steps {
        let outcome = training.step(step)?;
        result.losses.push(outcome.loss.to_bits());
        result.taken.push((outcome.skipped.is_some(), outcome.repeated.len()));
    }
    result.checkpoint = training.saved();
    Ok(result)
}

/// Each rank's answer, by rank.
fn world<T: Send + 'static>(size: usize, rank: impl Fn(Group) -> T + Clone + Send + 'static) -> Vec<T> {
    let ranks: Vec<_> = Threads::world(size)
        .into_iter()
        .map(|communicator| {
            let rank = rank.clone();
            thread::spawn(move || rank(Group::new(communicator)))
        })
        .collect();
    ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect()
}

/// Checks that groups of all these sizes have the results of a single rank.
fn same(told: Told, worlds: &[usize], steps: u32) -> Ended {
    let alone = run(told, Group::single_rank(), steps).expect("one rank");
    for &size in worlds {
        for (rank, result) in world(size, move |group| run(told, group, steps)).into_iter().enumerate() {
            let result = result.expect("a training");
            assert_eq!(result.losses, alone.losses, "{told:?}, rank {rank} of {size}");
            assert_eq!(result.taken, alone.taken, "{told:?}, rank {rank} of {size}");
            assert!(result.checkpoint == alone.checkpoint, "{told:?}, rank {rank} of {size}: another checkpoint");
        }
    }
    alone
}

#[test]
fn any_number_of_ranks_gives_the_same_checkpoint() {
    // GRADSCALE_STEPS requests more steps, for all group sizes.
    let asked = std::env::var("GRADSCALE_STEPS").ok().and_then(|steps| steps.parse().ok());
    let (steps, eagerly) = asked.map_or((12, &WORLDS[..1]), |steps| (steps, &WORLDS[..]));
    for net in [Net::Segnet, Net::Transformer] {
        let recorded = same(Told { net, ..USUAL }, &WORLDS, steps);
        let eager = same(Told { net, recorded: false, ..USUAL }, eagerly, steps);
        assert!(recorded == eager, "{net:?}");
        let hash = hash::BuildHasherDefault::<hash::DefaultHasher>::default().hash_one(&recorded.checkpoint);
        println!("{net:?}: {steps} steps by 1 and {WORLDS:?} ranks, eagerly by 1 and {eagerly:?}: {hash:016x}");
        assert!(recorded.taken.iter().all(|&(skipped, _)| !skipped));
        let loss = |at: usize| f32::from_bits(recorded.losses[at]);
        let last = recorded.losses.len() - 1;
        assert!(loss(last) < 0.97 * loss(0), "{net:?} learns: {} to {}", loss(0), loss(last));
    }
}

#[test]
fn whatever_the_method() {
    for method in ["fp32", "dynamic", "gs:paper", "gs:authors,interval=3"] {
        same(Told { method, ..USUAL }, &[3], 6);
    }
}

#[test]
fn batches_that_do_not_fit_are_repeated_by_all() {
    let result = same(Told { large: 1e8, ..USUAL }, &[2, 6], 9);
    assert!(result.taken.iter().any(|&(skipped, repeated)| !skipped && repeated > 0), "{:?}", result.taken);
    let result = same(Told { large: f32::INFINITY, ..USUAL }, &[4], 9);
    let skipped = result.taken.iter().filter(|(skipped, _)| *skipped).count();
    assert_eq!(skipped, 2, "{:?}", result.taken);
    same(Told { method: "dynamic", large: 1e8, ..USUAL }, &[2], 9);
}

#[test]
fn another_number_of_ranks_goes_on() {
    let whole = run(USUAL, Group::single_rank(), 12).expect("a training");
    let begun = world(3, |group| {
        let mut training = Training::new(USUAL, group)?;
        (0..7).try_for_each(|step| training.step(step).map(drop))?;
        Ok::<_, Error>(training.saved())
    });
    let checkpoint = begun.into_iter().next().expect("a rank").expect("a checkpoint");
    let ended = world(4, move |group| {
        let mut training = Training::new(USUAL, group)?;
        training.trainer.load(&checkpoint)?;
        (7..12).try_for_each(|step| training.step(step).map(drop))?;
        Ok::<_, Error>(training.saved())
    });
    assert!(ended.into_iter().all(|checkpoint| checkpoint.expect("a checkpoint") == whole.checkpoint));
}

/// With a sharded optimizer each rank stores the states of its own weights, with the same results, also after a resume
/// with another number of ranks.
#[test]
fn an_optimizer_that_is_divided_is_the_same_and_half() {
    let whole = Told { net: Net::Transformer, ..USUAL };
    let divided = Told { sharded: true, ..whole };
    let ended = same(whole, &[], 8);
    for told in [divided, Told { recorded: false, ..divided }] {
        for result in world(3, move |group| run(told, group, 8)) {
            assert!(result.expect("a training") == ended, "{told:?}");
        }
    }
    let begun = world(2, move |group| {
        let mut training = Training::new(divided, group)?;
        let before = training.trainer.memory().parameters;
        (0..5).try_for_each(|step| training.step(step).map(drop))?;
        Ok::<_, Error>((before, training.saved()))
    });
    let begun: Vec<_> = begun.into_iter().map(|rank| rank.expect("a training")).collect();
    let undivided = Training::new(whole, Group::single_rank()).expect("a training").trainer;
    let weights: usize = undivided.parameters().expect("parameters").iter().map(|(_, one)| one.data.len()).sum();
    // Adam keeps 8 bytes of each weight; the parts differ by no more than the largest parameter.
    let states = [&begun[0].0, &begun[1].0].map(|half| 8 * weights as u64 - (undivided.memory().parameters - half));
    assert_eq!(states[0] + states[1], 8 * weights as u64, "{states:?}");
    assert!(
        states.iter().all(|half| half.abs_diff(4 * weights as u64) < weights as u64 / 2),
        "{states:?} of {weights}"
    );
    let checkpoint = begun[1].1.clone();
    for result in world(3, move |group| {
        let mut training = Training::new(divided, group)?;
        training.trainer.load(&checkpoint)?;
        (5..8).try_for_each(|step| training.step(step).map(drop))?;
        Ok::<_, Error>(training.saved())
    }) {
        assert!(result.expect("a training") == ended.checkpoint);
    }
}

/// States that are smaller than their weights are divided and saved in their shapes.
#[test]
fn states_of_other_shapes_are_divided() {
    let told = Told { net: Net::Transformer, factored: true, parts: 4, ..USUAL };
    let whole = run(told, Group::single_rank(), 3).expect("a training");
    for result in world(2, move |group| run(Told { sharded: true, ..told }, group, 3)) {
        assert!(result.expect("a training") == whole);
    }
}

/// Ranks would have to synchronise once more in the backward pass.
#[test]
fn batch_norm_over_all_ranks_is_not_computed_again() {
    let told = Told { batch_norm: BatchNormScope::World, parts: 2, ..USUAL };
    let refused = world(2, move |group| {
        let Training { net, mut trainer, .. } = Training::new(told, group)?;
        let step = trainer.step_micro_batches(2, |trainer, _| {
            let Built::Segnet(net) = &net else { panic!("{told:?}") };
            let batch = [Input::f32([1, 16, 16, 3], &[0.5; 768]), Input::u8([1, 16, 16, 1], &[1; 256])];
            trainer.backward(batch, |[x, labels]| x.tape().recompute(|| net.forward(x)).cross_entropy(labels))
        });
        step.map(drop)
    });
    for error in refused {
        let words = error.expect_err("it would synchronise twice").to_string();
        assert!(words.ends_with("batch norm over all ranks cannot be computed again in the backward pass"), "{words}");
    }
}

#[test]
fn sums_in_f32_are_those_of_halves_but_for_rounding() {
    let told = Told { exchange: ReduceMode::NativeF32, ..USUAL };
    let exact = run(USUAL, Group::single_rank(), 12).expect("a training");
    let ranks = world(3, move |group| run(told, group, 12).expect("a training"));
    assert!(ranks.iter().all(|rank| *rank == ranks[0]), "ranks are alike");
    for (fast, exact) in ranks[0].losses.iter().zip(&exact.losses) {
        let (fast, exact) = (f32::from_bits(*fast), f32::from_bits(*exact));
        assert!((fast - exact).abs() < 5e-3 * exact, "{fast} and {exact}");
    }
    // No exponents of a wire, so nothing is run twice for them.
    assert!(ranks[0].taken.iter().all(|(_, repeated)| *repeated == 0), "{:?}", ranks[0].taken);
    let measured = world(2, |group| group.measure_reduce_modes(1000, 4).expect("an answer"));
    assert_eq!(measured[0], measured[1]);
    assert!(!measured[0].exact_f16.is_zero() && !measured[0].native_f32.is_zero());
}

/// The step is that of the mean gradient, but for the rounding to halves.
#[test]
fn the_mean_is_that_of_the_parts() {
    let told = Told { method: "fp32", ..USUAL };
    let mut parts = Training::new(told, Group::single_rank()).expect("a training");
    let mut whole = Training::new(told, Group::single_rank()).expect("a training");
    let before = parts.trainer.parameters().expect("parameters");
    let outcome = parts.step(0).expect("a step");
    let net = &whole.net;
    let summed = whole.trainer.step_with(|trainer| {
        let Built::Segnet(net) = net else { unreachable!() };
        let mut all: Option<Gradients> = None;
        for part in 0..PARTS {
            let number = |k: u32| k.wrapping_mul(2_654_435_761).wrapping_add(part.wrapping_mul(0x9E37_79B9)) >> 13;
            let images: Vec<u8> = (0..16 * 16 * 3).map(|k| (number(k) % 251) as u8).collect();
            let labels: Vec<u8> = (0..16 * 16).map(|k: u32| ((k / 50 + part) % 4) as u8).collect();
            let batch = [Input::u8([1, 16, 16, 3], &images), Input::u8([1, 16, 16, 1], &labels)];
            let factor = 1.0 / PARTS as f32;
            all = Some(match all.take() {
                None => {
                    trainer.backward(batch, |[x, labels]| net.forward(x).dropout(0.1).cross_entropy(labels) * factor)
                }
                Some(all) => trainer.backward(Pass::new(batch).accumulate(all), |[x, labels]| {
                    net.forward(x).dropout(0.1).cross_entropy(labels) * factor
                }),
            }?);
        }
        all.ok_or(Error::Gradients)
    });
    assert!((outcome.loss - summed.expect("a step").loss).abs() < 1e-5 * outcome.loss);
    let after = [&parts, &whole].map(|training| training.trainer.parameters().expect("parameters"));
    for (((name, before), (_, parts)), (_, whole)) in before.iter().zip(&after[0]).zip(&after[1]) {
        let moved: f32 = before.data.iter().zip(&whole.data).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let apart: f32 = parts.data.iter().zip(&whole.data).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(moved > 0.0 && apart < 2e-3 * moved, "{name}: {apart} of {moved}");
    }
}

#[test]
fn ranks_that_have_drifted_apart_save_nothing() {
    let words = world(2, |group| {
        let rank = group.rank();
        let mut training = Training::new(USUAL, group).expect("a training");
        training.step(0).expect("a step");
        training.trainer.save(&BTreeMap::new()).expect("alike");
        let (name, one) = training.trainer.parameters().expect("parameters").swap_remove(0);
        let mut values = one.data;
        values[0] += rank as f32 * 1e-6;
        training.trainer.set_parameter(&name, &values).expect("a parameter");
        refused(training.trainer.save(&BTreeMap::new()))
    });
    assert_eq!(words[0], words[1]);
    assert!(words[0].starts_with("rank 1 has another state than rank 0: "), "{}", words[0]);
}

fn refused(result: Result<impl Sized, Error>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn ranks_that_are_not_alike_are_refused_on_all() {
    let words = world(3, |group| {
        let method = if group.rank() == 2 { "dynamic" } else { "gs" };
        refused(Training::new(Told { method, ..USUAL }, group))
    });
    assert!(words.iter().all(|other| *other == words[0]), "{words:?}");
    assert!(words[0].starts_with("rank 2 has another method than rank 0: "), "{}", words[0]);
    let words = world(2, |group| {
        let net = if group.rank() == 1 { Net::Transformer } else { Net::Segnet };
        refused(Training::new(Told { net, ..USUAL }, group))
    });
    assert!(words[0].starts_with("rank 1 has another network than rank 0: "), "{}", words[0]);
    let words = world(13, |group| {
        let mut training = Training::new(Told { net: Net::Transformer, ..USUAL }, group).expect("a training");
        refused(training.step(0))
    });
    assert!(words.iter().all(|words| words == "12 micro-batches for 13 ranks; each rank needs at least one"));
}

/// A rank whose data fail reports the reason, a lost rank is named, and neither leaves the others waiting.
#[test]
fn what_happens_to_one_rank_is_known_to_all() {
    let words = world(3, |group| {
        let rank = group.rank();
        let mut training = Training::new(USUAL, group).expect("a training");
        training.step(0).expect("a step");
        let net = &training.net;
        refused(training.trainer.step_micro_batches(PARTS, |trainer, part| {
            if part == 7 {
                return Err(Error::Parameter("the disk is gone".to_owned()));
            }
            backward(net, trainer, part, 1.0)
        }))
        .replace("the disk", &format!("on {rank}: the disk"))
    });
    assert_eq!(words[1], "on 1: the disk is gone");
    assert_eq!([&words[0], &words[2]], ["rank 1: on 0: the disk is gone", "rank 1: on 2: the disk is gone"]);
    let words = world(3, |group| {
        let rank = group.rank();
        let mut training = Training::new(USUAL, group).expect("a training");
        training.step(0).expect("a step");
        if rank == 2 { String::new() } else { refused(training.step(1)) }
    });
    assert_eq!(words, ["rank 2 has ended", "rank 2 has ended", ""]);
    let words = world(2, |group| {
        let rank = group.rank();
        let mut training = Training::new(USUAL, group).expect("a training");
        training.step(0).expect("a step");
        let net = &training.net;
        refused(training.trainer.step_micro_batches(PARTS + if rank == 0 { 0 } else { 2 }, |trainer, part| {
            backward(net, trainer, part, 1.0)
        }))
    });
    assert!(
        words.iter().all(|words| words.ends_with("and this one run different steps, or different networks")),
        "{words:?}"
    );
}
