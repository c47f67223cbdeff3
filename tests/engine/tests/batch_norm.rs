//! Batch norm over the batches of all ranks, compared with PyTorch over the whole batch (`tests/golden/batch_norm.py`),
//! and with a single rank that processes all of it.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]

use gradscale::{
    Cpu, Error, Input, Method, Parameters, Trainer, TrainerOptions,
    distributed::{BatchNormScope, Group, ReduceMode, Threads},
    gradscale_core::backend::Backend,
    models::SegNet,
    nn::{BatchNorm, Linear, Module},
    optim::Sgd,
};
use gradscale_conformance::Recorder;
use std::{collections::BTreeMap, ops::Range, thread};

const TABLE: &str = include_str!("../../golden/batch_norm.txt");

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

/// The largest difference, relative to the largest value.
fn far(found: &[f32], right: &[f32]) -> f32 {
    assert_eq!(found.len(), right.len());
    let largest = right.iter().fold(0f32, |most, x| most.max(x.abs()));
    let differences = found.iter().zip(right).map(|(x, y)| (x - y).abs());
    differences.fold(0f32, |most, x| if x.is_nan() { f32::INFINITY } else { most.max(x) }) / largest
}

/// Values of a case by key, as PyTorch has them.
type Case = BTreeMap<&'static str, Vec<f32>>;

fn case(name: &str) -> Case {
    let rows = TABLE.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    let row = |row: &'static str| {
        let [key, _, values] = row.split('\t').collect::<Vec<_>>().try_into().expect("three columns");
        (key, values.split(' ').map(|value| value.parse().expect("a number")).collect())
    };
    rows.map(row).collect()
}

/// Images, or sequences, of the table that a rank takes: unlike numbers of them.
fn own(size: usize, rank: usize) -> Range<usize> {
    let ends: &[usize] = match size {
        1 => &[0, 7],
        2 => &[0, 2, 7],
        _ => &[0, 1, 4, 5, 7],
    };
    ends[rank]..ends[rank + 1]
}

/// Results of a step with learning rate 1 on one rank.
#[derive(Debug, PartialEq)]
struct Step {
    /// Gradients of the values that were normalised.
    dx: Vec<f32>,
    loss: f32,
    /// Gradients of scale and shift, of all ranks, and running statistics after the step.
    norm: [Vec<f32>; 3],
}

fn step(of: BatchNormScope, exchange: ReduceMode, group: Group, name: &str) -> Result<Step, Error> {
    let (case, mut parameters) = (case(name), Parameters::seeded(0));
    let (size, images) = (group.size(), own(group.size(), group.rank()));
    let first = Linear::new(&mut parameters.at("in"), 3, 3);
    let norm = BatchNorm::new(&mut parameters.at("norm"), 3);
    let trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(1.0), Method::fp32())?
        .with_options(TrainerOptions::new().with_all_kept());
    let trainer = trainer.with_options(TrainerOptions::new().with_reduce_mode(exchange).with_batch_norm_scope(of));
    let mut trainer = trainer.join_group(group)?;
    // An identity layer, so its output is exactly its input.
    trainer.set_parameter("in.weight", &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0])?;
    trainer.set_parameter("in.bias", &[0.0; 3])?;
    trainer.set_parameter("norm.scale", &case["weight"])?;
    trainer.set_parameter("norm.shift", &case["bias"])?;
    let of_image = case["x"].len() / 7;
    let part = |key: &str| case[key][images.start * of_image..images.end * of_image].to_vec();
    let (x, t, shape) = (part("x"), part("t"), [images.len(), of_image / 6, 2, 3]);
    let lengths = case.get("lengths").map(|all| all[images.clone()].iter().map(|&one| one as u32).collect::<Vec<_>>());
    let mut dx = Vec::new();
    let outcome = trainer.step_micro_batches(size as u32, |trainer, _| {
        let (x, t) = (Input::f32(shape, &x), Input::f32(shape, &t));
        // The mean over n ranks of n times the sum is the sum.
        let gradients = match &lengths {
            None => trainer.backward([x, t], |[x, t]| (norm.forward(first.forward(x)) * t).sum().scale(size as f32)),
            Some(lengths) => trainer.backward([x, t, Input::u32([shape[0]], lengths)], |[x, t, lengths]| {
                (norm.frames(first.forward(x), lengths) * t).sum().scale(size as f32)
            }),
        }?;
        let found = trainer.scaled_gradients(&gradients)?.into_iter().find(|(name, _)| name == "in");
        let found = found.expect("its gradient").1;
        assert_eq!(found.alpha, 0);
        dx = found.data.data.iter().map(|value| value / size as f32).collect();
        Ok::<_, Error>(gradients)
    })?;
    let moved = |key: &str, from: &str| -> Result<Vec<f32>, Error> {
        Ok(case[from].iter().zip(trainer.parameter(key)?.data).map(|(before, after)| before - after).collect())
    };
    let norm = [moved("norm.scale", "weight")?, moved("norm.shift", "bias")?, trainer.parameter("norm.running")?.data];
    Ok(Step { dx, loss: outcome.loss, norm })
}

