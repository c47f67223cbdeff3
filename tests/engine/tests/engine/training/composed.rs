//! Update rules in operators of networks: RMSprop and Adagrad against PyTorch (`tests/golden/optimizers.py`), Lion and
//! LAMB against f64.

use super::optimizers::{FIRST, Rig, close, five, gradient};
use crate::golden::numbers;
use gradscale::{
    Cpu, Init, Input, Method, Parameter, Parameters, StepOutcome, Trainer,
    optim::{Adafactor, Adagrad, Lamb, Lion, Optimizer, RmsProp},
};
use safetensors::SafeTensors;
use std::collections::BTreeMap;

const TABLE: &str = include_str!("../../../../golden/optimizers.txt");

/// Returns the values of a case of the table.
fn values(case: &str, key: &str) -> Vec<f32> {
    let row = TABLE.lines().find_map(|line| line.strip_prefix(&format!("{case}\t{key}\t")));
    let (_, values) = row.unwrap_or_else(|| panic!("no {key} of {case}")).split_once('\t').expect("shape, values");
    numbers(values)
}

#[test]
fn as_pytorch() {
    let rms = RmsProp { alpha: 0.75, eps: 2f32.powi(-10), ..RmsProp::new(0.0625) };
    let adagrad = Adagrad { eps: 2f32.powi(-20), ..Adagrad::new(0.125) };
    let adafactor = Adafactor { weight_decay: 0.125, ..ADAFACTOR };
    let all: [(&str, Optimizer); 9] = [
        ("RMSprop", rms.into()),
        ("RMSprop momentum", RmsProp { momentum: 0.5, weight_decay: 0.125, ..rms }.into()),
        ("RMSprop centered", RmsProp { centered: true, ..rms }.into()),
        ("RMSprop centered momentum", RmsProp { centered: true, momentum: 0.5, ..rms }.into()),
        ("Adafactor", Adafactor { lr: 0.25, ..adafactor }.into()),
        ("Adafactor eps", Adafactor { eps: EPS, ..adafactor }.into()),
        ("Adagrad", adagrad.into()),
        ("Adagrad eps", Adagrad { eps: 0.0625, ..adagrad }.into()),
        ("Adagrad initial", Adagrad { initial_sum: 0.5, weight_decay: 0.25, ..adagrad }.into()),
    ];
    let cases =
        TABLE.lines().filter(|line| !line.starts_with('#') && !line.starts_with("given") && !line.contains("matrix"));
    let cases: Vec<&str> = cases.map(|line| line.split('\t').next().expect("a case")).collect();
    assert_eq!(cases, all.each_ref().map(|(name, _)| *name));
    let (first, gradients) = (values("given", "weight"), values("given", "gradients"));
    for (name, optimizer) in all {
        let mut rig = Rig::new(optimizer, &first);
        for (gradient, right) in gradients.chunks(first.len()).zip(values(name, "weight").chunks(first.len())) {
            let gradient = scaled(gradient, name);
            assert_eq!(rig.step(&gradient, &gradient).skipped, None);
            let right: Vec<f64> = right.iter().map(|&w| f64::from(w)).collect();
            // Six steps of about ten roundings each, and the table's own.
            close(&rig.read("a.w"), &right, 60.0 * 2f64.powi(-24));
        }
        assert_eq!(rig.read("a.w"), rig.read("b.w"), "{name}");
    }
}

/// The variance of equal gradients is 0, which roundings make negative.
#[test]
fn equal_gradients() {
    let mut rig = Rig::new(RmsProp { centered: true, ..RmsProp::new(2f64.powi(-12)) }.into(), &FIRST);
    let gradients = [0.1, -0.3, 0.7, 1.1];
    for step in 0..2000 {
        assert_eq!(rig.step(&gradients, &gradients).skipped, None);
        assert!(rig.read("a.w").iter().all(|w| w.is_finite()), "step {step}");
    }
}

