//! Small networks as data, so that the engine and the oracle can both run them.

use crate::f64::{self as oracle, Conv, Divisor, Tensor};
use gradscale::{
    Batch, CrossEntropy, Error, Gradients, Init, Method, Parameter, Parameters, Tape, TraceError, Trainer, Var,
    core::{
        backend::Backend,
        descriptor::{self, Conv2d, Norm, NormOver, Pool, PoolOp, Unary},
        op::Op as Name,
    },
    nn::{LocalResponseNorm, Module},
    optim::Optimizer,
};

/// What a node computes from its inputs.
#[derive(Clone, Debug)]
pub enum Op {
    Parameter(usize),
    /// Values without a gradient.
    Constant(usize),
    /// x, w, perhaps b.
    Linear,
    Conv(Conv),
    Unary(Unary),
    Add,
    Sub,
    Mul,
    Div,
    Square,
    MaxPool([u32; 2]),
    AveragePool {
        window: [u32; 2],
        stride: [u32; 2],
        pad: [u32; 2],
    },
    /// x, and the pooling that says where.
    Unpool,
    /// x, scale, shift; none: batch.
    Norm(Option<u32>),
    Lrn(LocalResponseNorm),
    Concat(usize),
    Slice {
        axis: usize,
        start: usize,
        len: usize,
    },
    Reshape([usize; 4]),
    Detach,
    Sum,
    Mean,
    /// Logits, perhaps class weights.
    CrossEntropy {
        ignore: Option<u8>,
        divisor: Divisor,
    },
    Mse,
    L1,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub op: Op,
    pub inputs: Vec<usize>,
    pub name: String,
}

/// A network whose last node is its loss.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    pub parameters: Vec<([usize; 4], Vec<f32>)>,
    pub constants: Vec<([usize; 4], Vec<f32>)>,
    pub labels: Vec<u8>,
}

/// Where max-poolings took their values from.
type Places = Vec<Vec<usize>>;

impl Graph {
    pub fn parameter(&mut self, shape: [usize; 4], values: Vec<f32>) -> usize {
        assert_eq!(values.len(), oracle::len(shape));
        self.parameters.push((shape, values));
        self.push(Op::Parameter(self.parameters.len() - 1), &[])
    }

    pub fn constant(&mut self, shape: [usize; 4], values: Vec<f32>) -> usize {
        assert_eq!(values.len(), oracle::len(shape));
        self.constants.push((shape, values));
        self.push(Op::Constant(self.constants.len() - 1), &[])
    }

    pub fn push(&mut self, op: Op, inputs: &[usize]) -> usize {
        let name = format!("n{}", self.nodes.len());
        self.named(op, inputs, name)
    }

    pub fn named(&mut self, op: Op, inputs: &[usize], name: String) -> usize {
        self.nodes.push(Node { op, inputs: inputs.to_vec(), name });
        self.nodes.len() - 1
    }

    /// First values of the parameters, for the oracle.
    pub fn first(&self) -> Vec<Tensor> {
        self.parameters.iter().map(|(shape, values)| Tensor::new(*shape, values)).collect()
    }

    /// Every node in f64.
    pub fn eval(&self, parameters: &[Tensor]) -> (Vec<Tensor>, Places) {
        self.eval_detached(parameters, None)
    }

