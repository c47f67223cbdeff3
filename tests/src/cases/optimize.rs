//! Updates: each rule against f64, step by step from the values that the device holds, for several parameters in one
//! call.

use super::Case;
use crate::{
    case::{Check, Fail, Measured},
    compare::{Want, compare, same_bits},
    data::{Random, is_small},
    epilogue::stored,
    property::{is_brief, merge},
    rig::{Output, Rig},
};
use gradscale_core::{
    backend::{Backend, DType, Hyperparameter, Launch, Param, UpdateGuard},
    ops::{Optimizer, Rule},
};

/// Hyperparameters; those between hold NaN.
const LR: Hyperparameter = Hyperparameter(5);
const CORRECTIONS: [Hyperparameter; 2] = [Hyperparameter(2), Hyperparameter(7)];
const KEEP: Hyperparameter = Hyperparameter(4);

/// Lengths of parameters that are updated together.
fn lengths() -> Vec<usize> {
    [0, 1, 5, 1000, 70_000].into_iter().filter(|&len| is_small(len)).collect()
}
/// Lengths at and next to the sizes where rows, blocks and workgroups of devices end.
const ODD: [usize; 15] = [3, 4095, 4096, 4097, 31, 32, 33, 127, 128, 129, 255, 257, 16_383, 16_385, 64];

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for (name, setup) in setups() {
        cases.push(Case::new(format!("optimize::{name}"), move |b: &B| follows(b, &setup, &lengths(), false)));
    }
    cases.push(Case::new("optimize::many_parameters", |b: &B| {
        let lengths: Vec<usize> = (0..300).map(|i| i % 9).collect();
        follows(b, &ADAM, &lengths, false)
    }));
    cases.push(Case::new("optimize::nothing", |b: &B| follows(b, &ADAM, &[], false)));
    cases.push(Case::new("optimize::together", together::<B>));
}

/// Update rule, with the change of its numbers from step to step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) rule: Rule,
    pub(super) decay: f32,
    pub(super) max_value: Option<f32>,
    pub(super) max_norm: Option<f32>,
}

const fn sgd(momentum: f32, nesterov: bool) -> Setup {
    Setup { rule: Rule::Sgd { momentum, nesterov }, decay: 0.0, max_value: None, max_norm: None }
}

const fn adam(decoupled: bool) -> Setup {
    let rule = Rule::Adam { beta: [0.9, 0.999], eps: 1e-8, correction: CORRECTIONS, decoupled };
    Setup { rule, ..SGD }
}

pub(super) const SGD: Setup = sgd(0.0, false);
pub(super) const MOMENTUM: Setup = sgd(0.9, false);
pub(super) const ADAM: Setup = adam(false);
pub(super) const ADAMW: Setup = Setup { decay: 0.01, ..adam(true) };
pub(super) const EMA: Setup = Setup { rule: Rule::Ema { keep: KEEP }, ..SGD };

fn setups() -> Vec<(&'static str, Setup)> {
    vec![
        ("sgd", SGD),
        ("sgd_decay", Setup { decay: 0.05, ..SGD }),
        ("momentum", MOMENTUM),
        ("momentum_decay", Setup { decay: 5e-4, ..MOMENTUM }),
        ("nesterov", sgd(0.9, true)),
        ("nesterov_decay", Setup { decay: 5e-4, ..sgd(0.75, true) }),
        ("nesterov_without_momentum", sgd(0.0, true)),
        ("adam", ADAM),
        ("adam_decay", Setup { decay: 0.01, ..ADAM }),
        ("adamw", ADAMW),
        ("ema", EMA),
        ("max_value", Setup { max_value: Some(0.5), decay: 0.01, ..MOMENTUM }),
        ("adam_max_value", Setup { max_value: Some(1e-3), ..ADAM }),
    ]
}

impl Setup {
    pub(super) fn build(&self) -> Optimizer {
        let built = Optimizer::new(self.rule, LR).and_then(|p| p.decay(self.decay));
        let built = built.and_then(|p| self.max_value.map_or(Ok(p), |most| p.max_value(most)));
        built.and_then(|p| self.max_norm.map_or(Ok(p), |most| p.max_norm(most))).expect("valid numbers")
    }

