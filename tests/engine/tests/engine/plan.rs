//! The plan that is printed before training, and the record on the tape.

use crate::{operators, run::Run};
use gradscale::{
    Cpu, Input, Layers, Method, Parameters, PlanRow, Trainer, Var,
    gradscale_core::{
        amp::{AmpPolicy, Level, List, Precision},
        backend::DType,
        ops::Op,
    },
    models::{Mlp, SegNet},
    nn::{
        BatchNorm, Conv2d, ConvTranspose2d, Embedding, GroupNorm, GruCell, LayerNorm, LstmCell, Module, RmsNorm,
        SelfAttention,
    },
    optim::Sgd,
};

/// Rows of the plan against those of the run. Single numbers are f32 under every policy.
fn same(plan: &[PlanRow], ran: &[PlanRow], single: impl Fn(&PlanRow) -> bool) {
    assert!(!plan.is_empty());
    assert_eq!(plan.len(), ran.len());
    for (plan, ran) in plan.iter().zip(ran) {
        assert_eq!((&plan.name, plan.op, plan.precision), (&ran.name, ran.op, ran.precision));
        let half = plan.precision == Precision::Half && !single(plan);
        assert_eq!(ran.stored == Some(DType::F16), half, "{} is {:?}, but {}", plan.name, ran.stored, plan);
    }
}

/// The mean at the end of a loss of several operators.
const LOSS: &str = "the loss";

fn is_number(row: &PlanRow) -> bool {
    matches!(row.op, Op::CrossEntropy | Op::Mean | Op::Sum) || row.name == LOSS
}

