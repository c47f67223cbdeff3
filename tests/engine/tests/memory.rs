//! Memory of a step: activations and their gradients in FP16 take at most 60 % of their memory in f32.

use gradscale::{Cpu, Input, Method, Parameters, Trainer, models::SegNet, nn::Module, optim::Sgd};

/// Bytes of activations after some steps.
fn activations(method: &str, width: usize) -> u64 {
    let method: Method = method.parse().expect("a method");
    let mut parameters = Parameters::seeded(0);
    let net = SegNet::new(&mut parameters.at("net"), 3, width, 11);
    let device = Cpu::new(0).expect("threads");
    let mut trainer =
        Trainer::new(device, parameters, Sgd { momentum: 0.9, ..Sgd::new(0.1) }, method).expect("a trainer");
    let pixels = 2 * 90 * 120;
    let images: Vec<u8> = (0..pixels * 3).map(|i| u8::try_from(i * 7 % 251).expect("below 251")).collect();
    let labels: Vec<u8> = (0..pixels).map(|i| u8::try_from(i / 1000 % 11).expect("below 11")).collect();
    // The first step decides at all sites, with scratch that the second step frees.
    for _ in 0..3 {
        let batch = [Input::u8([2, 90, 120, 3], &images), Input::u8([2, 90, 120, 1], &labels)];
        let gradients = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels));
        trainer.step(gradients.expect("gradients")).expect("a step");
    }
    trainer.memory().activations
}

#[test]
fn half_takes_at_most_60_percent() {
    for width in [16, 64] {
        let single = activations("fp32", width);
        for method in ["gs", "dynamic"] {
            let half = activations(method, width);
            let share = half as f64 / single as f64;
            println!("SegNet, {width} channels, {method}: {half} of {single} bytes, {:.1} %", 100.0 * share);
            assert!(share <= 0.6, "{share}");
        }
    }
}