    /// Hyperparameters of step `t`, counted from 1: every one differs from step to step.
    pub(super) fn hyperparameters<B: Backend>(&self, rig: &mut Rig<'_, B>, t: i32) {
        rig.hyperparameters.fill(f32::NAN);
        rig.hyperparameters[usize::from(LR.0)] = 0.1 / t as f32;
        rig.hyperparameters[usize::from(KEEP.0)] = 1.0 - 0.1 * t as f32;
        if let Rule::Adam { beta, .. } = self.rule {
            for (hyperparameter, beta) in CORRECTIONS.iter().zip(beta) {
                rig.hyperparameters[usize::from(hyperparameter.0)] = (1.0 - f64::from(beta).powi(t)) as f32;
            }
        }
    }

    /// States that the rule keeps.
    fn states(&self) -> [bool; 2] {
        match self.rule {
            Rule::Sgd { momentum, .. } => [momentum != 0.0, false],
            Rule::Adam { .. } => [true; 2],
            Rule::Ema { .. } => [false; 2],
        }
    }

    /// The new weight and states of one element: clip, decay, update.
    fn exact(&self, hyperparameters: &[f32], norm: Option<f64>, w: f64, g: f64, state: [f64; 2]) -> [Want; 3] {
        let hyperparameter = |hyperparameter: Hyperparameter| f64::from(hyperparameters[usize::from(hyperparameter.0)]);
        let (lr, decay) = (hyperparameter(LR), f64::from(self.decay));
        let want = |value: f64, scale: f64| Want { value, scale, terms: 1 };
        if let Rule::Ema { keep } = self.rule {
            let keep = hyperparameter(keep);
            return [Want::sum([keep * w, (1.0 - keep) * g]), Want::sum([]), Want::sum([])];
        }
        let mut g = self.max_value.map_or(g, |most| g.min(most.into()).max(-f64::from(most)));
        if let (Some(most), Some(norm)) = (self.max_norm.map(f64::from), norm) {
            g *= (most / norm).min(1.0);
        }
        match self.rule {
            Rule::Sgd { momentum, nesterov } => {
                let momentum = f64::from(momentum);
                let (g, g_size) = (g + decay * w, g.abs() + (decay * w).abs());
                let (v, v_size) = (momentum * state[0] + g, (momentum * state[0]).abs() + g_size);
                let (d, size) = if nesterov { (g + momentum * v, g_size + momentum * v_size) } else { (v, v_size) };
                [want(w - lr * d, w.abs() + lr * size), want(v, v_size), Want::sum([])]
            }
            Rule::Adam { beta, eps, decoupled, correction } => {
                let [b1, b2] = beta.map(f64::from);
                let (g, g_size) = if decoupled { (g, g.abs()) } else { (g + decay * w, g.abs() + (decay * w).abs()) };
                let kept = if decoupled { w - lr * decay * w } else { w };
                let (m, m_size) = (b1 * state[0] + (1.0 - b1) * g, (b1 * state[0]).abs() + (1.0 - b1) * g_size);
                let v = b2 * state[1] + (1.0 - b2) * g * g;
                // g may be a difference of larger numbers; its square then has twice its error.
                let v_size = b2 * state[1] + (1.0 - b2) * (g * g + 2.0 * g.abs() * (g_size - g.abs()));
                let root = (v / hyperparameter(correction[1])).sqrt() + f64::from(eps);
                let (d, d_size) =
                    (m / hyperparameter(correction[0]) / root, m_size / hyperparameter(correction[0]) / root);
                // The error of v counts half under the root.
                let d_size = d_size + if v > 0.0 { d.abs() * 0.5 * (v_size / v - 1.0) } else { 0.0 };
                [want(kept - lr * d, w.abs() + lr * d_size), want(m, m_size), want(v, v_size)]
            }
            Rule::Ema { .. } => unreachable!("returned above"),
        }
    }
}

/// A parameter on a device; every buffer has canaries around it.
pub(super) struct Parameter<B: Backend> {
    master: Output<B>,
    len: u32,
    grad: Output<B>,
    state: [Option<Output<B>>; 2],
    half: Option<Output<B>>,
}

