//! `wgrad=half` on a device: its own f32 gradients at the scale, rounded once to half and unscaled, bit for bit.

use gradscale::{
    Input, Method, Parameters, Trainer,
    gradscale_core::{
        backend::Backend,
        cast::{Round, f16_from_f32},
    },
    models::Mlp,
    nn::Module,
    optim::Sgd,
};

/// Tests scales from one at which many gradients flush to one at which some overflow.
pub fn weight_gradients_in_half<B: Backend<Error: 'static>>(open: impl Fn() -> B) {
    let (mut flushed, mut overflowed) = (0, 0);
    for exponent in [-14, 19] {
        let scale = 2f32.powi(exponent);
        let [single, half] = ["", ",wgrad=half"].map(|wgrad| gradients(open(), &format!("fixed:2^{exponent}{wgrad}")));
        for ((name, single), half) in single.iter().zip(half.iter().map(|(_, values)| values)) {
            for (&single, &half) in single.iter().zip(half) {
                let expected = f16_from_f32(single * scale, Round::NearestEven).to_f32() / scale;
                assert_eq!(half.to_bits(), expected.to_bits(), "{name} at 2^{exponent}: {half}, not {expected}");
                flushed += usize::from(single != 0.0 && half == 0.0);
                overflowed += usize::from(single.is_finite() && half.is_infinite());
            }
        }
    }
    assert!(flushed > 3 && overflowed > 0, "{flushed} flush, {overflowed} overflow");
}

/// Gradients of all parameters by name, of one batch.
fn gradients<B: Backend<Error: 'static>>(device: B, method: &str) -> Vec<(String, Vec<f32>)> {
    let method: Method = method.parse().expect("a method");
    let mut parameters = Parameters::seeded(4);
    let net = Mlp::new(&mut parameters.at("net"), &[12, 16, 5]);
    let mut trainer = Trainer::new(device, parameters, Sgd::new(0.05), method).expect("a trainer");
    let x: Vec<f32> = (0..64 * 12u16).map(|i| f32::from(i * 7 % 251) / 250.0 - 0.5).collect();
    // Mostly one class: gradients of many rows add up.
    let labels: Vec<u8> = (0..64u8).map(|i| u8::from(i % 9 == 0)).collect();
    let batch = [Input::f32([64, 12], &x), Input::u8([64], &labels)];
    let found = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels)).expect("gradients");
    let names = trainer.parameters().expect("readable").into_iter().map(|(name, _)| name);
    let read = |name: String| Some((name.clone(), trainer.gradient(&found, &name).expect("readable")?.data));
    names.filter_map(read).collect()
}
