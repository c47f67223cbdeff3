//! Forward values and gradients of PyTorch, computed in f64 (`tests/golden/engine.py`), against the engine in f32.

use crate::corners::trainer;
use gradscale::{
    AttentionMask, Init, Input, Parameter, Parameters, Var,
    gradscale_core::ops::{self, Pool, PoolOp},
    nn::{
        Conv1d, Conv2d, ConvTranspose2d, CrossAttention, Embedding, GroupNorm, Gru, GruCell, InstanceNorm, LayerNorm,
        Lstm, LstmCell, Module, RmsNorm, SelfAttention,
    },
};
use std::{cell::RefCell, collections::BTreeMap};

const TABLE: &str = include_str!("../../../golden/engine.txt");

/// Returns the fields of each row of the table.
pub fn rows() -> impl Iterator<Item = [&'static str; 4]> {
    TABLE.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let mut parts = line.split('\t');
        [(); 4].map(|()| parts.next().expect("four columns"))
    })
}

pub fn numbers<T: std::str::FromStr>(text: &str) -> Vec<T>
where
    T::Err: std::fmt::Debug,
{
    text.split(' ').map(|number| number.parse().expect("a number")).collect()
}

#[derive(Clone, Debug)]
struct Tensor {
    shape: [usize; 4],
    data: Vec<f32>,
}

/// The tensors of one case by name.
struct Case {
    name: &'static str,
    all: BTreeMap<&'static str, Tensor>,
}

/// Parameters and inputs of a case's network, by name.
struct Given<'a, 't> {
    any: Var<'t>,
    handles: &'a BTreeMap<String, Parameter>,
    indices: Var<'t>,
}

impl<'t> Given<'_, 't> {
    fn get(&self, name: &str) -> Var<'t> {
        self.any.tape().parameter(&self.handles[name])
    }

    fn x(&self) -> Var<'t> {
        self.get("in.x")
    }
}

impl Case {
    fn of(name: &'static str) -> Self {
        let mut all = BTreeMap::new();
        for [_, key, shape, values] in rows().filter(|row| row[0] == name) {
            let shape: Vec<usize> = numbers(shape);
            let shape = shape.try_into().expect("four sizes");
            all.insert(key, Tensor { shape, data: numbers(values) });
        }
        assert!(!all.is_empty(), "no case {name}");
        Self { name, all }
    }

    /// The largest difference of the result and of all gradients, relative to the largest value of each.
    fn check<N>(
        &self, build: impl FnOnce(&mut Parameters) -> N, net: impl for<'t> Fn(&N, &Given<'_, 't>) -> Var<'t>,
    ) -> f64 {
        let mut parameters = Parameters::seeded(1);
        let layer = build(&mut parameters);
        // Constants of a layer without trained values are called `plain`.
        let trained = parameters.names().filter(|name| !name.starts_with("plain."));
        let of_layer: Vec<String> = trained.map(str::to_owned).collect();
        let mut handles = BTreeMap::new();
        for (&key, tensor) in &self.all {
            let Some((scope, name)) = key.split_once('.') else { continue };
            let handle = match scope {
                "in" => parameters.at(scope).weight(name, tensor.shape, Init::Constant(0.0)),
                "const" => parameters.at(scope).constant(name, tensor.shape, &tensor.data),
                _ => continue,
            };
            handles.insert(key.to_owned(), handle);
        }
        let t = &self.all["t"];
        handles.insert("t".to_owned(), parameters.at("golden").constant("t", t.shape, &t.data));
        let mut trainer = trainer(parameters, "fp32");
        let mut given = Vec::new();
        for (&key, tensor) in &self.all {
            if key.starts_with("in.") || of_layer.iter().any(|name| name == key) {
                trainer.set_parameter(key, &tensor.data).expect("a parameter of that size");
                given.push(key);
            }
        }
        let missing: Vec<_> = of_layer.iter().filter(|name| !self.all.contains_key(name.as_str())).collect();
        assert!(missing.is_empty(), "{}: no values of {missing:?}", self.name);
        let indices = self.all.get("index.rows");
        let words: Vec<u32> = indices.map_or(vec![0], |one| one.data.iter().map(|&x| x as u32).collect());
        let shape = indices.map_or([1; 4], |one| one.shape);
        let batch = || [Input::f32([1], &[0.0]), Input::u32(shape, &words)];

        let y = trainer
            .evaluate(batch(), |[any, indices]| net(&layer, &Given { any, handles: &handles, indices }))
            .expect("it fits");
        assert_eq!(y.shape.sizes(), self.all["y"].shape, "{}", self.name);
        let mut worst = self.distance("y", &y.data);
        let gradients = trainer
            .backward(batch(), |[any, indices]| {
                let given = Given { any, handles: &handles, indices };
                (net(&layer, &given) * given.get("t")).sum()
            })
            .expect("it fits");
        for key in given {
            let gradient = trainer.gradient(&gradients, key).expect("a parameter");
            let gradient = gradient.unwrap_or_else(|| panic!("{}: no gradient of {key}", self.name));
            worst = worst.max(self.distance(&format!("grad.{key}"), &gradient.data));
        }
        worst
    }

