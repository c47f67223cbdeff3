//! Graphs on the engine.

use crate::{
    f64::Divisor,
    graph::{Graph, Op},
};
use gradscale::{
    CrossEntropy, Error, Gradients, Init, Input, Method, Parameter, Parameters, Tape, Trainer, TrainerOptions, Var,
    gradscale_core::{
        backend::Backend,
        ops::Op as Name,
        ops::{self, Conv2d, Norm, NormOver, Pool, PoolOp},
    },
    nn::Module,
    optim::Optimizer,
};
use std::collections::BTreeMap;

impl Graph {
    /// The network on a tape.
    fn trace<'t>(&self, tape: &'t Tape, known: &Known, labels: Var<'t>, indices: Option<Var<'t>>) -> Var<'t> {
        let mut parts: BTreeMap<usize, Vec<Var<'t>>> = BTreeMap::new();
        let mut all: Vec<Var<'t>> = Vec::new();
        for (id, node) in self.nodes.iter().enumerate() {
            let x = |i: usize| all[node.inputs[i]];
            let maybe = |i: usize| node.inputs.get(i).map(|&input| all[input]);
            let var = match &node.op {
                Op::Parameter(i) => tape.parameter(&known.parameters[*i]),
                Op::Constant(i) => tape.parameter(&known.constants[*i]),
                Op::Linear => x(0).linear(&node.name, x(1), maybe(2)),
                Op::Conv(p) => {
                    let [out, kh, kw, _] = x(1).shape().sizes().map(|size| size as u32);
                    let both = |size: usize| [size as u32; 2];
                    let describe = |shape| {
                        Conv2d::padded(shape, out, [kh, kw], both(p.pad))?
                            .stride(both(p.stride))?
                            .dilation(both(p.dilation))?
                            .groups(p.groups as u32)
                    };
                    x(0).conv(&node.name, describe, x(1), maybe(2))
                }
                Op::ConvTranspose(p) => {
                    let [_, kh, kw, part] = x(1).shape().sizes();
                    let describe = |[n, h, w, c]: [u32; 4]| {
                        let size = |size: u32, k: usize| {
                            (size as usize - 1) * p.stride + (k - 1) * p.dilation + 1 + p.extra - 2 * p.pad
                        };
                        let shape = [n, size(h, kh) as u32, size(w, kw) as u32, (part * p.groups) as u32];
                        Conv2d::padded(shape, c, [kh as u32, kw as u32], [p.pad as u32; 2])?
                            .stride([p.stride as u32; 2])?
                            .dilation([p.dilation as u32; 2])?
                            .groups(p.groups as u32)
                    };
                    x(0).conv_transpose(&node.name, describe, x(1), maybe(2))
                }
                Op::Matmul { transposed: false } => x(0).matmul(x(1)),
                Op::Matmul { transposed: true } => x(0).matmul_transposed(x(1)),
                Op::Attention { causal } => x(0).attention(&node.name, x(1), x(2), *causal),
                Op::Softmax { causal: false } => x(0).softmax(),
                Op::Softmax { causal: true } => x(0).causal_softmax(),
                Op::LogSoftmax => x(0).log_softmax(),
                Op::SoftmaxWhere => x(0).softmax_where(x(1)),
                Op::Softplus => x(0).softplus(),
                Op::LayerNorm => x(0).layer_norm(&node.name, 1e-5, [x(1), x(2)]),
                Op::RmsNorm => x(0).rms_norm(&node.name, 1e-5, x(1)),
                Op::Nearest(factor) => x(0).upsample_nearest(*factor),
                Op::Bilinear { size, align_corners } => x(0).upsample_bilinear(*size, *align_corners),
                Op::AdaptiveAverage(size) => x(0).adaptive_average_pool(*size),
                Op::AdaptiveMax(size) => x(0).adaptive_max_pool(*size),
                Op::Embedding(_) => x(0).embedding(&node.name, indices.expect("a graph with indices")),
                Op::Gather(axis) => x(0).gather(&node.name, *axis, indices.expect("a graph with indices")),
                Op::OneHot(classes) => labels.one_hot(*classes),
                Op::Permute(order) => x(0).permute(*order),
                Op::Split { axis, lens } => {
                    parts.insert(id, x(0).split(*axis, lens));
                    x(0)
                }
                Op::Unbind(axis) => {
                    parts.insert(id, x(0).unbind(*axis));
                    x(0)
                }
                Op::Part(i) => parts[&node.inputs[0]][*i],
                Op::Unary(function) => x(0).unary(*function),
                Op::Add => x(0) + x(1),
                Op::Sub => x(0) - x(1),
                Op::Mul => x(0) * x(1),
                Op::Div => x(0) / x(1),
                Op::Square => x(0).square(),
                Op::MaxPool(window) => x(0).max_pool(*window),
                Op::AveragePool { window, stride, pad } => {
                    let describe = |shape| Pool::padded(PoolOp::Average, shape, *window, *pad)?.stride(*stride);
                    x(0).pool("average_pool", describe)
                }
                Op::Unpool => x(0).unpool(x(1)),
                Op::Norm(groups) => {
                    let (op, over) = match groups {
                        None => (Name::BatchNorm, NormOver::Batch),
                        Some(groups) => (Name::GroupNorm, NormOver::Group(*groups)),
                    };
                    x(0).norm(&node.name, op, |shape| Norm::new(shape, over, 1e-5), [x(1), x(2)], None)
                }
                Op::Lrn(p) => p.forward(x(0)),
                Op::Concat(axis) => {
                    let others: Vec<Var<'t>> = node.inputs[1..].iter().map(|&input| all[input]).collect();
                    x(0).concat(&others, *axis)
                }
                Op::Slice { axis, start, len } => x(0).slice(*axis, *start, *len),
                Op::Reshape(shape) => x(0).reshape(*shape),
                Op::Detach => x(0).detach(),
                Op::Sum => x(0).sum(),
                Op::Mean => x(0).mean(),
                Op::SumAxis(axis) => x(0).sum_axis(*axis),
                Op::MeanAxis(axis) => x(0).mean_axis(*axis),
                Op::MaxAxis(axis) => x(0).max_axis(*axis),
                Op::MinAxis(axis) => x(0).min_axis(*axis),
                Op::TopK { axis, k } => x(0).top_k(*axis, *k).0,
                Op::Cumsum(axis) => x(0).cumsum(*axis),
                Op::Where => x(0).where_cond(x(1), x(2)),
                Op::Maximum => x(0).maximum(x(1)),
                Op::Minimum => x(0).minimum(x(1)),
                Op::CrossEntropy { ignore, divisor } => {
                    let divisor = match *divisor {
                        Divisor::Rows => ops::Divisor::Rows,
                        Divisor::Weights => ops::Divisor::Weights,
                        Divisor::Fixed(x) => ops::Divisor::Fixed(x as f32),
                    };
                    let options = CrossEntropy { weights: maybe(1), ignore: ignore.map(u32::from), divisor };
                    x(0).cross_entropy_with(labels, &options)
                }
                Op::Mse => x(0).mse_loss(x(1)),
                Op::L1 => x(0).l1_loss(x(1)),
                Op::SmoothL1(beta) => x(0).smooth_l1_loss(x(1), *beta),
                Op::Bce => x(0).bce_with_logits(x(1)),
                Op::Focal { alpha, gamma } => x(0).focal_loss(x(1), *alpha, *gamma),
            };
            // A split is called by its number; its parts have names of the graph.
            let leaf = matches!(node.op, Op::Parameter(_) | Op::Constant(_) | Op::Split { .. } | Op::Unbind(_));
            all.push(if leaf { var } else { var.named(&node.name) });
        }
        *all.last().expect("a graph has a loss")
    }
}

