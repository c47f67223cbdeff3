//! The gradient of every operator: in f32 and in mixed precision against central differences of the oracle.

use crate::{
    f64::Tensor,
    graph::{Graph, Random},
    operators::all,
    run::Run,
};
use gradscale::{
    Cpu, Method,
    gradscale_core::{
        amp::{AmpPolicy, Level, List},
        backend::DType,
        ops::Op as Name,
    },
    optim::Sgd,
};
use std::sync::LazyLock;

/// Gradients of all operators in f64. Several tests compare with them, under many methods.
static NUMERIC: LazyLock<Vec<Vec<Vec<f64>>>> =
    LazyLock::new(|| all().iter().map(|(_, graph)| numeric(graph)).collect());

/// Returns all operators, with their gradients in f64.
pub fn all_with_gradients() -> impl Iterator<Item = (String, Graph, &'static [Vec<f64>])> {
    all().into_iter().zip(&*NUMERIC).map(|((name, graph), gradients)| (name, graph, gradients.as_slice()))
}

/// Central differences with h = 1e-5: truncation is about 1e-10 of the third derivative, rounding 1e-11.
fn numeric(graph: &Graph) -> Vec<Vec<f64>> {
    let mut all = graph.first();
    let detached = graph.eval(&all).0;
    let loss = |all: &[Tensor]| graph.eval_detached(all, Some(&detached)).0.last().expect("a loss").data[0];
    let mut gradients: Vec<Vec<f64>> = Vec::new();
    for i in 0..all.len() {
        let mut one = Vec::new();
        for j in 0..all[i].data.len() {
            let (at, h) = (all[i].data[j], 1e-5);
            let mut shifted = |to: f64| {
                all[i].data[j] = to;
                loss(&all)
            };
            let difference = shifted(at + h) - shifted(at - h);
            all[i].data[j] = at;
            one.push(difference / (2.0 * h));
        }
        gradients.push(one);
    }
    gradients
}

/// The largest difference, relative to the largest magnitude of the same parameter's gradient.
pub fn distance(found: &[Vec<f32>], right: &[Vec<f64>]) -> f64 {
    assert_eq!(found.len(), right.len());
    let pairs = found.iter().zip(right).map(|(found, right)| {
        assert_eq!(found.len(), right.len());
        let largest = right.iter().fold(0f64, |largest, x| largest.max(x.abs()));
        let worst = found
            .iter()
            .zip(right)
            .map(|(x, y)| (f64::from(*x) - y).abs())
            .fold(0f64, |worst, x| if x.is_nan() { f64::INFINITY } else { worst.max(x) });
        if worst == 0.0 { 0.0 } else { worst / largest }
    });
    pairs.fold(0.0, f64::max)
}

/// Gradients of one step, and how many halves were stored on the way.
fn engine(graph: &Graph, method: &Method) -> (Vec<Vec<f32>>, usize) {
    let mut run = Run::new(Cpu::new(1).expect("a CPU"), graph, Sgd::new(0.0).into(), method);
    let gradients = run.backward().expect("the graph fits");
    let found = run.gradients(&gradients);
    let ran = run.trainer.ran(&gradients).expect("just run");
    let halves = ran.iter().filter(|row| row.stored == Some(DType::F16)).count();
    let outcome = run.trainer.step(gradients).expect("a step");
    assert_eq!(outcome.skipped, None);
    (found, halves + run.trainer.sites().count())
}

#[test]
fn every_operator_in_f32() {
    let mut worst = 0f64;
    for (name, graph, right) in all_with_gradients() {
        let distance = distance(&engine(&graph, &Method::fp32()).0, right);
        println!("{name}: {distance:.1e}");
        // Four roundings of 2^-24 next to the largest value; measured 1.5e-7.
        assert!(distance < 2.5e-7, "{name}: {distance:e}");
        worst = worst.max(distance);
    }
    println!("worst: {worst:.1e}");
}

#[test]
fn every_operator_in_mixed_precision() {
    for level in [Level::O1, Level::O2] {
        let method = Method::mixed().with_amp(AmpPolicy::new(level));
        let mut worst = 0f64;
        for (name, graph, right) in all_with_gradients() {
            let (found, stores) = engine(&graph, &method);
            let distance = distance(&found, right);
            // Each store rounds each value by 2^-11 of itself at most; half of that is the mean, and errors of
            // several stores cancel in part: measured 0.27.
            let share = distance / (2f64.powi(-11) * (stores + 1) as f64);
            println!("{level:?} {name}: {distance:.1e}, {share:.2} of the bound of {stores} stores");
            assert!(share < 0.5, "{level:?} {name}: {distance:e} with {stores} stores");
            worst = worst.max(share);
        }
        println!("{level:?} worst: {worst:.2}");
    }
}

/// Operators under randomly drawn autocast lists, so that halves and f32 values are combined in all ways.
#[test]
fn every_operator_under_other_lists() {
    let mut worst = 0f64;
    for seed in 1..=12 {
        let level = if seed % 2 == 0 { Level::O1 } else { Level::O2 };
        let policy = if seed <= 8 { lists(level, seed) } else { drawn(level, seed, NEWER) };
        let method = Method::mixed().with_amp(policy.clone());
        for (name, graph, right) in all_with_gradients() {
            let (found, stores) = engine(&graph, &method);
            let distance = distance(&found, right);
            // A node of the graph can be two operators of the engine, and a cast comes before each.
            let share = distance / (2f64.powi(-11) * (2 * stores + 1) as f64);
            assert!(share < 0.5, "{name}: {distance:e} with {stores} stores, {policy:?}");
            worst = worst.max(share);
        }
    }
    println!("worst: {worst:.2}");
}

/// Sixteen operators on other lists.
pub fn lists(level: Level, seed: u64) -> AmpPolicy {
    let ops = [
        Name::Relu,
        Name::Add,
        Name::Sub,
        Name::Mul,
        Name::Div,
        Name::Concat,
        Name::Slice,
        Name::MaxPool,
        Name::Unpool,
        Name::AveragePool,
        Name::Linear,
        Name::Conv,
        Name::Scale,
        Name::Tanh,
        Name::BatchNorm,
        Name::MseLoss,
    ];
    drawn(level, seed, ops)
}

/// The same of sequences, images of another size and losses between 0 and 1.
const NEWER: [Name; 16] = [
    Name::Matmul,
    Name::BatchedMatmul,
    Name::ConvTranspose,
    Name::Softmax,
    Name::Scale,
    Name::LayerNorm,
    Name::RmsNorm,
    Name::Transpose,
    Name::Split,
    Name::Slice,
    Name::Embedding,
    Name::Interpolate,
    Name::AveragePool,
    Name::MaxPool,
    Name::SmoothL1Loss,
    Name::Gather,
];

fn drawn(level: Level, seed: u64, ops: [Name; 16]) -> AmpPolicy {
    let (mut policy, mut random) = (AmpPolicy::new(level), Random(seed));
    for op in ops {
        policy.set(op, [List::Allow, List::Deny, List::Infer][random.below(3)]).expect("sixteen fit");
    }
    policy
}
