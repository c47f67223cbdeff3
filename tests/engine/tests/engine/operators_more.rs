//! Operators of sequences, of images of another size and of losses between 0 and 1, each in a small graph.

use crate::{
    f64_more::Transposed,
    graph::{Graph, Op, positive, values},
    operators::{IMAGE, finish, input, one},
};
use gradscale::gradscale_core::ops::Unary;

pub fn add(add: &mut impl FnMut(&str, Graph)) {
    products(add);
    axes(add);
    sequences(add);
    places(add);
    choices(add);
    images(add);
    norms(add);
    losses(add);
}

fn products(add: &mut impl FnMut(&str, Graph)) {
    for (stride, pad, extra, dilation, groups) in
        [(1, 0, 0, 1, 1), (2, 1, 1, 1, 1), (2, 0, 0, 1, 2), (3, 1, 2, 1, 1), (1, 1, 0, 2, 1), (2, 1, 0, 1, 4)]
    {
        let p = Transposed { stride, pad, extra, dilation, groups };
        let build = |g: &mut Graph, x: usize| {
            let w = g.parameter([4, 3, 3, 4 / groups], values(41, 144 / groups));
            let b = g.parameter([4, 1, 1, 1], values(42, 4));
            g.push(Op::ConvTranspose(p), &[x, w, b]);
        };
        add(&format!("{p:?}"), one([1, 3, 3, 4], 43, build));
    }
    for (transposed, shape) in [(false, [2, 3, 4, 5]), (true, [2, 3, 5, 4])] {
        let both = |g: &mut Graph, x: usize| {
            let b = input(g, shape, values(44, 120));
            g.push(Op::Matmul { transposed }, &[x, b]);
        };
        add(&format!("matmul transposed {transposed}"), one([2, 3, 2, 4], 45, both));
        let single = |g: &mut Graph, x: usize| {
            let b = g.parameter([1, 1, shape[2], shape[3]], values(46, 20));
            g.push(Op::Matmul { transposed }, &[x, b]);
        };
        add(&format!("matmul with a parameter, transposed {transposed}"), one([1, 1, 6, 4], 47, single));
    }
    add("matmul with itself", one([2, 1, 3, 4], 48, |g, x| g.push(Op::Matmul { transposed: true }, &[x, x])));
}

/// Broadcast shapes: sizes of 1 are repeated on either side, and summed in the backward pass.
fn axes(add: &mut impl FnMut(&str, Graph)) {
    for (a, b) in [
        ([2, 3, 4, 5], [2, 1, 1, 5]),
        ([2, 3, 4, 5], [1, 3, 1, 1]),
        ([2, 3, 4, 5], [2, 1, 4, 1]),
        ([1, 3, 1, 5], [2, 1, 4, 1]),
        ([1, 1, 1, 1], [2, 3, 1, 4]),
        ([1, 1, 1, 5], [2, 3, 4, 5]),
        ([2, 1, 1, 1], [2, 3, 4, 5]),
    ] {
        for (name, op) in [("add", Op::Add), ("sub", Op::Sub), ("mul", Op::Mul), ("div", Op::Div)] {
            // The gradient of a divisor is a sum of both signs: where it is long, it cancels beyond the bound.
            if name == "div" && b.iter().product::<usize>() < 8 {
                continue;
            }
            let both = |g: &mut Graph, x: usize| {
                let y = input(g, b, positive(71, b.iter().product()));
                g.push(op.clone(), &[x, y]);
            };
            add(&format!("{name} of {a:?} and {b:?}"), one(a, 72, both));
        }
    }
    for axis in 0..4 {
        add(&format!("sum along {axis}"), one(IMAGE, 73, |g, x| g.push(Op::SumAxis(axis), &[x])));
        add(&format!("mean along {axis}"), one(IMAGE, 74, |g, x| g.push(Op::MeanAxis(axis), &[x])));
    }
    add("log_softmax", one([2, 1, 3, 4], 75, |g, x| g.push(Op::LogSoftmax, &[x])));
}

