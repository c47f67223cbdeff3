//! Operators of users, with gradients of their own.

use crate::{corners::trainer, gradients::distance, graph::values};
use gradscale::{
    Cpu, CustomGradient, CustomOperator, Error, Init, Input, Method, Parameters, TraceErrorKind, Trainer, Var,
    gradscale_core::amp::{AmpPolicy, Level},
    optim::Sgd,
};
use std::cell::Cell;

/// x·sigmoid(x), whose gradient is written by hand from the output.
struct HandSilu;

impl CustomOperator for HandSilu {
    fn forward<'t>(&self, inputs: &[Var<'t>]) -> Var<'t> {
        inputs[0] * inputs[0].sigmoid()
    }

    fn backward<'t>(&self, of: CustomGradient<'t>) -> Vec<Var<'t>> {
        let share = of.inputs[0].sigmoid();
        // s + y·(1 − s).
        vec![of.gradient * (share + of.output * share.affine(-1.0, 1.0))]
    }
}

/// a·b, with gradients that are no derivatives: 3 times that of a, and minus that of b.
struct Odd;

impl CustomOperator for Odd {
    fn forward<'t>(&self, inputs: &[Var<'t>]) -> Var<'t> {
        inputs[0].tape().custom("inner", &Product, inputs)
    }

    fn backward<'t>(&self, of: CustomGradient<'t>) -> Vec<Var<'t>> {
        let [a, b] = [of.inputs[0], of.inputs[1]];
        vec![(of.gradient * b).scale(3.0), -(of.gradient * a)]
    }
}

struct Product;

impl CustomOperator for Product {
    fn forward<'t>(&self, inputs: &[Var<'t>]) -> Var<'t> {
        inputs[0] * inputs[1]
    }

    fn backward<'t>(&self, of: CustomGradient<'t>) -> Vec<Var<'t>> {
        vec![of.gradient; 2]
    }
}

/// Half of x, with a gradient that is a value of the forward pass as it is: x, or the result.
struct Values {
    of_output: bool,
}

impl CustomOperator for Values {
    fn forward<'t>(&self, inputs: &[Var<'t>]) -> Var<'t> {
        inputs[0].scale(0.5)
    }

    fn backward<'t>(&self, of: CustomGradient<'t>) -> Vec<Var<'t>> {
        vec![if self.of_output { of.output } else { of.inputs[0] }]
    }
}

/// Results and gradients of a function of two parameters, and the names of the sites; the loss is divided by 2^`small`.
struct Found {
    y: Vec<f32>,
    gradients: Vec<Vec<f32>>,
    sites: Vec<String>,
}

fn run(method: &Method, small: i32, net: impl for<'t> Fn([Var<'t>; 2]) -> Var<'t>) -> Found {
    let mut parameters = Parameters::seeded(1);
    let handles = ["a", "b"].map(|name| parameters.at("in").weight(name, [2, 1, 3, 4], Init::Constant(0.0)));
    let mut trainer =
        Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(0.0), method.clone()).expect("a trainer");
    for (seed, name) in [(1, "in.a"), (2, "in.b")] {
        let far: Vec<f32> = values(seed, 24).into_iter().map(|x| 4.0 * x).collect();
        trainer.set_parameter(name, &far).expect("a parameter");
    }
    // An operator between parameter and function makes its gradient that of a computed value.
    let batch = || [Input::f32([1], &[0.0])];
    let weights = values(3, 24);
    let y = trainer.evaluate(batch(), |[any]| net(handles.each_ref().map(|one| any.tape().parameter(one).scale(1.0))));
    let factor = 2f32.powi(-small);
    let gradients = trainer
        .backward([Input::f32([1], &[factor]), Input::f32([2, 1, 3, 4], &weights)], |[factor, weights]| {
            let y = net(handles.each_ref().map(|one| factor.tape().parameter(one).scale(1.0)));
            (y * weights).sum() * factor
        })
        .expect("it fits");
    let read = |name| trainer.gradient(&gradients, name).expect("a parameter").map(|one| one.data).unwrap_or_default();
    let all = ["in.a", "in.b"].map(read).to_vec();
    let outcome = trainer.step(gradients).expect("a step");
    assert!(outcome.skipped.is_none(), "{outcome:?}");
    let sites = trainer.sites().map(|site| site.name.to_owned()).collect();
    Found { y: y.expect("it fits").data, gradients: all, sites }
}

fn methods() -> Vec<Method> {
    let gs = |text: &str, level| text.parse::<Method>().expect("a method").with_amp(AmpPolicy::new(level));
    vec![gs("fp32", Level::O0), gs("gs:exact", Level::O1), gs("gs:exact", Level::O2), gs("gs:forward=on", Level::O2)]
}

#[test]
fn as_the_built_in_one() {
    for method in methods() {
        let hand = run(&method, 0, |[a, b]| a.tape().custom("hand", &HandSilu, &[a]) + b);
        let built = run(&method, 0, |[a, b]| a.silu() + b);
        let bound = if method == Method::fp32() { 4.0 * 2f64.powi(-24) } else { 4.0 * 2f64.powi(-11) };
        let wide = |x: &[Vec<f32>]| x.iter().map(|x| x.iter().map(|&x| f64::from(x)).collect()).collect::<Vec<_>>();
        assert!(distance(&hand.gradients, &wide(&built.gradients)) < bound, "{method:?}");
        assert!(distance(&[hand.y], &wide(&[built.y])) < bound, "{method:?}");
    }
}

