//! Evaluation of the bench's figures: targets, and the model of the time that a device should take.

#![allow(clippy::cast_possible_truncation, reason = "the bench's own modules: small sizes")]

mod emulated;

#[path = "../benches/cuda/ablation.rs"]
mod ablation;
#[path = "../benches/cuda/attention.rs"]
mod attention;
#[path = "../benches/cuda/blas.rs"]
mod blas;
#[path = "../benches/cuda/copies.rs"]
mod copies;
#[path = "../benches/cuda/elements.rs"]
mod elements;
#[path = "../benches/cuda/f32.rs"]
mod f32;
#[path = "../benches/cuda/fp8.rs"]
mod fp8;
#[path = "../benches/cuda/measure.rs"]
mod measure;
#[path = "../benches/cuda/model.rs"]
mod model;
#[path = "../benches/cuda/networks.rs"]
mod networks;
#[path = "../benches/cuda/odd.rs"]
mod odd;
#[path = "../benches/cuda/products.rs"]
mod products;
#[path = "../benches/cuda/sensors.rs"]
mod sensors;
#[path = "../benches/cuda/targets.rs"]
mod targets;

use copies::CopyKernel;
use emulated::Emulated;
use gradscale_core::backend::{Backend, DType, Data, DataMut};
use gradscale_cuda::{Cuda, Memory};
use measure::Bench;
use model::{Product, Work, figures};
use networks::{Built, Network, Row};

/// README's table is that of the file.
#[test]
fn targets_are_in_the_readme() {
    let readme = include_str!("../README.md");
    for target in targets::read_targets() {
        let row = format!("| {} | {} | {} |", target.line, target.beside, target.words());
        assert!(readme.contains(&row), "`scripts/gpu_bundle/page.py --targets` writes README.md; without {row}");
    }
    let rows = |text: &str| text.lines().filter(|line| line.starts_with("| ") && line.contains(", goal ")).count();
    assert_eq!(rows(readme), targets::read_targets().count(), "rows of no target");
}

#[test]
fn a_line_finds_its_target() {
    let goal = |name: &str| targets::find_target(name).map(|target| target.limits[1]);
    assert_eq!(goal("gemm 2048³: with statistics / cuBLASLt without"), Some(1.0));
    assert_eq!(goal("conv encoder.conv2 Weight: with statistics / cuDNN"), Some(1.0));
    assert_eq!(goal("conv encoder.conv2 Weight: statistics on / off"), Some(0.99));
    assert_eq!(goal("gemm : statistics on / off"), None);
    assert_eq!(goal("gemm"), None);
    assert_eq!(goal("conv odd head 3×3 512→84 Data: with statistics / cuDNN"), Some(1.0));
    assert_eq!(goal("network decoder step: with scaling / PyTorch AMP"), Some(1.0));
    assert!(!targets::find_target("segnet: minutes of 16 000 iterations").expect("a target").at_least);
    let mut all = targets::read_targets();
    assert!(all.all(
        |target| (target.limits[0] <= target.limits[1]) == target.at_least || target.limits[0] == target.limits[1]
    ));
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-3 * b.abs()
}

/// The rates that are advertised come out of the figures.
#[test]
fn figures_are_the_makers() {
    for (name, tflops) in [("NVIDIA H100 80GB HBM3", 989.4), ("NVIDIA A100-SXM4-80GB", 312.0), ("Tesla T4", 65.0)] {
        let gpu = figures(&format!("CUDA 0, {name}, sm_90, 132 multiprocessors")).expect("known");
        let rate = gpu.multiprocessors * gpu.clock * gpu.tensor / 1e12;
        assert!((rate / tflops - 1.0).abs() < 0.003, "{name}: {rate}");
    }
    assert_eq!(figures("CUDA 0, emulated, sm_80, 2 multiprocessors"), None);
    // Fewer multiprocessors than the other one.
    assert_eq!(figures("CUDA 0, NVIDIA H100 PCIe, sm_90, 114 multiprocessors"), None);
}