fn sequences(add: &mut impl FnMut(&str, Graph)) {
    for causal in [false, true] {
        add(&format!("softmax causal {causal}"), one([2, 2, 3, 4], 51, |g, x| g.push(Op::Softmax { causal }, &[x])));
        let attention = |g: &mut Graph, q: usize| {
            let k = input(g, [2, 2, 3, 4], values(52, 48));
            let v = input(g, [2, 2, 3, 5], values(53, 60));
            g.push(Op::Attention { causal }, &[q, k, v]);
        };
        add(&format!("attention causal {causal}"), one([2, 2, 3, 4], 54, attention));
    }
    let masked = |g: &mut Graph, x: usize| {
        let mask = g.constant([1, 2, 3, 4], (0..24).map(|i| if i < 8 || i % 3 == 0 { 0.0 } else { 1.0 }).collect());
        g.push(Op::SoftmaxWhere, &[x, mask]);
    };
    add("softmax where", one([2, 2, 3, 4], 59, masked));
    for (shape, indices) in [([6, 1, 1, 3], vec![4, 0, 4, 2, 9, 4]), ([2, 1, 1, 3], vec![1, 1])] {
        let mut graph = Graph { labels: vec![0], indices, ..Graph::default() };
        let table = graph.parameter([5, 1, 1, 3], values(55, 15));
        graph.push(Op::Embedding(shape), &[table]);
        add(&format!("embedding {shape:?}"), finish(graph));
    }
    // Places that several indices name, and such that none does.
    for axis in 0..4 {
        let indices = [vec![1, 0, 1], vec![2, 2, 0, 2], vec![4, 0, 1, 4, 4, 1], vec![3]][axis].clone();
        let mut graph = Graph { labels: vec![0], indices, ..Graph::default() };
        let x = input(&mut graph, IMAGE, values(59, 120));
        graph.push(Op::Gather(axis), &[x]);
        add(&format!("gather {axis}"), finish(graph));
    }
    for axis in 0..2 {
        let mut graph = Graph { labels: vec![0], indices: vec![5, 2, 5], ..Graph::default() };
        let shape = [[6, 1, 1, 4], [1, 6, 1, 4]][axis];
        // A parameter itself: its gradient is f32.
        let x = graph.parameter(shape, values(60, 24));
        graph.push(Op::Gather(axis), &[x]);
        add(&format!("gather {axis} of a parameter"), finish(graph));
    }
    let mut graph = Graph { labels: vec![2, 0, 3, 2], ..Graph::default() };
    let x = input(&mut graph, [4, 1, 1, 5], values(65, 20));
    let chosen = graph.push(Op::OneHot(5), &[]);
    graph.push(Op::Mul, &[x, chosen]);
    add("one_hot", finish(graph));
    // The same table on both ends, as language models tie them.
    let mut tied = Graph { labels: vec![0], indices: vec![4, 0, 4, 2], ..Graph::default() };
    let table = tied.parameter([5, 1, 1, 3], values(56, 15));
    let rows = tied.push(Op::Embedding([4, 1, 1, 3]), &[table]);
    let rows = tied.push(Op::Unary(Unary::Tanh), &[rows]);
    tied.push(Op::Linear, &[rows, table]);
    add("embedding tied", finish(tied));
    for order in [[0, 2, 1, 3], [3, 0, 1, 2], [1, 3, 2, 0]] {
        add(&format!("permute {order:?}"), one(IMAGE, 57, |g, x| g.push(Op::Permute(order), &[x])));
    }
    for (axis, size) in IMAGE.into_iter().enumerate() {
        let split = |g: &mut Graph, x: usize| {
            let lens = vec![1, size - 1];
            let whole = g.named(Op::Split { axis, lens }, &[x], "split".to_owned());
            let [one, rest] = [0, 1].map(|i| g.push(Op::Part(i), &[whole]));
            let one = g.push(Op::Unary(Unary::Tanh), &[one]);
            g.push(Op::Concat(axis), &[rest, one]);
        };
        add(&format!("split {axis}"), one(IMAGE, 58, split));
    }
}

/// Places taken apart, with gradients of unlike size, one of which two read.
fn places(add: &mut impl FnMut(&str, Graph)) {
    for (axis, count) in IMAGE.into_iter().enumerate() {
        let unbind = |g: &mut Graph, x: usize| {
            let whole = g.named(Op::Unbind(axis), &[x], "places".to_owned());
            let mut parts: Vec<usize> = (0..count).map(|i| g.push(Op::Part(i), &[whole])).collect();
            let last = parts.len() - 1;
            parts[last] = g.push(Op::Mul, &[parts[last], parts[0]]);
            parts[0] = g.push(Op::Unary(Unary::Affine { a: 2f32.powi(-9), b: 0.0 }), &[parts[0]]);
            g.push(Op::Concat(axis), &parts);
        };
        add(&format!("unbind {axis}"), one(IMAGE, 66, unbind));
    }
}

