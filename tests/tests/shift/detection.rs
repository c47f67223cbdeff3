//! A detector.

use crate::nets::{Setting, Trained, optimizer, run};
use gradscale::{
    Input, Method, MultiBox, Parameters, Trainer,
    core::backend::Backend,
    models::{Scale, Ssd, SsdSize},
};

/// SSD, whose loss counts the negatives that are the hardest in the same forward pass.
pub fn ssd<B: Backend<Error: 'static>>(device: B, method: &Method, setting: Setting) -> Trained {
    let mut parameters = Parameters::seeded(6);
    let net = Ssd::new(&mut parameters.at("net"), SsdSize::Ssd300, Scale::small(2), 2);
    let trainer = Trainer::new(device, parameters, optimizer(setting), method.clone()).expect("a trainer");
    let trainer = trainer.with_recording(setting.recording).with_skip_limit(0);
    let (side, boxes) = (128, SsdSize::Ssd300.default_boxes(true).len());
    let image: Vec<u8> = (0..side * side * 3).map(|i| u8::try_from(i * 7 % 251).expect("below 251")).collect();
    let labels: Vec<u32> =
        (0..boxes).map(|place| u32::from(place % 97 == 3) * (1 + u32::from(place % 2 == 0))).collect();
    let codes: Vec<f32> =
        (0..4 * boxes).map(|i| f32::from(u8::try_from(i % 13).expect("small")) / 8.0 - 0.75).collect();
    run(trainer, |trainer| {
        let batch = [
            Input::u8([1, side, side, 3], &image),
            Input::u32([1, boxes], &labels),
            Input::f32([1, 1, boxes, 4], &codes),
            Input::f32([1], &[48.0]),
            Input::f32([1], &[1.0 / 16.0]),
        ];
        let small = 2f32.powi(-setting.shift);
        let gradients = trainer.backward(batch, |[x, labels, codes, negatives, share]| {
            let [logits, offsets] = net.answers(x.affine(1.0 / 64.0, -2.0));
            logits.multibox_loss(offsets, &MultiBox { labels, codes, negatives, share }).scale(small)
        });
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        Some(outcome.skipped.is_some())
    })
}
