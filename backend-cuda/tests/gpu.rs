//! Tests on a real GPU: every tile of every product, which shows whether wgmma and the TMA engine behave as this
//! project assumes, and the engine.

mod f32_products;
mod fp8_conv;
mod fp8_gemm;
mod gemm;
mod grad_reduce;
mod segnet;
mod stored;
#[path = "../../tests/engine/tests/beside/tasks.rs"]
mod tasks;

use gradscale_cuda::{Cuda, HaloTiles};

/// Opens the first GPU. Without one it prints that, or fails with `GRADSCALE_REQUIRE_DEVICE=1`.
fn gpu() -> Option<Cuda> {
    match Cuda::open(0) {
        Ok(device) => Some(device),
        Err(reason) => {
            let required = std::env::var("GRADSCALE_REQUIRE_DEVICE").is_ok_and(|value| value == "1");
            assert!(!required, "a device is required: {reason}");
            println!("SKIPPED: {reason}");
            None
        }
    }
}

#[test]
fn every_tile_of_every_product() {
    if let Some(device) = gpu() {
        gemm::check(&device.without_warpgroups());
        let device = gpu().expect("as before");
        gemm::check(&device);
        println!("kernels for this architecture alone: {:?}", device.self_test_results());
        assert!(device.self_test_results().values().all(Result::is_ok), "{:?}", device.self_test_results());
        let [halo, others] = [HaloTiles::Always, HaloTiles::Never]
            .map(|halo_tiles| gpu().expect("as before").with_halo_tiles(halo_tiles));
        gemm::check_halo(&halo, true);
        gemm::check_infinity(&halo, &others);
    }
}

#[test]
fn products_in_eight_bits() {
    let Some(device) = gpu() else { return };
    let arch = device.gpu().arch();
    if arch < 89 {
        println!("not here: products in eight bits, which sm_{arch} lacks");
        return;
    }
    fp8_gemm::check(&device);
    fp8_conv::check(&device);
}

/// Products of f32 operands on tensor cores, which only compute capability 9.0 has.
#[test]
fn products_in_f32() {
    let (Some(device), Some(simt)) = (gpu(), gpu()) else { return };
    gemm::check_long_f32(&device, true);
    f32_products::check_wide_integers(&device);
    let simt = simt.without_f32_tensor_cores();
    f32_products::check_special_values(&device, &simt);
    f32_products::check_errors(&device, &simt, |_| true);
    assert!(device.self_test_results().values().all(Result::is_ok), "{:?}", device.self_test_results());
}

#[test]
fn segnet() {
    if gpu().is_some() {
        segnet::check(|| gpu().expect("as before"));
        segnet::check_few_channels(|| gpu().expect("as before").with_halo_tiles(HaloTiles::Always));
    }
}

/// Tests groups of one rank, and of one rank for each GPU, because NCCL needs a GPU per rank.
#[test]
fn ranks() {
    let Some(first) = gpu() else { return };
    if gradscale_core::backend::Backend::collective_backend(&first).is_none() {
        println!("SKIPPED: libnccl.so.2 is not installed");
        return;
    }
    drop(first);
    let count = Cuda::count();
    let devices: Vec<_> = (0..count).map(|number| move || Cuda::open(number).expect("as before")).collect();
    println!("{count} GPUs");
    for ranks in [1, count] {
        grad_reduce::sums_are_exact(&devices[..ranks]);
    }
    grad_reduce::trainings_are_the_same(&devices, &[1, count]);
}

#[test]
fn tasks() {
    if gpu().is_some() {
        tasks::tasks_beside_the_cpu(|| gpu().expect("as before"));
    }
}
