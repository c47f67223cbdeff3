//! Times of launches, on the CPU.

mod timed;

use gradscale::{Cpu, Error, Method, Parameters, Trainer, nn::Linear, optim::Sgd};
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
