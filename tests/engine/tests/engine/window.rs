//! The window of a single loss scale, against trainings at every fixed scale.

use crate::corners::trainer;
use gradscale::{
    Cpu, Error, Gradients, Input, Parameters, Trainer, Var, gradient_errors,
    gradscale_core::amp::Precision,
    nn::{BatchNorm, Linear, Module},
    window::{Place, ScaleWindow, TOLERATED_ERROR},
};
use std::collections::BTreeMap;

const BATCH: usize = 16;
const FEATURES: usize = 6;
const HIDDEN: usize = 8;
const CLASSES: usize = 3;

/// A network whose forward pass is exact in half, so that training in f32 has the gradients of an exact backward pass.
/// Gradients of the first layer are 2^-6 of those of the second, and all are made small by the loss.
struct Net {
    first: Linear,
    second: Linear,
}

impl Net {
    fn open(method: &str) -> (Self, Trainer<Cpu>) {
        let mut parameters = Parameters::seeded(1);
        let first = Linear::new(&mut parameters.at("first"), FEATURES, HIDDEN);
        let second = Linear::new(&mut parameters.at("second"), HIDDEN, CLASSES);
        let mut trainer = trainer(parameters, method);
        let quarters =
            |count: usize, by: usize| -> Vec<f32> { (0..count).map(|i| (i * by % 9) as f32 / 4.0 - 1.0).collect() };
        trainer.set_parameter("first.weight", &quarters(FEATURES * HIDDEN, 5)).expect("its size");
        trainer.set_parameter("second.weight", &quarters(HIDDEN * CLASSES, 7)).expect("its size");
        (Self { first, second }, trainer)
    }

    fn loss<'t>(&self, [x, labels]: [Var<'t>; 2]) -> Var<'t> {
        let hidden = self.first.forward(x).relu().scale(2f32.powi(-6));
        self.second.forward(hidden).cross_entropy(labels) * 2f32.powi(-12)
    }

    fn backward(&self, trainer: &mut Trainer<Cpu>) -> Result<Gradients, Error> {
        let x: Vec<f32> = (0..BATCH * FEATURES).map(|i| (i * i % 5) as f32 - 2.0).collect();
        let labels: Vec<u32> = (0..BATCH).map(|i| (i * i % CLASSES) as u32).collect();
        trainer.backward([Input::f32([BATCH, FEATURES], &x), Input::u32([BATCH], &labels)], |all| self.loss(all))
    }
}

/// Gradients by parameter, and whether the batch overflowed.
fn gradients(method: &str) -> (BTreeMap<String, Vec<f32>>, bool) {
    let (net, mut trainer) = Net::open(method);
    let found = net.backward(&mut trainer).expect("it fits");
    let names: Vec<String> = trainer.parameters().expect("values").into_iter().map(|(name, _)| name).collect();
    let read = |name: String| {
        let gradient = trainer.gradient(&found, &name).expect("a parameter").expect("a gradient");
        (name, gradient.data)
    };
    let all = names.into_iter().map(read).collect();
    let skipped = trainer.step(found).expect("a step").skipped.is_some();
    (all, skipped)
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum::<f64>().sqrt()
}

fn error(exact: &[f32], found: &[f32]) -> f64 {
    let pairs = exact.iter().zip(found).map(|(&x, &y)| f64::from(x) - f64::from(y));
    norm(pairs) / norm(exact.iter().copied().map(f64::from))
}

/// Every fixed scale by itself: the first that overflows, and the least from which on none below it loses too much.
fn scan(weight_gradients: &str) -> (i32, i32) {
    let (exact, _) = gradients("fp32");
    let (tensors, _) = gradients("amax:calls=each");
    let accepted: BTreeMap<&String, f64> =
        exact.iter().map(|(name, exact)| (name, (2.0 * error(exact, &tensors[name])).max(TOLERATED_ERROR))).collect();
    let mut served = BTreeMap::new();
    for exponent in -30..60 {
        let (found, skipped) = gradients(&format!("fixed:2^{exponent},wgrad={weight_gradients}"));
        let good = exact.iter().all(|(name, exact)| error(exact, &found[name]) <= accepted[name]);
        served.insert(exponent, (good && !skipped, skipped));
    }
    let overflow = *served.iter().find(|(_, (_, skipped))| *skipped).expect("one overflows").0;
    let least = *served.iter().find(|(_, (good, _))| *good).expect("one serves").0;
    assert!(served.range(least..overflow).all(|(_, (good, _))| *good), "{served:?}");
    (least, overflow)
}

#[test]
fn the_window_is_that_of_trainings_at_every_scale() {
    let (net, mut trainer) = Net::open("gs");
    let window = trainer.window(|trainer| net.backward(trainer)).expect("it fits").expect("finite gradients");
    println!("{window:?}");
    assert_eq!((window.compared, window.left_out), (4, 0));
    assert!(window.per_tensor.median <= window.per_tensor.worst && window.per_tensor.worst < 1e-3, "{window:?}");
    for (name, found) in [("f32", &window.single), ("half", &window.half)] {
        let (least, overflow) = scan(name);
        assert_eq!((found.least, found.overflow), (Some(least), Some(overflow)), "{name}");
        assert_eq!(found.binades(), overflow.abs_diff(least), "{name}");
        assert!(found.lost.as_deref().is_some_and(|name| name.contains('.')), "{found:?}");
        assert!(found.overflowed.as_deref().is_some_and(|site| !site.contains(':')), "{found:?}");
    }
    // Sums over the batch overflow at lower scales than the gradients that they sum.
    let ScaleWindow { weight_gradients, overflow, .. } = window.half;
    assert_eq!(weight_gradients, Precision::Half);
    assert!(overflow <= window.single.overflow, "{window:?}");
    assert!(matches!(window.single.place(16), Place::Inside { .. }), "{window:?}");
}

