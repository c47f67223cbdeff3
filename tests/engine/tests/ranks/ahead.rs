//! Gradient communication that overlaps with the backward pass.

use super::{Net, Told, Training, USUAL, backward, refused, run, same, world};
use gradscale::{
    Cpu, Error, Input, Method, Parameters, Trainer, TrainerOptions,
    distributed::{BatchNormScope, Communicator, DistributedError, Group, Overlap, ReduceMode, Threads, Traffic},
    nn::{Linear, Module},
    optim::Sgd,
};
use gradscale_conformance::Counting;
use std::{
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

/// A single rank sends nothing. Groups have its results, whenever their gradients are sent.
#[test]
fn when_gradients_travel_changes_nothing() {
    for net in [Net::Segnet, Net::Transformer] {
        for overlap in [Overlap::Off, Overlap::Auto, Overlap::BucketSize(1), Overlap::BucketSize(500)] {
            for recorded in [true, false] {
                same(Told { net, overlap, recorded, parts: 4, ..USUAL }, &[1, 2, 3, 4], 5);
            }
        }
    }
    // Decisions inside steps, by ranks with two micro-batches and with one, overflows, and values that are not finite.
    for method in ["gs:authors,interval=3", "gs:paper", "dynamic"] {
        for large in [1.0, 1e8, f32::INFINITY] {
            same(Told { method, large, parts: 5, ..USUAL }, &[3, 5], 5);
            same(Told { method, large, parts: 9, ..USUAL }, &[2], 5);
        }
    }
    same(Told { sharded: true, parts: 3, ..USUAL }, &[3], 5);
}

/// Ranks that synchronise at each layer send gradients in between; f32 sums are in the order of the ranks.
#[test]
fn whatever_else_ranks_say_meanwhile() {
    let both = BatchNormScope::World;
    let bits = |told: Told, size: usize| {
        let ended = world(size, move |group| run(told, group, 5).expect("a training"));
        assert!(ended.iter().all(|one| *one == ended[0]), "{told:?}");
        ended[0].clone()
    };
    for told in [
        Told { batch_norm: both, parts: 2, ..USUAL },
        Told { batch_norm: both, parts: 2, recorded: false, ..USUAL },
        Told { batch_norm: both, parts: 2, method: "gs:authors,interval=3", ..USUAL },
        Told { exchange: ReduceMode::NativeF32, ..USUAL },
        Told { exchange: ReduceMode::NativeF32, net: Net::Transformer, ..USUAL },
    ] {
        assert!(bits(told, 2) == bits(Told { overlap: Overlap::Off, ..told }, 2), "{told:?}");
    }
}

/// With one micro-batch per rank, half the bytes of f32 are all-reduced, besides the statistics rows.
#[test]
fn what_travels_is_half() {
    let bytes = world(2, |group| {
        let mut training = Training::new(Told { net: Net::Transformer, ..USUAL }, group).expect("a training");
        let (net, mut of_steps) = (&training.net, Vec::new());
        for step in 0..8 {
            let before = training.trainer.traffic().sent_bytes;
            training
                .trainer
                .step_micro_batches(2, |trainer, part| backward(net, trainer, 2 * step + part, 1.0))
                .expect("a step");
            of_steps.push(training.trainer.traffic().sent_bytes - before);
        }
        let weights =
            training.trainer.parameters().expect("parameters").iter().map(|(_, one)| one.data.len()).sum::<usize>();
        (of_steps, weights as u64)
    });
    for (of_steps, weights) in bytes {
        // For each value two halves are sent: half of one rank's values, and half of the means. In f32 both had 4
        // bytes.
        let least = *of_steps.iter().min().expect("steps");
        assert!(least > 2 * weights && least < 2 * weights + 64 * 80, "{least} bytes for {weights} weights");
    }
}

/// Tests failures after gradients have been sent.
#[test]
fn what_happens_behind_is_known_to_all() {
    let words = world(3, |group| {
        let rank = group.rank();
        let mut training = Training::new(USUAL, group).expect("a training");
        (0..2).for_each(|step| drop(training.step(step).expect("a step")));
        let net = &training.net;
        refused(training.trainer.step_micro_batches(3, |trainer, part| {
            let gradients = backward(net, trainer, part, 1.0)?;
            if part == 1 { Err(Error::Parameter("the disk is gone".to_owned())) } else { Ok(gradients) }
        }))
        .replace("the disk", &format!("on {rank}: the disk"))
    });
    assert_eq!(words[1], "on 1: the disk is gone");
    assert_eq!([&words[0], &words[2]], ["rank 1: on 0: the disk is gone", "rank 1: on 2: the disk is gone"]);
    // Two passes in one micro-batch: the result of the first is already being sent.
    let words = world(2, |group| {
        let mut training = Training::new(USUAL, group).expect("a training");
        (0..2).for_each(|step| drop(training.step(step).expect("a step")));
        let net = &training.net;
        refused(training.trainer.step_micro_batches(2, |trainer, part| {
            let _gone = backward(net, trainer, part, 1.0)?;
            backward(net, trainer, part, 1.0)
        }))
    });
    assert!(words.iter().all(|words| {
        words.ends_with("a micro-batch must be one backward pass; divide the step into more micro-batches")
    }));
    let words = world(2, |group| {
        let overlap = if group.rank() == 0 { Overlap::Auto } else { Overlap::Off };
        refused(Training::new(Told { overlap, ..USUAL }, group))
    });
    assert_eq!(words, ["rank 1 has another overlap than rank 0: off, not on"; 2]);
}

/// Progress of a rank.
#[derive(Clone, Default)]
struct Events {
    now: Arc<(Mutex<Now>, Condvar)>,
}

#[derive(Default)]
struct Now {
    /// Number of operators launched so far.
    launched: u64,
    /// The one that is held up until gradients are on their way, which then wait until it has run.
    held: Option<u64>,
    exchanging: bool,
    /// Events that have waited for the other side, and have seen it.
    met: Vec<&'static str>,
}

/// Only of tests that fail.
const LONG: Duration = Duration::from_secs(20);

impl Events {
    fn change(&self, change: impl FnOnce(&mut Now)) {
        change(&mut self.now.0.lock().expect("the events"));
        self.now.1.notify_all();
    }

    fn read<T>(&self, read: impl FnOnce(&Now) -> T) -> T {
        read(&self.now.0.lock().expect("the events"))
    }

    fn wait(&self, who: &'static str, until: impl Fn(&Now) -> bool) {
        let now = self.now.0.lock().expect("the events");
        let (mut now, _) = self.now.1.wait_timeout_while(now, LONG, |now| !until(now)).expect("the events");
        if until(&now) {
            now.met.push(who);
        }
    }
}

/// A rank whose exchanges are held up.
struct Slow(Threads, Events);

impl Communicator for Slow {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, DistributedError> {
        self.0.all_gather(mine)
    }
    fn all_to_all(&mut self, to: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, DistributedError> {
        if let Some(held) = self.1.read(|now| now.held) {
            self.1.change(|now| now.exchanging = true);
            self.1.wait("exchange", |now| now.launched > held);
            self.1.change(|now| now.held = None);
        }
        self.0.all_to_all(to)
    }
}

/// Returns the events of one step, the weights, and the traffic. In that step each rank delays an operator of the
/// backward pass until an exchange has begun, and delays the exchange until that operator has run.
fn held_up(overlap: Overlap) -> Vec<(Vec<&'static str>, Vec<f32>, Traffic)> {
    let rank = move |threads: Threads| {
        let events = Events::default();
        let watch = events.clone();
        let device = Counting::new(Cpu::new(1)?).watched(move |number| {
            if watch.read(|now| now.held) == Some(number) {
                watch.wait("operator", |now| now.exchanging);
            }
            watch.change(|now| now.launched = number + 1);
        });
        let mut parameters = Parameters::seeded(0);
        let net: Vec<Linear> = (0..6).map(|i| Linear::new(&mut parameters.at(&format!("net{i}")), 8, 8)).collect();
        let trainer = Trainer::new(device, parameters, Sgd::new(0.1), Method::mixed())?
            .with_options(TrainerOptions::new().with_overlap(overlap));
        let mut trainer = trainer.join_group(Group::new(Slow(threads, events.clone())))?;
        let mut begun = 0;
        for step in 0..5u8 {
            trainer.step_micro_batches(2, |trainer, part| {
                let launched = events.read(|now| now.launched);
                // As in earlier steps, the last operators are those of the update. The delayed operator is well before
                // them, and after the first gradients.
                let x: Vec<f32> = (0..16).map(|i| ((i * 7 + u32::from(step) + part) % 5) as f32).collect();
                if step == 4 {
                    events.change(|now| now.held = Some(launched + begun - 1));
                }
                let gradients = trainer.backward([Input::f32([2, 8], &x), Input::u8([2], &[1, 6])], |[x, labels]| {
                    net.iter().fold(x, |x, layer| layer.forward(x).relu()).cross_entropy(labels)
                });
                begun = events.read(|now| now.launched) - launched;
                gradients
            })?;
        }
        let met = events.read(|now| now.met.clone());
        Ok::<_, Error>((met, trainer.parameter("net0.weight")?.data, trainer.traffic()))
    };
    let ranks: Vec<_> = Threads::world(2).into_iter().map(|threads| thread::spawn(move || rank(threads))).collect();
    ranks.into_iter().map(|rank| rank.join().expect("a rank").expect("a training")).collect()
}

/// Proves the overlap by order, not by time: the last operator of the backward pass does not run before an exchange of
/// gradients has begun, and that exchange does not continue before the operator has run.
#[test]
fn gradients_travel_while_the_backward_pass_goes_on() {
    let ahead = held_up(Overlap::BucketSize(100));
    for (met, weights, traffic) in &ahead {
        assert_eq!(met, &["operator", "exchange"]);
        assert_eq!(*weights, ahead[0].1);
        assert!(traffic.exposed_time <= traffic.comm_time);
    }
}
