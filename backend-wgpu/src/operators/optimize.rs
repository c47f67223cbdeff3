//! Updates of parameters: one dispatch that reads guard, hyperparameters and norm, then one for all parameters whose masters
//! are in one buffer, gradients in another, and so on. (Every device can bind eight buffers; an update needs seven.)

use crate::{
    Error, Memory, Table, Wgpu, kernel,
    launch::{KernelLaunch, WORKGROUP_SIZE},
    memory::{Bytes, word_of},
    operators::multi_tensor::Entry,
};
use gradscale_core::{
    backend::{Hyperparameter, Param, UpdateGuard},
    ops::{Optimizer, Rule},
};

/// Bytes of the scalars of a step that step.wgsl computes for the optimizer.
const STEP_SCALARS_BYTES: u64 = 5 * 4;
/// Number of weights that a workgroup updates, as in optimize.wgsl.
const ELEMENTS_PER_WORKGROUP: u32 = 16 * WORKGROUP_SIZE;

/// Returns the rule's parameters for kernels: true for the variant of its kind, the hyperparameters of its two scalars,
/// its two constants, and its eps.
fn rule_params(p: &Optimizer) -> (u32, [Hyperparameter; 2], [f32; 2], f32) {
    match p.rule() {
        Rule::Sgd { momentum, nesterov } => (nesterov.into(), [p.lr(); 2], [momentum, 0.0], 0.0),
        Rule::Adam { beta, eps, correction, decoupled } => (decoupled.into(), correction, beta, eps),
        Rule::Ema { keep } => (0, [keep; 2], [0.0; 2], 0.0),
    }
}

/// Returns the tensors that an update reads and writes of a parameter, in the order of multi_tensor.wgsl's places.
fn entry<'a>(param: &'a Param<'_, Memory>) -> Entry<'a, 5> {
    let Param { len, master, grad, state: [first, second], half } = param;
    let roles = [Some(&**master), Some(*grad), first.as_deref(), second.as_deref(), half.as_deref()];
    Entry { len: *len as usize, roles }
}

impl Wgpu {
    pub(crate) fn run_optimize(
        &self, p: &Optimizer, table: &Table, guard: &UpdateGuard, norm: Option<&Memory>, params: &[Param<'_, Memory>],
    ) -> Result<(), Error> {
        let (variant, hyperparameters, beta, eps) = rule_params(p);
        let [clip_limit, limit] = p.limits();
        let [dummy, second, third] = self.placeholder_buffers()?;
        let step = self.intermediates(STEP_SCALARS_BYTES)?;
        let (clips, limit) = match (norm, limit) {
            (Some(_), Some(limit)) => (1, limit),
            _ => (0, 0.0),
        };
        let hyperparameter = |hyperparameter: Hyperparameter| u32::from(hyperparameter.0);
        // A pair begins at an even word.
        let numbers = [
            guard.gradients.start.into(),
            guard.gradients.end.into(),
            guard.activations.start.into(),
            guard.activations.end.into(),
            hyperparameter(p.lr()),
            0,
            hyperparameter(hyperparameters[0]),
            hyperparameter(hyperparameters[1]),
        ];
        let call = KernelLaunch::new(&kernel::STEP).params(numbers).params([clips, limit.to_bits()]);
        let call = call.buffer(1, &table.control).buffer(2, &table.rows).buffer(4, &step);
        self.launch(call.part(3, norm.map_or(Bytes::whole(&dummy), Memory::bytes)), 1)?;
        let states = word_of(p.states());
        let clip_limit = clip_limit.unwrap_or(f32::INFINITY).to_bits();
        for list in self.batch_tensors(ELEMENTS_PER_WORKGROUP, params.iter().map(entry)) {
            let words = self.words(&list.words)?;
            let mut call = KernelLaunch::new(&kernel::OPTIMIZE)
                .constant("RULE", p.rule().code())
                .constant("RULE_VARIANT", variant)
                .constant("STATES", states)
                .params([list.count, p.weight_decay().to_bits(), clip_limit, eps.to_bits()])
                .params(beta.map(f32::to_bits))
                .params([list.groups])
                .buffer(4, &step)
                .buffer(9, &words);
            // No two are the same, because a kernel might write them; weight and gradient are always there.
            let nothing = [&dummy, &dummy, &dummy, &second, &third];
            for ((binding, shown), nothing) in [3, 5, 6, 7, 8].into_iter().zip(list.bound).zip(nothing) {
                call = call.part(binding, shown.unwrap_or(Bytes::whole(nothing)));
            }
            self.launch(call, list.groups)?;
        }
        Ok(())
    }
}
