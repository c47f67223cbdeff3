//! Settings of optimizers in checkpoints.

use super::{Adam, AdamW, Group, Optimizer, OptimizerRule, Schedule, Sgd};
use crate::configuration::Configuration;
use serde_json::Value;

impl Optimizer {
    /// Returns rule, clipping, schedule, groups and frozen parts, as configured. Learning rates that were set during
    /// training are not included: they are restored and not compared.
    pub(crate) fn configuration(&self) -> Configuration {
        let Self { rule, max_norm, max_value, schedule, groups, frozen, set_rates: _ } = self;
        let mut all = Configuration::default();
        self::rule(&mut all, rule);
        for (name, limit) in [("clip_norm", max_norm), ("clip_value", max_value)] {
            match limit {
                Some(limit) => all.set_single(name, *limit),
                None => all.set(name, Value::Null),
            }
        }
        self::schedule(&mut all, schedule);
        all.set("groups", groups.iter().map(|group| group.prefix.as_str()).collect::<Vec<_>>());
        for Group { prefix, lr, decay } in groups {
            all.set(format!("lr of {prefix}"), *lr);
            all.set_single(format!("decay of {prefix}"), *decay);
        }
        let mut frozen = frozen.clone();
        frozen.sort_unstable();
        all.set("frozen", frozen);
        all
    }
}

fn rule(all: &mut Configuration, rule: &OptimizerRule) {
    let mut common = |name: &str, lr: f64, decay: f32| {
        all.set("rule", name);
        all.set("lr", lr);
        all.set_single("decay", decay);
    };
    match *rule {
        OptimizerRule::Sgd(Sgd { lr, momentum, nesterov, weight_decay: decay }) => {
            common("Sgd", lr, decay);
            all.set_single("momentum", momentum);
            all.set("nesterov", nesterov);
        }
        OptimizerRule::Adam(Adam { lr, betas, eps, weight_decay: decay }) => {
            common("Adam", lr, decay);
            adam(all, betas, eps);
        }
        OptimizerRule::AdamW(AdamW { lr, betas, eps, weight_decay: decay }) => {
            common("AdamW", lr, decay);
            adam(all, betas, eps);
        }
        OptimizerRule::Custom(ref rule) => common(&format!("{rule:?}"), rule.lr(), rule.decay()),
    }
}

fn adam(all: &mut Configuration, betas: [f32; 2], eps: f32) {
    all.set_single("beta 1", betas[0]);
    all.set_single("beta 2", betas[1]);
    all.set_single("eps", eps);
}

fn schedule(all: &mut Configuration, schedule: &Schedule) {
    let name = match *schedule {
        Schedule::Constant => "constant",
        Schedule::Step { every, factor } => {
            all.set("every", every);
            all.set("factor", factor);
            "step"
        }
        Schedule::Cosine { steps } => {
            all.set("steps", steps);
            "cosine"
        }
        Schedule::Polynomial { steps, power } => {
            all.set("steps", steps);
            all.set("power", power);
            "polynomial"
        }
        Schedule::WarmupCosine { warmup, steps } => {
            all.set("warmup", warmup);
            all.set("steps", steps);
            "warmup and cosine"
        }
        // A closure cannot be compared.
        Schedule::Custom(_) => "own",
    };
    all.set("schedule", name);
}
