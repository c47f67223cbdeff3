//! Attention in one launch each way: the same sites, fewer launches, less memory, and gradients as with stored scores.

use gradscale::{
    AttentionMask, Cpu, Input, Method, Observation, Parameters, Trainer, Var, forward_sites, gradient_errors,
    gradscale_core::{
        amp::{AmpPolicy, Level},
        backend::Backend,
    },
    nn::{LayerNorm, Linear, Module, SelfAttention},
    optim::Sgd,
};
use gradscale_conformance::Counting;
use std::collections::BTreeSet;

const SHAPE: [usize; 4] = [2, 1, 24, 16];

/// Two blocks of attention.
struct Net {
    attention: Vec<SelfAttention>,
    norms: Vec<LayerNorm>,
    out: Linear,
}

/// Keys that a query attends to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keys {
    All,
    Causal,
    Within,
    Where,
}

impl Net {
    fn new(parameters: &mut Parameters) -> Self {
        let attention =
            (0..2).map(|i| SelfAttention::new(&mut parameters.at(&format!("block{i}.attention")), 16, 2)).collect();
        let norms = (0..2).map(|i| LayerNorm::new(&mut parameters.at(&format!("block{i}.norm")), 16)).collect();
        Self { attention, norms, out: Linear::new(&mut parameters.at("out"), 16, 16) }
    }

    fn loss<'t>(&self, [x, lengths, mask]: [Var<'t>; 3], keys: Keys) -> Var<'t> {
        let block = |x: Var<'t>, (attention, norm): (&SelfAttention, &LayerNorm)| {
            let keys = match keys {
                Keys::All => AttentionMask::None,
                Keys::Causal => AttentionMask::Causal,
                Keys::Within => AttentionMask::Within(lengths),
                Keys::Where => AttentionMask::Where(mask),
            };
            x + attention.masked(norm.forward(x), keys)
        };
        let x = self.attention.iter().zip(&self.norms).fold(x, block);
        self.out.forward(x).square().mean()
    }
}