/// A network under a policy: plan, run, compare.
fn check<const N: usize>(
    policy: &AmpPolicy, parameters: Parameters, batch: [Input<'_>; N], net: impl for<'t> Fn([Var<'t>; N]) -> Var<'t>,
) -> Vec<PlanRow> {
    let method = Method::mixed().with_amp(policy.clone());
    let mut trainer = Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(0.0), method).expect("a trainer");
    let plan = trainer.plan(batch, &net).expect("it fits");
    let gradients = trainer.backward(batch, &net).expect("it fits");
    let ran = trainer.ran(&gradients).expect("just run").to_vec();
    same(&plan, &ran, is_number);
    plan
}

fn mlp(policy: &AmpPolicy) -> Vec<PlanRow> {
    let mut parameters = Parameters::seeded(1);
    let net = Mlp::new(&mut parameters.at("net"), &[4, 8, 3]);
    let (x, labels) = ([0.5; 20], [0u8; 5]);
    let batch = [Input::f32([5, 4], &x), Input::u8([5], &labels)];
    check(policy, parameters, batch, |[x, labels]| net.forward(x).cross_entropy(labels))
}

fn segnet(policy: &AmpPolicy) -> Vec<PlanRow> {
    let mut parameters = Parameters::seeded(1);
    let net = SegNet::new(&mut parameters.at("net"), 3, 4, 3);
    // Bytes, as images come.
    let x: Vec<u8> = (0..2 * 16 * 17 * 3).map(|i| (i * 37 % 251) as u8).collect();
    let labels = vec![1u8; 2 * 16 * 17];
    let batch = [Input::u8([2, 16, 17, 3], &x), Input::u8([2, 16, 17, 1], &labels)];
    check(policy, parameters, batch, |[x, labels]| net.forward(x).cross_entropy(labels))
}

/// Norms, concatenation, exp.
fn mixture(policy: &AmpPolicy) -> Vec<PlanRow> {
    let mut parameters = Parameters::seeded(1);
    let mut scope = parameters.at("net");
    let conv = Conv2d::new(&mut scope.at("conv"), 3, 4, 3);
    let batch_norm = BatchNorm::new(&mut scope.at("bn"), 4);
    let group_norm = GroupNorm::new(&mut scope.at("gn"), 4, 2);
    let head = Conv2d::new(&mut scope.at("head"), 8, 3, 1);
    let x: Vec<f32> = (0..2 * 5 * 6 * 3).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect();
    let batch = [Input::f32([2, 5, 6, 3], &x), Input::f32([2, 5, 6, 4], &[0.25; 240])];
    check(policy, parameters, batch, |[x, more]| {
        let y = batch_norm.forward(conv.forward(x)).relu();
        let z = group_norm.forward(y).affine(0.125, 0.0).exp();
        let both = y.concat(&[z], 3).concat(&[(y + more)], 3).slice(3, 2, 8);
        let pooled = head.forward(both).tanh().average_pool([2, 2]).flatten();
        pooled.square().mean()
    })
}

fn all(policy: &AmpPolicy) -> [Vec<PlanRow>; 3] {
    [mlp(policy), segnet(policy), mixture(policy)]
}

#[test]
fn plan_is_what_the_tape_records() {
    for level in Level::ALL {
        let plans = all(&AmpPolicy::new(level));
        for row in plans.iter().flatten() {
            match level {
                Level::O0 => assert_eq!(row.precision, Precision::Single, "{row}"),
                Level::O3 => assert_eq!(row.precision, Precision::Half, "{row}"),
                _ if matches!(row.op, Op::Linear | Op::Conv) => assert_eq!(row.precision, Precision::Half, "{row}"),
                _ if matches!(row.op, Op::Exp | Op::Mean | Op::Pow | Op::CrossEntropy) => {
                    assert_eq!(row.precision, Precision::Single, "{row}");
                }
                _ => {}
            }
        }
    }
}

/// Another list for one operator changes plan and tape alike.
#[test]
fn an_override_changes_both() {
    let ops = [Op::Relu, Op::BatchNorm, Op::MaxPool, Op::Conv, Op::Concat, Op::Exp, Op::Tanh, Op::Add, Op::Linear];
    for op in ops {
        for list in [List::Allow, List::Deny] {
            for level in [Level::O1, Level::O2] {
                let mut policy = AmpPolicy::new(level);
                policy.set(op, list).unwrap();
                let precision = if list == List::Allow { Precision::Half } else { Precision::Single };
                let plans = all(&policy);
                assert!(plans.iter().flatten().filter(|row| row.op == op).all(|row| row.precision == precision));
                assert!(plans.iter().flatten().any(|row| row.op == op), "{op} is nowhere");
            }
        }
    }
}

#[test]

fn a_reshape_denied_is_stored_as_planned() {
    let mut policy = AmpPolicy::new(Level::O1);
    policy.set(Op::Reshape, List::Deny).unwrap();
    mixture(&policy);
}

/// Recurrent cells, attention, a table, and images of another size, as layers.
fn sequence(policy: &AmpPolicy) -> Vec<PlanRow> {
    let mut parameters = Parameters::seeded(1);
    let mut scope = parameters.at("net");
    let tokens = Embedding::new(&mut scope.at("tokens"), 9, 4);
    let (one, two) = (LayerNorm::new(&mut scope.at("one"), 4), RmsNorm::new(&mut scope.at("two"), 4));
    let attention = SelfAttention::new(&mut scope.at("attention"), 4, 2).causal();
    let (lstm, gru) = (LstmCell::new(&mut scope.at("lstm"), 4, 3), GruCell::new(&mut scope.at("gru"), 3, 3));
    let up = ConvTranspose2d::new(&mut scope.at("up"), 3, 2, 3).stride(2);
    let batch = [Input::u32([2, 3], &[0, 8, 8, 3, 1, 5]), Input::f32([2, 3], &[0.0; 6])];
    check(policy, parameters, batch, |[indices, zero]| {
        let x = one.forward(tokens.forward(indices));
        let x = two.forward(x + attention.forward(x));
        let (mut state, mut h) = ([zero; 2], zero);
        for step in 0..3 {
            state = lstm.forward(x.slice(2, step, 1), state);
            h = gru.forward(state[0], h);
        }
        let image = up.forward((h + state[1]).reshape([1, 2, 1, 3])).upsample_bilinear([7, 5], false);
        let y = image.adaptive_average_pool([3, 2]).adaptive_max_pool([2, 1]);
        y.bce_with_logits(zero.slice(3, 0, 2).reshape([1, 2, 1, 2])).named(LOSS)
    })
}

#[test]
fn layers_of_sequences() {
    for level in Level::ALL {
        let plan = sequence(&AmpPolicy::new(level));
        let of = |op: Op| plan.iter().filter(|row| row.op == op).map(|row| row.precision).collect::<Vec<_>>();
        let mixed = |usual| match level {
            Level::O0 => Precision::Single,
            Level::O3 => Precision::Half,
            _ => usual,
        };
        for op in [Op::Recurrent, Op::BatchedMatmul, Op::ConvTranspose, Op::Linear] {
            assert!(!of(op).is_empty() && of(op).iter().all(|&is| is == mixed(Precision::Half)), "{op}");
        }
        for op in [Op::Softmax, Op::BinaryCrossEntropy] {
            assert!(!of(op).is_empty() && of(op).iter().all(|&is| is == mixed(Precision::Single)), "{op}");
        }
        // A table is stored as parameters are, and the type of its rows is theirs.
        let parameters = if matches!(level, Level::O0 | Level::O1) { Precision::Single } else { Precision::Half };
        assert_eq!(of(Op::Embedding), [parameters]);
        assert_eq!(of(Op::LayerNorm), [parameters]);
    }
}

/// Indices are integers, so a list that requires halves casts only the table.
#[test]
fn indices_are_not_cast() {
    let mut policy = AmpPolicy::new(Level::O1);
    policy.set(Op::Embedding, List::Allow).unwrap();
    let plan = sequence(&policy);
    let row = plan.iter().find(|row| row.op == Op::Embedding).unwrap();
    assert_eq!((row.precision, row.casts), (Precision::Half, 1));
}

/// Every operator of the engine, each in its small graph.
#[test]
fn plan_of_every_operator() {
    for level in Level::ALL {
        for (_, graph) in operators::all() {
            let method = Method::mixed().with_amp(AmpPolicy::new(level));
            let mut run = Run::new(Cpu::new(1).unwrap(), &graph, Sgd::new(0.0).into(), &method);
            let plan = run.plan();
            let gradients = run.backward().unwrap();
            let number = |row: &PlanRow| {
                let node = graph.nodes.iter().position(|node| node.name == row.name);
                node.map_or_else(|| is_number(row), |id| graph.eval(&graph.first()).0[id].data.len() == 1)
            };
            same(&plan, run.trainer.ran(&gradients).unwrap(), number);
        }
    }
}

/// Layers with a precision set by name: the plan and the executed operators agree, forward and backward, and other
/// layers do not change.
#[test]
fn layers_have_a_precision_of_their_own() {
    let run = |layers: &[(&str, Precision)], level| {
        let mut exceptions = Layers::none();
        layers.iter().for_each(|(layer, precision)| exceptions.set(layer, *precision));
        let method = Method::mixed().with_amp(AmpPolicy::new(level)).with_layers(exceptions);
        let mut parameters = Parameters::seeded(1);
        let net = SegNet::new(&mut parameters.at("net"), 3, 2, 4);
        let mut trainer = Trainer::new(Cpu::new(1).unwrap(), parameters, Sgd::new(0.1), method).unwrap();
        let (images, labels) = ([7; 2 * 16 * 16 * 3], [1; 2 * 16 * 16]);
        let batch = [Input::u8([2, 16, 16, 3], &images), Input::u8([2, 16, 16, 1], &labels)];
        let plan = trainer.plan(batch, |[x, labels]| net.forward(x).cross_entropy(labels)).unwrap();
        let gradients = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels)).unwrap();
        same(&plan, trainer.ran(&gradients).unwrap(), is_number);
        let outcome = trainer.step(gradients).unwrap();
        assert!(outcome.skipped.is_none() && outcome.loss.is_finite());
        let sites: Vec<String> = trainer.sites().map(|site| site.name.to_owned()).collect();
        (plan, sites)
    };
    for level in [Level::O1, Level::O2] {
        let (plain, _) = run(&[], level);
        let encoder = ("net.encoder", Precision::Single);
        let (plan, sites) = run(&[encoder, ("net.encoder.conv2", Precision::Half)], level);
        let mut changed = 0;
        for (row, plain) in plan.iter().zip(&plain) {
            let precision = match (row.is_of("net.encoder.conv2"), row.is_of("net.encoder")) {
                (true, _) => Precision::Half,
                (false, true) => Precision::Single,
                // The consumer's precision depends on the type that it reads.
                (false, false) => row.precision,
            };
            assert_eq!(row.precision, precision, "{}", row.name);
            changed += usize::from(row.precision != plain.precision);
        }
        assert!(changed >= 6, "{level:?}: {changed}");
        assert!(!sites.iter().any(|site| site.starts_with("net.encoder.conv1/dgrad")), "{sites:?}");
        assert_eq!(plan.iter().find(|row| row.op == Op::CrossEntropy).unwrap().precision, Precision::Single);
    }
    // At these levels everything has one type, whatever the layer options are.
    for (level, precision) in [(Level::O0, Precision::Single), (Level::O3, Precision::Half)] {
        let (plan, _) = run(&[("net.encoder", Precision::Single), ("net.decoder", Precision::Half)], level);
        assert!(plan.iter().all(|row| row.precision == precision));
    }
}
