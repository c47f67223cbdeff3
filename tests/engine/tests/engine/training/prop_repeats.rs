//! Every batch whose f32 gradients are finite is stepped exactly once, after one repeat at most, and a loss 2^k times as
//! large changes nothing in that: random networks and histories.

use super::Data;
use crate::graph::values;
use gradscale::{
    Cpu, Parameters, StepOutcome, Trainer, Var,
    nn::{Linear, Module},
    optim::{Optimizer, Sgd},
};
use proptest::{
    collection::vec,
    prelude::{ProptestConfig, Strategy},
    prop_assert, prop_assert_eq, prop_oneof, proptest,
};

/// Four numbers over hidden layers to three.
struct Net(Vec<Linear>);

impl Net {
    fn loss<'t>(&self, [x, target, factor]: [Var<'t>; 3]) -> Var<'t> {
        let mut x = x;
        for (i, layer) in self.0.iter().enumerate() {
            x = layer.forward(if i == 0 { x } else { x.tanh() });
        }
        x.mse_loss(target) * factor
    }
}

struct Training {
    net: Net,
    trainer: Trainer<Cpu>,
    /// Losses are 2^shift times as large, and the learning rate compensates for it.
    shift: i32,
}

impl Training {
    fn new(seed: u64, hidden: &[usize], method: &str, shift: i32) -> Self {
        let mut parameters = Parameters::seeded(seed);
        let mut scope = parameters.at("net");
        let sizes = [&[4], hidden, &[3]].concat();
        let layers = sizes.windows(2).enumerate();
        let layers = layers.map(|(i, size)| Linear::new(&mut scope.at(&format!("l{i}")), size[0], size[1])).collect();
        let optimizer = Optimizer::from(Sgd { momentum: 0.9, ..Sgd::new(0.05 * f64::from(-shift).exp2()) })
            .clip_norm(0.5 * 2f32.powi(shift));
        let method = method.parse().expect("a method");
        let trainer = Trainer::new(Cpu::new(1).expect("a CPU"), parameters, optimizer, method).expect("a trainer");
        Self { net: Net(layers), trainer, shift }
    }

    fn step(&mut self, i: usize, power: i32) -> StepOutcome {
        let data = Data { x: values(100 + i as u64, 32), target: values(200 + i as u64, 24), factor: 1.0 };
        let data = data.times(2f32.powi(power + self.shift));
        let gradients = self.trainer.backward(data.batch(), |all| self.net.loss(all)).expect("the batch fits");
        self.trainer.step(gradients).expect("a step")
    }

    fn weights(&self) -> Vec<u32> {
        let all = self.trainer.parameters().expect("parameters").into_iter();
        all.flat_map(|(_, tensor)| tensor.data).map(f32::to_bits).collect()
    }
}

/// Exponents of the loss of each step: most alike, some anything.
fn history() -> impl Strategy<Value = Vec<i32>> {
    vec(prop_oneof![3 => -2..3i32, 1 => -40..40i32], 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_finite_batch_is_skipped(
        seed in 0..1000u64, hidden in vec(1..9usize, 0..4), interval in 1..12u32, powers in history(),
    ) {
        let mut training = Training::new(seed, &hidden, &format!("gs:exact,interval={interval}"), 0);
        for (i, &power) in powers.iter().enumerate() {
            let outcome = training.step(i, power);
            prop_assert_eq!((outcome.skipped, training.trainer.steps()), (None, i as u64 + 1));
            prop_assert!(outcome.repeated.len() <= 1, "{:?}", outcome.repeated);
        }
    }

    #[test]
    fn a_larger_loss_is_repeated_alike(
        seed in 0..1000u64, hidden in vec(1..9usize, 0..4), shift in -30..=30i32, powers in history(),
    ) {
        let [mut one, mut other] = [0, shift].map(|shift| Training::new(seed, &hidden, "gs", shift));
        for (i, &power) in powers.iter().enumerate() {
            let (here, mut there) = (one.step(i, power), other.step(i, power));
            for repeated in &mut there.repeated {
                repeated.exponent += shift;
            }
            prop_assert_eq!(&here.repeated, &there.repeated);
            let alphas = |training: &Training| training.trainer.sites().map(|site| site.alpha).collect::<Vec<_>>();
            let back: Vec<i32> = alphas(&other).into_iter().map(|alpha| alpha + shift).collect();
            prop_assert_eq!(alphas(&one), back);
            prop_assert_eq!(one.weights(), other.weights());
        }
    }
}