/// Handles of a graph's parameters in a trainer.
#[derive(Debug)]
struct Known {
    parameters: Vec<Parameter>,
    constants: Vec<Parameter>,
}

/// A graph with a trainer.
#[derive(Debug)]
pub struct Run<B: Backend> {
    pub trainer: Trainer<B>,
    pub graph: Graph,
    known: Known,
}

impl<B: Backend> Run<B>
where
    B::Error: std::fmt::Debug,
{
    /// On a device, from the graph's values.
    pub fn new(device: B, graph: &Graph, optimizer: Optimizer, method: &Method) -> Self {
        let mut all = Parameters::seeded(0);
        let shape = |(shape, _): &([usize; 4], Vec<f32>)| *shape;
        let mut scope = all.at("p");
        let parameters = graph.parameters.iter().enumerate();
        let parameters = parameters.map(|(i, one)| scope.weight(&i.to_string(), shape(one), Init::Constant(0.0)));
        let parameters = parameters.collect();
        let mut scope = all.at("c");
        let constants = graph.constants.iter().enumerate();
        let constants = constants.map(|(i, one)| scope.constant(&i.to_string(), shape(one), &one.1)).collect();
        let mut trainer = Trainer::new(device, all, optimizer, method.clone()).expect("these numbers make sense");
        for (i, (_, values)) in graph.parameters.iter().enumerate() {
            trainer.set_parameter(&format!("p.{i}"), values).expect("a parameter of that size");
        }
        Self { trainer, graph: graph.clone(), known: Known { parameters, constants } }
    }

    /// Sets the run to keep all buffers.
    pub fn kept(self) -> Self {
        Self { trainer: self.trainer.with_options(TrainerOptions::new().with_all_kept()), ..self }
    }

    pub fn backward(&mut self) -> Result<Gradients, Error<B::Error>> {
        let Self { trainer, graph, known } = self;
        let labels = Input::u8([graph.labels.len()], &graph.labels);
        if graph.indices.is_empty() {
            return trainer.backward([labels], |[labels]| graph.trace(labels.tape(), known, labels, None));
        }
        let batch = [labels, Input::u32([graph.indices.len()], &graph.indices)];
        trainer.backward(batch, |[labels, indices]| graph.trace(labels.tape(), known, labels, Some(indices)))
    }

    /// Gradients of all parameters.
    pub fn gradients(&self, gradients: &Gradients) -> Vec<Vec<f32>> {
        let read = |i: usize| {
            let gradient = self.trainer.gradient(gradients, &format!("p.{i}")).expect("a parameter");
            gradient.map(|tensor| tensor.data).unwrap_or_default()
        };
        (0..self.graph.parameters.len()).map(read).collect()
    }

    pub fn plan(&self) -> Vec<gradscale::PlanRow> {
        let labels = Input::u8([self.graph.labels.len()], &self.graph.labels);
        let batch = [labels, Input::u32([self.graph.indices.len()], &self.graph.indices)];
        let plan = self
            .trainer
            .plan(batch, |[labels, indices]| self.graph.trace(labels.tape(), &self.known, labels, Some(indices)));
        plan.expect("the network fits")
    }
}
