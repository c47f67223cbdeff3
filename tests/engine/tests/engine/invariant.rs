//! The invariant of ⟨α, ∇X⟩ on random networks: at every node data·2^-α is the f32 gradient, except for the rounding
//! errors of the stores so far.
//!
//! Weights are 0, ±½ and ±1 and networks are short, so the forward pass is exact in half and both runs have the same
//! activations. They differ only in the stores of the backward pass.

use crate::{
    bound::{Bounded, backward},
    f64::{Conv, Divisor, Tensor},
    f64_more::Transposed,
    gradients,
    graph::{Graph, Op, Random, values},
    run::Run,
};
use gradscale::{
    Cpu, Method,
    gradscale_core::{
        amp::{Level, List},
        ops::Op as Name,
        ops::Unary,
        solve::LimitedBy,
    },
    optim::Sgd,
};
use half::f16;
use proptest::{
    collection::vec,
    prelude::{ProptestConfig, Strategy, any},
    test_runner::{TestCaseError, TestRunner},
};
use std::collections::BTreeMap;

const SHAPE: [usize; 4] = [2, 2, 2, 4];
/// Operators that a recipe draws from.
const OPERATORS: usize = 19;
/// Indices of the embeddings, with one row twice and one index beyond the table.
const INDICES: [u32; 8] = [0, 3, 3, 1, 4, 7, 2, 0];

/// Construction of a random network: an operator, two inputs and a seed for each node.
#[derive(Clone, Debug)]
struct Recipe {
    steps: Vec<(u8, u8, u8, u16)>,
    loss: u8,
    exponent: i32,
}

fn recipes() -> impl Strategy<Value = Recipe> {
    let step = (0u8..OPERATORS as u8, any::<u8>(), any::<u8>(), any::<u16>());
    (vec(step, 2..9), 0u8..3, -40i32..=10).prop_map(|(steps, loss, exponent)| Recipe { steps, loss, exponent })
}

/// Sparse weights: 0, ±½, ±1.
fn weights(seed: u16, len: usize, share: usize) -> Vec<f32> {
    let mut random = Random(u64::from(seed) + 1);
    let mut one = || if random.below(share) == 0 { [0.5, -0.5, 1.0, -1.0][random.below(4)] } else { 0.0 };
    (0..len).map(|_| one()).collect()
}

