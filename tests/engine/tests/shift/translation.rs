//! A network for translation.

use super::nets::{Setting, Trained, optimizer, run};
use gradscale::{
    CrossEntropy, Input, Method, Parameters, Trainer, TrainerOptions,
    gradscale_core::{backend::Backend, ops::Divisor},
    models::Seq2Seq,
};

/// Trains encoder and decoder of two layers on sentences of different lengths: states shared by two networks, attention
/// that ignores padding, and labels that do not count.
pub fn translation<B: Backend<Error: 'static>>(device: B, method: &Method, setting: Setting) -> Trained {
    let mut parameters = Parameters::seeded(8);
    let net = Seq2Seq::new(&mut parameters.at("net"), [9, 7], 6, 2).dropout(0.25);
    let trainer = Trainer::new(device, parameters, optimizer(setting), method.clone()).expect("a trainer");
    let trainer = trainer.with_options(TrainerOptions::new().with_recording(setting.recording).with_skip_limit(0));
    let source = [5, 6, 7, 2, 3, 8, 2, 0, 4, 2, 0, 0];
    let target = [1, 4, 5, 1, 6, 0, 1, 3, 0];
    let labels = [4, 5, 2, 6, 2, 0, 3, 2, 0];
    run(trainer, setting, |trainer| {
        let batch = [
            Input::u32([3, 4], &source),
            Input::u32([3], &[4, 3, 2]),
            Input::u32([3, 3], &target),
            Input::u32([3, 3], &labels),
        ];
        let small = 2f32.powi(-setting.shift);
        let counted = CrossEntropy { weights: None, ignore: Some(0), divisor: Divisor::Rows };
        let gradients = trainer.backward(batch, |[source, lengths, target, labels]| {
            net.logits(source, lengths, target).cross_entropy_with(labels, &counted).scale(small)
        });
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        Some(outcome.skipped.is_some())
    })
}