/// The same on the host.
#[derive(Clone, Debug)]
pub(super) struct Values {
    pub(super) master: Vec<f32>,
    pub(super) grad: Vec<f32>,
    state: [Option<Vec<f32>>; 2],
    half: Option<Vec<f32>>,
}

impl Values {
    /// Random weights and gradients, states from 0, half copies of nothing in particular for every other parameter.
    pub(super) fn new(setup: &Setup, lengths: &[usize]) -> Vec<Self> {
        let mut random = Random(90);
        let one = |(i, &len): (usize, &usize)| Self {
            master: random.many(len, |random| random.normal() * 1.1),
            grad: gradient(len, &mut random),
            state: setup.states().map(|kept| kept.then(|| vec![0.0; len])),
            half: (i % 2 == 1 || len > 10).then(|| vec![2.5; len]),
        };
        lengths.iter().enumerate().map(one).collect()
    }

    /// Every buffer's values, one after the other.
    fn all(&self) -> Vec<f32> {
        let [first, second] = self.state.clone().map(Option::unwrap_or_default);
        [self.master.clone(), first, second, self.half.clone().unwrap_or_default()].concat()
    }
}

/// Gradients of many magnitudes, some 0.
fn gradient(len: usize, random: &mut Random) -> Vec<f32> {
    random.many(len, |random| random.normal() * 10f32.powi(random.below(5) as i32 - 4))
}

/// Puts parameters on a device: all buffers by themselves, or those of all parameters together, role by role.
pub(super) fn place<B: Backend>(
    rig: &Rig<'_, B>, values: &[Values], together: bool,
) -> Result<Vec<Parameter<B>>, Fail> {
    let role = |dtype: DType, of: &dyn Fn(&Values) -> Option<&Vec<f32>>| -> Result<Vec<Option<Output<B>>>, Fail> {
        let there: Vec<&[f32]> = values.iter().filter_map(|values| of(values).map(Vec::as_slice)).collect();
        let alone = || there.iter().map(|values| rig.output_over(dtype, values)).collect::<Result<Vec<_>, _>>();
        let outputs = if together { rig.outputs_together(dtype, &there)? } else { alone()? };
        let mut outputs = outputs.into_iter();
        Ok(values.iter().map(|values| of(values).and_then(|_| outputs.next())).collect())
    };
    let masters = role(DType::F32, &|values| Some(&values.master))?.into_iter().flatten();
    let grads = role(DType::F32, &|values| Some(&values.grad))?.into_iter().flatten();
    let states = [0, 1].map(|i| role(DType::F32, &move |values| values.state[i].as_ref()));
    let [first, second] = states;
    let states = first?.into_iter().zip(second?);
    let halves = role(DType::F16, &|values| values.half.as_ref())?;
    let all = values.iter().zip(masters).zip(grads).zip(states).zip(halves);
    let parameter = |((((values, master), grad), (first, second)), half): ((((&Values, _), _), _), _)| Parameter {
        master,
        len: values.grad.len() as u32,
        grad,
        state: [first, second],
        half,
    };
    Ok(all.map(parameter).collect())
}

/// Reads all values of the parameters from the device, and the gradients, which an update must not change.
pub(super) fn take<B: Backend>(rig: &Rig<'_, B>, parameters: &[Parameter<B>]) -> Result<Vec<Values>, Fail> {
    let one = |parameter: &Parameter<B>| {
        let state = |i: usize| parameter.state[i].as_ref().map(|v| rig.take(v)).transpose();
        Ok(Values {
            master: rig.take(&parameter.master)?,
            grad: rig.take(&parameter.grad)?,
            state: [state(0)?, state(1)?],
            half: parameter.half.as_ref().map(|v| rig.take(v)).transpose()?,
        })
    };
    parameters.iter().map(one).collect()
}

/// One launch.
pub(super) fn launch<B: Backend>(
    rig: &Rig<'_, B>, setup: &Setup, guard: UpdateGuard, norm: Option<&B::Buffer>, parameters: &mut [Parameter<B>],
) -> Result<(), Fail> {
    let mut params: Vec<Param<'_, B::Buffer>> = parameters
        .iter_mut()
        .map(|parameter| Param {
            len: parameter.len,
            master: &mut parameter.master.buffer,
            grad: &parameter.grad.buffer,
            state: parameter.state.each_mut().map(|state| state.as_mut().map(|state| &mut state.buffer)),
            half: parameter.half.as_mut().map(|half| &mut half.buffer),
        })
        .collect();
    Ok(rig.backend.launch(Launch::Optimize {
        p: setup.build(),
        table: &rig.table,
        guard,
        norm,
        parameters: &mut params,
    })?)
}

