//! Recurrent layers over time, in addition to the comparison with PyTorch in golden.rs: lengths, states, sites, errors.

use crate::graph::values;
use gradscale::{
    Cpu, Input, Method, Parameters, Trainer, Var,
    gradscale_core::amp::{AmpPolicy, Level},
    nn::{Gru, Linear, Lstm, Module},
    optim::Sgd,
};
use std::collections::{BTreeMap, BTreeSet};

const N: usize = 3;
const STEPS: usize = 5;
const INPUTS: usize = 2;
const HIDDEN: usize = 4;

fn device(parameters: Parameters, threads: usize, method: &str) -> Trainer<Cpu> {
    let device = Cpu::new(threads).expect("a CPU");
    Trainer::new(device, parameters, Sgd::new(0.1), method.parse().expect("a method")).expect("a trainer")
}

fn lstm(both: bool) -> (Parameters, Lstm) {
    let mut parameters = Parameters::seeded(5);
    let mut scope = parameters.at("rnn");
    let net = if both {
        Lstm::bidirectional(&mut scope, INPUTS, HIDDEN, 2)
    } else {
        Lstm::new(&mut scope, INPUTS, HIDDEN, 2)
    };
    (parameters, net)
}

/// y, h and c of a sequence, and the gradients of all parameters.
fn run(both: bool, x: &[f32], lengths: Option<&[u32]>, threads: usize) -> BTreeMap<String, Vec<f32>> {
    let (parameters, net) = lstm(both);
    let names: Vec<String> = parameters.names().map(str::to_owned).collect();
    let mut trainer = device(parameters, threads, "fp32");
    let all = [STEPS as u32; N];
    let batch = [Input::f32([N, STEPS, INPUTS], x), Input::u32([N], lengths.unwrap_or(&all))];
    let gradients = trainer.backward(batch, |[x, lens]| {
        let (y, [h, c]) = net.sequence(x, None, lengths.map(|_| lens));
        let _ = (y.output("y"), h.output("h"), c.output("c"));
        y.square().sum() + h.sum() + c.square().sum()
    });
    let gradients = gradients.expect("it fits");
    let mut found = BTreeMap::new();
    for name in ["y", "h", "c"] {
        found.insert(name.to_owned(), trainer.output(name).expect("an output").data);
    }
    for name in names {
        let gradient = trainer.gradient(&gradients, &name).expect("a parameter").expect("its gradient");
        found.insert(name, gradient.data);
    }
    found
}

const LENGTHS: [u32; N] = [2, 5, 0];

/// No result depends on values after the end of a sequence, not in a single bit, even if they are NaN or ∞.
#[test]
fn what_stands_behind_the_end_is_never_looked_at() {
    let x = values(1, N * STEPS * INPUTS);
    for both in [false, true] {
        let right = run(both, &x, Some(&LENGTHS), 1);
        assert!(right.values().flatten().all(|value| value.is_finite()));
        for other in [f32::NAN, f32::INFINITY, -7.5] {
            let mut changed = x.clone();
            for (i, row) in changed.chunks_mut(INPUTS).enumerate() {
                if i % STEPS >= LENGTHS[i / STEPS] as usize {
                    row.fill(other);
                }
            }
            assert_eq!(run(both, &changed, Some(&LENGTHS), 1), right, "{other}");
        }
        // On any number of threads.
        assert_eq!(run(both, &x, Some(&LENGTHS), 3), right);
    }
}

/// In forward direction a length does not change earlier results. The last state is that of the last step, and a
/// sequence without steps keeps its initial state.
#[test]
fn a_state_stands_still_behind_the_end() {
    let x = values(2, N * STEPS * INPUTS);
    let (full, some) = (run(false, &x, None, 1), run(false, &x, Some(&LENGTHS), 1));
    for (i, &len) in LENGTHS.iter().enumerate() {
        let row = |all: &BTreeMap<String, Vec<f32>>, step: usize| {
            let start = (i * STEPS + step) * HIDDEN;
            all["y"][start..start + HIDDEN].to_vec()
        };
        for step in 0..STEPS {
            let right = if step < len as usize { row(&full, step) } else { vec![0.0; HIDDEN] };
            assert_eq!(row(&some, step), right, "sequence {i}, step {step}");
        }
        // h is [layers, n, hidden]; the last layer's.
        let last = &some["h"][(N + i) * HIDDEN..][..HIDDEN];
        let right = if len == 0 { vec![0.0; HIDDEN] } else { row(&full, len as usize - 1) };
        assert_eq!(last, right, "sequence {i}");
    }
    // With the full length in all sequences, the results are those without lengths.
    assert_eq!(run(true, &x, Some(&[STEPS as u32; N]), 1)["y"], run(true, &x, None, 1)["y"]);
}

