//! Selections at the edges: values that are not finite, equal values, and exponents that pass.

use crate::corners::trainer;
use gradscale::{
    Cpu, Init, Input, Method, Parameters, Trainer, Var,
    gradscale_core::amp::{AmpPolicy, Level},
    optim::Sgd,
};

const INFINITE: f32 = f32::INFINITY;

/// The result of a function of two rows of values, and its gradients.
fn both(a: &[f32], b: &[f32], net: impl for<'t> Fn([Var<'t>; 2]) -> Var<'t>) -> [Vec<f32>; 3] {
    let mut parameters = Parameters::seeded(1);
    let handles =
        [("a", a), ("b", b)].map(|(name, x)| parameters.at("in").weight(name, [1, x.len()], Init::Constant(0.0)));
    let mut trainer = trainer(parameters, "fp32");
    trainer.set_parameter("in.a", a).expect("a parameter");
    trainer.set_parameter("in.b", b).expect("a parameter");
    let batch = || [Input::f32([1], &[0.0])];
    let y = trainer.evaluate(batch(), |[any]| net(handles.each_ref().map(|one| any.tape().parameter(one))));
    let gradients = trainer
        .backward(batch(), |[any]| net(handles.each_ref().map(|one| any.tape().parameter(one))).sum())
        .expect("it fits");
    let read = |name: &str| {
        trainer.gradient(&gradients, name).expect("a parameter").map(|tensor| tensor.data).unwrap_or_default()
    };
    [y.expect("it fits").data, read("in.a"), read("in.b")]
}

#[test]
fn what_a_mask_hides_has_no_influence() {
    let (a, b) = ([1.0, f32::NAN, -3.0, INFINITE], [INFINITE, 2.0, f32::NAN, 4.0]);
    let [y, da, db] = both(&a, &b, |[a, b]| {
        let mask = (a.tape().zeros([1, 4]) + 1.0).cumsum(3).affine(-2.0, 5.0);
        // 3, 1, −1 and −3, of which the first place is used, and their opposite for the other places.
        mask.where_cond(a, b).slice(3, 0, 1).concat(&[mask.scale(-1.0).where_cond(a, b).slice(3, 1, 3)], 3)
    });
    assert_eq!(y, [1.0, 2.0, -3.0, INFINITE]);
    assert_eq!([da, db], [[1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0]]);
}

/// 0 is not above 0, neither is NaN; every other number and integer above it is.
#[test]
fn a_mask_is_set_above_zero() {
    let mut trainer = trainer(Parameters::seeded(1), "fp32");
    let masks = [1e-30, 0.0, -0.0, -1.0, f32::NAN, INFINITE];
    let y = trainer
        .evaluate([Input::f32([1, 6], &masks)], |[mask]| mask.where_cond(mask * 0.0 + 1.0, mask.tape().zeros([1, 6])))
        .expect("it fits");
    // The values of the third and last are NaN themselves; what counts is which were selected.
    assert_eq!(y.data[..4], [1.0, 0.0, 0.0, 0.0]);
    assert!(y.data[4] == 0.0 && y.data[5].is_nan(), "{:?}", y.data);
    let integers = trainer
        .evaluate([Input::u32([1, 3], &[0, 1, u32::MAX])], |[mask]| {
            mask.where_cond(mask.tape().zeros([1, 1]) + 7.0, mask.tape().zeros([1, 1]) - 7.0)
        })
        .expect("it fits");
    assert_eq!(integers.data, [-7.0, 7.0, 7.0]);
}

#[test]
fn ties_are_halved_and_nan_wins() {
    let (a, b) = ([2.0, 1.0, -0.0, f32::NAN, 5.0], [2.0, 3.0, 0.0, 1.0, f32::NAN]);
    let [y, da, db] = both(&a, &b, |[a, b]| a.maximum(b));
    assert!(y[..3] == [2.0, 3.0, 0.0] && y[3].is_nan() && y[4].is_nan(), "{y:?}");
    assert_eq!([&da[..3], &db[..3]], [[0.5, 0.0, 0.5], [0.5, 1.0, 0.5]]);
    let [y, da, db] = both(&a, &b, |[a, b]| a.minimum(b));
    assert!(y[..3] == [2.0, 1.0, 0.0] && y[3].is_nan() && y[4].is_nan(), "{y:?}");
    assert_eq!([&da[..3], &db[..3]], [[0.5, 1.0, 0.5], [0.5, 0.0, 0.5]]);
}

/// The first of equal values is found first, −∞ and the least number are found too, as equals, and nothing is found twice.
#[test]
fn largest_values_in_order() {
    let mut trainer = trainer(Parameters::seeded(1), "fp32");
    let rows = [
        [3.0, 1.0, 3.0, 3.0],
        [-INFINITE, -INFINITE, 0.5, -INFINITE],
        [f32::MIN, -INFINITE, f32::MIN, -1.0],
        [INFINITE, f32::NAN, 7.0, INFINITE],
    ];
    let batch = || [Input::f32([4, 4], rows.as_flattened())];
    let places = trainer.evaluate_integers(batch(), |[x]| x.top_k(3, 4).1).expect("it fits").data;
    assert_eq!(places, [0, 2, 3, 1, 2, 0, 1, 3, 3, 0, 1, 2, 1, 0, 3, 2]);
    let values = trainer.evaluate(batch(), |[x]| x.top_k(3, 4).0).expect("it fits").data;
    for (i, (&value, &place)) in values.iter().zip(&places).enumerate() {
        let right = rows[i / 4][place as usize];
        assert!(value == right || value.is_nan() && right.is_nan(), "{i}: {value}, not {right}");
    }
    let first = trainer.evaluate(batch(), |[x]| x.max_axis(3)).expect("it fits").data;
    assert!(first[..3] == [3.0, 0.5, -1.0] && first[3].is_nan(), "{first:?}");
    // Along another axis, and positions as numbers.
    let columns = trainer.evaluate(batch(), |[x]| x.slice(0, 0, 3).top_k(0, 2).1.scale(1.0)).expect("it fits").data;
    assert_eq!(columns, [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0]);
}

/// Copies and zeros keep the exponent of a gradient; sums and halves of a tie are sites.
#[test]
fn selections_pass_exponents_and_sums_are_sites() {
    let mut parameters = Parameters::seeded(1);
    let weight = parameters.at("in").weight("x", [1, 2, 2, 4], Init::Uniform { low: -1.0, high: 1.0 });
    let method = Method::mixed().with_amp(AmpPolicy::new(Level::O2));
    let mut trainer = Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(1.0), method).expect("a trainer");
    let gradients = trainer
        .backward([Input::f32([1], &[0.0])], |[any]| {
            let x = any.tape().parameter(&weight).scale(1.5).named("x").tanh().named("half");
            let chosen = x.where_cond(x, x.scale(0.5).named("small")).max_axis(1).top_k(3, 3).0;
            let sums = chosen.maximum(chosen.scale(0.5)).cumsum(3);
            (sums * sums.detach()).sum()
        })
        .expect("it fits");
    trainer.step(gradients).expect("a step");
    let names: Vec<String> = trainer.sites().map(|site| site.name.to_owned()).collect();
    let has = |part: &str| names.iter().any(|name| name.starts_with(part) && name.contains("grad"));
    assert!(!has("where") && !has("max/") && !has("top_k"), "{names:?}");
    assert!(has("maximum/"), "{names:?}");
}
