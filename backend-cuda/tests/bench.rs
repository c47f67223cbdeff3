//! What the bench says of its figures: targets, and the model of what a device should take.

#[path = "../benches/cuda/model.rs"]
#[expect(dead_code, reason = "the bench prints")]
mod model;
#[path = "../benches/cuda/targets.rs"]
mod targets;

use model::{Product, Work, figures};

/// README's table is that of the file.
#[test]
fn targets_are_in_the_readme() {
    let readme = include_str!("../README.md");
    for target in targets::all() {
        let row = format!("| {} | {} | {} |", target.line, target.beside, target.words());
        assert!(readme.contains(&row), "`scripts/gpu_bundle/page.py --targets` writes README.md; without {row}");
    }
    let rows = |text: &str| text.lines().filter(|line| line.starts_with("| ") && line.contains(", goal ")).count();
    assert_eq!(rows(readme), targets::all().count(), "rows of no target");
}

#[test]
fn a_line_finds_its_target() {
    let goal = |name: &str| targets::of(name).map(|target| target.limits[1]);
    assert_eq!(goal("gemm 2048³: with statistics / cuBLASLt without"), Some(1.0));
    assert_eq!(goal("conv encoder.conv2 Weight: with statistics / cuDNN"), Some(1.0));
    assert_eq!(goal("conv encoder.conv2 Weight: statistics on / off"), Some(0.99));
    assert_eq!(goal("gemm : statistics on / off"), None);
    assert_eq!(goal("gemm"), None);
    assert!(!targets::of("segnet: minutes of 16 000 iterations").expect("a target").at_least);
    let mut all = targets::all();
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

/// By hand: a block of 128 × 256 multiplies a k in 16 clocks and reads 80 bytes a clock; 4096³ is 512 tiles in 4 rounds.
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
    // A tile of 64 columns reads as much as shared memory gives.
    let narrow = Product { tile: [128.0, 64.0], part: [64.0, 64.0], ..product };
    let expected = gpu.expect(&narrow.work(gpu));
    assert!(near(expected.shared, expected.tensor), "{expected:?}");
    // Eight warps of 32 instructions, four at a time, are 64 of the 1024 clocks for 64 of k.
    let counted = gpu.expect(&Product { inner: 32.0, ..product }.work(gpu));
    assert!(near(counted.issue - 2048.0 / 67_584.0, 64.0 / 1024.0 * counted.tensor), "{counted:?}");
    // Stored beside the next tile's products only the end of the last tile takes time.
    let hidden = gpu.expect(&Product { epilogue: [1.0, 8.0], ..product }.work(gpu));
    assert!(near(hidden.seconds, (4.0 * (65_536.0 + 256.0) + 2048.0) / 1.83e9), "{hidden:?}");
    // Where sums are short, storing takes longer than multiplying.
    let short = Product { size: [4096.0, 4096.0, 64.0], epilogue: [1.0, 8.0], ..product };
    let expected = gpu.expect(&Work { memory: 0.0, ..short.work(gpu) });
    assert!(near(expected.seconds, (3.0 * 2048.0 + 4.0 * 256.0 + 2048.0) / 1.83e9), "{expected:?}");
    // Cut, 25 tiles keep all multiprocessors busy.
    let weight = Product { size: [3136.0, 64.0, 1e6], cut: true, ..narrow };
    let [whole, cut] = [weight, Product { cut: false, ..weight }].map(|p| gpu.expect(&p.work(gpu)).seconds);
    assert!(near(cut / whole, 132.0 / 25.0), "{cut} {whole}");
}