fn build(recipe: &Recipe) -> Graph {
    let mut g = Graph { labels: vec![0, 1, 2, 3, 3, 1, 0, 2], indices: INDICES.to_vec(), ..Graph::default() };
    let mut splits = 0;
    let x = g.constant(SHAPE, weights(9, 32, 1));
    let shared = g.parameter([4, 1, 1, 4], weights(1, 16, 2));
    let mut pool = vec![g.named(Op::Linear, &[x, shared], "shared".to_owned())];
    let mut used = vec![false];
    for &(op, a, b, seed) in &recipe.steps {
        // Earlier nodes may be used several times, which creates branches.
        let (i, j) = (usize::from(a) % pool.len(), usize::from(b) % pool.len());
        let (a, b) = (pool[i], pool[j]);
        used[i] = true;
        let y = match op {
            0 => {
                let w = g.parameter([4, 1, 1, 4], weights(seed, 16, 2));
                g.push(Op::Linear, &[a, w])
            }
            1 => g.named(Op::Linear, &[a, shared], "shared".to_owned()),
            2 => g.push(Op::Unary(Unary::Relu), &[a]),
            3 | 4 => {
                used[j] = true;
                g.push(if op == 3 { Op::Add } else { Op::Sub }, &[a, b])
            }
            5 | 6 => {
                used[j] = true;
                let axis = if op == 5 { 3 } else { 0 };
                let both = g.push(Op::Concat(axis), &[a, b]);
                g.push(Op::Slice { axis, start: 1, len: SHAPE[axis] }, &[both])
            }
            7 => g.push(Op::Unary(Unary::Affine { a: [2.0, -0.5][usize::from(seed % 2)], b: 0.0 }), &[a]),
            8 => {
                used[j] = true;
                g.push(Op::Mul, &[a, b])
            }
            9 => {
                let pooled = g.push(Op::MaxPool([2, 2]), &[a]);
                g.push(Op::Unpool, &[pooled, pooled])
            }
            10 => {
                let mean = g.push(Op::AveragePool { window: [2, 2], stride: [1, 1], pad: [1, 1] }, &[a]);
                let part = g.push(Op::Slice { axis: 1, start: 1, len: 2 }, &[mean]);
                g.push(Op::Slice { axis: 2, start: 0, len: 2 }, &[part])
            }
            11 => {
                let w = g.parameter([4, 3, 3, 4], weights(seed, 144, 12));
                let p = Transposed { stride: 1, pad: 1, extra: 0, dilation: 1, groups: 1 };
                g.push(Op::ConvTranspose(p), &[a, w])
            }
            12 => {
                used[j] = true;
                let scores = g.push(Op::Matmul { transposed: true }, &[a, b]);
                let w = g.parameter(SHAPE, weights(seed, 32, 2));
                g.push(Op::Matmul { transposed: false }, &[scores, w])
            }
            13 => g.push(Op::Permute([[1, 0, 2, 3], [0, 2, 1, 3]][usize::from(seed % 2)]), &[a]),
            14 => {
                splits += 1;
                let name = if splits == 1 { "split".to_owned() } else { format!("split{splits}") };
                let whole = g.named(Op::Split { axis: 3, lens: vec![1, 3] }, &[a], name);
                let [one, three] = [0, 1].map(|i| g.push(Op::Part(i), &[whole]));
                let one = g.push(Op::Unary(Unary::Affine { a: 2.0, b: 0.0 }), &[one]);
                g.push(Op::Concat(3), &[three, one])
            }
            15 => {
                let large = g.push(Op::Nearest([2, 3]), &[a]);
                let part = g.push(Op::Slice { axis: 1, start: 1, len: 2 }, &[large]);
                g.push(Op::Slice { axis: 2, start: 2, len: 2 }, &[part])
            }
            16 => {
                let align_corners = seed % 2 == 1;
                let large = g.push(Op::Bilinear { size: [4, if align_corners { 3 } else { 4 }], align_corners }, &[a]);
                let mean = g.push(Op::AdaptiveAverage([3, 2]), &[large]);
                g.push(Op::Slice { axis: 1, start: 1, len: 2 }, &[mean])
            }
            17 => {
                let table = g.parameter([5, 1, 1, 4], weights(seed, 20, 1));
                let rows = g.push(Op::Embedding([8, 1, 1, 4]), &[table]);
                let rows = g.push(Op::Reshape(SHAPE), &[rows]);
                g.push(Op::Add, &[a, rows])
            }
            _ => {
                let w = g.parameter([4, 3, 3, 4], weights(seed, 144, 12));
                g.push(Op::Conv(Conv { stride: 1, pad: 1, dilation: 1, groups: 1 }), &[a, w])
            }
        };
        pool.push(y);
        used.push(false);
    }
    let open: Vec<usize> = pool.iter().zip(used).filter(|(_, used)| !used).map(|(&id, _)| id).collect();
    let mut y = open[0];
    for &other in &open[1..] {
        y = g.push(Op::Add, &[y, other]);
    }
    let loss = match recipe.loss {
        0 => {
            let t = g.constant(SHAPE, values(5, 32));
            let product = g.push(Op::Mul, &[y, t]);
            g.push(Op::Sum, &[product])
        }
        1 => {
            let t = g.constant(SHAPE, values(6, 32));
            g.push(Op::Mse, &[y, t])
        }
        _ => g.push(Op::CrossEntropy { ignore: None, divisor: Divisor::Rows }, &[y]),
    };
    g.push(Op::Unary(Unary::Affine { a: 2f32.powi(recipe.exponent), b: 0.0 }), &[loss]);
    g
}

/// Returns true if every value that is stored as half is exactly representable and small.
fn is_exact(graph: &Graph) -> bool {
    let half = |x: &f64| f16::from_f64(*x).to_f64() == *x && x.abs() < 64.0;
    let large = |tensor: &Tensor| tensor.data.len() > 1;
    let last = graph.nodes.len() - 4;
    graph.eval(&graph.first()).0[..last]
        .iter()
        .filter(|tensor| large(tensor))
        .all(|tensor| tensor.data.iter().all(half))
}

fn fail(text: String) -> TestCaseError {
    TestCaseError::fail(text)
}

