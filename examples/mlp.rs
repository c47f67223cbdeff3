//! A complete training loop: a multilayer perceptron on two interleaved spirals, in FP16.
//!
//!     cargo run --release --example mlp
use gradscale::{Cpu, Input, Method, Parameters, Trainer, models::Mlp, nn::Module, optim::Sgd};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut parameters = Parameters::seeded(1);
    let net = Mlp::new(&mut parameters.at("net"), &[2, 64, 64, 2]);
    let optimizer = Sgd { momentum: 0.9, ..Sgd::new(0.1) };
    let mut trainer = Trainer::new(Cpu::new(0)?, parameters, optimizer, Method::mixed())?;
    let (points, labels) = spirals(256);

    for step in 0..600 {
        let batch = [Input::f32([256, 2], &points), Input::u8([256], &labels)];
        let gradients = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels))?;
        let outcome = trainer.step(gradients)?;
        if step % 100 == 0 {
            println!("step {step}: loss {:.4}", outcome.loss);
        }
    }
    for site in trainer.sites() {
        println!("{}: scale 2^{}, {:.1e} flushed", site.name, site.alpha, site.gamma_measured);
    }
    let best = trainer.evaluate_integers([Input::f32([256, 2], &points)], |[x]| net.forward(x).argmax())?;
    let right = best.data.iter().zip(&labels).filter(|(best, label)| **best == u32::from(**label)).count();
    println!("{right} of 256 right");
    Ok(())
}

/// Points of two spirals, and which one each belongs to.
fn spirals(count: u16) -> (Vec<f32>, Vec<u8>) {
    let angle = |i: u16| f32::from(i / 2) / f32::from(count) * 15.0;
    let point = |i: u16| {
        let (radius, turn) = (angle(i) / 8.0, angle(i) + f32::from(i % 2) * std::f32::consts::PI);
        [radius * turn.cos(), radius * turn.sin()]
    };
    ((0..count).flat_map(point).collect(), (0..count).map(|i| u8::from(i % 2 == 1)).collect())
}
