//! Two networks that are trained alternately over the parameters of one trainer: a DCGAN against PyTorch
//! (`tests/golden/gan.py`), and the state of one network that a step of the other must not change.

mod table;
mod turns;

use gradscale::{
    Cpu, Input, Method, Parameters, Pass, TorchModule, Trainer, TrainerOptions,
    models::{Dcgan, GanSize},
    optim::{Adam, Optimizer},
};
use table::{Case, cases, pattern, state_dict};

/// Maximum error, relative to the largest value.
const BOUND: f32 = 1e-5;

/// Starts a training of the table's networks with its initial weights; each network has its own rate and decay.
fn start(case: &Case, channels: usize, size: GanSize) -> (Trainer<Cpu>, Dcgan) {
    let mut parameters = Parameters::seeded(1);
    let net = Dcgan::new(&mut parameters, channels, size);
    let imported = parameters.import_torch(&state_dict(case, "first."), |layer| Some(TorchModule::named(layer)));
    let imported = imported.expect("PyTorch's weights");
    assert!(imported.unused.is_empty() && imported.missing.iter().all(|name| name.ends_with(".running")), "{imported}");
    let adam = Adam { betas: [0.5, 0.999], ..Adam::new(1.0) };
    let optimizer = Optimizer::from(adam).group("generator", 2e-3, 0.01).group("discriminator", 1e-3, 0.0);
    let device = Cpu::new(1).expect("a CPU");
    let trainer = Trainer::new(device, parameters, optimizer, Method::fp32()).expect("a trainer");
    (trainer.with_options(TrainerOptions::new().with_statistics_of_each_call()), net)
}

/// The largest difference, relative to the largest value.
fn far(found: &[f32], right: &[f32]) -> f32 {
    assert_eq!(found.len(), right.len());
    let largest = right.iter().fold(0f32, |most, x| most.max(x.abs()));
    let differences = found.iter().zip(right).map(|(x, y)| (x - y).abs());
    differences.fold(0f32, |most, x| if x.is_nan() { f32::INFINITY } else { most.max(x) }) / largest
}

/// Runs both passes of an iteration, or only the discriminator's. Returns losses, and gradients of the trained network.
fn iteration(
    (trainer, net): (&mut Trainer<Cpu>, &Dcgan), (images, sizes): (&[f32], [usize; 4]), noise: &[f32], whole: bool,
) -> (Vec<f32>, Vec<(String, Vec<f32>)>) {
    let n = sizes[0];
    let (x, z) = (Input::f32(sizes, images), Input::f32([n, 1, 1, noise.len() / n], noise));
    let names: Vec<String> = trainer.parameters().expect("values").into_iter().map(|(name, _)| name).collect();
    let (mut losses, mut all) = (Vec::new(), Vec::new());
    for (network, loss) in [("discriminator", "D"), ("generator", "G")].into_iter().take(if whole { 2 } else { 1 }) {
        let gradients = match loss {
            "D" => trainer.backward(Pass::new([x, z]).with_loss(loss), |[x, z]| net.discriminator_loss(x, z)),
            _ => trainer.backward(Pass::new([z]).with_loss(loss), |[z]| net.generator_loss(z)),
        };
        let gradients = gradients.expect("it fits");
        for name in names.iter().filter(|name| !name.ends_with(".running")) {
            let gradient = trainer.gradient(&gradients, name).expect("a parameter");
            assert_eq!(gradient.is_some(), name.starts_with(network), "{name} in the step of the {network}");
            all.extend(gradient.map(|gradient| (format!("{loss}.{name}"), gradient.data)));
        }
        losses.push(trainer.step(gradients).expect("a step").loss);
    }
    (losses, all)
}

/// Compares these values with the table, by the engine's names.
fn agree(case: &Case, prefix: &str, found: &[(String, Vec<f32>)]) -> usize {
    let mut compared = 0;
    for (name, values) in found {
        if let Some(right) = case.of_engine(prefix, name) {
            let far = far(values, &right);
            println!("{prefix}{name}: {far:.1e}");
            assert!(far < BOUND, "{prefix}{name} is {far:.1e} off");
            compared += 1;
        }
    }
    compared
}

#[test]
fn values_gradients_and_weights_of_both_networks() {
    let (all, images) = (cases(), pattern(4 * 16 * 16));
    let case = &all["small"];
    let (mut trainer, net) = start(case, 1, GanSize { noise: 3, width: 2, levels: 2 });
    let mut losses = Vec::new();
    for i in 0..4 {
        let noise = case.floats(&format!("z {i}"));
        let (some, gradients) = iteration((&mut trainer, &net), (&images, [4, 16, 16, 1]), &noise, i > 0);
        losses.extend(some);
        if i == 1 {
            // Weights of three layers each, scales and shifts of their normalisations.
            assert_eq!(agree(case, "", &gradients), 5 + 7);
        }
    }
    assert!(far(&losses, &case.floats("losses")) < BOUND, "{losses:?}");
    let last: Vec<(String, Vec<f32>)> =
        trainer.parameters().unwrap().into_iter().map(|(name, tensor)| (name, tensor.data)).collect();
    assert_eq!(agree(case, "last.", &last), last.len());
    assert_eq!(last.len(), 5 + 7 + 3);
}

/// The shape of PyTorch's example, four levels and three channels, with few channels between.
#[test]
fn an_iteration_in_the_shape_of_the_paper() {
    let (all, images) = (cases(), pattern(2 * 64 * 64 * 3));
    let case = &all["paper"];
    let size = GanSize { noise: 2, width: 1, ..GanSize::PAPER };
    let noise = case.floats("z");
    let (mut trainer, net) = start(case, 3, size);
    // The example generates its samples in training mode.
    let z = Input::f32([2, 1, 1, 2], &noise);
    let gradients = trainer.backward(Pass::new([z]).with_loss("look"), |[z]| {
        use gradscale::nn::Module;
        let made = net.generator.forward(z);
        let _ = made.output("made");
        made.mean()
    });
    let _ = gradients.expect("it fits");
    let made = trainer.output("made").expect("the images");
    assert_eq!(made.shape.sizes(), [2, 64, 64, 3]);
    let mean = |image: usize, channel: usize| {
        let pixels = made.data[image * 64 * 64 * 3..(image + 1) * 64 * 64 * 3].chunks_exact(3);
        pixels.map(|pixel| pixel[channel]).sum::<f32>() / (64.0 * 64.0)
    };
    let means: Vec<f32> = (0..6).map(|i| mean(i / 3, i % 3)).collect();
    assert!(far(&means, &case.floats("made")) < BOUND, "{means:?}");
    // The generator's gradients are those before the discriminator's step: it does not take one in the script either.
    let (mut trainer, net) = start(case, 3, size);
    trainer.set_lr(Some("discriminator"), 0.0).expect("a group");
    let (losses, gradients) = iteration((&mut trainer, &net), (&images, [2, 64, 64, 3]), &noise, true);
    assert!(far(&losses, &case.floats("losses")) < BOUND, "{losses:?}");
    assert_eq!(agree(case, "", &gradients), 8 + 10);
}
