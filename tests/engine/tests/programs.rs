//! Programs that are compiled once: they have the bits of closures in all their uses; invalid uses are errors; programs
//! that are not used for long are evicted with their constants.

use gradscale::{
    Cpu, Error, Gradients, Init, Input, InputType, Method, Parameters, Pass, Program, ProgramKind, Trainer,
    TrainerOptions, Var,
    gradscale_core::backend::Backend,
    nn::{BatchNorm, Linear, Module},
    optim::{Adam, Optimizer, Sgd},
};
use gradscale_conformance::Recorder;
use std::collections::BTreeMap;

const WIDTH: usize = 6;

struct Net {
    one: Linear,
    norm: BatchNorm,
    two: Linear,
}

impl Net {
    fn logits<'t>(&self, x: Var<'t>) -> Var<'t> {
        let x = self.norm.forward(self.one.forward(x)).tanh();
        // A softmax over the places before each, and this one.
        let mixed = x.matmul_transposed(x).causal_softmax().matmul(x) + x;
        self.two.forward(mixed.dropout(0.1).output("mixed"))
    }

    fn loss<'t>(&self, [x, labels, factor]: [Var<'t>; 3]) -> Var<'t> {
        self.logits(x).cross_entropy(labels) * factor
    }
}

fn start<B: Backend>(device: B, optimizer: impl Into<Optimizer>) -> (Trainer<B>, Net) {
    let mut parameters = Parameters::seeded(3);
    let net = Net {
        one: Linear::new(&mut parameters.at("one"), WIDTH, WIDTH),
        norm: BatchNorm::new(&mut parameters.at("norm"), WIDTH),
        two: Linear::new(&mut parameters.at("two"), WIDTH, 3),
    };
    (Trainer::new(device, parameters, optimizer, Method::mixed()).expect("a trainer"), net)
}

fn cpu() -> Cpu {
    Cpu::new(1).expect("a thread")
}

struct Data {
    x: Vec<f32>,
    labels: Vec<u8>,
    factor: [f32; 1],
}

impl Data {
    /// Creates the batch of the i-th step; the seventh has a loss that overflows.
    fn new(i: usize, len: usize) -> Self {
        let x = (0..len * WIDTH).map(|k| ((k + 7 * i) * 37 % 101) as f32 / 50.0 - 1.0).collect();
        let labels = (0..len).map(|k| u8::try_from((k + i) % 3).expect("below 3")).collect();
        Self { x, labels, factor: [if i == 7 { 1e9 } else { 1.0 }] }
    }

    fn batch(&self) -> [Input<'_>; 3] {
        let len = self.labels.len();
        [Input::f32([1, 1, len, WIDTH], &self.x), Input::u8([1, 1, len], &self.labels), Input::f32([1], &self.factor)]
    }
}

