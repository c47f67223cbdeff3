//! Sites of a checkpoint that the network does not have any more.

use crate::graph::values;
use gradscale::{
    Cpu, Input, Method, Parameters, Trainer, Var,
    nn::{Gru, Linear, Module},
    optim::Sgd,
};
use std::collections::BTreeMap;

struct Rig {
    gru: Gru,
    head: Linear,
    trainer: Trainer<Cpu>,
}

impl Rig {
    fn new(method: &str) -> Self {
        let mut parameters = Parameters::seeded(1);
        let gru = Gru::new(&mut parameters.at("gru"), 3, 4, 1);
        let head = Linear::new(&mut parameters.at("head"), 4, 2);
        let method: Method = method.parse().expect("a method");
        let trainer = Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(0.1), method).expect("a trainer");
        Self { gru, head, trainer }
    }

    /// A step over a sequence of that length, with an operator between the layers.
    fn step(&mut self, steps: usize, between: impl for<'t> Fn(Var<'t>) -> Var<'t>) {
        let x = values(5, 2 * steps * 3);
        let gradients = self.trainer.backward([Input::f32([2, steps, 3], &x)], |[x]| {
            self.head.forward(between(self.gru.forward(x))).square().mean()
        });
        self.trainer.step(gradients.expect("gradients")).expect("a step");
    }

    fn loaded(method: &str, saved: &[u8]) -> Self {
        let mut rig = Self::new(method);
        rig.trainer.load(saved).expect("its own checkpoint");
        rig
    }

    fn save(&self) -> Vec<u8> {
        self.trainer.save(&BTreeMap::new()).expect("a checkpoint")
    }

    fn unused(&self) -> Vec<&str> {
        gradscale::unused_restored_sites(&self.trainer).collect()
    }
}

fn same(x: Var<'_>) -> Var<'_> {
    x
}

/// After a step, no site of the same network is unused, also with fewer steps of a sequence.
#[test]
fn a_resume_uses_all_sites() {
    for method in ["gs", "gs:calls=each", "amax", "gs:forward=on"] {
        let mut before = Rig::new(method);
        before.step(5, same);
        assert_eq!(before.unused(), [""; 0], "nothing was loaded");
        let mut rig = Rig::loaded(method, &before.save());
        assert!(!rig.unused().is_empty(), "{method}: no step has stored yet");
        rig.step(3, same);
        assert_eq!(rig.unused(), [""; 0], "{method}");
    }
}

/// Sites inside of a part of the network that became another operator are unused, and only these.
#[test]
fn sites_that_the_network_lacks_are_unused() {
    for (method, unused) in [
        ("gs", &["gate/dgrad"][..]),
        ("gs:calls=each", &["gate/dgrad"]),
        ("gs:forward=on", &["gate/forward", "gate/dgrad"]),
        // A loss scale belongs to no site.
        ("dynamic", &[]),
    ] {
        let mut before = Rig::new(method);
        before.step(5, |x| x.sigmoid().named("gate"));
        let mut rig = Rig::loaded(method, &before.save());
        rig.step(5, |x| x.tanh().named("fused"));
        assert_eq!(rig.unused(), unused, "{method}");
    }
}
