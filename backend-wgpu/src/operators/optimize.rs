//! Updates of parameters: one launch that reads guard, hyperparameters and norm, then one for each parameter, in any order. (A
//! parameter's five buffers leave no room for a second one's among the eight that every device binds.)

use crate::{
    Error, Memory, Table, Wgpu, kernel,
    launch::{Call, strided},
    memory::{padded, word_of},
};
use core::ops::Range;
use gradscale_core::{
    backend::{Buffer, Hyperparameter, Param},
    ops::{Optimizer, Rule},
};

/// Words of a step's numbers.
const NUMBERS: u64 = 5 * 4;

/// What kernels know of a rule: whether it is the other of its kind, the hyperparameters of its two numbers, its two constants, and
/// its eps.
fn numbers(p: &Optimizer) -> (u32, [Hyperparameter; 2], [f32; 2], f32) {
    match p.rule() {
        Rule::Sgd { momentum, nesterov } => (nesterov.into(), [p.lr(); 2], [momentum, 0.0], 0.0),
        Rule::Adam { beta, eps, correction, decoupled } => (decoupled.into(), correction, beta, eps),
        Rule::Ema { keep } => (0, [keep; 2], [0.0; 2], 0.0),
    }
}

/// So many elements of a tensor from one on; nothing of one that is not there.
struct Part<'a> {
    memory: Option<&'a Memory>,
    start: usize,
    count: usize,
}

impl<'a> Part<'a> {
    fn bind(&self, call: Call<'a>, binding: u32, nothing: &'a wgpu::Buffer) -> Call<'a> {
        let Some(memory) = self.memory else { return call.unused(binding, nothing) };
        let bytes = |elements: usize| (elements * memory.dtype().size()) as u64;
        call.part(binding, &memory.buffer, bytes(self.start), padded(bytes(self.count)))
    }
}

impl Wgpu {
    pub(crate) fn run_optimize(
        &self, p: &Optimizer, table: &Table, guard: Range<u16>, norm: Option<&Memory>, params: &[Param<'_, Memory>],
    ) -> Result<(), Error> {
        let (other, hyperparameters, beta, eps) = numbers(p);
        let [most, limit] = p.limits();
        let [dummy, second, third] = self.nothing()?;
        let step = self.numbers(NUMBERS)?;
        let (clips, limit) = match (norm, limit) {
            (Some(_), Some(limit)) => (1, limit),
            _ => (0, 0.0),
        };
        let hyperparameter = |hyperparameter: Hyperparameter| u32::from(hyperparameter.0);
        // A pair begins at an even word.
        let numbers = [
            guard.start.into(),
            guard.end.into(),
            hyperparameter(p.lr()),
            0,
            hyperparameter(hyperparameters[0]),
            hyperparameter(hyperparameters[1]),
        ];
        let call = Call::new(&kernel::STEP).params(numbers).params([clips, limit.to_bits()]);
        let call = call.buffer(1, &table.control).buffer(2, &table.rows).buffer(4, &step);
        self.launch(call.buffer(3, norm.map_or(&dummy, |norm| &norm.buffer)), 1)?;
        let states = word_of(p.states());
        let most = most.unwrap_or(f32::INFINITY).to_bits();
        for param in params {
            let len = param.len as usize;
            // As many elements as one binding shows, from a multiple of 256 bytes on in f32 and in half.
            let piece = usize::try_from(self.window() / 4).unwrap_or(usize::MAX).max(128);
            for start in (0..len).step_by(piece) {
                let count = piece.min(len - start);
                let call = Call::new(&kernel::OPTIMIZE)
                    .constant("RULE", p.rule().code())
                    .constant("OTHER", other)
                    .constant("STATES", states)
                    .constant("COPY", param.half.is_some().into())
                    .params([word_of(count), p.weight_decay().to_bits(), most, eps.to_bits()])
                    .params(beta.map(f32::to_bits))
                    .buffer(4, &step);
                let part = |memory| Part { memory, start, count };
                let call = part(Some(&*param.master)).bind(call, 3, &dummy);
                let call = part(Some(param.grad)).bind(call, 5, &dummy);
                let call = part(param.state[0].as_deref()).bind(call, 6, &dummy);
                let call = part(param.state[1].as_deref()).bind(call, 7, &second);
                let call = part(param.half.as_deref()).bind(call, 8, &third);
                self.launch(call, strided(word_of(count).div_ceil(4)))?;
            }
        }
        Ok(())
    }
}