/// What the steps of a training left behind.
#[derive(Debug)]
struct Run {
    /// Losses of all steps.
    losses: Vec<f32>,
    /// Names of all sites in their order, and log2 of their largest magnitudes.
    sites: Vec<(String, f64)>,
    /// Names of the stores of the forward pass that have counted values.
    forward: Vec<String>,
    /// Names of the operators of the first and of the last step.
    operators: [BTreeSet<&'static str>; 2],
    /// Launches of the last step.
    launches: u64,
    activations: u64,
    parameters: Vec<f32>,
}

fn method(text: &str, level: Level) -> Method {
    text.parse::<Method>().expect("a method").with_amp(AmpPolicy::new(level))
}

fn data() -> (Vec<f32>, [u32; 2], Vec<u8>) {
    let x = (0..SHAPE.iter().product::<usize>()).map(|i| ((i * i) % 37) as f32 / 18.0 - 1.0).collect();
    let mask = (0..2 * 2 * 24 * 24).map(|i| u8::from(i % 3 != 0)).collect();
    (x, [24, 9], mask)
}

fn trainer<B: Backend>(device: B, method: &Method) -> (Net, Trainer<B>) {
    let mut parameters = Parameters::seeded(5);
    let net = Net::new(&mut parameters);
    (net, Trainer::new(device, parameters, Sgd::new(0.05), method.clone()).expect("a trainer"))
}

fn train(device: Counting<Cpu>, method: &Method, keys: Keys, observes: bool) -> Run {
    let (net, mut trainer) = trainer(device, method);
    if observes {
        trainer.observe(Observation::Operands);
    }
    let (x, lengths, mask) = data();
    let (mut losses, mut operators, mut launches) = (Vec::new(), Vec::new(), 0);
    for step in 0..5 {
        trainer.time_launches(step == 0 || step == 3).expect("a clock");
        trainer.device().take();
        let batch = [Input::f32(SHAPE, &x), Input::u32([2], &lengths), Input::u8([2, 2, 24, 24], &mask)];
        let gradients = trainer.backward(batch, |all| net.loss(all, keys)).expect("gradients");
        let outcome = trainer.step(gradients).expect("a step");
        assert!(outcome.skipped.is_none(), "{method:?}: step {step}");
        losses.push(outcome.loss);
        launches = trainer.device().take().operators;
        let times = trainer.launch_times();
        if !times.is_empty() {
            operators.push(times.into_iter().map(|time| time.name).collect());
        }
    }
    let parameters = trainer.parameters().expect("parameters").into_iter().flat_map(|(_, tensor)| tensor.data);
    Run {
        losses,
        sites: trainer.sites().map(|site| (site.name.to_owned(), site.log2_amax.unwrap_or(f64::NAN))).collect(),
        forward: forward_sites(&trainer).map(|site| site.name.to_owned()).collect(),
        operators: operators.try_into().expect("two steps"),
        launches,
        activations: trainer.memory().activations,
        parameters: parameters.collect(),
    }
}

/// Devices with attention in one launch, and without.
fn devices() -> [Counting<Cpu>; 2] {
    let device = || Counting::new(Cpu::new(1).expect("a thread"));
    [device(), device().without_fused_attention()]
}

#[test]
fn sites_do_not_depend_on_the_device() {
    for (text, level) in [
        ("gs", Level::O1),
        ("gs:exact", Level::O2),
        ("gs:paper", Level::O1),
        ("gs:authors", Level::O2),
        ("amax:history=16", Level::O1),
        ("dynamic", Level::O2),
    ] {
        for keys in [Keys::All, Keys::Causal, Keys::Within] {
            let method = method(text, level);
            let [fused, stored] = devices().map(|device| train(device, &method, keys, false));
            let case = format!("{text} {level:?} {keys:?}");
            let names = |run: &Run| run.sites.iter().map(|site| site.0.clone()).collect::<Vec<_>>();
            assert_eq!(names(&fused), names(&stored), "{case}");
            for (fused, stored) in fused.sites.iter().zip(&stored.sites) {
                // Stored gradients of weights have hidden columns, too.
                let less = if fused.0.ends_with(".mix/dgrad") && keys != Keys::All { 2.0 } else { 0.01 };
                let difference = stored.1 - fused.1;
                assert!(-0.01 < difference && difference < less, "{case}: {fused:?}, with stored scores {stored:?}");
            }
            for (fused, stored) in fused.losses.iter().zip(&stored.losses) {
                assert!((fused - stored).abs() <= 2e-3 * stored.abs(), "{case}: loss {fused}, not {stored}");
            }
            for (fused, stored) in fused.parameters.iter().zip(&stored.parameters) {
                assert!((fused - stored).abs() <= 2e-3, "{case}: parameter {fused}, not {stored}");
            }
            let [decides, replays] = &fused.operators;
            assert!(replays.contains("attention") && replays.contains("attention_vjp"), "{case}: {replays:?}");
            assert!(!replays.contains("softmax") && !replays.contains("softmax_vjp"), "{case}: {replays:?}");
            // Sites under a loss scale decide nothing, and those of delayed scaling nothing inside a step.
            let decides_inside = text.starts_with("gs");
            assert_eq!(decides.contains("softmax_vjp"), decides_inside, "{case}: {decides:?}");
            assert!(decides.contains("attention"), "{case}: {decides:?}");
            let stores = |run: &Run, store: &str| run.forward.iter().any(|name| name.ends_with(store));
            assert!(stores(&stored, ".scores/forward") && !stores(&fused, ".scores/forward"), "{case}");
            assert!(stores(&fused, ".mix/forward"), "{case}: {:?}", fused.forward);
            // Three launches forward and five backward of an attention become two; it has at most one cast besides.
            assert!(fused.launches + 2 * 6 <= stored.launches, "{case}: {} of {}", fused.launches, stored.launches);
            assert!(fused.activations < stored.activations, "{case}: {} of {}", fused.activations, stored.activations);
            assert!(stored.operators.iter().all(|operators| !operators.contains("attention")), "{case}");
        }
    }
}

/// Operands of the paper's rules are observed with stored values, in every step.
#[test]
fn operands_are_observed() {
    let method = method("gs", Level::O1);
    let run = train(devices().into_iter().next().expect("a device"), &method, Keys::Causal, true);
    assert!(run.operators.iter().all(|operators| operators.contains("softmax_vjp")), "{:?}", run.operators);
}

/// Programs that have exponents for activations, values of 8 bits, f32, a mask or decisions in every step store scores.
#[test]
fn other_programs_store_scores() {
    for (text, level, keys) in [
        ("gs:forward=on", Level::O2, Keys::All),
        ("gs:format=e5m2", Level::O2, Keys::Causal),
        ("gs:grad=e5m2", Level::O1, Keys::All),
        ("block:format=e4m3,size=16", Level::O2, Keys::All),
        ("fp32", Level::O0, Keys::Causal),
        ("gs", Level::O1, Keys::Where),
        ("amax", Level::O1, Keys::All),
    ] {
        let device = devices().into_iter().next().expect("a device");
        let run = train(device, &method(text, level), keys, false);
        let found = run.operators.iter().any(|operators| operators.contains("attention"));
        assert!(!found, "{text} {level:?} {keys:?}: {:?}", run.operators);
    }
}

/// Against a backward pass in f32, which stores scores.
#[test]
fn gradients_are_those_of_f32() {
    let (x, lengths, mask) = data();
    for keys in [Keys::All, Keys::Causal, Keys::Within] {
        let errors = devices().map(|device| {
            let (net, mut trainer) = trainer(device, &method("gs", Level::O1));
            let mut errors = None;
            for _ in 0..2 {
                errors = gradient_errors(&mut trainer, |trainer| {
                    let batch = [Input::f32(SHAPE, &x), Input::u32([2], &lengths), Input::u8([2, 2, 24, 24], &mask)];
                    let gradients = trainer.backward(batch, |all| net.loss(all, keys))?;
                    Ok::<_, gradscale::Error<_>>(gradients)
                })
                .expect("gradients");
            }
            errors.expect("finite gradients").worst
        });
        let [fused, stored] = errors;
        println!("{keys:?}: largest error {fused:e}, with stored scores {stored:e}");
        assert!(fused < 4e-3 && fused < 2.0 * stored + 1e-4, "{keys:?}: {fused:e}, with stored scores {stored:e}");
    }
}

/// Attention in operators, whose scores or weights may have further uses.
type Operators = for<'t> fn(Var<'t>, &[Linear; 3]) -> Var<'t>;

