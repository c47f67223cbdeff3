//! Prefetched batches: training has the same bits as with batches that are passed to the step.

use gradscale::{
    Error, Input, Inputs, Parameters, Pass, Prefetched, ProgramKind, TraceErrorKind, Trainer, TrainerOptions, Var,
    gradscale_core::backend::Backend,
    nn::{Conv2d, Linear, Module},
    optim::Sgd,
};

const STEPS: u32 = 6;
const SIDE: usize = 6;
const CLASSES: u32 = 3;

/// Convolution followed by a linear layer, for images of bytes with one number for each.
struct Net {
    conv: Conv2d,
    head: Linear,
}

impl Net {
    fn new(parameters: &mut Parameters) -> Self {
        let conv = Conv2d::new(&mut parameters.at("conv"), 3, 8, 3);
        Self { conv, head: Linear::new(&mut parameters.at("head"), 8, CLASSES as usize) }
    }

    fn logits<'t>(&self, x: Var<'t>, bias: Var<'t>) -> Var<'t> {
        let pooled = self.conv.forward(x).relu().adaptive_average_pool([1, 1]);
        let [count, ..] = x.shape().sizes();
        self.head.forward(pooled.reshape([count, 8])) + bias
    }

    fn loss<'t>(&self, [x, bias, labels]: [Var<'t>; 3]) -> Var<'t> {
        self.logits(x, bias).cross_entropy(labels)
    }
}

/// Inputs of one step: images, a number for each class, and labels that exceed a byte.
struct Data {
    count: usize,
    images: Vec<u8>,
    bias: Vec<f32>,
    labels: Vec<u32>,
}

/// Different in every step; every third batch is shorter.
fn data(step: u32) -> Data {
    let count = if step % 3 == 2 { 3 } else { 5 };
    let mut state = 77 + step;
    let mut below = |most: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % most
    };
    let images = (0..count * SIDE * SIDE * 3).map(|_| below(256).to_le_bytes()[0]).collect();
    let bias = (0..count * CLASSES as usize).map(|_| below(100) as f32 / 100.0).collect();
    let labels = (0..count).map(|_| below(CLASSES)).collect();
    Data { count, images, bias, labels }
}

impl Data {
    fn batch(&self) -> [Input<'_>; 3] {
        let Self { count, images, bias, labels } = self;
        [
            Input::u8([*count, SIDE, SIDE, 3], images),
            Input::f32([*count, CLASSES as usize], bias),
            Input::u32([*count], labels),
        ]
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sent {
    WithTheStep,
    Ahead,
}

/// Returns losses, weights and exponents as bits. Each step has two micro-batches, with an evaluation between them.
fn train<B: Backend<Error: 'static>>(device: B, sent: Sent, recording: bool) -> Vec<u32> {
    let mut parameters = Parameters::seeded(5);
    let net = Net::new(&mut parameters);
    let method = "gs:exact,interval=2".parse().expect("a method");
    let mut trainer =
        Trainer::new(device, parameters, Sgd { momentum: 0.9, ..Sgd::new(0.1) }, method).expect("a trainer");
    trainer = trainer.with_options(TrainerOptions::new().with_recording(recording));
    let mut seen = vec![];
    let mut ahead: Option<Prefetched<3>> = None;
    // The host's own copy is gone as soon as it has been sent.
    let send =
        |trainer: &mut Trainer<B>, i| (sent == Sent::Ahead).then(|| trainer.prefetch(data(i).batch()).expect("sent"));
    for step in 0..STEPS {
        let (first, second) = (data(2 * step), data(2 * step + 1));
        let batch = ahead.take().map_or_else(|| first.batch().into(), Inputs::from);
        let gradients = trainer.backward(batch, |all| net.loss(all)).expect("a backward pass");
        let batch = send(&mut trainer, 2 * step + 1).map_or_else(|| second.batch().into(), Inputs::from);
        let gradients =
            trainer.backward(Pass::new(batch).accumulate(gradients), |all| net.loss(all)).expect("a backward pass");
        ahead = send(&mut trainer, 2 * step + 2);
        let outcome = trainer.step(gradients).expect("a step");
        // Another batch on its way is not in the way of a score, nor does a score take its place.
        let [x, bias, _] = first.batch();
        let scores = trainer.evaluate([x, bias], |[x, bias]| net.logits(x, bias)).expect("scores");
        seen.push(outcome.loss.to_bits());
        seen.extend(scores.data.iter().map(|score| score.to_bits()));
        seen.extend(trainer.sites().map(|site| site.alpha.cast_unsigned()));
    }
    for (_, tensor) in trainer.parameters().expect("readable") {
        seen.extend(tensor.data.iter().map(|v| v.to_bits()));
    }
    seen
}

/// Checks that prefetched batches do not change bits, in recorded steps and others, and that invalid ones are refused.
pub fn batches_sent_ahead<B: Backend<Error: 'static>>(open: impl Fn() -> B) {
    let plain = train(open(), Sent::WithTheStep, false);
    for (sent, recording) in [(Sent::Ahead, false), (Sent::WithTheStep, true), (Sent::Ahead, true)] {
        assert!(train(open(), sent, recording) == plain, "{sent:?}, recording {recording}");
    }
    refused(&open);
}

fn refused<B: Backend<Error: 'static>>(open: impl Fn() -> B) {
    let mut parameters = Parameters::seeded(5);
    let net = Net::new(&mut parameters);
    let open = |parameters: &Parameters| {
        let method = "gs".parse().expect("a method");
        Trainer::new(open(), parameters.clone(), Sgd::new(0.1), method).expect("a trainer")
    };
    let (mut trainer, mut other) = (open(&parameters), open(&parameters));
    let batch = data(0);
    let elsewhere = other.prefetch(batch.batch()).expect("sent");
    assert!(matches!(trainer.backward(elsewhere, |all| net.loss(all)), Err(Error::Prefetched)), "of another trainer");
    let old = trainer.prefetch(batch.batch()).expect("sent");
    let new = trainer.prefetch(batch.batch()).expect("sent");
    assert!(matches!(trainer.backward(old, |all| net.loss(all)), Err(Error::Prefetched)), "replaced");
    let short = trainer.prefetch([Input::u8([2, 3], &[0; 5])]);
    let Err(Error::Trace(error)) = short else { panic!("five elements for six were sent") };
    assert!(matches!(error.kind, TraceErrorKind::Length { got: 5, .. }), "{error}");
    // A refused batch must not have replaced the prefetched one.
    let _ = trainer.backward(new, |all| net.loss(all)).expect("the batch that is ahead");
    let program = trainer.compile(ProgramKind::Training, batch.batch(), |all| net.loss(all)).expect("it fits");
    let other_shape = trainer.prefetch(data(2).batch()).expect("sent");
    assert!(matches!(trainer.backward_compiled(&program, other_shape), Err(Error::Trace(_))), "another shape");
    let same = trainer.prefetch(batch.batch()).expect("sent");
    let _ = trainer.backward_compiled(&program, same).expect("the same shape");
}
