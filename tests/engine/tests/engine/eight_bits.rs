//! Every operator with stores in 8 bits: what it stores in half is a value of the format, and its gradient has the error of
//! such stores.

use crate::{
    gradients::{all_with_gradients, distance},
    graph::Graph,
    run::Run,
};
use gradscale::{
    BlockScaling, Cpu, GradientScaling, Method, StoreFormats,
    gradscale_core::{amp::Level, backend::DType, store_format::StoreFormat},
    optim::Sgd,
};
use std::collections::BTreeMap;

struct Step {
    /// Gradients of values that are halves, as they were stored, by name.
    stored: BTreeMap<String, Vec<f32>>,
    /// Gradients of the parameters.
    gradients: Vec<Vec<f32>>,
    stores: usize,
}

fn step(graph: &Graph, method: Method) -> Step {
    let method = method.with_level(Level::O2);
    let mut run = Run::new(Cpu::new(1).expect("a CPU"), graph, Sgd::new(0.0).into(), &method).kept();
    let gradients = run.backward().expect("the graph fits");
    let found = run.gradients(&gradients);
    let ran = run.trainer.ran(&gradients).expect("just run");
    let halves: Vec<String> =
        ran.iter().filter(|row| row.stored == Some(DType::F16)).map(|row| row.name.clone()).collect();
    let stored = run.trainer.scaled_gradients(&gradients).expect("kept").into_iter();
    let stored =
        stored.filter(|(name, _)| halves.contains(name)).map(|(name, gradient)| (name, gradient.data.data)).collect();
    assert_eq!(run.trainer.step(gradients).expect("a step").skipped, None);
    Step { stored, gradients: found, stores: halves.len() + run.trainer.sites().count() }
}

#[test]
fn every_operator_stores_values_of_its_format() {
    let (mut halves, mut worst) = (0, 0f64);
    for (name, graph, right) in all_with_gradients() {
        for format in [StoreFormat::E5m2, StoreFormat::E4m3] {
            let scaling = GradientScaling::exact().with_format(format).expect("no margin");
            let found = step(&graph, Method::gradient_scaling(scaling));
            for (node, values) in &found.stored {
                let other = values.iter().find(|&&x| format.round(x).to_f32() != x);
                assert_eq!(other, None, "{name}, {format}: {node}");
                halves += 1;
            }
            let share = distance(&found.gradients, right)
                / (2f64.powi(-(format.format().mantissa_bits().cast_signed() + 1)) * (found.stores + 1) as f64);
            println!("{name}, {format}: {share:.2}");
            if !selects_values(&name) {
                worst = worst.max(share);
            }
        }
    }
    println!("{halves} halves, {worst:.2}");
    assert!(halves > 1000, "{halves}");
    assert!(worst < 0.7, "{worst}");
}

/// Returns true for an operator that selects one of several values, which may select another if rounding makes them equal.
fn selects_values(name: &str) -> bool {
    ["max", "min", "top", "largest", "l1"].iter().any(|word| name.to_lowercase().contains(word))
}

/// A block's largest values saturate with an error of up to an eighth, so gradients may be twice as far from f32's as those
/// of one scale for each tensor.
#[test]
fn every_operator_trains_in_blocks() {
    let mut worst = 0f64;
    for (name, graph, right) in all_with_gradients() {
        for format in [StoreFormat::E5m2, StoreFormat::E4m3] {
            let scaling = BlockScaling::new(StoreFormats::uniform(format), 32).expect("a size");
            let found = step(&graph, Method::block_scaling(scaling));
            assert_eq!(found.stored.len(), 0, "{name}: memory has no halves");
            let share = distance(&found.gradients, right)
                / (2f64.powi(-(format.format().mantissa_bits().cast_signed() + 1)) * (found.stores + 1) as f64);
            println!("{name}, blocks of {format}: {share:.2}");
            // Unpooling takes its places from a max pooling.
            if !selects_values(&name) && name != "unpool" {
                worst = worst.max(share);
            }
        }
    }
    println!("{worst:.2}");
    assert!(worst < 1.4, "{worst}");
}
