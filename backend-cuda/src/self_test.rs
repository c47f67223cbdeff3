//! Self-test of kernels with instructions of one architecture (wgmma, TMA), on the device itself, before a kernel is used
//! for the first time. If it fails or does not compile, the kernel for all architectures is used.

use crate::{
    Cuda, Error,
    conv_halo::HaloConv,
    gemm_problem::{GemmKind, GemmProblem},
    kernel_selection::{EIGHT_BIT_FORMATS, KernelConfig},
    memory::Memory,
};
use gradscale_core::{
    backend::{Backend, Control, DType, Data, DataMut, Slot, Store},
    ops::{Conv2d, Gemm, Pass, ShapeError},
    stats::{Convention, Detail, Stats},
};
use half::f16;
use pollster::block_on;
use std::sync::PoisonError;

/// Returns the matrix product of the self-test: several tiles along each side, and parts of tiles. That of f32 operands is
/// smaller, because it runs several times.
pub(crate) fn test_gemm(kind: GemmKind, config: KernelConfig) -> Result<Gemm, Error> {
    let GemmKind::Matmul([a, b]) = kind else { unreachable!("a convolution is no product of matrices") };
    let shape = || -> Result<Gemm, ShapeError> {
        let (m, n, k) = if config.is_bf16x6() { (136, 200, 136) } else { (264, 392, 200) };
        let p = Gemm::new(m, n, k)?;
        let p = if a { p.transpose_a()? } else { p };
        let p = if b { p.transpose_b()? } else { p };
        p.batched(2, [m * k, k * n, m * n])
    };
    shape().map_err(invalid)
}

/// Shape by which a kernel is tested. One that loads by TMA has a test for each, since it may pass one of them alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestShape {
    /// Whole boxes of channels, or operands that TMA does not load.
    Whole,
    /// Boxes that reach beyond the channels of the tensor, where TMA must fill zeros.
    PartialBoxes,
    /// Halo tiles of eight channels: K steps of two taps, and zeros beside the last one.
    HaloOfEightChannels,
    /// Halo tiles of 16 to 48 channels: several taps in a stage of weights, and a last stage that is not full.
    HaloOfFewPlanes,
    /// Halo tiles of 64 channels.
    HaloOfAllPlanes,
}

impl TestShape {
    /// Tests of halo tiles.
    const HALO: [Self; 3] = [Self::HaloOfEightChannels, Self::HaloOfFewPlanes, Self::HaloOfAllPlanes];

    /// Returns the test that a kernel must pass before it computes a problem.
    pub fn new(problem: &GemmProblem, config: KernelConfig) -> Self {
        if config.is_halo() {
            return match HaloConv::new(problem).map_or(0, |conv| conv.channels()) {
                0..16 => Self::HaloOfEightChannels,
                16..64 => Self::HaloOfFewPlanes,
                64.. => Self::HaloOfAllPlanes,
            };
        }
        if config.is_tma() && problem.has_partial_boxes() { Self::PartialBoxes } else { Self::Whole }
    }

    /// Returns the tests that a kernel may need.
    fn of_config(kind: GemmKind, config: KernelConfig) -> &'static [Self] {
        let is_conv = matches!(kind, GemmKind::Conv(_));
        if config.is_halo() {
            &Self::HALO
        } else if is_conv && config.is_tma() {
            &[Self::Whole, Self::PartialBoxes]
        } else {
            &[Self::Whole]
        }
    }

    /// Returns the name of the test of a kernel.
    fn name(self, config: KernelConfig) -> String {
        let part = match self {
            Self::Whole => "",
            Self::PartialBoxes => "+partial_boxes",
            Self::HaloOfEightChannels => "+8_channels",
            Self::HaloOfFewPlanes => "+16_channels",
            Self::HaloOfAllPlanes => "+64_channels",
        };
        format!("{}{part}", config.kernel.module.name)
    }
}

