//! Shift invariance, the property that no loss scaling has (spec: section 6): loss, weight decay and clipping
//! thresholds times 2^-30 and learning rate times 2^30 give bit-identical weights, and exponents exactly 30 higher at
//! every site, from the first step on.

mod detection;
mod gan;
mod language;
mod nets;
mod speech;
mod translation;
mod vision;

use detection::{faster_rcnn, ssd};
use gan::gan;
use gradscale::{Cpu, Init, Input, Method, Parameters, Trainer, models::Architecture, optim::Sgd};
use gradscale_conformance::Recorder;
use language::{biglstm, decoder};
use nets::{PLAIN, Setting, Trained, mlp, segnet, sequence};
use speech::speech;
use translation::translation;
use vision::{segnet_vgg, vision};

const SHIFT: i32 = 30;

fn device() -> Cpu {
    Cpu::new(2).expect("a pool of two threads")
}

/// Returns the difference between two trainings, if any: weights in bits, and exponents except for the shift.
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
    let eager = PLAIN;
    let plain = train(&method, eager);
    assert!(plain.exponents.iter().all(|sites| !sites.is_empty()), "{name} has no sites");
    assert!(plain.moved(), "{name} did not train");
    for recording in [false, true] {
        let shifted = train(&method, Setting { shift: SHIFT, recording, ..PLAIN });
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

#[test]
fn sequences_are_shift_invariant() {
    invariant("tokens, attention and cells", |method, setting| sequence(device(), method, setting));
}

#[test]
fn speech_is_shift_invariant() {
    invariant("Deep Speech 2", |method, setting| speech(device(), method, setting));
}

#[test]
fn networks_in_turn_are_shift_invariant() {
    invariant("DCGAN", |method, setting| gan(device(), method, setting));
}

#[test]
fn translation_is_shift_invariant() {
    invariant("seq2seq", |method, setting| translation(device(), method, setting));
}

#[test]
fn language_models_are_shift_invariant() {
    invariant("bigLSTM", |method, setting| biglstm(device(), method, setting));
    invariant("a decoder", |method, setting| decoder(device(), method, setting));
}

/// In larger networks only the sums of gradients are new, so they are tested only under the method that must be
/// invariant.
#[test]
fn networks_for_images_are_shift_invariant() {
    let method: Method = "gs:exact".parse().expect("a method");
    let of = |name: &str, train: &dyn Fn(Setting) -> Trained| {
        let plain = train(PLAIN);
        assert!(plain.exponents.iter().all(|sites| !sites.is_empty()) && plain.moved(), "{name} did not train");
        let shifted = train(Setting { shift: SHIFT, ..PLAIN });
        assert_eq!(difference(&plain, &shifted), None, "{name}");
    };
    for architecture in Architecture::ALL {
        of(architecture.name(), &|setting| vision(device(), architecture, &method, setting));
    }
    of("segnet", &|setting| segnet_vgg(device(), &method, setting));
    of("ssd", &|setting| ssd(device(), &method, setting));
    of("faster r-cnn", &|setting| faster_rcnn(device(), &method, setting));
}

/// A step that a device repeats as it recorded it draws its dropout anew; two dropouts of one value draw each their own.
#[test]
fn a_repeated_step_draws_anew() {
    let mut parameters = Parameters::seeded(1);
    let weight = parameters.at("p").weight("w", [32, 32], Init::Constant(1.0));
    let recorder = Recorder::new(device());
    let repeats = recorder.repeats();
    let mut trainer = Trainer::new(recorder, parameters, Sgd::new(0.0), Method::mixed()).expect("a trainer");
    let mut masks = Vec::new();
    for _ in 0..8 {
        let gradients = trainer.backward([Input::f32([1], &[0.0])], |[any]| {
            let w = any.tape().parameter(&weight);
            (w.dropout(0.5) + w.dropout(0.5).scale(16.0)).sum()
        });
        let gradients = gradients.expect("gradients");
        masks.push(trainer.gradient(&gradients, "p.w").expect("a parameter").expect("its gradient").data);
        assert!(trainer.step(gradients).expect("a step").skipped.is_none());
    }
    assert!(repeats.get() > 4, "{} steps were repeated", repeats.get());
    for (i, mask) in masks.iter().enumerate() {
        // Kept by the first, by the second, by both or by none: a quarter of 1024 each.
        for value in [0.0, 2.0, 32.0, 34.0] {
            let count = mask.iter().filter(|&&x| x == value).count();
            assert!((200..312).contains(&count), "{value}: {count}");
        }
        assert!(!masks[..i].contains(mask), "step {i} drew what an earlier one had drawn");
    }
}

/// A reading of the property itself: f32 training is shift invariant as well.
#[test]
fn f32_is_shift_invariant() {
    let method = Method::fp32();
    for train in [mlp::<Cpu>, segnet::<Cpu>, sequence::<Cpu>, speech::<Cpu>, translation::<Cpu>, gan::<Cpu>] {
        let plain = train(device(), &method, PLAIN);
        let shifted = train(device(), &method, Setting { shift: SHIFT, ..PLAIN });
        assert_eq!(difference(&plain, &shifted), None);
    }
}

/// Steps that a device records and replays have the bits of steps that run launch by launch, and are shift invariant
/// too.
#[test]
fn recorded_steps_are_eager_ones() {
    for method in ["gs:exact,interval=4", "gs:paper,interval=6", "dynamic:3"] {
        let method: Method = method.parse().expect("a method");
        for train in [mlp::<Recorder<Cpu>>, segnet::<Recorder<Cpu>>, sequence::<Recorder<Cpu>>] {
            let eager = train(Recorder::new(device()), &method, PLAIN);
            let recorder = Recorder::new(device());
            let repeats = recorder.repeats();
            let recorded = train(recorder, &method, Setting { recording: true, ..PLAIN });
            assert!(repeats.get() > 10, "{} steps were repeated", repeats.get());
            assert_eq!(eager.exponents, recorded.exponents);
            assert_eq!((eager.skipped, eager.weights), (recorded.skipped, recorded.weights));
        }
    }
    let method: Method = "gs:exact".parse().expect("a method");
    for train in [mlp::<Recorder<Cpu>>, segnet::<Recorder<Cpu>>, sequence::<Recorder<Cpu>>] {
        let plain = train(Recorder::new(device()), &method, Setting { recording: true, ..PLAIN });
        let shifted = train(Recorder::new(device()), &method, Setting { shift: SHIFT, recording: true, ..PLAIN });
        assert_eq!(difference(&plain, &shifted), None);
    }
}
