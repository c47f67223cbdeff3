//! Dispatches of an update: as many for many parameters as for few, with the bits of one dispatch per parameter.

use crate::{device, placed::Placed};
use gradscale::{
    Input, Method, Parameters, Trainer,
    gradscale_core::backend::Backend,
    nn::{BatchNorm, Linear, Module},
    optim::{AdamW, Optimizer, Sgd},
};
use gradscale_wgpu::Wgpu;
use std::sync::Arc;

const STEPS: usize = 5;

/// Number of dispatches of the last two updates, which are recorded by default, and bits of all parameters after them.
struct Updated {
    dispatches: [u64; 2],
    bits: Vec<Vec<u32>>,
}

/// Trains a number of layers of that width, with one normalisation.
fn train<B: Backend<Error: 'static>>(
    device: B, [depth, width]: [usize; 2], optimizer: Optimizer, method: &str, dispatches: impl Fn(&B) -> u64,
) -> Updated {
    let method: Method = method.parse().expect("a method");
    let mut parameters = Parameters::seeded(2);
    let layer = |parameters: &mut Parameters, i: usize| Linear::new(&mut parameters.at(&format!("l{i}")), width, width);
    let layers: Vec<Linear> = (0..depth).map(|i| layer(&mut parameters, i)).collect();
    let norm = BatchNorm::new(&mut parameters.at("norm"), width);
    let mut trainer = Trainer::new(device, parameters, optimizer, method).expect("a trainer");
    let value = |i: usize| (i * 37 % 101) as f32 / 50.0 - 1.0;
    let [x, target] = [0, 7].map(|seed| (0..6 * width).map(|i| value(i + seed)).collect::<Vec<f32>>());
    // Allocates half copies of some weights before those of others.
    trainer.evaluate([Input::f32([6, width], &x)], |[x]| layers[0].forward(x)).expect("an answer");
    let mut seen = Vec::new();
    for _ in 0..STEPS {
        let batch = [Input::f32([6, width], &x), Input::f32([6, width], &target)];
        let gradients = trainer.backward(batch, |[x, target]| {
            let first = norm.forward(layers[0].forward(x));
            layers[1..].iter().fold(first, |x, layer| layer.forward(x.tanh()) + x).mse_loss(target)
        });
        let before = dispatches(trainer.device());
        assert_eq!(trainer.step(gradients.expect("gradients")).expect("a step").skipped, None);
        seen.push(dispatches(trainer.device()) - before);
    }
    let all = trainer.parameters().expect("parameters can be read");
    let bits = all.into_iter().map(|(_, tensor)| tensor.data.into_iter().map(f32::to_bits).collect()).collect();
    Updated { dispatches: [seen[STEPS - 2], seen[STEPS - 1]], bits }
}

/// Each group has dispatches for its numbers and its parameters. The norm has two, and running statistics are a group
/// too.
#[test]
fn as_many_dispatches_for_few_parameters_as_for_many() {
    let Some(gpu) = device() else { return };
    let optimizer = Optimizer::from(Sgd { momentum: 0.9, ..Sgd::new(0.05) }).group("l1", 0.02, 0.1).clip_norm(0.5);
    let method = "gs:exact,amp=O2";
    assert_eq!(train(gpu, [7, 13], optimizer, method, Wgpu::dispatches).dispatches, [2 + 2 * 2 + 2; 2]);
}

/// Parameters in one buffer, in several buffers, and in a buffer each have the same bits, with increasing numbers of
/// dispatches.
#[test]
fn the_bits_of_one_dispatch_for_each() {
    let (Some(gpu), Some(small)) = (device().map(Arc::new), device()) else { return };
    let optimizer = || Optimizer::from(AdamW::new(0.01)).clip_norm(0.5);
    // Weights of 64516 bytes: of f32, a binding of 64 KiB shows one.
    let (size, method) = ([4, 127], "gs:exact");
    let small = small.with_largest_binding(1 << 16);
    let dispatches = |device: &Placed| device.inner.dispatches();
    let together = train(Placed::usual(Arc::clone(&gpu)), size, optimizer(), method, dispatches);
    let small = train(small, size, optimizer(), method, Wgpu::dispatches);
    let alone = train(Placed::alone(gpu), size, optimizer(), method, dispatches);
    assert!(together.bits == small.bits, "small bindings train to other bits");
    assert!(together.bits == alone.bits, "parameters alone train to other bits");
    // The norm of all gradients, the optimizer and the running statistics, each with its numbers and its tensors.
    let parts = [[1, 1, 1], [5, 5, 1], [10, 10, 1]].map(|parts: [u64; 3]| 3 + parts.iter().sum::<u64>());
    assert_eq!([together, small, alone].map(|one| one.dispatches), parts.map(|count| [count; 2]));
}
