//! Sequences of many lengths: each has its own program, all share the memory of the longest, and steps are recorded.

use gradscale::{
    Cpu, CpuError, Gradients, Input, Method, Parameters, Trainer, TrainerOptions,
    gradscale_core::{
        backend::{
            Backend, Caps, Control, DType, Data, DataMut, DeviceResult, Error as _, ErrorKind, Launch, OnDevice,
        },
        ops::Attention,
        stats::Stats,
    },
    nn::{Linear, Module},
    optim::Sgd,
};
use gradscale_conformance::Recorder;
use std::{cell::Cell, ops::Range, rc::Rc};

const LENGTHS: usize = 200;
const WIDTH: usize = 8;

/// Each length once, in an order that is the same for all passes.
fn order() -> impl Iterator<Item = usize> {
    // 67 and 200 have no common factor.
    (0..LENGTHS).map(|i| i * 67 % LENGTHS + 1)
}

fn backward<B: Backend>(
    trainer: &mut Trainer<B>, net: &[Linear; 3], len: usize,
) -> Result<Gradients, gradscale::Error<B::Error>> {
    let x: Vec<f32> = (0..len * WIDTH).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let labels: Vec<u8> = (0..len).map(|i| u8::try_from(i * i % 5).expect("below 5")).collect();
    let batch = [Input::f32([1, 1, len, WIDTH], &x), Input::u8([1, 1, len], &labels)];
    trainer.backward(batch, |[x, labels]| {
        let x = net[0].forward(x).tanh();
        // Two branches that are added, and a softmax over the length.
        let scores = x.matmul_transposed(x).causal_softmax();
        let mixed = scores.matmul(net[1].forward(x)) + x;
        net[2].forward(mixed).cross_entropy(labels)
    })
}

fn step<B: Backend>(trainer: &mut Trainer<B>, net: &[Linear; 3], len: usize) {
    let gradients = backward(trainer, net, len).expect("gradients");
    let outcome = trainer.step(gradients).expect("a step");
    assert!(outcome.skipped.is_none() && outcome.loss.is_finite());
}

fn weights<B: Backend>(trainer: &Trainer<B>) -> Vec<u32> {
    let weights = trainer.parameters().expect("weights").into_iter();
    weights.flat_map(|(_, tensor)| tensor.data.into_iter().map(f32::to_bits)).collect()
}

/// Steps of these lengths: weights, bytes of activations.
fn train<B: Backend>(trainer: Trainer<B>, net: &[Linear; 3], lengths: impl Iterator<Item = usize>) -> (Vec<u32>, u64) {
    let mut trainer = trainer;
    lengths.for_each(|len| step(&mut trainer, net, len));
    (weights(&trainer), trainer.memory().activations)
}

fn start<B: Backend>(device: B) -> (Trainer<B>, [Linear; 3]) {
    let mut parameters = Parameters::seeded(0);
    let net = ["a", "b", "c"].map(|name| {
        let outputs = if name == "c" { 5 } else { WIDTH };
        Linear::new(&mut parameters.at(name), WIDTH, outputs)
    });
    let method: Method = "gs".parse().expect("a method");
    (Trainer::new(device, parameters, Sgd { momentum: 0.9, ..Sgd::new(0.1) }, method).expect("a trainer"), net)
}

#[test]
fn memory_is_that_of_the_longest() {
    let (trainer, net) = start(Cpu::new(1).expect("threads"));
    let (_, longest) = train(trainer, &net, [LENGTHS; 3].into_iter());
    let (trainer, net) = start(Cpu::new(1).expect("threads"));
    let (_, all) = train(trainer, &net, order().chain(order()));
    println!("{LENGTHS} lengths: {all} bytes of activations, the longest alone {longest}");
    assert!(all as f64 <= 1.05 * longest as f64, "{all} bytes, the longest alone {longest}");
}

#[test]
fn each_length_is_recorded_with_the_same_bits() {
    let lengths = || order().chain(order()).chain(order()).chain(order());
    let (trainer, net) = start(Cpu::new(1).expect("threads"));
    let (plain, _) = train(trainer, &net, lengths());
    let recorder = Recorder::new(Cpu::new(1).expect("threads"));
    let repeats = recorder.repeats();
    let (trainer, net) = start(recorder);
    let (recorded, _) = train(trainer, &net, lengths());
    println!("{} of {} steps were recordings", repeats.get(), 4 * LENGTHS);
    assert!(plain == recorded, "other weights");
    // The first pass allocates memory and decides, the second runs eagerly, and from the third on all steps are
    // recorded.
    assert!(repeats.get() >= 2 * LENGTHS, "{} repeats", repeats.get());
}

/// Recordings are bounded by their launches, and those of the least recently used steps go first.
#[test]
fn recordings_are_bounded_by_their_launches() {
    let count = |most: Option<usize>| {
        let recorder = Recorder::new(Cpu::new(1).expect("threads"));
        let (records, repeats) = (recorder.records(), recorder.repeats());
        let (trainer, net) = start(recorder);
        let options = most.map(|most| TrainerOptions::new().with_recorded_launches(most));
        let mut trainer = options.into_iter().fold(trainer, Trainer::with_options);
        // The longest first, so that no buffer grows.
        for len in [9, 7, 9, 7, 9, 7, 9, 7, 7, 7] {
            step(&mut trainer, &net, len);
        }
        (records.get(), repeats.get(), weights(&trainer))
    };
    let (all, repeated, right) = count(None);
    // The update is recorded in any case.
    let (updates, least, without) = count(Some(0));
    // Room for one of both lengths: its recording goes when the other is recorded, and comes again.
    let (one, again, changed) = count(Some(30));
    println!("recordings: {all}, {updates} of updates, {one} with room for one; repeats {repeated}, {least}, {again}");
    assert!(right == without && right == changed, "other weights");
    assert!(updates < all && all < one, "{updates} {all} {one}");
    assert!(least < repeated && again == repeated, "{least} {repeated} {again}");
}

