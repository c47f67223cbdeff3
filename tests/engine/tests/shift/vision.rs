//! Networks for images, small.

use super::nets::{Setting, Trained, optimizer, run};
use gradscale::{
    Input, Method, Parameters, Trainer, TrainerOptions,
    gradscale_core::backend::Backend,
    models::{Architecture, Scale, SegNetVgg},
    nn::Module,
};

/// A network for images, with all of its heads.
pub fn vision<B: Backend<Error: 'static>>(
    device: B, architecture: Architecture, method: &Method, setting: Setting,
) -> Trained {
    let mut parameters = Parameters::seeded(6);
    // Without the first layers for small pictures where that does not enlarge the network, so that it has all its
    // heads.
    let small = architecture != Architecture::GoogLeNet;
    let scale = Scale { small, ..Scale::small(1) };
    let net = architecture.build(&mut parameters.at("net"), 3, scale, 4);
    let trainer = Trainer::new(device, parameters, optimizer(setting), method.clone()).expect("a trainer");
    let trainer = trainer.with_options(TrainerOptions::new().with_recording(setting.recording).with_skip_limit(0));
    let images: Vec<u8> = (0..4 * 32 * 32 * 3).map(|i| u8::try_from(i * 7 % 251).expect("below 251")).collect();
    run(trainer, setting, |trainer| {
        let batch = [Input::u8([4, 32, 32, 3], &images), Input::u8([4], &[0, 1, 2, 3])];
        let small = 2f32.powi(-setting.shift);
        let gradients = trainer.backward(batch, |[x, labels]| {
            let heads = net.heads(x.affine(1.0 / 64.0, -2.0)).into_iter();
            let losses = heads.map(|(head, weight)| head.cross_entropy(labels).scale(weight));
            losses.reduce(|sum, loss| sum + loss).expect("a head").scale(small)
        });
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        Some(outcome.skipped.is_some())
    })
}

/// `SegNet` in full.
pub fn segnet_vgg<B: Backend<Error: 'static>>(device: B, method: &Method, setting: Setting) -> Trained {
    let mut parameters = Parameters::seeded(7);
    let net = SegNetVgg::new(&mut parameters.at("net"), 3, Scale::small(2), 3);
    let trainer = Trainer::new(device, parameters, optimizer(setting), method.clone()).expect("a trainer");
    let trainer = trainer.with_options(TrainerOptions::new().with_recording(setting.recording).with_skip_limit(0));
    let images: Vec<u8> = (0..2 * 24 * 40 * 3).map(|i| u8::try_from(i * 7 % 251).expect("below 251")).collect();
    let labels: Vec<u8> = (0..2 * 24 * 40).map(|i| u8::try_from(i / 40 % 3).expect("below 3")).collect();
    run(trainer, setting, |trainer| {
        let batch = [Input::u8([2, 24, 40, 3], &images), Input::u8([2, 24, 40, 1], &labels)];
        let small = 2f32.powi(-setting.shift);
        let gradients = trainer
            .backward(batch, |[x, labels]| net.forward(x.affine(1.0 / 64.0, -2.0)).cross_entropy(labels).scale(small));
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        Some(outcome.skipped.is_some())
    })
}
