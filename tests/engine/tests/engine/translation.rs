//! Operators of translation networks against PyTorch (`tests/golden/translation.py`).

use crate::{
    corners::trainer,
    speech::{Case, distance, floats, table, words},
};
use gradscale::{
    Cpu, CrossEntropy, Init, Input, Method, Parameter, Parameters, TorchModule, Trainer, Var,
    gradscale_core::{amp::Level, ops::Divisor},
    models::{Encoded, Seq2Seq},
    optim::Sgd,
};
use safetensors::{Dtype, tensor::TensorView};
use std::collections::BTreeMap;

const TABLE: &str = include_str!("../../../golden/translation.txt");

fn networks() -> impl Iterator<Item = (usize, Case)> {
    let text = TABLE.split_once("\nbleu ").expect("scores behind networks").0;
    let all = table(text).into_iter();
    all.map(|(name, case)| (name.strip_prefix("seq2seq ").and_then(|layers| layers.parse().ok()).expect(name), case))
}

/// The network of a case, with the values of its `state_dict`.
fn network(layers: usize, case: &Case) -> (Trainer<Cpu>, Seq2Seq) {
    let mut parameters = Parameters::seeded(1);
    let [[source, units], [target, _]] = ["source.weight", "target.weight"].map(|key| {
        let [rows, width] = case[key].0[..] else { panic!("{key}: two sizes") };
        [rows, width]
    });
    let net = Seq2Seq::new(&mut parameters.at("net"), [source, target], units, layers);
    // The tensors in PyTorch's file format.
    let saved: BTreeMap<&str, (&Vec<usize>, Vec<u8>)> = case
        .keys()
        .filter(|key| case.contains_key(&format!("gradient.{key}")[..]))
        .map(|&key| (key, (&case[key].0, floats(case, key).iter().flat_map(|x| x.to_le_bytes()).collect())))
        .collect();
    let views = saved
        .iter()
        .map(|(&key, (shape, bytes))| (key, TensorView::new(Dtype::F32, (*shape).clone(), bytes).expect("a tensor")));
    let file = safetensors::serialize(views, None).expect("a file");
    let module = |layer: &str| Some(TorchModule::named(layer.strip_prefix("net.")?));
    let imported = parameters.import_torch(&file, module).expect("values of these shapes");
    assert!(imported.is_complete(), "{imported}");
    (trainer(parameters, "fp32"), net)
}

struct Batch {
    n: usize,
    source: Vec<u32>,
    lengths: Vec<u32>,
    target: Vec<u32>,
    labels: Vec<u32>,
}

impl Batch {
    fn of(case: &Case) -> Self {
        let [source, lengths, target, labels] = ["source", "lengths", "target", "labels"].map(|key| words(case, key));
        Self { n: lengths.len(), source, lengths, target, labels }
    }

    fn inputs(&self) -> [Input<'_>; 4] {
        let wide = |words: &'_ [u32]| words.len() / self.n;
        let two = |words| Input::u32([self.n, wide(words)], words);
        [two(&self.source), Input::u32([self.n], &self.lengths), two(&self.target), two(&self.labels)]
    }
}

fn loss<'t>(net: &Seq2Seq, [source, lengths, target, labels]: [Var<'t>; 4]) -> Var<'t> {
    let counted = CrossEntropy { ignore: Some(0), divisor: Divisor::Rows, weights: None };
    net.logits(source, lengths, target).output("y").cross_entropy_with(labels, &counted)
}

