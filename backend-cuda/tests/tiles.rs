//! Every tile of every kind of product, on every way to bring operands, not only those that a device would choose, with
//! the instructions of three generations.

mod emulated;
mod gemm;
mod stored;

use emulated::Emulated;
use gradscale_cuda::{
    HaloTiles,
    kernels::{CONV_HALO, MMA_SYNC_CONV, MMA_SYNC_GEMM, SIMT_VEC4_CONV, SIMT_VEC4_GEMM, wgmma_kernels},
};

#[test]
fn every_tile_of_every_product() {
    let tensor: Vec<_> = MMA_SYNC_GEMM.as_flattened().iter().chain(MMA_SYNC_CONV.as_flattened()).collect();
    let wgmma_kernels: Vec<_> = wgmma_kernels().collect();
    for (arch, kernels) in [(80, &tensor), (75, &tensor), (90, &wgmma_kernels)] {
        // With one multiprocessor the kernel selection takes the largest tile that fits.
        let emulated = match Emulated::new(arch, 1) {
            Ok(emulated) => emulated,
            Err(reason) => {
                println!("SKIPPED: {reason}");
                return;
            }
        };
        let device = emulated.open().expect("a device");
        gemm::check(&device);
        let used = emulated.used();
        let modules = kernels.iter().map(|kernel| kernel.module).filter(|module| module.arch[0] <= arch);
        let unused: Vec<_> = modules.map(|module| module.name).filter(|&name| !used.contains_key(name)).collect();
        assert!(unused.is_empty(), "sm_{arch}: no shape runs {unused:?}");
        assert!(device.self_test_results().values().all(Result::is_ok), "{:?}", device.self_test_results());
    }
}

/// Checks sizes of which operands are copied for the kernels of aligned ones.
fn check_copied(arch: u32, max_copy_bytes: u64, more: bool) {
    match Emulated::new(arch, 1) {
        Ok(emulated) => {
            let device = emulated.open().expect("a device").with_max_copy_bytes(max_copy_bytes);
            gemm::check_copied(&device, more);
            let used = emulated.used();
            // On sm_90 self-tests run the kernels of unaligned operands.
            let unaligned: Vec<_> = used.keys().filter(|name| arch < 90 && name.ends_with("_any")).collect();
            assert!(used.contains_key("pad") && unaligned.is_empty(), "sm_{arch}: {used:?}");
        }
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}

#[test]
fn any_size_takes_aligned_kernels() {
    check_copied(80, 1 << 25, true);
}

/// Copies in bands: of one image, or of one row of tiles.
#[test]
fn any_size_in_bands() {
    check_copied(75, 4096, false);
}

#[test]
fn any_size_by_tma() {
    check_copied(90, 1 << 25, false);
}

/// Convolutions of few channels from halo tiles, on one multiprocessor, which computes all tiles, and on several.
#[test]
fn convolutions_from_halo_tiles() {
    for (multiprocessors, more) in [(1, false), (3, true)] {
        match Emulated::new(90, multiprocessors) {
            Ok(emulated) => {
                let device = emulated.open().expect("a device").with_halo_tiles(HaloTiles::Always);
                gemm::check_halo(&device, more);
                let used = emulated.used();
                assert!(CONV_HALO.iter().all(|kernel| used.contains_key(kernel.module.name)), "{used:?}");
                let results = device.self_test_results();
                // Three numbers of channels of both passes.
                assert!(results.len() == 6 && results.values().all(Result::is_ok), "{results:?}");
            }
            Err(reason) => println!("SKIPPED: {reason}"),
        }
    }
}

/// Where halo tiles fail their self-tests, each convolution is computed by other kernels.
#[test]
fn halo_tiles_that_are_wrong_are_not_used() {
    match Emulated::new(90, 1) {
        Ok(emulated) => {
            emulated.fail("broken=conv_halo");
            let device = emulated.open().expect("a device").with_halo_tiles(HaloTiles::Always);
            gemm::check_halo(&device, false);
            let results = device.self_test_results();
            let wrong: Vec<_> = results.iter().filter(|(_, proof)| proof.is_err()).map(|(name, _)| name).collect();
            assert!(wrong.len() == 6 && wrong.iter().all(|name| name.starts_with("conv_halo")), "{results:?}");
        }
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}

#[test]
fn an_infinity_stays_in_its_window() {
    match (Emulated::new(90, 1), Emulated::new(90, 1)) {
        (Ok(halo), Ok(others)) => {
            let devices = [(&halo, HaloTiles::Always), (&others, HaloTiles::Never)]
                .map(|(emulated, halo_tiles)| emulated.open().expect("a device").with_halo_tiles(halo_tiles));
            gemm::check_infinity(&devices[0], &devices[1]);
            let [ran, ran_elsewhere] = [halo, others].map(|emulated| emulated.used().contains_key("conv_halo_forward"));
            assert!(ran && !ran_elsewhere, "halo tiles where they are wanted");
        }
        (Err(reason), _) | (_, Err(reason)) => println!("SKIPPED: {reason}"),
    }
}

/// Every product of aligned f32 operands, and of some more multiprocessors, which split sums.
#[test]
fn products_in_f32() {
    for multiprocessors in [1, 32] {
        match Emulated::new(80, multiprocessors) {
            Ok(emulated) => {
                gemm::check_f32(&emulated.open().expect("a device"), multiprocessors == 1);
                let used = emulated.used();
                let kernels = SIMT_VEC4_GEMM.iter().chain(&SIMT_VEC4_CONV);
                let unused: Vec<_> =
                    kernels.map(|kernel| kernel.module.name).filter(|&name| !used.contains_key(name)).collect();
                assert!(unused.is_empty(), "no shape runs {unused:?}");
            }
            Err(reason) => println!("SKIPPED: {reason}"),
        }
    }
}

/// Sums that are cut among multiprocessors, and one that a kernel adds in parts by itself.
#[test]
fn long_sums() {
    for (arch, kernels) in [
        (80, &["split_k_reduce", "mma_sync_gemm_64x64", "mma_sync_weight_64x64"][..]),
        (90, &["split_k_reduce", "wgmma_forward_128x64", "wgmma_weight_t_128x64", "wgmma_tma_weight_t_128x64"]),
    ] {
        match Emulated::new(arch, 8) {
            Ok(emulated) => {
                gemm::check_long_sums(&emulated.open().expect("a device"));
                let used = emulated.used();
                assert!(kernels.iter().all(|&name| used.contains_key(name)), "sm_{arch}: {used:?}");
            }
            Err(reason) => println!("SKIPPED: {reason}"),
        }
    }
    match Emulated::new(90, 1) {
        Ok(emulated) => {
            gemm::check_longest_sum(&emulated.open().expect("a device"));
            let used = emulated.used();
            assert!(used.contains_key("wgmma_tma_weight_t_128x64") && !used.contains_key("split_k_reduce"), "{used:?}");
        }
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}

/// Kernels of one architecture that fail their self-test are not used.
#[test]
fn what_is_wrong_on_a_device_is_not_used() {
    match Emulated::new(90, 1) {
        Ok(emulated) => {
            emulated.fail("broken=wgmma_tma_gemm_t");
            let device = emulated.open().expect("a device");
            // Products of matrices come first.
            gemm::check_some(&device, 28);
            let wrong: Vec<_> = device
                .self_test_results()
                .into_iter()
                .filter(|(_, proof)| proof.is_err())
                .map(|(name, _)| name)
                .collect();
            assert!(!wrong.is_empty() && wrong.iter().all(|name| name.starts_with("wgmma_tma_gemm_t")), "{wrong:?}");
        }
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}
