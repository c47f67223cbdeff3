//! Mistakes of other implementations (specification, section 12), as far as they concern an engine.

use crate::{
    f64::Divisor,
    graph::{Graph, Op, values},
    run::Run,
};
use gradscale::{
    Cpu, Init, Input, Method, Parameters, Trainer, TrainerOptions,
    gradscale_core::{ops::Unary, solve::LimitedBy},
    nn::{BatchNorm, Module},
    optim::{Optimizer, Schedule, Sgd},
};

/// 9: schedules and Adam's corrections that advance on skipped steps.
#[test]
fn schedules_count_steps_taken() {
    let optimizer = Optimizer::from(Sgd::new(1.0)).schedule(Schedule::Step { every: 2, factor: 0.5 });
    let mut parameters = Parameters::seeded(1);
    let weight = parameters.at("p").weight("w", [1], Init::Constant(0.0));
    let mut trainer = Trainer::new(Cpu::new(1).unwrap(), parameters, optimizer, Method::mixed()).unwrap();
    let mut moved = Vec::new();
    for step in 0..8 {
        let before = trainer.parameter("p.w").unwrap().data[0];
        let g = [if step % 2 == 0 { f32::NAN } else { 1.0 }];
        let gradients = trainer.backward([Input::f32([1], &g)], |[g]| (g.tape().parameter(&weight) * g).sum());
        trainer.step(gradients.unwrap()).unwrap();
        moved.push(before - trainer.parameter("p.w").unwrap().data[0]);
    }
    assert_eq!(moved, [0.0, 1.0, 0.0, 1.0, 0.0, 0.5, 0.0, 0.5]);
    assert_eq!(trainer.steps(), 4);
}

/// Mistake 10, clipping before unscaling: norm and update are the same at any scale.
#[test]
fn clipping_sees_true_gradients() {
    let mut found = Vec::new();
    for method in ["fixed:1", "fixed:1024", "fixed:8192", "gs:exact"] {
        let mut graph = Graph { labels: vec![0], ..Graph::default() };
        let x = graph.constant([2, 1, 1, 4], vec![1.0; 8]);
        let w = graph.parameter([4, 1, 1, 4], vec![0.5; 16]);
        let y = graph.push(Op::Linear, &[x, w]);
        graph.push(Op::Sum, &[y]);
        let optimizer = Optimizer::from(Sgd::new(1.0)).clip_norm(1.0);
        let mut run = Run::new(Cpu::new(1).unwrap(), &graph, optimizer, &method.parse().unwrap());
        let gradients = run.backward().unwrap();
        let outcome = run.trainer.step(gradients).unwrap();
        // Sixteen gradients of 2.
        assert_eq!(outcome.gradient_norm, Some(8.0), "{method}");
        found.push(run.trainer.parameter("p.0").unwrap().data);
    }
    assert!(found.iter().all(|one| *one == vec![0.25; 16]));
}

/// 13: weight gradients stored and unscaled in half. Σ of 4096 times 2^-24 + 2^-13 and the like keeps f32's digits, and
/// 2^-60 is not zero.
#[test]
fn weight_gradients_are_f32() {
    for (factor, digits) in [(2f32.powi(-60), 1.0 + 2f32.powi(-20)), (2f32.powi(40), 3.0 + 2f32.powi(-18))] {
        for method in ["gs:exact", "gs:paper"] {
            let mut graph = Graph { labels: vec![0], ..Graph::default() };
            let x = graph.constant([2, 1, 1, 1], vec![digits.floor(), 2f32.powi(-18 - i32::from(digits < 2.0) * 2)]);
            let w = graph.parameter([1, 1, 1, 1], vec![1.0]);
            let y = graph.push(Op::Linear, &[x, w]);
            let sum = graph.push(Op::Sum, &[y]);
            graph.push(Op::Unary(Unary::Affine { a: factor, b: 0.0 }), &[sum]);
            let mut run = Run::new(Cpu::new(1).unwrap(), &graph, Sgd::new(0.0).into(), &method.parse().unwrap());
            let gradients = run.backward().unwrap();
            let found = run.gradients(&gradients)[0][0];
            // `paper` goes nowhere at such a cast: its 2^-60 flushes.
            let right = if method == "gs:paper" && factor < 1.0 { 0.0 } else { digits * factor };
            assert_eq!(found, right, "{method}");
        }
    }
}

/// 15: f32 accumulators fed values rounded on the way. A batch norm's gradient is one rounding of the f32 one, although
/// nearly all of it cancels.
#[test]
fn norm_backward_is_rounded_once() {
    let (x, t) = (values(1, 64), values(2, 64));
    let run = |method: &str| {
        let mut parameters = Parameters::seeded(1);
        let norm = BatchNorm::new(&mut parameters.at("norm"), 4);
        let layer = gradscale::nn::Linear::new(&mut parameters.at("layer"), 4, 4);
        let device = Cpu::new(1).unwrap();
        let trainer = Trainer::new(device, parameters, Sgd::new(0.0), method.parse().unwrap()).unwrap();
        let mut trainer = trainer.with_options(TrainerOptions::new().with_all_kept());
        let identity: Vec<f32> = (0..16).map(|i| f32::from(u8::from(i % 5 == 0))).collect();
        trainer.set_parameter("layer.weight", &identity).unwrap();
        let batch = [Input::f32([16, 4], &x), Input::f32([16, 4], &t)];
        // t = y + 1e-3·t: the gradient is nearly in the norm's null space.
        let gradients = trainer.backward(batch, |[x, t]| (norm.forward(layer.forward(x)) * t).sum()).unwrap();
        let all = trainer.scaled_gradients(&gradients).unwrap();
        let (_, dx) = all.into_iter().find(|(name, _)| name == "layer").unwrap();
        let factor = 2f32.powi(-dx.alpha);
        dx.data.data.into_iter().map(|x| x * factor).collect::<Vec<f32>>()
    };
    let [half, single] = [run("gs:exact"), run("fp32")];
    let largest = single.iter().fold(0f32, |most, x| most.max(x.abs()));
    for (half, single) in half.iter().zip(&single) {
        // The norm's own result is stored as half, and t combines with it in f32; x and t are halves. So its input
        // gradient is rounded twice: where the product's gradient is stored, and where its own is.
        assert!((half - single).abs() <= 2f32.powi(-11) * single.abs() + 2f32.powi(-11) * largest, "{half} {single}");
    }
}