const ADAFACTOR: Adafactor =
    Adafactor { lr: 0.4375, beta2_decay: -0.8, eps: [9.536_743e-7, 9.765_625e-4], clip: 1.0, weight_decay: 0.0 };

/// Numbers that both act on gradients times [`SMALL`] and weights of about 1.
const EPS: [f32; 2] = [0.0625, 4.0];
/// Factor of the gradients of cases with eps.
const SMALL: f32 = 0.0625;

/// Returns the gradient of a step in a case of the table.
fn scaled(gradient: &[f32], case: &str) -> Vec<f32> {
    let factor = if case.ends_with(" eps") { SMALL } else { 1.0 };
    gradient.iter().map(|g| g * factor).collect()
}

/// A matrix `[3, 4]` in training, with gradients that the batch determines.
struct Matrix {
    trainer: Trainer<Cpu>,
    weight: Parameter,
}

impl Matrix {
    fn new(rule: Adafactor) -> Self {
        let mut parameters = Parameters::seeded(0);
        // Rows, and columns of two axes.
        let weight = parameters.at("a").weight("w", [3, 2, 1, 2], Init::Constant(0.0));
        let trainer = Trainer::new(Cpu::new(1).expect("a CPU"), parameters, rule, Method::fp32());
        Self { trainer: trainer.expect("numbers that make sense"), weight }
    }

    fn step(&mut self, gradient: &[f32]) -> StepOutcome {
        let weight = &self.weight;
        let batch = [Input::f32([3, 2, 1, 2], gradient)];
        let gradients = self.trainer.backward(batch, |[g]| (g.tape().parameter(weight) * g).sum());
        self.trainer.step(gradients.expect("the batch fits")).expect("a step")
    }

    fn saved(&self) -> Vec<u8> {
        self.trainer.save(&BTreeMap::new()).expect("a checkpoint")
    }
}

/// Adafactor of matrices as in PyTorch; its states are rows and columns, also in checkpoints.
#[test]
fn factored_states() {
    let (first, gradients) = (values("given matrix", "weight"), values("given matrix", "gradients"));
    let decay = Adafactor { lr: 0.0625, beta2_decay: -0.5, clip: 1.25, weight_decay: 0.25, ..ADAFACTOR };
    let eps = Adafactor { eps: EPS, weight_decay: 0.125, ..ADAFACTOR };
    let all = [("Adafactor matrix", ADAFACTOR), ("Adafactor matrix decay", decay), ("Adafactor matrix eps", eps)];
    for (name, rule) in all {
        let mut matrix = Matrix::new(rule);
        matrix.trainer.set_parameter("a.w", &first).expect("a parameter");
        let mut middle = Vec::new();
        for (t, (gradient, right)) in gradients.chunks(12).zip(values(name, "weight").chunks(12)).enumerate() {
            if t == 3 {
                middle = matrix.saved();
                assert!(matrix.step(&[f32::NAN; 12]).skipped.is_some());
            }
            assert_eq!(matrix.step(&scaled(gradient, name)).skipped, None);
            let right: Vec<f64> = right.iter().map(|&w| f64::from(w)).collect();
            // Six steps of about twenty roundings each, and the table's own.
            close(&matrix.trainer.parameter("a.w").expect("a parameter").data, &right, 120.0 * 2f64.powi(-24));
        }
        let file = SafeTensors::deserialize(&middle).expect("a file");
        let shape = |name: &str| file.tensor(name).expect(name).shape().to_vec();
        assert_eq!([shape("state0.a.w"), shape("state1.a.w")], [[3, 1, 1, 1], [1, 1, 1, 4]]);
        let mut resumed = Matrix::new(rule);
        resumed.trainer.load(&middle).expect("a checkpoint");
        assert!(resumed.step(&[f32::NAN; 12]).skipped.is_some());
        gradients.chunks(12).skip(3).for_each(|gradient| drop(resumed.step(&scaled(gradient, name))));
        assert!(resumed.saved() == matrix.saved(), "{name}");
    }
}

