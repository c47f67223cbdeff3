//! Ranks of two kinds of devices: the CPU and a GPU.

use gradscale::{
    Cpu, Error, Input, Method, Parameters, Trainer, TrainerOptions,
    distributed::{BatchNormScope, Group, Threads},
    gradscale_core::backend::Backend,
    nn::{BatchNorm, Linear, Module},
    optim::Adam,
};
use std::{collections::BTreeMap, fmt::Debug, thread};

/// Final state of a rank: exponents of all sites after each step, and the checkpoint.
type Trained = (Vec<Vec<i32>>, Vec<u8>);

fn train<B: Backend<Error: Debug + 'static>>(
    device: B, group: Group, (divided, of): (bool, BatchNormScope), method: &str,
) -> Result<Trained, Error<B::Error>> {
    let mut parameters = Parameters::seeded(5);
    let scope = &mut parameters.at("net");
    let first = Linear::new(&mut scope.at("first"), 8, 16);
    let norm = BatchNorm::new(&mut scope.at("norm"), 16);
    let second = Linear::new(&mut scope.at("second"), 16, 4);
    let method: Method = method.parse().expect("a method");
    let trainer = Trainer::new(device, parameters, Adam::new(0.01), method)?;
    let trainer = if divided { trainer.with_options(TrainerOptions::new().with_sharded_optimizer()) } else { trainer };
    let parts = if of == BatchNormScope::World { 2 } else { 4 };
    let mut trainer = trainer.with_options(TrainerOptions::new().with_batch_norm_scope(of)).join_group(group)?;
    let mut exponents = Vec::new();
    for step in 0..6 {
        let outcome = trainer.step_micro_batches(parts, |trainer, part| {
            let number = |k: u32| (k + 64 * (part + 4 * step)).wrapping_mul(2_654_435_761) >> 16;
            let x: Vec<f32> = (0..64).map(|k| number(k) as f32 / 32768.0 - 1.0).collect();
            let labels: Vec<u8> = (0..8).map(|k| (number(k + 99) % 4) as u8).collect();
            let batch = [Input::f32([8, 8], &x), Input::u8([8], &labels)];
            trainer.backward(batch, |[x, labels]| {
                second.forward(norm.forward(first.forward(x)).relu()).cross_entropy(labels)
            })
        })?;
        assert!(outcome.skipped.is_none());
        exponents.push(trainer.sites().map(|site| site.alpha).collect());
    }
    // Ranks hold their whole states against each other.
    Ok((exponents, trainer.save(&BTreeMap::new())?))
}

fn both<B: Backend<Error: Debug + 'static>, T: Send>(
    gpu: impl Fn() -> B + Sync, told: (bool, BatchNormScope), method: &str,
    end: impl Fn(Result<Trained, String>) -> T + Sync,
) -> [T; 2] {
    let [first, second] = Threads::world(2).try_into().expect("two");
    thread::scope(|scope| {
        let there = scope.spawn(|| {
            let trained = train(gpu(), Group::new(second), told, method);
            end(trained.map_err(|error| error.to_string()))
        });
        let trained = train(Cpu::new(1).expect("threads"), Group::new(first), told, method);
        [end(trained.map_err(|error| error.to_string())), there.join().expect("a rank")]
    })
}

/// Both decide from the same rows, and each weight is updated by one of them for both, so their weights stay equal.
/// Without sharding such a group is refused: software drivers may round as the CPU does, but none guarantees it.
pub fn a_cpu_and_a_gpu<B: Backend<Error: Debug + 'static>>(gpu: impl Fn() -> B + Sync) {
    let cases = BatchNormScope::ALL.into_iter().map(|of| (of, "gs:exact,interval=1"));
    // Exponents of activations are decided by one rank for both, like those of gradients.
    for (of, method) in cases.chain([(BatchNormScope::Rank, "gs:exact,interval=1,forward=on")]) {
        let [here, there] = both(&gpu, (true, of), method, |trained| trained.expect("a training"));
        assert!(here == there, "ranks have drifted apart: {:?} and {:?}", here.0, there.0);
        assert!(here.0.iter().all(|exponents| exponents.len() == 3), "{:?}", here.0);
    }
    let words =
        both(&gpu, (false, BatchNormScope::Rank), "gs:exact,interval=1", |trained| trained.expect_err("two kinds"));
    assert!(words[0] == words[1] && words[0].starts_with("rank 1 has another device than rank 0: "), "{words:?}");
}
