//! Self-test of cooperative matrices, and choice of the engine of products: a device uses them if its adapter has them,
//! multiplies exactly with them in the self-test, and is clearly faster with them.
//!
//! So far they have run on software drivers only (lavapipe 26, 8x8x8, subgroups of 8), on no GPU. So the properties that a
//! driver reports are checked:
//!
//! 1. *Candidates.* A pipeline is built for one subgroup size, but wgpu lets the driver choose the size of each pipeline
//!    between a minimum and a maximum. So every power of two between them is a candidate. On Metal, wgpu reports 4 to 64
//!    for every GPU, and Apple's are 32.
//! 2. *Size.* The kernel compares the size it runs with, and fills its tile with NaN if it is another one.
//! 3. *Self-test.* Small integers, whose sums f32 holds exactly in any order, are multiplied in all four layouts, in shapes
//!    with remainders and with a sum longer than 4096, and convolved in all passes, [`REPETITIONS`] times each (the long
//!    sum [`LONG_REPETITIONS_SOFTWARE`] times on a driver on a CPU). All words of results and statistics are compared with
//!    those that the host computes. A layout is one pipeline, and so is a pass, with strides another one for the data
//!    gradient; these are all pipelines there are.
//! 4. *Timing.* Drivers list emulated matrices, too: llama.cpp's authors saw 0.0007 to 20 times the speed of SIMT. So a
//!    product of useful size is timed by both engines.
//!
//! Repetitions are the remedy for a risk that one product would not show. naga 30 declares the Vulkan memory model for
//! modules with cooperative matrices (`back/spv/writer.rs`, `require_any("memory model")`), but writes
//! `OpCooperativeMatrixLoadKHR` and `OpCooperativeMatrixStoreKHR` without memory operands (`back/spv/instructions.rs`,
//! `coop_load`), loads and stores without `NonPrivatePointer`, and barriers without `MakeAvailable` and `MakeVisible`.
//! Formally every exchange through workgroup memory is a race then. Drivers that treat the barrier as the older memory
//! model does compute correctly; a driver that does not may err rarely. The self-test finds errors that occur within
//! [`REPETITIONS`] repetitions; it cannot exclude rarer ones.

mod convolutions;

use crate::{
    Error, Memory, Recording, Table, Wgpu,
    engine::{EnginePreference, EngineReason, NotOffered, ProductEngine, Refusal, RefusalCause, Timing},
    kernel,
    launch::{KernelLaunch, strided_workgroups},
    memory::{Bytes, word_of},
    operators::product::Product,
    product_engine::{Coop, Products},
};
use convolutions::{convolution_sums, operand_lens, test_convolutions};
use core::time::Duration;
use gradscale_core::{
    backend::{Backend, Control, DType, Data, DataMut, Slot, Store},
    ops::{Conv2d, Gemm, Pass},
    stats::{Convention, Detail, Stats, WORDS},
};
use half::f16;
use std::time::Instant;

/// Repetitions of each product of the self-test. All together are 0.25 TFLOP, with the padding of tiles: 0.8 s at 0.3
/// TFLOP/s.
const REPETITIONS: u32 = 50;
/// Repetitions of the long sum on a driver on a CPU, where one takes 0.05 s (measured on lavapipe 26).
const LONG_REPETITIONS_SOFTWARE: u32 = 4;
/// Times that cooperative matrices must be faster than SIMT to be used. Matrix units are at least twice as fast as SIMT
/// on the hardware that has them, and emulated ones are slower than SIMT. So few devices are near 1.5, and two runs on one
/// device choose the same although times vary.
const MIN_SPEEDUP: f64 = 1.5;
/// Pairs of times of which the shortest count: noise only adds to a time. Of 5 pairs on a busy CPU the ratio was 1.6 to
/// 5.6, where 2.4 is right.
const TIMED_PAIRS: u32 = 15;
/// Sides of the product that is timed: 2 GFLOP fill a GPU and take 7 ms at 0.3 TFLOP/s; a driver on a CPU computes about
/// 0.5 GFLOP/s.
const TIMED_SIZE: u32 = 1024;
const TIMED_SIZE_SOFTWARE: u32 = 128;
/// Word in place of results before a product: a half and an f32 that are NaN.
const SENTINEL: u32 = u32::MAX;

/// Shape and result type of a product in the self-test.
#[derive(Clone, Copy, Debug)]
struct TestShape {
    m: u32,
    n: u32,
    k: u32,
    results: DType,
    repetitions: u32,
}