/// The last gradient has another sign than the momentum, and both coefficients decide which of them is larger.
#[test]
fn lion() {
    let mut rig = Rig::new(Lion { betas: [0.5, 0.9375], weight_decay: 0.25, ..Lion::new(0.1) }.into(), &FIRST);
    (0..5).for_each(|t| assert_eq!(rig.step(&gradient(t), &gradient(t)).skipped, None));
    let right = five(|w, g, [m, _], _| {
        let direction = (0.5 * *m + 0.5 * g).signum() + 0.25 * w;
        *m = 0.9375 * *m + 0.0625 * g;
        w - 0.1 * direction
    });
    close(&rig.read("a.w"), &right, 25.0 * 2f64.powi(-24));
}

/// The ratio of norms needs the whole tensor, so the reference has all of its elements.
#[test]
fn lamb() {
    for (first, decay) in [(FIRST, 0.0625), (FIRST, 0.0), ([0.0; 4], 0.0625)] {
        let rule = Lamb { betas: [0.75, 0.9375], eps: 2f32.powi(-10), weight_decay: decay, ..Lamb::new(0.125) };
        let mut rig = Rig::new(rule.into(), &first);
        let (mut w, mut m, mut v) = (first.map(f64::from), [0.0; 4], [0.0; 4]);
        for t in 0..5 {
            assert_eq!(rig.step(&gradient(t), &gradient(t)).skipped, None);
            let mut update = [0.0; 4];
            for i in 0..4 {
                let g = f64::from(gradient(t)[i]);
                m[i] = 0.75 * m[i] + 0.25 * g;
                v[i] = 0.9375 * v[i] + 0.0625 * g * g;
                let corrected = |moment: f64, beta: f64| moment / (1.0 - beta.powi(t as i32 + 1));
                update[i] = corrected(m[i], 0.75) / (corrected(v[i], 0.9375).sqrt() + 2f64.powi(-10));
                update[i] += f64::from(decay) * w[i];
            }
            let norm = |values: [f64; 4]| values.iter().map(|x| x * x).sum::<f64>().sqrt();
            let ratio = if norm(w) == 0.0 || norm(update) == 0.0 { 1.0 } else { norm(w) / norm(update) };
            for i in 0..4 {
                w[i] -= 0.125 * ratio * update[i];
            }
        }
        close(&rig.read("a.w"), &w, 60.0 * 2f64.powi(-24));
    }
}

/// A tensor whose gradients are all 0 has an update of 0, and keeps its weights.
#[test]
fn lamb_without_gradients() {
    let mut rig = Rig::new(Lamb { weight_decay: 0.0, ..Lamb::new(0.1) }.into(), &FIRST);
    assert_eq!(rig.step(&[0.0; 4], &gradient(0)).skipped, None);
    assert_eq!(rig.read("a.w"), FIRST);
    assert_ne!(rig.read("b.w"), FIRST);
}

#[test]
fn settings_out_of_range() {
    let wrong: [(Optimizer, f32); 7] = [
        (RmsProp { alpha: 1.0, ..RmsProp::default() }.into(), 1.0),
        (RmsProp { momentum: -0.5, ..RmsProp::default() }.into(), -0.5),
        (RmsProp { eps: 0.0, ..RmsProp::default() }.into(), 0.0),
        (Adagrad { initial_sum: -1.0, ..Adagrad::default() }.into(), -1.0),
        (Adagrad { eps: 1e-18, ..Adagrad::default() }.into(), 1e-18),
        (Lion { betas: [0.9, 1.5], ..Lion::default() }.into(), 1.5),
        (Lamb { betas: [2.0, 0.999], ..Lamb::default() }.into(), 2.0),
    ];
    for (optimizer, number) in wrong {
        let device = Cpu::new(1).expect("a CPU");
        let error = Trainer::new(device, Parameters::seeded(0), optimizer, Method::fp32()).map(|_| ());
        let error = error.expect_err("it is out of range").to_string();
        assert!(error.starts_with(&format!("optimizer: {number} is out of range: ")), "{error}");
    }
}
