//! Detectors.

use super::nets::{Setting, Trained, optimizer, run};
use gradscale::{
    AnchorTruth, Input, Method, MultiBox, Parameters, RegionTruth, Trainer, TrainerOptions,
    gradscale_core::backend::Backend,
    metrics::Truth,
    models::{FasterRcnn, Scale, Ssd, SsdSize},
};

/// SSD, whose loss counts the negatives that are the hardest in the same forward pass.
pub fn ssd<B: Backend<Error: 'static>>(device: B, method: &Method, setting: Setting) -> Trained {
    let mut parameters = Parameters::seeded(6);
    let net = Ssd::new(&mut parameters.at("net"), SsdSize::Ssd300, Scale::small(2), 2);
    let trainer = Trainer::new(device, parameters, optimizer(setting), method.clone()).expect("a trainer");
    let trainer = trainer.with_options(TrainerOptions::new().with_recording(setting.recording).with_skip_limit(0));
    let (side, boxes) = (128, SsdSize::Ssd300.default_boxes(true).len());
    let image: Vec<u8> = (0..side * side * 3).map(|i| u8::try_from(i * 7 % 251).expect("below 251")).collect();
    let labels: Vec<u32> =
        (0..boxes).map(|place| u32::from(place % 97 == 3) * (1 + u32::from(place % 2 == 0))).collect();
    let codes: Vec<f32> =
        (0..4 * boxes).map(|i| f32::from(u8::try_from(i % 13).expect("small")) / 8.0 - 0.75).collect();
    run(trainer, setting, |trainer| {
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

/// Faster R-CNN, whose regions are proposed by an evaluation before each step.
pub fn faster_rcnn<B: Backend<Error: 'static>>(device: B, method: &Method, setting: Setting) -> Trained {
    let mut parameters = Parameters::seeded(6);
    let net = FasterRcnn::new(&mut parameters.at("net"), Scale::small(2), 2);
    let trainer = Trainer::new(device, parameters, optimizer(setting), method.clone()).expect("a trainer");
    let trainer = trainer.with_options(TrainerOptions::new().with_recording(setting.recording).with_skip_limit(0));
    let (side, regions) = (64, net.regions([64, 64]));
    let image: Vec<u8> = (0..side * side * 3).map(|i| u8::try_from(i * 7 % 251).expect("below 251")).collect();
    let truth = |class, corners| Truth { class, corners, difficult: false };
    let truths = [truth(1, [4.0, 6.0, 30.0, 40.0]), truth(2, [33.0, 20.0, 60.0, 58.0])];
    let word = |_: usize, place: usize| place as u64 * 7919 % 1009;
    let anchors = regions.anchor_targets(std::iter::once(&truths[..]), word);
    run(trainer, setting, |trainer| {
        let pictures = Input::u8([1, side, side, 3], &image);
        let seen = trainer.evaluate([pictures], |[x]| net.proposed(x.affine(1.0 / 64.0, -2.0))).expect("answers");
        let proposals = regions.proposals(&seen.data, true);
        let told = regions.region_targets(std::iter::once(&truths[..]), &proposals, word);
        let (all, count) = (regions.anchors().len(), told.labels.len());
        let batch = [
            pictures,
            Input::f32([1, 1, all, 1], &anchors.signs),
            Input::f32([1, 1, all, 4], &anchors.codes),
            Input::f32([1], std::slice::from_ref(&anchors.share)),
            Input::f32([count, 5], &told.boxes),
            Input::u32([count], &told.labels),
            Input::u32([count], &told.places),
            Input::f32([count], &told.counted),
            Input::f32([count, 4], &told.codes),
            Input::f32([1], std::slice::from_ref(&told.share)),
        ];
        let small = 2f32.powi(-setting.shift);
        let gradients = trainer.backward(batch, |all| {
            let [x, signs, codes, share, boxes, labels, places, counted, of_regions, share_of_regions] = all;
            let anchors = AnchorTruth { signs, codes, share };
            let told = RegionTruth { labels, places, counted, codes: of_regions, share: share_of_regions };
            let [anchors, told] = net.losses(x.affine(1.0 / 64.0, -2.0), &anchors, boxes, &told);
            (anchors + told).scale(small)
        });
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        Some(outcome.skipped.is_some())
    })
}
