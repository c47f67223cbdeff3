//! Products of f32 operands on tensor cores (sm_90a): each operand is split into three bfloat16, of which six products are
//! multiplied.
//!
//! `split_bf16.cu` writes x = hi + mid + lo in scratch memory, in the operand's own layout, so that matrices and
//! convolutions are those of halves. `wgmma.cuh` explains the products, and `wgmma_tma.cu` how sums and infinities are
//! added. XLA calls this algorithm `BF16_BF16_F32_X6`.
//!
//! 1. **Errors** are below those of f32 products without tensor cores, which `tests/bf16x6.rs` measures. Sums of fewer than
//!    [`MIN_BF16X6_K`](crate::kernel_selection::MIN_BF16X6_K) terms stay without.
//! 2. **Tiny values.** A value below 2^-110 loses up to 2^-134. A product with a value below 2^-134 is 0, and NaN if
//!    the other is infinite.
//! 3. **Large sums.** A sum within 2^-8 of the largest f32 number may become infinite, because hi is rounded up.
//! 4. **Bits** depend on the shape, the number of multiprocessors and the total memory alone.
//! 5. **Strided gradients** with respect to the input, which are computed in phases, have no tensor cores, nor do operands
//!    that are no multiple of eight.

use crate::{
    Cuda, Error,
    bf16x6_bands::{BandLimits, Bands, PARTS_BYTES, Span},
    gemm::{OperandParts, Operands},
    gemm_problem::GemmProblem,
    kernel_selection::KernelConfig,
    kernels::SPLIT_BF16,
    memory::Memory,
    self_test::TestShape,
    workspace::split_k_workspace_bytes,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{DType, Store},
    ops::{Conv2d, Gemm, Pass},
};

/// Bytes of a device's memory for each byte that the parts of a product that cannot be divided may take: at most 1.6 %, for
/// example 1.3 of 80 GB.
const MEMORY_PER_PARTS_BYTE: u64 = 64;
/// Elements of a vector that a thread splits at a time.
const VEC8: u64 = 8;
/// Threads of a block of `split_bf16.cu`.
const SPLIT_THREADS: u64 = 256;

/// Parameters of the split kernel: `SplitParams` of `split_bf16.cu`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SplitParams {
    x: u64,
    parts: u64,
    nonfinite: u64,
    vec8s: u32,
    unused: u32,
}

impl Cuda {
    /// Selects the kernel on tensor cores for f32 operands; `None` if a kernel without them is faster, or if there is none
    /// that has passed its self-test.
    fn select_bf16x6(&self, problem: &GemmProblem, types: [DType; 2]) -> Result<Option<KernelConfig>, Error> {
        let is_empty = problem.shape.m == 0 || problem.shape.n == 0 || problem.batch == 0;
        if types != [DType::F32; 2] || is_empty || !self.has_f32_tensor_cores() {
            return Ok(None);
        }
        let workspace_bytes = split_k_workspace_bytes(self.gpu().memory());
        let multiprocessors = self.gpu().multiprocessors();
        for config in KernelConfig::bf16x6_faster_than_simt(problem, workspace_bytes, multiprocessors) {
            if self.passes_self_test(problem.kind, config, TestShape::new(problem, config))? {
                return Ok(Some(config));
            }
        }
        Ok(None)
    }

    /// Returns the limits of bands on this device.
    fn band_limits(&self) -> BandLimits {
        let memory = self.gpu().memory();
        BandLimits {
            divided_bytes: self.max_copy_bytes(),
            total_bytes: memory / MEMORY_PER_PARTS_BYTE,
            partial_sum_bytes: split_k_workspace_bytes(memory) as u64,
        }
    }

