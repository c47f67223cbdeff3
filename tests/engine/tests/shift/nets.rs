//! Three networks, trained for some steps on made-up data.

use gradscale::{
    CrossEntropy, Input, Method, Parameters, Trainer, TrainerOptions,
    gradscale_core::{backend::Backend, ops::Divisor},
    models::{Mlp, SegNet},
    nn::{
        ConvTranspose2d, Dropout, Embedding, Gru, GruCell, LayerNorm, Linear, LstmCell, Module, RmsNorm, SelfAttention,
    },
    optim::{Optimizer, Sgd},
};

/// Settings of a network's training.
#[derive(Clone, Copy)]
pub struct Setting {
    /// Loss, weight decay and clipping threshold times 2^-shift, learning rate times 2^shift.
    pub shift: i32,
    pub recording: bool,
    pub steps: usize,
}

/// Setting without shift and recording.
pub const PLAIN: Setting = Setting { shift: 0, recording: false, steps: 23 };

pub struct Trained {
    pub weights: Vec<(String, Vec<f32>)>,
    /// Exponents after each step.
    pub exponents: Vec<Vec<(String, i32)>>,
    pub skipped: Vec<usize>,
    /// Weights at the start.
    pub before: Vec<(String, Vec<f32>)>,
}

impl Trained {
    /// Returns true if the weights have changed since the start.
    pub fn moved(&self) -> bool {
        self.weights != self.before
    }
}

pub fn optimizer(setting: Setting) -> Optimizer {
    let small = 2f32.powi(-setting.shift);
    Optimizer::from(Sgd {
        momentum: 0.9,
        nesterov: true,
        weight_decay: 5e-4 * small,
        ..Sgd::new(0.05 / f64::from(small))
    })
    .clip_norm(2.0 * small)
}

pub fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(state >> 16).expect("16 bits")) / 32768.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

pub fn run<B: Backend<Error: 'static>>(
    mut trainer: Trainer<B>, setting: Setting, mut step: impl FnMut(&mut Trainer<B>) -> Option<bool>,
) -> Trained {
    let values = |trainer: &Trainer<B>| -> Vec<(String, Vec<f32>)> {
        let all = trainer.parameters().expect("parameters can be read");
        all.into_iter().map(|(name, tensor)| (name, tensor.data)).collect()
    };
    let before = values(&trainer);
    let (mut exponents, mut skipped) = (Vec::new(), Vec::new());
    for i in 0..setting.steps {
        if step(&mut trainer) == Some(true) {
            skipped.push(i);
        }
        exponents.push(trainer.sites().map(|site| (site.name.to_owned(), site.alpha)).collect());
    }
    Trained { weights: values(&trainer), exponents, skipped, before }
}

pub fn mlp<B: Backend<Error: 'static>>(device: B, method: &Method, setting: Setting) -> Trained {
    let mut parameters = Parameters::seeded(3);
    let net = Mlp::new(&mut parameters.at("net"), &[20, 48, 32, 6]);
    let trainer = Trainer::new(device, parameters, optimizer(setting), method.clone()).expect("a trainer");
    let trainer = trainer.with_options(TrainerOptions::new().with_recording(setting.recording).with_skip_limit(0));
    let (x, labels) = (noise(32 * 20, 5), (0..32).map(|i| i % 6).collect::<Vec<u8>>());
    run(trainer, setting, |trainer| {
        let batch = [Input::f32([32, 20], &x), Input::u8([32], &labels)];
        let small = 2f32.powi(-setting.shift);
        let gradients = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels).scale(small));
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        Some(outcome.skipped.is_some())
    })
}