/// Returns a test convolution for one pass. TMA loads 64 channels at a time. Rows and columns differ in every
/// parameter, so that swapping them is detected.
pub(crate) fn test_conv(config: KernelConfig, pass: Pass, test: TestShape) -> Result<Conv2d, Error> {
    let shape = || -> Result<Conv2d, ShapeError> {
        let stride = if pass == Pass::Data { [1, 1] } else { [1, 2] };
        let by_tma = |channels, outputs, groups| {
            let p = Conv2d::padded([2, 10, 16, channels], outputs, [2, 3], [0, 2])?;
            p.dilation([2, 1])?.stride(stride)?.groups(groups)
        };
        // Images of more than one tile, whose edges are inside of the last ones. Results fill more than one block of 64.
        let halo = |size: [u32; 2], channels, results, kernel, padding| {
            let [c, o] = if pass == Pass::Data { [results, channels] } else { [channels, results] };
            Conv2d::padded([2, size[0], size[1], c], o, kernel, padding)
        };
        match test {
            TestShape::Whole if !config.is_tma() => Conv2d::padded([2, 9, 11, 72], 136, [3, 3], [1, 1]),
            TestShape::Whole if config.is_bf16x6() => by_tma(128, 256, 2),
            TestShape::Whole => by_tma(256, 384, 2),
            TestShape::PartialBoxes => by_tma(72, 136, 1),
            TestShape::HaloOfEightChannels => halo([18, 21], 8, 72, [7, 7], [3, 2]),
            TestShape::HaloOfFewPlanes => halo([21, 18], 16, 136, [3, 3], [1, 2]),
            TestShape::HaloOfAllPlanes => halo([9, 18], 64, 72, [7, 7], [2, 3]),
        }
    };
    shape().map_err(invalid)
}

fn invalid(error: ShapeError) -> Error {
    Error::Driver { doing: "prove a kernel", name: error.to_string(), lost: false }
}

fn element_count(shape: [u32; 4]) -> usize {
    shape.into_iter().product::<u32>() as usize
}

/// Values of an operand of a self-test: random integers, whose sums of products are exact in any order.
#[derive(Clone, Copy, Debug)]
struct TestValues {
    /// Magnitudes are below it.
    end: u32,
    /// One of so many values is not zero, on average.
    one_in: u32,
    has_infinity: bool,
}

impl TestValues {
    const SMALL_INTEGERS: Self = Self { end: 4, one_in: 1, has_infinity: false };
    /// Integers that three bfloat16 represent, and two do not.
    const WIDE_INTEGERS: Self = Self { end: 1 << 18, one_in: 1, has_infinity: false };
    const SPARSE_SIGNS: Self = Self { end: 2, one_in: 64, has_infinity: false };
    /// Integers that two bfloat16 represent, and one does not.
    const MIDDLE_INTEGERS: Self = Self { end: 1 << 10, one_in: 8, has_infinity: false };
    const WITH_INFINITY: Self = Self { has_infinity: true, ..Self::SMALL_INTEGERS };

    /// Operands of the runs of a test. Those of f32 need each product of parts, and infinities.
    fn of_config(config: KernelConfig) -> &'static [[Self; 2]] {
        const HALVES: &[[TestValues; 2]] = &[[TestValues::SMALL_INTEGERS; 2]];
        const PARTS: &[[TestValues; 2]] = &[
            [TestValues::WIDE_INTEGERS, TestValues::SPARSE_SIGNS],
            [TestValues::SPARSE_SIGNS, TestValues::WIDE_INTEGERS],
            [TestValues::MIDDLE_INTEGERS; 2],
            [TestValues::WITH_INFINITY, TestValues::SMALL_INTEGERS],
        ];
        if config.is_bf16x6() { PARTS } else { HALVES }
    }

    fn generate(self, len: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = |end: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % end
        };
        let mut value = || {
            let magnitude = if self.one_in == 1 { next(self.end) } else { 1 + next(self.end - 1) };
            let is_zero = next(self.one_in) != 0;
            let sign = if next(2) == 0 { 1.0 } else { -1.0 };
            if is_zero { 0.0 } else { sign * magnitude as f32 }
        };
        let mut values: Vec<f32> = (0..len).map(|_| value()).collect();
        if let Some(value) = values.get_mut(len / 3).filter(|_| self.has_infinity) {
            *value = f32::INFINITY;
        }
        values
    }
}

