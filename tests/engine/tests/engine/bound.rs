//! Backward pass in f64 that carries an error bound for every element: the sum of what each store may have rounded.

use crate::{
    f64::{self as oracle, Tensor},
    f64_more as more,
    graph::{Graph, Node, Op},
};
use gradscale::gradscale_core::ops::Unary;
use std::collections::BTreeMap;

/// Gradient of one node, with the maximum distance of a stored gradient from it.
#[derive(Clone, Debug)]
pub struct Bounded {
    pub g: Vec<f64>,
    pub e: Vec<f64>,
    /// Parts that it was summed from, and the site of the only one.
    pub parts: usize,
    pub site: Option<String>,
}

/// f32 sums of up to 64 terms.
const SINGLE: f64 = 6.0e-6;

impl Bounded {
    /// One store as half at 2^alpha: 2^-11 of a normal value, half of the least subnormal below, where it flushes too.
    fn round(&mut self, alpha: i32) {
        for (g, e) in self.g.iter().zip(&mut self.e) {
            *e += 2f64.powi(-11) * (g.abs() + *e) + 2f64.powi(-25) * 2f64.powi(-alpha);
        }
    }

    fn sum(parts: Vec<Self>) -> Self {
        let (count, mut all) = (parts.len(), parts.into_iter());
        let mut total = all.next().expect("a part");
        total.parts = count;
        for part in all {
            total.site = None;
            total.g.iter_mut().zip(&part.g).for_each(|(g, part)| *g += part);
            total.e.iter_mut().zip(&part.e).zip(&part.g).for_each(|((e, more), g)| *e += more + SINGLE * g.abs());
        }
        total
    }
}

/// Every node's gradient; none where it has none. `sites` are the exponents of all that rounds.
pub fn backward(graph: &Graph, sites: &BTreeMap<String, i32>) -> Vec<Option<Bounded>> {
    let (values, at) = graph.eval(&graph.first());
    let mut needs = Vec::new();
    for node in &graph.nodes {
        let inputs = node.inputs.iter().any(|&input| needs[input]);
        needs.push(matches!(node.op, Op::Parameter(_)) || inputs && !matches!(node.op, Op::Detach));
    }
    let count = graph.nodes.len();
    let mut parts: Vec<Vec<Bounded>> = vec![Vec::new(); count];
    parts[count - 1].push(Bounded { g: vec![1.0], e: vec![0.0], parts: 1, site: None });
    let mut all = vec![None; count];
    for (id, node) in graph.nodes.iter().enumerate().rev() {
        if parts[id].is_empty() || !needs[id] {
            continue;
        }
        let mut total = Bounded::sum(std::mem::take(&mut parts[id]));
        if let Some(alpha) = sites.get(&format!("{}/sum", node.name)).filter(|_| total.parts > 1) {
            total.round(*alpha);
        }
        for (i, &input) in node.inputs.iter().enumerate() {
            if !needs[input] || matches!(graph.nodes[input].op, Op::Parameter(_)) {
                continue;
            }
            let map = Map { graph, node, values: &values, at: &at, i };
            let g = map.apply(&total.g, false);
            // Rounding errors of f32 within the operator, and the bound of the incoming gradient.
            let sizes: Vec<f64> = total.g.iter().map(|g| g.abs()).collect();
            let e = map.apply(&total.e, true).into_iter().zip(map.apply(&sizes, true)).map(|(e, g)| e + SINGLE * g);
            let mut part = Bounded { g, e: e.collect(), parts: 1, site: None };
            let name = if matches!(node.op, Op::Mse) { "mse_loss" } else { &node.name };
            let which = if i == 0 { String::new() } else { format!(".{i}") };
            for kind in ["dgrad", "cast"] {
                let site = format!("{name}/{kind}{which}");
                if let Some(alpha) = sites.get(&site) {
                    part.round(*alpha);
                    part.site = Some(site);
                }
            }
            // A gradient that is passed through keeps its exponent, and has no row of its own.
            parts[input].push(part);
        }
        all[id] = Some(total);
    }
    all
}

/// The derivative of a node by input `i`, transposed: a linear map.
struct Map<'a> {
    graph: &'a Graph,
    node: &'a Node,
    values: &'a [Tensor],
    at: &'a [Vec<usize>],
    i: usize,
}