/// Mistake 17: a branch whose terms fit and whose sum does not, 40000 + 40000. `paper` decides by its rule, overflows
/// and names the site; `exact` decides from the sum.
#[test]
fn the_sum_of_a_branch() {
    let graph = {
        let mut g = Graph { labels: vec![0], ..Graph::default() };
        let x = g.constant([1, 1, 1, 4], vec![2f32.powi(-10); 4]);
        let w = g.parameter([4, 1, 1, 4], vec![0.25; 16]);
        let stem = g.named(Op::Linear, &[x, w], "stem".to_owned());
        let left = g.named(Op::Unary(Unary::Relu), &[stem], "left".to_owned());
        let right = g.named(Op::Unary(Unary::Neg), &[stem], "right".to_owned());
        let sum = g.named(Op::Sub, &[left, right], "sub".to_owned());
        let t = g.constant([1, 1, 1, 4], vec![40000.0; 4]);
        let product = g.named(Op::Mul, &[sum, t], "mul".to_owned());
        g.push(Op::Sum, &[product]);
        g
    };
    for (method, overflows) in [("gs:exact", false), ("gs:paper", true)] {
        let mut run = Run::new(Cpu::new(1).unwrap(), &graph, Sgd::new(0.0).into(), &method.parse().unwrap());
        let gradients = run.backward().unwrap();
        let outcome = run.trainer.step(gradients).unwrap();
        let site = run.trainer.sites().find(|site| site.name == "stem/sum").unwrap();
        assert_eq!(site.overflows != 0, overflows, "{method}: {outcome:?}");
        assert_eq!(outcome.skipped.is_some(), overflows, "{method}");
    }
}

/// Mistake 18, deciding β instead of α. Sites whose decisions are in other steps than those of the preceding site do
/// not accumulate errors. A jump at one site changes later exponents only as far as their own values require.
#[test]
fn exponents_do_not_depend_on_those_before() {
    let graph = |factor: f32| {
        let mut g = Graph { labels: vec![1, 2], ..Graph::default() };
        let mut x = g.constant([2, 1, 1, 4], values(1, 8));
        for i in 0..5 {
            let w = g.parameter([4, 1, 1, 4], values(i, 16));
            x = g.named(Op::Linear, &[x, w], format!("l{i}"));
        }
        let loss = g.push(Op::CrossEntropy { ignore: None, divisor: Divisor::Rows }, &[x]);
        g.push(Op::Unary(Unary::Affine { a: factor, b: 0.0 }), &[loss]);
        g
    };
    let exponents = |factor: f32, steps: usize| {
        let mut run = Run::new(Cpu::new(1).unwrap(), &graph(factor), Sgd::new(0.0).into(), &Method::mixed());
        for _ in 0..steps {
            let gradients = run.backward().unwrap();
            run.trainer.step(gradients).unwrap();
        }
        run.trainer.sites().map(|site| site.alpha).collect::<Vec<i32>>()
    };
    let at_first = exponents(1.0, 1);
    // Repeated decisions from scaled rows do not drift, and they follow a factor of the loss exactly.
    assert_eq!(exponents(1.0, 45), at_first);
    let lifted: Vec<i32> = at_first.iter().map(|alpha| alpha + 30).collect();
    assert_eq!(exponents(2f32.powi(-30), 45), lifted);
}

/// Mistake 19, the smallest scale for narrow tensors. ±1/1000, as the gradient of a mean of absolute errors: γ = 0 at
/// 2^-15 too, where the value is a subnormal of one bit.
#[test]
fn narrow_tensors_keep_their_digits() {
    let mut graph = Graph { labels: vec![0], ..Graph::default() };
    let x = graph.constant([250, 1, 1, 4], vec![1.0; 1000]);
    let w = graph.parameter([4, 1, 1, 4], values(1, 16));
    let y = graph.push(Op::Linear, &[x, w]);
    let t = graph.constant([250, 1, 1, 4], vec![8.0; 1000]);
    graph.push(Op::L1, &[y, t]);
    let mut run = Run::new(Cpu::new(1).unwrap(), &graph, Sgd::new(0.0).into(), &Method::mixed());
    let gradients = run.backward().unwrap();
    // 250 rows of −1/1000 each.
    let worst = run.gradients(&gradients)[0].iter().fold(0f32, |most, g| most.max((g + 0.25).abs()));
    assert!(worst < 0.25 * 2f32.powi(-11), "{worst}");
    run.trainer.step(gradients).unwrap();
    let site = run.trainer.sites().next().unwrap();
    assert_eq!((site.subnormal_share, site.bound), (0.0, Some(LimitedBy::NormalRange)));
}