/// A long sequence in two parts, with the state carried through the step's outputs.
#[test]
fn a_state_is_carried_from_step_to_step() {
    let mut parameters = Parameters::seeded(5);
    let net = Gru::new(&mut parameters.at("rnn"), INPUTS, HIDDEN, 2);
    let mut trainer = Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(0.0), Method::fp32()).expect("it");
    let x = values(3, 6 * INPUTS);
    let whole = trainer.evaluate([Input::f32([1, 6, INPUTS], &x)], |[x]| net.forward(x)).expect("it fits").data;
    let mut state = vec![0.0; 2 * HIDDEN];
    let mut found = Vec::new();
    for part in x.chunks(2 * INPUTS) {
        let batch = [Input::f32([1, 2, INPUTS], part), Input::f32([2, 1, HIDDEN], &state)];
        let gradients = trainer.backward(batch, |[x, h]| {
            let (y, h) = net.sequence(x, Some(h), None);
            let _ = h.output("h");
            y.output("y").square().mean()
        });
        trainer.step(gradients.expect("it fits")).expect("a step");
        found.extend(trainer.output("y").expect("y").data);
        state = trainer.output("h").expect("h").data;
    }
    assert_eq!(found.len(), whole.len());
    assert!(found.iter().zip(&whole).all(|(one, two)| (one - two).abs() < 1e-6), "{found:?} {whole:?}");
}

/// Gradients of all parameters after some steps that change nothing. The first outputs count most, so that gradients of
/// steps differ.
fn gradients(lstm: bool, method: &str) -> Vec<Vec<f32>> {
    let mut parameters = Parameters::seeded(6);
    let mut scope = parameters.at("rnn");
    let net: Box<dyn Module> = if lstm {
        Box::new(Lstm::bidirectional(&mut scope, INPUTS, HIDDEN, 2))
    } else {
        Box::new(Gru::bidirectional(&mut scope, INPUTS, HIDDEN, 2))
    };
    let names: Vec<String> = parameters.names().map(str::to_owned).collect();
    let method = method.parse().expect("a method");
    let mut trainer = Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(0.0), method).expect("a trainer");
    let (x, weights) = (values(8, N * STEPS * INPUTS), [64.0, 1.0, 1.0, 1.0, 0.125].map(|weight| [weight; 2 * HIDDEN]));
    let weights = weights.as_flattened().repeat(N);
    let mut all = Vec::new();
    for _ in 0..6 {
        let batch = [Input::f32([N, STEPS, INPUTS], &x), Input::f32([N, STEPS, 2 * HIDDEN], &weights)];
        let found =
            trainer.backward(batch, |[x, weights]| (net.forward(x).square() * weights).mean()).expect("it fits");
        let gradient = |name: &String| trainer.gradient(&found, name).expect("a parameter").expect("its gradient").data;
        all = names.iter().map(gradient).collect();
        trainer.step(found).expect("a step");
    }
    all
}

/// Steps pass gradients at different exponents to tensors of all steps. Measured: 1.4e-3 of the largest gradient of a
/// parameter.
#[test]
fn gradients_of_steps_have_one_exponent() {
    for lstm in [true, false] {
        let right = gradients(lstm, "fp32");
        for method in ["gs", "gs:calls=each"] {
            let found = gradients(lstm, method);
            let worst = found.iter().zip(&right).map(|(found, right)| {
                let largest = right.iter().fold(0f32, |largest, x| largest.max(x.abs()));
                found.iter().zip(right).fold(0f32, |worst, (a, b)| worst.max((a - b).abs() / largest))
            });
            let worst = worst.fold(0f32, f32::max);
            println!("LSTM {lstm}, {method}: {worst:.1e}");
            assert!(worst < 5e-3, "LSTM {lstm}, {method}: {worst}");
        }
    }
}