    fn distance(&self, key: &str, found: &[f32]) -> f64 {
        let right = &self.all[key].data;
        assert_eq!(found.len(), right.len(), "{} {key}", self.name);
        let largest = right.iter().fold(0f64, |most, &x| most.max(f64::from(x).abs()));
        let differences = found.iter().zip(right).map(|(&x, &y)| (f64::from(x) - f64::from(y)).abs());
        let worst = differences.fold(0f64, |most, x| if x.is_nan() { f64::INFINITY } else { most.max(x) });
        match largest {
            _ if worst == 0.0 => 0.0,
            // A gradient that is 0, for example of a bias of keys, but for the roundings of f64. The engine's, of values
            // near 1, may be a rounding of f32.
            _ if 0.0 < largest && largest < 1e-12 => worst,
            _ => worst / largest,
        }
    }
}

thread_local! {
    static SEEN: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// Roundings of f32 next to the largest value: the longest way is three steps of a cell, of some twenty operators each.
/// Measured: 3.4e-7.
const BOUND: f64 = 1e-6;

fn layer<N>(
    name: &'static str, build: impl FnOnce(&mut Parameters) -> N, net: impl for<'t> Fn(&N, &Given<'_, 't>) -> Var<'t>,
) {
    let distance = Case::of(name).check(build, net);
    println!("{name}: {distance:.1e}");
    assert!(distance < BOUND, "{name}: {distance:e}");
    SEEN.with_borrow_mut(|seen| seen.push(name));
}

fn case(name: &'static str, net: impl for<'t> Fn(&Given<'_, 't>) -> Var<'t>) {
    layer(name, |_| (), |(), given| net(given));
}

/// The numbers in a case's name.
fn of_name(name: &str) -> Vec<u32> {
    name.split(' ').skip(1).map(|number| number.parse().expect("a number")).collect()
}

fn named(start: &str) -> Vec<&'static str> {
    let mut all: Vec<&str> = rows().map(|row| row[0]).filter(|name| name.split(' ').next() == Some(start)).collect();
    all.dedup();
    assert!(!all.is_empty(), "no case {start}");
    all
}

fn products() {
    for name in named("conv_transpose") {
        let [stride, pad, extra, dilation, groups] = of_name(name)[..] else { panic!("{name}") };
        case(name, |g| {
            let describe = |[n, h, w, c]: [u32; 4]| {
                let size = |size: u32| (size - 1) * stride + 2 * dilation + 1 + extra - 2 * pad;
                let y = [n, size(h), size(w), 6];
                ops::Conv2d::padded(y, c, [3; 2], [pad; 2])?
                    .stride([stride; 2])?
                    .dilation([dilation; 2])?
                    .groups(groups)
            };
            g.x().conv_transpose("up", describe, g.get("in.w"), Some(g.get("in.b")))
        });
    }
    let up = |parameters: &mut Parameters| {
        let mut scope = parameters.at("up");
        ConvTranspose2d::new(&mut scope, 4, 2, 3).stride(2).pad(1).extra(1).bias(&mut scope)
    };
    layer("ConvTranspose2d", up, |up, g| up.forward(g.x()));
    for name in named("Conv2d") {
        let groups = of_name(name)[0] as usize;
        let build = |parameters: &mut Parameters| {
            let mut scope = parameters.at("conv");
            let conv = match groups {
                4 => Conv2d::depthwise(&mut scope, 4, 3),
                _ => Conv2d::grouped(&mut scope, 4, 4, 3, groups),
            };
            conv.bias(&mut scope)
        };
        layer(name, build, |conv, g| conv.forward(g.x()));
    }
    for name in named("Conv1d") {
        let [stride, pad, dilation, groups] = of_name(name)[..] else { panic!("{name}") };
        let build = |parameters: &mut Parameters| {
            let mut scope = parameters.at("conv");
            let conv = Conv1d::grouped(&mut scope, 4, 6, 5, groups as usize);
            // The default padding keeps the length.
            let conv = if pad == 2 { conv } else { conv.pad(pad) };
            conv.stride(stride).dilation(dilation).bias(&mut scope)
        };
        layer(name, build, |conv, g| conv.forward(g.x()));
    }
    case("matmul", |g| g.get("in.a").matmul(g.get("in.b")));
    case("matmul_transposed", |g| g.get("in.a").matmul_transposed(g.get("in.b")));
}

