//! Launch of matrix products (GEMM) and convolutions, with the reduction of split-K.

use crate::{
    Cuda, Error,
    gemm_problem::{ConvParams, GemmKind, GemmProblem, OperandStrides},
    gpu::TensorMap,
    kernel_selection::{KernelConfig, SplitKConstraints},
    kernels::SPLIT_K_REDUCE,
    memory::Memory,
    self_test,
    store::StoreParams,
    workspace::{WorkspaceKind, split_k_workspace_bytes},
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{Buffer, DType, Store},
    ops::{Conv2d, Gemm, GemmShape, Pass},
};

/// Parameters of the kernels for matrix products: `Product` of `implicit_gemm.cuh`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GemmParams {
    y: StoreParams,
    a: u64,
    b: u64,
    bias: u64,
    partials: u64,
    kinds: [u32; 3],
    m: u32,
    n: u32,
    k: u32,
    batch: u32,
    splits: u32,
    split_len: u32,
    ldy: u32,
    y_stride: u32,
    bias_stride: u32,
    strides: OperandStrides,
    conv: ConvParams,
    vectorized: u32,
    unused: u32,
}

const _: () = assert!(size_of::<GemmParams>() == size_of::<StoreParams>() + 4 * 8 + 36 * 4);

/// Parameters of the kernels that load operands by TMA: `TmaProduct` of `tma.cuh`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct TmaGemmParams {
    tensor_maps: [TensorMap; 2],
    gemm: GemmParams,
    unused: [u32; 2],
}

const _: () = assert!(size_of::<TmaGemmParams>() == 2 * 128 + size_of::<GemmParams>() + 8);

/// Operands of a matrix product: addresses and types.
pub(crate) struct Operands {
    pub at: [u64; 2],
    types: [DType; 2],
}

impl Operands {
    /// Returns the operands of a plan. Panics unless their lengths fit it.
    pub fn from_problem(problem: &GemmProblem, a: &Memory, b: &Memory) -> Self {
        Self {
            at: [a.expect_len(problem.lens[0]).at(), b.expect_len(problem.lens[1]).at()],
            types: [a.dtype(), b.dtype()],
        }
    }
}

impl Cuda {
    pub(crate) fn run_gemm(
        &self, p: &Gemm, a: &Memory, b: &Memory, bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let problem = GemmProblem::gemm(p);
        self.launch_problem(&problem, &Operands::from_problem(&problem, a, b), bias, y, None)
    }

    pub(crate) fn run_conv(
        &self, p: &Conv2d, pass: Pass, a: &Memory, b: &Memory, bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        // a is the operand that has the rows of the result.
        let (a, b) = if pass == Pass::Weight { (b, a) } else { (a, b) };
        if self.run_channel_padded(p, pass, [a, b], bias, y)? {
            return Ok(());
        }
        let problem = GemmProblem::conv(p, pass);
        self.launch_problem(&problem, &Operands::from_problem(&problem, a, b), bias, y, None)
    }

    /// Launches the kernel of a product; `by` chooses the kernel, `None` leaves the choice to the model.
    pub(crate) fn launch_problem(
        &self, problem: &GemmProblem, x: &Operands, bias: Option<&Memory>, y: &Store<'_, Self>,
        by: Option<KernelConfig>,
    ) -> Result<(), Error> {
        let (GemmShape { m, n, k }, batch) = (problem.shape, problem.batch);
        if m == 0 || n == 0 || batch == 0 {
            return Ok(());
        }
        let constraints = SplitKConstraints::new(problem, split_k_workspace_bytes(self.gpu().memory()));
        let config = match by {
            Some(config) => config,
            None if x.types == [DType::F16; 2] => self.select_kernel(problem, &constraints)?,
            None => KernelConfig::simt(problem.simt),
        };
        let split_k = config.split_k(&constraints, self.gpu().multiprocessors());
        let blocks = [config.block_count(&constraints, &split_k, self.gpu().multiprocessors()), 1, 1];
        let vectorized = [n, problem.ldy, problem.y_stride].into_iter().all(|size| size.is_multiple_of(8));
        let partials = if split_k.splits > 1 {
            self.workspace_address(
                WorkspaceKind::SplitKPartials,
                split_k.splits as usize * constraints.result_count() * 4,
            )?
        } else {
            0
        };
        let mut params = GemmParams {
            y: self.store(y, problem.lens[3], blocks)?,
            a: x.at[0],
            b: x.at[1],
            bias: bias.map_or(0, |bias| bias.expect_len(problem.lens[2]).at()),
            partials,
            kinds: [x.types[0].code(), x.types[1].code(), bias.map_or(0, Memory::kind)],
            m,
            n,
            k,
            batch,
            splits: split_k.splits,
            split_len: split_k.split_len,
            ldy: problem.ldy,
            y_stride: problem.y_stride,
            bias_stride: problem.bias_stride,
            strides: problem.strides,
            conv: problem.conv,
            vectorized: u32::from(vectorized),
            unused: 0,
        };
        // SAFETY: operands and result have the lengths of their shapes, and the partial sums that of all their results;
        // TMA tiles beyond the end of a matrix are clipped.
        unsafe {
            if config.is_tma() {
                let tensor_maps = problem.tensor_maps(self.gpu(), config.tma_tile(), [params.a, params.b])?;
                self.launch(config.kernel, blocks, &TmaGemmParams { tensor_maps, gemm: params, unused: [0; 2] })?;
            } else {
                self.launch(config.kernel, blocks, &params)?;
            }
        }
        if split_k.splits > 1 {
            if problem.stored_columns < n {
                // Parts have all channels of a pixel, the result those that x has.
                params.conv.x[2] = problem.stored_columns / (n / problem.conv.inputs);
                (params.n, params.vectorized) = (problem.stored_columns, 0);
            }
            let (_, blocks) = self.elementwise_grid(&SPLIT_K_REDUCE, constraints.result_count())?;
            params.y = self.store(y, problem.lens[3], blocks)?;
            // SAFETY: as above.
            unsafe { self.launch(&SPLIT_K_REDUCE, blocks, &params)? };
        }
        Ok(())
    }

    /// Selects the kernel to multiply halves: the best of those that the device has and that have passed their
    /// self-test there.
    fn select_kernel(&self, problem: &GemmProblem, constraints: &SplitKConstraints) -> Result<KernelConfig, Error> {
        let candidates =
            KernelConfig::candidates(problem, constraints, self.gpu().multiprocessors(), self.has_warpgroups());
        for &candidate in &candidates {
            if !candidate.is_arch_specific() || self.passes_self_test(problem.kind, candidate)? {
                return Ok(candidate);
            }
        }
        Ok(KernelConfig::mma_sync_unaligned(problem.kind))
    }

    /// Runs one product twice: by the kernel of `choice`, and by the kernel for operands of any alignment, which is the
    /// simplest.
    pub(crate) fn run_both_kernels(
        &self, kind: GemmKind, config: KernelConfig, [a, b]: [&Memory; 2], y: [Store<'_, Self>; 2],
    ) -> Result<(), Error> {
        let problem = match kind {
            GemmKind::Matmul(_) => GemmProblem::gemm(&self_test::test_gemm(kind)?),
            GemmKind::Conv(pass) => GemmProblem::conv(&self_test::test_conv(config, pass)?, pass),
        };
        let operands = Operands::from_problem(&problem, a, b);
        self.launch_problem(&problem, &operands, None, &y[0], Some(config))?;
        self.launch_problem(&problem, &operands, None, &y[1], Some(KernelConfig::mma_sync_unaligned(kind)))
    }
}
