//! Functions that a device would call, each separate so that it can be found in the binary and its instructions
//! counted.

use crate::inputs;
use gradscale_core::{
    cast::{self, Round, SliceError, Tally},
    format::Format,
    gradient_rules,
    loss_scale::{Feedback, LossScale, StateError},
    model::terms::{ConvShape, Terms, TermsError},
    ops::{At, Unary},
    scale::Factor,
    scaled::Scaled,
    site::{Site, SiteOutcome},
    solve::{Authors, Choice, Exact, NoDecision, Operand, Paper},
    stats::{Convention, MergeError, RowError, Stats, WORDS},
};
use half::f16;

/// Probe of FP16 stores: rounds an f32 gradient `v` to halves `y`, to nearest even.
#[inline(never)]
pub fn store(v: &[f32], y: &mut [f16]) -> Result<Tally, SliceError> {
    cast::f16_slice_from_f32(v, y, Round::NearestEven)
}

/// Rounds to any format with any rounding mode, so that no constant simplifies the code.
#[inline(never)]
pub fn encode(format: Format, v: &[f32], y: &mut [u16], round: Round) -> Result<Tally, SliceError> {
    cast::encode_slice(format, v, y, round)
}

/// Probe of stochastic rounding: rounds like [`encode`], with a random number for each element.
#[inline(never)]
pub fn dither(format: Format, v: &[f32], y: &mut [u16], seed: u32) -> Result<Tally, SliceError> {
    let mut k = seed;
    cast::encode_slice_stochastic(format, v, y, || {
        k = k.wrapping_add(1);
        inputs::random(k)
    })
}

/// Probe of FP16 loads: converts halves `y` to f32 `v`.
#[inline(never)]
pub fn load(y: &[f16], v: &mut [f32]) -> Result<(), SliceError> {
    cast::f16_slice_to_f32(y, v)
}

/// Probe of rescaling: multiplies the values `v` by the factor between two exponents.
#[inline(never)]
pub fn rescale(v: &mut [f32], from: i32, to: i32) {
    let factor = Factor::between(from, to);
    // The length is hidden from the optimizer, also with link-time optimisation.
    #[cfg(feature = "planted-panic")]
    core::hint::black_box(v[3]);
    for v in v {
        *v = factor.apply(*v);
    }
}

/// Probe of statistics: adds the values `u` to a statistics row.
#[inline(never)]
pub fn observe(row: &mut Stats, u: &[f32]) {
    row.observe(u);
}

/// Probe of statistics: merges a statistics row with another.
#[inline(never)]
pub fn merge(row: &mut Stats, other: &Stats) -> Result<(), MergeError> {
    *row = row.merge(other)?;
    Ok(())
}

/// Probe of statistics: converts a statistics row to the words that are sent between ranks.
#[inline(never)]
pub fn send(row: &Stats) -> [u32; WORDS] {
    row.to_words()
}

/// Probe of statistics: converts received words to a statistics row.
#[inline(never)]
pub fn receive(words: &[u32], convention: Convention, exponent: i32) -> Result<Stats, RowError> {
    Stats::from_words(words, convention, exponent)
}

/// Probe of the default rule of gradient scaling: returns its decision from a statistics row.
#[inline(never)]
pub fn decide(exact: &Exact, row: &Stats) -> Result<Choice, NoDecision> {
    exact.decide(row)
}

/// Runs a step of a site: its request, a decision inside the step, and the row of the step.
#[inline(never)]
pub fn step(site: &mut Site, row: &Stats, end: SiteOutcome) -> Option<i32> {
    if site.request().at_once {
        site.decide(site.exact(row), row.exponent());
    }
    site.finish(row, end);
    site.alpha()
}

/// Runs a step of a loss-scale schedule, saves and restores it, and returns its exponent.
#[inline(never)]
pub fn schedule(scale: &mut LossScale, feedback: &Feedback) -> Result<i32, StateError> {
    scale.update(feedback);
    *scale = LossScale::from_words(&scale.to_words())?;
    Ok(scale.exponent())
}

/// Decides by the paper's rules, whose models need logarithms and the error function in f64.
#[inline(never)]
pub fn decide_by_models(gamma: f64, row: &Stats, w: &Stats, terms: Terms) -> Result<[Choice; 5], NoDecision> {
    // No caller passes a threshold outside (0, 1).
    let (Ok(paper), Ok(authors)) = (Paper::new(gamma), Authors::new(gamma)) else { return Err(NoDecision::Empty) };
    let (dy, w) = (Operand::from_row(row)?, Operand::from_row(w)?);
    Ok([
        paper.product(&dy, &w, terms)?,
        paper.softmax_cast(row)?,
        paper.other_cast(row)?,
        authors.product(&dy, &w, terms, row.exponent())?,
        authors.softmax_cast(row)?,
    ])
}

/// Probe of element-wise operators: computes the forward result and the gradient of one element.
#[inline(never)]
pub fn operator(op: Unary, x: f32, dy: f32, at: At) -> [f32; 2] {
    [op.eval(x, at), op.vjp(x, dy, at)]
}

/// Probe of Theorem 1: computes the numbers of products summed in a convolution's result and gradients.
#[inline(never)]
pub fn terms(shape: ConvShape) -> Result<Terms, TermsError> {
    Terms::conv(shape)
}

/// Probe of the rules for a branch: computes the exponent of its gradients' sum by three rules.
#[inline(never)]
pub fn branch(parts: &[Scaled<f32>]) -> [Option<i32>; 3] {
    [
        gradient_rules::sum(parts).map(|sum| sum.alpha),
        gradient_rules::branch_paper(parts),
        gradient_rules::split_paper(parts),
    ]
}