/// A cast of 2^28 elements on an H100: with 40 instructions an element as long in issue as in memory, with 4 not.
#[test]
fn casts_wait_for_memory_or_for_instructions() {
    let gpu = figures("H100 80GB HBM3").expect("known");
    let count = f64::from(1 << 28);
    let few = gpu.expect(&Work::elements(count, 4.0, 6.0));
    assert!(near(few.seconds, count * 6.0 / 3.352e12) && near(few.memory, 1.0), "{few:?}");
    assert!(near(few.issue, count * 4.0 / 128.0 / (132.0 * 1.83e9) / few.seconds), "{few:?}");
    let many = gpu.expect(&Work::elements(count, 80.0, 6.0));
    assert!(near(many.issue, 1.0) && many.memory < 0.8, "{many:?}");
    let nothing = gpu.expect(&Work::default());
    assert_eq!([nothing.seconds, nothing.issue, nothing.tensor], [0.0; 3]);
}

/// Computed by hand: a block of 128 × 256 multiplies one k in 16 clocks and reads 80 bytes a clock; 4096³ is 512 tiles
/// in 4 rounds.
#[test]
fn a_product_on_an_h100() {
    let gpu = figures("H100 80GB HBM3").expect("known");
    let product = Product {
        size: [4096.0; 3],
        tile: [128.0, 256.0],
        part: [64.0, 256.0],
        inner: 0.0,
        epilogue: [8.0, 0.0],
        cut: false,
        memory: 6.0 * 4096.0 * 4096.0,
    };
    let expected = gpu.expect(&product.work(gpu));
    // 4 rounds of 65 536 clocks, and 8 · 32 768 / 128 for the end of each.
    let clocks = 4.0 * (65_536.0 + 2048.0);
    assert!(near(expected.seconds, clocks / 1.83e9), "{expected:?}");
    assert!(near(expected.tensor, 65_536.0 / 67_584.0), "{expected:?}");
    assert!(near(expected.shared, 80.0 / 128.0 * expected.tensor), "{expected:?}");
    assert!(near(expected.issue, 2048.0 / 67_584.0), "{expected:?}");
    // A tile of 64 columns is limited by the bandwidth of shared memory.
    let narrow = Product { tile: [128.0, 64.0], part: [64.0, 64.0], ..product };
    let expected = gpu.expect(&narrow.work(gpu));
    assert!(near(expected.shared, expected.tensor), "{expected:?}");
    // Eight warps of 32 instructions, four at a time, are 64 of the 1024 clocks for 64 of k.
    let counted = gpu.expect(&Product { inner: 32.0, ..product }.work(gpu));
    assert!(near(counted.issue - 2048.0 / 67_584.0, 64.0 / 1024.0 * counted.tensor), "{counted:?}");
    // If stores overlap with the next tile's products, only the end of the last tile takes time.
    let hidden = gpu.expect(&Product { epilogue: [1.0, 8.0], ..product }.work(gpu));
    assert!(near(hidden.seconds, (4.0 * (65_536.0 + 256.0) + 2048.0) / 1.83e9), "{hidden:?}");
    // If sums are short, storing takes longer than multiplying.
    let short = Product { size: [4096.0, 4096.0, 64.0], epilogue: [1.0, 8.0], ..product };
    let expected = gpu.expect(&Work { memory: 0.0, ..short.work(gpu) });
    assert!(near(expected.seconds, (3.0 * 2048.0 + 4.0 * 256.0 + 2048.0) / 1.83e9), "{expected:?}");
    // Cut, 25 tiles keep all multiprocessors busy.
    let weight = Product { size: [3136.0, 64.0, 1e6], cut: true, ..narrow };
    let [whole, cut] = [weight, Product { cut: false, ..weight }].map(|p| gpu.expect(&p.work(gpu)).seconds);
    assert!(near(cut / whole, 132.0 / 25.0), "{cut} {whole}");
}

/// An emulated device, unless there is no compiler for its kernels.
fn emulated(arch: u32) -> Option<(Emulated, Cuda)> {
    let emulated = Emulated::new(arch, 2).map_err(|reason| println!("SKIPPED: {reason}")).ok()?;
    let device = emulated.open().expect("a device");
    Some((emulated, device))
}

/// Creates a bench of small sizes, filtered by these words.
fn small<'a>(device: &'a Cuda, words: &[&str]) -> Bench<'a> {
    Bench::new(device, words.iter().map(|&word| word.to_owned()).collect(), true)
}

fn read(device: &Cuda, memory: &Memory, len: usize) -> Vec<u32> {
    let mut values = vec![0.0f32; len];
    pollster::block_on(device.read(memory, DataMut::F32(&mut values))).expect("it is read");
    values.into_iter().map(f32::to_bits).collect()
}