/// Two sets of parameters, bit for bit.
pub(super) fn same(what: &str, got: &[Values], want: &[Values]) -> Result<(), Fail> {
    got.iter()
        .zip(want)
        .enumerate()
        .try_for_each(|(i, (got, want))| same_bits(&format!("{what}: parameter {i}"), &got.all(), &want.all()))
}

/// One step from `before` to `after`.
pub(super) fn check_step<B: Backend>(
    rig: &Rig<'_, B>, setup: &Setup, norm: Option<f64>, before: &[Values], after: &[Values],
) -> Check {
    let mut measured = vec![];
    for (before, after) in before.iter().zip(after) {
        let state = |s: usize, i: usize| before.state[s].as_ref().map_or(0.0, |state| f64::from(state[i]));
        let wants: Vec<[Want; 3]> = (0..before.grad.len())
            .map(|i| {
                let (w, g) = (before.master[i].into(), before.grad[i].into());
                setup.exact(&rig.hyperparameters, norm, w, g, [state(0, i), state(1, i)])
            })
            .collect();
        same_bits("the gradient after its use", &after.grad, &before.grad)?;
        for (i, got) in [Some(&after.master), after.state[0].as_ref(), after.state[1].as_ref()].into_iter().enumerate()
        {
            let want: Vec<Want> = wants.iter().map(|wants| wants[i]).collect();
            if let Some(got) = got {
                let seen = compare("optimize", DType::F32, &rig.backend.caps(), got, &want)?;
                merge(&mut measured, &[seen]);
            }
        }
        if let Some(half) = &after.half {
            same_bits("the half copy", half, &stored(rig, DType::F16, &after.master))?;
        }
    }
    Ok(measured)
}

/// Several steps; hyperparameters and gradients change from one to the next.
fn follows<B: Backend>(b: &B, setup: &Setup, lengths: &[usize], together: bool) -> Check {
    train(b, setup, lengths, together).map(|(_, measured)| measured)
}

/// Parameters that were allocated together get the bits of those that were not; all around them stays.
fn together<B: Backend>(b: &B) -> Check {
    let mut measured = vec![];
    let mut lengths: Vec<usize> = lengths().into_iter().chain(ODD).chain((0..20).map(|i| i * 7 % 83)).collect();
    // Each rule by itself sees the long ones.
    lengths.retain(|&len| !is_brief() || len < 1000);
    for setup in [SGD, MOMENTUM, ADAMW, EMA] {
        let (want, seen) = train(b, &setup, &lengths, false)?;
        merge(&mut measured, &seen);
        let (got, seen) = train(b, &setup, &lengths, true)?;
        merge(&mut measured, &seen);
        same(&format!("{:?} of parameters that were allocated together", setup.rule), &got, &want)?;
    }
    Ok(measured)
}

/// Returns the parameters after several steps.
fn train<B: Backend>(
    b: &B, setup: &Setup, lengths: &[usize], together: bool,
) -> Result<(Vec<Values>, Vec<Measured>), Fail> {
    let mut rig = Rig::new(b)?;
    let mut parameters = place(&rig, &Values::new(setup, lengths), together)?;
    let (mut random, mut measured) = (Random(91), vec![]);
    let mut before = take(&rig, &parameters)?;
    for t in 1..=4 {
        for (parameter, values) in parameters.iter_mut().zip(&mut before) {
            values.grad = gradient(values.grad.len(), &mut random);
            rig.fill(&mut parameter.grad.buffer, &values.grad)?;
        }
        setup.hyperparameters(&mut rig, t);
        rig.upload()?;
        launch(&rig, setup, (2..5).into(), None, &mut parameters)?;
        let after = take(&rig, &parameters)?;
        merge(&mut measured, &check_step(&rig, setup, None, &before, &after)?);
        before = after;
    }
    Ok((before, measured))
}
