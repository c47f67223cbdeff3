//! Operators of speech networks against PyTorch (`tests/golden/speech.py`): connectionist temporal classification and
//! Deep Speech 2.

use crate::{corners::trainer, golden::numbers};
use gradscale::{
    Cpu, Init, Input, Method, Parameter, Parameters, Trainer, Var,
    gradscale_core::amp::Level,
    models::DeepSpeech,
    nn::{Linear, Module},
    optim::Sgd,
};
use std::{collections::BTreeMap, num::FpCategory};

const TABLE: &str = include_str!("../../../golden/speech.txt");

/// Shapes and values of a case by key.
pub type Case = BTreeMap<&'static str, (Vec<usize>, &'static str)>;

fn cases() -> BTreeMap<&'static str, Case> {
    table(TABLE)
}

/// Parses a table, and returns its cases by name.
pub fn table(text: &'static str) -> BTreeMap<&'static str, Case> {
    let mut all: BTreeMap<_, Case> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut parts = line.split('\t');
        let [case, key, shape, values] = [(); 4].map(|()| parts.next().expect("four columns"));
        all.entry(case).or_default().insert(key, (numbers(shape), values));
    }
    all
}

pub fn floats(case: &Case, key: &str) -> Vec<f32> {
    numbers(case[key].1)
}

pub fn words(case: &Case, key: &str) -> Vec<u32> {
    numbers(case[key].1)
}

/// The largest difference, relative to the largest value.
pub fn distance(found: &[f32], right: &[f32]) -> f64 {
    assert_eq!(found.len(), right.len());
    let largest = right.iter().fold(0f64, |most, &x| most.max(f64::from(x).abs()));
    let differences = found.iter().zip(right).map(|(&x, &y)| (f64::from(x) - f64::from(y)).abs());
    let worst = differences.fold(0f64, |most, x| if x.is_nan() { f64::INFINITY } else { most.max(x) });
    if worst == 0.0 { 0.0 } else { worst / largest }
}

/// The class of a number, the same for all finite ones.
const fn finite_class(class: FpCategory) -> FpCategory {
    match class {
        FpCategory::Zero | FpCategory::Subnormal | FpCategory::Normal => FpCategory::Normal,
        FpCategory::Infinite | FpCategory::Nan => class,
    }
}

fn losses<'t>(logits: &Parameter, [targets, lengths, letters]: [Var<'t>; 3], blank: u32, zero: bool) -> Var<'t> {
    targets.tape().parameter(logits).ctc_losses(targets, lengths, letters, blank, zero)
}

#[test]
fn losses_and_gradients_of_ctc() {
    let all = cases();
    let names: Vec<&str> = all.keys().copied().filter(|name| name.starts_with("ctc ")).collect();
    assert_eq!(names.len(), 8, "{names:?}");
    for name in names {
        let case = &all[name];
        let [n, frames, classes] = case["logits"].0[..] else { panic!("{name}: three sizes") };
        let room = case["targets"].0[1];
        let mut parameters = Parameters::seeded(1);
        let logits = parameters.at("in").weight("logits", [n, frames, classes], Init::Constant(0.0));
        let mut trainer = trainer(parameters, "fp32");
        trainer.set_parameter("in.logits", &floats(case, "logits")).expect("a parameter of that size");
        let (targets, lengths, letters) = (words(case, "targets"), words(case, "frames"), words(case, "letters"));
        let (factors, blank, zero) = (floats(case, "t"), words(case, "blank")[0], words(case, "zero")[0] == 1);
        let batch = || {
            let words = [Input::u32([n, room], &targets), Input::u32([n], &lengths), Input::u32([n], &letters)];
            [words[0], words[1], words[2], Input::f32([n], &factors)]
        };
        let found =
            trainer.evaluate(batch(), |[a, b, c, _]| losses(&logits, [a, b, c], blank, zero)).expect("it fits").data;
        let gradients = trainer
            .backward(batch(), |[a, b, c, t]| (losses(&logits, [a, b, c], blank, zero) * t).sum())
            .expect("it fits");
        let gradient = trainer.gradient(&gradients, "in.logits").expect("a parameter").expect("its gradient").data;
        let far = [(&found, "losses"), (&gradient, "gradient")].map(|(found, key)| {
            let right = floats(case, key);
            // ∞ and NaN are at the same positions, and finite numbers are close.
            let classes = |all: &[f32]| all.iter().map(|x| x.classify()).map(finite_class).collect::<Vec<_>>();
            assert_eq!(classes(found), classes(&right), "{name}: {key}");
            let finite = |all: &[f32]| all.iter().copied().filter(|x| x.is_finite()).collect::<Vec<f32>>();
            distance(&finite(found), &finite(&right))
        });
        println!("{name}: {:.1e} {:.1e}", far[0], far[1]);
        assert!(far.iter().all(|&far| far < 1e-5), "{name}: {far:?}");
    }
}

/// The network of the table with its values; its batch.
fn network(case: &Case, method: &str) -> (Trainer<Cpu>, DeepSpeech, [Vec<u32>; 2]) {
    let mut parameters = Parameters::seeded(1);
    let net = DeepSpeech::new(&mut parameters.at("net"), 9, [2, 3, 2], 4);
    let names: Vec<String> = parameters.names().map(str::to_owned).collect();
    let mut trainer = trainer(parameters, method);
    for name in names.iter().filter(|name| !name.ends_with("running")) {
        let key = name.strip_prefix("net.").expect("of the network");
        trainer.set_parameter(name, &floats(case, key)).expect("a parameter of that size");
    }
    (trainer, net, ["frames", "steps"].map(|key| words(case, key)))
}

