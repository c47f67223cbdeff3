//! Every operator of the engine, each in a small graph that ends in a loss.

use crate::{
    f64::{Conv, Divisor},
    graph::{Graph, Op, positive, values},
    operators_more as more,
};
use gradscale::{gradscale_core::ops::Unary, nn::LocalResponseNorm};

/// Ends a graph: the sum of its last value times constants that all differ.
pub fn finish(mut graph: Graph) -> Graph {
    let last = graph.nodes.len() - 1;
    let shape = graph.eval(&graph.first()).0[last].shape;
    let weights = graph.constant(shape, values(99, shape.iter().product()));
    let product = graph.push(Op::Mul, &[last, weights]);
    graph.push(Op::Sum, &[product]);
    graph
}

/// A parameter as an operator's input: through a factor of 1, so that in half its gradient is a site's.
pub fn input(graph: &mut Graph, shape: [usize; 4], values: Vec<f32>) -> usize {
    let parameter = graph.parameter(shape, values);
    graph.push(Op::Unary(Unary::Affine { a: 1.0, b: 0.0 }), &[parameter])
}

/// Builds a graph with one input of that shape, and the nodes that the closure adds.
pub fn one<T>(shape: [usize; 4], seed: u64, build: impl FnOnce(&mut Graph, usize) -> T) -> Graph {
    let mut graph = Graph { labels: vec![0], ..Graph::default() };
    let x = input(&mut graph, shape, values(seed, shape.iter().product()));
    build(&mut graph, x);
    finish(graph)
}

pub const IMAGE: [usize; 4] = [2, 3, 5, 4];

/// Every operator of the engine, each in a small graph.
pub fn all() -> Vec<(String, Graph)> {
    let mut all: Vec<(String, Graph)> = Vec::new();
    let mut add = |name: &str, graph: Graph| all.push((name.to_owned(), graph));
    for function in [
        Unary::Id,
        Unary::Neg,
        Unary::Abs,
        Unary::Relu,
        Unary::LeakyRelu(0.2),
        Unary::Tanh,
        Unary::Sigmoid,
        Unary::Gelu,
        Unary::Silu,
        Unary::Erf,
        Unary::Sin,
        Unary::Cos,
        Unary::Exp,
        Unary::Affine { a: -1.75, b: 0.5 },
    ] {
        add(&format!("{function:?}"), one(IMAGE, 1, |g, x| g.push(Op::Unary(function), &[x])));
    }
    for function in [Unary::Ln, Unary::Sqrt, Unary::Recip, Unary::Pow(-0.75), Unary::Pow(2.5)] {
        let mut graph = Graph { labels: vec![0], ..Graph::default() };
        let x = input(&mut graph, IMAGE, positive(2, 120));
        graph.push(Op::Unary(function), &[x]);
        add(&format!("{function:?}"), finish(graph));
    }
    for (name, op) in [("add", Op::Add), ("sub", Op::Sub), ("mul", Op::Mul), ("div", Op::Div)] {
        for (over, shape) in [("all", IMAGE), ("channel", [4, 1, 1, 1]), ("channel4", [1, 1, 1, 4]), ("one", [1; 4])] {
            let build = |g: &mut Graph, x: usize| {
                let b = input(g, shape, positive(3, shape.iter().product()));
                g.push(op.clone(), &[x, b]);
            };
            add(&format!("{name} {over}"), one(IMAGE, 4, build));
        }
        let twice = |g: &mut Graph, x: usize| g.push(op.clone(), &[x, x]);
        if name != "sub" && name != "div" {
            add(&format!("{name} with itself"), one(IMAGE, 4, twice));
        }
    }
    add("square", one(IMAGE, 5, |g, x| g.push(Op::Square, &[x])));
    for bias in [false, true] {
        let linear = |g: &mut Graph, x: usize| {
            let w = g.parameter([6, 1, 1, 4], values(6, 24));
            let mut inputs = vec![x, w];
            if bias {
                inputs.push(g.parameter([6, 1, 1, 1], values(7, 6)));
            }
            g.push(Op::Linear, &inputs);
        };
        add(&format!("linear bias {bias}"), one(IMAGE, 8, linear));
    }
    for (stride, pad, dilation, groups) in
        [(1, 1, 1, 1), (2, 1, 1, 1), (1, 0, 1, 1), (1, 2, 2, 1), (2, 1, 1, 2), (1, 1, 1, 4), (3, 2, 1, 1)]
    {
        let p = Conv { stride, pad, dilation, groups };
        let conv = |g: &mut Graph, x: usize| {
            let w = g.parameter([4, 3, 3, 4 / groups], values(9, 144 / groups));
            let b = g.parameter([4, 1, 1, 1], values(10, 4));
            g.push(Op::Conv(p), &[x, w, b]);
        };
        add(&format!("{p:?}"), one([2, 5, 6, 4], 11, conv));
    }
    for groups in [None, Some(1), Some(2)] {
        let norm = |g: &mut Graph, x: usize| {
            let scale = g.parameter([4, 1, 1, 1], positive(12, 4));
            let shift = g.parameter([4, 1, 1, 1], values(13, 4));
            g.push(Op::Norm(groups), &[x, scale, shift]);
        };
        add(&format!("norm {groups:?}"), one(IMAGE, 14, norm));
    }
    let lrn = LocalResponseNorm { n: 3, alpha: 0.8, beta: 0.75, k: 1.0 };
    add("local response norm", one(IMAGE, 15, |g, x| g.push(Op::Lrn(lrn), &[x])));
    add("max pool", one(IMAGE, 16, |g, x| g.push(Op::MaxPool([2, 2]), &[x])));
    add("max pool 3x2", one(IMAGE, 17, |g, x| g.push(Op::MaxPool([3, 2]), &[x])));
    let unpool = |g: &mut Graph, x: usize| {
        let pooled = g.push(Op::MaxPool([2, 2]), &[x]);
        let y = input(g, [2, 2, 3, 4], values(18, 48));
        let sum = g.push(Op::Add, &[pooled, y]);
        g.push(Op::Unpool, &[sum, pooled]);
    };
    add("unpool", one(IMAGE, 19, unpool));
    for (window, stride, pad) in [([2, 2], [2, 2], [0, 0]), ([3, 3], [1, 2], [1, 1]), ([3, 5], [1, 1], [0, 0])] {
        let op = Op::AveragePool { window, stride, pad };
        add(&format!("{op:?}"), one(IMAGE, 20, |g, x| g.push(op.clone(), &[x])));
    }
    for axis in 0..4 {
        let concat = |g: &mut Graph, x: usize| {
            let mut shape = IMAGE;
            shape[axis] = 3;
            let y = input(g, shape, values(21, shape.iter().product()));
            let joined = g.push(Op::Concat(axis), &[x, y, x]);
            g.push(Op::Unary(Unary::Tanh), &[joined]);
        };
        add(&format!("concat {axis}"), one(IMAGE, 22, concat));
        let len = IMAGE[axis] - 1;
        let slice = |g: &mut Graph, x: usize| g.push(Op::Slice { axis, start: 1, len }, &[x]);
        add(&format!("slice {axis}"), one(IMAGE, 23, slice));
    }
    add("reshape", one(IMAGE, 24, |g, x| g.push(Op::Reshape([6, 5, 1, 4]), &[x])));
    let detach = |g: &mut Graph, x: usize| {
        let y = input(g, IMAGE, values(25, 120));
        let constant = g.push(Op::Detach, &[y]);
        let product = g.push(Op::Mul, &[x, constant]);
        g.push(Op::Add, &[product, y]);
    };
    add("detach", one(IMAGE, 26, detach));
    shared(&mut add);
    losses(&mut add);
    more::add(&mut add);
    all
}