#[test]
fn forward_values_and_gradients_of_one_three_and_five_layers() {
    let mut seen = Vec::new();
    for (layers, case) in networks() {
        let (mut trainer, net) = network(layers, &case);
        let batch = Batch::of(&case);
        let gradients = trainer.backward(batch.inputs(), |all| loss(&net, all)).expect("it fits");
        let y = trainer.output("y").expect("named").data;
        let mut found = BTreeMap::new();
        for key in case.keys().filter_map(|key| key.strip_prefix("gradient.")) {
            let gradient = trainer.gradient(&gradients, &format!("net.{key}")).expect("a parameter");
            found.insert(key, gradient.expect("a gradient").data);
        }
        let far = distance(&y, &floats(&case, "y"));
        println!("{layers} layers, y: {far:.1e}");
        assert!(far < 1e-5, "{layers} layers: {far:e}");
        for (key, gradient) in &found {
            let far = distance(gradient, &floats(&case, &format!("gradient.{key}")));
            println!("{layers} layers, {key}: {far:.1e}");
            assert!(far < 1e-5, "{layers} layers, {key}: {far:e}");
        }
        let found = trainer.step(gradients).expect("a step").loss;
        assert!(distance(&[found], &floats(&case, "loss")) < 1e-6, "{layers} layers: {found}");
        seen.push(layers);
    }
    assert_eq!(seen, [1, 3, 5]);
}

/// Values after a source's end change no bit, and a source without padding gives the same results.
#[test]
fn padding_is_not_looked_at() {
    let (layers, case) = networks().nth(1).expect("three layers");
    let (mut trainer, net) = network(layers, &case);
    let batch = Batch::of(&case);
    let mut run = |batch: &Batch| {
        let [source, lengths, target, _] = batch.inputs();
        let logits = trainer
            .evaluate([source, lengths, target], |[source, lengths, target]| net.logits(source, lengths, target));
        logits.expect("it fits").data
    };
    let y = run(&batch);
    let mut other = Batch { source: batch.source.clone(), ..Batch::of(&case) };
    let wide = batch.source.len() / batch.n;
    for (i, word) in other.source.iter_mut().enumerate() {
        if i % wide >= batch.lengths[i / wide] as usize {
            *word = 6;
        }
    }
    assert_ne!(other.source, batch.source);
    assert_eq!(run(&other), y);
    let t = batch.target.len() / batch.n;
    for i in 0..batch.n {
        let len = batch.lengths[i] as usize;
        let alone = Batch {
            n: 1,
            source: batch.source[i * wide..i * wide + len].to_vec(),
            lengths: vec![batch.lengths[i]],
            target: batch.target[i * t..(i + 1) * t].to_vec(),
            labels: Vec::new(),
        };
        let each = y.len() / batch.n;
        let far = distance(&run(&alone), &y[i * each..(i + 1) * each]);
        assert!(far < 1e-6, "sequence {i}: {far:e}");
    }
}

/// Decoding word by word, from the state after the last word, gives the logits of all words in one pass.
#[test]
fn one_word_at_a_time() {
    for (layers, case) in networks() {
        let (mut trainer, net) = network(layers, &case);
        let batch = Batch::of(&case);
        let [source, lengths, ..] = batch.inputs();
        let whole = floats(&case, "y");
        let (n, t) = (batch.n, batch.target.len() / batch.n);
        let memory = trainer
            .evaluate([source, lengths], |[source, lengths]| {
                let Encoded { memory, state: [h, c], .. } = net.encode(source, lengths);
                let _ = (h.output("h"), c.output("c"));
                memory
            })
            .expect("it fits");
        for step in 0..t {
            let state = ["h", "c"].map(|name| trainer.output(name).expect("named"));
            let word: Vec<u32> = (0..n).map(|i| batch.target[i * t + step]).collect();
            let inputs = [
                Input::u32([n, 1], &word),
                Input::f32(memory.shape, &memory.data),
                lengths,
                Input::f32(state[0].shape, &state[0].data),
                Input::f32(state[1].shape, &state[1].data),
            ];
            let logits = trainer.evaluate(inputs, |[word, memory, lengths, h, c]| {
                let (logits, Encoded { state: [h, c], .. }) =
                    net.decode(word, Encoded { memory, lengths, state: [h, c] });
                let _ = (h.output("h"), c.output("c"));
                logits
            });
            let logits = logits.expect("it fits").data;
            let all = logits.len() / n;
            let right: Vec<f32> = (0..n).flat_map(|i| whole[(i * t + step) * all..][..all].to_vec()).collect();
            let far = distance(&logits, &right);
            assert!(far < 1e-5, "{layers} layers, word {step}: {far:e}");
        }
    }
}