fn functions() {
    case("sigmoid", |g| g.x().sigmoid());
    case("tanh", |g| g.x().tanh());
    case("gelu", |g| g.x().gelu());
    case("silu", |g| g.x().silu());
    case("hardswish", |g| g.x().hardswish());
    hardswish_points();
    case("leaky_relu", |g| g.x().leaky_relu(0.2));
    leaky_relu_points();
    case("softplus", |g| g.x().softplus());
    case("softmax", |g| g.x().softmax());
    case("sin", |g| g.x().sin());
    case("cos", |g| g.x().cos());
}

fn choices() {
    case("maximum", |g| g.get("in.a").maximum(g.get("in.b")));
    // The other order, which is as good for ties too.
    case("minimum", |g| g.get("in.b").minimum(g.get("in.a")));
    case("where", |g| g.indices.where_cond(g.get("in.a"), g.get("in.b")));
    for axis in 0..4 {
        case(named("max_axis")[axis], |g| g.x().max_axis(axis));
        case(named("min_axis")[axis], |g| g.x().min_axis(axis));
        case(named("cumsum")[axis], |g| g.x().cumsum(axis));
    }
    for name in named("top_k") {
        let [axis, k] = of_name(name)[..] else { panic!("{name}") };
        case(name, |g| g.x().top_k(axis as usize, k as usize).0);
    }
}

/// A function and its derivative at some points.
struct Points {
    x: Vec<f32>,
    /// PyTorch's values, and the engine's.
    values: [Vec<f32>; 2],
    /// The same of derivatives.
    slopes: [Vec<f32>; 2],
}

fn given<'t>(any: Var<'t>, handle: &Parameter) -> Var<'t> {
    any.tape().parameter(handle)
}