/// Parameters that several operators read: their gradients add.
fn shared(add: &mut impl FnMut(&str, Graph)) {
    let linear = |g: &mut Graph, x: usize| {
        let (w, b) = (g.parameter([4, 1, 1, 4], values(31, 16)), g.parameter([4, 1, 1, 1], values(32, 4)));
        let once = g.named(Op::Linear, &[x, w, b], "shared".to_owned());
        let twice = g.named(Op::Linear, &[once, w, b], "shared".to_owned());
        let sum = g.push(Op::Add, &[once, twice]);
        g.push(Op::Mul, &[sum, b]);
    };
    add("linear shared", one(IMAGE, 33, linear));
    let conv = |g: &mut Graph, x: usize| {
        let w = g.parameter([4, 3, 3, 4], values(34, 144));
        let p = Conv { stride: 1, pad: 1, dilation: 1, groups: 1 };
        let once = g.named(Op::Conv(p), &[x, w], "shared".to_owned());
        g.named(Op::Conv(p), &[once, w], "shared".to_owned());
    };
    add("convolution shared", one(IMAGE, 35, conv));
    let norm = |g: &mut Graph, x: usize| {
        let (scale, shift) = (g.parameter([4, 1, 1, 1], positive(36, 4)), g.parameter([4, 1, 1, 1], values(37, 4)));
        let once = g.named(Op::Norm(None), &[x, scale, shift], "shared".to_owned());
        let once = g.push(Op::Unary(Unary::Tanh), &[once]);
        g.named(Op::Norm(None), &[once, scale, shift], "shared".to_owned());
    };
    add("norm shared", one(IMAGE, 38, norm));
}

fn losses(add: &mut impl FnMut(&str, Graph)) {
    let loss = |op: Op, others: usize, labels: &[u8]| {
        let mut g = Graph { labels: labels.to_vec(), ..Graph::default() };
        let x = input(&mut g, [6, 1, 1, 4], values(27, 24));
        match others {
            0 => {
                g.push(op, &[x]);
            }
            1 => {
                let weights = g.constant([4, 1, 1, 1], positive(28, 4));
                g.push(op, &[x, weights]);
            }
            _ => {
                let target = input(&mut g, [6, 1, 1, 4], values(29, 24));
                g.push(op, &[x, target]);
            }
        }
        g
    };
    add("sum", loss(Op::Sum, 0, &[0]));
    add("mean", loss(Op::Mean, 0, &[0]));
    add("mse", loss(Op::Mse, 2, &[0]));
    add("l1", loss(Op::L1, 2, &[0]));
    let labels = [3, 0, 1, 1, 2, 0];
    for divisor in [Divisor::Rows, Divisor::Weights, Divisor::Fixed(2.5)] {
        for ignore in [None, Some(1)] {
            for others in [0, 1] {
                let op = Op::CrossEntropy { ignore, divisor };
                add(&format!("{op:?} weighted {others}"), loss(op.clone(), others, &labels));
            }
        }
    }
}
