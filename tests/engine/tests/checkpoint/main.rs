//! A training that is saved and restored continues bit for bit, with any method and after any step.

mod any_device;
mod engines;
mod files;
mod model;
mod on_disk;
mod settings;

use gradscale::{
    Cpu, Error, Input, Method, Parameters, Trainer,
    models::SegNet,
    nn::Module,
    optim::{Adam, Optimizer, Schedule, Sgd},
};
use std::collections::BTreeMap;

struct Training {
    net: SegNet,
    trainer: Trainer<Cpu>,
    /// The loss of the sixth step: one that is skipped, or that is repeated. f32 would step the first, and be ruined.
    large: f32,
}

fn training(method: &str, optimizer: Optimizer, width: usize) -> Training {
    let large = match method {
        "fp32" => 1e-4,
        "gs" => 30.0,
        _ => 1e30,
    };
    let method: Method = method.parse().expect("a method");
    let mut parameters = Parameters::seeded(1);
    let net = SegNet::new(&mut parameters.at("net"), 3, width, 4);
    let device = Cpu::new(1).expect("a thread");
    Training { net, trainer: Trainer::new(device, parameters, optimizer, method).expect("a trainer"), large }
}

impl Training {
    /// Losses of some steps, and whether they were skipped or repeated; the sixth has a loss so large that it overflows
    /// everywhere.
    fn run(&mut self, steps: std::ops::Range<u8>) -> Vec<(u32, bool, bool)> {
        let step = |i: u8| {
            let images: Vec<u8> = (0..2 * 18 * 20 * 3).map(|k: u32| (k * 31 % 251) as u8 ^ i).collect();
            let labels: Vec<u8> = (0..2 * 18 * 20).map(|k: u32| (k / 50 % 4) as u8).collect();
            let batch = [Input::u8([2, 18, 20, 3], &images), Input::u8([2, 18, 20, 1], &labels)];
            let factor = if i == 6 { self.large } else { 1e-4 };
            let net = &self.net;
            let gradients = self
                .trainer
                .backward(batch, |[x, labels]| net.forward(x).dropout(0.1).cross_entropy(labels).scale(factor));
            let outcome = self.trainer.step(gradients.expect("gradients")).expect("a step");
            (outcome.loss.to_bits(), outcome.skipped.is_some(), !outcome.repeated.is_empty())
        };
        steps.map(step).collect()
    }

    fn weights(&self) -> Vec<(String, Vec<u32>)> {
        let all = self.trainer.parameters().expect("parameters");
        all.into_iter().map(|(name, tensor)| (name, tensor.data.iter().map(|x| x.to_bits()).collect())).collect()
    }
}

#[test]
fn a_restored_training_goes_on_bit_for_bit() {
    let sgd = Optimizer::from(Sgd { momentum: 0.9, ..Sgd::new(0.05) }).schedule(Schedule::Cosine { steps: 30 });
    let adam = Optimizer::from(Adam::new(1e-3)).clip_norm(0.1);
    for method in [
        "gs",
        "gs:exact,interval=3,history=0",
        "gs:exact,interval=3,history=1",
        "gs:paper,interval=4",
        "dynamic",
        "dynamic:2",
        "logmax",
        "fp32",
    ] {
        for optimizer in [&sgd, &adam] {
            let mut whole = training(method, optimizer.clone(), 4);
            let expected = whole.run(0..14);
            let [skipped, repeated] = [expected.iter().any(|step| step.1), expected.iter().any(|step| step.2)];
            assert_eq!((skipped, repeated), (!["fp32", "gs"].contains(&method), method == "gs"), "{method}");
            // 7: right after the overflow.
            for cut in [1, 4, 7, 11] {
                let mut first = training(method, optimizer.clone(), 4);
                let mut got = first.run(0..cut);
                let mine = BTreeMap::from([("position".to_owned(), cut.to_string())]);
                let bytes = first.trainer.save(&mine).expect("a checkpoint");
                let mut second = training(method, optimizer.clone(), 4);
                assert_eq!(second.trainer.load(&bytes).expect("the same training"), mine);
                got.extend(second.run(cut..14));
                assert_eq!(got, expected, "{method}, cut at {cut}");
                assert_eq!(second.weights(), whole.weights(), "{method}, cut at {cut}");
                // The checkpoint also loads into a trainer that has continued differently.
                first.run(20..23);
                first.trainer.load(&bytes).expect("the same training");
                assert_eq!(first.run(cut..14), expected[usize::from(cut)..], "{method}, rewound to {cut}");
            }
        }
    }
}

#[test]
fn foreign_and_broken_checkpoints_change_nothing() {
    let sgd = Sgd { momentum: 0.9, ..Sgd::new(0.05) };
    let mut training_ = training("gs", sgd.into(), 4);
    training_.run(0..3);
    let good = training_.trainer.save(&BTreeMap::new()).expect("a checkpoint");
    let foreign = |method: &str, optimizer: Optimizer, width: usize| {
        training(method, optimizer, width).trainer.save(&BTreeMap::new()).expect("a checkpoint")
    };
    let broken = [
        Vec::new(),
        b"no checkpoint".to_vec(),
        good[..good.len() / 2].to_vec(),
        good[..good.len() - 1].to_vec(),
        foreign("gs", sgd.into(), 5),
        foreign("gs:exact,room=4", sgd.into(), 4),
        foreign("dynamic", sgd.into(), 4),
        foreign("gs", Adam::new(1e-3).into(), 4),
        foreign("gs", Sgd::new(0.05).into(), 4),
    ];
    let before = training_.weights();
    let mut refused = 0;
    for bytes in &broken {
        match training_.trainer.load(bytes) {
            Err(Error::Checkpoint(cause)) => {
                assert!(!cause.to_string().is_empty());
                assert_eq!(training_.weights(), before, "changed by a checkpoint that was refused: {cause}");
                refused += 1;
            }
            Ok(_) => panic!("taken"),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(refused, 9);
}
