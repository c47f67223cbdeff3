//! Parameter updates, and the norm of gradients.

use crate::{
    Cpu, Memory, Table,
    arch::{Adam, Sgd},
    threading::Cost,
};
use gradscale_core::{
    backend::{Param, UpdateGuard},
    ops::{Optimizer, Rule, Step},
};
use half::f16;

/// Number of elements of a chunk of a parameter.
const CHUNK_ELEMENTS: usize = 1 << 14;
/// Number of elements that are updated at a time: 4 KiB of each state, still in L1 when they are rounded.
const BLOCK_ELEMENTS: usize = 1 << 10;

/// Chunk of a parameter: weights, gradients, states and half copy.
struct ParamChunk<'a> {
    master: &'a mut [f32],
    grad: &'a [f32],
    state: [Option<&'a mut [f32]>; 2],
    half: Option<&'a mut [f16]>,
}

impl Cpu {
    #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
    pub(crate) fn run_global_norm(&self, grads: &[&Memory], norm: &mut Memory) {
        // f64 holds the square of every f32, and the sum of 2^32 of them.
        let chunks: Vec<&[f32]> = grads.iter().flat_map(|grad| grad.f32().chunks(CHUNK_ELEMENTS)).collect();
        let cost = Cost::elements(chunks.iter().map(|chunk| chunk.len()).sum());
        let square = |chunk: usize| chunks[chunk].iter().map(|&g| f64::from(g) * f64::from(g)).sum();
        let squares: Vec<f64> = self.par_map(cost, chunks.len(), square);
        // The sum of nothing is −0.
        norm.f32_mut()[0] = (0.0 + squares.iter().sum::<f64>()).sqrt() as f32;
    }

    pub(crate) fn run_optimize(
        &self, p: &Optimizer, table: &Table, guard: &UpdateGuard, norm: Option<&Memory>,
        params: &mut [Param<'_, Memory>],
    ) {
        if guard.blocks_update(&table.rows()) {
            return;
        }
        let step = p.step(
            |hyperparameter| table.hyperparameters[usize::from(hyperparameter.0)],
            norm.map(|norm| norm.f32()[0]),
        );
        let mut slices: Vec<ParamChunk<'_>> = params.iter_mut().flat_map(split_param).collect();
        let cost = Cost::elements(slices.iter().map(|slice| slice.master.len()).sum());
        self.par_chunks_mut(cost, &mut slices, 1, |_, slices| {
            slices.iter_mut().for_each(|slice| self.update(p, &step, slice))
        });
    }

    /// Updates a chunk of a parameter by the optimizer's rule.
    fn update(&self, p: &Optimizer, step: &Step, slice: &mut ParamChunk<'_>) {
        let ParamChunk { master, grad, state, half } = slice;
        let ([lr, grad_factor, third, fourth], [max_grad, _]) = (step.numbers(), p.limits());
        let (max_grad, decay) = (max_grad.unwrap_or(f32::INFINITY), p.weight_decay());
        for start in (0..master.len()).step_by(BLOCK_ELEMENTS) {
            let range = start..master.len().min(start + BLOCK_ELEMENTS);
            let (master, grad) = (&mut master[range.clone()], &grad[range.clone()]);
            let states = state.each_mut().map(|state| state.as_mut().map(|state| &mut state[range.clone()]));
            match p.rule() {
                Rule::Sgd { momentum, nesterov } => {
                    let step = Sgd { lr, momentum, nesterov, decay, max_grad, grad_factor };
                    match states {
                        [Some(state), _] => self.isa().sgd(master, grad, state, step),
                        _ => self.isa().sgd(master, grad, &mut self.zeroed_workspace(grad.len()), step),
                    }
                }
                Rule::Adam { beta, eps, decoupled, .. } => {
                    let [Some(first), Some(second)] = states else { panic!("Adam keeps two states") };
                    let correction = [third, fourth];
                    let step = Adam { lr, beta, eps, correction, decay, decoupled, max_grad, grad_factor };
                    self.isa().adam(master, grad, [first, second], step);
                }
                Rule::Ema { .. } => self.isa().ema(master, grad, third),
            }
            if let Some(half) = half {
                self.isa().f32_to_f16(master, &mut half[range]);
            }
        }
    }
}

/// Splits a parameter into chunks for the optimizer's tasks.
fn split_param<'a>(param: &'a mut Param<'_, Memory>) -> impl Iterator<Item = ParamChunk<'a>> {
    let len = param.len as usize;
    let [first, second] = &mut param.state;
    let mut states =
        [first, second].map(|state| state.as_mut().map(|state| state.f32_mut()[..len].chunks_mut(CHUNK_ELEMENTS)));
    let mut halves = param.half.as_mut().map(|half| match &mut **half {
        Memory::F16(half) => half[..len].chunks_mut(CHUNK_ELEMENTS),
        _ => panic!("copies of parameters are F16"),
    });
    let masters = param.master.f32_mut()[..len].chunks_mut(CHUNK_ELEMENTS);
    masters.zip(param.grad.f32()[..len].chunks(CHUNK_ELEMENTS)).map(move |(master, grad)| ParamChunk {
        master,
        grad,
        state: states.each_mut().map(|state| state.as_mut().and_then(Iterator::next)),
        half: halves.as_mut().and_then(Iterator::next),
    })
}
