//! Exponents computed by hand.
//!
//! The net is linear, x `[1, 4]` → l1 → l2 → l3, and its loss is the sum of y·t, so that ∇Y of l3 is t. All weights
//! are ± one power of two; for l3 a Hadamard matrix, so that rms(∇X) is known. β_uf = 6e-8 / (σ·1.253314465e-3) =
//! 4.78731e-5 / σ, and 4.78731e-5 = 2^-14.3504.

use crate::{
    f64::Divisor,
    graph::{Graph, Op},
    run::Run,
};
use gradscale::{Cpu, Method, gradscale_core::ops::Unary, optim::Sgd};
use std::collections::BTreeMap;

/// Signs of a Hadamard matrix: rows at right angles.
const SIGNS: [f32; 16] = [1., 1., 1., 1., 1., -1., 1., -1., 1., 1., -1., -1., 1., -1., -1., 1.];

fn net(w2: f32, w3: f32, t: f32) -> Graph {
    let mut g = Graph { labels: vec![0], ..Graph::default() };
    let mut x = g.constant([1, 1, 1, 4], vec![1.0; 4]);
    for (i, weight) in [0.5, w2, w3].into_iter().enumerate() {
        let w = g.parameter([4, 1, 1, 4], SIGNS.map(|sign| sign * weight).to_vec());
        x = g.named(Op::Linear, &[x, w], format!("l{}", i + 1));
    }
    let t = g.constant([1, 1, 1, 4], vec![t; 4]);
    let product = g.named(Op::Mul, &[x, t], "mul".to_owned());
    g.push(Op::Sum, &[product]);
    g
}

/// The exponents of all sites after the first step.
pub fn exponents(graph: &Graph, method: &str) -> BTreeMap<String, i32> {
    let method: Method = method.parse().expect("a method");
    let mut run = Run::new(Cpu::new(1).expect("a CPU"), graph, Sgd::new(0.0).into(), &method);
    let gradients = run.backward().expect("it fits");
    assert_eq!(run.trainer.step(gradients).expect("a step").skipped, None);
    run.trainer.sites().map(|site| (site.name.to_owned(), site.alpha)).collect()
}

pub fn map(all: &[(&str, i32)]) -> BTreeMap<String, i32> {
    all.iter().map(|&(name, alpha)| (name.to_owned(), alpha)).collect()
}

/// ∇Y = 2^-20·(1, 1, 1, 1), l3's weights ±2^-3, l2's ±2^-6, N = 4.
///
/// - mul/cast is no product: k = min(0, k_of) = 0.
/// - l3: σ = √4·2^-20·2^-3 = 2^-22; log2 β = −14.3504 + 22 = 7.65. `paper`: ⌊7.65⌋ + 1 = 8. k_of: 4·2^-23 = 2^-21
///   stays below 65520 up to 2^36. α = 0 + 8. ∇X = (4, 0, 0, 0)·2^-23: stored as (2^-13, 0, 0, 0).
/// - l2: rms(∇Y) = 2^-13/2 = 2^-14, σ = 2·2^-14·2^-6 = 2^-19; log2 β = 4.65: k = 5; worst case 4·2^-13·2^-6 = 2^-17.
///   α = 8 + 5.
#[test]
fn paper() {
    let graph = net(2f32.powi(-6), 2f32.powi(-3), 2f32.powi(-20));
    assert_eq!(exponents(&graph, "gs:paper"), map(&[("mul/cast", 0), ("l3/dgrad", 8), ("l2/dgrad", 13)]));
}

/// The same with half of the terms, σ smaller by √2 and log2 β greater by ½, and no + 1: l3 ⌊8.15⌋ = 8, stored as
/// before; l2 ⌊5.15⌋ = 5.
#[test]
fn authors() {
    let graph = net(2f32.powi(-6), 2f32.powi(-3), 2f32.powi(-20));
    assert_eq!(exponents(&graph, "gs:authors"), map(&[("mul/cast", 0), ("l3/dgrad", 8), ("l2/dgrad", 13)]));
}