    /// Computes a product of matrices on tensor cores; `by` chooses the kernel. Returns false if it is not computed: operands
    /// are not f32, a kernel without tensor cores is faster, or their parts do not fit.
    pub(crate) fn run_bf16x6_gemm(
        &self, p: &Gemm, x: &Operands, bias: Option<&Memory>, y: &Store<'_, Self>, by: Option<KernelConfig>,
    ) -> Result<bool, Error> {
        let selected = if by.is_some() { by } else { self.select_bf16x6(&GemmProblem::gemm(p), x.types)? };
        let Some(config) = selected else { return Ok(false) };
        let Some(bands) = Bands::of_gemm(p, self.band_limits()) else { return Ok(false) };
        self.run_bands(config, &bands, x, bias, y).map(|()| true)
    }

    /// Computes a pass of a convolution in the same way.
    pub(crate) fn run_bf16x6_conv(
        &self, p: &Conv2d, pass: Pass, x: &Operands, bias: Option<&Memory>, y: &Store<'_, Self>,
        by: Option<KernelConfig>,
    ) -> Result<bool, Error> {
        let selected = if by.is_some() { by } else { self.select_bf16x6(&GemmProblem::conv(p, pass), x.types)? };
        let Some(config) = selected else { return Ok(false) };
        let Some(bands) = Bands::of_conv(p, pass, self.band_limits()) else { return Ok(false) };
        self.run_bands(config, &bands, x, bias, y).map(|()| true)
    }

    /// Splits and multiplies all bands of a product.
    fn run_bands(
        &self, config: KernelConfig, bands: &Bands, x: &Operands, bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let Some(first) = bands.bands.first() else { return Ok(()) };
        let mut sums = if bands.are_summed {
            let splits = bands.bands.iter().map(|band| self.split_count(&band.problem, config)).sum();
            Some(self.reserve_split_sums(&first.problem, config, splits)?)
        } else {
            None
        };
        let [a_bytes, b_bytes] = bands.max_lens().map(|len| PARTS_BYTES * len);
        let max_blocks = u64::from(self.fill_device(&SPLIT_BF16, u32::MAX)?);
        let a = self.copies_workspace(a_bytes + b_bytes + 2 * 4 * max_blocks)?;
        let (b, nonfinite) = (a + a_bytes, a + a_bytes + b_bytes);
        let (mut b_span, mut b_blocks) = (None, 0);
        for (i, band) in bands.bands.iter().enumerate() {
            let [a_of_band, b_of_band] = band.spans;
            if b_span != Some(b_of_band) {
                b_span = Some(b_of_band);
                b_blocks = self.split_values(x.at[1], b_of_band, b, nonfinite)?;
            }
            let a_blocks = self.split_values(x.at[0], a_of_band, a, nonfinite + 4 * u64::from(b_blocks))?;
            let strides = band.spans.map(|span| 2 * span.len);
            let parts = Some(OperandParts { strides, nonfinite, nonfinite_count: a_blocks + b_blocks });
            let operands = Operands { at: [a, b], types: x.types, parts };
            sums = match sums {
                Some(sums) => Some(self.launch_band(&band.problem, sums, &operands, y, i + 1 == bands.bands.len())?),
                None => {
                    self.launch_problem(&band.problem, &operands, bias, y, Some(config))?;
                    None
                }
            };
        }
        Ok(())
    }

    /// Enqueues the split of a range of an operand. Returns the number of words that tell of infinities and NaN.
    fn split_values(&self, at: u64, span: Span, parts: u64, nonfinite: u64) -> Result<u32, Error> {
        let vec8s = span.len / VEC8;
        let blocks = u32::try_from(vec8s.div_ceil(SPLIT_THREADS)).unwrap_or(u32::MAX);
        let blocks = self.fill_device(&SPLIT_BF16, blocks)?;
        let vec8s = u32::try_from(vec8s).map_err(|_| Error::OutOfMemory { bytes: PARTS_BYTES * span.len })?;
        let params = SplitParams { x: at + 4 * span.first, parts, nonfinite, vec8s, unused: 0 };
        // SAFETY: the operand has this range, and the caller has reserved its parts and a word for each block.
        unsafe { self.launch(&SPLIT_BF16, [blocks, 1, 1], &params)? };
        Ok(blocks)
    }
}