#[test]
fn forward_values_gradients_and_statistics_of_deep_speech() {
    let all = cases();
    let case = &all["deepspeech"];
    let (x, t) = (floats(case, "x"), floats(case, "t"));
    let (mut trainer, net, [frames, steps]) = network(case, "fp32");
    assert_eq!(frames.iter().map(|&frames| DeepSpeech::steps(frames)).collect::<Vec<_>>(), steps);
    let batch = |x: &[f32]| -> [Vec<f32>; 2] { [x.to_vec(), t.clone()] };
    let mut run = |x: &[f32]| {
        let [x, t] = batch(x);
        let inputs = [
            Input::f32([3, 14, 9, 1], &x),
            Input::u32([3], &frames),
            Input::u32([3], &steps),
            Input::f32([3, 1, 7, 4], &t),
        ];
        let gradients = trainer
            .backward(inputs, |[x, frames, steps, t]| {
                let y = net.logits(x, frames, steps);
                let _ = y.output("y");
                (y * t).sum()
            })
            .expect("it fits");
        let mut found = BTreeMap::from([("y".to_owned(), trainer.output("y").expect("named").data)]);
        for key in case.keys().filter_map(|key| key.strip_prefix("gradient.")) {
            let gradient = trainer.gradient(&gradients, &format!("net.{key}")).expect("a parameter");
            found.insert(format!("gradient.{key}"), gradient.expect("a gradient").data);
        }
        found
    };
    let found = run(&x);
    // Logits after the end of a sequence are not defined.
    let counts = |i: usize| i / 4 % 7 < steps[i / 28] as usize;
    let before = |all: &[f32]| -> Vec<f32> { (0..all.len()).filter(|&i| counts(i)).map(|i| all[i]).collect() };
    let far = distance(&before(&found["y"]), &before(&floats(case, "y")));
    println!("y: {far:.1e}");
    assert!(far < 1e-5, "y: {far:e}");
    for (key, gradient) in found.iter().filter(|(key, _)| key.starts_with("gradient.")) {
        let far = distance(gradient, &floats(case, key));
        println!("{key}: {far:.1e}");
        assert!(far < 1e-5, "{key}: {far:e}");
    }
    // Changing values after the ends changes no bit of the results.
    let mut noisy = x;
    for (i, value) in noisy.iter_mut().enumerate() {
        if i / 9 % 14 >= frames[i / 126] as usize {
            *value = f32::NAN;
        }
    }
    let again = run(&noisy);
    for (key, values) in &found {
        let counted = |all: &[f32]| if key == "y" { before(all) } else { all.to_vec() };
        let bits = |all: &[f32]| counted(all).iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(values), bits(&again[key]), "{key}");
    }
    // Running statistics are of the frames before the ends, the variance unbiased.
    let inputs = [Input::f32([3, 14, 9, 1], &noisy), Input::u32([3], &frames), Input::u32([3], &steps)];
    trainer.update_statistics(0.0, inputs, |[x, frames, steps]| net.logits(x, frames, steps)).expect("it fits");
    let parameters: BTreeMap<String, Vec<f32>> =
        trainer.parameters().expect("values").into_iter().map(|(name, tensor)| (name, tensor.data)).collect();
    let keys: Vec<&str> = case.keys().filter_map(|key| key.strip_prefix("statistics.")).collect();
    assert_eq!(keys.len(), 4);
    for key in keys {
        let far = distance(&parameters[&format!("net.{key}.running")], &floats(case, &format!("statistics.{key}")));
        println!("statistics.{key}: {far:.1e}");
        assert!(far < 1e-5, "{key}: {far:e}");
    }
}

/// The loss starts at logits in half, so the cast after the softmax is a site. A length that is too large is an error,
/// and with O2 and O3 lengths and targets stay words.
#[test]
fn a_loss_on_half_logits() {
    for level in [Level::O1, Level::O2, Level::O3] {
        let mut parameters = Parameters::seeded(1);
        let layer = Linear::new(&mut parameters.at("layer"), 3, 4);
        let method: Method = "gs:exact".parse().expect("a method");
        let device = Cpu::new(1).expect("a CPU");
        let sgd = Sgd::new(0.1);
        let mut trainer = Trainer::new(device, parameters, sgd, method.with_level(level)).expect("a trainer");
        let x: Vec<f32> = (0..2 * 6 * 3).map(|i| (i * 7 % 11) as f32 / 4.0 - 1.0).collect();
        let mut step = |frames: [u32; 2]| {
            let batch = [
                Input::f32([2, 6, 3], &x),
                Input::u32([2, 2], &[1, 2, 3, 0]),
                Input::u32([2], &frames),
                Input::u32([2], &[2, 1]),
            ];
            let gradients = trainer.backward(batch, |[x, targets, frames, letters]| {
                layer.forward(x).ctc_loss(targets, frames, letters, 0, true)
            });
            gradients.map_err(|error| error.to_string()).map(|gradients| trainer.step(gradients).expect("a step").loss)
        };
        let losses: Vec<f32> = (0..20).map(|_| step([6, 4]).expect("it fits")).collect();
        assert!(losses[19] < losses[0] && losses[19] > 0.0, "{level:?}: {losses:?}");
        let error = step([6, 7]).expect_err("seven frames of six");
        assert!(error.contains("sequence 1 of the batch has 7 frames, more than the 6 of its tensor"), "{error}");
        let site = trainer.sites().find(|site| site.name.starts_with("ctc_loss/")).map(|site| site.name.to_owned());
        assert_eq!(site.as_deref(), Some("ctc_loss/cast"), "{level:?}");
    }
}
