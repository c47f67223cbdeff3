//! A device beside the CPU: a narrow network of each task, trained on both from the same weights.
//!
//! The CPU's sums are in another order, so values that lie between two halves are rounded up on one and down on the other:
//! trainings drift apart slowly. The first step begins alike: it must decide alike.

use crate::{
    detection::ssd,
    gan::gan,
    language::{biglstm, decoder},
    nets::{Setting, Trained},
    speech::speech,
    translation::translation,
    vision::vision,
};
use gradscale::{Cpu, Method, core::backend::Backend, models::Architecture};

/// How far weights may be apart in the end, root mean square of a tensor, of the tensor's: at most four times what has been
/// seen, on lavapipe and on the emulation of CUDA.
const SINGLE: f64 = 1e-3;
const HALF: f64 = 5e-2;
/// A scale differs where a value at the edge is rounded to the other side.
const APART: usize = 20;

/// Trains all of them on both.
pub fn tasks_beside_the_cpu<B: Backend<Error: 'static>>(open: impl Fn() -> B) {
    compare("SSD", &open, ssd::<B>, ssd::<Cpu>);
    compare("Deep Speech 2", &open, speech::<B>, speech::<Cpu>);
    compare("seq2seq", &open, translation::<B>, translation::<Cpu>);
    compare("bigLSTM", &open, biglstm::<B>, biglstm::<Cpu>);
    compare("a decoder", &open, decoder::<B>, decoder::<Cpu>);
    compare("DCGAN", &open, gan::<B>, gan::<Cpu>);
    compare("GoogLeNet", &open, googlenet::<B>, googlenet::<Cpu>);
}

/// Of the networks for classes the one with most kinds of operators.
fn googlenet<B: Backend<Error: 'static>>(device: B, method: &Method, setting: Setting) -> Trained {
    vision(device, Architecture::GoogLeNet, method, setting)
}

fn compare<B: Backend<Error: 'static>>(
    name: &str, open: impl Fn() -> B, here: impl Fn(B, &Method, Setting) -> Trained,
    cpu: impl Fn(Cpu, &Method, Setting) -> Trained,
) {
    for (method, bound) in [("fp32", SINGLE), ("gs:exact", HALF)] {
        let method: Method = method.parse().expect("a method");
        let setting = Setting { shift: 0, recording: true };
        let found = here(open(), &method, setting);
        let right = cpu(Cpu::new(2).expect("two threads"), &method, setting);
        assert!(found.moved, "{name}, {method}: it did not train");
        assert_eq!(found.skipped, right.skipped, "{name}, {method}");
        let decisions = || found.exponents[0].iter().zip(&right.exponents[0]);
        assert!(decisions().all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() <= 1), "{name}, {method}: first scales");
        let apart = decisions().filter(|(a, b)| a != b).count();
        let all = decisions().count();
        let worst = found.weights.iter().zip(&right.weights).map(|((name, a), (_, b))| (distance(a, b), name));
        let worst = worst.max_by(|a, b| a.0.total_cmp(&b.0)).expect("weights");
        println!("{name}, {method}: {apart} of {all} first scales differ; weights by {:.1e} ({})", worst.0, worst.1);
        assert!(apart * APART <= all, "{name}, {method}: {apart} of {all} first scales differ");
        assert!(worst.0 <= bound, "{name}, {method}: {} differs by {:e}", worst.1, worst.0);
    }
}

/// Root mean square of the differences, of the values.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let sum = |all: &mut dyn Iterator<Item = f64>| all.map(|x| x * x).sum::<f64>().sqrt();
    let differences = sum(&mut a.iter().zip(b).map(|(&a, &b)| f64::from(a) - f64::from(b)));
    if differences == 0.0 { 0.0 } else { differences / sum(&mut b.iter().map(|&b| f64::from(b))).max(1e-3) }
}
