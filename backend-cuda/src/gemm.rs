//! Launch of matrix products (GEMM) and convolutions, with the reduction of split-K.

use crate::{
    Cuda, Error, HaloTiles,
    gemm_problem::{ConvParams, GemmKind, GemmProblem, OperandStrides},
    gpu::TensorMap,
    kernel_selection::{KernelConfig, SplitK, SplitKConstraints},
    kernels::SPLIT_K_REDUCE,
    memory::Memory,
    self_test::{self, TestShape},
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
pub(crate) struct GemmParams {
    y: StoreParams,
    a: u64,
    b: u64,
    bias: u64,
    pub partials: u64,
    kinds: [u32; 3],
    m: u32,
    n: u32,
    k: u32,
    batch: u32,
    pub splits: u32,
    split_len: u32,
    ldy: u32,
    y_stride: u32,
    bias_stride: u32,
    strides: OperandStrides,
    conv: ConvParams,
    vectorized: u32,
    y_start: u32,
    pixel_steps: [u32; 3],
    unused: u32,
}

const _: () = assert!(size_of::<GemmParams>() == size_of::<StoreParams>() + 4 * 8 + 40 * 4);

/// Parameters of the kernels that load operands by TMA: `TmaProduct` of `tma.cuh`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct TmaGemmParams {
    tensor_maps: [TensorMap; 2],
    gemm: GemmParams,
    unused: [u32; 14],
}

const _: () = assert!(size_of::<TmaGemmParams>() == 2 * 128 + size_of::<GemmParams>() + 56);

/// Parameters of the kernels of f32 operands as three bfloat16 each: `TmaGemmParams` of `tma.cuh` with three parts.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Bf16x6Params {
    /// Maps of the parts of a, and of those of b.
    tensor_maps: [TensorMap; 6],
    gemm: GemmParams,
    nonfinite: u64,
    nonfinite_count: u32,
    unused: [u32; 11],
}

const _: () = assert!(size_of::<Bf16x6Params>() == 6 * 128 + size_of::<GemmParams>() + 56);

/// Where the parts of f32 operands are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperandParts {
    /// Bytes from part to part of a and of b.
    pub strides: [u64; 2],
    /// Address of the words that tell of infinities and NaN, and their number.
    pub nonfinite: u64,
    pub nonfinite_count: u32,
}

impl OperandParts {
    /// Returns the addresses of a part of both operands, whose first parts are `at`.
    fn addresses(&self, at: [u64; 2], part: u64) -> [u64; 2] {
        [0, 1].map(|i| at[i] + part * self.strides[i])
    }
}

/// Operands of a matrix product: addresses and types.
pub(crate) struct Operands {
    pub at: [u64; 2],
    pub types: [DType; 2],
    /// Where the parts of f32 operands are, if tensor cores multiply them. Then `at` are their first parts.
    pub parts: Option<OperandParts>,
}

impl Operands {
    /// Returns the operands of a plan. Panics unless their lengths fit it.
    pub fn from_problem(problem: &GemmProblem, a: &Memory, b: &Memory) -> Self {
        Self {
            at: [a.expect_len(problem.lens[0]).at(), b.expect_len(problem.lens[1]).at()],
            types: [a.dtype(), b.dtype()],
            parts: None,
        }
    }

    /// Returns true if both operands are f16.
    pub fn are_halves(&self) -> bool {
        self.types == [DType::F16; 2]
    }
}

impl Cuda {
    pub(crate) fn run_gemm(
        &self, p: &Gemm, a: &Memory, b: &Memory, bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let problem = GemmProblem::gemm(p);
        let operands = Operands::from_problem(&problem, a, b);
        if p.has_eight_bit_operands() && operands.are_halves() {
            return self.run_fp8_gemm(p, &operands, bias, y, None);
        }
        if !problem.is_vectorizable && operands.are_halves() && self.is_copied_gemm_faster(p) {
            return self.run_copied_gemm(p, &operands, bias, y);
        }
        if self.run_bf16x6_gemm(p, &operands, bias, y, None)? {
            return Ok(());
        }
        self.launch_problem(&problem, &operands, bias, y, None)
    }

    pub(crate) fn run_conv(
        &self, p: &Conv2d, pass: Pass, a: &Memory, b: &Memory, bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        // a is the operand that has the rows of the result.
        let (a, b) = if pass == Pass::Weight { (b, a) } else { (a, b) };
        let problem = GemmProblem::conv(p, pass);
        let operands = Operands::from_problem(&problem, a, b);
        if p.has_eight_bit_operands(pass)
            && operands.are_halves()
            && let Some(gathers) = Self::fp8_gathers(p, pass)
        {
            return self.run_fp8_conv(p, &gathers, &operands, bias, y);
        }
        if let Some(copies) = self.conv_copies(p, pass, operands.types) {
            return self.run_copied_conv(p, pass, &copies, &operands, bias, y);
        }
        if self.run_bf16x6_conv(p, pass, &operands, bias, y, None)? {
            return Ok(());
        }
        self.launch_problem(&problem, &operands, bias, y, None)
    }

