//! Two networks, trained for some steps on made-up data.

use gradscale::{
    Batch, CrossEntropy, Method, Parameters, Trainer,
    core::{backend::Backend, descriptor::Divisor},
    models::{Mlp, SegNet},
    nn::Module,
    optim::Optimizer,
};

/// How a network is trained.
#[derive(Clone, Copy)]
pub struct Setting {
    /// Loss, weight decay and clipping threshold times 2^-shift, learning rate times 2^shift.
    pub shift: i32,
    pub recording: bool,
}

pub struct Trained {
    pub weights: Vec<(String, Vec<f32>)>,
    /// Exponents after each step.
    pub exponents: Vec<Vec<(String, i32)>>,
    pub skipped: Vec<usize>,
    /// Whether weights are others than at the start.
    pub moved: bool,
}

const STEPS: usize = 23;

fn optimizer(setting: Setting) -> Optimizer {
    let small = 2f32.powi(-setting.shift);
    Optimizer::sgd(0.05 / f64::from(small)).momentum(0.9).nesterov().decay(5e-4 * small).clip_norm(2.0 * small)
}

fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(state >> 16).expect("16 bits")) / 32768.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn run<B: Backend<Error: 'static>>(
    mut trainer: Trainer<B>, mut step: impl FnMut(&mut Trainer<B>) -> Option<bool>,
) -> Trained {
    let values = |trainer: &Trainer<B>| -> Vec<(String, Vec<f32>)> {
        let all = trainer.parameters().expect("parameters can be read");
        all.into_iter().map(|(name, tensor)| (name, tensor.data)).collect()
    };
    let before = values(&trainer);
    let (mut exponents, mut skipped) = (Vec::new(), Vec::new());
    for i in 0..STEPS {
        if step(&mut trainer) == Some(true) {
            skipped.push(i);
        }
        exponents.push(trainer.sites().map(|site| (site.name.to_owned(), site.alpha)).collect());
    }
    let weights = values(&trainer);
    let moved = weights.iter().zip(&before).any(|(after, before)| after != before);
    Trained { weights, exponents, skipped, moved }
}

pub fn mlp<B: Backend<Error: 'static>>(device: B, method: &Method, setting: Setting) -> Trained {
    let mut parameters = Parameters::seeded(3);
    let net = Mlp::new(&mut parameters.at("net"), &[20, 48, 32, 6]);
    let trainer = Trainer::new(device, parameters, optimizer(setting), method.clone()).expect("a trainer");
    let trainer = trainer.with_recording(setting.recording).with_skip_limit(0);
    let (x, labels) = (noise(32 * 20, 5), (0..32).map(|i| i % 6).collect::<Vec<u8>>());
    run(trainer, |trainer| {
        let batch = [Batch::f32([32, 20], &x), Batch::u8([32], &labels)];
        let small = 2f32.powi(-setting.shift);
        let gradients = trainer.backward(batch, |[x, labels]| Ok(net.forward(x)?.cross_entropy(labels)?.scale(small)));
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        Some(outcome.skipped.is_some())
    })
}

pub fn segnet<B: Backend<Error: 'static>>(device: B, method: &Method, setting: Setting) -> Trained {
    let mut parameters = Parameters::seeded(4);
    let net = SegNet::new(&mut parameters.at("net"), 3, 8, 5);
    let weights = parameters.at("loss").constant("weights", [5], &[0.5, 1.0, 2.0, 0.25, 3.0]);
    let trainer = Trainer::new(device, parameters, optimizer(setting), method.clone()).expect("a trainer");
    let trainer = trainer.with_recording(setting.recording).with_skip_limit(0);
    let pixels = 2 * 30 * 36;
    let images: Vec<u8> = (0..pixels * 3).map(|i| u8::try_from(i * 7 % 251).expect("below 251")).collect();
    let labels: Vec<u8> = (0..pixels).map(|i| u8::try_from(i / 36 % 6).expect("below 6")).collect();
    run(trainer, |trainer| {
        let batch = [Batch::u8([2, 30, 36, 3], &images), Batch::u8([2, 30, 36, 1], &labels)];
        let small = 2f32.powi(-setting.shift);
        let gradients = trainer.backward(batch, |[x, labels]| {
            let options = CrossEntropy {
                weights: Some(x.tape().parameter(&weights)),
                ignore: Some(5),
                divisor: Divisor::Fixed(2048.0),
            };
            Ok(net.forward(x)?.cross_entropy_with(labels, &options)?.scale(small))
        });
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        Some(outcome.skipped.is_some())
    })
}
