//! Numbers of the self-test, and planted faults that it must find.

use super::{COLUMN_PERIOD, ROW_PERIOD, TEST_SHAPES, TestShape, expected_sums, is_clearly_faster};
use crate::{
    Adapter, EnginePreference, EngineReason, Error, NotOffered, ProductEngine, Refusal, RefusalCause, Timing, Wgpu,
    operators::product::Product,
    product_engine::{Coop, PlantedFault},
};
use core::time::Duration;
use gradscale_core::backend::{Backend, Buffer, DType, DataMut, EngineAvailability, Slot, Store};
use half::f16;
use pollster::block_on;

#[test]
fn sums_of_the_self_test_are_exact_and_tell_lines_apart() {
    let shape = TestShape { m: ROW_PERIOD + 3, n: COLUMN_PERIOD + 5, k: 50, results: DType::F32, repetitions: 1 };
    let sums = expected_sums(shape);
    for (i, j) in [(0, 0), (ROW_PERIOD + 1, 4), (7, COLUMN_PERIOD + 2)] {
        let one = |t| {
            let a = super::test_value(i % ROW_PERIOD, t, 1, 1.0).to_f32();
            a * super::test_value(j % COLUMN_PERIOD, t, 2, 1.0).to_f32()
        };
        let sum: f32 = (0..shape.k).map(one).sum();
        assert_eq!(sums[(i * shape.n + j) as usize] as f32, sum);
    }
    for shape in TEST_SHAPES {
        let sums = expected_sums(shape);
        assert!(sums.iter().all(|sum| sum.unsigned_abs() < 1 << 24));
        let row = |i: u32| &sums[(i * shape.n) as usize..][..shape.n as usize];
        // Rows of another subgroup's blocks.
        for apart in [1, 8, 16, 32].into_iter().filter(|apart| apart < &shape.m) {
            assert_ne!(row(0), row(apart), "{shape:?}");
        }
    }
}

/// Errors that a race causes are rare, and long sums have the most exchanges through workgroup memory.
#[test]
fn every_shape_is_repeated_50_times_on_a_gpu() {
    assert!(TEST_SHAPES.iter().all(|shape| shape.repetitions >= 50), "{TEST_SHAPES:?}");
    // Only where a repetition takes 0.05 s there are fewer, of the long sum alone.
    for shape in super::TEST_SHAPES_SOFTWARE {
        assert!(shape.repetitions >= 50 || shape.k > 4096 && shape.repetitions > 1, "{shape:?}");
    }
    for shapes in [TEST_SHAPES, super::TEST_SHAPES_SOFTWARE] {
        assert!(shapes.iter().any(|shape| shape.k > 4096), "{shapes:?}");
    }
}

#[test]
fn only_a_clear_margin_counts_as_faster() {
    let timing = |cooperative| Timing {
        size: 1024,
        cooperative: Duration::from_micros(cooperative),
        simt: Duration::from_micros(150),
    };
    assert!(is_clearly_faster(&timing(99)) && !is_clearly_faster(&timing(101)) && !is_clearly_faster(&timing(150)));
}

/// The first adapter with cooperative matrices.
fn adapter() -> Option<(Adapter, Vec<Coop>)> {
    let found = crate::adapters().into_iter().find_map(|adapter| Some((adapter.clone(), adapter.cooperative().ok()?)));
    let required = std::env::var("GRADSCALE_REQUIRE_COOP").is_ok_and(|value| value == "1");
    assert!(found.is_some() || !required, "cooperative matrices are required, and no adapter offers them");
    if found.is_none() {
        println!("SKIPPED: no adapter offers cooperative matrices");
    }
    found
}

fn refused(planted_fault: PlantedFault) -> Option<(Vec<Refusal>, usize)> {
    let (adapter, candidates) = adapter()?;
    let device =
        block_on(Wgpu::open_planted(&adapter, false, EnginePreference::Fastest, planted_fault)).expect("SIMT is there");
    assert_eq!(device.product_engine(), ProductEngine::Simt, "{planted_fault:?}");
    let EngineReason::Refused(refusals) = device.product_engine_reason() else {
        panic!("{planted_fault:?}: {}", device.product_engine_reason());
    };
    // An explicit request for cooperative matrices fails instead of selecting another engine.
    let error = block_on(Wgpu::open_planted(&adapter, false, EnginePreference::Cooperative, planted_fault));
    assert!(matches!(error, Err(Error::Engine(_))), "{planted_fault:?}");
    Some((refusals.clone(), candidates.len()))
}

