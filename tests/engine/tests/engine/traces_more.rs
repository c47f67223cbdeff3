//! Exponents computed by hand, continued: products of computed matrices, transposed convolutions, a softmax inside a
//! network, and parts of a split. As in `traces`, 4.78731e-5 = 2^-14.3504 is β·σ.

use crate::{
    f64_more::Transposed,
    graph::{Graph, Op},
    traces::{exponents, map},
};

/// Ends a graph: ∇Y of its last node is `t`.
fn finish_with(mut g: Graph, t: f32) -> Graph {
    let last = g.nodes.len() - 1;
    let shape = g.eval(&g.first()).0[last].shape;
    let t = g.constant(shape, vec![t; shape.iter().product()]);
    let product = g.named(Op::Mul, &[last, t], "mul".to_owned());
    g.push(Op::Sum, &[product]);
    g
}

/// ∇Y = 2^-20, A = 2^-5 of 4 × 4, B = 2^-3 of 4 × 2.
///
/// - ∇A = ∇Y·Bᵀ, N = 2: σ = √2·2^-20·2^-3; log2 β = −14.3504 + 22.5 = 8.15: 9.
/// - ∇B = Aᵀ·∇Y, N = 4: σ = √4·2^-20·2^-5; log2 β = −14.3504 + 24 = 9.65: 10.
#[test]
fn both_operands_of_a_product() {
    let mut g = Graph { labels: vec![0], ..Graph::default() };
    let ones = g.constant([1, 1, 4, 1], vec![1.0; 4]);
    let operand = |g: &mut Graph, channels: usize, value: f32| {
        let w = g.parameter([channels, 1, 1, 1], vec![value; channels]);
        g.push(Op::Linear, &[ones, w])
    };
    let (a, b) = (operand(&mut g, 4, 2f32.powi(-5)), operand(&mut g, 2, 2f32.powi(-3)));
    g.named(Op::Matmul { transposed: false }, &[a, b], "mm".to_owned());
    let g = finish_with(g, 2f32.powi(-20));
    assert_eq!(exponents(&g, "gs:paper"), map(&[("mul/cast", 0), ("mm/dgrad", 9), ("mm/dgrad.1", 10)]));
    // The same with b transposed.
    let mut g = Graph { labels: vec![0], ..Graph::default() };
    let (four, two) = (g.constant([1, 1, 4, 1], vec![1.0; 4]), g.constant([1, 1, 2, 1], vec![1.0; 2]));
    let [a, b] = [(four, -5), (two, -3)].map(|(ones, exponent)| {
        let w = g.parameter([4, 1, 1, 1], vec![2f32.powi(exponent); 4]);
        g.push(Op::Linear, &[ones, w])
    });
    g.named(Op::Matmul { transposed: true }, &[a, b], "mm".to_owned());
    let g = finish_with(g, 2f32.powi(-20));
    assert_eq!(exponents(&g, "gs:paper"), map(&[("mul/cast", 0), ("mm/dgrad", 9), ("mm/dgrad.1", 10)]));
}

/// From 16 channels to 2, 2 × 2 taps, stride 2: every x is multiplied by all 2·2·2 = 8 taps, for any stride. ∇Y =
/// 2^-20, weights ±2^-3: σ = √8·2^-23, log2 β = −14.3504 + 21.5 = 7.15: 8. (With the taps of the convolution that it
/// reverses, 16: 7; with all of its channels, 64: 6.)
#[test]
fn transposed_convolution() {
    let mut g = Graph { labels: vec![0], ..Graph::default() };
    let ones = g.constant([1, 2, 2, 1], vec![1.0; 4]);
    let w = g.parameter([16, 1, 1, 1], vec![0.5; 16]);
    let x = g.push(Op::Linear, &[ones, w]);
    let w = g.parameter([16, 2, 2, 2], (0..128).map(|i| if i % 3 == 0 { -0.125 } else { 0.125 }).collect());
    let p = Transposed { stride: 2, pad: 0, extra: 0, dilation: 1, groups: 1 };
    g.named(Op::ConvTranspose(p), &[x, w], "up".to_owned());
    let g = finish_with(g, 2f32.powi(-20));
    assert_eq!(exponents(&g, "gs:paper"), map(&[("mul/cast", 0), ("up/dgrad", 8)]));
}

/// Equal logits over four classes, ∇Y = 2^-30·(1, 0, 0, 0): ∇X = ¼·(∇Y − ¼·2^-30) = 2^-30·(3, −1, −1, −1)/16. That is
/// half of the gradient in `the_cast_behind_a_softmax`: log2 β = 11.735, so 12, and 11 for the authors.
#[test]
fn a_softmax_inside() {
    let mut g = Graph { labels: vec![0], ..Graph::default() };
    let x = g.constant([1, 1, 1, 4], vec![1.0; 4]);
    let w = g.parameter([4, 1, 1, 4], vec![0.0; 16]);
    let logits = g.push(Op::Linear, &[x, w]);
    let y = g.named(Op::Softmax { causal: false }, &[logits], "weights".to_owned());
    let t = g.constant([1, 1, 1, 4], vec![2f32.powi(-30), 0.0, 0.0, 0.0]);
    let product = g.push(Op::Mul, &[y, t]);
    g.push(Op::Sum, &[product]);
    assert_eq!(exponents(&g, "gs:paper"), map(&[("weights/cast", 12)]));
    assert_eq!(exponents(&g, "gs:authors"), map(&[("weights/cast", 11)]));
}

/// Two parts. One is an operand of a product: ∇Y = 2^-20, weights ±2^-3, N = 2, σ = √2·2^-23: log2 β = 8.15, α = 9
/// (`authors`, with half of the terms, ⌊8.65⌋ = 8), and its gradient is (2^-22, 0). The other's is 2^-4 at α = 0. For
/// their sum the paper takes the largest exponent at which both fit (lines 18–22), so 9; the authors' code takes that
/// of the part with the larger true values, 0.
#[test]
fn parts_of_a_split() {
    let mut g = Graph { labels: vec![0], ..Graph::default() };
    let x = g.constant([1, 1, 1, 4], vec![1.0; 4]);
    let w = g.parameter([4, 1, 1, 4], (0..16).map(|i| if i % 5 == 0 { 0.5 } else { 0.25 }).collect());
    let y = g.push(Op::Linear, &[x, w]);
    let whole = g.named(Op::Split { axis: 3, lens: vec![2, 2] }, &[y], "split".to_owned());
    let [one, two] = [0, 1].map(|i| g.push(Op::Part(i), &[whole]));
    let w = g.parameter([2, 1, 1, 2], [1.0, 1.0, 1.0, -1.0].map(|sign: f32| sign * 0.125).to_vec());
    let one = g.named(Op::Linear, &[one, w], "l2".to_owned());
    let mut sums = Vec::new();
    for (part, t, name) in [(one, 2f32.powi(-20), "m1"), (two, 2f32.powi(-4), "m2")] {
        let t = g.constant([1, 1, 1, 2], vec![t; 2]);
        let product = g.named(Op::Mul, &[part, t], name.to_owned());
        sums.push(g.push(Op::Sum, &[product]));
    }
    g.push(Op::Add, &sums);
    for (method, product, split) in [("gs:paper", 9, 9), ("gs:paper-literal", 9, 9), ("gs:authors", 8, 0)] {
        let right = map(&[("m1/cast", 0), ("m2/cast", 0), ("l2/dgrad", product), ("split/sum", split)]);
        assert_eq!(exponents(&g, method), right, "{method}");
    }
}