/// Every variant of the copy kernel copies everything, for any remainder after the last chunk, and nothing after the
/// end.
#[test]
fn a_copy_is_a_copy() {
    let Some((_emulated, device)) = emulated(80) else { return };
    for len in [4, 8 * 256 * 4, 3 * 8 * 256 * 4 + 20, 70_000] {
        let bench = small(&device, &[]);
        let from = bench.normal(DType::F32, len).expect("memory");
        let mut to = device.alloc(DType::F32, len + 4).expect("memory");
        let kernels = CopyKernel::load_all(&device).expect("kernels");
        assert_eq!(kernels.len(), 12);
        for kernel in kernels {
            device.write(Data::F32(&vec![-7.0; len + 4]), &mut to).expect("it is written");
            kernel.launch(&device, &from, &to).expect("it runs");
            let copied = read(&device, &to, len + 4);
            assert!(copied[..len] == read(&device, &from, len), "{kernel:?}, {len}");
            assert_eq!(copied[len..], [(-7.0f32).to_bits(); 4], "{kernel:?}, {len}");
        }
    }
}

/// The copy reports its fastest variant, and memory-bound kernels are compared with that.
#[test]
fn the_fastest_copy_is_what_others_are_compared_with() {
    let Some((_emulated, device)) = emulated(80) else { return };
    let mut bench = small(&device, &[]);
    copies::copy(&mut bench).expect("it runs");
    let table = bench.table();
    let row = table.lines().find(|row| row.contains("copy on the device")).expect("a row");
    for way in ["store kernel ", "copy kernel ("] {
        assert!(row.contains(way), "{row}");
    }
    assert!(bench.copy.gigabytes > 0.0 && row.contains(bench.copy.by), "{row}");
    elements::measure(&mut bench).expect("it runs");
    let (table, by) = (bench.table(), format!("GB/s by {} |", bench.copy.by));
    let compared: Vec<_> = table.lines().filter(|row| row.contains(" / copy |")).collect();
    assert!(compared.len() == 11 && compared.iter().all(|row| row.contains(&by)), "{table}");
}

/// Names of a bench's rows.
fn rows(bench: &Bench<'_>) -> Vec<String> {
    let table = bench.table();
    table.lines().filter_map(|row| Some(row.strip_prefix("| ")?.split(" | ").next()?.to_owned())).skip(1).collect()
}

/// Square products, also alone, and all odd sizes, on both generations of instructions.
#[test]
fn products_of_all_sizes_run() {
    for arch in [80, 90] {
        let Some((_emulated, device)) = emulated(arch) else { return };
        let mut bench = small(&device, &["gemm 32", "encoder.conv2", "odd"]);
        products::gemm(&mut bench, true).expect("it runs");
        products::conv(&mut bench).expect("it runs");
        odd::measure(&mut bench).expect("it runs");
        let rows = rows(&bench);
        let count = |part: &str| rows.iter().filter(|row| row.contains(part)).count();
        let counts = [count("gemm 32³"), count("conv encoder.conv2"), count("conv odd"), count("gemm odd")];
        assert_eq!(counts, [2, 3, 27, 18], "{rows:?}");
        for shape in odd::Shape::read_table() {
            assert!(
                count(&format!("conv odd {} Data: statistics on / off", shape.name)) > 0
                    || shape.name.starts_with("f32")
            );
        }
        for row in rows.iter().filter(|row| row.ends_with(": statistics on / off")) {
            assert_eq!(targets::find_target(row).map(|target| target.limits[0]), Some(0.97), "{row}");
        }
        // Networks run only if their word is given, even if other words are part of their names.
        let mut bench = small(&device, &["gemm", "conv"]);
        odd::measure(&mut bench).expect("it runs");
        assert_eq!(bench.table().lines().count(), 3);
    }
}

/// Products and convolutions in eight bits and a decoder's step have lines; on a device without such units there are none.
/// The variants run in the place of the kernel, and nowhere else.
#[test]
fn ablations_of_a_convolution() {
    let Some((emulated, device)) = emulated(90) else { return };
    let mut bench = small(&device, &["ablation"]);
    ablation::measure(&mut bench, &|| emulated.open()).expect("it runs");
    assert_eq!(rows(&bench).len(), 14, "{:?}", rows(&bench));
    let used = emulated.used();
    let kernels = ablation::WHOLE.iter().flat_map(ablation::Whole::kernels);
    let names: Vec<_> = kernels.map(|kernel| kernel.module.name).collect();
    assert!(names.len() == 7 && names.iter().all(|&name| used.contains_key(name)), "{names:?} of {used:?}");
}

