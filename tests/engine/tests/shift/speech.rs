//! A network for speech.

use super::nets::{Setting, Trained, noise, optimizer, run};
use gradscale::{
    Input, Method, Parameters, Trainer, TrainerOptions, gradscale_core::backend::Backend, models::DeepSpeech,
};

/// Trains Deep Speech 2 on sequences of different lengths, one with an empty transcript: normalisations over frames,
/// and a loss that is a sum over alignments.
pub fn speech<B: Backend<Error: 'static>>(device: B, method: &Method, setting: Setting) -> Trained {
    let mut parameters = Parameters::seeded(6);
    let net = DeepSpeech::new(&mut parameters.at("net"), 9, [2, 4, 2], 4);
    let trainer = Trainer::new(device, parameters, optimizer(setting), method.clone()).expect("a trainer");
    let trainer = trainer.with_options(TrainerOptions::new().with_recording(setting.recording).with_skip_limit(0));
    let frames = [14, 9, 5];
    let (x, steps) = (noise(3 * 14 * 9, 7), frames.map(DeepSpeech::steps));
    run(trainer, setting, |trainer| {
        let batch = [
            Input::f32([3, 14, 9, 1], &x),
            Input::u32([3], &frames),
            Input::u32([3], &steps),
            Input::u32([3, 3], &[1, 2, 2, 3, 1, 0, 0, 0, 0]),
            Input::u32([3], &[3, 2, 0]),
        ];
        let small = 2f32.powi(-setting.shift);
        let gradients = trainer.backward(batch, |[x, frames, steps, targets, letters]| {
            net.logits(x, frames, steps).ctc_loss(targets, steps, letters, 0, true).scale(small)
        });
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        Some(outcome.skipped.is_some())
    })
}
