//! The engine on a GPU: steps agree with the CPU's, shift invariance holds, recorded steps equal eager ones, and an
//! update takes as many dispatches for few parameters as for many.
//!
//! Without an adapter the tests print that and pass; with `GRADSCALE_REQUIRE_DEVICE=1` they fail.

#[path = "../../tests/engine/tests/ahead/mod.rs"]
mod ahead;
#[path = "../../tests/engine/tests/beside/mod.rs"]
mod beside;
mod mixed;
#[path = "../../tests/engine/tests/shift/nets.rs"]
mod nets;
mod placed;
#[path = "../../tests/engine/tests/timed/mod.rs"]
mod timed;
mod update;
#[path = "../../tests/engine/tests/weights/mod.rs"]
mod weights;

use gradscale::{Cpu, Method};
use gradscale_wgpu::Wgpu;
use nets::{PLAIN, Setting, Trained, mlp, segnet, sequence};
use placed::Placed;
use std::sync::Arc;

const SHIFT: i32 = 30;

fn device() -> Option<Wgpu> {
    match Wgpu::new(0) {
        Ok(device) => Some(device),
        Err(error) => {
            let required = std::env::var("GRADSCALE_REQUIRE_DEVICE").is_ok_and(|value| value == "1");
            assert!(!required, "no device, and one is required: {error}");
            println!("SKIPPED: {error}");
            None
        }
    }
}

/// Opens one device for several trainings, one after another.
fn reopened() -> Option<impl Fn() -> Placed + Sync> {
    let device = Arc::new(device()?);
    Some(move || Placed::usual(Arc::clone(&device)))
}

fn method(name: &str) -> Method {
    name.parse().expect("a method")
}

fn same_weights(a: &Trained, b: &Trained) {
    for ((name, a), (_, b)) in a.weights.iter().zip(&b.weights) {
        let differing = a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        assert_eq!(differing, 0, "{differing} of {} weights of {name} differ", a.len());
    }
}

type Train = fn(Placed, &Method, Setting) -> Trained;

const NETS: [(&str, Train); 3] =
    [("MLP", mlp::<Placed>), ("SegNet", segnet::<Placed>), ("tokens, attention and cells", sequence::<Placed>)];

/// Loss, weight decay and clipping threshold times 2^-30, learning rate times 2^30: the same weights, bit for bit, and
/// exponents 30 higher (docs/specification.md, section 6).
fn shift(open: impl Fn() -> Placed, name: &str, train: Train) {
    let plain = train(open(), &method("gs:exact"), Setting { recording: true, ..PLAIN });
    let shifted = train(open(), &method("gs:exact"), Setting { shift: SHIFT, recording: true, ..PLAIN });
    assert!(plain.moved(), "{name} did not train");
    assert_eq!(plain.skipped, shifted.skipped);
    same_weights(&plain, &shifted);
    for (step, (plain, shifted)) in plain.exponents.iter().zip(&shifted.exponents).enumerate() {
        assert!(!plain.is_empty(), "{name} has no sites");
        for ((site, a), (_, b)) in plain.iter().zip(shifted) {
            assert_eq!(a + SHIFT, *b, "{name}, step {step}: {site}");
        }
    }
}

#[test]
fn shift_invariance() {
    let Some(open) = reopened() else { return };
    for (name, train) in NETS.into_iter().filter(|(name, _)| *name != "SegNet") {
        shift(&open, name, train);
    }
}

/// The longest by far on a driver in software.
#[test]
fn shift_invariance_of_segnet() {
    if let Some(open) = reopened() {
        shift(open, "SegNet", segnet::<Placed>);
    }
}

/// A recorded step that is encoded again has the bits of an eager step, also if decisions need sums.
#[test]
fn recorded_steps_are_eager_ones() {
    let Some(open) = reopened() else { return };
    for name in ["gs:exact,interval=4", "gs:paper,interval=6", "dynamic:3,wgrad=half"] {
        for (_, train) in NETS {
            let eager = train(open(), &method(name), PLAIN);
            let recorded = train(open(), &method(name), Setting { recording: true, ..PLAIN });
            assert_eq!((&eager.skipped, &eager.exponents), (&recorded.skipped, &recorded.exponents), "{name}");
            same_weights(&eager, &recorded);
        }
    }
}

/// Stores in formats of eight bits and in blocks of these, at two sizes of the loss. A recorded step with these stores has
/// the bits of an eager one, and weights are near those of a CPU.
#[test]
fn steps_in_eight_bits() {
    let Some(open) = reopened() else { return };
    // Blocks have no exponents that move with the loss.
    for (name, shift) in
        [("gs:grad=e5m2,act=e4m3,weight=e4m3,interval=4", SHIFT), ("block:grad=e5m2,act=e4m3,weight=e4m3,scale=up", 0)]
    {
        let method = method(name);
        let eager = mlp(open(), &method, PLAIN);
        let shifted = mlp(open(), &method, Setting { shift: SHIFT, recording: true, ..PLAIN });
        assert!(eager.moved(), "{name}: nothing was trained");
        assert_eq!(eager.skipped, shifted.skipped, "{name}");
        same_weights(&eager, &shifted);
        for (eager, shifted) in eager.exponents.iter().flatten().zip(shifted.exponents.iter().flatten()) {
            assert_eq!((&eager.0, eager.1 + shift), (&shifted.0, shifted.1), "{name}");
        }
        let moved = distance(&eager.weights, &eager.before);
        let apart = distance(&eager.weights, &mlp(Cpu::new(1).expect("a CPU"), &method, PLAIN).weights);
        println!("{name}: {apart:.2e} from the CPU's weights, which moved by {moved:.2e}");
        assert!(apart < 0.1 * moved, "{name}: {apart:.2e} from the CPU's weights, which moved by {moved:.2e}");
    }
}

/// Returns the root mean square of the differences of two networks' weights.
fn distance(a: &[(String, Vec<f32>)], b: &[(String, Vec<f32>)]) -> f64 {
    let values = |all: &[(String, Vec<f32>)]| all.iter().flat_map(|(_, values)| values.clone()).collect::<Vec<f32>>();
    let squares = values(a).into_iter().zip(values(b)).map(|(a, b)| f64::from(a - b).powi(2));
    (squares.clone().sum::<f64>() / squares.count() as f64).sqrt()
}

#[test]
fn batches_sent_ahead() {
    if let Some(open) = reopened() {
        ahead::batches_sent_ahead(open);
    }
}

#[test]
fn launches_of_a_step_are_timed() {
    if let Some(open) = reopened() {
        timed::launches_are_timed(open);
    }
}

#[test]
fn weight_gradients_in_half() {
    if let Some(open) = reopened() {
        weights::weight_gradients_in_half(open);
    }
}

/// Twenty steps, in f32 and in half.
#[test]
fn segnet_beside_the_cpu() {
    if let Some(open) = reopened() {
        beside::segnet_beside_the_cpu(open);
    }
}

#[test]
fn ranks_of_two_kinds() {
    if let Some(open) = reopened() {
        mixed::a_cpu_and_a_gpu(open);
    }
}