/// Later operators read an operator's result, in training as in evaluation.
#[test]
fn results_are_read_in_training() {
    for method in methods() {
        let hand = run(&method, 0, |[a, b]| a.tape().custom("hand", &HandSilu, &[a]).square() + b);
        let built = run(&method, 0, |[a, b]| a.silu().square() + b);
        let bound = if method == Method::fp32() { 4.0 * 2f64.powi(-24) } else { 4.0 * 2f64.powi(-11) };
        let right: Vec<Vec<f64>> = built.gradients.iter().map(|x| x.iter().map(|&x| f64::from(x)).collect()).collect();
        assert!(distance(&hand.gradients, &right) < bound, "{method:?}");
    }
}

/// A gradient may be a value of the forward pass, whose exponent is removed like that of any other.
#[test]
fn gradients_that_are_activations() {
    for method in methods() {
        for (of_output, factor) in [(false, 1.0), (true, 0.5)] {
            let found = run(&method, 0, |[a, b]| a.tape().custom("values", &Values { of_output }, &[a]) + b);
            for (gradient, x) in found.gradients[0].iter().zip(values(1, 24)) {
                let right = factor * 4.0 * x;
                assert!((gradient - right).abs() <= 2f32.powi(-9) * right.abs(), "{method:?} {gradient} {right}");
            }
        }
    }
}

/// The user's gradients are used, of an operator within an operator too, and each is a site where values are half.
#[test]
fn gradients_are_those_of_the_user() {
    for method in methods() {
        let odd = run(&method, 0, |[a, b]| a.tape().custom("odd", &Odd, &[a, b]));
        let product = run(&method, 0, |[a, b]| a * b);
        assert_eq!(odd.y, product.y, "{method:?}");
        for (factor, i) in [(3.0, 0), (-1.0, 1)] {
            for (&found, &right) in odd.gradients[i].iter().zip(&product.gradients[i]) {
                assert!((found - factor * right).abs() <= 2f32.powi(-9) * right.abs(), "{method:?} {found} {right}");
            }
        }
        let is_half = product.sites.iter().any(|name| name.contains("mul"));
        assert_eq!(["odd/cast", "odd/cast.1"].map(|name| odd.sites.iter().any(|site| site == name)), [is_half; 2]);
        // Only of the first one: the other gradient is not computed.
        let one = run(&method, 0, |[a, b]| a.tape().custom("odd", &Odd, &[a, b.detach()]) + b);
        assert_eq!(one.gradients[0], odd.gradients[0], "{method:?}");
        assert!(!one.sites.iter().any(|site| site == "odd/cast.1"));
    }
}

/// A loss of another magnitude gives the same bits at other exponents, however small it is.
#[test]
fn magnitudes_do_not_matter() {
    for method in methods() {
        let [large, small] =
            [0, 60].map(|small| run(&method, small, |[a, b]| a.tape().custom("odd", &Odd, &[a.silu(), b]).tanh()));
        for (large, small) in large.gradients.iter().flatten().zip(small.gradients.iter().flatten()) {
            assert_eq!((large * 2f32.powi(-60)).to_bits(), small.to_bits(), "{method:?}");
        }
    }
}

/// Gives back the gradients that it is told to.
struct Wrong<'a>(&'a dyn for<'t> Fn(CustomGradient<'t>) -> Vec<Var<'t>>);

impl CustomOperator for Wrong<'_> {
    fn forward<'t>(&self, inputs: &[Var<'t>]) -> Var<'t> {
        inputs[0].slice(3, 0, 2)
    }

    fn backward<'t>(&self, of: CustomGradient<'t>) -> Vec<Var<'t>> {
        (self.0)(of)
    }
}

#[test]
fn gradients_that_do_not_fit_are_refused() {
    let refused = |backward: &dyn for<'t> Fn(CustomGradient<'t>) -> Vec<Var<'t>>, count: usize| {
        let mut parameters = Parameters::seeded(1);
        let weight = parameters.at("in").weight("x", [2, 3], Init::Constant(1.0));
        let mut trainer = trainer(parameters, "gs");
        let step = trainer.backward([Input::f32([1], &[1.0])], |[any]| {
            let x = any.tape().parameter(&weight);
            x.tape().custom("wrong", &Wrong(backward), &vec![x; count]).sum()
        });
        match step {
            Err(Error::Trace(error)) => (error.kind.clone(), error.to_string()),
            other => panic!("{other:?}"),
        }
    };
    let (kind, _) = refused(&|of| vec![of.gradient], 1);
    assert!(matches!(kind, TraceErrorKind::Mismatch { .. }));
    assert_eq!(refused(&|_| vec![], 1).1, "wrong: returns 0 gradients of 1 inputs");
    assert_eq!(refused(&|of| vec![of.inputs[0]; 3], 2).1, "wrong: returns 3 gradients of 2 inputs");
    assert_eq!(refused(&|_| vec![], 0).1, "wrong: a custom operator needs an input");
    let (_, words) = refused(&|of| vec![of.inputs[0] + of.gradient.output("seen").sum()], 1);
    assert_eq!(words, "gradient: a gradient of a custom operator is read outside of its backward pass");
}

/// In evaluation there is no backward pass.
#[test]
fn an_evaluation_records_no_gradient() {
    struct Counting(Cell<usize>);
    impl CustomOperator for Counting {
        fn forward<'t>(&self, inputs: &[Var<'t>]) -> Var<'t> {
            inputs[0].scale(2.0)
        }
        fn backward<'t>(&self, of: CustomGradient<'t>) -> Vec<Var<'t>> {
            self.0.set(self.0.get() + 1);
            vec![of.gradient]
        }
    }
    let mut trainer = trainer(Parameters::seeded(1), "gs");
    let counting = Counting(Cell::new(0));
    let y = trainer.evaluate([Input::f32([2], &[1.0, 2.0])], |[x]| x.tape().custom("count", &counting, &[x]));
    assert_eq!((y.expect("it fits").data, counting.0.get()), (vec![2.0, 4.0], 0));
}