/// Several tiles with remainders of rows, columns and depth; a depth that ends within a step of 16; a sum longer than
/// 4096 over enough tiles to keep all units of a GPU busy (0.6 GFLOP a product).
const TEST_SHAPES: [TestShape; 3] = [
    TestShape { m: 136, n: 152, k: 104, results: DType::F16, repetitions: REPETITIONS },
    TestShape { m: 260, n: 36, k: 20, results: DType::F32, repetitions: REPETITIONS },
    TestShape { m: 264, n: 276, k: 4108, results: DType::F32, repetitions: REPETITIONS },
];
/// Shapes of the self-test for drivers on a CPU, with fewer tiles. The long sum has so many results that it is not split.
const TEST_SHAPES_SOFTWARE: [TestShape; 3] = [
    TestShape { m: 36, n: 136, k: 40, results: DType::F16, repetitions: REPETITIONS },
    TestShape { m: 132, n: 36, k: 20, results: DType::F32, repetitions: REPETITIONS },
    TestShape { m: 132, n: 128, k: 4108, results: DType::F32, repetitions: LONG_REPETITIONS_SOFTWARE },
];

/// Periods of the operands' rows and columns. Primes, so that rows or columns exchanged at a distance of a power of two
/// differ, and few enough for the host to compute the products.
const ROW_PERIOD: u32 = 23;
const COLUMN_PERIOD: u32 = 29;

impl Wgpu {
    /// Chooses the engine of the device's matrix products by testing and timing the candidates.
    ///
    /// # Errors
    /// A device that is lost, and a preference for cooperative matrices that cannot be met.
    pub(crate) async fn choose_engine(
        &self, candidates: Result<Vec<Coop>, NotOffered>, preference: EnginePreference, is_software: bool,
    ) -> Result<Products, Error> {
        let candidates = match (preference, candidates) {
            (EnginePreference::Simt, _) => return Ok(Products::simt(preference, EngineReason::Pinned)),
            (EnginePreference::Fastest | EnginePreference::Cooperative, Ok(candidates)) => candidates,
            (EnginePreference::Fastest, Err(missing)) => {
                return Ok(Products::simt(preference, EngineReason::NotOffered(missing)));
            }
            (EnginePreference::Cooperative, Err(missing)) => {
                return Err(unavailable(&EngineReason::NotOffered(missing)));
            }
        };
        let mut refusals = Vec::new();
        let mut verified = None;
        for coop in candidates {
            match self.self_test(coop, is_software).await {
                Ok(None) => verified = Some(coop),
                Ok(Some(cause)) => refusals.push(Refusal { engine: coop.engine(), cause }),
                // Nothing more can be tried on this device.
                Err(Error::Lost(reason)) => return Err(Error::Lost(reason)),
                Err(error) => {
                    let cause = RefusalCause::Failed(error.to_string());
                    refusals.push(Refusal { engine: coop.engine(), cause });
                }
            }
            if verified.is_some() {
                break;
            }
        }
        let Some(coop) = verified else {
            let reason = EngineReason::Refused(refusals);
            return match preference {
                EnginePreference::Fastest | EnginePreference::Simt => Ok(Products::simt(preference, reason)),
                EnginePreference::Cooperative => Err(unavailable(&reason)),
            };
        };
        if preference == EnginePreference::Cooperative {
            return Ok(Products::new(preference, verified, coop.engine(), EngineReason::Pinned));
        }
        let timing = self.compare_speed(coop, is_software).await?;
        Ok(if is_clearly_faster(&timing) {
            Products::new(preference, verified, coop.engine(), EngineReason::Faster(timing))
        } else {
            Products::new(preference, verified, ProductEngine::Simt, EngineReason::NotFaster(timing))
        })
    }

