//! Calls that a training step enqueues: launches, recordings and copies.

mod emulated;

use emulated::Emulated;
use gradscale::{
    Cpu, Input, Method, Parameters, Trainer, forward_sites,
    gradscale_core::backend::{Backend, Control, DType, Data, DataMut, Launch, Slot, Store},
    nn::{BatchNorm, Linear, Module},
    optim::Sgd,
};
use gradscale_core::{
    ops::Unary,
    stats::{Detail, Stats},
};
use gradscale_cuda::{Cuda, Error};

/// A device; none without a C++ compiler.
fn emulated() -> Option<Emulated> {
    Emulated::new(80, 2).inspect_err(|reason| println!("SKIPPED: {reason}")).ok()
}

/// From the third step on no kernel is launched outside a recording: neither the update of weights, with its norm for
/// clipping, nor that of running statistics. Of a prefetched batch each input is copied to its buffer.
#[test]
fn a_step_is_two_recordings() {
    let Some(emulated) = emulated() else { return };
    let mut parameters = Parameters::seeded(1);
    let mut at = parameters.at("net");
    let (a, norm, b) =
        (Linear::new(&mut at.at("a"), 2, 8), BatchNorm::new(&mut at.at("norm"), 8), Linear::new(&mut at.at("b"), 8, 2));
    let optimizer = Sgd { momentum: 0.9, ..Sgd::new(0.1) };
    let method: Method = "gs:exact".parse().expect("a method");
    let mut trainer =
        Trainer::new(emulated.open().expect("a device"), parameters, optimizer, method).expect("a trainer");
    let points: Vec<f32> = (0..32u8).map(|i| f32::from(i) / 16.0 - 1.0).collect();
    let labels = [0, 1].repeat(8);
    let batch = || [Input::f32([16, 2], &points), Input::u8([16], &labels)];
    let mut ahead = None;
    for step in 0..8 {
        let (before, was_ahead) = (emulated.counts(), ahead.is_some());
        let inputs = ahead.take().map_or_else(|| batch().into(), gradscale::Inputs::from);
        let gradients = trainer
            .backward(inputs, |[x, labels]| b.forward(norm.forward(a.forward(x)).relu()).cross_entropy(labels))
            .expect("a backward pass");
        if step >= 5 {
            ahead = Some(trainer.prefetch(batch()).expect("sent"));
        }
        trainer.step(gradients.clip_norm(1.0)).expect("a step");
        let after = emulated.counts();
        if step >= 3 {
            let [launched, repeated] = [after.launched - before.launched, after.repeated - before.repeated];
            assert_eq!((launched, repeated), (if was_ahead { 2 } else { 0 }, 2), "step {step}");
            // The next prefetch has not been waited for.
            assert_eq!(after.copies_waiting, if ahead.is_some() { 2 } else { 0 }, "step {step}");
        }
    }
}

/// Trains a layer whose results reach 10^6; returns losses, repeats and the exponents of activations.
fn train_beyond_half<B: Backend<Error: std::fmt::Debug + 'static>>(
    device: B, method: &str,
) -> (Vec<f32>, usize, Vec<i32>) {
    let mut parameters = Parameters::seeded(1);
    let mut at = parameters.at("net");
    let [a, b, c] =
        [("a", 4, 8), ("b", 8, 8), ("c", 8, 2)].map(|(name, from, to)| Linear::new(&mut at.at(name), from, to));
    let method: Method = method.parse().expect("a method");
    let mut trainer = Trainer::new(device, parameters, Sgd::new(0.1), method).expect("a trainer");
    for name in ["net.a.weight", "net.b.weight"] {
        let values = trainer.parameter(name).expect("a parameter").data;
        let values: Vec<f32> = values.iter().map(|x| x * 2048.0).collect();
        trainer.set_parameter(name, &values).expect("a parameter");
    }
    let points: Vec<f32> = (0..64u8).map(|i| f32::from(i * 37 % 64) / 32.0 - 1.0).collect();
    let labels = [0, 1].repeat(8);
    let (mut losses, mut repeats) = (Vec::new(), 0);
    for _ in 0..6 {
        let batch = [Input::f32([16, 4], &points), Input::u8([16], &labels)];
        let gradients = trainer.backward(batch, |[x, labels]| {
            let large = a.forward(x).relu();
            c.forward((large + b.forward(large)) * (1.0 / 1048576.0)).cross_entropy(labels)
        });
        let outcome = trainer.step(gradients.expect("a backward pass")).expect("a step");
        assert_eq!(outcome.skipped, None);
        losses.push(outcome.loss);
        repeats += outcome.repeated.len();
    }
    let exponents = forward_sites(&trainer).map(|site| site.alpha).collect();
    (losses, repeats, exponents)
}