/// Operators in other orders are fused, too, but not if something else reads scores or weights.
#[test]
fn other_uses_of_scores_and_weights() {
    let networks: [(&str, bool, Operators); 6] = [
        ("the values last", true, |x, [q, k, v]| {
            let weights = q.forward(x).matmul_transposed(k.forward(x)).causal_softmax();
            weights.matmul(v.forward(x))
        }),
        ("keys as values", true, |x, [q, k, _]| {
            let keys = k.forward(x);
            q.forward(x).matmul_transposed(keys).softmax().matmul(keys)
        }),
        ("weights as an output", false, |x, [q, k, v]| {
            q.forward(x).matmul_transposed(k.forward(x)).softmax().output("weights").matmul(v.forward(x))
        }),
        ("weights for two products", false, |x, [q, k, v]| {
            let weights = q.forward(x).matmul_transposed(k.forward(x)).softmax();
            weights.matmul(v.forward(x)) + weights.matmul(k.forward(x))
        }),
        ("scores for a loss", false, |x, [q, k, v]| {
            let scores = q.forward(x).matmul_transposed(k.forward(x));
            scores.softmax().matmul(v.forward(x)) + scores.square().mean()
        }),
        ("values without a gradient", false, |x, [q, k, _]| {
            q.forward(x).matmul_transposed(k.forward(x)).softmax().matmul(x)
        }),
    ];
    let (x, ..) = data();
    for (name, is_fused, network) in networks {
        let runs = devices().map(|device| {
            let mut parameters = Parameters::seeded(7);
            let parts = ["q", "k", "v"].map(|part| Linear::new(&mut parameters.at(part), 16, 16));
            let method = method("gs", Level::O2);
            let mut trainer = Trainer::new(device, parameters, Sgd::new(0.1), method).expect("a trainer");
            let mut losses = Vec::new();
            for _ in 0..4 {
                trainer.time_launches(true).expect("a clock");
                let batch = [Input::f32(SHAPE, &x)];
                let gradients = trainer.backward(batch, |[x]| network(x, &parts).square().mean()).expect("gradients");
                losses.push(trainer.step(gradients).expect("a step").loss);
            }
            let is_fused = trainer.launch_times().iter().any(|time| time.name == "attention_vjp");
            (losses, is_fused)
        });
        let [(fused, found), (stored, _)] = runs;
        assert_eq!(found, is_fused, "{name}");
        for (fused, stored) in fused.iter().zip(&stored) {
            assert!((fused - stored).abs() <= 2e-3 * stored.abs(), "{name}: loss {fused}, not {stored}");
        }
    }
}