/// Compares results and statistics of a kernel with those of the simplest one; the error names the first difference and
/// their number.
fn compare_results([here, there]: &[Vec<f32>; 2], [row, wanted]: &[Stats; 2]) -> Result<(), String> {
    // NaN may differ in its bits.
    let differ = |&at: &usize| here[at].to_bits() != there[at].to_bits() && !(here[at].is_nan() && there[at].is_nan());
    if let Some(at) = (0..here.len()).find(differ) {
        let count = (0..here.len()).filter(differ).count();
        let (got, want) = (here[at], there[at]);
        return Err(format!(
            "{count} of {} results differ, the first at {at}: {got} where {want} is right",
            here.len()
        ));
    }
    if row.counts() != wanted.counts() {
        return Err(format!("counts {:?} where {:?} are right", row.counts(), wanted.counts()));
    }
    if row.bins() != wanted.bins() {
        return Err("another histogram".into());
    }
    Ok(())
}

/// Returns every test of a kernel configuration that only one architecture has, with a product it applies to.
fn arch_specific_tests() -> impl Iterator<Item = (GemmKind, KernelConfig, TestShape)> {
    let matrices = [false, true].into_iter().flat_map(|b| [false, true].map(|a| GemmKind::Matmul([a, b])));
    let kinds = matrices.chain(Pass::ALL.map(GemmKind::Conv));
    let with_shapes = |kind, configs: Vec<KernelConfig>| {
        configs
            .into_iter()
            .flat_map(move |config| TestShape::of_config(kind, config).iter().map(move |&shape| (kind, config, shape)))
    };
    let halves = kinds.clone().flat_map(move |kind| with_shapes(kind, KernelConfig::wgmma_candidates(kind)));
    let f32 = kinds.flat_map(move |kind| with_shapes(kind, KernelConfig::bf16x6_candidates(kind)));
    // Packed operands are contiguous along k.
    let packed = GemmKind::Matmul([false, true]);
    let eight_bits = EIGHT_BIT_FORMATS.map(|formats| (packed, KernelConfig::wgmma_fp8(formats), TestShape::Whole));
    halves.chain(f32).chain(eight_bits)
}

impl Cuda {
    /// Returns the names of the self-tests of modules for this device's architecture alone: products by warpgroups on an
    /// sm_90, which are tested on the device before they are used.
    #[must_use]
    pub fn self_test_names(&self) -> Vec<String> {
        if self.has_warpgroups() {
            arch_specific_tests().map(|(_, config, shape)| shape.name(config)).collect()
        } else {
            vec![]
        }
    }

    /// Runs a self-test on this device, of results and statistics. A kernel that hangs blocks this call, so run it in a
    /// process that can be killed.
    ///
    /// # Errors
    /// The fault: the first difference, or the error of the compiler or the driver.
    pub fn self_test_module(&self, name: &str) -> Result<(), String> {
        let test = arch_specific_tests().find(|(_, config, shape)| shape.name(*config) == name);
        let (kind, config, shape) = test.ok_or_else(|| format!("no self-test is called {name}"))?;
        self.passes_self_test(kind, config, shape).map_err(|error| error.to_string())?;
        self.self_test_results()
            .remove(name)
            .unwrap_or_else(|| Err("a step is recorded, in which nothing can be proven".into()))
    }

    /// Returns true if a kernel gives the bits of the simplest one, results and statistics. While a step is recorded
    /// nothing can run, so an untested kernel counts as failing.
    pub(crate) fn passes_self_test(
        &self, kind: GemmKind, config: KernelConfig, shape: TestShape,
    ) -> Result<bool, Error> {
        let name = shape.name(config);
        let known = self.self_test_results.lock().unwrap_or_else(PoisonError::into_inner).get(&name).map(Result::is_ok);
        match known {
            Some(right) => Ok(right),
            None if self.is_recording() => Ok(false),
            None => {
                let result = match self.run_self_test(kind, config, shape) {
                    // A device that is lost is lost for all, and one that has no room for this may have some later.
                    Err(error @ (Error::Driver { lost: true, .. } | Error::OutOfMemory { .. })) => return Err(error),
                    // A module that does not compile is not used.
                    Err(error) => Err(error.to_string()),
                    Ok(result) => result,
                };
                let right = result.is_ok();
                self.self_test_results.lock().unwrap_or_else(PoisonError::into_inner).insert(name, result);
                Ok(right)
            }
        }
    }

