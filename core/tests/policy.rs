//! Tests of the precision of each operator, of its casts, and of the rules for scales.

mod common;

use Precision::{Half, Single};
use common::pow2;
use core::str::FromStr;
use gradscale_core::{
    amp::{AmpPolicy, Full, Input, Level, List, MAX_INPUTS, Node, OVERRIDES, PlanError, Planned, Precision, plan},
    gradient_rules::{branch_paper, parameter_gradient, split_paper, sum},
    ops::{GradientFlow, Op, UnknownOp},
    scaled::Scaled,
};
use proptest::{collection::vec, prelude::*};

const PRODUCTS: [Op; 6] = [Op::Matmul, Op::Linear, Op::BatchedMatmul, Op::Conv, Op::ConvTranspose, Op::Recurrent];
const LOSSES: [Op; 7] =
    [Op::CrossEntropy, Op::CtcLoss, Op::BinaryCrossEntropy, Op::MseLoss, Op::L1Loss, Op::SmoothL1Loss, Op::FocalLoss];
const NORMALISATIONS: [Op; 5] = [Op::BatchNorm, Op::LayerNorm, Op::GroupNorm, Op::RmsNorm, Op::LocalResponseNorm];
const LARGE: [Op; 10] =
    [Op::Exp, Op::Log, Op::Pow, Op::Sqrt, Op::Sum, Op::Mean, Op::Cumsum, Op::Norm, Op::Softmax, Op::LogSoftmax];
const INFERRED: [Op; 9] = [Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Neg, Op::Relu, Op::MaxPool, Op::Concat, Op::Reshape];

#[test]
fn the_lists_are_the_specs() {
    for level in [Level::O1, Level::O2] {
        let policy = AmpPolicy::new(level);
        for inputs in [&[Half, Half][..], &[Half, Single], &[Single, Single]] {
            let widest = if inputs.contains(&Single) { Single } else { Half };
            for (ops, want) in [(&PRODUCTS[..], Half), (&LARGE, Single), (&LOSSES, Single), (&INFERRED, widest)] {
                for &op in ops {
                    assert_eq!(policy.precision(op, inputs), want, "{op} under {level:?} with {inputs:?}");
                }
            }
        }
        for op in NORMALISATIONS {
            assert_eq!(policy.precision(op, &[Half]), Half, "{op}: half in and out");
        }
    }
    // No other operator has a forced type.
    for &op in Op::ALL {
        let list = AmpPolicy::new(Level::O1).list(op);
        assert_eq!(list == List::Allow, PRODUCTS.contains(&op), "{op}");
        assert_eq!(list == List::Deny, LARGE.contains(&op) || LOSSES.contains(&op), "{op}");
        assert_eq!(list == List::Inside, NORMALISATIONS.contains(&op), "{op}");
    }
}

#[test]
fn levels_say_what_is_stored() {
    for &op in Op::ALL {
        for inputs in [[Half, Half], [Half, Single], [Single, Single]] {
            assert_eq!(AmpPolicy::new(Level::O0).precision(op, &inputs), Single);
            assert_eq!(AmpPolicy::new(Level::O3).precision(op, &inputs), Half);
        }
    }
    let settings = Level::ALL.map(|level| level.settings());
    assert_eq!(settings.map(|s| s.parameters), [Single, Single, Half, Half]);
    assert_eq!(settings.map(|s| s.data), [Single, Single, Half, Half]);
    assert_eq!(settings.map(|s| s.masters), [false, false, true, false]);
    assert_eq!(settings.map(|s| s.scaling), [false, true, true, false]);
}

#[test]
fn users_move_operators_between_lists() {
    let mut policy = AmpPolicy::new(Level::O1);
    policy.set(Op::Softmax, List::Allow).expect("room");
    policy.set(Op::Conv, List::Deny).expect("room");
    policy.set(Op::Softmax, List::Infer).expect("a second change of one operator takes no room");
    assert_eq!(policy.precision(Op::Softmax, &[Half]), Half);
    assert_eq!(policy.precision(Op::Conv, &[Half, Half]), Single);
    assert_eq!(policy.precision(Op::Linear, &[Single]), Half, "the others stay");
    // Under O0 and O3 there is one type.
    let mut plain = AmpPolicy::new(Level::O3);
    plain.set(Op::Conv, List::Deny).expect("room");
    assert_eq!(plain.precision(Op::Conv, &[Half]), Half);
    // A full policy returns an error and remains unchanged.
    let mut full = AmpPolicy::new(Level::O1);
    for &op in &Op::ALL[..OVERRIDES] {
        full.set(op, List::Deny).expect("room");
    }
    assert_eq!(full.set(Op::ALL[OVERRIDES], List::Deny), Err(Full));
    assert_eq!(full.set(Op::ALL[0], List::Allow), Ok(()));
}

fn node<'a>(name: &'a str, op: Op, inputs: &'a [Input]) -> Node<'a> {
    Node { name, op, inputs }
}