fn kinds(len: usize) -> [InputType; 3] {
    [InputType::f32([1, 1, len, WIDTH]), InputType::u8([1, 1, len]), InputType::f32([1])]
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Observable results of a training.
#[derive(Debug, PartialEq)]
struct Seen {
    steps: Vec<(u32, usize)>,
    answers: Vec<Vec<u32>>,
    state: Vec<u8>,
}

/// Runs fourteen steps: with one batch, with two micro-batches of different lengths, and with a prefetched batch;
/// evaluations run in between.
fn train<B: Backend>((trainer, net): (Trainer<B>, Net), compiled: bool) -> Seen {
    let mut trainer = trainer;
    let programs = compiled.then(|| {
        let mut of =
            |len: usize| trainer.compile(ProgramKind::Training, kinds(len), |all| net.loss(all)).expect("it fits");
        let training = [of(5), of(4)];
        let answer = trainer.compile(ProgramKind::Evaluation, [kinds(5)[0]], |[x]| net.logits(x)).expect("it fits");
        (training, answer)
    });
    let (mut steps, mut answers) = (Vec::new(), Vec::new());
    for i in 0..14 {
        let (data, more) = (Data::new(i, 5), Data::new(i + 100, 4));
        let first = |trainer: &mut Trainer<B>| -> Result<Gradients, Error<B::Error>> {
            match (&programs, i % 3 == 2) {
                (Some((training, _)), false) => trainer.backward_compiled(&training[0], data.batch()),
                (Some((training, _)), true) => {
                    let ahead = trainer.prefetch(data.batch())?;
                    trainer.backward_compiled(&training[0], ahead)
                }
                (None, false) => trainer.backward(data.batch(), |all| net.loss(all)),
                (None, true) => {
                    let ahead = trainer.prefetch(data.batch())?;
                    trainer.backward(ahead, |all| net.loss(all))
                }
            }
        };
        let outcome = if i % 2 == 0 {
            trainer.step_with(|trainer| {
                let gradients = first(trainer)?;
                match &programs {
                    Some((training, _)) => {
                        trainer.backward_compiled(&training[1], Pass::new(more.batch()).accumulate(gradients))
                    }
                    None => trainer.backward(Pass::new(more.batch()).accumulate(gradients), |all| net.loss(all)),
                }
            })
        } else {
            let gradients = first(&mut trainer).expect("gradients");
            trainer.step(gradients)
        };
        let outcome = outcome.expect("a step");
        assert_eq!(outcome.skipped, None);
        steps.push((outcome.loss.to_bits(), outcome.repeated.len()));
        answers.push(bits(&trainer.output("mixed").expect("of the step").data));
        let x = data.batch()[0];
        let answer = match &programs {
            Some((_, answer)) => trainer.evaluate_compiled(answer, [x]),
            None => trainer.evaluate([x], |[x]| net.logits(x)),
        };
        answers.push(bits(&answer.expect("an answer").data));
    }
    Seen { steps, answers, state: trainer.save(&BTreeMap::new()).expect("a checkpoint") }
}

#[test]
fn the_same_bits_as_closures() {
    let adam = || Optimizer::from(Adam::new(0.01)).clip_norm(1.0);
    let traced = train(start(cpu(), adam()), false);
    assert!(traced.steps.iter().any(|step| step.1 > 0), "nothing was repeated");
    assert!(train(start(cpu(), adam()), true) == traced, "compiled");
    // There are five programs, so they are evicted repeatedly.
    let (trainer, net) = start(cpu(), adam());
    assert!(train((trainer.with_options(TrainerOptions::new().with_programs(2)), net), true) == traced, "evicted");
    for compiled in [false, true] {
        let recorder = Recorder::new(cpu());
        let repeats = recorder.repeats();
        assert!(train(start(recorder, adam()), compiled) == traced, "recorded");
        assert!(repeats.get() > 20, "{} repeats", repeats.get());
    }
}

#[test]
fn what_cannot_run_says_why() {
    let (mut trainer, net) = start(cpu(), Sgd::new(0.1));
    let (mut other, _) = start(cpu(), Sgd::new(0.1));
    let training = trainer.compile(ProgramKind::Training, kinds(5), |all| net.loss(all)).expect("it fits");
    let second = trainer.compile(ProgramKind::TrainingOf("second"), kinds(5), |all| net.loss(all)).expect("it fits");
    let answer = trainer.compile(ProgramKind::Evaluation, kinds(5), |[x, ..]| net.logits(x)).expect("it fits");
    let (data, short) = (Data::new(0, 5), Data::new(0, 4));
    let refused = |result: Result<Gradients, Error>| result.expect_err("refused").to_string();
    assert_eq!(
        refused(other.backward_compiled(&training, data.batch())),
        "this program is compiled by another trainer; compile it with this one"
    );
    let said = refused(trainer.backward_compiled(&answer, data.batch()));
    assert_eq!(said, "this program is compiled for evaluation; compile it with ProgramKind::Training to train");
    let said = trainer.evaluate_compiled(&training, data.batch()).expect_err("refused").to_string();
    assert_eq!(said, "this program is compiled for training; compile it with ProgramKind::Evaluation to evaluate");
    let said = other.evaluate_compiled(&answer, data.batch()).expect_err("refused").to_string();
    assert_eq!(said, "this program is compiled by another trainer; compile it with this one");
    let said = refused(trainer.backward_compiled(&training, short.batch()));
    assert_eq!(said, "input0: batch [1, 1, 4, 6], expected [1, 1, 5, 6] (n, h, w, c)");
    let [x, _, factor] = data.batch();
    let labels = [0.0; 5];
    let said = refused(trainer.backward_compiled(&training, [x, Input::f32([1, 1, 5], &labels), factor]));
    assert_eq!(said, "input1: the batch of the compiled step must be u8, not f32");
    let said = refused(trainer.backward_compiled(&training, [Input::f32([1, 1, 5, 6], &labels), x, factor]));
    assert_eq!(said, "input0: 5 elements do not fit the shape 1×1×5×6");
    // Labels are checked as in closures.
    let nine = [9u8; 5];
    let said = refused(trainer.backward_compiled(&training, [x, Input::u8([1, 1, 5], &nine), factor]));
    assert!(said.contains("label 0 of the batch is 9"), "{said}");
    let gradients = trainer.backward_compiled(&training, data.batch()).expect("gradients");
    let said = refused(trainer.backward_compiled(&second, Pass::new(data.batch()).accumulate(gradients)));
    assert_eq!(said, "this program is compiled for another loss than the earlier passes of this step");
    // Networks that do not fit are found when they are compiled.
    assert!(matches!(trainer.compile(ProgramKind::Training, kinds(5), |[x, ..]| net.logits(x)), Err(Error::Trace(_))));
    assert!(matches!(
        trainer.compile(ProgramKind::Training, [InputType::f32([1, 2])], |[x]| net.logits(x).sum()),
        Err(Error::Trace(_))
    ));
    // A program that comes between backward and step.
    let gradients = trainer.backward_compiled(&training, data.batch()).expect("gradients");
    let _later: Program<3> = trainer.compile(ProgramKind::Training, kinds(9), |all| net.loss(all)).expect("it fits");
    assert!(matches!(trainer.step(gradients), Err(Error::Gradients)));
    let gradients = trainer.backward_compiled(&training, data.batch()).expect("gradients");
    trainer.step(gradients).expect("a step");
}

/// Networks of one shape that differ by a number, or a name, are not mixed up.
#[test]
fn traces_of_one_hash_are_told_apart() {
    let (mut trainer, _) = start(cpu(), Sgd::new(0.1));
    let x = [1.0, 2.0];
    for _ in 0..2 {
        for factor in [2.0, 3.0, -1.0] {
            let y = trainer.evaluate([Input::f32([2], &x)], |[x]| x * factor).expect("an answer");
            assert_eq!(y.data, [factor, 2.0 * factor]);
        }
        for name in ["one", "other"] {
            trainer.evaluate([Input::f32([2], &x)], |[x]| (x * 2.0).output(name)).expect("an answer");
            assert!(trainer.output(name).is_ok());
        }
    }
}

/// Constants of evicted programs are freed, and created again when the program is used again.
#[test]
fn constants_go_with_their_programs() {
    let train = |limit: Option<u64>, most: usize, recorder: bool| {
        let (trainer, net) = start(Recorder::new(cpu()), Sgd::new(0.1));
        let trainer = trainer.with_options(TrainerOptions::new().with_programs(most).with_recording(recorder));
        let mut trainer = match limit {
            Some(limit) => trainer.with_options(TrainerOptions::new().with_program_bytes(limit)),
            None => trainer,
        };
        let (mut greatest, mut losses) = (0, Vec::new());
        for i in 0..3 * 30 {
            let len = 1 + i * 7 % 30;
            let data = Data::new(0, len);
            // An encoding has a constant of as many numbers as classes, of which three are labels.
            let gradients = trainer.backward(data.batch(), |all| net.loss(all) + all[1].one_hot(len * len + 2).mean());
            let gradients = gradients.expect("gradients");
            losses.push(trainer.step(gradients).expect("a step").loss.to_bits());
            greatest = greatest.max(trainer.memory().constants);
        }
        (losses, greatest, trainer.memory().parameters)
    };
    let (losses, all, parameters) = train(None, 256, true);
    // The classes of each length, f32, and a few numbers of the normalisation.
    let classes: u64 = (1..=30).map(|len| 4 * len * len).sum();
    assert!((classes..classes + 30 * 100).contains(&all), "{all} bytes, classes alone {classes}");
    // Limits: little more than the longest program, nothing but the one in use, and two programs of any length.
    let limit = 4 * 30 * 30 + 200;
    for (limit, most, least) in [(Some(limit), 256, 4 * 30 * 30), (Some(0), 256, 4 * 30 * 30), (None, 2, 4 * 30 * 30)] {
        for recorder in [true, false] {
            let (same, greatest, others) = train(limit, most, recorder);
            assert!(same == losses, "other losses");
            assert!((least..2 * least + 400).contains(&greatest), "{greatest} bytes");
            assert_eq!(others, parameters);
        }
    }
}

/// Results have the type that they have: integers do not come as f32, nor numbers as integers.
#[test]
fn integers_are_integers() {
    let (mut trainer, _) = start(cpu(), Sgd::new(0.1));
    let scores = [0.1, 0.7, 0.2, 0.5, 0.4, 0.1];
    let batch = || [Input::f32([2, 3], &scores)];
    let best = trainer.evaluate_integers(batch(), |[x]| (x.output("scores") * 1.0).argmax().output("best"));
    let best = best.expect("classes");
    assert_eq!((best.shape.sizes(), best.data.as_slice()), ([2, 1, 1, 1], [1, 0].as_slice()));
    assert_eq!(trainer.output_integers("best").expect("classes").data, [1, 0]);
    assert_eq!(trainer.output("scores").expect("numbers").data, scores);
    let said = trainer.output("best").expect_err("integers").to_string();
    assert_eq!(said, "best: what is read as f32 must be f32 or f16, not u32");
    let said = trainer.output_integers("scores").expect_err("numbers").to_string();
    assert_eq!(said, "scores: what is read as integers must be u8 or u32, not f32");
    let said = trainer.evaluate(batch(), |[x]| x.argmax()).expect_err("integers").to_string();
    assert_eq!(said, "argmax: what is read as f32 must be f32 or f16, not u32");
    let said = trainer.evaluate_integers(batch(), |[x]| x.relu()).expect_err("numbers").to_string();
    assert_eq!(said, "relu: what is read as integers must be u8 or u32, not f32");
    let program = trainer.compile(ProgramKind::Evaluation, batch(), |[x]| x.argmax()).expect("it fits");
    assert_eq!(trainer.evaluate_compiled_integers(&program, batch()).expect("classes").data, [1, 0]);
    assert!(trainer.evaluate_compiled(&program, batch()).is_err());
    // Integers that f32 cannot distinguish, and bytes, which are returned unchanged.
    let (large, small) = ([16_777_217, u32::MAX], [0, 255]);
    assert_eq!(trainer.evaluate_integers([Input::u32([2], &large)], |[x]| x).expect("words").data, large);
    assert_eq!(trainer.evaluate_integers([Input::u8([2], &small)], |[x]| x).expect("bytes").data, [0, 255]);
}

/// A network that does not fit takes nothing from those that were compiled before.
#[test]
fn what_does_not_fit_changes_nothing() {
    let (mut trainer, net) = start(cpu(), Sgd::new(0.1));
    let training = trainer.compile(ProgramKind::Training, kinds(5), |all| net.loss(all)).expect("it fits");
    // Sites under another name, and then labels that are no integers.
    let [x, _, factor] = kinds(5);
    let wrong = [x, InputType::f32([1, 1, 5]), factor];
    assert!(matches!(
        trainer.compile(ProgramKind::TrainingOf("other"), wrong, |all| net.loss(all)),
        Err(Error::Trace(_))
    ));
    let gradients = trainer.backward_compiled(&training, Data::new(0, 5).batch()).expect("gradients");
    trainer.step(gradients).expect("a step");
}

/// Outputs of a step are readable until a compiled program may have taken their memory.
#[test]
fn outputs_are_there_or_said_to_be_gone() {
    let (mut trainer, net) = start(cpu(), Sgd::new(0.1));
    let data = Data::new(0, 5);
    let gradients = trainer.backward(data.batch(), |all| net.loss(all)).expect("gradients");
    trainer.step(gradients).expect("a step");
    let mixed = trainer.output("mixed").expect("an output").data;
    trainer.evaluate(Data::new(1, 4).batch(), |[x, ..]| net.one.forward(x)).expect("an answer");
    assert_eq!(bits(&trainer.output("mixed").expect("an output").data), bits(&mixed));
    let _later: Program<3> = trainer.compile(ProgramKind::Training, kinds(9), |all| net.loss(all)).expect("it fits");
    let said = trainer.output("mixed").expect_err("gone").to_string();
    assert_eq!(said, "mixed: is not an output of the last pass");
}

/// Evaluations after a step are programs like others: they go when there are too many.
#[test]
fn evaluations_go_too() {
    let (trainer, net) = start(cpu(), Sgd::new(0.1));
    let mut trainer = trainer.with_options(TrainerOptions::new().with_program_bytes(4 * 30 * 30));
    let gradients = trainer.backward(Data::new(0, 5).batch(), |all| net.loss(all)).expect("gradients");
    trainer.step(gradients).expect("a step");
    for len in 1..=30 {
        trainer.evaluate(Data::new(1, len).batch(), |[x, ..]| net.logits(x)).expect("an answer");
        let constants = trainer.memory().constants;
        assert!(constants < 2 * 4 * 30 * 30, "{constants} bytes after {len}");
    }
    assert!(trainer.output("mixed").is_ok(), "the program of the last step stays");
}

/// A later program needs half copies although it has no site of its own. Existing copies are moved next to them, so
/// that one launch of an update writes all, and recordings are renewed.
#[test]
fn half_copies_that_come_later() {
    let train = |recording: bool, early: bool| {
        let mut parameters = Parameters::seeded(5);
        let weights = ["a", "b"].map(|name| parameters.at(name).weight("w", [1, 1, WIDTH, WIDTH], Init::Constant(0.3)));
        let trainer = Trainer::new(Recorder::new(cpu()), parameters, Adam::new(0.01), Method::mixed());
        let mut trainer = trainer.expect("a trainer").with_options(TrainerOptions::new().with_recording(recording));
        if early {
            let kinds = [InputType::f32([1, 1, 4, WIDTH])];
            let compiled =
                trainer.compile(ProgramKind::Evaluation, kinds, |[x]| x.matmul(x.tape().parameter(&weights[1])).mean());
            compiled.expect("it fits");
        }
        for (i, which) in [0, 0, 0, 0, 1, 1, 0, 0, 1, 1].into_iter().enumerate() {
            let x: Vec<f32> = (0..4 * WIDTH).map(|k| ((k + 7 * i) * 37 % 101) as f32 / 50.0 - 1.0).collect();
            let gradients = trainer.backward([Input::f32([1, 1, 4, WIDTH], &x)], |[x]| {
                x.matmul(x.tape().parameter(&weights[which])).square().mean()
            });
            assert_eq!(trainer.step(gradients.expect("it fits")).expect("a step").skipped, None);
        }
        let all = trainer.parameters().expect("parameters can be read");
        all.into_iter().flat_map(|(_, tensor)| bits(&tensor.data)).collect::<Vec<u32>>()
    };
    let plain = train(false, false);
    assert!(train(true, false) == plain, "recorded, and then others came");
    assert!(train(true, true) == plain, "there from the beginning");
}
