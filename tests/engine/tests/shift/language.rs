//! Language models.

use super::nets::{Setting, Trained, optimizer, run};
use gradscale::{
    Input, Method, Parameters, Trainer, TrainerOptions,
    data::{LogUniform, Random},
    gradscale_core::backend::Backend,
    models::{BigLstm, BigLstmSize, Decoder, DecoderSize},
    nn::Candidate,
};

fn tokens(count: u32, most: u32, factor: u32) -> Vec<u32> {
    (0..count).map(|i| i * factor % most).collect()
}

/// Trains recurrent layers with projection, and a sampled softmax with some labels among the sampled classes.
pub fn biglstm<B: Backend<Error: 'static>>(device: B, method: &Method, setting: Setting) -> Trained {
    let mut parameters = Parameters::seeded(7);
    let size = BigLstmSize { width: 6, hidden: 8, projection: 4, layers: 2, dropout: 0.25 };
    let net = BigLstm::new(&mut parameters.at("net"), 40, size);
    let trainer = Trainer::new(device, parameters, optimizer(setting), method.clone()).expect("a trainer");
    let trainer = trainer.with_options(TrainerOptions::new().with_recording(setting.recording).with_skip_limit(0));
    let (now, next) = (tokens(15, 40, 7), tokens(15, 40, 11));
    let drawn = LogUniform::new(40).draw(&mut Random::from_key(&[3]), 12, &next);
    assert!(drawn.hits.iter().any(|&hit| hit <= 12));
    run(trainer, setting, |trainer| {
        let batch = [
            Input::u32([3, 5], &now),
            Input::u32([15], &next),
            Input::f32([15], &drawn.of_labels),
            Input::u32([12], &drawn.classes),
            Input::f32([12], &drawn.of_classes),
            Input::u32([15], &drawn.hits),
            Input::u8([15], &[0; 15]),
        ];
        let small = 2f32.powi(-setting.shift);
        let gradients = trainer.backward(batch, |[now, labels, of_labels, classes, of_classes, hits, first]| {
            let of = Candidate { labels, of_labels, classes, of_classes, hits, first };
            net.sampled_loss(net.features(now, None).0, &of).scale(small)
        });
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        Some(outcome.skipped.is_some())
    })
}

/// Trains an attention network with a table that is used twice, so that two gradients are added.
pub fn decoder<B: Backend<Error: 'static>>(device: B, method: &Method, setting: Setting) -> Trained {
    let mut parameters = Parameters::seeded(8);
    let size = DecoderSize { context: 6, width: 8, heads: 2, layers: 2, dropout: 0.25 };
    let net = Decoder::new(&mut parameters.at("net"), 20, size);
    let trainer = Trainer::new(device, parameters, optimizer(setting), method.clone()).expect("a trainer");
    let trainer = trainer.with_options(TrainerOptions::new().with_recording(setting.recording).with_skip_limit(0));
    let (now, next) = (tokens(15, 20, 7), tokens(15, 20, 11));
    run(trainer, setting, |trainer| {
        let batch = [Input::u32([3, 5], &now), Input::u32([3, 5], &next)];
        let small = 2f32.powi(-setting.shift);
        let gradients = trainer.backward(batch, |[now, next]| net.logits(now).cross_entropy(next).scale(small));
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        Some(outcome.skipped.is_some())
    })
}