/// Exponents of activations come with the stores: a network that exceeds half trains as on the CPU in f32, first step by
/// step and then in recordings.
#[test]
fn activations_beyond_half_have_exponents() {
    let Some(emulated) = emulated() else { return };
    let (right, ..) = train_beyond_half(Cpu::new(1).expect("threads"), "fp32");
    let device = emulated.open().expect("a device");
    let (losses, repeats, exponents) = train_beyond_half(device, "gs:forward=repeat");
    for (loss, right) in losses.iter().zip(&right) {
        assert!((loss - right).abs() < 0.02 * right, "{losses:?} instead of {right:?}");
    }
    assert_eq!(repeats, 1);
    assert!(exponents.iter().any(|&alpha| alpha <= -4), "{exponents:?}");
}

fn double(
    device: &Cuda, table: &<Cuda as Backend>::Table, x: &gradscale_cuda::Memory, y: &mut gradscale_cuda::Memory,
) -> Result<(), Error> {
    let op = Unary::Affine { a: 2.0, b: 0.0 };
    device.launch(Launch::Unary { op, len: 9, x, y: Store::keep(Slot::ONE, table, y) })
}

/// Reading a result does not wait for a prefetch copy in flight. Every use of the copy's memory does: launch, replay,
/// read, write or free.
#[test]
fn a_read_back_does_not_wait_for_the_next_batch() {
    let Some(emulated) = emulated() else { return };
    let device = emulated.open().expect("a device");
    let mut table = device.table(2, 0).expect("a table");
    let control = Control { exponents: &[0; 2], hyperparameters: &[], seed: 0, detail: Detail::None };
    let memory = || device.alloc(DType::F32, 9).expect("memory");
    let (mut x, mut ahead, mut other, mut y) = (memory(), memory(), memory(), memory());
    let read = |x: &gradscale_cuda::Memory| {
        let mut values = [0.0; 9];
        pollster::block_on(device.read(x, DataMut::F32(&mut values))).expect("readable");
        values[8]
    };
    device.write(Data::F32(&[1.0; 9]), &mut x).expect("written");
    device.write(Data::F32(&[1.0; 9]), &mut ahead).expect("written");
    double(&device, &table, &ahead, &mut y).expect("a launch");
    let of_ahead = device.record(|| double(&device, &table, &ahead, &mut y)).expect("recorded").expect("a recording");
    let of_x = device.record(|| double(&device, &table, &x, &mut other)).expect("recorded").expect("a recording");
    let waiting = || emulated.counts().copies_waiting;
    let mut rows = [Stats::new(gradscale_core::stats::Convention::FP16, 0, Detail::None); 2];
    for (round, value) in [3.0, 5.0, 7.0, 9.0, 11.0].into_iter().enumerate() {
        device.upload(&control, 0..2, &mut table).expect("an upload");
        device.replay(&of_x).expect("repeated");
        device.prefetch(Data::F32(&[value; 9]), &mut ahead).expect("sent");
        // The update and its read-back.
        device.replay(&of_x).expect("repeated");
        let mut scalar = [0.0];
        pollster::block_on(device.collect(&table, 0..2, &mut rows, &[&other], &mut scalar)).expect("collected");
        assert_eq!((scalar, waiting()), ([2.0], 1), "round {round}");
        match round {
            0 => {
                double(&device, &table, &ahead, &mut y).expect("a launch");
                assert_eq!(read(&y), 2.0 * value);
            }
            1 => {
                device.replay(&of_ahead).expect("repeated");
                assert_eq!(read(&y), 2.0 * value);
            }
            2 => assert_eq!(read(&ahead), value),
            3 => {
                device.write(Data::F32(&[-1.0; 9]), &mut ahead).expect("written");
                assert_eq!(read(&ahead), -1.0);
            }
            _ => {
                // Another copy of the same memory comes after the first.
                device.prefetch(Data::F32(&[-2.0; 9]), &mut ahead).expect("sent");
                assert_eq!(waiting(), 2);
                drop(ahead);
                assert_eq!(waiting(), 0);
                break;
            }
        }
        assert_eq!(waiting(), 0, "round {round}");
    }
}
