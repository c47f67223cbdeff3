//! Moving averages of weights: their values, evaluation with them, and checkpoints.

use super::{Data, Training, batches};
use gradscale::{
    CheckpointError, Cpu, Error, EvaluationWeights, Input, Method, Parameters, Tensor, Trainer, TrainerOptions,
    gradscale_core::amp::{AmpPolicy, Level},
    nn::{Linear, Module},
    optim::{Adam, Lion, Optimizer, Sgd},
};
use std::collections::BTreeMap;

const AVERAGE_SHARE_KEPT: f32 = 0.75;

fn averaging(training: Training<Cpu>, kept: f32) -> Training<Cpu> {
    let trainer = training.trainer.with_options(TrainerOptions::new().with_weight_average(kept));
    Training { trainer, ..training }
}

/// Names and values of all weights, without running statistics.
fn weights(training: &Training<Cpu>) -> Vec<(String, Vec<f32>)> {
    let all = training.trainer.parameters().expect("parameters").into_iter();
    all.filter(|(name, _)| !name.ends_with("running")).map(|(name, tensor)| (name, tensor.data)).collect()
}

fn averages(training: &Training<Cpu>) -> Vec<(String, Vec<f32>)> {
    let read = |name: String| {
        let data = EvaluationWeights::Average.read(&training.trainer, &name).expect("an average").data;
        (name, data)
    };
    weights(training).into_iter().map(|(name, _)| read(name)).collect()
}

fn predict(training: &mut Training<Cpu>, data: &Data) -> Tensor {
    let net = &training.net;
    let y = training
        .trainer
        .evaluate(data.batch(), |[x, ..]| net.second.forward(net.norm.forward(net.first.forward(x)).relu()));
    y.expect("it fits")
}

/// Against f64, for rules with a kernel and one in operators; a step that is skipped changes nothing.
#[test]
fn averages_follow_the_weights() {
    let rules: [Optimizer; 3] = [Adam::new(0.05).into(), Sgd::new(0.1).into(), Lion::new(0.01).into()];
    for rule in rules {
        let mut training = averaging(Training::new(rule, "gs"), AVERAGE_SHARE_KEPT);
        let mut right: Vec<Vec<f64>> =
            weights(&training).into_iter().map(|(_, data)| data.into_iter().map(f64::from).collect()).collect();
        assert_eq!(averages(&training), weights(&training), "before the first step");
        for (i, data) in batches(6).iter().enumerate() {
            let before = averages(&training);
            let data = if i == 3 { data.times(f32::NAN) } else { data.clone() };
            let skipped = training.step(&data).skipped.is_some();
            assert_eq!(skipped, i == 3);
            if skipped {
                assert_eq!(averages(&training), before, "a skipped step");
                continue;
            }
            for (right, (_, now)) in right.iter_mut().zip(weights(&training)) {
                right.iter_mut().zip(now).for_each(|(a, w)| *a = 0.75 * *a + 0.25 * f64::from(w));
            }
        }
        for (right, (name, found)) in right.iter().zip(averages(&training)) {
            let close = |(a, b): (&f64, f32)| (a - f64::from(b)).abs() < 1e-6;
            assert!(right.iter().zip(found).all(close), "{name}");
        }
    }
}

/// A loss of some weights leaves the averages of all others as they are, however far these are from their weights.
#[test]
fn averages_of_other_weights_stay() {
    let mut parameters = Parameters::seeded(7);
    let [a, b] = ["a", "b"].map(|name| Linear::new(&mut parameters.at(name), 2, 1));
    let method = "gs".parse::<Method>().expect("a method");
    let trainer = Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(0.5), method).expect("a trainer");
    let mut trainer = trainer.with_options(TrainerOptions::new().with_weight_average(AVERAGE_SHARE_KEPT));
    let batch = || [Input::f32([1, 2], &[1.0, 2.0])];
    let both = trainer.backward(batch(), |[x]| (a.forward(x) + b.forward(x)).sum()).expect("it fits");
    assert!(trainer.step(both).expect("a step").skipped.is_none());
    let read = |trainer: &Trainer<Cpu>, weights: EvaluationWeights| {
        ["a.weight", "b.weight"].map(|name| weights.read(trainer, name).expect("a weight").data)
    };
    let before = read(&trainer, EvaluationWeights::Average);
    let one = trainer.backward(batch(), |[x]| a.forward(x).sum()).expect("it fits");
    assert!(trainer.step(one).expect("a step").skipped.is_none());
    let after = read(&trainer, EvaluationWeights::Average);
    assert_ne!(before[0], after[0]);
    assert_eq!(before[1], after[1]);
    assert_ne!(after[1], read(&trainer, EvaluationWeights::Trained)[1]);
}

