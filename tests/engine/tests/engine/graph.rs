//! Small networks as data, so that the engine and the oracle can both run them.

use crate::{
    f64::{self as oracle, Conv, Divisor, Tensor},
    f64_more::{self as more, Transposed},
};
use gradscale::{gradscale_core::ops::Unary, nn::LocalResponseNorm};

/// Operator of a node.
#[derive(Clone, Debug)]
pub enum Op {
    Parameter(usize),
    /// Values without a gradient.
    Constant(usize),
    /// x, w, perhaps b.
    Linear,
    Conv(Conv),
    ConvTranspose(Transposed),
    Matmul {
        transposed: bool,
    },
    /// q, k, v.
    Attention {
        causal: bool,
    },
    Softmax {
        causal: bool,
    },
    LogSoftmax,
    /// x, mask.
    SoftmaxWhere,
    Softplus,
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
    /// Unpooling of x by the positions of another node's pooling.
    Unpool,
    /// x, scale, shift; none: batch.
    Norm(Option<u32>),
    /// x, scale, shift.
    LayerNorm,
    /// x, scale.
    RmsNorm,
    Lrn(LocalResponseNorm),
    Nearest([u32; 2]),
    Bilinear {
        size: [u32; 2],
        align_corners: bool,
    },
    AdaptiveAverage([u32; 2]),
    AdaptiveMax([u32; 2]),
    /// Rows of a table by the graph's indices, to a shape.
    Embedding([usize; 4]),
    /// Places along an axis by the graph's indices.
    Gather(usize),
    /// One-hot vectors of the graph's labels, with this number of classes.
    OneHot(usize),
    Permute([usize; 4]),
    /// Splits a tensor along an axis; `Part` nodes are its results.
    Split {
        axis: usize,
        lens: Vec<usize>,
    },
    /// The same at every place of an axis.
    Unbind(usize),
    Part(usize),
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
    /// Along an axis.
    SumAxis(usize),
    MeanAxis(usize),
    MaxAxis(usize),
    MinAxis(usize),
    Cumsum(usize),
    TopK {
        axis: usize,
        k: usize,
    },
    /// Mask, and values where it is and is not above 0.
    Where,
    Maximum,
    Minimum,
    /// Logits, perhaps class weights.
    CrossEntropy {
        ignore: Option<u8>,
        divisor: Divisor,
    },
    Mse,
    L1,
    SmoothL1(f32),
    Bce,
    Focal {
        alpha: f32,
        gamma: f32,
    },
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
    /// Indices of the embedding.
    pub indices: Vec<u32>,
}

/// For each max-pooling, the positions of the values that it selected.
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

    /// Evaluates the graph. Detached nodes have the values in `detached`.
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
                Op::ConvTranspose(p) => more::conv_transpose(x(0), x(1), maybe(2), *p),
                Op::Matmul { transposed } => more::matmul(x(0), x(1), *transposed),
                Op::Attention { causal } => more::attention(x(0), x(1), x(2), *causal),
                Op::Softmax { causal } => more::softmax(x(0), *causal),
                Op::LogSoftmax => more::softmax(x(0), false).map(f64::ln),
                Op::SoftmaxWhere => more::softmax_where(x(0), x(1)),
                Op::Softplus => x(0).map(more::softplus),
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
                Op::LayerNorm => more::row_norm(x(0), x(1), maybe(2), f64::from(1e-5f32)),
                Op::RmsNorm => more::row_norm(x(0), x(1), None, f64::from(1e-5f32)),
                Op::Nearest(factor) => more::nearest(x(0), factor.map(|size| size as usize)),
                Op::Bilinear { size, align_corners } => {
                    more::bilinear(x(0), size.map(|size| size as usize), *align_corners)
                }
                Op::AdaptiveAverage(size) => more::adaptive(x(0), size.map(|size| size as usize), |window| {
                    window.iter().sum::<f64>() / window.len() as f64
                }),
                Op::AdaptiveMax(size) => more::adaptive(x(0), size.map(|size| size as usize), |window| {
                    window.iter().copied().fold(f64::NEG_INFINITY, f64::max)
                }),
                Op::Embedding(shape) => more::rows(x(0), &self.indices, *shape),
                Op::Gather(axis) => more::gather(x(0), *axis, &self.indices),
                Op::OneHot(classes) => more::one_hot(&self.labels, *classes),
                Op::Permute(order) => more::permute(x(0), *order),
                Op::Split { .. } | Op::Unbind(_) => x(0).clone(),
                Op::Part(i) => match &self.nodes[node.inputs[0]].op {
                    Op::Split { axis, lens } => oracle::slice(x(0), *axis, lens[..*i].iter().sum(), lens[*i]),
                    Op::Unbind(axis) => oracle::slice(x(0), *axis, *i, 1),
                    _ => panic!("part of what?"),
                },
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
                Op::SumAxis(axis) => x(0).along(*axis, false),
                Op::MeanAxis(axis) => x(0).along(*axis, true),
                Op::MaxAxis(axis) => more::largest(x(0), *axis, 1),
                Op::MinAxis(axis) => more::largest(&x(0).map(|x| -x), *axis, 1).map(|x| -x),
                Op::TopK { axis, k } => more::largest(x(0), *axis, *k),
                Op::Cumsum(axis) => more::cumsum(x(0), *axis),
                Op::Where => {
                    let mask = |keep: fn(f64) -> bool| x(0).map(move |mask| f64::from(u8::from(keep(mask))));
                    let [a, b] =
                        [x(1).binary(&mask(|x| x > 0.0), |a, m| a * m), x(2).binary(&mask(|x| x <= 0.0), |b, m| b * m)];
                    a.binary(&b, |a, b| a + b)
                }
                Op::Maximum => x(0).binary(x(1), f64::max),
                Op::Minimum => x(0).binary(x(1), f64::min),
                Op::CrossEntropy { ignore, divisor } => {
                    Tensor::number(oracle::cross_entropy(x(0), &self.labels, maybe(1), *ignore, *divisor))
                }
                Op::Mse => Tensor::number(oracle::mse(x(0), x(1))),
                Op::L1 => Tensor::number(oracle::l1(x(0), x(1))),
                Op::SmoothL1(beta) => Tensor::number(more::smooth_l1(x(0), x(1), f64::from(*beta))),
                Op::Bce => Tensor::number(more::bce_with_logits(x(0), x(1))),
                Op::Focal { alpha, gamma } => {
                    Tensor::number(more::focal(x(0), x(1), f64::from(*alpha), f64::from(*gamma)))
                }
            };
            all.push(value);
        }
        (all, at)
    }
}

fn unary(function: Unary, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match function {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Relu => x.max(0.0),
        Unary::LeakyRelu(slope) => {
            if x > 0.0 {
                x
            } else {
                f64::from(slope) * x
            }
        }
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => sigmoid(x),
        Unary::Gelu => x * 0.5 * libm::erfc(-x / 2f64.sqrt()),
        Unary::Silu => x * sigmoid(x),
        Unary::Erf => libm::erf(x),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Exp => x.exp(),
        Unary::Ln => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Recip => 1.0 / x,
        Unary::Pow(p) => x.powf(f64::from(p)),
        Unary::Affine { a, b } => f64::from(a) * x + f64::from(b),
        _ => x,
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