/// Errors at the exponents in force are those of gradients that a step would take.
#[test]
fn gradient_errors_are_those_of_the_exponents_in_force() {
    let (exact, _) = gradients("fp32");
    let mut applied = 0;
    for method in ["fp16", "fixed:2^4", "fixed:2^9,wgrad=half", "fixed:2^16", "fixed:2^60", "amax:calls=each", "gs"] {
        let (found, skipped) = gradients(method);
        let (net, mut trainer) = Net::open(method);
        let measured = gradient_errors(&mut trainer, |trainer| net.backward(trainer)).expect("it fits");
        if skipped {
            assert_eq!(measured, None, "{method}");
            continue;
        }
        applied += 1;
        let measured = measured.unwrap_or_else(|| panic!("{method} fits"));
        let mut errors: Vec<(f64, &str)> =
            exact.iter().map(|(name, exact)| (error(exact, &found[name]), name.as_str())).collect();
        errors.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let (worst, parameter) = errors[errors.len() - 1];
        let median = errors[errors.len() / 2].0;
        // Logits in half move the reference by less than a unit of half.
        let is_near = |measured: f64, expected: f64| (measured - expected).abs() < 2f64.powi(-10);
        assert!(is_near(measured.worst, worst), "{method}: {measured:?}, {errors:?}");
        assert!(is_near(measured.median, median), "{method}: {measured:?}, {errors:?}");
        assert!(worst < 0.01 || measured.parameter == parameter, "{method}: {measured:?}, {errors:?}");
    }
    assert_eq!(applied, 6, "only the largest scale overflows");
}

/// Measuring changes no bit of a training, with batch norm, dropout and a dynamic loss scale.
#[test]
fn measuring_changes_no_bit_of_a_training() {
    let train = |method: &str, measures: bool| {
        let mut parameters = Parameters::seeded(2);
        let [first, second] = ["first", "second"].map(|name| Linear::new(&mut parameters.at(name), 4, 4));
        let norm = BatchNorm::new(&mut parameters.at("norm"), 4);
        let mut trainer = trainer(parameters, method);
        let x: Vec<f32> = (0..32).map(|i| (i * 7 % 11) as f32 / 4.0 - 1.0).collect();
        let mut backward = |trainer: &mut Trainer<Cpu>| {
            trainer.backward([Input::f32([8, 4], &x), Input::u32([8], &[0, 1, 2, 3, 3, 2, 1, 0])], |[x, labels]| {
                second.forward(norm.forward(first.forward(x)).relu().dropout(0.5)).cross_entropy(labels)
            })
        };
        let mut losses = Vec::new();
        for step in 0..12 {
            if measures && step % 5 == 3 {
                let window = trainer.window(&mut backward).expect("it fits").expect("finite gradients");
                // A bias in front of batch norm has a gradient of zero.
                assert!(window.left_out >= 1 && window.compared >= 5, "{window:?}");
                assert!(window.single.binades() > 10, "{window:?}");
            }
            if measures && (step == 0 || step % 5 == 2) {
                let errors = gradient_errors(&mut trainer, &mut backward).expect("it fits").expect("finite gradients");
                // Half has 11 bits.
                assert!(errors.median <= errors.worst && errors.worst < 0.02, "{errors:?}");
            }
            let gradients = backward(&mut trainer).expect("it fits");
            losses.push(trainer.step(gradients).expect("a step").loss.to_bits());
        }
        let sites: Vec<(String, i32)> = trainer.sites().map(|site| (site.name.to_owned(), site.alpha)).collect();
        (losses, trainer.save(&BTreeMap::new()).expect("a checkpoint"), sites)
    };
    for method in ["gs", "dynamic:10", "fixed:64,wgrad=half", "amax:history=4", "gs:amp=O2"] {
        assert!(train(method, false) == train(method, true), "{method}");
    }
}

#[test]
fn gradients_that_f32_does_not_hold_have_no_window() {
    let (net, mut trainer) = Net::open("dynamic");
    let weights = vec![f32::NAN; FEATURES * HIDDEN];
    trainer.set_parameter("first.weight", &weights).expect("its size");
    assert_eq!(trainer.window(|trainer| net.backward(trainer)).expect("it fits"), None);
    assert_eq!(gradient_errors(&mut trainer, |trainer| net.backward(trainer)).expect("it fits"), None);
    // Nor have gradients that another step has used up.
    let (net, mut trainer) = Net::open("dynamic");
    let mut stale = Some(net.backward(&mut trainer).expect("it fits"));
    let used = net.backward(&mut trainer).expect("it fits");
    trainer.step(used).expect("a step");
    let error = trainer.window(|_| stale.take().ok_or(Error::Gradients)).expect_err("of another step");
    assert!(matches!(error, Error::Gradients), "{error}");
}