/// Trains two layers in both directions on sequences of unlike lengths: first and last loss, names of all sites.
fn train(method: &Method, steps: usize, updates: usize) -> (f32, f32, BTreeSet<String>) {
    let mut parameters = Parameters::seeded(2);
    let net = Lstm::bidirectional(&mut parameters.at("rnn"), INPUTS, HIDDEN, 2);
    let head = Linear::new(&mut parameters.at("head"), 2 * HIDDEN, 2);
    let optimizer = Sgd { momentum: 0.9, ..Sgd::new(0.2) };
    let mut trainer = Trainer::new(Cpu::new(1).expect("a CPU"), parameters, optimizer, method.clone()).expect("it");
    let x: Vec<f32> = values(9, N * 12 * INPUTS)[..N * steps * INPUTS].to_vec();
    let lengths = [steps as u32, 2, 3];
    let labels: Vec<u8> = x.chunks(INPUTS).map(|x| u8::from(x[0] > x[1])).collect();
    let mut losses = Vec::new();
    for _ in 0..updates {
        let batch = [Input::f32([N, steps, INPUTS], &x), Input::u32([N], &lengths), Input::u8([N, steps, 1], &labels)];
        let gradients = trainer.backward(batch, |[x, lengths, labels]| {
            let (y, _) = net.sequence(x, None, Some(lengths));
            head.forward(y).cross_entropy(labels)
        });
        let outcome = trainer.step(gradients.expect("it fits")).expect("a step");
        assert_eq!(outcome.skipped, None, "{method}");
        losses.push(outcome.loss);
    }
    let sites = trainer.sites().map(|site| site.name.to_owned()).collect();
    (losses[0], losses[updates - 1], sites)
}

#[test]
fn trains_by_every_method() {
    let scaled = ["gs", "gs:calls=each", "gs:paper", "gs:paper,calls=each", "gs:authors", "gs:history=0"];
    let methods = ["fp32", "fp16", "fixed:128", "dynamic"].into_iter().chain(scaled);
    for (name, level) in methods.flat_map(|name| [(name, Level::O1), (name, Level::O2)]) {
        let method: Method = name.parse().expect("a method");
        let method = if name == "fp32" { method } else { method.with_amp(AmpPolicy::new(level)) };
        let (first, last, _) = train(&method, 4, 40);
        println!("{name} {level:?}: {first} {last}");
        assert!(last < 0.8 * first, "{name} {level:?}: {first} {last}");
    }
}

/// All steps share the layer's sites, so longer sequences have as many. With `calls=each` each step has its own.
#[test]
fn sites_of_a_layer_do_not_count_its_steps() {
    for level in [Level::O1, Level::O2] {
        let method = |text: &str| text.parse::<Method>().expect("a method").with_amp(AmpPolicy::new(level));
        let (_, _, short) = train(&method("gs"), 4, 3);
        let (_, _, long) = train(&method("gs"), 11, 3);
        assert_eq!(short, long, "{level:?}");
        assert!(
            ["rnn.l0.hh/dgrad", "rnn.l1_reverse.hh/dgrad", "rnn.l1.ih/dgrad"].iter().all(|name| long.contains(*name))
        );
        let of_layer = long.iter().filter(|name| name.starts_with("rnn.")).count();
        assert!(of_layer + 4 >= long.len(), "{long:?}");
        let (_, _, each) = train(&method("gs:calls=each"), 4, 3);
        assert!(each.contains("rnn.l0.hh/dgrad@3") && !each.contains("rnn.l0.hh/dgrad@4"), "{each:?}");
        let (_, _, paper) = train(&method("gs:paper,calls=each"), 4, 3);
        assert_eq!(each, paper);
    }
}