/// Where the rules differ: l2's weights ±2^-7. σ = 2^-20, log2 β = 5.65: `paper` 6; `authors` ⌊6.15⌋ = 6; with
/// ±1.5·2^-7, log2 1.5 = 0.585: 5.06 → `paper` 6, `authors` ⌊5.56⌋ = 5.
#[test]
fn paper_and_authors_differ_by_the_floor() {
    let graph = net(1.5 * 2f32.powi(-7), 2f32.powi(-3), 2f32.powi(-20));
    assert_eq!(exponents(&graph, "gs:paper")["l2/dgrad"], 8 + 6);
    assert_eq!(exponents(&graph, "gs:authors")["l2/dgrad"], 8 + 5);
}

/// No scale below 1 without need: ∇Y = 2^-4, l3 ±2^-1: σ = 2·2^-5, log2 β = −10.35. `paper` and `authors` 2^0;
/// as printed ⌊−10.35⌋ + 1 = −10.
#[test]
fn the_missing_max() {
    let graph = net(0.5, 0.5, 2f32.powi(-4));
    assert_eq!(exponents(&graph, "gs:paper")["l3/dgrad"], 0);
    assert_eq!(exponents(&graph, "gs:authors")["l3/dgrad"], 0);
    assert_eq!(exponents(&graph, "gs:paper-literal")["l3/dgrad"], -10);
}

/// Any other cast as printed: the scale passes through. ∇Y = 2^17 comes in at 2^0 and needs 2^-2; line 24 stores it as ∞.
#[test]
fn as_printed_a_cast_overflows() {
    let graph = net(0.5, 0.5, 2f32.powi(17));
    for method in ["gs:paper", "gs:authors"] {
        assert_eq!(exponents(&graph, method)["mul/cast"], -2, "{method}");
    }
    let method: Method = "gs:paper-literal".parse().expect("a method");
    let mut run = Run::new(Cpu::new(1).expect("a CPU"), &graph, Sgd::new(0.0).into(), &method);
    let gradients = run.backward().expect("it fits");
    let outcome = run.trainer.step(gradients).expect("a step");
    assert!(outcome.skipped.is_some_and(|skipped| skipped.to_string().contains("mul/cast")));
    assert_eq!(run.trainer.sites().find(|site| site.name == "mul/cast").map(|site| site.alpha), Some(0));
}

/// The overflow side: ∇Y = 2^10 and l3 ±2^6, N·max·max = 2^18, and only 2^15 < 65520: k_of = −3. Below, at l2 with
/// weights ±2^4: stored ∇X = 4·2^16·2^-3 = 2^15, worst 4·2^15·2^4 = 2^21: k = −6. `authors`: 65504/2^18 = 2^-2.0007,
/// floor −3; then 65504 / 2^21 = 2^-5.0007, floor −6.
#[test]
fn overflow_binds() {
    let graph = net(16.0, 64.0, 1024.0);
    for method in ["gs:paper", "gs:authors"] {
        let right = map(&[("mul/cast", 0), ("l3/dgrad", -3), ("l2/dgrad", -9)]);
        assert_eq!(exponents(&graph, method), right, "{method}");
    }
}

/// The accumulated scale of `authors` ends at 65504, so at 2^15: ∇Y = 2^-24 (stored: the least subnormal), l3 ±2^-3:
/// σ = 2^-26, log2 β = 11.65, and 12.15 for them: 12; l2 ±2^-10: stored ∇X = 4·2^-27·2^12 = 2^-13, rms 2^-14,
/// σ = 2·2^-14·2^-10 / √2, log2 β = 9.15; but only 15 − 12 = 3 are left. `paper`: 12, then 8.65: 9.
#[test]
fn the_cap_of_the_authors() {
    let graph = net(2f32.powi(-10), 2f32.powi(-3), 2f32.powi(-24));
    assert_eq!(exponents(&graph, "gs:authors"), map(&[("mul/cast", 0), ("l3/dgrad", 12), ("l2/dgrad", 15)]));
    assert_eq!(exponents(&graph, "gs:paper"), map(&[("mul/cast", 0), ("l3/dgrad", 12), ("l2/dgrad", 21)]));
}

