//! Softmax and cross-entropy.

use crate::{
    Cuda, Error,
    kernels::{self, FEW_CLASSES},
    memory::Memory,
    store::StoreParams,
    workspace::Use,
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
    ignored: [u32; 2],
    divide: u32,
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
    ignored: [u32; 2],
}

/// Threads of a block.
const THREADS: u32 = 256;

/// Addresses of logits, labels and weights.
fn operands(p: &CrossEntropy, x: CrossEntropyArgs<&Memory>) -> [u64; 3] {
    let [rows, classes] = p.shape().map(|size| size as usize);
    assert!(matches!(x.labels.dtype(), DType::U8 | DType::U32), "labels are integers");
    [
        x.logits.holds(rows * classes).at(),
        x.labels.holds(rows).at(),
        x.weights.map_or(0, |weights| weights.holds(classes).of(DType::F32)),
    ]
}

/// Whether there is a label that does not count, and which.
fn ignored(p: &CrossEntropy) -> [u32; 2] {
    p.ignored().map_or([0, 0], |label| [1, label])
}

impl Cuda {
    pub(crate) fn run_cross_entropy(
        &self, p: &CrossEntropy, x: CrossEntropyArgs<&Memory>, out: &Memory,
    ) -> Result<(), Error> {
        let [rows, classes] = p.shape();
        let [logits, labels, weights] = operands(p, x);
        // A few classes for each thread.
        let few = x.logits.dtype() == DType::F16 && classes <= FEW_CLASSES && !classes.is_multiple_of(8);
        let lanes = if few { 1 } else { classes.div_ceil(4).clamp(2, 32).next_power_of_two() };
        let blocks = self.filling(&kernels::CROSS_ENTROPY, rows.div_ceil(THREADS / lanes))?;
        let divisor = if let Divisor::Fixed(value) = p.divisor() { value } else { 0.0 };
        let params = CrossEntropyParams {
            out: out.holds(2 + rows as usize).of(DType::F32),
            logits,
            labels,
            weights,
            sums: self.scratch(Use::Work, 3 * 8 * blocks as usize)?,
            kinds: [x.logits.kind(), x.labels.kind()],
            shape: p.shape(),
            ignored: ignored(p),
            divide: p.divisor().code(),
            divisor,
            lanes,
            blocks,
        };
        // SAFETY: all operands hold what the descriptor says, and the scratch memory three sums of each block.
        unsafe {
            self.launch(&kernels::CROSS_ENTROPY, [blocks, 1, 1], &params)?;
            self.launch(&kernels::CROSS_ENTROPY_FINISH, [1, 1, 1], &params)
        }
    }

    pub(crate) fn run_cross_entropy_vjp(
        &self, p: &CrossEntropy, x: CrossEntropyArgs<&Memory>, out: &Memory, g: &Memory, dx: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let [rows, classes] = p.shape();
        let n = (rows * classes) as usize;
        let of_two = x.logits.dtype() == DType::F16 && classes >= 8;
        let kernel = if of_two { &kernels::CROSS_ENTROPY_VJP_OF_TWO } else { &kernels::CROSS_ENTROPY_VJP };
        let (len, blocks) = self.dense(kernel, n)?;
        let [logits, labels, weights] = operands(p, x);
        let params = CrossEntropyVjpParams {
            dx: self.store(dx, n, blocks)?,
            logits,
            labels,
            weights,
            out: out.holds(2 + rows as usize).of(DType::F32),
            upstream: g.holds(1).of(DType::F32),
            kinds: [x.logits.kind(), x.labels.kind()],
            len,
            classes,
            ignored: ignored(p),
        };
        // SAFETY: all operands hold what the descriptor says.
        unsafe { self.launch(kernel, blocks, &params) }
    }
}
