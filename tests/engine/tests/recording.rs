//! Test of the case for recorded steps: a device that records correctly passes it, and one that keeps state that
//! changes from step to step fails it.

use gradscale_conformance::{Case, Keeps, Outcome, Recorder, Reference, suite};

fn outcome(keeps: Keeps) -> Outcome {
    let cases = suite::<Recorder<Reference>>();
    let case: Vec<&Case<Recorder<Reference>>> = cases.iter().filter(|case| case.name.starts_with("record::")).collect();
    assert_eq!(case.len(), 1);
    case[0].run(&Recorder::keeping(Reference::default(), keeps))
}

#[test]
fn a_recording_device_passes() {
    assert_eq!(outcome(Keeps::Nothing), Outcome::Passed(vec![]));
}

#[test]
fn a_device_that_keeps_control_fails() {
    for keeps in [Keeps::Exponents, Keeps::Hyperparameters, Keeps::Seed] {
        assert!(matches!(outcome(keeps), Outcome::Failed(_)), "{keeps:?} passed");
    }
}
