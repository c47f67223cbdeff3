//! The search finds the right samples, and a training with it has the same bits as one without.

use super::{
    super::{Training, TrainingRun, TrainingTask, distributed::joined, steps::MicroBatching},
    SampleLosses, SampleTest, UnusableSamples,
};
use crate::{
    data::{Boxed, Corpus, DataOptions, Labelled, Parallel, Segmentation, Speech, Store},
    optimizer::Updates,
    tasks::{
        DistributedOptions, LossDivisor, Net, Network, Settings,
        classify::training::ClassifyTraining,
        detect::{multibox::Multibox, proposing::Proposing, training::DetectTraining},
        language::training::LanguageTraining,
        segnet::training::SegnetTraining,
        speech::training::SpeechTraining,
        translate::training::TranslateTraining,
    },
};
use gradscale::{Cpu, Parameters, StepOutcome, Trainer, gradscale_core::ops::Ctc, optim::Optimizer};
use std::{collections::BTreeMap, fs};

fn settings(net: Net, batch: usize) -> Settings {
    let recipe = Updates::default().recipe(0.05, 100).expect("a recipe");
    Settings { network: Network::small(net, 2), batch, pixels: LossDivisor::Batch, recipe }
}

/// Returns a table of 40 training rows in two classes, whose 7th row (line 9 of the file) has this number in each column.
fn table(number: f32) -> Labelled {
    let directory = tempfile::tempdir().expect("a directory");
    let rows = |count: u32| -> String {
        (0..count).map(|i| format!("{},{},{}\n", i % 7, i * 5 % 11, ["a", "b"][i as usize % 2])).collect()
    };
    for (name, count) in [("train", 40), ("test", 10)] {
        fs::write(directory.path().join(name).with_extension("csv"), format!("x,y,class\n{}", rows(count)))
            .expect("a file");
    }
    let mut data = Labelled::load(directory.path(), &DataOptions::default()).expect("a table");
    let Store::Memory(values) = &mut data.train.features else { panic!("a table in memory") };
    for value in values[7 * 8..8 * 8].as_chunks_mut::<4>().0 {
        *value = number.to_le_bytes();
    }
    data
}

fn training<T: TrainingTask>(
    (task, parameters, optimizer): (T, Parameters, Optimizer), method: &str, cut: Option<MicroBatching>,
) -> Training<Cpu, T> {
    let trainer = Trainer::new(Cpu::new(1).expect("threads"), parameters, optimizer, method.parse().expect("a method"));
    let trainer = task.begin(trainer.expect("a trainer"));
    let (trainer, _) = joined(trainer, cut, DistributedOptions::alone()).expect("one rank");
    let mut training = Training::new(task, trainer).expect("a training");
    training.cut = cut;
    training
}

/// Result of some steps.
#[derive(PartialEq)]
struct Trained {
    /// Bits of each step's loss.
    losses: Vec<u32>,
    checkpoint: Vec<u8>,
}

/// Runs steps with the search or without it, and returns what each step has found.
fn run(
    data: &Labelled, cut: Option<MicroBatching>, steps: u64, searches: bool,
) -> (Trained, Vec<Option<UnusableSamples>>) {
    let batch = cut.map_or(8, |cut| usize::try_from(cut.batch).expect("a few"));
    let begun = ClassifyTraining::new(data, settings(Net::Mlp, batch), 3).expect("a task");
    let mut training = training(begun, "gs", cut);
    let (mut losses, mut found) = (Vec::new(), Vec::new());
    for _ in 0..steps {
        let outcome: StepOutcome = match (searches, cut) {
            (true, _) => training.step().expect("a step"),
            (false, Some(cut)) => training.step_in_parts(cut).expect("a step"),
            (false, None) => training.step_whole().expect("a step"),
        };
        let named = outcome.skipped.and_then(|skipped| skipped.loss).and_then(|loss| loss.sample);
        assert_eq!(named, training.unusable.as_ref().map(UnusableSamples::first));
        losses.push(outcome.loss.to_bits());
        found.push(training.unusable.clone());
    }
    (Trained { losses, checkpoint: training.save(&BTreeMap::new()).expect("a checkpoint") }, found)
}

#[test]
fn the_sample_is_named_and_no_bit_changes() {
    // Eight passes over five batches of eight, or of two micro-batches.
    for (number, test) in [(f32::NAN, SampleTest::Data), (3e38, SampleTest::Evaluation)] {
        let data = table(number);
        for (cut, batch) in [(None, 8), (Some(MicroBatching { parts: 2, batch: 4 }), 8)] {
            let (with, found) = run(&data, cut, 40, true);
            let (without, nothing) = run(&data, cut, 40, false);
            assert!(with == without && nothing.iter().all(Option::is_none), "{number} {batch}");
            let skipped = found.iter().flatten().count();
            assert_eq!(skipped, 8, "once in each pass: {found:?}");
            for one in found.iter().flatten() {
                assert_eq!((&one.indices[..], one.batch, one.test), (&[7][..], batch, test));
                let source = one.source.as_deref().expect("a line");
                assert!(source.ends_with("train.csv, line 9"), "{source}");
            }
        }
    }
}