/// Gradients of all nodes after `steps` steps, against the bound. Returns its largest use.
fn check(graph: &Graph, method: &str, steps: usize) -> Result<f64, TestCaseError> {
    let (name, lists) = method.split_once(" lists ").unwrap_or((method, ""));
    let mut parsed: Method = name.parse().map_err(|error| fail(format!("{error}")))?;
    if let Ok(seed) = lists.parse() {
        let mut policy = gradients::lists(Level::O1, seed);
        // Several operators in one, whose squares are no halves.
        policy.set(Name::MseLoss, List::Deny).map_err(|_| fail("no room".to_owned()))?;
        parsed = parsed.with_amp(policy);
    }
    let device = Cpu::new(1).map_err(|error| fail(error.to_string()))?;
    let mut run = Run::new(device, graph, Sgd::new(0.0).into(), &parsed).kept();
    for _ in 1..steps {
        let gradients = run.backward().map_err(|error| fail(error.to_string()))?;
        run.trainer.step(gradients).map_err(|error| fail(error.to_string()))?;
    }
    let gradients = run.backward().map_err(|error| fail(error.to_string()))?;
    let scaled = run.trainer.scaled_gradients(&gradients).map_err(|error| fail(error.to_string()))?;
    let outcome = run.trainer.step(gradients).map_err(|error| fail(error.to_string()))?;
    if run.trainer.sites().any(|site| site.overflows != 0) {
        return if method.starts_with("gs:exact") { Err(fail("exact overflowed".to_owned())) } else { Ok(0.0) };
    }
    if let Some(skipped) = outcome.skipped {
        return Err(fail(format!("{skipped}, but no site overflowed")));
    }
    let sites: BTreeMap<String, i32> = run.trainer.sites().map(|site| (site.name.to_owned(), site.alpha)).collect();
    for site in run.trainer.sites() {
        let kept = site.gamma_measured <= 1e-3 || matches!(site.bound, Some(LimitedBy::Overflow));
        if method.starts_with("gs:exact") && !kept {
            return Err(fail(format!("{} flushes {} at 2^{}", site.name, site.gamma_measured, site.alpha)));
        }
    }
    let bounds = backward(graph, &sites);
    let mut nodes: Vec<usize> = (0..bounds.len()).rev().filter(|&id| bounds[id].is_some()).collect();
    let mut worst = 0f64;
    for (name, gradient) in scaled {
        // The difference and the square inside of a mean squared error are not nodes of the graph.
        let Some(at) = nodes.iter().position(|&id| graph.nodes[id].name == name) else {
            if name.starts_with("mse_loss") { continue } else { return Err(fail(format!("{name} is no node"))) }
        };
        let id = nodes.remove(at);
        let Some(Bounded { g, e, parts, site }) = &bounds[id] else { continue };
        for ((&data, &g), &e) in gradient.data.data.iter().zip(g).zip(e) {
            let error = (f64::from(data) * 2f64.powi(-gradient.alpha) - g).abs();
            if error.is_nan() || error > e {
                return Err(fail(format!("{name}: {data}·2^{} instead of {g:e} ± {e:e}", -gradient.alpha)));
            }
            worst = worst.max(if e > 0.0 { error / e } else { 0.0 });
        }
        // Row of a store that writes this node only.
        let row = site.as_ref().filter(|site| *parts == 1 && !site.starts_with("shared"));
        if let Some(row) = row.and_then(|site| run.trainer.sites().find(|one| one.name == site)) {
            let counts = row.row.counts();
            let zeros = gradient.data.data.iter().filter(|x| **x == 0.0).count() as u64;
            let amax = gradient.data.data.iter().fold(0f32, |most, x| most.max(x.abs()));
            let same = counts.zeros + counts.flushed == zeros && counts.count == g.len() as u64;
            let near = (amax - counts.amax).abs() <= amax * 2f32.powi(-10) + 2f32.powi(-24);
            if !same || !near || counts.exponent != gradient.alpha || row.alpha != gradient.alpha {
                return Err(fail(format!(
                    "{name}: {zeros} zeros, largest {amax} at 2^{}, row {counts:?}",
                    gradient.alpha
                )));
            }
        }
    }
    if nodes.is_empty() { Ok(worst) } else { Err(fail(format!("no gradient of {nodes:?}"))) }
}

fn invariant(methods: &[&str], steps: usize, cases: u32) {
    let mut worst = BTreeMap::new();
    let config =
        ProptestConfig { cases, failure_persistence: None, max_global_rejects: 20_000, ..ProptestConfig::default() };
    let seen = std::cell::RefCell::new(&mut worst);
    let drawn = std::cell::RefCell::new([0; OPERATORS]);
    TestRunner::new_with_rng(config, proptest::test_runner::TestRng::deterministic_rng(Default::default()))
        .run(&recipes(), |recipe| {
            let graph = build(&recipe);
            if !is_exact(&graph) {
                return Err(TestCaseError::reject("not exact in half"));
            }
            recipe.steps.iter().for_each(|step| drawn.borrow_mut()[usize::from(step.0)] += 1);
            for method in methods {
                let used = check(&graph, method, steps).map_err(|error| fail(format!("{method}: {error}")))?;
                let mut seen = seen.borrow_mut();
                let most = seen.entry((*method).to_owned()).or_insert(0f64);
                *most = most.max(used);
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    println!("largest use of the bound: {worst:.2?}");
    let drawn = drawn.into_inner();
    assert!(drawn.iter().all(|&times| times != 0), "an operator was never drawn: {drawn:?}");
}

const ALL: [&str; 5] = ["fp32", "gs:exact", "gs:paper", "gs:authors", "fixed:1024"];

/// Autocast lists that combine halves and f32 values.
const LISTS: [&str; 6] = [
    "gs:exact lists 1",
    "gs:exact lists 2",
    "gs:exact lists 3",
    "gs:exact lists 4",
    "gs:paper lists 5",
    "fixed:1024 lists 6",
];

#[test]
fn at_once() {
    invariant(&ALL, 1, 96);
}

#[test]
fn between_steps() {
    invariant(&ALL, 12, 96);
}

#[test]
fn under_other_lists() {
    invariant(&LISTS, 1, 48);
    invariant(&LISTS, 12, 16);
}