pub fn segnet<B: Backend<Error: 'static>>(device: B, method: &Method, setting: Setting) -> Trained {
    let mut parameters = Parameters::seeded(4);
    let net = SegNet::new(&mut parameters.at("net"), 3, 8, 5);
    let weights = parameters.at("loss").constant("weights", [5], &[0.5, 1.0, 2.0, 0.25, 3.0]);
    let trainer = Trainer::new(device, parameters, optimizer(setting), method.clone()).expect("a trainer");
    let trainer = trainer.with_options(TrainerOptions::new().with_recording(setting.recording).with_skip_limit(0));
    let pixels = 2 * 30 * 36;
    let images: Vec<u8> = (0..pixels * 3).map(|i| u8::try_from(i * 7 % 251).expect("below 251")).collect();
    let labels: Vec<u8> = (0..pixels).map(|i| u8::try_from(i / 36 % 6).expect("below 6")).collect();
    run(trainer, setting, |trainer| {
        let batch = [Input::u8([2, 30, 36, 3], &images), Input::u8([2, 30, 36, 1], &labels)];
        let small = 2f32.powi(-setting.shift);
        let gradients = trainer.backward(batch, |[x, labels]| {
            let options = CrossEntropy {
                weights: Some(x.tape().parameter(&weights)),
                ignore: Some(5),
                divisor: Divisor::Fixed(2048.0),
            };
            net.forward(x).cross_entropy_with(labels, &options).scale(small)
        });
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        Some(outcome.skipped.is_some())
    })
}

/// Tokens, attention, recurrent cells and layers with lengths, places by index, images of another size, dropout, and three losses.
pub fn sequence<B: Backend<Error: 'static>>(device: B, method: &Method, setting: Setting) -> Trained {
    let mut parameters = Parameters::seeded(5);
    let mut scope = parameters.at("net");
    let tokens = Embedding::new(&mut scope.at("tokens"), 12, 8);
    let (one, two) = (LayerNorm::new(&mut scope.at("one"), 8), RmsNorm::new(&mut scope.at("two"), 8));
    let attention = SelfAttention::new(&mut scope.at("attention"), 8, 2).causal();
    let up = ConvTranspose2d::new(&mut scope.at("up"), 8, 6, 3).stride(2).pad(1);
    let (lstm, gru) = (LstmCell::new(&mut scope.at("lstm"), 6, 8), GruCell::new(&mut scope.at("gru"), 8, 8));
    let over = Gru::bidirectional(&mut scope.at("over"), 8, 4, 1);
    let head = Linear::new(&mut scope.at("head"), 8, 4);
    let dropout = Dropout { p: 0.25 };
    let trainer = Trainer::new(device, parameters, optimizer(setting), method.clone()).expect("a trainer");
    let trainer = trainer.with_options(TrainerOptions::new().with_recording(setting.recording).with_skip_limit(0));
    let indices: Vec<u32> = (0..24).map(|i| i * 7 % 13).collect();
    let (zero, target) = (vec![0.0; 32], noise(16, 9));
    let (lengths, places) = ([2, 1, 2, 0, 2, 2, 1, 2, 0, 2, 1, 2], [5, 0, 3, 3, 1, 0]);
    let labels: Vec<f32> = target.iter().map(|x| if *x > 0.0 { 1.0 } else { 0.0 }).collect();
    run(trainer, setting, |trainer| {
        let batch = [
            Input::u32([4, 6], &indices),
            Input::f32([4, 8], &zero),
            Input::f32([4, 4], &target),
            Input::f32([4, 4], &labels),
            Input::u32([12], &lengths),
            Input::u32([6], &places),
        ];
        let small = 2f32.powi(-setting.shift);
        let gradients = trainer.backward(batch, |[indices, zero, target, labels, lengths, places]| {
            let x = one.forward(dropout.forward(tokens.forward(indices)));
            let x = two.forward(x + attention.forward(x)).gelu();
            let pairs = over.sequence(x.reshape([12, 2, 8]), None, Some(lengths)).0;
            let x = x + pairs.reshape([4, 6, 8]).gather("again", 2, places);
            let image = up.forward(x.reshape([4, 2, 3, 8])).silu().upsample_bilinear([4, 6], false);
            let image = image.upsample_nearest([1, 2]).adaptive_average_pool([3, 5]).adaptive_max_pool([1, 2]);
            let (mut state, mut h) = ([zero; 2], zero);
            for step in image.split(2, &[1, 1]) {
                state = lstm.forward(step.reshape([4, 6]), state);
                h = gru.forward(dropout.forward(state[0]), h);
            }
            let y = head.forward(h);
            let loss = y.smooth_l1_loss(target, 0.5) + y.bce_with_logits(labels);
            (loss + y.focal_loss(labels, 0.25, 2.0)).scale(small)
        });
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        Some(outcome.skipped.is_some())
    })
}