    /// Launches the kernel of a product; `by` chooses the kernel, `None` leaves the choice to the model.
    pub(crate) fn launch_problem(
        &self, problem: &GemmProblem, x: &Operands, bias: Option<&Memory>, y: &Store<'_, Self>,
        by: Option<KernelConfig>,
    ) -> Result<(), Error> {
        if problem.shape.m == 0 || problem.shape.n == 0 || problem.batch == 0 {
            return Ok(());
        }
        let config = match by {
            Some(config) => config,
            None => self.select_config(problem, x.types)?,
        };
        if config.is_halo() {
            return self.launch_halo(problem, config, x, bias, y);
        }
        let splits = self.split_count(problem, config);
        let partials = if splits > 1 { self.partials_workspace(problem, config, splits)? } else { 0 };
        let params = self.launch_splits(problem, config, partials, x, bias, y)?;
        if splits > 1 { self.reduce_splits(&config.problem(problem), params, y) } else { Ok(()) }
    }

    /// Returns the number of splits of a problem by a kernel.
    pub(crate) fn split_count(&self, problem: &GemmProblem, config: KernelConfig) -> u32 {
        let problem = config.problem(problem);
        let constraints = SplitKConstraints::new(&problem, split_k_workspace_bytes(self.gpu().memory()));
        config.split_k(&constraints, self.gpu().multiprocessors()).splits
    }

    /// Returns the address for the partial sums of that many splits.
    pub(crate) fn partials_workspace(
        &self, problem: &GemmProblem, config: KernelConfig, splits: u32,
    ) -> Result<u64, Error> {
        let bytes = splits as usize * config.problem(problem).result_count() * 4;
        self.workspace_address(WorkspaceKind::SplitKPartials, bytes)
    }

    /// Launches the kernel of a product. With one split it stores the results, otherwise partial sums, of which
    /// [`Self::reduce_splits`] with the returned parameters computes the results.
    pub(crate) fn launch_splits(
        &self, problem: &GemmProblem, config: KernelConfig, partials: u64, x: &Operands, bias: Option<&Memory>,
        y: &Store<'_, Self>,
    ) -> Result<GemmParams, Error> {
        let problem = &config.problem(problem);
        let constraints = SplitKConstraints::new(problem, split_k_workspace_bytes(self.gpu().memory()));
        let split_k = config.split_k(&constraints, self.gpu().multiprocessors());
        let blocks = [config.block_count(&constraints, &split_k, self.gpu().multiprocessors()), 1, 1];
        let params = GemmParams { partials, ..self.gemm_params(problem, &split_k, x, bias, y, blocks)? };
        // SAFETY: operands and result have the lengths of their shapes, and the partial sums that of all their results;
        // TMA tiles beyond the end of a matrix are clipped.
        unsafe {
            if config.is_tma() {
                let maps = |at: [u64; 2]| problem.tensor_maps(self.gpu(), config.tma_tile(), at);
                if let Some(parts) = x.parts {
                    let [[a0, b0], [a1, b1], [a2, b2]] = [
                        maps(parts.addresses(x.at, 0))?,
                        maps(parts.addresses(x.at, 1))?,
                        maps(parts.addresses(x.at, 2))?,
                    ];
                    let params = Bf16x6Params {
                        tensor_maps: [a0, a1, a2, b0, b1, b2],
                        gemm: params,
                        nonfinite: parts.nonfinite,
                        nonfinite_count: parts.nonfinite_count,
                        unused: [0; 11],
                    };
                    self.launch(config.kernel, blocks, &params)?;
                } else {
                    let tensor_maps = maps(x.at)?;
                    self.launch(config.kernel, blocks, &TmaGemmParams { tensor_maps, gemm: params, unused: [0; 14] })?;
                }
            } else {
                self.launch(config.kernel, blocks, &params)?;
            }
        }
        Ok(params)
    }

    /// Returns the parameters of a product that this number of blocks computes, without memory for partial sums.
    pub(crate) fn gemm_params(
        &self, problem: &GemmProblem, split_k: &SplitK, x: &Operands, bias: Option<&Memory>, y: &Store<'_, Self>,
        blocks: [u32; 3],
    ) -> Result<GemmParams, Error> {
        let (GemmShape { m, n, k }, batch) = (problem.shape, problem.batch);
        let rows = [n, problem.ldy, problem.y_stride, problem.placement.start];
        let vectorized = rows.into_iter().all(|size| size.is_multiple_of(8));
        Ok(GemmParams {
            y: self.store(y, problem.lens[3], blocks)?,
            a: x.at[0],
            b: x.at[1],
            bias: bias.map_or(0, |bias| bias.expect_len(problem.lens[2]).at()),
            partials: 0,
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
            y_start: problem.placement.start,
            pixel_steps: problem.placement.pixel_steps,
            unused: 0,
        })
    }

