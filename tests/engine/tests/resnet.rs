//! A residual network: the gradients of both paths around a block are added, and the sum is a site of its own.

use gradscale::{Cpu, Input, Method, Parameters, Trainer, models::ResNet, nn::Module, optim::Sgd};

/// Losses of the first and of the last step, and the names of all sites.
fn train(method: &str) -> (f32, f32, Vec<(String, f64)>) {
    let method: Method = method.parse().expect("a method");
    let mut parameters = Parameters::seeded(2);
    let net = ResNet::new(&mut parameters.at("net"), 3, 4, 1, 3);
    let device = Cpu::new(0).expect("threads");
    let optimizer = Sgd { momentum: 0.9, weight_decay: 1e-4, ..Sgd::new(0.05) };
    let mut trainer = Trainer::new(device, parameters, optimizer, method).expect("a trainer");
    // Stripes of three widths.
    let pixel = |image: usize, x: usize| if ((x + image) >> (image % 3)).is_multiple_of(2) { 200 } else { 30 };
    let images: Vec<u8> = (0..12 * 16 * 16 * 3).map(|i: usize| pixel(i / 768, i / 3 % 16)).collect();
    let labels: Vec<u8> = (0..12).map(|image| image % 3).collect();
    let mut losses = Vec::new();
    for _ in 0..40 {
        let batch = [Input::u8([12, 16, 16, 3], &images), Input::u8([12], &labels)];
        let gradients =
            trainer.backward(batch, |[x, labels]| net.forward(x.affine(1.0 / 64.0, -2.0)).cross_entropy(labels));
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        assert!(outcome.skipped.is_none(), "{:?}", outcome.skipped);
        losses.push(outcome.loss);
    }
    let sites = trainer.sites().map(|site| (site.name.to_owned(), site.gamma_measured)).collect();
    (losses[0], losses[losses.len() - 1], sites)
}

#[test]
fn a_residual_network_trains_and_its_sums_are_sites() {
    let (_, single, none) = train("fp32");
    assert!(none.is_empty());
    let (first, last, sites) = train("gs");
    println!("loss {first} → {last}, in f32 → {single}");
    assert!(single < 0.2 && last < 0.2, "{single}, {last}");
    // The way around each of three blocks, and both uses of a block's result.
    let sums = sites.iter().filter(|(name, _)| name.ends_with("/sum")).count();
    assert_eq!(sums, 3, "{sites:?}");
    assert!(sites.iter().all(|(_, gamma)| *gamma <= 3e-3), "{sites:?}");
}