#[test]
fn what_does_not_fit() {
    let (parameters, net) = lstm(true);
    let mut trainer = device(parameters, 1, "fp32");
    let x = vec![0.5; N * STEPS * INPUTS];
    let state = vec![0.0; 4 * N * HIDDEN];
    let mut said = |shape: [usize; 4], state_of: [usize; 3], lengths: Input<'_>| {
        let batch = [Input::f32(shape, &x), Input::f32(state_of, &state), lengths];
        let y = trainer.evaluate(batch, |[x, state, lengths]| net.sequence(x, Some([state; 2]), Some(lengths)).0);
        y.map(|y| y.shape.sizes()).map_err(|error| error.to_string())
    };
    let (shape, state) = ([N, 1, STEPS, INPUTS], [4, N, HIDDEN]);
    assert_eq!(said(shape, state, Input::u8([N], &[1, 5, 0])), Ok([N, 1, STEPS, 2 * HIDDEN]));
    let refused = |words: &str| Err(words.to_owned());
    assert_eq!(
        said(shape, state, Input::u32([N], &[1, 6, 0])),
        refused("rnn.inputs: sequence 1 of the batch has length 6, but there are 5 steps")
    );
    assert_eq!(
        said(shape, state, Input::f32([N], &[1.0; N])),
        refused("rnn.inputs: lengths must be u8 or u32, not f32")
    );
    assert_eq!(said(shape, state, Input::u8([2], &[1, 1])), refused("rnn.inputs: lengths [2, 1], expected [3, 1]"));
    assert_eq!(
        said([N, STEPS, 1, INPUTS], state, Input::u8([N], &[1; N])),
        refused("rnn: a sequence must be n × 1 × t × inputs with at least one step, not 3×5×1×2")
    );
    assert_eq!(
        said([N, 1, INPUTS, STEPS], state, Input::u8([N], &[1; N])),
        refused("Linear rnn.l0.ih: input [3, 1, 2, 5], expected [_, _, _, 2] (n, h, w, c)")
    );
    assert_eq!(
        said(shape, [2, 2 * N, HIDDEN], Input::u8([N], &[1; N])),
        refused("rnn: state [2, 1, 6, 4], expected [4, 1, 3, 4] (n, h, w, c)")
    );
    let mut parameters = Parameters::seeded(5);
    let none = Gru::new(&mut parameters.at("rnn"), INPUTS, HIDDEN, 0);
    let error = device(parameters, 1, "fp32").evaluate([Input::f32([1, 1, 2], &[0.5; 2])], |[x]| none.forward(x));
    assert_eq!(error.expect_err("no layers").to_string(), "rnn: a recurrent network needs at least one layer");
}

/// Zeros in the place of a state are those that a batch could bring.
#[test]
fn a_state_of_zeros() {
    let (parameters, net) = lstm(false);
    let mut trainer = device(parameters, 1, "gs");
    let (x, zero) = (values(4, N * STEPS * INPUTS), [0.0; 2 * N * HIDDEN]);
    let batch = [Input::f32([N, STEPS, INPUTS], &x), Input::f32([2, N, HIDDEN], &zero)];
    let given = trainer.evaluate(batch, |[x, zero]| net.sequence(x, Some([zero; 2]), None).0).expect("it fits");
    let own = trainer.evaluate([batch[0]], |[x]| net.forward(x)).expect("it fits");
    assert_eq!(own, given);
    let zeros = trainer.evaluate([batch[0]], |[x]| x.tape().zeros([2, 3])).expect("it fits");
    assert_eq!((zeros.shape.sizes(), zeros.data), ([2, 1, 1, 3], vec![0.0; 6]));
    let error = trainer.evaluate([batch[0]], |[x]| x.tape().zeros([1 << 20, 1 << 20])).expect_err("too many");
    assert!(error.to_string().starts_with("zeros: "), "{error}");
}

/// Selecting single positions gives the gradient of slices: the same in f32, also for positions that are never read.
/// Its memory grows linearly with the length, while that of slices grows quadratically.
#[test]
fn places_one_by_one() {
    let gradient = |method: &str, steps: usize, unbind: bool, every: usize| {
        let mut parameters = Parameters::seeded(5);
        let net = Linear::new(&mut parameters.at("net"), INPUTS, 2);
        let mut trainer = device(parameters, 1, method);
        let x: Vec<f32> = values(6, 480)[..steps * INPUTS].to_vec();
        let gradients = trainer.backward([Input::f32([1, steps, INPUTS], &x)], |[x]| {
            let y = net.forward(x);
            let places = if unbind { y.unbind(2) } else { (0..steps).map(|step| y.slice(2, step, 1)).collect() };
            let read: Vec<Var<'_>> = places.into_iter().step_by(every).map(Var::tanh).collect();
            read[1..].iter().fold(read[0], |sum, place| sum * 0.5 + *place * read[0]).sum()
        });
        let gradients = gradients.expect("it fits");
        let found = trainer.gradient(&gradients, "net.weight").expect("a parameter").expect("its gradient").data;
        (found, trainer.memory().activations)
    };
    for every in [1, 3] {
        let right = gradient("fp32", 10, false, every).0;
        let found = gradient("fp32", 10, true, every).0;
        assert!(
            right.iter().zip(&found).all(|(one, two)| (one - two).abs() <= 1e-6 * one.abs()),
            "{right:?} {found:?}"
        );
    }
    let [short, long] = [60, 240].map(|steps| gradient("gs", steps, true, 1).1);
    assert!(long < 5 * short, "{short} {long}");
    let [short, long] = [60, 240].map(|steps| gradient("gs", steps, false, 1).1);
    assert!(long > 6 * short, "slices: {short} {long}");
}