/// A recording refers to buffers. After a buffer has grown, it is recorded again, and reads the new batch.
#[test]
fn recordings_from_before_a_place_grew() {
    let train = |recording: bool| {
        let (trainer, net) = start(Recorder::new(Cpu::new(1).expect("threads")));
        let mut trainer = trainer.with_options(TrainerOptions::new().with_recording(recording));
        for (at, len) in [3, 3, 3, 3, 40, 3, 3].into_iter().enumerate() {
            let x: Vec<f32> = (0..len * WIDTH).map(|i| ((i + 7 * at) * 37 % 101) as f32 / 50.0 - 1.0).collect();
            let gradients = trainer.backward([Input::f32([1, 1, len, WIDTH], &x)], |[x]| {
                net[2].forward(net[1].forward(net[0].forward(x).tanh()).tanh()).square().mean()
            });
            assert_eq!(trainer.step(gradients.expect("it fits")).expect("a step").skipped, None);
        }
        weights(&trainer)
    };
    assert_eq!(train(true), train(false));
}

#[test]
fn programs_that_were_evicted_come_again() {
    let lengths = || order().take(20).chain(order().take(20));
    let (trainer, net) = start(Cpu::new(1).expect("threads"));
    let (all, _) = train(trainer, &net, lengths());
    let (trainer, net) = start(Cpu::new(1).expect("threads"));
    let (few, _) = train(trainer.with_options(TrainerOptions::new().with_programs(3)), &net, lengths());
    assert!(all == few, "other weights");
}

/// Device that can allocate only this number of further buffers.
struct Short(Cpu, Rc<Cell<usize>>);

impl Backend for Short {
    type Buffer = <Cpu as Backend>::Buffer;
    type Table = <Cpu as Backend>::Table;
    type Recording = <Cpu as Backend>::Recording;
    type Error = CpuError;

    fn caps(&self) -> Caps<'_> {
        self.0.caps()
    }
    fn alloc(&self, dtype: DType, len: usize) -> Result<Self::Buffer, CpuError> {
        match self.1.get().checked_sub(1) {
            Some(left) => {
                self.1.set(left);
                self.0.alloc(dtype, len)
            }
            // More than there is.
            None => self.0.alloc(DType::F32, usize::MAX / 8),
        }
    }
    fn write(&self, src: Data<'_>, dst: &mut Self::Buffer) -> DeviceResult<Self> {
        self.0.write(src, dst)
    }
    fn read(&self, src: &Self::Buffer, dst: DataMut<'_>) -> impl Future<Output = DeviceResult<Self>> {
        self.0.read(src, dst)
    }
    fn table(&self, slots: u16, hyperparameters: u16) -> Result<Self::Table, CpuError> {
        self.0.table(slots, hyperparameters)
    }
    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Self::Table) -> DeviceResult<Self> {
        self.0.upload(control, clear, table)
    }
    fn collect(
        &self, table: &Self::Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Self::Buffer], values: &mut [f32],
    ) -> impl Future<Output = DeviceResult<Self>> {
        self.0.collect(table, rows, out, scalars, values)
    }
    fn fuses_attention(&self, p: &Attention) -> bool {
        self.0.fuses_attention(p)
    }
    fn launch(&self, launch: Launch<OnDevice<'_, Self>>) -> DeviceResult<Self> {
        self.0.launch(launch.inside())
    }
}

/// A batch for which memory is insufficient changes nothing, even if some of its buffers were allocated. Earlier
/// recordings continue to use the memory that they refer to.
#[test]
fn a_batch_too_large_changes_nothing() {
    let left = Rc::new(Cell::new(usize::MAX));
    let (mut trainer, net) = start(Recorder::new(Short(Cpu::new(1).expect("threads"), left.clone())));
    let mut steps = 4;
    (0..steps).for_each(|_| step(&mut trainer, &net, 10));
    let mut failed = 0;
    loop {
        left.set(failed);
        let large = backward(&mut trainer, &net, 10 * (failed + 2));
        left.set(usize::MAX);
        match large {
            Err(gradscale::Error::Device(error)) => {
                assert_eq!(error.kind(), ErrorKind::OutOfMemory);
            }
            Err(other) => panic!("{other}"),
            Ok(_) => break,
        }
        failed += 1;
        // Eager, recorded, and replayed.
        (0..3).for_each(|_| step(&mut trainer, &net, 10));
        steps += 3;
    }
    println!("{failed} batches were too large");
    assert!(failed > 5, "{failed}");
    let (plain, net) = start(Cpu::new(1).expect("threads"));
    let (plain, _) = train(plain, &net, [10].into_iter().cycle().take(steps));
    assert!(weights(&trainer) == plain, "other weights");
}
