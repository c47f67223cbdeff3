//! Softmax and cross-entropy.

use crate::{
    Cuda, Error,
    kernels::{self, MAX_CLASSES_PER_THREAD},
    memory::Memory,
    store::StoreParams,
    workspace::WorkspaceKind,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{Buffer, CrossEntropyArgs, DType, Store},
    ops::{CrossEntropy, Divisor},
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct CrossEntropyParams {
    out: u64,
    logits: u64,
    labels: u64,
    weights: u64,
    sums: u64,
    kinds: [u32; 2],
    shape: [u32; 2],
    ignored_label: [u32; 2],
    divisor_kind: u32,
    divisor: f32,
    lanes: u32,
    blocks: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct CrossEntropyVjpParams {
    dx: StoreParams,
    logits: u64,
    labels: u64,
    weights: u64,
    out: u64,
    upstream: u64,
    kinds: [u32; 2],
    len: u32,
    classes: u32,
    ignored_label: [u32; 2],
}

/// Threads of a block of the cross-entropy kernels.
const THREADS: u32 = 256;
/// Number of classes from which a block computes a row. With fewer, most of its threads would have no four loads of eight.
const LONG_ROW: u32 = 4096;

/// Returns the addresses of logits, labels and weights of classes (0 without weights).
fn operands(p: &CrossEntropy, x: CrossEntropyArgs<&Memory>) -> [u64; 3] {
    let [rows, classes] = p.shape().map(|size| size as usize);
    assert!(matches!(x.labels.dtype(), DType::U8 | DType::U32), "labels are integers");
    [
        x.logits.expect_len(rows * classes).at(),
        x.labels.expect_len(rows).at(),
        x.weights.map_or(0, |weights| weights.expect_len(classes).typed_address(DType::F32)),
    ]
}

/// Returns a flag for an ignored label, and that label.
fn ignored_label(p: &CrossEntropy) -> [u32; 2] {
    p.ignored().map_or([0, 0], |label| [1, label])
}

impl Cuda {
    pub(crate) fn run_cross_entropy(
        &self, p: &CrossEntropy, x: CrossEntropyArgs<&Memory>, out: &Memory,
    ) -> Result<(), Error> {
        let [rows, classes] = p.shape();
        let [logits, labels, weights] = operands(p, x);
        // A few classes for each thread.
        let fits_one_thread =
            x.logits.dtype() == DType::F16 && classes <= MAX_CLASSES_PER_THREAD && !classes.is_multiple_of(8);
        let (kernel, lanes) = if classes >= LONG_ROW {
            (&kernels::CROSS_ENTROPY_LONG_ROWS, THREADS)
        } else if fits_one_thread {
            (&kernels::CROSS_ENTROPY, 1)
        } else {
            (&kernels::CROSS_ENTROPY, classes.div_ceil(4).clamp(2, 32).next_power_of_two())
        };
        let blocks = self.fill_device(kernel, rows.div_ceil(THREADS / lanes))?;
        let divisor = if let Divisor::Fixed(value) = p.divisor() { value } else { 0.0 };
        let params = CrossEntropyParams {
            out: out.expect_len(2 + rows as usize).typed_address(DType::F32),
            logits,
            labels,
            weights,
            sums: self.workspace_address(WorkspaceKind::Intermediates, 3 * 8 * blocks as usize)?,
            kinds: [x.logits.kind(), x.labels.kind()],
            shape: p.shape(),
            ignored_label: ignored_label(p),
            divisor_kind: p.divisor().code(),
            divisor,
            lanes,
            blocks,
        };
        // SAFETY: all operands have the descriptor's sizes, and the scratch memory has three sums of each block.
        unsafe {
            self.launch(kernel, [blocks, 1, 1], &params)?;
            self.launch(&kernels::CROSS_ENTROPY_FINISH, [1, 1, 1], &params)
        }
    }

    pub(crate) fn run_cross_entropy_vjp(
        &self, p: &CrossEntropy, x: CrossEntropyArgs<&Memory>, out: &Memory, g: &Memory, dx: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let [rows, classes] = p.shape();
        let n = (rows * classes) as usize;
        let spans_two_rows = x.logits.dtype() == DType::F16 && classes >= 8;
        let kernel = if spans_two_rows { &kernels::CROSS_ENTROPY_VJP_TWO_ROWS } else { &kernels::CROSS_ENTROPY_VJP };
        let (len, blocks) = self.elementwise_grid(kernel, n)?;
        let [logits, labels, weights] = operands(p, x);
        let params = CrossEntropyVjpParams {
            dx: self.store(dx, n, blocks)?,
            logits,
            labels,
            weights,
            out: out.expect_len(2 + rows as usize).typed_address(DType::F32),
            upstream: g.expect_len(1).typed_address(DType::F32),
            kinds: [x.logits.kind(), x.labels.kind()],
            len,
            classes,
            ignored_label: ignored_label(p),
        };
        // SAFETY: all operands have the descriptor's sizes.
        unsafe { self.launch(kernel, blocks, &params) }
    }
}
