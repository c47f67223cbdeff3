//! Softmax of rows, and its gradient: one kernel each.

use crate::{
    Cuda, Error,
    kernels::{self, Kernel},
    memory::Memory,
    store::StoreParams,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{Buffer, DType, Store},
    ops::{Softmax, SoftmaxColumns},
};

/// Rows of a softmax as kernels receive them: `SoftmaxRows` of `softmax.cu`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct SoftmaxRows {
    rows: u32,
    matrix_rows: u32,
    columns: u32,
    lanes: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SoftmaxParams {
    y: StoreParams,
    x: u64,
    selection: u64,
    kinds: [u32; 2],
    shape: SoftmaxRows,
    reads: u32,
    is_logarithm: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SoftmaxVjpParams {
    dx: StoreParams,
    y: u64,
    dy: u64,
    kinds: [u32; 2],
    shape: SoftmaxRows,
    is_causal: u32,
    is_logarithm: u32,
}

/// Threads of a block of the softmax kernels, and of a warp.
const THREADS: u32 = 256;
const WARP_THREADS: u32 = 32;

impl SoftmaxRows {
    /// Divides rows among threads: at most a warp for each, unless that leaves a row that does not fit its registers.
    fn new(p: &Softmax) -> Self {
        let [_, matrix_rows, columns] = p.shape();
        // Loads of a thread, `PART_LOADS` of `softmax.cu`, and columns of a load. A thread has all loads before another
        // thread is added, because a row's sum takes a shuffle for each doubling; but single columns are read by
        // neighbours, so that these share a line.
        let (vec_width, part_loads, min_loads) = if columns.is_multiple_of(8) { (8, 4, 4) } else { (1, 8, 1) };
        let loads = columns / vec_width;
        let fits_warp = loads <= part_loads * WARP_THREADS;
        let lanes =
            if fits_warp { loads.div_ceil(min_loads).clamp(1, WARP_THREADS).next_power_of_two() } else { THREADS };
        Self { rows: p.rows(), matrix_rows, columns, lanes }
    }

    /// Returns the grid of a kernel for these rows.
    fn blocks(&self, cuda: &Cuda, kernel: &'static Kernel) -> Result<[u32; 3], Error> {
        Ok([cuda.fill_device(kernel, self.rows.div_ceil(THREADS / self.lanes))?, 1, 1])
    }
}

impl Cuda {
    pub(crate) fn run_softmax(
        &self, p: &Softmax, x: &Memory, selection: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let (shape, len) = (SoftmaxRows::new(p), (p.rows() * p.shape()[2]) as usize);
        let blocks = shape.blocks(self, &kernels::SOFTMAX)?;
        let selection = selection.map(|selection| selection.expect_len(p.selection_len() as usize));
        if p.read() == SoftmaxColumns::Within {
            let is_integer = |lengths: &Memory| matches!(lengths.dtype(), DType::U8 | DType::U32);
            assert!(selection.is_some_and(is_integer), "lengths are integers");
        }
        let params = SoftmaxParams {
            y: self.store(y, len, blocks)?,
            x: x.expect_len(len).at(),
            selection: selection.map_or(0, Memory::at),
            kinds: [x.kind(), selection.map_or(0, Memory::kind)],
            shape,
            reads: p.read().code(),
            is_logarithm: p.is_logarithm().into(),
        };
        // SAFETY: all operands have the descriptor's sizes.
        unsafe { self.launch(&kernels::SOFTMAX, blocks, &params) }
    }

    pub(crate) fn run_softmax_vjp(
        &self, p: &Softmax, y: &Memory, dy: &Memory, dx: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let (shape, len) = (SoftmaxRows::new(p), (p.rows() * p.shape()[2]) as usize);
        let blocks = shape.blocks(self, &kernels::SOFTMAX_VJP)?;
        let params = SoftmaxVjpParams {
            dx: self.store(dx, len, blocks)?,
            y: y.expect_len(len).at(),
            dy: dy.expect_len(len).at(),
            kinds: [y.kind(), dy.kind()],
            shape,
            is_causal: (p.read() == SoftmaxColumns::Causal).into(),
            is_logarithm: p.is_logarithm().into(),
        };
        // SAFETY: all operands have the descriptor's sizes.
        unsafe { self.launch(&kernels::SOFTMAX_VJP, blocks, &params) }
    }
}
