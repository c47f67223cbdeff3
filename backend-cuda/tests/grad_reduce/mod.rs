//! Gradients that go from GPU to GPU: their sums are those of integers, and a training has the weights that it has where
//! they go through the memory of the host.

#![allow(clippy::cast_possible_truncation, reason = "a test: small sizes")]

use gradscale::{
    Input, Method, Parameters, Trainer, TrainerOptions,
    distributed::{GradTransport, Group, ReduceMode, Threads},
    gradscale_core::{
        backend::{Backend, DType, Data, DataMut, GradReduce},
        cast::{Round, f16_from_f64},
    },
    nn::{Linear, Module},
    optim::Sgd,
};
use gradscale_cuda::Cuda;
use half::f16;
use pollster::block_on;
use std::{collections::BTreeMap, thread};

/// Each rank's answer, by rank.
fn world<T: Send>(ranks: usize, rank: impl Fn(usize, Threads) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let spawn = |(number, threads)| {
            let rank = &rank;
            scope.spawn(move || rank(number, threads))
        };
        let all: Vec<_> = Threads::world(ranks).into_iter().enumerate().map(spawn).collect();
        all.into_iter().map(|one| one.join().expect("a rank")).collect()
    })
}

/// Runs `work` on devices that have joined a group, each in its own thread with its rank. Returns all results.
fn joined<T: Send>(devices: &[impl Fn() -> Cuda + Sync], work: impl Fn(usize, &Cuda) -> T + Sync) -> Vec<T> {
    let ranks = devices.len();
    let unique_id = devices[0]().new_unique_id().expect("a unique id");
    world(ranks, |rank, _| {
        let mut device = devices[rank]();
        let number = |number: usize| u32::try_from(number).expect("few");
        device.init_rank(&unique_id, number(rank), number(ranks)).expect("all ranks");
        work(rank, &device)
    })
}

/// Returns values of all sizes and signs, with subnormal halves and zeros; many of them are between two halves.
fn part(number: u32, len: usize) -> Vec<f32> {
    let mut state = u64::from(number) + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as i32
    };
    (0..len).map(|_| (next() % 4095 - 2047) as f32 * 2f32.powi(next() % 30 - 29)).collect()
}

/// Exponents at which the gradients of three parameters are sent. Without an exponent zeros are sent.
const EXPONENTS: [Option<i32>; 3] = [Some(3), None, Some(-2)];
const LENS: [usize; 3] = [1000, 70, 333];

/// The means as they should be, by numbers that are exact.
fn naive(parts: u32) -> Vec<u32> {
    let mut means = Vec::new();
    for (place, (&len, &exponent)) in LENS.iter().zip(&EXPONENTS).enumerate() {
        let scale = 2f32.powi(exponent.unwrap_or(0));
        for i in 0..len {
            let half = |number: u32| match exponent {
                Some(_) => f64::from(f16::from_f32(part(number + 100 * place as u32, len)[i] * scale)),
                None => 0.0,
            };
            // The 53 digits of f64 are enough for some halves. The crate `half` would drop those after the 20th before
            // it rounds.
            let mean = f16_from_f64((0..parts).map(half).sum::<f64>() / f64::from(parts), Round::NearestEven);
            means.push((f32::from(mean) / scale).to_bits());
        }
    }
    means
}

fn means(device: &Cuda, (rank, ranks): (usize, usize), parts: u32, exact: bool) -> Vec<u32> {
    device.grad_reduce(GradReduce::Init { len: LENS.iter().sum(), parts, exact }).expect("room");
    let mut buffers: Vec<_> = LENS.iter().map(|&len| device.alloc(DType::F32, len).expect("memory")).collect();
    for number in (0..parts).skip(rank).step_by(ranks) {
        let mut at = 0;
        for (place, (buffer, &len)) in buffers.iter_mut().zip(&LENS).enumerate() {
            let values = part(number + 100 * place as u32, len);
            device.write(Data::F32(&values), buffer).expect("a copy");
            device
                .grad_reduce(GradReduce::Accumulate { at, len, values: buffer, exponent: EXPONENTS[place] })
                .expect("a sum");
            at += len;
        }
    }
    device.grad_reduce(GradReduce::AllReduceMean).expect("a mean");
    let (mut at, mut all) = (0, Vec::new());
    for (place, (values, &len)) in buffers.iter_mut().zip(&LENS).enumerate() {
        device
            .grad_reduce(GradReduce::Read { at, len, values, exponent: EXPONENTS[place].unwrap_or(0) })
            .expect("a mean");
        at += len;
        let mut means = vec![0f32; len];
        block_on(device.read(values, DataMut::F32(&mut means))).expect("a copy");
        all.extend(means.into_iter().map(f32::to_bits));
    }
    all
}