impl Map<'_> {
    /// Applies the operator's linear map; with `sizes` by the magnitudes of its coefficients.
    fn apply(&self, g: &[f64], sizes: bool) -> Vec<f64> {
        let value = |i: usize| &self.values[self.node.inputs[i]];
        let size = |x: f64| if sizes { x.abs() } else { x };
        let x = value(self.i);
        let mut dx = vec![0.0; x.data.len()];
        let here = |i: usize| g[if g.len() == 1 { 0 } else { i }];
        match &self.node.op {
            Op::Linear => {
                let (w, c, out) = (value(1), x.shape[3], value(1).shape[0]);
                for (i, dx) in dx.iter_mut().enumerate() {
                    let (row, k) = (i / c, i % c);
                    *dx = (0..out).map(|o| g[row * out + o] * size(w.data[o * c + k])).sum();
                }
            }
            // For the other operators each result is a sum of inputs times coefficients, which are found by evaluating
            // the operator.
            Op::Conv(p) => self.columns(&mut dx, g, sizes, |x| oracle::conv(x, value(1), None, *p)),
            Op::AveragePool { window, stride, pad } => {
                let [window, stride, pad] = [window, stride, pad].map(|both| both.map(|size| size as usize));
                self.columns(&mut dx, g, sizes, |x| oracle::average_pool(x, window, stride, pad));
            }
            Op::Slice { axis, start, len } => {
                self.columns(&mut dx, g, sizes, |x| oracle::slice(x, *axis, *start, *len))
            }
            Op::Concat(axis) => self.columns(&mut dx, g, sizes, |x| {
                let zeros: Vec<Tensor> = (0..self.node.inputs.len()).map(|i| value(i).map(|_| 0.0)).collect();
                let parts: Vec<&Tensor> =
                    zeros.iter().enumerate().map(|(i, o)| if i == self.i { x } else { o }).collect();
                oracle::concat(&parts, *axis)
            }),
            Op::ConvTranspose(p) => self.columns(&mut dx, g, sizes, |x| more::conv_transpose(x, value(1), None, *p)),
            Op::Matmul { transposed } => self.columns(&mut dx, g, sizes, |x| match self.i {
                0 => more::matmul(x, value(1), *transposed),
                _ => more::matmul(value(0), x, *transposed),
            }),
            Op::Permute(order) => self.columns(&mut dx, g, sizes, |x| more::permute(x, *order)),
            Op::Nearest(factor) => {
                self.columns(&mut dx, g, sizes, |x| more::nearest(x, factor.map(|size| size as usize)));
            }
            Op::Bilinear { size, align_corners } => {
                self.columns(&mut dx, g, sizes, |x| more::bilinear(x, size.map(|size| size as usize), *align_corners))
            }
            Op::AdaptiveAverage(size) => self.columns(&mut dx, g, sizes, |x| {
                let mean = |window: &[f64]| window.iter().sum::<f64>() / window.len() as f64;
                more::adaptive(x, size.map(|size| size as usize), mean)
            }),
            Op::Part(i) => {
                let Op::Split { axis, lens } = &self.graph.nodes[self.node.inputs[0]].op else { return dx };
                self.columns(&mut dx, g, sizes, |x| oracle::slice(x, *axis, lens[..*i].iter().sum(), lens[*i]));
            }
            Op::MaxPool(_) => {
                let places =
                    &self.at[self.graph.nodes.iter().position(|node| node.name == self.node.name).unwrap_or(0)];
                places.iter().zip(g).for_each(|(&at, g)| dx[at] += g);
            }
            Op::Unpool if self.i == 0 => {
                let places = &self.at[self.node.inputs[1]];
                dx.iter_mut().zip(places).for_each(|(dx, &at)| *dx = g[at]);
            }
            Op::Mul => {
                let other = value(1 - self.i);
                dx.iter_mut().enumerate().for_each(|(i, dx)| *dx = g[i] * size(other.data[i]));
            }
            Op::Mse => {
                let scale = 2.0 / x.data.len() as f64;
                let difference = |i: usize| scale * (value(0).data[i] - value(1).data[i]);
                dx.iter_mut().enumerate().for_each(|(i, dx)| *dx = g[0] * size(difference(i)));
            }
            Op::CrossEntropy { .. } => {
                let (c, rows) = (x.shape[3], (x.data.len() / x.shape[3]) as f64);
                for (i, dx) in dx.iter_mut().enumerate() {
                    let (row, k) = (i / c, i % c);
                    let sum: f64 = x.data[row * c..(row + 1) * c].iter().map(|x| x.exp()).sum();
                    let hit = if usize::from(self.graph.labels[row]) == k { 1.0 } else { 0.0 };
                    *dx = g[0]
                        * if sizes {
                            (x.data[i].exp() / sum + hit) / rows
                        } else {
                            (x.data[i].exp() / sum - hit) / rows
                        };
                }
            }
            op => {
                let coefficient = |i: usize| match op {
                    Op::Unary(Unary::Relu) => f64::from(x.data[i] > 0.0),
                    Op::Unary(Unary::Affine { a, .. }) => f64::from(*a),
                    Op::Sub if self.i == 1 => -1.0,
                    Op::Mean => 1.0 / x.data.len() as f64,
                    Op::Add | Op::Sub | Op::Sum | Op::Reshape(_) | Op::Split { .. } => 1.0,
                    _ => 0.0,
                };
                dx.iter_mut().enumerate().for_each(|(i, dx)| *dx = here(i) * size(coefficient(i)));
            }
        }
        dx
    }

    fn columns(&self, dx: &mut [f64], g: &[f64], sizes: bool, f: impl Fn(&Tensor) -> Tensor) {
        let mut unit = self.values[self.node.inputs[self.i]].map(|_| 0.0);
        for (i, dx) in dx.iter_mut().enumerate() {
            unit.data[i] = 1.0;
            *dx = f(&unit).data.iter().zip(g).map(|(x, g)| if sizes { x.abs() } else { *x } * g).sum();
            unit.data[i] = 0.0;
        }
    }
}