    /// Runs a kernel and the simplest one; the inner error describes the first difference.
    fn run_self_test(
        &self, kind: GemmKind, config: KernelConfig, shape: TestShape,
    ) -> Result<Result<(), String>, Error> {
        let [a_len, b_len, y_len] = match kind {
            GemmKind::Matmul(_) => test_gemm(kind, config)?.lens().map(|len| len as usize),
            GemmKind::Conv(pass) => {
                let p = test_conv(config, pass, shape)?;
                let [x, w, y] = [p.x(), p.w(), p.y()].map(element_count);
                match pass {
                    Pass::Forward => [x, w, y],
                    Pass::Data => [y, w, x],
                    // The operand with the rows of the result is first.
                    Pass::Weight => [y, x, w],
                }
            }
        };
        for values in TestValues::of_config(config) {
            if let Err(difference) = self.compare_kernels(kind, config, shape, [a_len, b_len, y_len], *values)? {
                return Ok(Err(difference));
            }
        }
        Ok(Ok(()))
    }

    /// Runs a kernel and the simplest one with operands of these values.
    fn compare_kernels(
        &self, kind: GemmKind, config: KernelConfig, shape: TestShape, [a_len, b_len, y_len]: [usize; 3],
        [a, b]: [TestValues; 2],
    ) -> Result<Result<(), String>, Error> {
        let dtype = if config.is_bf16x6() { DType::F32 } else { DType::F16 };
        let load = |len, values: TestValues, seed| {
            let (mut memory, values) = (self.alloc(dtype, len)?, values.generate(len, seed));
            if config.is_bf16x6() {
                self.write(Data::F32(&values), &mut memory)?;
            } else {
                let halves: Vec<f16> = values.into_iter().map(f16::from_f32).collect();
                self.write(Data::F16(&halves), &mut memory)?;
            }
            Ok::<_, Error>(memory)
        };
        let (a, b) = (load(a_len, a, 1)?, load(b_len, b, 2)?);
        let (mut y, mut reference) =
            (load(y_len, TestValues::SMALL_INTEGERS, 3)?, load(y_len, TestValues::SMALL_INTEGERS, 4)?);
        let slots = [Slot::FIRST_SITE, Slot(Slot::FIRST_SITE.0 + 1)];
        let mut exponents = vec![0; usize::from(Slot::FIRST_SITE.0) + 2];
        exponents[usize::from(Slot::FIRST_SITE.0)..].fill(-3);
        let mut table = self.table(Slot::FIRST_SITE.0 + 2, 0)?;
        let control = Control { exponents: &exponents, hyperparameters: &[], seed: 0, detail: Detail::Full };
        self.upload(&control, 0..Slot::FIRST_SITE.0 + 2, &mut table)?;
        let stores = [
            Store::site(Slot::ONE, slots[0], &table, &mut y),
            Store::site(Slot::ONE, slots[1], &table, &mut reference),
        ];
        self.run_both_kernels(kind, config, shape, [&a, &b], stores)?;
        let results = [self.read_results(&y, dtype, y_len)?, self.read_results(&reference, dtype, y_len)?];
        let mut rows = [Stats::new(Convention::FP16, 0, Detail::None); 2];
        block_on(self.collect(&table, slots[0].0..slots[1].0 + 1, &mut rows, &[], &mut []))?;
        Ok(compare_results(&results, &rows))
    }

    /// Reads results as f32.
    fn read_results(&self, y: &Memory, dtype: DType, len: usize) -> Result<Vec<f32>, Error> {
        if dtype == DType::F32 {
            let mut values = vec![0.0; len];
            block_on(self.read(y, DataMut::F32(&mut values)))?;
            return Ok(values);
        }
        let mut halves = vec![f16::ZERO; len];
        block_on(self.read(y, DataMut::F16(&mut halves)))?;
        Ok(halves.into_iter().map(f16::to_f32).collect())
    }
}