    /// The same; what is detached has the values of `detached`.
    pub fn eval_detached(&self, parameters: &[Tensor], detached: Option<&[Tensor]>) -> (Vec<Tensor>, Places) {
        let mut all: Vec<Tensor> = Vec::new();
        let mut at: Places = vec![Vec::new(); self.nodes.len()];
        for (id, node) in self.nodes.iter().enumerate() {
            let x = |i: usize| &all[node.inputs[i]];
            let maybe = |i: usize| node.inputs.get(i).map(|&input| &all[input]);
            let value = match &node.op {
                Op::Parameter(i) => parameters[*i].clone(),
                Op::Constant(i) => Tensor::new(self.constants[*i].0, &self.constants[*i].1),
                Op::Linear => oracle::linear(x(0), x(1), maybe(2)),
                Op::Conv(p) => oracle::conv(x(0), x(1), maybe(2), *p),
                Op::Unary(function) => x(0).map(|x| unary(*function, x)),
                Op::Add => x(0).binary(x(1), |a, b| a + b),
                Op::Sub => x(0).binary(x(1), |a, b| a - b),
                Op::Mul => x(0).binary(x(1), |a, b| a * b),
                Op::Div => x(0).binary(x(1), |a, b| a / b),
                Op::Square => x(0).map(|x| x * x),
                Op::MaxPool(window) => {
                    let (y, places) = oracle::max_pool(x(0), window.map(|size| size as usize));
                    at[id] = places;
                    y
                }
                Op::AveragePool { window, stride, pad } => {
                    let [window, stride, pad] = [window, stride, pad].map(|both| both.map(|size| size as usize));
                    oracle::average_pool(x(0), window, stride, pad)
                }
                Op::Unpool => {
                    let pooled = node.inputs[1];
                    oracle::unpool(x(0), &at[pooled], all[self.nodes[pooled].inputs[0]].shape)
                }
                Op::Norm(groups) => {
                    oracle::norm(x(0), groups.map(|groups| groups as usize), x(1), x(2), f64::from(1e-5f32))
                }
                Op::Lrn(p) => {
                    let [alpha, beta, k] = [p.alpha, p.beta, p.k].map(f64::from);
                    oracle::local_response_norm(x(0), p.n as usize, alpha, beta, k)
                }
                Op::Concat(axis) => {
                    let parts: Vec<&Tensor> = node.inputs.iter().map(|&input| &all[input]).collect();
                    oracle::concat(&parts, *axis)
                }
                Op::Slice { axis, start, len } => oracle::slice(x(0), *axis, *start, *len),
                Op::Reshape(shape) => Tensor { shape: *shape, data: x(0).data.clone() },
                Op::Detach => detached.map_or_else(|| x(0).clone(), |values| values[id].clone()),
                Op::Sum => Tensor::number(x(0).sum()),
                Op::Mean => Tensor::number(x(0).mean()),
                Op::CrossEntropy { ignore, divisor } => {
                    Tensor::number(oracle::cross_entropy(x(0), &self.labels, maybe(1), *ignore, *divisor))
                }
                Op::Mse => Tensor::number(oracle::mse(x(0), x(1))),
                Op::L1 => Tensor::number(oracle::l1(x(0), x(1))),
            };
            all.push(value);
        }
        (all, at)
    }

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

fn unary(function: Unary, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match function {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Relu => x.max(0.0),
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => sigmoid(x),
        Unary::Gelu => x * 0.5 * libm::erfc(-x / 2f64.sqrt()),
        Unary::Silu => x * sigmoid(x),
        Unary::Erf => libm::erf(x),
        Unary::Exp => x.exp(),
        Unary::Ln => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Recip => 1.0 / x,
        Unary::Pow(p) => x.powf(f64::from(p)),
        Unary::Affine { a, b } => f64::from(a) * x + f64::from(b),
        _ => x,
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

/// Odd multiples of 2^-9 in (−1, 1), all different, never 0: halves that no pooling finds equal.
pub fn values(seed: u64, len: usize) -> Vec<f32> {
    assert!(len <= 512);
    let mut all: Vec<f32> = (-256i16..256).map(|i| f32::from(2 * i + 1) / 512.0).collect();
    let mut random = Random(seed);
    for i in 0..len {
        all.swap(i, i + random.below(512 - i));
    }
    all.truncate(len);
    all
}

/// The same, from 0.25 to 1.25.
pub fn positive(seed: u64, len: usize) -> Vec<f32> {
    values(seed, len).into_iter().map(|x| 0.25 + x.abs()).collect()
}

/// Marsaglia's xorshift, for data.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}