/// Sums of as many devices as are given, in one and in several parts each.
pub fn sums_are_exact(devices: &[impl Fn() -> Cuda + Sync]) {
    let ranks = devices.len();
    let few = u32::try_from(ranks).expect("few");
    let all = joined(devices, |rank, device| {
        let of = |parts, exact| means(device, (rank, ranks), parts, exact);
        [of(few, true), of(12, true), of(few + 1, true), of(few, true), of(12, false)]
    });
    let expected = [few, 12, few + 1, few].map(naive);
    for (rank, [one, twelve, more, again, fast]) in all.iter().enumerate() {
        for ((seen, expected), what) in [one, twelve, more, again].into_iter().zip(&expected).zip(["1", "12", "+", "1"])
        {
            let wrong = seen.iter().zip(expected).position(|(a, b)| a != b && (a | b) << 1 != 0);
            assert_eq!(wrong, None, "rank {rank} of {ranks}, {what} parts");
        }
        assert!(*fast == all[0][4], "rank {rank} of {ranks}: sums in f32 are not alike");
        // The mean in f32 of the second parameter, which as halves is zeros.
        let value = f32::from_bits(fast[1000]);
        let mean = (0..12).map(|number| f64::from(part(number + 100, 70)[0])).sum::<f64>() / 12.0;
        assert!((f64::from(value) - mean).abs() < 1e-4 * mean.abs().max(1.0), "{value}, not {mean}");
    }
}

/// Runs some steps. Returns the checkpoint and the transport of gradients.
fn train(device: Cuda, group: Group, exchange: ReduceMode) -> (Vec<u8>, GradTransport) {
    let mut parameters = Parameters::seeded(7);
    let scope = &mut parameters.at("net");
    let (first, second) = (Linear::new(&mut scope.at("first"), 8, 16), Linear::new(&mut scope.at("second"), 16, 4));
    let optimizer = Sgd { momentum: 0.9, ..Sgd::new(0.1) };
    let trainer = Trainer::new(device, parameters, optimizer, Method::mixed()).expect("a trainer");
    let mut trainer =
        trainer.with_options(TrainerOptions::new().with_reduce_mode(exchange)).join_group(group).expect("ranks");
    gradscale::measure_reduce_modes(&mut trainer, 12).expect("an answer");
    for step in 0..4 {
        let taken = trainer.step_micro_batches(12, |trainer, number| {
            let x: Vec<f32> = part(12 * step + number, 16).iter().map(|x| x.clamp(-2.0, 2.0)).collect();
            let labels = [(number % 4) as u8, (step % 4) as u8];
            let batch = [Input::f32([2, 8], &x), Input::u8([2], &labels)];
            trainer.backward(batch, |[x, labels]| second.forward(first.forward(x).relu()).cross_entropy(labels))
        });
        assert!(taken.expect("a step").skipped.is_none());
    }
    let route = trainer.grad_transport().clone();
    (trainer.save(&BTreeMap::new()).expect("a checkpoint"), route)
}

/// Checks that groups of these sizes, whose gradients go from GPU to GPU, have the results of a single rank without
/// that.
pub fn trainings_are_the_same(devices: &[impl Fn() -> Cuda + Sync], worlds: &[usize]) {
    let (alone, route) = train(devices[0]().without_nccl(), Group::single_rank(), ReduceMode::ExactF16);
    assert_eq!(route, GradTransport::Host(None));
    for &ranks in worlds {
        for exchange in ReduceMode::ALL {
            let all = world(ranks, |rank, threads| train(devices[rank](), Group::new(threads), exchange));
            for (rank, (checkpoint, route)) in all.iter().enumerate() {
                assert_eq!(*route, GradTransport::Device("NCCL"), "rank {rank} of {ranks}");
                match exchange {
                    ReduceMode::ExactF16 => assert!(*checkpoint == alone, "rank {rank} of {ranks}: another checkpoint"),
                    ReduceMode::NativeF32 => assert!(*checkpoint == all[0].0, "rank {rank} of {ranks}: not as rank 0"),
                }
            }
            println!("{ranks} ranks by NCCL, {exchange}: the same checkpoint");
        }
    }
}