#[test]
fn evaluations_are_limited_and_do_not_blame_samples_for_weights() {
    // All rows are in each batch, so each step is skipped.
    let one = MicroBatching { parts: 1, batch: 40 };
    let named =
        |number: f32| run(&table(number), Some(one), 12, true).1.iter().map(Option::is_some).collect::<Vec<_>>();
    assert_eq!(named(3e38), [[true; 8].to_vec(), vec![false; 4]].concat());
    // Data are tested without a limit.
    assert_eq!(named(f32::NAN), [true; 12]);
    let mut data = table(0.0);
    let Store::Memory(values) = &mut data.train.features else { panic!("a table in memory") };
    values.as_chunks_mut::<4>().0.iter_mut().for_each(|value| *value = 3e38f32.to_le_bytes());
    let (_, found) = run(&data, Some(one), 3, true);
    assert!(found.iter().all(Option::is_none), "{found:?}");
}

#[test]
fn recordings_that_are_too_short_are_found_by_their_lengths() {
    let data = Speech::with_short_recordings(0);
    let is_short = |index: usize| {
        let letters: Vec<u32> = data.train[index].text.chars().map(u32::from).collect();
        data.train[index].frames.div_ceil(4) < Ctc::least_frames(&letters)
    };
    let begun = SpeechTraining::new(&data, settings(Net::ConvCtc, 64), 0).expect("a task");
    let mut training = training(begun, "fp32", None);
    let mut skipped = 0;
    for _ in 0..6 {
        training.task.seek(training.position);
        let mut expected: Vec<usize> = training.task.draw_samples().iter().map(|sample| sample.index).collect();
        expected.retain(|&index| is_short(index));
        expected.sort_unstable();
        training.task.seek(training.position);
        training.ahead = None;
        let outcome = training.step().expect("a step");
        let found = training.unusable.as_ref().map_or(Vec::new(), |found| found.indices.clone());
        assert_eq!(found, expected.iter().map(|&index| index as u64).collect::<Vec<_>>());
        assert_eq!(outcome.skipped.is_some(), !found.is_empty());
        skipped += usize::from(outcome.skipped.is_some());
    }
    assert!(skipped > 0, "a batch of 64 has a short one in most cases");
}

/// Returns the losses of the samples of the first batch, and the loss of the step on that batch.
fn alone_and_together<T: TrainingTask>(begun: (T, Parameters, Optimizer)) -> (Vec<f32>, f32) {
    let mut training = training(begun, "fp32", None);
    let samples = training.task.draw_samples();
    training.task.seek(0);
    let alone = samples.iter().map(|&sample| training.task.sample_loss(&mut training.trainer, sample).expect("a loss"));
    (alone.collect(), training.step().expect("a step").loss)
}

/// A loss that is a mean over samples is the mean of what they have alone, so the search evaluates the samples of the
/// step.
#[test]
fn losses_alone_are_those_of_the_batch() {
    let data = table(0.5);
    let rows = alone_and_together(ClassifyTraining::new(&data, settings(Net::Mlp, 8), 3).expect("a task"));
    let reading = DataOptions { window: Some(8), ..DataOptions::default() };
    let text = Corpus::synthetic(0, &reading).expect("a text");
    let windows = alone_and_together(LanguageTraining::new(&text, settings(Net::Decoder, 4), 3).expect("a task"));
    for ((alone, together), count) in [(rows, 8), (windows, 4)] {
        assert_eq!(alone.len(), count);
        let mean = alone.iter().sum::<f32>() / count as f32;
        assert!((mean - together).abs() < 1e-4 * together, "{mean} and {together}: {alone:?}");
    }
}

/// Losses of other networks depend on the batch, for example by padding; those of their samples are at least numbers.
#[test]
fn samples_of_other_tasks_have_losses() {
    let scenes = Segmentation::synthetic(0);
    let (scene, _) =
        alone_and_together(SegnetTraining::new(&scenes, settings(Net::SegnetBasic, 2), 0).expect("a task"));
    let sentences = Parallel::synthetic(0, &DataOptions::default()).expect("sentences");
    let begun = TranslateTraining::new(&sentences, settings(Net::Seq2Seq1, 4), 0).expect("a task");
    let (sentence, _) = alone_and_together(begun);
    let pictures = Boxed::synthetic(0, &DataOptions::default());
    let begun = DetectTraining::<Multibox>::new(&pictures, settings(Net::Ssd300, 2), 0).expect("a task");
    let (boxes, _) = alone_and_together(begun);
    let begun = DetectTraining::<Proposing>::new(&pictures, settings(Net::FasterRcnn, 1), 0).expect("a task");
    let (regions, _) = alone_and_together(begun);
    let recordings = Speech::with_short_recordings(1);
    let begun = SpeechTraining::new(&recordings, settings(Net::ConvCtc, 4), 3).expect("a task");
    let (words, _) = alone_and_together(begun);
    for (losses, count) in [(scene, 2), (sentence, 4), (boxes, 2), (regions, 1), (words, 4)] {
        assert!(losses.len() == count && losses.iter().all(|loss| loss.is_finite() && *loss > 0.0), "{losses:?}");
    }
}

#[test]
fn details_name_source_and_number() {
    let samples = |indices: &[u64], source: Option<&str>| UnusableSamples {
        indices: indices.to_vec(),
        source: source.map(str::to_owned),
        batch: 64,
        test: SampleTest::Data,
    };
    assert_eq!(samples(&[5], None).details(), "");
    assert_eq!(samples(&[5], Some("b/00017.png")).details(), "; sample 5 is b/00017.png");
    assert_eq!(samples(&[5, 9], None).details(), "; sample 5 is the first of 2 such samples in this batch of 64");
    assert_eq!(
        samples(&[5, 9, 12], Some("t.csv, line 7")).details(),
        "; sample 5 is t.csv, line 7, the first of 3 such samples in this batch of 64"
    );
}
