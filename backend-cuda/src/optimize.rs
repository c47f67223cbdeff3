//! Updates of parameters, and the norm of their gradients. Lists of tensors travel in the kernels' parameters, so that
//! a recorded launch needs no memory of its own for them.

use crate::{
    Cuda, Error, Table,
    kernels::{self, CHUNK_ELEMENTS, MAX_TENSORS_PER_LAUNCH},
    memory::Memory,
    workspace::WorkspaceKind,
};
use bytemuck::{Pod, Zeroable};
use core::ops::Range;
use gradscale_core::{
    backend::{Buffer, DType, Param, UpdateGuard},
    ops::{Optimizer, Rule},
};

#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct Parameter {
    master: u64,
    grad: u64,
    states: [u64; 2],
    half: u64,
    len: u32,
    first_chunk: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct OptimizeParams {
    gradient_rows: u64,
    activation_rows: u64,
    hyperparameters: u64,
    norm: u64,
    gradient_row_count: u32,
    activation_row_count: u32,
    chunks: u32,
    count: u32,
    rule: u32,
    lr: u32,
    correction: [u32; 2],
    nesterov: u32,
    decoupled: u32,
    momentum: f32,
    beta: [f32; 2],
    eps: f32,
    decay: f32,
    limits: [f32; 2],
    unused: u32,
    parameters: [Parameter; MAX_TENSORS_PER_LAUNCH],
}

#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct TensorEntry {
    x: u64,
    len: u32,
    first_chunk: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GlobalNormParams {
    sums: u64,
    chunks: u32,
    count: u32,
    sum: u32,
    unused: u32,
    tensors: [TensorEntry; MAX_TENSORS_PER_LAUNCH],
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GlobalNormFinishParams {
    sums: u64,
    norm: u64,
    count: u32,
    unused: u32,
}

fn to_u32(n: usize) -> u32 {
    u32::try_from(n).expect("fewer than 2^32 elements")
}

/// Returns the number of statistics rows in a range of slots.
fn row_count(rows: &Range<u16>) -> u32 {
    u32::from(rows.end.saturating_sub(rows.start))
}

impl Cuda {
    pub(crate) fn run_global_norm(&self, grads: &[&Memory], norm: &Memory) -> Result<(), Error> {
        let grads: Vec<&Memory> = grads.iter().copied().filter(|grad| grad.len() != 0).collect();
        let launches = grads.len().div_ceil(MAX_TENSORS_PER_LAUNCH);
        let max_sums = launches * self.fill_device(&kernels::GLOBAL_NORM, u32::MAX)? as usize;
        let sums = self.workspace_address(WorkspaceKind::Intermediates, 8 * max_sums)?;
        let mut sum = 0;
        for grads in grads.chunks(MAX_TENSORS_PER_LAUNCH) {
            let mut tensors = [TensorEntry::default(); MAX_TENSORS_PER_LAUNCH];
            let mut chunks = 0;
            for (entry, grad) in tensors.iter_mut().zip(grads) {
                let len = to_u32(grad.len());
                *entry = TensorEntry { x: grad.typed_address(DType::F32), len, first_chunk: chunks };
                chunks += len.div_ceil(CHUNK_ELEMENTS);
            }
            let params = GlobalNormParams { sums, chunks, count: to_u32(grads.len()), sum, unused: 0, tensors };
            let blocks = self.fill_device(&kernels::GLOBAL_NORM, chunks)?;
            // SAFETY: the tensors have the lengths in the list, and the scratch memory has space for the sum of each
            // block.
            unsafe { self.launch(&kernels::GLOBAL_NORM, [blocks, 1, 1], &params)? };
            sum += blocks;
        }
        let params =
            GlobalNormFinishParams { sums, norm: norm.expect_len(1).typed_address(DType::F32), count: sum, unused: 0 };
        // SAFETY: the scratch memory has these sums, and there is space for the norm.
        unsafe { self.launch(&kernels::GLOBAL_NORM_FINISH, [1, 1, 1], &params) }
    }

    pub(crate) fn run_optimize(
        &self, p: &Optimizer, table: &Table, guard: &UpdateGuard, norm: Option<&Memory>,
        params: &mut [Param<'_, Memory>],
    ) -> Result<(), Error> {
        let lr = table.hyperparameter(p.lr());
        let [max_value, max_norm] = p.limits();
        let mut step = OptimizeParams {
            gradient_rows: table.rows_of(&guard.gradients),
            activation_rows: table.rows_of(&guard.activations),
            hyperparameters: table.hyperparameters(),
            norm: norm.filter(|_| max_norm.is_some()).map_or(0, |norm| norm.expect_len(1).typed_address(DType::F32)),
            gradient_row_count: row_count(&guard.gradients),
            activation_row_count: row_count(&guard.activations),
            chunks: 0,
            count: 0,
            rule: p.rule().code(),
            lr,
            correction: [lr; 2],
            nesterov: 0,
            decoupled: 0,
            momentum: 0.0,
            beta: [0.0; 2],
            eps: 0.0,
            decay: p.weight_decay(),
            limits: [max_value, max_norm].map(|limit| limit.unwrap_or(f32::INFINITY)),
            unused: 0,
            parameters: [Parameter::default(); MAX_TENSORS_PER_LAUNCH],
        };
        match p.rule() {
            Rule::Sgd { momentum, nesterov } => (step.momentum, step.nesterov) = (momentum, u32::from(nesterov)),
            Rule::Adam { beta, eps, correction, decoupled } => {
                (step.beta, step.eps, step.decoupled) = (beta, eps, u32::from(decoupled));
                step.correction = correction.map(|hyperparameter| table.hyperparameter(hyperparameter));
            }
            Rule::Ema { keep } => step.correction = [table.hyperparameter(keep); 2],
        }
        let mut params: Vec<&mut Param<'_, Memory>> = params.iter_mut().filter(|param| param.len != 0).collect();
        for params in params.chunks_mut(MAX_TENSORS_PER_LAUNCH) {
            (step.chunks, step.count) = (0, to_u32(params.len()));
            for (entry, param) in step.parameters.iter_mut().zip(params) {
                let n = param.len as usize;
                *entry = Parameter {
                    master: param.master.expect_len(n).typed_address(DType::F32),
                    grad: param.grad.expect_len(n).typed_address(DType::F32),
                    states: [0, 1].map(|i| {
                        param.state[i].as_ref().map_or(0, |state| state.expect_len(n).typed_address(DType::F32))
                    }),
                    half: param.half.as_ref().map_or(0, |half| half.expect_len(n).typed_address(DType::F16)),
                    len: to_u32(n),
                    first_chunk: step.chunks,
                };
                step.chunks += to_u32(n).div_ceil(CHUNK_ELEMENTS);
            }
            let blocks = [self.fill_device(&kernels::OPTIMIZE, step.chunks)?, 1, 1];
            // SAFETY: all tensors are as long as their gradients; rows, hyperparameters and norm are there.
            unsafe { self.launch(&kernels::OPTIMIZE, blocks, &step)? };
        }
        Ok(())
    }
}
