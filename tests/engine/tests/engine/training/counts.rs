//! Device calls of a step, besides its operators.

use super::{Data, Training};
use gradscale::{
    Cpu,
    optim::{Adam, Sgd},
};
use gradscale_conformance::{Calls, Counting};

#[test]
fn one_upload_and_one_collect_a_step() {
    for method in ["gs:exact", "dynamic", "fp32", "gs:exact,interval=1"] {
        let device = Counting::new(Cpu::new(1).expect("one thread"));
        let mut training = Training::on(device, Adam::new(0.01).into(), method.parse().expect("a method"));
        let data = Data::new(1, 8);
        for _ in 0..3 {
            training.step(&data);
        }
        let mut operators = None;
        for step in 3..25 {
            training.trainer.device().take();
            assert_eq!(training.step(&data).skipped, None);
            let calls = training.trainer.device().take();
            let Calls { uploads, collects, reads, allocs, writes, .. } = calls;
            // The batch is three writes.
            assert_eq!([uploads, collects, reads, allocs, writes], [1, 1, 0, 0, 3], "{method}, step {step}");
            assert_eq!(*operators.get_or_insert(calls.operators), calls.operators, "{method}, step {step}");
        }
    }
}

/// A prefetched batch is written once, and copied once on the device.
#[test]
fn a_batch_sent_ahead_costs_a_copy_for_each_input() {
    let device = Counting::new(Cpu::new(1).expect("one thread"));
    let Training { net, mut trainer } = Training::on(device, Adam::new(0.01).into(), "gs:exact".parse().unwrap());
    let data = Data::new(1, 8);
    let mut operators = vec![];
    for ahead in [false, true] {
        for _ in 0..3 {
            trainer.device().take();
            let gradients = if ahead {
                let batch = trainer.prefetch(data.batch()).unwrap();
                trainer.backward(batch, |all| net.loss(all))
            } else {
                trainer.backward(data.batch(), |all| net.loss(all))
            };
            trainer.step(gradients.unwrap()).unwrap();
        }
        let Calls { uploads, collects, reads, allocs, writes, operators: called, .. } = trainer.device().take();
        assert_eq!([uploads, collects, reads, allocs, writes], [1, 1, 0, 0, 3], "ahead: {ahead}");
        operators.push(called);
    }
    assert_eq!(operators[1], operators[0] + 3);
}

/// A decision inside the step waits once for each site; `paper` decides so in the first of its 100 steps.
#[test]
fn paper_decides_at_once_in_update_steps_only() {
    let device = Counting::new(Cpu::new(1).expect("one thread"));
    let mut training = Training::on(device, Sgd::new(0.0).into(), "gs:paper,interval=5".parse().unwrap());
    let data = Data::new(1, 8);
    let mut waits = Vec::new();
    for _ in 0..12 {
        training.trainer.device().take();
        training.step(&data);
        waits.push(training.trainer.device().take().collects > 1);
    }
    let deciding: Vec<usize> = (0..12).filter(|&step| waits[step]).collect();
    assert_eq!(deciding, [0, 5, 10]);
}

/// Reads in each of eight steps, whose loss is larger by a factor from the fifth on; and how many sites there are.
fn collects(method: &str, factor: f32) -> (Vec<u64>, u64) {
    let device = Counting::new(Cpu::new(1).expect("one thread"));
    let mut training = Training::on(device, Sgd::new(0.0).into(), method.parse().expect("a method"));
    let data = Data::new(1, 8);
    let mut collects = Vec::new();
    for step in 0..8 {
        training.trainer.device().take();
        training.step(&data.times(if step < 4 { 1.0 } else { factor }));
        collects.push(training.trainer.device().take().collects);
    }
    (collects, training.trainer.sites().count() as u64)
}

/// After a skip all sites decide inside the next step, and only in that one.
#[test]
fn a_skip_is_followed_by_one_step_that_waits() {
    let (collects, sites) = collects("gs:exact,room=6,history=0", 2f32.powi(40));
    assert_eq!(collects, [1 + sites, 1, 1, 1, 1, 1 + sites, 1, 1]);
}

/// A repeat waits at each site, and is over then.
#[test]
fn a_repeat_waits_and_no_step_after_it() {
    let (collects, sites) = collects("gs:exact,window=30", 2f32.powi(12));
    assert_eq!(collects, [1 + sites, 1, 1, 1, 2 + sites, 1, 1, 1]);
}
