//! Times of launches, on the CPU.

mod timed;

use gradscale::{
    Cpu, Error, Input, Method, Parameters, Trainer, Var,
    nn::{Linear, Module},
    optim::Sgd,
};
use gradscale_conformance::Reference;

#[test]
fn launches_of_a_step_are_timed() {
    timed::launches_are_timed(|| Cpu::new(1).expect("threads"));
}

#[test]
fn a_device_without_a_clock_says_so() {
    let mut parameters = Parameters::seeded(0);
    Linear::new(&mut parameters.at("net"), 2, 2);
    let mut trainer =
        Trainer::new(Reference::default(), parameters, Sgd::new(0.5), Method::mixed()).expect("a trainer");
    trainer.time_launches(false).expect("nothing to time");
    let error = trainer.time_launches(true).expect_err("no clock");
    assert!(matches!(&error, Error::NoClock { device } if device == "reference"));
    assert_eq!(error.to_string(), "reference has no clock for launches (on a GPU, a driver without timestamps)");
    assert!(trainer.launch_times().is_empty());
}

/// Softmax of scores, with lengths and mask of their columns.
type Softmax = for<'t> fn([Var<'t>; 3]) -> Var<'t>;

/// Every softmax is one launch each way, and nothing else reduces or exponentiates its scores.
#[test]
fn a_softmax_is_one_launch_each_way() {
    let (x, lengths, mask) = ([0.5; 2 * 3 * 4], [2, 4], [1; 2 * 3 * 4]);
    let softmaxes: [(Softmax, &str); 5] = [
        (|[x, ..]| x.softmax(), "1x6x4"),
        (|[x, ..]| x.causal_softmax(), "2x3x4 causal"),
        (|[x, lengths, _]| x.softmax_within(lengths), "2x3x4 within"),
        (|[x, _, mask]| x.softmax_where(mask), "1x6x4 masked"),
        (|[x, ..]| x.log_softmax(), "1x6x4 logarithm"),
    ];
    for (softmax, shape) in softmaxes {
        let mut parameters = Parameters::seeded(0);
        let net = Linear::new(&mut parameters.at("net"), 4, 4);
        let mut trainer = Trainer::new(Cpu::new(1).expect("a thread"), parameters, Sgd::new(0.5), Method::mixed());
        let trainer = trainer.as_mut().expect("a trainer");
        for step in 0..3 {
            trainer.time_launches(step == 2).expect("a clock");
            let batch = [Input::f32([2, 1, 3, 4], &x), Input::u32([2], &lengths), Input::u8([2, 1, 3, 4], &mask)];
            let gradients =
                trainer.backward(batch, |[x, lengths, mask]| softmax([net.forward(x), lengths, mask]).square().mean());
            let gradients = gradients.expect("gradients");
            trainer.step(gradients).expect("a step");
        }
        let times = trainer.launch_times();
        for name in ["softmax", "softmax_vjp"] {
            let found: Vec<_> = times.iter().filter(|time| time.name == name).collect();
            assert!(matches!(found[..], [time] if time.launches == 1 && time.shape == shape), "{name} {shape}");
        }
        let others = times.iter().filter(|time| time.shape.contains("exp") || time.shape.starts_with("max"));
        assert_eq!(others.count(), 0, "{shape}");
    }
}