/// Values selected by a mask, by a comparison, or as the largest ones.
fn choices(add: &mut impl FnMut(&str, Graph)) {
    for (mask, shape) in [([2, 3, 5, 4], [2, 3, 5, 4]), ([1, 3, 1, 1], [2, 1, 1, 4])] {
        let both = |g: &mut Graph, x: usize| {
            let count = mask.iter().product();
            let signs = values(91, count).into_iter().map(|x| x.signum().max(0.0)).collect();
            let mask = g.constant(mask, signs);
            let other = input(g, shape, values(92, shape.iter().product()));
            g.push(Op::Where, &[mask, x, other]);
        };
        add(&format!("where of {mask:?} and {shape:?}"), one(IMAGE, 93, both));
    }
    for (name, op) in [("maximum", Op::Maximum), ("minimum", Op::Minimum)] {
        for shape in [IMAGE, [2, 1, 5, 1]] {
            let both = |g: &mut Graph, x: usize| {
                // A quarter of a step beside the values of x, so that none are equal.
                let beside = values(94, shape.iter().product()).into_iter().map(|x| x + 2f32.powi(-11)).collect();
                let other = input(g, shape, beside);
                g.push(op.clone(), &[x, other]);
            };
            add(&format!("{name} with {shape:?}"), one(IMAGE, 95, both));
        }
    }
    for axis in 0..4 {
        for op in [Op::MaxAxis(axis), Op::MinAxis(axis), Op::Cumsum(axis), Op::TopK { axis, k: 2 }] {
            add(&format!("{op:?}"), one(IMAGE, 96, |g, x| g.push(op.clone(), &[x])));
        }
    }
    add("the largest channels in order", one(IMAGE, 97, |g, x| g.push(Op::TopK { axis: 3, k: 4 }, &[x])));
}

fn images(add: &mut impl FnMut(&str, Graph)) {
    for factor in [[2, 3], [1, 2], [3, 1]] {
        add(&format!("nearest {factor:?}"), one([1, 3, 5, 4], 61, |g, x| g.push(Op::Nearest(factor), &[x])));
    }
    for align_corners in [false, true] {
        for size in [[6, 10], [2, 7], [3, 2], [5, 5], [1, 1]] {
            let op = Op::Bilinear { size, align_corners };
            add(&format!("{op:?}"), one(IMAGE, 62, |g, x| g.push(op.clone(), &[x])));
        }
    }
    for size in [[1, 1], [2, 3], [3, 5], [3, 2], [4, 7]] {
        add(&format!("adaptive average {size:?}"), one(IMAGE, 63, |g, x| g.push(Op::AdaptiveAverage(size), &[x])));
        add(&format!("adaptive max {size:?}"), one(IMAGE, 64, |g, x| g.push(Op::AdaptiveMax(size), &[x])));
    }
}

fn norms(add: &mut impl FnMut(&str, Graph)) {
    let layer = |g: &mut Graph, x: usize| {
        let scale = g.parameter([4, 1, 1, 1], positive(71, 4));
        let shift = g.parameter([4, 1, 1, 1], values(72, 4));
        g.push(Op::LayerNorm, &[x, scale, shift]);
    };
    add("layer norm", one(IMAGE, 73, layer));
    let rms = |g: &mut Graph, x: usize| {
        let scale = g.parameter([4, 1, 1, 1], positive(74, 4));
        g.push(Op::RmsNorm, &[x, scale]);
    };
    add("rms norm", one(IMAGE, 75, rms));
}

fn losses(add: &mut impl FnMut(&str, Graph)) {
    add("softplus", one(IMAGE, 81, |g, x| g.push(Op::Softplus, &[x])));
    let loss = |op: Op, hard: bool| {
        let mut g = Graph { labels: vec![0], ..Graph::default() };
        let x = input(&mut g, [6, 1, 1, 4], values(82, 24));
        let x = g.push(Op::Unary(Unary::Affine { a: 4.0, b: 0.0 }), &[x]);
        let share: Vec<f32> = positive(83, 24).into_iter().map(|x| x - 0.25).collect();
        let target = if hard {
            g.constant([6, 1, 1, 4], share.into_iter().map(f32::round).collect())
        } else {
            input(&mut g, [6, 1, 1, 4], share)
        };
        g.push(op, &[x, target]);
        g
    };
    add("smooth l1", loss(Op::SmoothL1(0.5), false));
    add("smooth l1 of 3", loss(Op::SmoothL1(3.0), false));
    add("binary cross-entropy", loss(Op::Bce, false));
    add("binary cross-entropy of 0 and 1", loss(Op::Bce, true));
    add("focal loss", loss(Op::Focal { alpha: 0.25, gamma: 2.0 }, true));
    add("focal loss of 0.5", loss(Op::Focal { alpha: 0.75, gamma: 0.5 }, true));
}