    /// Multiplies small integers, subnormal halves and large ones among them, and compares all words of results and
    /// statistics with the host's. Returns the cause for a refusal, if there is one.
    async fn self_test(&self, coop: Coop, is_software: bool) -> Result<Option<RefusalCause>, Error> {
        let shapes = if is_software { TEST_SHAPES_SOFTWARE } else { TEST_SHAPES };
        let mut table = self.new_table(Slot::FIRST_SITE.0 + 1, 0)?;
        let mut exponents = vec![0; usize::from(Slot::FIRST_SITE.0) + 1];
        exponents[usize::from(Slot::FIRST_SITE.0)] = TEST_EXPONENT;
        let control = Control { exponents: &exponents, hyperparameters: &[], seed: 0, detail: Detail::Full };
        self.upload_control(&control, 0..0, &mut table)?;
        let mut cases = Vec::new();
        for shape in shapes {
            cases.push(MatrixCase::new(self, shape)?);
        }
        for transposed in [[false, false], [true, false], [false, true], [true, true]] {
            let mut checks = Checks::new(self, cases.len())?;
            for case in &mut cases {
                let p = transposed_gemm(case.shape, transposed)?;
                let operands = [&case.a[usize::from(transposed[0])], &case.b[usize::from(transposed[1])]];
                let product = Product::from_matrices(&p, operands, None);
                checks.check_product(self, coop, &product, &mut case.expected, &table, case.shape.repetitions)?;
            }
            if let Some(cause) = checks.refusal_cause(self).await? {
                return Ok(Some(cause));
            }
        }
        for (p, passes) in test_convolutions().map_err(|error| Error::Failed(error.to_string()))? {
            let mut checks = Checks::new(self, passes.len())?;
            for &pass in passes {
                let mut case = ConvolutionCase::new(self, &p, pass)?;
                let product = Product::from_convolution(&p, pass, [&case.a, &case.b], None);
                checks.check_product(self, coop, &product, &mut case.expected, &table, REPETITIONS)?;
            }
            if let Some(cause) = checks.refusal_cause(self).await? {
                return Ok(Some(cause));
            }
        }
        Ok(None)
    }

    /// Times one product of halves by both engines, alternately. Timestamps are waited for, which a browser could not; but
    /// browsers offer no cooperative matrices.
    async fn compare_speed(&self, coop: Coop, is_software: bool) -> Result<Timing, Error> {
        let size = if is_software { TIMED_SIZE_SOFTWARE } else { TIMED_SIZE };
        let shape = TestShape { m: size, n: size, k: size, results: DType::F16, repetitions: TIMED_PAIRS };
        let p = transposed_gemm(shape, [false; 2])?;
        let values = |seed| (0..size * size).map(|i| test_value(i % 4093, i / 4093, seed, 1.0)).collect::<Vec<_>>();
        let (a, b) = (self.upload_halves(&values(1))?, self.upload_halves(&values(2))?);
        let mut y = self.new_memory(DType::F16, (size * size) as usize)?;
        let table = self.new_table(Slot::FIRST_SITE.0, 0)?;
        let [cooperative, simt] = [Some(coop), None].map(|coop| {
            self.record(|| {
                let store = Store::keep(Slot::ONE, &table, &mut y);
                let product = Product::from_matrices(&p, [&a, &b], None);
                match coop {
                    Some(coop) => self.run_coop(coop, &product, &store),
                    None => self.run_tiles(&product, &store),
                }
            })
        });
        let [cooperative, simt] = [cooperative?, simt?].map(Option::unwrap_or_default);
        let mut shortest = [Duration::MAX; 2];
        // The first pair warms up.
        for number in 0..=TIMED_PAIRS {
            for (shortest, step) in shortest.iter_mut().zip([&cooperative, &simt]) {
                let time = self.measure_step(step, &y).await?;
                if number != 0 {
                    *shortest = time.min(*shortest);
                }
            }
        }
        Ok(Timing { size, cooperative: shortest[0], simt: shortest[1] })
    }

    /// Measures the device time of a step; wall-clock time if it has no timestamps.
    pub(crate) async fn measure_step(&self, step: &Recording, y: &Memory) -> Result<Duration, Error> {
        if let Some(time) = self.time(step)? {
            return Ok(time);
        }
        let start = Instant::now();
        self.replay(step)?;
        self.read_memory(y, DataMut::F16(&mut [f16::ZERO; 2])).await?;
        Ok(start.elapsed())
    }

    fn upload_halves(&self, values: &[f16]) -> Result<Memory, Error> {
        let memory = self.new_memory(DType::F16, values.len())?;
        self.write_memory(Data::F16(values), &memory)?;
        Ok(memory)
    }
}

/// Exponent of the stores of the self-test: not 0, so that the epilogue scales.
const TEST_EXPONENT: i32 = 5;

/// Units of the operands of the self-test: the smallest half there is, and 2^12.
const TEST_UNITS: [f32; 2] = [1.0 / (1 << 24) as f32, 4096.0];

/// Memory for the results of a product, and the words that results and statistics must have.
struct Expected {
    y: Memory,
    words: u32,
    results: Memory,
    row: Memory,
}

