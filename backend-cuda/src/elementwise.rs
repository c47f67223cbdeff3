//! Element-wise operators: unary and binary functions, and sums of several terms.

use crate::{Cuda, Error, kernels, memory::Memory, store::StoreParams, workspace::WorkspaceKind};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{self, Slot, Store},
    block_format::{BlockFormat, ScaleRounding},
    ops::{Binary, BinaryOp, Unary, dropout_threshold},
    scaled::Scaled,
    store_format::StoreFormat,
};

/// Elementwise function as kernels receive it: `Function` of `functions.cuh`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Function {
    code: u32,
    numbers: [f32; 2],
    stream: u32,
    threshold: u32,
    unused: u32,
}

impl Function {
    pub fn from_op(op: Unary) -> Self {
        let (stream, threshold) = match op {
            Unary::Dropout { keep, stream } => (stream, dropout_threshold(keep)),
            _ => (0, 0),
        };
        Self { code: op.code(), numbers: op.parameters(), stream, threshold, unused: 0 }
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct UnaryParams {
    y: StoreParams,
    x: u64,
    kind: u32,
    len: u32,
    f: Function,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RoundParams {
    y: StoreParams,
    x: u64,
    kind: u32,
    len: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RoundBlocksParams {
    y: StoreParams,
    x: u64,
    kind: u32,
    rows: u32,
    columns: u32,
    size: u32,
    blocks: u32,
    rounds_up: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BinaryParams {
    y: StoreParams,
    a: u64,
    b: u64,
    kinds: [u32; 2],
    len: u32,
    cols: u32,
    over: u32,
    op: u32,
    f: Function,
}

#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct Term {
    x: u64,
    kind: u32,
    slot: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SumParams {
    y: StoreParams,
    terms: [Term; kernels::SUM_TERMS],
    previous_sum: u64,
    count: u32,
    len: u32,
}

impl Cuda {
    pub(crate) fn run_unary(&self, op: Unary, len: u32, x: &Memory, y: &Store<'_, Self>) -> Result<(), Error> {
        let n = len as usize;
        let (len, blocks) = self.elementwise_grid(&kernels::UNARY, n)?;
        let (y, x, kind) = (self.store(y, n, blocks)?, x.expect_len(n).at(), x.kind());
        let params = UnaryParams { y, x, kind, len, f: Function::from_op(op) };
        // SAFETY: x and y hold `len` elements.
        unsafe { self.launch(&kernels::UNARY, blocks, &params) }
    }

    pub(crate) fn run_round(
        &self, format: StoreFormat, len: u32, x: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let kernel = match format {
            StoreFormat::Fp16 => return self.run_unary(Unary::Id, len, x, y),
            StoreFormat::E5m2 => &kernels::ROUND_E5M2,
            StoreFormat::E4m3 => &kernels::ROUND_E4M3,
        };
        let n = len as usize;
        let (len, blocks) = self.elementwise_grid(kernel, n)?;
        let (x, kind) = (x.expect_len(n).at(), x.kind());
        let params = RoundParams { y: self.store(y, n, blocks)?, x, kind, len };
        // SAFETY: x and y hold `len` elements.
        unsafe { self.launch(kernel, blocks, &params) }
    }

    pub(crate) fn run_round_blocks(
        &self, format: BlockFormat, [rows, columns]: [u32; 2], x: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let kernel = match format.format() {
            StoreFormat::Fp16 => return Err(backend::Error::unsupported("round_blocks of fp16")),
            StoreFormat::E5m2 => &kernels::ROUND_BLOCKS_E5M2,
            StoreFormat::E4m3 => &kernels::ROUND_BLOCKS_E4M3,
        };
        let (n, size) = ((rows * columns) as usize, format.size());
        let per_row = columns.div_ceil(size);
        let blocks = [self.fill_device(kernel, (rows * per_row).div_ceil(256))?, 1, 1];
        let (x, kind) = (x.expect_len(n).at(), x.kind());
        let y = self.store(y, n, blocks)?;
        let rounds_up = u32::from(format.scale_rounding() == ScaleRounding::Up);
        let params = RoundBlocksParams { y, x, kind, rows, columns, size, blocks: per_row, rounds_up };
        // SAFETY: x and y hold `rows` times `columns` elements, and y is f32 as the launch says.
        unsafe { self.launch(kernel, blocks, &params) }
    }

    pub(crate) fn run_binary(&self, p: &Binary, a: &Memory, b: &Memory, y: &Store<'_, Self>) -> Result<(), Error> {
        let [rows, cols] = p.shape();
        let n = (rows * cols) as usize;
        let (len, blocks) = self.elementwise_grid(&kernels::BINARY, n)?;
        // Operations that are no gradients use the identity.
        let f = Function::from_op(if let BinaryOp::Grad(unary) = p.op() { unary } else { Unary::Id });
        let params = BinaryParams {
            y: self.store(y, n, blocks)?,
            a: a.expect_len(n).at(),
            b: b.expect_len(p.b_len() as usize).at(),
            kinds: [a.kind(), b.kind()],
            len,
            cols,
            over: p.over().code(),
            op: p.op().code(),
            f,
        };
        // SAFETY: a, b and y have the descriptor's sizes.
        unsafe { self.launch(&kernels::BINARY, blocks, &params) }
    }

    pub(crate) fn run_sum(&self, len: u32, terms: &[Scaled<&Memory, Slot>], y: Store<'_, Self>) -> Result<(), Error> {
        let n = len as usize;
        let (len, blocks) = self.elementwise_grid(&kernels::SUM, n)?;
        // The terms are brought to the exponent of the sum; the store itself does not scale.
        let y = Store { from: y.to, ..y };
        let store = self.store(&y, n, blocks)?;
        let needs_workspace = terms.len() > kernels::SUM_TERMS;
        let sums = if needs_workspace { self.workspace_address(WorkspaceKind::Intermediates, 4 * n)? } else { 0 };
        let last = terms.len().div_ceil(kernels::SUM_TERMS).saturating_sub(1);
        for (i, terms) in terms.chunks(kernels::SUM_TERMS).enumerate() {
            let mut list = [Term::default(); kernels::SUM_TERMS];
            for (entry, term) in list.iter_mut().zip(terms) {
                let slot = y.table.slot(term.alpha);
                *entry = Term { x: term.data.expect_len(n).at(), kind: term.data.kind(), slot };
            }
            let count = u32::try_from(terms.len()).expect("terms of one launch");
            let previous_sum = if i == 0 { 0 } else { sums };
            let y = if i == last { store } else { store.into_workspace(sums) };
            let params = SumParams { y, terms: list, previous_sum, count, len };
            // SAFETY: terms, y and the sums so far hold `len` elements.
            unsafe { self.launch(&kernels::SUM, blocks, &params)? };
        }
        Ok(())
    }
}