/// Evaluation with the averages has the bits of a network that has them as its weights.
#[test]
fn an_evaluation_uses_the_averages() {
    for level in [Level::O0, Level::O1, Level::O2, Level::O3] {
        let method = || "gs:forward=on".parse::<Method>().expect("a method").with_amp(AmpPolicy::new(level));
        let new = || Training::on(Cpu::new(1).expect("a CPU"), Sgd::new(0.5).into(), method());
        let (mut training, mut plain) = (averaging(new(), AVERAGE_SHARE_KEPT), new());
        let all = batches(5);
        for data in &all[..4] {
            training.step(data);
            plain.step(data);
        }
        assert_eq!(training.bits(), plain.bits(), "{level:?}: the training does not depend on it");
        let trained = predict(&mut training, &all[4]);
        EvaluationWeights::Average.select(&mut training.trainer).expect("an average");
        let average = predict(&mut training, &all[4]);
        for (name, data) in averages(&training) {
            plain.trainer.set_parameter(&name, &data).expect("a parameter");
        }
        let right = predict(&mut plain, &all[4]);
        if level == Level::O3 {
            // Weights are rounded to half there, and averages are not where they are read in f32.
            let close = |(a, b): (&f32, &f32)| (a - b).abs() < 2f32.powi(-10);
            assert!(average.data.iter().zip(&right.data).all(close), "{:?}, not {:?}", average.data, right.data);
        } else {
            assert_eq!(average.data, right.data, "{level:?}");
        }
        assert_ne!(average.data, trained.data, "{level:?}");
        // Averages that have moved on, and the weights again.
        training.step(&all[4]);
        assert_ne!(predict(&mut training, &all[4]).data, average.data, "{level:?}");
        EvaluationWeights::Trained.select(&mut training.trainer).expect("always");
    }
}

#[test]
fn checkpoints_contain_averages() {
    let all = batches(5);
    let run = |training: &mut Training<Cpu>, part: std::ops::Range<usize>| {
        all[part].iter().for_each(|data| drop(training.step(data)));
    };
    let new = |kept: Option<f32>| {
        let training = Training::new(Adam::new(0.05).into(), "gs");
        kept.map_or_else(|| Training::new(Adam::new(0.05).into(), "gs"), |kept| averaging(training, kept))
    };
    let save = |training: &Training<Cpu>| training.trainer.save(&BTreeMap::new()).expect("a checkpoint");
    let mut whole = new(Some(AVERAGE_SHARE_KEPT));
    run(&mut whole, 0..3);
    let middle = save(&whole);
    run(&mut whole, 3..5);
    let mut resumed = new(Some(AVERAGE_SHARE_KEPT));
    resumed.trainer.load(&middle).expect("a checkpoint");
    run(&mut resumed, 3..5);
    assert_eq!(averages(&resumed), averages(&whole));
    assert!(save(&resumed) == save(&whole));
    // One from before the first step has the weights.
    let mut first = new(Some(AVERAGE_SHARE_KEPT));
    first.trainer.load(&save(&new(Some(AVERAGE_SHARE_KEPT)))).expect("a checkpoint");
    assert_eq!(averages(&first), weights(&first));
    // A checkpoint without averages: they begin with its weights.
    let mut older = new(None);
    run(&mut older, 0..3);
    let bytes = save(&older);
    let mut begun = new(Some(AVERAGE_SHARE_KEPT));
    run(&mut begun, 0..1);
    begun.trainer.load(&bytes).expect("a checkpoint");
    assert_eq!(averages(&begun), weights(&older));
    // Another share, or none, is another training.
    for kept in [Some(0.5), None] {
        let Err(Error::Checkpoint(CheckpointError::Settings { differences, .. })) = new(kept).trainer.load(&middle)
        else {
            panic!("{kept:?}")
        };
        assert_eq!(differences[0].name, "average kept");
    }
}

#[test]
fn shares_and_trainers_that_do_not_fit() {
    for kept in [1.0, -0.5, f32::NAN] {
        let mut training = averaging(Training::new(Sgd::new(0.5).into(), "gs"), kept);
        let error = EvaluationWeights::Average.select(&mut training.trainer).expect_err("out of range");
        assert!(error.to_string().contains("must be in [0, 1), not"), "{error}");
        assert!(training.try_step(&batches(1)[0]).is_err());
    }
    let mut training = Training::new(Sgd::new(0.5).into(), "gs");
    let error = EvaluationWeights::Average.select(&mut training.trainer).expect_err("no average");
    let words = "no average of the weights is kept; set TrainerOptions::with_weight_average";
    assert_eq!(error.to_string(), words);
    assert_eq!(
        EvaluationWeights::Average.read(&training.trainer, "net.first.weight").expect_err("no average").to_string(),
        words
    );
}