fn points(name: &'static str, function: impl for<'t> Fn(Var<'t>) -> Var<'t>) -> Points {
    let case = Case::of(name);
    let [x, y, slope] = ["in.x", "y", "grad.in.x"].map(|key| case.all[key].data.clone());
    let mut parameters = Parameters::seeded(1);
    let handle = parameters.at("in").weight("x", [1, x.len()], Init::Constant(0.0));
    let mut trainer = trainer(parameters, "fp32");
    trainer.set_parameter("in.x", &x).expect("a parameter of that size");
    let batch = [Input::f32([1], &[0.0])];
    let found = trainer.evaluate(batch, |[any]| function(given(any, &handle))).expect("it fits").data;
    let gradients = trainer.backward(batch, |[any]| function(given(any, &handle)).sum()).expect("it fits");
    let slopes = trainer.gradient(&gradients, "in.x").expect("a parameter").expect("its gradient").data;
    SEEN.with_borrow_mut(|seen| seen.push(name));
    Points { x, values: [y, found], slopes: [slope, slopes] }
}

/// The derivative at 0 and at non-finite values is PyTorch's.
fn leaky_relu_points() {
    let Points { x, values, slopes } = points("leaky_relu points", |x| x.leaky_relu(0.25));
    for [expected, found] in [values, slopes] {
        let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        assert!(expected.iter().zip(&found).all(same), "{x:?}: {found:?}, not {expected:?}");
    }
}

/// hardswish at its branch points and at non-finite values, value by value.
fn hardswish_points() {
    let Points { x, values: [y, found], slopes: [slope, slopes] } = points("hardswish points", |x| x.hardswish());
    for (i, &x) in x.iter().enumerate() {
        let near = |found: f32, right: f32| {
            found == right || found.is_nan() && right.is_nan() || (found - right).abs() <= 2e-7 * right.abs().max(1.0)
        };
        // PyTorch multiplies −∞ by 0; here the limit is given.
        let right = if x == f32::NEG_INFINITY { 0.0 } else { y[i] };
        assert!(near(found[i], right), "hardswish({x}) is {} and not {right}", found[i]);
        // At a branch point the derivative here is that of the middle branch. PyTorch 2.15 uses that of the outer
        // branches, and returns 1 for NaN too.
        let right = match x {
            -3.0 => -0.5,
            3.0 => 1.5,
            _ if x.is_nan() => f32::NAN,
            _ => slope[i],
        };
        assert!(near(slopes[i], right), "hardswish'({x}) is {} and not {right}", slopes[i]);
    }
}

fn norms() {
    layer("LayerNorm", |p| LayerNorm::new(&mut p.at("norm"), 6), |norm, g| norm.forward(g.x()));
    layer("GroupNorm 3", |p| GroupNorm::new(&mut p.at("norm"), 6, 3), |norm, g| norm.forward(g.x()));
    layer("GroupNorm 1", |p| GroupNorm::new(&mut p.at("norm"), 6, 1), |norm, g| norm.forward(g.x()));
    layer("InstanceNorm 1", |p| InstanceNorm::new(&mut p.at("norm"), 6), |norm, g| norm.forward(g.x()));
    let plain = |p: &mut Parameters| InstanceNorm::without_affine(&mut p.at("plain"), 6);
    layer("InstanceNorm 0", plain, |norm, g| norm.forward(g.x()));
    layer("RmsNorm", |p| RmsNorm::new(&mut p.at("norm"), 6), |norm, g| norm.forward(g.x()));
}

fn images() {
    case("average_pool 2 2", |g| g.x().average_pool([2, 2]));
    case("average_pool 3 3", |g| {
        let describe = |shape| Pool::padded(PoolOp::Average, shape, [3, 3], [1, 1])?.stride([2, 2]);
        g.x().pool("average_pool", describe)
    });
    let both = |name: &str| -> [u32; 2] { of_name(name)[..2].try_into().expect("two sizes") };
    for name in named("adaptive_average_pool") {
        case(name, |g| g.x().adaptive_average_pool(both(name)));
    }
    for name in named("adaptive_max_pool") {
        case(name, |g| g.x().adaptive_max_pool(both(name)));
    }
    for name in named("roi_align") {
        let [rows, columns, samples] = of_name(name)[..] else { panic!("{name}") };
        case(name, |g| g.x().roi_align(g.get("const.boxes"), [rows, columns], 0.5, samples));
    }
    for name in named("roi_pool") {
        case(name, |g| g.x().roi_pool(g.get("const.boxes"), both(name), 0.5));
    }
    for name in named("upsample_nearest") {
        case(name, |g| g.x().upsample_nearest(both(name)));
    }
    for name in named("upsample_bilinear") {
        case(name, |g| g.x().upsample_bilinear(both(name), of_name(name)[2] == 1));
    }
}

fn moves() {
    case("permute", |g| g.x().permute([2, 0, 3, 1]));
    case("slice", |g| g.x().slice(2, 1, 2));
    case("split", |g| {
        let parts = g.x().split(3, &[1, 3, 1]);
        parts[2].concat(&[parts[1].tanh(), (parts[0] * parts[0])], 3)
    });
    layer("Embedding", |p| Embedding::new(&mut p.at("tokens"), 7, 4), |tokens, g| tokens.forward(g.indices));
}

fn sequences() {
    for (causal, name, of_layer) in
        [(false, "attention 0", "SelfAttention 0"), (true, "attention 1", "SelfAttention 1")]
    {
        case(name, |g| g.get("in.q").attention("attention", g.get("in.k"), g.get("in.v"), causal));
        let build = |p: &mut Parameters| {
            let attention = SelfAttention::new(&mut p.at("attention"), 6, 2);
            if causal { attention.causal() } else { attention }
        };
        layer(of_layer, build, |attention, g| attention.forward(g.x()));
    }
    case("attention_with", |g| {
        g.get("in.q").attention_with("attention", g.get("in.k"), g.get("in.v"), AttentionMask::Where(g.indices))
    });
    for name in ["CrossAttention none", "CrossAttention within", "CrossAttention where"] {
        let build = |p: &mut Parameters| CrossAttention::new(&mut p.at("attention"), 6, 3, 2);
        layer(name, build, |attention, g| {
            let mask = match name {
                "CrossAttention within" => AttentionMask::Within(g.indices),
                "CrossAttention where" => AttentionMask::Where(g.indices),
                _ => AttentionMask::None,
            };
            attention.forward(g.x(), g.get("in.memory"), mask)
        });
    }
    let steps = ["in.x0", "in.x1", "in.x2"];
    let lstm = |p: &mut Parameters| LstmCell::new(&mut p.at("cell"), 3, 4);
    layer("LSTMCell", lstm, |cell, g| {
        let mut state = [g.get("in.h"), g.get("in.c")];
        for x in steps {
            state = cell.forward(g.get(x), state);
        }
        state[0].concat(&[state[1]], 3)
    });
    let gru = |p: &mut Parameters| GruCell::new(&mut p.at("cell"), 3, 4);
    layer("GRUCell", gru, |cell, g| steps.iter().fold(g.get("in.h"), |h, x| cell.forward(g.get(x), h)));
}

/// y, the last h and the last c, one after the other.
fn all_of<'t>(parts: &[Var<'t>]) -> Var<'t> {
    let flat: Vec<Var<'t>> = parts.iter().map(|part| part.reshape([1, 1, 1, part.shape().len()])).collect();
    flat[0].concat(&flat[1..], 3)
}

