//! `rare-reward`: a combination lock of five digits, each of eight, opened by REINFORCE (Williams 1992).
//!
//! Eight episodes an update; an episode that enters all five digits right has the reward 100, all others none. At first
//! one update in about 4000 has a gradient. All others are zero, which a dynamic loss scale counts as clean: it grows until
//! the reward overflows, and drops the only batches that could teach something.

use super::learn::{Begun, Conditions, Failed, Learn};
use crate::data::Random;
use gradscale::{
    Cpu, Gradients, Input, Parameters, Trainer, Var,
    nn::{Linear, Module},
    optim::Adam,
};

const DIGITS: usize = 5;
const SYMBOLS: usize = 8;
const HIDDEN: usize = 64;
const EPISODES: usize = 8;
/// Reward for opening the lock, as large as that of a landing in LunarLander.
const REWARD: f32 = 100.0;

struct Lock {
    net: [Linear; 3],
    code: [usize; DIGITS],
    /// Positions of the lock's digits as the network reads them, one-hot.
    positions: Vec<f32>,
    /// Probability of each symbol for each digit; empty where weights have changed since.
    policy: Vec<f64>,
    /// True after the first reward. From then on Adam's momentum moves weights in every update.
    rewarded: bool,
    seed: u64,
}

/// Creates the combination lock's network before its first step.
pub fn open(seed: u64) -> Begun<'static> {
    let mut parameters = Parameters::seeded(seed);
    let mut layer = |name: &str, from, to| Linear::new(&mut parameters.at(name), from, to);
    let net = [layer("one", DIGITS, HIDDEN), layer("two", HIDDEN, HIDDEN), layer("three", HIDDEN, SYMBOLS)];
    let mut random = Random::from_key(&[seed, 19]);
    let code = [(); DIGITS].map(|()| random.below(SYMBOLS));
    let positions = (0..DIGITS * DIGITS).map(|i| if i % DIGITS == i / DIGITS { 1.0 } else { 0.0 }).collect();
    let learner = Box::new(Lock { net, code, positions, policy: Vec::new(), rewarded: false, seed });
    Begun { learner, parameters, optimizer: Adam::new(3e-4).into() }
}

fn forward<'t>([one, two, three]: &[Linear; 3], x: Var<'t>) -> Var<'t> {
    three.forward(two.forward(one.forward(x).tanh()).tanh())
}

impl Lock {
    /// Computes the network's probabilities of all symbols, for each digit of the lock.
    fn observe_policy(&mut self, trainer: &mut Trainer<Cpu>) -> Result<(), Failed> {
        if self.policy.is_empty() || self.rewarded {
            let batch = [Input::f32([DIGITS, DIGITS], &self.positions)];
            let logits = trainer.evaluate(batch, |[x]| forward(&self.net, x))?.data;
            self.policy.clear();
            for logits in logits.chunks(SYMBOLS) {
                let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let all: Vec<f64> = logits.iter().map(|&x| f64::from(x - most).exp()).collect();
                let sum: f64 = all.iter().sum();
                self.policy.extend(all.iter().map(|x| x / sum));
            }
        }
        Ok(())
    }

    /// Draws a symbol for a digit of the lock, by the network's probabilities.
    fn draw(&self, digit: usize, random: &mut Random) -> usize {
        let mut rest = random.uniform();
        let chances = &self.policy[digit * SYMBOLS..][..SYMBOLS];
        let chosen = chances.iter().position(|chance| {
            rest -= chance;
            rest < 0.0
        });
        chosen.unwrap_or(SYMBOLS - 1)
    }
}

impl Learn for Lock {
    fn backward(&mut self, trainer: &mut Trainer<Cpu>, step: u64, _: &Conditions) -> Result<Gradients, Failed> {
        self.observe_policy(trainer)?;
        let mut random = Random::from_key(&[self.seed, 20, step]);
        // Weight of −ln p of each rewarded action in the mean over episodes.
        let mut counts = vec![0f32; DIGITS * SYMBOLS];
        for _ in 0..EPISODES {
            let entered: Vec<usize> = (0..DIGITS).map(|digit| self.draw(digit, &mut random)).collect();
            if entered == self.code {
                self.rewarded = true;
                for (digit, symbol) in entered.into_iter().enumerate() {
                    counts[digit * SYMBOLS + symbol] -= REWARD / EPISODES as f32;
                }
            }
        }
        let batch = [Input::f32([DIGITS, DIGITS], &self.positions), Input::f32([DIGITS, SYMBOLS], &counts)];
        trainer.backward(batch, |[x, counts]| (forward(&self.net, x).log_softmax() * counts).sum())
    }

    /// Returns the probability of opening the lock, in percent.
    fn score(&mut self, trainer: &mut Trainer<Cpu>) -> Result<f64, Failed> {
        self.policy.clear();
        self.observe_policy(trainer)?;
        let chance = |(digit, symbol): (usize, &usize)| self.policy[digit * SYMBOLS + symbol];
        Ok(100.0 * self.code.iter().enumerate().map(chance).product::<f64>())
    }
}
