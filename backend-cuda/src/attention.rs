//! Attention whose scores stay on the chip, and its gradient: one kernel, and two for the gradient.

use crate::{Cuda, Error, kernels::AttentionKernels, memory::Memory, store::StoreParams, workspace::WorkspaceKind};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{AttentionArgs, Buffer, Cast, DType, Store},
    ops::{Attention, AttentionShape},
};

/// Operands of attention as kernels receive them: `Attention` of `attention.cuh`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct OperandParams {
    q: u64,
    k: u64,
    v: u64,
    lengths: u64,
    kinds: [u32; 4],
    batch: u32,
    heads: u32,
    queries: u32,
    keys: u32,
    depth: u32,
    width: u32,
    reads: u32,
    unused: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct AttentionParams {
    y: StoreParams,
    x: OperandParams,
    log_sums: u64,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct AttentionVjpParams {
    dq: StoreParams,
    casts: [StoreParams; 2],
    dk: StoreParams,
    dv: StoreParams,
    x: OperandParams,
    y: u64,
    dy: u64,
    log_sums: u64,
    deltas: u64,
    kinds: [u32; 2],
}

impl OperandParams {
    fn new(p: &Attention, x: AttentionArgs<&Memory>) -> Self {
        let AttentionShape { heads, queries, keys, depth, width, .. } = p.shape();
        let lengths = x.lengths.map(|lengths| lengths.expect_len(p.lengths_len() as usize));
        if p.lengths_len() != 0 {
            let is_integer = |lengths: &Memory| matches!(lengths.dtype(), DType::U8 | DType::U32);
            assert!(lengths.is_some_and(is_integer), "lengths are integers");
        }
        Self {
            q: x.q.expect_len(p.q_len() as usize).at(),
            k: x.k.expect_len(p.k_len() as usize).at(),
            v: x.v.expect_len(p.v_len() as usize).at(),
            lengths: lengths.map_or(0, Memory::at),
            kinds: [x.q.kind(), x.k.kind(), x.v.kind(), lengths.map_or(0, Memory::kind)],
            batch: p.batch(),
            heads,
            queries,
            keys,
            depth,
            width,
            reads: p.read().code(),
            unused: 0,
        }
    }
}

/// Returns true if a buffer holds halves.
fn is_half(memory: &Memory) -> bool {
    memory.dtype() == DType::F16
}

impl Cuda {
    pub(crate) fn run_attention(
        &self, p: &Attention, x: AttentionArgs<&Memory>, log_sums: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        assert_eq!(log_sums.dtype(), DType::F32, "logarithms of an attention's sums");
        let kernels = AttentionKernels::new(p, [x.q, x.k, x.v].into_iter().all(is_half), self.gpu.arch());
        let blocks = [kernels.blocks(p.batch(), p.shape().queries), 1, 1];
        let params = AttentionParams {
            y: self.store(y, p.y_len() as usize, blocks)?,
            x: OperandParams::new(p, x),
            log_sums: log_sums.expect_len(p.rows() as usize).at(),
        };
        // SAFETY: all operands have the descriptor's sizes.
        unsafe { self.launch(&kernels.forward, blocks, &params) }
    }

    pub(crate) fn run_attention_vjp(
        &self, p: &Attention, x: AttentionArgs<&Memory>, [y, log_sums, dy]: [&Memory; 3],
        [dp, ds]: [&Cast<'_, Self>; 2], [dq, dk, dv]: [&Store<'_, Self>; 3],
    ) -> Result<(), Error> {
        assert_eq!(log_sums.dtype(), DType::F32, "logarithms of an attention's sums");
        let kernels = AttentionKernels::new(p, [x.q, x.k, x.v, dy].into_iter().all(is_half), self.gpu.arch());
        let AttentionShape { queries, keys, .. } = p.shape();
        let [by_queries, by_keys] = [queries, keys].map(|rows| [kernels.blocks(p.batch(), rows), 1, 1]);
        let of_queries =
            [self.store(dq, p.q_len() as usize, by_queries)?, self.cast(dp, by_queries)?, self.cast(ds, by_queries)?];
        let [dq, dp, ds] = self.separate_sums(of_queries, by_queries)?;
        let of_keys = [self.store(dk, p.k_len() as usize, by_keys)?, self.store(dv, p.v_len() as usize, by_keys)?];
        let [dk, dv] = self.separate_sums(of_keys, by_keys)?;
        let params = AttentionVjpParams {
            dq,
            casts: [dp, ds],
            dk,
            dv,
            x: OperandParams::new(p, x),
            y: y.expect_len(p.y_len() as usize).at(),
            dy: dy.expect_len(p.y_len() as usize).at(),
            log_sums: log_sums.expect_len(p.rows() as usize).at(),
            deltas: self.workspace_address(WorkspaceKind::Intermediates, 4 * p.rows() as usize)?,
            kinds: [y.kind(), dy.kind()],
        };
        // SAFETY: all operands have the descriptor's sizes.
        unsafe {
            self.launch(&kernels.vjp_queries, by_queries, &params)?;
            self.launch(&kernels.vjp_keys, by_keys, &params)
        }
    }
}
