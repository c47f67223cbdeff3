//! Two networks that train in turn.

use super::nets::{Setting, Trained, noise, optimizer, run};
use gradscale::{
    Input, Method, Parameters, Pass, Trainer, TrainerOptions,
    gradscale_core::backend::Backend,
    models::{Dcgan, GanSize},
};

pub fn gan<B: Backend<Error: 'static>>(device: B, method: &Method, setting: Setting) -> Trained {
    let mut parameters = Parameters::seeded(6);
    let net = Dcgan::new(&mut parameters, 1, GanSize { noise: 6, width: 4, levels: 2 });
    let small = 2f32.powi(-setting.shift);
    let (lr, decay) = (0.01 / f64::from(small), 1e-3 * small);
    let optimizer = Dcgan::NAMES.iter().fold(optimizer(setting), |optimizer, name| optimizer.group(name, lr, decay));
    let trainer = Trainer::new(device, parameters, optimizer, method.clone()).expect("a trainer");
    let mut trainer = trainer.with_options(TrainerOptions::new().with_recording(setting.recording).with_skip_limit(0));
    trainer = trainer.with_options(TrainerOptions::new().with_statistics_of_each_call());
    let images = noise(6 * 16 * 16, 11);
    let mut seed = 0;
    run(trainer, setting, |trainer| {
        seed += 1;
        let noise = noise(6 * 6, seed);
        let (x, z) = (Input::f32([6, 16, 16, 1], &images), Input::f32([6, 1, 1, 6], &noise));
        let gradients =
            trainer.backward(Pass::new([x, z]).with_loss("D"), |[x, z]| net.discriminator_loss(x, z).scale(small));
        let one = trainer.step(gradients.expect("gradients")).expect("a step");
        let gradients = trainer.backward(Pass::new([z]).with_loss("G"), |[z]| net.generator_loss(z).scale(small));
        let two = trainer.step(gradients.expect("gradients")).expect("a step");
        Some(one.skipped.is_some() || two.skipped.is_some())
    })
}