    /// Adds the partial sums of `params.splits` splits, and stores the results.
    pub(crate) fn reduce_splits(
        &self, problem: &GemmProblem, mut params: GemmParams, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let n = problem.shape.n;
        if problem.stored_columns < n {
            // Parts have all channels of a pixel, the result those that x has.
            let channels = problem.stored_columns / (n / problem.conv.inputs);
            (params.conv.x[2], params.n) = (channels, problem.stored_columns);
            params.vectorized &= u32::from(channels.is_multiple_of(8));
        } else {
            // There is no padding to drop.
            params.conv.inputs = 0;
            // Results without gaps are one row, whatever the length of theirs.
            let is_one_row = problem.is_dense() && params.bias == 0 && problem.result_count().is_multiple_of(8);
            params.vectorized |= u32::from(is_one_row);
        }
        let (_, blocks) = self.elementwise_grid(&SPLIT_K_REDUCE, problem.result_count())?;
        params.y = self.store(y, problem.lens[3], blocks)?;
        // SAFETY: results and partial sums have the lengths of their shapes.
        unsafe { self.launch(&SPLIT_K_REDUCE, blocks, &params) }
    }

    /// Selects the kernel for operands of these types.
    pub(crate) fn select_config(&self, problem: &GemmProblem, types: [DType; 2]) -> Result<KernelConfig, Error> {
        if types == [DType::F16; 2] { self.select_kernel(problem) } else { Ok(self.select_simt_kernel(problem, types)) }
    }

    /// Selects the kernel to multiply halves: the best of those that the device has and that have passed their
    /// self-test there.
    fn select_kernel(&self, problem: &GemmProblem) -> Result<KernelConfig, Error> {
        let workspace_bytes = split_k_workspace_bytes(self.gpu().memory());
        let mut candidates =
            KernelConfig::candidates(problem, workspace_bytes, self.gpu().multiprocessors(), self.tensor_cores());
        match self.halo_tiles() {
            HaloTiles::Modelled => {}
            HaloTiles::Always => {
                candidates.splice(0..0, KernelConfig::halo_of(problem).filter(|_| self.has_warpgroups())).for_each(drop)
            }
            HaloTiles::Never => candidates.retain(|config| !config.is_halo()),
        }
        self.first_safe(problem, &candidates)
    }

    /// Returns the first candidate that needs no self-test or has passed it on this device.
    pub(crate) fn first_safe(&self, problem: &GemmProblem, candidates: &[KernelConfig]) -> Result<KernelConfig, Error> {
        for &candidate in candidates {
            let shape = TestShape::new(problem, candidate);
            if !candidate.is_arch_specific() || self.passes_self_test(problem.kind, candidate, shape)? {
                return Ok(candidate);
            }
        }
        Ok(KernelConfig::mma_sync_unaligned(problem.kind))
    }

    /// Selects the kernel without tensor cores.
    fn select_simt_kernel(&self, problem: &GemmProblem, types: [DType; 2]) -> KernelConfig {
        let workspace_bytes = split_k_workspace_bytes(self.gpu().memory());
        KernelConfig::simt(problem, types == [DType::F32; 2], workspace_bytes, self.gpu().multiprocessors())
    }

    /// Runs one product twice: by the kernel of `config`, and by the simplest kernel, which takes operands of any alignment.
    /// That one multiplies halves also if the other multiplies operands of eight bits, and has no tensor cores if they are
    /// f32.
    pub(crate) fn run_both_kernels(
        &self, kind: GemmKind, config: KernelConfig, shape: TestShape, [a, b]: [&Memory; 2], y: [Store<'_, Self>; 2],
    ) -> Result<(), Error> {
        let problem = match kind {
            GemmKind::Matmul(_) => GemmProblem::gemm(&self_test::test_gemm(kind, config)?),
            GemmKind::Conv(pass) => GemmProblem::conv(&self_test::test_conv(config, pass, shape)?, pass),
        };
        let operands = Operands::from_problem(&problem, a, b);
        if config.is_bf16x6() {
            let has_run = match kind {
                GemmKind::Matmul(_) => {
                    let p = self_test::test_gemm(kind, config)?;
                    self.run_bf16x6_gemm(&p, &operands, None, &y[0], Some(config))?
                }
                GemmKind::Conv(pass) => {
                    let p = self_test::test_conv(config, pass, shape)?;
                    self.run_bf16x6_conv(&p, pass, &operands, None, &y[0], Some(config))?
                }
            };
            if !has_run {
                return Err(Error::OutOfMemory { bytes: self.gpu().memory() });
            }
            return self.launch_problem(&problem, &operands, None, &y[1], Some(KernelConfig::simt_unaligned(&problem)));
        }
        match config.eight_bit_formats() {
            Some(formats) => {
                let p = self_test::test_gemm(kind, config)?.operand_formats(formats);
                self.run_fp8_gemm(&p, &operands, None, &y[0], Some(config))?;
            }
            None => self.launch_problem(&problem, &operands, None, &y[0], Some(config))?,
        }
        self.launch_problem(&problem, &operands, None, &y[1], Some(KernelConfig::mma_sync_unaligned(kind)))
    }
}
