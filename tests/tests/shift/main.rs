//! Shift invariance, the property that no loss scaling has (spec: section 6): loss, weight decay and clipping
//! thresholds times 2^-30 and learning rate times 2^30 give bit-identical weights, and exponents exactly 30 higher at
//! every site, from the first step on.

mod nets;
mod recorder;

use gradscale::{Cpu, Method};
use nets::{Setting, Trained, mlp, segnet};
use recorder::Recorder;

const SHIFT: i32 = 30;

fn device() -> Cpu {
    Cpu::new(2).expect("a pool of two threads")
}

/// What of two trainings differs, if anything: weights in bits, exponents but for the shift.
fn difference(plain: &Trained, shifted: &Trained) -> Option<String> {
    if plain.skipped != shifted.skipped {
        return Some(format!("skipped {:?} against {:?}", plain.skipped, shifted.skipped));
    }
    for ((name, a), (_, b)) in plain.weights.iter().zip(&shifted.weights) {
        let differing = a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        if differing != 0 {
            return Some(format!("{differing} of {} weights of {name}", a.len()));
        }
    }
    for (step, (plain, shifted)) in plain.exponents.iter().zip(&shifted.exponents).enumerate() {
        for ((name, a), (_, b)) in plain.iter().zip(shifted) {
            if a + SHIFT != *b {
                return Some(format!("step {step}: {name} at 2^{a} and 2^{b}"));
            }
        }
    }
    None
}

fn invariant(name: &str, train: impl Fn(&Method, Setting) -> Trained) {
    let method: Method = "gs:exact".parse().expect("a method");
    let eager = Setting { shift: 0, recording: false };
    let plain = train(&method, eager);
    assert!(plain.exponents.iter().all(|sites| !sites.is_empty()), "{name} has no sites");
    assert!(plain.moved, "{name} did not train");
    for recording in [false, true] {
        let shifted = train(&method, Setting { shift: SHIFT, recording });
        assert_eq!(difference(&plain, &shifted), None, "{name}, recording {recording}");
    }
    for other in ["fixed:1024", "dynamic", "dynamic:10", "fp16"] {
        let method: Method = other.parse().expect("a method");
        let (plain, shifted) = (train(&method, eager), train(&method, Setting { shift: SHIFT, ..eager }));
        let difference = difference(&plain, &shifted);
        println!("{name} under {other}: {}", difference.as_deref().unwrap_or("the same"));
        assert!(difference.is_some(), "{name} under {other} cannot be shift invariant");
    }
}

#[test]
fn mlp_is_shift_invariant() {
    invariant("MLP", |method, setting| mlp(device(), method, setting));
}

#[test]
fn segnet_is_shift_invariant() {
    invariant("SegNet", |method, setting| segnet(device(), method, setting));
}

/// A reading of the property itself: f32 training is shift invariant as well.
#[test]
fn f32_is_shift_invariant() {
    let method = Method::fp32();
    for train in [mlp::<Cpu>, segnet::<Cpu>] {
        let plain = train(device(), &method, Setting { shift: 0, recording: false });
        let shifted = train(device(), &method, Setting { shift: SHIFT, recording: false });
        assert_eq!(difference(&plain, &shifted), None);
    }
}

/// Steps that a device has recorded and repeats give the bits of steps that it runs one launch after the other, and
/// are shift invariant too.
#[test]
fn recorded_steps_are_eager_ones() {
    for method in ["gs:exact,interval=4", "gs:paper,interval=6", "dynamic:3"] {
        let method: Method = method.parse().expect("a method");
        for train in [mlp::<Recorder>, segnet::<Recorder>] {
            let eager = train(Recorder::new(device()), &method, Setting { shift: 0, recording: false });
            let recorder = Recorder::new(device());
            let repeats = recorder.repeats.clone();
            let recorded = train(recorder, &method, Setting { shift: 0, recording: true });
            assert!(repeats.get() > 10, "{} steps were repeated", repeats.get());
            assert_eq!(eager.exponents, recorded.exponents);
            assert_eq!((eager.skipped, eager.weights), (recorded.skipped, recorded.weights));
        }
    }
    let method: Method = "gs:exact".parse().expect("a method");
    for train in [mlp::<Recorder>, segnet::<Recorder>] {
        let plain = train(Recorder::new(device()), &method, Setting { shift: 0, recording: true });
        let shifted = train(Recorder::new(device()), &method, Setting { shift: SHIFT, recording: true });
        assert_eq!(difference(&plain, &shifted), None);
    }
}