fn planned(level: Level, nodes: &[Node<'_>]) -> Vec<(Precision, Vec<bool>)> {
    let mut rows = vec![Planned::default(); nodes.len()];
    plan(&AmpPolicy::new(level), nodes, &mut rows).expect("in order");
    let casts = |(row, node): (&Planned, &Node<'_>)| (0..node.inputs.len()).map(|i| row.is_cast(i)).collect();
    rows.iter().zip(nodes).map(|(row, node)| (row.precision.expect("planned"), casts((row, node)))).collect()
}

/// conv → norm → relu → conv, added to the first convolution's output, then a classifier and its loss.
const RESIDUAL: [(&str, Op, &[Input]); 8] = [
    ("stem", Op::Conv, &[Input::Data, Input::Parameter]),
    ("norm", Op::LayerNorm, &[Input::Node(0)]),
    ("relu", Op::Relu, &[Input::Node(1)]),
    ("conv", Op::Conv, &[Input::Node(2), Input::Parameter]),
    ("residual", Op::Add, &[Input::Node(3), Input::Node(0)]),
    ("classifier", Op::Linear, &[Input::Node(4), Input::Parameter]),
    ("softmax", Op::Softmax, &[Input::Node(5)]),
    ("loss", Op::CrossEntropy, &[Input::Node(6)]),
];

#[test]
fn a_residual_network_is_planned() {
    let nodes = RESIDUAL.map(|(name, op, inputs)| node(name, op, inputs));
    let precisions = |level| planned(level, &nodes).into_iter().map(|row| row.0).collect::<Vec<_>>();
    let casts = |level| planned(level, &nodes).into_iter().map(|row| row.1).collect::<Vec<_>>();
    let mixed = [Half, Half, Half, Half, Half, Half, Single, Single];
    // O1: f32 data and parameters are cast for products in half, and the logits for the softmax.
    assert_eq!(precisions(Level::O1), mixed);
    let (no, yes) = (vec![false], vec![true]);
    let (both, second) = (vec![true, true], vec![false, true]);
    let neither = vec![false, false];
    let none = [&neither, &no, &no, &neither, &neither, &neither, &no, &no].map(Clone::clone);
    assert_eq!(casts(Level::O1), [&both, &no, &no, &second, &neither, &second, &yes, &no].map(Clone::clone));
    // O2: all values are half from the start, so only the logits are cast.
    assert_eq!(precisions(Level::O2), mixed);
    assert_eq!(casts(Level::O2), [&neither, &no, &no, &neither, &neither, &neither, &yes, &no].map(Clone::clone));
    // O0 and O3 cast nothing.
    for (level, all) in [(Level::O0, Single), (Level::O3, Half)] {
        assert_eq!((precisions(level), casts(level)), (vec![all; 8], none.to_vec()));
    }
    // With different types the widest wins: a residual in f32 causes the half branch to be cast to f32.
    let nodes = [
        node("conv", Op::Conv, &[Input::Data, Input::Parameter]),
        node("sum", Op::Add, &[Input::Node(0), Input::Data]),
        node("again", Op::Conv, &[Input::Node(1), Input::Parameter]),
    ];
    assert_eq!(planned(Level::O1, &nodes), [(Half, both.clone()), (Single, vec![true, false]), (Half, both)]);
}

/// "Normalisations (half in and out, f32 inside)": their scale and shift, f32 under O1, do not make them f32.
#[test]
fn a_normalisation_with_parameters_stays_half() {
    let nodes = [
        node("conv", Op::Conv, &[Input::Data, Input::Parameter]),
        node("norm", Op::BatchNorm, &[Input::Node(0), Input::Parameter, Input::Parameter]),
        node("relu", Op::Relu, &[Input::Node(1)]),
    ];
    let rows = planned(Level::O1, &nodes);
    assert_eq!((rows[1].0, rows[2].0), (Half, Half));
    assert!(!rows[1].1[0], "what comes in as half is read as half");
}

#[test]
fn networks_that_cannot_be_planned_are_typed_errors() {
    let policy = AmpPolicy::new(Level::O1);
    let own = [node("loop", Op::Add, &[Input::Data, Input::Node(0)])];
    assert_eq!(plan(&policy, &own, &mut [Planned::default()]), Err(PlanError::Order { node: 0 }));
    let late = [node("early", Op::Relu, &[Input::Node(1)]), node("late", Op::Relu, &[Input::Data])];
    assert_eq!(plan(&policy, &late, &mut [Planned::default(); 2]), Err(PlanError::Order { node: 0 }));
    assert_eq!(plan(&policy, &late, &mut [Planned::default()]), Err(PlanError::Space { nodes: 2, rows: 1 }));
    let (most, more) = ([Input::Data; MAX_INPUTS], [Input::Data; MAX_INPUTS + 1]);
    assert_eq!(plan(&policy, &[node("most", Op::Concat, &most)], &mut [Planned::default()]), Ok(()));
    let wide = plan(&policy, &[node("more", Op::Concat, &more)], &mut [Planned::default()]);
    assert_eq!(wide, Err(PlanError::Inputs { node: 0 }));
}

#[test]
fn names_are_read_as_they_are_written() {
    for &op in Op::ALL {
        assert_eq!(Op::from_str(op.name()), Ok(op));
        assert_eq!(op.to_string().parse(), Ok(op));
        assert_eq!(Op::ALL.iter().filter(|other| other.name() == op.name()).count(), 1);
    }
    for unknown in ["", "Conv", "conv2d", " conv"] {
        assert_eq!(Op::from_str(unknown), Err(UnknownOp));
    }
}

#[test]
fn every_operator_has_the_specs_rule_for_its_scale() {
    let site = [Op::Cast, Op::Split, Op::AveragePool, Op::MaxPoolOverlapping, Op::Dropout, Op::Gelu, Op::Sigmoid];
    let pass = [Op::Concat, Op::Relu, Op::MaxPool, Op::Unpool, Op::Reshape, Op::Transpose, Op::Slice];
    for op in PRODUCTS.into_iter().chain(NORMALISATIONS).chain(site).chain([Op::Interpolate, Op::Scale]) {
        assert_eq!(op.flow(), GradientFlow::Cast, "{op}");
    }
    for op in pass {
        assert_eq!(op.flow(), GradientFlow::PassThrough, "{op}");
    }
    for op in LOSSES {
        assert_eq!(op.flow(), GradientFlow::Loss, "{op}");
    }
    assert_eq!(Op::Embedding.flow(), GradientFlow::None);
    for alpha in [-40, 0, 32, 300] {
        let want = if alpha > 200 { 0.0 } else { common::narrow(pow2(-alpha)) };
        common::assert_bits(parameter_gradient(alpha).apply(1.0), want, "f32 at exponent 0");
    }
}

fn parts() -> impl Strategy<Value = Vec<Scaled<f32>>> {
    let amax = prop_oneof![1 => Just(0.0), 6 => (-30f32..15.9).prop_map(f32::exp2)];
    vec((amax, -40..40i32).prop_map(|(amax, alpha)| Scaled::new(amax, alpha)), 0..6)
}

fn truth(part: &Scaled<f32>) -> f64 {
    f64::from(part.data) * pow2(-part.alpha)
}

proptest! {
    #![proptest_config(common::cases(512))]

    /// Branches: this project uses the largest exponent of the parts and reports the loss of a sum; the paper's rule
    /// uses the largest under which every part stays below λ_max. The paper's splits use the exponent of the part with
    /// the largest true magnitude.
    #[test]
    fn parts_come_together_by_the_rules(parts in parts()) {
        let live: Vec<_> = parts.iter().filter(|part| part.data > 0.0).collect();
        let got = sum(&parts);
        prop_assert_eq!(got.map(|sum| sum.alpha), live.iter().map(|part| part.alpha).max());
        if let Some(got) = got {
            let most = live.iter().map(|part| truth(part)).fold(0.0, f64::max);
            let least = live.iter().map(|part| truth(part)).fold(f64::INFINITY, f64::min);
            prop_assert_eq!(got.absorbs, most / least > pow2(24));
        }
        let fits = |alpha: i32| parts.iter().all(|part| truth(part) * pow2(alpha) < 65504.0);
        let mut exponents: Vec<i32> = parts.iter().map(|part| part.alpha).collect();
        exponents.sort_unstable();
        prop_assert_eq!(branch_paper(&parts), exponents.iter().rev().copied().find(|&alpha| fits(alpha)));
        if !live.is_empty() {
            let most = live.iter().map(|part| truth(part)).fold(0.0, f64::max);
            let alpha = split_paper(&parts).expect("parts");
            prop_assert!(live.iter().any(|part| part.alpha == alpha && truth(part).to_bits() == most.to_bits()));
        }
    }
}

/// Exponents far outside f32 compare like the true magnitudes.
#[test]
fn parts_of_any_exponent_are_compared() {
    let far = [Scaled::new(1f32, i32::MIN), Scaled::new(1f32, i32::MAX)];
    assert_eq!(sum(&far).map(|sum| (sum.alpha, sum.absorbs)), Some((i32::MAX, true)));
    assert_eq!(split_paper(&far), Some(i32::MIN));
    let edge = |k: i32| sum(&[Scaled::new(1f32, 500), Scaled::new(1f32, 500 + k)]).map(|sum| sum.absorbs);
    assert_eq!((edge(24), edge(25), edge(-24), edge(-25)), (Some(false), Some(true), Some(false), Some(true)));
    assert_eq!((sum(&[]), branch_paper(&[]), split_paper(&[])), (None, None, None));
    assert_eq!(branch_paper(&[Scaled::new(65504f32, 3)]), None, "λ_max itself does not fit");
    assert_eq!(
        branch_paper(&[Scaled::new(40000f32, 0), Scaled::new(40000f32, 0)]),
        Some(0),
        "though the sum overflows"
    );
}
