//! Graphs on the engine.

use crate::{
    f64::Divisor,
    graph::{Graph, Op},
};
use gradscale::{
    Batch, CrossEntropy, Error, Gradients, Init, Method, Parameter, Parameters, Tape, TraceError, Trainer, Var,
    core::{
        backend::Backend,
        descriptor::{self, Conv2d, Norm, NormOver, Pool, PoolOp},
        op::Op as Name,
    },
    nn::Module,
    optim::Optimizer,
};

impl Graph {
    /// The network on a tape.
    fn trace<'t>(&self, tape: &'t Tape, known: &Known, labels: Var<'t>) -> Result<Var<'t>, TraceError> {
        let mut all: Vec<Var<'t>> = Vec::new();
        for node in &self.nodes {
            let x = |i: usize| all[node.inputs[i]];
            let maybe = |i: usize| node.inputs.get(i).map(|&input| all[input]);
            let var = match &node.op {
                Op::Parameter(i) => tape.parameter(&known.parameters[*i]),
                Op::Constant(i) => tape.parameter(&known.constants[*i]),
                Op::Linear => x(0).linear(&node.name, x(1), maybe(2))?,
                Op::Conv(p) => {
                    let [out, kh, kw, _] = x(1).shape().sizes().map(|size| size as u32);
                    let both = |size: usize| [size as u32; 2];
                    let describe = |shape| {
                        Conv2d::padded(shape, out, [kh, kw], both(p.pad))?
                            .stride(both(p.stride))?
                            .dilation(both(p.dilation))?
                            .groups(p.groups as u32)
                    };
                    x(0).conv(&node.name, describe, x(1), maybe(2))?
                }
                Op::Unary(function) => x(0).unary(*function),
                Op::Add => x(0).add(x(1))?,
                Op::Sub => x(0).sub(x(1))?,
                Op::Mul => x(0).mul(x(1))?,
                Op::Div => x(0).div(x(1))?,
                Op::Square => x(0).square()?,
                Op::MaxPool(window) => x(0).max_pool(*window)?,
                Op::AveragePool { window, stride, pad } => {
                    let describe = |shape| Pool::padded(PoolOp::Average, shape, *window, *pad)?.stride(*stride);
                    x(0).pool("average_pool", describe)?
                }
                Op::Unpool => x(0).unpool(x(1))?,
                Op::Norm(groups) => {
                    let (op, over) = match groups {
                        None => (Name::BatchNorm, NormOver::Batch),
                        Some(groups) => (Name::GroupNorm, NormOver::Group(*groups)),
                    };
                    x(0).norm(&node.name, op, |shape| Norm::new(shape, over, 1e-5), [x(1), x(2)], None)?
                }
                Op::Lrn(p) => p.forward(x(0))?,
                Op::Concat(axis) => {
                    let others: Vec<Var<'t>> = node.inputs[1..].iter().map(|&input| all[input]).collect();
                    x(0).concat(&others, *axis)?
                }
                Op::Slice { axis, start, len } => x(0).slice(*axis, *start, *len)?,
                Op::Reshape(shape) => x(0).reshape(*shape)?,
                Op::Detach => x(0).detach(),
                Op::Sum => x(0).sum()?,
                Op::Mean => x(0).mean()?,
                Op::CrossEntropy { ignore, divisor } => {
                    let divisor = match *divisor {
                        Divisor::Rows => descriptor::Divisor::Rows,
                        Divisor::Weights => descriptor::Divisor::Weights,
                        Divisor::Fixed(x) => descriptor::Divisor::Fixed(x as f32),
                    };
                    let options = CrossEntropy { weights: maybe(1), ignore: ignore.map(u32::from), divisor };
                    x(0).cross_entropy_with(labels, &options)?
                }
                Op::Mse => x(0).mse_loss(x(1))?,
                Op::L1 => x(0).l1_loss(x(1))?,
            };
            let leaf = matches!(node.op, Op::Parameter(_) | Op::Constant(_));
            all.push(if leaf { var } else { var.named(&node.name) });
        }
        Ok(*all.last().expect("a graph has a loss"))
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

    /// With all buffers kept.
    pub fn kept(self) -> Self {
        Self { trainer: self.trainer.with_all_kept(), ..self }
    }

    pub fn backward(&mut self) -> Result<Gradients, Error<B::Error>> {
        let Self { trainer, graph, known } = self;
        let batch = [Batch::u8([graph.labels.len()], &graph.labels)];
        trainer.backward(batch, |[labels]| graph.trace(labels.tape(), known, labels))
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
        let batch = [Batch::u8([self.graph.labels.len()], &self.graph.labels)];
        let plan = self.trainer.plan(batch, |[labels]| self.graph.trace(labels.tape(), &self.known, labels));
        plan.expect("the network fits")
    }
}