/// Returns the distance of the inputs' gradients, and of all other results, from PyTorch's over the whole batch. Ranks
/// must agree to the bit.
fn apart(of: BatchNormScope, exchange: ReduceMode, size: usize, name: &'static str) -> [f32; 5] {
    let ranks = world(size, move |group| step(of, exchange, group, name).expect("a step"));
    let (case, first) = (case(name), &ranks[0]);
    assert!(ranks.iter().all(|rank| rank.norm == first.norm && rank.loss.to_bits() == first.loss.to_bits()));
    let dx: Vec<f32> = ranks.iter().flat_map(|rank| rank.dx.iter().copied()).collect();
    let running = [&case["running_mean"][..], &case["running_var"]].concat();
    let [scale, shift, statistics] = &first.norm;
    [
        far(&dx, &case["dx"]),
        far(&[first.loss], &case["loss"]),
        far(scale, &case["dweight"]),
        far(shift, &case["dbias"]),
        far(statistics, &running),
    ]
}

#[test]
fn ranks_together_have_what_pytorch_has_of_the_whole_batch() {
    for name in ["pixels", "frames"] {
        for size in [1, 2, 4] {
            let found = apart(BatchNormScope::World, ReduceMode::NativeF32, size, name);
            println!("{name}, {size} ranks: dx, loss, dscale, dshift, running {found:?}");
            assert!(found.iter().all(|&far| far < 1e-5), "{name}, {size} ranks: {found:?}");
            // As halves, gradients of weights have 11 significant bits.
            let found = apart(BatchNormScope::World, ReduceMode::ExactF16, size, name);
            assert!(found.iter().all(|&far| far < 1e-3) && found[0] < 1e-5, "{name}, {size} ranks: {found:?}");
        }
        // Each by itself is far from that.
        let found = apart(BatchNormScope::Rank, ReduceMode::NativeF32, 2, name);
        assert!(found[0] > 0.1 && found[4] > 0.01, "{name}: {found:?}");
    }
}

/// Images of a step.
const BATCH: u32 = 8;

#[derive(Clone, Copy, Debug)]
struct Told {
    method: &'static str,
    exchange: ReduceMode,
    of: BatchNormScope,
    /// True if the loss of one micro-batch is multiplied by a large factor in the fourth step.
    large: bool,
}

const FAST: Told = Told { method: "fp32", exchange: ReduceMode::NativeF32, of: BatchNormScope::World, large: false };

#[derive(Clone, Debug, PartialEq)]
struct Ended {
    losses: Vec<f32>,
    repeated: Vec<usize>,
    checkpoint: Vec<u8>,
    parameters: Vec<(String, Vec<f32>)>,
}

fn train<B: Backend<Error: Send + 'static>>(
    device: B, told: Told, group: Group, steps: u32,
) -> Result<Ended, Error<B::Error>> {
    let (mut parameters, size) = (Parameters::seeded(3), group.size() as u32);
    let net = SegNet::new(&mut parameters.at("net"), 3, 4, 4);
    let method: Method = told.method.parse().expect("a method");
    let trainer = Trainer::new(device, parameters, Sgd { momentum: 0.9, ..Sgd::new(0.05) }, method)?;
    let trainer =
        trainer.with_options(TrainerOptions::new().with_reduce_mode(told.exchange).with_batch_norm_scope(told.of));
    let mut trainer = trainer.join_group(group)?;
    let (mut losses, mut repeated) = (Vec::new(), Vec::new());
    for step in 0..steps {
        let outcome = trainer.step_micro_batches(size, |trainer, part| {
            let number = |k: u32| k.wrapping_mul(2_654_435_761).wrapping_add(step.wrapping_mul(0x9E37_79B9)) >> 13;
            let own = part * (BATCH / size)..(part + 1) * (BATCH / size);
            // Images of unlike brightness and labels.
            let pixel = |i: u32, k: u32| (number(i * 768 + k) % 120 + 15 * i) as u8;
            let images: Vec<u8> = own.clone().flat_map(|i| (0..768).map(move |k| pixel(i, k))).collect();
            let labels: Vec<u8> = own.clone().flat_map(|i| (0..256).map(move |k| ((k / 50 + i) % 4) as u8)).collect();
            let n = own.len();
            let batch = [Input::u8([n, 16, 16, 3], &images), Input::u8([n, 16, 16, 1], &labels)];
            let factor = if told.large && step == 3 && part == size - 1 { 1e8 } else { 1.0 };
            trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels).scale(factor))
        })?;
        losses.push(outcome.loss);
        repeated.push(outcome.repeated.len());
    }
    let values = trainer.parameters()?.into_iter().map(|(name, one)| (name, one.data)).collect();
    Ok(Ended { losses, repeated, checkpoint: trainer.save(&BTreeMap::new())?, parameters: values })
}