impl Expected {
    /// `sums` are those in the operands' units.
    fn new(device: &Wgpu, dtype: DType, sums: &[i32]) -> Result<Self, Error> {
        let scale = TEST_UNITS[0] * TEST_UNITS[1] * 2f32.powi(TEST_EXPONENT);
        let stored: Vec<f32> = sums.iter().map(|&sum| sum as f32 * scale).collect();
        let mut row = Stats::new(Convention::FP16, TEST_EXPONENT, Detail::Full);
        row.observe(&stored);
        let words: Vec<u32> = match dtype {
            DType::F32 => stored.iter().map(|value| value.to_bits()).collect(),
            DType::F16 | DType::U8 | DType::U32 => {
                let bits: Vec<u16> = stored.iter().map(|&value| f16::from_f32(value).to_bits()).collect();
                bits.chunks(2).map(|two| u32::from(two[0]) | u32::from(two[1]) << 16).collect()
            }
        };
        let upload_words = |words: &[u32]| {
            let memory = device.new_memory(DType::U32, words.len())?;
            device.write_memory(Data::U32(words), &memory)?;
            Ok::<_, Error>(memory)
        };
        let y = device.new_memory(dtype, stored.len())?;
        let before = vec![SENTINEL; words.len()];
        match dtype {
            DType::F32 => device.write_memory(Data::F32(bytemuck::cast_slice(&before)), &y)?,
            DType::F16 | DType::U8 | DType::U32 => device.write_memory(Data::F16(bytemuck::cast_slice(&before)), &y)?,
        }
        let (results, row) = (upload_words(&words)?, upload_words(&row.to_words())?);
        Ok(Self { y, words: word_of(words.len()), results, row })
    }
}

/// Comparisons of products with their expected results, on the device.
struct Checks {
    /// For each product, the number of words of results that differ, and of words of statistics.
    differing: Memory,
    products: usize,
    compared: u64,
}

impl Checks {
    fn new(device: &Wgpu, max_products: usize) -> Result<Self, Error> {
        let differing = device.new_memory(DType::U32, 2 * max_products)?;
        device.write_memory(Data::U32(&vec![0; 2 * max_products]), &differing)?;
        Ok(Self { differing, products: 0, compared: 0 })
    }

    /// Computes a product some times, and compares results and statistics each time.
    fn check_product(
        &mut self, device: &Wgpu, coop: Coop, product: &Product<'_>, expected: &mut Expected, table: &Table,
        repetitions: u32,
    ) -> Result<(), Error> {
        let row = u32::from(Slot::FIRST_SITE.0) * word_of(WORDS);
        let rows = Bytes::whole(&table.rows);
        let computing = device.record(|| {
            let store = Store::site(Slot::ONE, Slot::FIRST_SITE, table, &mut expected.y);
            device.run_coop(coop, product, &store)
        })?;
        let comparing = device.record(|| {
            let counter = 2 * word_of(self.products);
            let call = KernelLaunch::new(&kernel::COMPARE)
                .params([0, expected.words, 0, 0, SENTINEL, counter])
                .part(3, expected.y.bytes())
                .memory(5, &expected.results)
                .memory(6, &self.differing);
            device.launch(call, strided_workgroups(expected.words))?;
            // Sums are those of detail `Moments`, which is not asked for.
            let call = KernelLaunch::new(&kernel::COMPARE)
                .params([row, word_of(WORDS), 16, 24, 0, counter + 1])
                .part(3, rows)
                .memory(5, &expected.row)
                .memory(6, &self.differing);
            device.launch(call, 1)
        })?;
        for _ in 0..repetitions {
            [&computing, &comparing].into_iter().flatten().try_for_each(|step| device.replay(step))?;
        }
        self.products += 1;
        self.compared += u64::from(repetitions) * u64::from(expected.words + word_of(WORDS) - 8);
        Ok(())
    }

    /// Returns the cause for a refusal, if a word differs.
    async fn refusal_cause(&self, device: &Wgpu) -> Result<Option<RefusalCause>, Error> {
        let mut counts = vec![0; 2 * self.products];
        device.read_memory(&self.differing, DataMut::U32(&mut counts)).await?;
        let words = counts.iter().fold(0u32, |sum, &count| sum.saturating_add(count));
        Ok((words != 0).then_some(RefusalCause::Wrong { words, of: self.compared }))
    }
}

/// Operands of a product in both layouts, and what results from them.
struct MatrixCase {
    shape: TestShape,
    a: [Memory; 2],
    b: [Memory; 2],
    expected: Expected,
}

