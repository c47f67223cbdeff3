//! Products of f32 operands on tensor cores of the emulation, which truncate their sums.

#![allow(clippy::cast_precision_loss, reason = "a test: small sizes")]

mod emulated;
mod f32_products;
mod gemm;
mod stored;

use emulated::Emulated;
use gradscale::{
    Cpu, Input, Method, Parameters, Trainer, TrainerOptions,
    gradscale_core::backend::Backend,
    nn::{Conv2d, Linear, Module},
    optim::Sgd,
};
use gradscale_cuda::{Cuda, kernels::wgmma_bf16x6_kernels};

/// Creates an sm_90, or prints why there is none.
fn emulated() -> Option<Emulated> {
    Emulated::new(90, 1).inspect_err(|reason| println!("SKIPPED: {reason}")).ok()
}

/// Tests that no kernel was replaced because it failed its self-test.
fn check_self_tests(device: &Cuda) {
    let results = device.self_test_results();
    assert!(!results.is_empty() && results.values().all(Result::is_ok), "{results:?}");
}

/// Every kernel, of which each passes its self-test first, with whole operands and with bands of rows, matrices and images.
#[test]
fn every_kernel() {
    let Some(emulated) = emulated() else { return };
    let device = emulated.open().expect("a device");
    gemm::check_long_f32(&device, false);
    let used = emulated.used();
    let unused: Vec<_> =
        wgmma_bf16x6_kernels().map(|kernel| kernel.module.name).filter(|&name| !used.contains_key(name)).collect();
    check_self_tests(&device);
    assert!(unused.is_empty(), "no shape runs {unused:?}");
    assert!(device.scratch_peak().is_some_and(|bytes| bytes > 0), "parts are scratch memory");
    let count_launches = |device: &Cuda| {
        let start = emulated.counts().launched;
        f32_products::check_wide_integers(device);
        emulated.counts().launched - start
    };
    let launched_whole = count_launches(&device);
    let device = device.with_max_copy_bytes(4096);
    let launched_in_bands = count_launches(&device);
    assert!(launched_in_bands > launched_whole, "{launched_in_bands} launches in bands, {launched_whole} without");
    gemm::check_long_f32(&device, true);
}

#[test]
fn integers_of_all_parts() {
    let Some(emulated) = emulated() else { return };
    let device = emulated.open().expect("a device");
    f32_products::check_wide_integers(&device);
    check_self_tests(&device);
    assert!(emulated.used().keys().any(|name| name.starts_with("wgmma_bf16x6_gemm")), "{:?}", emulated.used());
}

/// A kernel that fails its self-test is replaced by one without tensor cores.
#[test]
fn a_wrong_kernel_is_not_used() {
    let Some(emulated) = emulated() else { return };
    emulated.fail("broken=wgmma_bf16x6_gemm");
    let device = emulated.open().expect("a device");
    f32_products::check_wide_integers(&device);
    let results = device.self_test_results();
    assert!(!results.is_empty() && results.values().all(Result::is_err), "{results:?}");
    assert!(emulated.used().keys().any(|name| name.starts_with("simt")), "{:?}", emulated.used());
}

#[test]
fn errors_are_below_those_without_tensor_cores() {
    let Some(emulated) = emulated() else { return };
    let (device, simt) = (emulated.open().expect("a device"), emulated.open().expect("a device"));
    f32_products::check_errors(&device, &simt.without_f32_tensor_cores(), |name| {
        f32_products::LEAST_EXACT.contains(&name)
    });
    check_self_tests(&device);
    assert!(emulated.used().contains_key("wgmma_bf16x6_gemm_128x128"), "{:?}", emulated.used());
}

#[test]
fn infinities_and_nan() {
    let Some(emulated) = emulated() else { return };
    let (device, simt) = (emulated.open().expect("a device"), emulated.open().expect("a device"));
    f32_products::check_special_values(&device, &simt.without_f32_tensor_cores());
    check_self_tests(&device);
    let used = emulated.used();
    assert!(["wgmma_bf16x6_gemm_128x128", "simt_vec4_gemm"].iter().all(|&name| used.contains_key(name)), "{used:?}");
}

/// Trains two convolutions and a classifier in f32, and returns the losses and the bits of the weights.
fn train<B: Backend<Error: 'static>>(device: B, recorded: bool) -> (Vec<f32>, Vec<u32>) {
    let mut parameters = Parameters::seeded(1);
    let [first, second] = ["first", "second"].map(|name| Conv2d::new(&mut parameters.at(name), 64, 64, 3));
    let last = Linear::new(&mut parameters.at("last"), 64 * 81, 4);
    let method: Method = "fp32".parse().unwrap_or_else(|error| panic!("{error}"));
    let mut trainer = Trainer::new(device, parameters, Sgd::new(0.02), method)
        .expect("a trainer")
        .with_options(TrainerOptions::new().with_recording(recorded));
    let images: Vec<f32> = (0..4 * 81 * 64).map(|i| (i * i % 97) as f32 / 97.0 - 0.5).collect();
    let batch = [Input::f32([4, 9, 9, 64], &images), Input::u32([4], &[0, 1, 2, 3])];
    let losses = (0..5).map(|_| {
        let gradients = trainer
            .backward(batch, |[x, labels]| {
                last.forward(second.forward(first.forward(x).relu()).relu().flatten()).cross_entropy(labels)
            })
            .expect("gradients");
        trainer.step(gradients).expect("a step").loss
    });
    let losses = losses.collect();
    let weights = trainer.parameters().expect("readable").into_iter();
    (losses, weights.flat_map(|(_, tensor)| tensor.data.into_iter().map(f32::to_bits)).collect())
}

/// A network learns as on a CPU, and its recorded steps have the bits of eager ones.
#[test]
fn a_network_learns() {
    let Some(emulated) = emulated() else { return };
    let open = || emulated.open().expect("a device");
    let eager = train(open(), false);
    assert_eq!(train(open(), true), eager);
    let used = emulated.used();
    for kernel in ["forward_128x64", "data_128x64", "weight_t_128x64"] {
        assert!(used.contains_key(&format!("wgmma_bf16x6_{kernel}")), "{kernel}: {used:?}");
    }
    let without = train(open().without_f32_tensor_cores(), true);
    assert_ne!(without.1, eager.1);
    let cpu = train(Cpu::new(1).expect("a CPU"), true);
    println!("losses {:?}, {:?} without tensor cores, {:?} on a CPU", eager.0, without.0, cpu.0);
    assert!(eager.0[4] < 0.9 * eager.0[0], "{:?}", eager.0);
    for (here, there) in eager.0.iter().zip(&cpu.0) {
        assert!((here - there).abs() < 1e-4 * there, "{:?}, {:?} on a CPU", eager.0, cpu.0);
    }
}