/// Recurrent layers over time: cell types, both directions, and sequences of different lengths.
fn over_time() {
    for name in named("LSTM") {
        let [layers, both, packed] = of_name(name)[..] else { panic!("{name}") };
        let build = |p: &mut Parameters| match both {
            1 => Lstm::bidirectional(&mut p.at("rnn"), 2, 3, layers as usize),
            _ => Lstm::new(&mut p.at("rnn"), 2, 3, layers as usize),
        };
        layer(name, build, |rnn, g| {
            let state = Some([g.get("in.h"), g.get("in.c")]);
            let (y, [h, c]) = rnn.sequence(g.x(), state, (packed == 1).then_some(g.indices));
            all_of(&[y, h, c])
        });
    }
    for name in named("GRU") {
        let [layers, both, packed] = of_name(name)[..] else { panic!("{name}") };
        let build = |p: &mut Parameters| match both {
            1 => Gru::bidirectional(&mut p.at("rnn"), 2, 3, layers as usize),
            _ => Gru::new(&mut p.at("rnn"), 2, 3, layers as usize),
        };
        layer(name, build, |rnn, g| {
            let (y, h) = rnn.sequence(g.x(), Some(g.get("in.h")), (packed == 1).then_some(g.indices));
            all_of(&[y, h])
        });
    }
}

fn losses() {
    for name in named("smooth_l1_loss") {
        let beta: f32 = name.split(' ').nth(1).and_then(|beta| beta.parse().ok()).expect("a number");
        case(name, |g| g.x().smooth_l1_loss(g.get("in.target"), beta));
    }
    for name in named("bce_with_logits") {
        case(name, |g| g.x().bce_with_logits(g.get("const.target")));
    }
    for name in named("focal_loss") {
        let numbers: Vec<f32> = name.split(' ').skip(1).map(|x| x.parse().expect("a number")).collect();
        case(name, |g| g.x().focal_loss(g.get("const.target"), numbers[0], numbers[1]));
    }
}

#[test]
fn every_operator_as_pytorch() {
    for part in [products, functions, choices, norms, images, moves, sequences, over_time, losses] {
        part();
    }
    // No case of the table is left out; first values (init.rs) and half weights (training/weights.rs) have their own tests.
    let elsewhere = |name: &str| name.starts_with("init ") || name.starts_with("half weights ");
    let mut left: Vec<&str> = rows().map(|row| row[0]).filter(|name| !elsewhere(name)).collect();
    left.dedup();
    SEEN.with_borrow(|seen| left.retain(|name| !seen.contains(name)));
    assert!(left.is_empty(), "nobody checks {left:?}");
}