impl MatrixCase {
    fn new(device: &Wgpu, shape: TestShape) -> Result<Self, Error> {
        let TestShape { m, n, k, results, .. } = shape;
        let a = |i, t| test_value(i % ROW_PERIOD, t, 1, TEST_UNITS[0]);
        let b = |t, j| test_value(j % COLUMN_PERIOD, t, 2, TEST_UNITS[1]);
        let lines = |outer: u32, inner: u32, of: &dyn Fn(u32, u32) -> f16| {
            let all = (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i)));
            device.upload_halves(&all.map(|(o, i)| of(o, i)).collect::<Vec<_>>())
        };
        Ok(Self {
            shape,
            a: [lines(m, k, &a)?, lines(k, m, &|t, i| a(i, t))?],
            b: [lines(k, n, &b)?, lines(n, k, &|j, t| b(t, j))?],
            expected: Expected::new(device, results, &expected_sums(shape))?,
        })
    }
}

/// Operands of a pass of a convolution, and what results from them.
struct ConvolutionCase {
    a: Memory,
    b: Memory,
    expected: Expected,
}

impl ConvolutionCase {
    fn new(device: &Wgpu, p: &Conv2d, pass: Pass) -> Result<Self, Error> {
        let [a_len, b_len] = operand_lens(p, pass);
        let (a, b) = (test_integers(a_len, 1), test_integers(b_len, 2));
        let upload = |integers: &[i32], unit: f32| {
            device.upload_halves(&integers.iter().map(|&i| f16::from_f32(i as f32 * unit)).collect::<Vec<_>>())
        };
        // Gradients of weights are f32 in a training.
        let dtype = if pass == Pass::Weight { DType::F32 } else { DType::F16 };
        Ok(Self {
            a: upload(&a, TEST_UNITS[0])?,
            b: upload(&b, TEST_UNITS[1])?,
            expected: Expected::new(device, dtype, &convolution_sums(p, pass, &a, &b))?,
        })
    }
}

/// Returns a small integer in units, determined by a line and a place in it.
fn test_value(line: u32, place: u32, seed: u32, unit: f32) -> f16 {
    f16::from_f32(test_integer(line, place, seed) as f32 * unit)
}

/// Returns a pseudo-random integer from -3 to 3. Mixed with the constants of the generator of Numerical Recipes, whose
/// high bits are good.
fn test_integer(line: u32, place: u32, seed: u32) -> i32 {
    let mix = |state: u32| state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    let state = mix(mix(mix(seed).wrapping_add(line)).wrapping_add(place));
    (state >> 16) as i32 % 7 - 3
}

/// Returns pseudo-random integers from -3 to 3.
fn test_integers(len: u32, seed: u32) -> Vec<i32> {
    (0..len).map(|i| test_integer(i / 101, i % 101, seed)).collect()
}

/// Returns the sums of a product in its operands' units: at most 9 · k, which f32 holds exactly. Each pair of periods
/// once.
fn expected_sums(TestShape { m, n, k, .. }: TestShape) -> Vec<i32> {
    let lines = |period: u32, seed: u32| {
        let line = |line| (0..k).map(move |place| test_integer(line, place, seed)).collect::<Vec<_>>();
        (0..period).map(line).collect::<Vec<_>>()
    };
    let (rows, columns) = (lines(ROW_PERIOD, 1), lines(COLUMN_PERIOD, 2));
    let dot = |a: &[i32], b: &[i32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<i32>();
    let products: Vec<Vec<i32>> =
        rows.iter().map(|row| columns.iter().map(|column| dot(row, column)).collect()).collect();
    let at = |i: u32, j: u32| products[(i % ROW_PERIOD) as usize][(j % COLUMN_PERIOD) as usize];
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| at(i, j)).collect()
}

fn transposed_gemm(TestShape { m, n, k, .. }: TestShape, [a, b]: [bool; 2]) -> Result<Gemm, Error> {
    let failed = |error: gradscale_core::ops::ShapeError| Error::Failed(error.to_string());
    let p = Gemm::new(m, n, k).map_err(failed)?;
    let p = if a { p.transpose_a().map_err(failed)? } else { p };
    if b { p.transpose_b().map_err(failed) } else { Ok(p) }
}

fn is_clearly_faster(timing: &Timing) -> bool {
    timing.simt.as_secs_f64() >= MIN_SPEEDUP * timing.cooperative.as_secs_f64()
}

fn unavailable(reason: &EngineReason) -> Error {
    Error::Engine(format!("cooperative matrices are asked for: {reason}"))
}

#[cfg(test)]
mod tests;