#[test]
fn products_in_eight_bits_beside_halves() {
    for (arch, count) in [(80, 0), (89, 14)] {
        let Some((emulated, device)) = emulated(arch) else { return };
        let mut bench = small(&device, &["fp8"]);
        fp8::measure(&mut bench, &|| emulated.open()).expect("runs");
        let rows = rows(&bench);
        assert_eq!(rows.len(), count, "{rows:?}");
        for kernel in ["mma_fp8_e5m2_e4m3", "mma_fp8_conv_e5m2_e4m3"] {
            assert_eq!(emulated.used().keys().any(|name| name.starts_with(kernel)), count > 0, "{kernel}");
        }
    }
}

/// Products of f32 operands on tensor cores have lines beside those without, on sm_90 alone.
#[test]
fn products_in_f32_beside_those_without_tensor_cores() {
    for (arch, count) in [(80, 0), (90, 6)] {
        let Some((emulated, device)) = emulated(arch) else { return };
        let mut bench = small(&device, &["f32"]);
        f32::measure(&mut bench, &|| emulated.open()).expect("runs");
        let rows = rows(&bench);
        assert_eq!(rows.len(), count, "{rows:?}");
        for row in &rows {
            assert_eq!(targets::find_target(row).map(|target| target.limits[0]), Some(1.0), "{row}");
        }
        let used = emulated.used();
        for kernel in ["wgmma_bf16x6_gemm", "wgmma_bf16x6_weight_t", "simt_vec4_gemm", "simt_vec4_weight"] {
            assert_eq!(used.keys().any(|name| name.starts_with(kernel)), count > 0, "{kernel}: {used:?}");
        }
    }
}

/// Attention has a line forward and backward for each size, beside the launches that store its scores.
#[test]
fn attention_beside_stored_scores() {
    for (arch, kernel) in [(80, "attention_vjp_128"), (75, "attention_vjp_128_sm75")] {
        let Some((emulated, device)) = emulated(arch) else { return };
        let mut bench = small(&device, &["attention"]);
        attention::measure(&mut bench).expect("runs");
        assert_eq!(rows(&bench).len(), 4, "{}", bench.table());
        let used = emulated.used();
        for name in [kernel, "softmax"] {
            assert!(used.contains_key(name), "{name} is not among {used:?}");
        }
    }
}

/// Every network trains, and a line has its speed.
#[test]
fn networks_train() {
    let Some((emulated, device)) = emulated(80) else { return };
    let mut bench = small(&device, &["networks"]);
    networks::measure_all(&mut bench, &|| emulated.open()).expect("all train");
    let names = Network::ALL.map(|network| format!("network {} step: with scaling", network.name()));
    assert_eq!(rows(&bench), names);
}

/// A word that names a network measures only that network; a file of other sizes is refused.
#[test]
fn networks_are_those_of_the_file() {
    let Some((emulated, device)) = emulated(80) else { return };
    let mut bench = small(&device, &["networks", "biglstm"]);
    networks::measure_all(&mut bench, &|| emulated.open()).expect("it trains");
    assert_eq!(rows(&bench), ["network biglstm step: with scaling"]);
    let mut bench = small(&device, &["gemm"]);
    networks::measure_all(&mut bench, &|| emulated.open()).expect("nothing is asked for");
    assert!(rows(&bench).is_empty());
    let row = Row::new(Network::Decoder, true);
    row.check(row.parameters).expect("the file's");
    let error = row.check(row.parameters + 1).expect_err("another one").to_string();
    assert!(error.contains(&format!("networks.csv has {} parameters", row.parameters)), "{error}");
}

/// Maximum number of parameters that are counted here. Initialising more takes so long that only the bench itself
/// counts them, before it measures.
const MAX_COUNTED_HERE: usize = 50_000_000;

/// Networks have the sizes of their papers, and as many parameters as in PyTorch, unless the file gives a reason.
/// `networks.py --count` counts PyTorch's.
#[test]
fn networks_have_the_size_of_the_papers() {
    let mut counted = 0;
    for network in Network::ALL {
        for small in [false, true] {
            let row = Row::new(network, small);
            assert_eq!(row.parameters == row.pytorch, row.why.is_empty(), "{row:?}");
            if row.parameters < MAX_COUNTED_HERE {
                let count = Built::new(network, &row, small).parameters.count();
                row.check(count).unwrap_or_else(|error| panic!("{}: {error}", network.name()));
                counted += 1;
            }
        }
    }
    assert_eq!(counted, 14);
}