/// No driver has subgroups of 2, so the kernel runs with another size and fills its results with NaN.
#[test]
fn another_subgroup_size_is_refused() {
    let Some((refusals, candidates)) = refused(PlantedFault::SubgroupSize(2)) else { return };
    assert_eq!(refusals.len(), candidates);
    for Refusal { engine, cause } in refusals {
        let RefusalCause::Wrong { words, of } = cause else { panic!("{engine}: {cause:?}") };
        // All results and their statistics, but for bins and counts that are zero in both.
        assert!(u64::from(words) * 2 > of, "{engine}: {words} of {of}");
    }
}

/// The other layout reads other numbers, and so do windows of another padding, which only convolutions have.
#[test]
fn a_wrong_kernel_is_refused() {
    for planted_fault in [PlantedFault::Layout, PlantedFault::Padding] {
        let Some((refusals, candidates)) = refused(planted_fault) else { return };
        assert_eq!(refusals.len(), candidates);
        for Refusal { engine, cause } in refusals {
            assert!(matches!(cause, RefusalCause::Wrong { words: 1.., .. }), "{planted_fault:?}, {engine}: {cause:?}");
        }
    }
}

/// A shape decides the arrangement of subgroups, so results must not depend on it: with numbers whose sums depend on their
/// order.
#[test]
fn every_arrangement_of_subgroups_has_the_same_bits() {
    let Some((adapter, _)) = adapter() else { return };
    let device = Wgpu::open_with(&adapter, false, EnginePreference::Cooperative).expect("they are required");
    let coop = device.products.active_coop().expect("they are pinned");
    // Whole tiles of every arrangement, so that each is the best of its neighbours.
    let shape = TestShape { m: 256, n: 256, k: 40, results: DType::F32, repetitions: 1 };
    let p = super::transposed_gemm(shape, [false; 2]).expect("a product");
    let numbers = |len: u32, seed| -> Vec<f16> {
        let magnitudes = [-5, 2, -2, 5, 1, -3, 4, 0, -4, 3, -1].map(|exponent| 2f32.powi(exponent));
        let fraction =
            |i: u32| (super::test_integer(i / 101, i % 101, seed) as f32 + 0.37) * magnitudes[i as usize % 11];
        (0..len).map(|i| f16::from_f32(fraction(i))).collect()
    };
    let [a, b] = [(shape.m * shape.k, 1), (shape.k * shape.n, 2)]
        .map(|(len, seed)| device.upload_halves(&numbers(len, seed)).expect("memory"));
    let table = device.new_table(Slot::FIRST_SITE.0, 0).expect("a table");
    let [rows, columns] = coop.subgroups;
    let results = [[rows, columns], [2 * rows, columns / 2], [rows / 2, 2 * columns]].map(|subgroups| {
        let coop = Coop { subgroups, ..coop };
        assert_eq!(coop.arrange_subgroups(p.shape()), subgroups);
        let mut y = device.new_memory(DType::F32, (shape.m * shape.n) as usize).expect("memory");
        let store = Store::keep(Slot::ONE, &table, &mut y);
        device.run_coop(coop, &Product::from_matrices(&p, [&a, &b], None), &store).expect("a product");
        let mut values = vec![0.0; y.len()];
        block_on(device.read(&y, DataMut::F32(&mut values))).expect("results");
        values.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    });
    assert!(results[0] == results[1] && results[0] == results[2], "{coop:?}");
}

#[test]
fn a_device_without_them_says_what_is_missing() {
    for adapter in crate::adapters().into_iter().filter(|adapter| adapter.cooperative().is_err()) {
        let device = Wgpu::open_with(&adapter, false, EnginePreference::Fastest).expect("a device");
        let EngineReason::NotOffered(missing) = device.product_engine_reason() else { panic!() };
        assert_eq!(Err(*missing), adapter.cooperative().map(|_| ()), "{}", adapter.name());
        assert_ne!(missing.to_string(), "");
        let error = Wgpu::open_with(&adapter, false, EnginePreference::Cooperative).expect_err("none").to_string();
        assert!(error.ends_with(&missing.to_string()), "{error}");
        let NotOffered::Features = missing else { continue };
        // Name that a checkpoint of another GPU contains.
        assert_eq!(device.product_engine_availability("cooperative 16x16x16 subgroup 32"), EngineAvailability::Missing);
    }
}