/// Two rows of equal logits over four classes, the loss times 2^-30: ∇Y = 2^-30·½·(−3/4, 1/4, 1/4, 1/4).
/// μ = ln(1/8) + ln 3/4 − 30 ln 2, s = √(1/4·3/4)·ln 3 = 0.475713; log2 β = (−16.628921 + 1.804788 + 0.475713·3.090232)
/// / ln 2 + 30 = 10.735. `paper` 11; k_of: 3·2^-33·2^47 = 3·2^14 < 65520, so no limit. `authors` 10.
#[test]
fn the_cast_behind_a_softmax() {
    let net = |factor: i32| {
        let mut g = Graph { labels: vec![1, 3], ..Graph::default() };
        let x = g.constant([2, 1, 1, 4], vec![1.0; 8]);
        let w = g.parameter([4, 1, 1, 4], vec![0.0; 16]);
        let logits = g.named(Op::Linear, &[x, w], "l1".to_owned());
        let op = Op::CrossEntropy { ignore: None, divisor: Divisor::Rows };
        let loss = g.named(op, &[logits], "loss".to_owned());
        g.push(Op::Unary(Unary::Affine { a: 2f32.powi(factor), b: 0.0 }), &[loss]);
        g
    };
    let g = net(-30);
    // As printed e^⌊ln β⌋: ⌊10.735·ln 2⌋ = ⌊7.441⌋ = 7, and 7 / ln 2 = 10.10: 11, too. With twice the loss log2 β = 9.735:
    // 10, but ⌊6.748⌋ = 6 and 6 / ln 2 = 8.66: 9.
    assert_eq!(exponents(&g, "gs:paper-literal"), map(&[("loss/cast", 11)]));
    assert_eq!(exponents(&net(-29), "gs:paper"), map(&[("loss/cast", 10)]));
    assert_eq!(exponents(&net(-29), "gs:paper-literal"), map(&[("loss/cast", 9)]));
    assert_eq!(exponents(&g, "gs:paper"), map(&[("loss/cast", 11)]));
    assert_eq!(exponents(&g, "gs:authors"), map(&[("loss/cast", 10)]));
    // Histogram: 3·2^-33 is in (2^-32, 2^-31], 2^-33 is at the top of its bin, c = −33. Nothing flushes from k = 33 −
    // 24 = 9 on; window 11: 20; k_of = 47, minus 6: 41. So 20.
    assert_eq!(exponents(&g, "gs:exact"), map(&[("loss/cast", 20)]));
}

/// `exact`: narrow ∇Y = 2^-20: c = −20, k_uf = −4, raised by 11 to 7; k_of = 35, so there is enough range. l3: ∇X =
/// ±2^-21 (and zeros): 8, for any incoming α. l2 with ±2^-6: its incoming gradient has one value, ∇X = ±2^-27: 14.
#[test]
fn exact() {
    let graph = net(2f32.powi(-6), 2f32.powi(-3), 2f32.powi(-20));
    assert_eq!(exponents(&graph, "gs"), map(&[("mul/cast", 7), ("l3/dgrad", 8), ("l2/dgrad", 14)]));
    // A threshold that is missed: values 2^-40 and 2^0. γ(k) = ¾ wherever 2^0 does not overflow (k_of = 15, c = 13),
    // and the least k with γ ≤ γ(c) + γ′ below 1 keeps only 2^0: −24. Raised to −13; room 9. So −13.
    let mut g = Graph { labels: vec![0], ..Graph::default() };
    let x = g.constant([1, 1, 1, 4], vec![1.0; 4]);
    let w = g.parameter([4, 1, 1, 4], SIGNS.map(|sign| sign * 0.5).to_vec());
    let y = g.named(Op::Linear, &[x, w], "l1".to_owned());
    let tiny = 2f32.powi(-40);
    let t = g.constant([1, 1, 1, 4], vec![1.0, tiny, -tiny, tiny]);
    let product = g.named(Op::Mul, &[y, t], "mul".to_owned());
    g.push(Op::Sum, &[product]);
    assert_eq!(exponents(&g, "gs:exact"), map(&[("mul/cast", -13)]));
}