#[test]
fn a_length_beyond_the_places() {
    let (layers, case) = networks().next().expect("one layer");
    let (mut trainer, net) = network(layers, &case);
    let batch = Batch { lengths: vec![5, 6, 3], ..Batch::of(&case) };
    let error = trainer.backward(batch.inputs(), |all| loss(&net, all)).expect_err("six of five");
    assert!(error.to_string().contains("sequence 1 of the batch has length 6, but there are 5 steps"), "{error}");
    let scores = [Input::f32([2, 1, 2, 3], &[0.5; 12]), Input::u32([2], &[3, 4])];
    let error =
        trainer.evaluate(scores, |[scores, lengths]| scores.softmax_within(lengths)).expect_err("four of three");
    assert!(error.to_string().contains("sequence 1 of the batch has length 4, but there are 3 steps"), "{error}");
    let scores = [Input::f32([2, 1, 2, 3], &[0.5; 12]), Input::u32([3], &[3, 1, 1])];
    assert!(trainer.evaluate(scores, |[scores, lengths]| scores.softmax_within(lengths)).is_err());
}

fn weights<'t>(scores: &Parameter, lengths: Var<'t>) -> Var<'t> {
    lengths.tape().parameter(scores).softmax_within(lengths)
}

/// Each row is a softmax over its sequence's places, all others are 0, and so are their gradients; at every level.
#[test]
fn a_softmax_within_the_ends() {
    let (lengths, each) = ([4usize, 2], 2 * 3);
    let x: Vec<f32> = (0..2 * each * 4).map(|i| (i * 29 % 41) as f32 / 5.0 - 4.0).collect();
    let t: Vec<f32> = (0..2 * each * 4).map(|i| (i * 17 % 23) as f32 / 11.0 - 1.0).collect();
    let (mut y, mut gradient) = (vec![0f64; x.len()], vec![0f64; x.len()]);
    for row in 0..2 * each {
        let seen = row * 4..row * 4 + lengths[row / each];
        let sum: f64 = x[seen.clone()].iter().map(|&x| f64::from(x).exp()).sum();
        seen.clone().for_each(|i| y[i] = f64::from(x[i]).exp() / sum);
        let mean: f64 = seen.clone().map(|i| y[i] * f64::from(t[i])).sum();
        seen.for_each(|i| gradient[i] = y[i] * (f64::from(t[i]) - mean));
    }
    for (level, bound) in [(Level::O0, 1e-6), (Level::O1, 1e-6), (Level::O2, 2e-3), (Level::O3, 2e-3)] {
        let mut parameters = Parameters::seeded(1);
        let scores = parameters.at("in").weight("x", [2, 2, 3, 4], Init::Constant(0.0));
        let method: Method = "fixed:8".parse().expect("a method");
        let device = Cpu::new(1).expect("a CPU");
        let mut trainer = Trainer::new(device, parameters, Sgd::new(0.1), method.with_level(level)).expect("a trainer");
        trainer.set_parameter("in.x", &x).expect("a parameter of that size");
        let batch = || [Input::u32([2], &[4, 2]), Input::f32([2, 2, 3, 4], &t)];
        let found = trainer.evaluate(batch(), |[lengths, _]| weights(&scores, lengths)).expect("it fits").data;
        let gradients =
            trainer.backward(batch(), |[lengths, t]| (weights(&scores, lengths) * t).sum()).expect("it fits");
        let found_gradient = trainer.gradient(&gradients, "in.x").expect("a parameter").expect("a gradient").data;
        for (what, found, right) in [("y", found, &y), ("gradient", found_gradient, &gradient)] {
            let right: Vec<f32> = right.iter().map(|&x| x as f32).collect();
            let far = distance(&found, &right);
            assert!(far < bound, "{level:?} {what}: {far:e}");
            assert!(found.iter().zip(&right).all(|(&found, &right)| right != 0.0 || found == 0.0), "{level:?} {what}");
        }
    }
}