fn cpu() -> Cpu {
    Cpu::new(1).expect("a CPU")
}

/// Returns the results of all ranks of a group, eager and recorded.
fn trained(told: Told, size: usize, steps: u32) -> Ended {
    let eager = world(size, move |group| train(cpu(), told, group, steps).expect("a training"));
    let recorded = world(size, move |group| {
        let device = Recorder::new(cpu());
        let repeats = device.repeats();
        let ended = train(device, told, group, steps).expect("a training");
        (ended, repeats.get())
    });
    for (ended, repeats) in recorded {
        // Every segment between two synchronisations is a recording of its own.
        assert!(repeats > if size > 1 && told.of == BatchNormScope::World { 16 } else { 0 }, "{repeats} recordings");
        assert!(ended == eager[0], "{told:?}, {size} ranks: recorded is not eager");
    }
    assert!(eager.iter().all(|ended| *ended == eager[0]), "{told:?}, {size} ranks");
    eager.into_iter().next().expect("a rank")
}

/// Returns the distances of losses, weights and running statistics from those of another training.
fn between(one: &Ended, other: &Ended) -> [f32; 3] {
    let of = |ended: &Ended, running: bool| -> Vec<f32> {
        let all = ended.parameters.iter().filter(|(name, _)| name.ends_with(".running") == running);
        all.flat_map(|(_, values)| values.iter().copied()).collect()
    };
    let [weights, running] = [false, true].map(|running| far(&of(one, running), &of(other, running)));
    [far(&one.losses, &other.losses), weights, running]
}

#[test]
fn any_number_of_ranks_trains_as_one_with_the_whole_batch() {
    let alone = trained(FAST, 1, 4);
    for size in [2, 4] {
        let found = between(&trained(FAST, size, 4), &alone);
        println!("{size} ranks: losses, weights, running statistics {found:?}");
        assert!(found.iter().all(|&far| far < 1e-4), "{size} ranks: {found:?}");
        let each = between(&trained(Told { of: BatchNormScope::Rank, ..FAST }, size, 4), &alone);
        println!("{size} ranks, each by itself: {each:?}");
        assert!(each.iter().all(|&far| far > 1e-3), "{size} ranks, each by itself: {each:?}");
    }
}

#[test]
fn whatever_the_method_ranks_have_the_same_bits() {
    for method in ["gs", "gs:paper", "dynamic"] {
        let told = Told { method, exchange: ReduceMode::ExactF16, ..FAST };
        let alone = trained(told, 1, 3);
        let found = between(&trained(told, 2, 3), &alone);
        println!("{method}: losses, weights, running statistics {found:?}");
        assert!(found.iter().all(|&far| far < 2e-2), "{method}: {found:?}");
    }
    let large = trained(Told { method: "gs", exchange: ReduceMode::ExactF16, large: true, ..FAST }, 2, 4);
    assert!(large.repeated[3] > 0, "{:?}", large.repeated);
}

fn refused(result: Result<impl Sized, Error>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn what_cannot_be_is_refused_on_all_ranks() {
    let words = world(2, |group| {
        let of = if group.rank() == 1 { BatchNormScope::World } else { BatchNormScope::Rank };
        refused(train(cpu(), Told { of, ..FAST }, group, 1))
    });
    assert!(words[0] == words[1] && words[0].starts_with("rank 1 has another trainer than rank 0: "), "{words:?}");
    let parts = |group: Group| {
        let mut parameters = Parameters::seeded(0);
        let net = BatchNorm::new(&mut parameters.at("norm"), 1);
        let trainer = Trainer::new(cpu(), parameters, Sgd::new(0.1), Method::fp32())?;
        let mut trainer = trainer
            .with_options(TrainerOptions::new().with_batch_norm_scope(BatchNormScope::World))
            .join_group(group)?;
        trainer.step_micro_batches(4, |trainer, _| {
            trainer.backward([Input::f32([2, 1], &[1.0, 2.0])], |[x]| net.forward(x).sum())
        })
    };
    let line = "4 micro-batches; batch norm over all ranks needs one for each of ";
    assert!(world(2, move |group| refused(parts(group))).iter().all(|words| *words == format!("{line}2 ranks")));
    assert_eq!(refused(parts(Group::single_rank())), format!("{line}1 ranks"));
    // A checkpoint loads only into a training with the same settings.
    let saved = train(cpu(), FAST, Group::single_rank(), 1).expect("a training").checkpoint;
    let mut parameters = Parameters::seeded(3);
    let _ = SegNet::new(&mut parameters.at("net"), 3, 4, 4);
    let sgd = Sgd { momentum: 0.9, ..Sgd::new(0.05) };
    let other = Trainer::new(cpu(), parameters, sgd, Method::fp32()).expect("a trainer").load(&saved);
    let words = refused(other);
    assert!(words.contains("batch norm over the world in the checkpoint"), "{words}");
}
