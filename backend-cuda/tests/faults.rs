//! Failures of a GPU: each is an error that names its cause. A training continues if that is possible, and ends cleanly
//! if not.

mod emulated;
mod gemm;
mod stored;

use emulated::Emulated;
use gradscale::{
    Error, Input, Method, Parameters, Scope, Trainer, TrainerOptions, Var,
    gradscale_core::backend::{Backend, Control, DType, Error as _, ErrorKind, Launch, Slot, Store},
    nn::{BatchNorm, Linear, Module},
    optim::Sgd,
};
use gradscale_core::{ops::Unary, stats::Detail};
use gradscale_cuda::Cuda;
use std::{fs, path::PathBuf, process::Command};

const STEPS: usize = 3;

/// A small network with running statistics.
struct Net(Linear, BatchNorm, Linear);

impl Net {
    fn new(at: &mut Scope<'_>) -> Self {
        Self(
            Linear::new(&mut at.at("a"), 2, 8),
            BatchNorm::new(&mut at.at("norm"), 8),
            Linear::new(&mut at.at("b"), 8, 2),
        )
    }

    fn forward<'a>(&self, x: Var<'a>) -> Var<'a> {
        self.2.forward(self.1.forward(self.0.forward(x)).relu().dropout(0.5))
    }
}

/// Runs a training of a few steps that retries every failed call. Returns the errors and the weights.
fn train(emulated: &Emulated, recorded: bool) -> (Vec<Error<gradscale_cuda::Error>>, Vec<Vec<u32>>) {
    let mut failed = vec![];
    let method: Method = "gs:exact".parse().expect("a method");
    let (mut trainer, net) = loop {
        let device = match emulated.open() {
            Ok(device) => device,
            Err(error) => {
                failed.push(Error::Device(error));
                continue;
            }
        };
        let mut parameters = Parameters::seeded(1);
        let net = Net::new(&mut parameters.at("net"));
        match Trainer::new(device, parameters, Sgd::new(0.1), method.clone()) {
            Ok(trainer) => break (trainer.with_options(TrainerOptions::new().with_recording(recorded)), net),
            Err(error) => failed.push(error),
        }
        assert!(failed.len() < 3, "{failed:?}");
    };
    let points: Vec<f32> = (0..32u8).map(|i| f32::from(i) / 16.0 - 1.0).collect();
    let labels: Vec<u8> = points.chunks(2).map(|p| u8::from(p[0] > 0.0)).collect();
    for _ in 0..STEPS {
        loop {
            let batch = [Input::f32([16, 2], &points), Input::u8([16], &labels)];
            let step = trainer
                .backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels))
                .and_then(|gradients| trainer.step(gradients));
            match step {
                Ok(_) => break,
                Err(error) => failed.push(error),
            }
            assert!(failed.len() < 3, "{failed:?}");
        }
    }
    let weights = trainer.parameters().expect("readable").into_iter();
    (failed, weights.map(|(_, tensor)| tensor.data.iter().map(|v| v.to_bits()).collect()).collect())
}

/// Any single allocation may fail. The error reports it, and the same batch again gives the weights of a training
/// without failures.
#[test]
fn memory_that_is_not_there() {
    let Ok(emulated) = Emulated::new(80, 2) else {
        println!("SKIPPED: no C++ compiler");
        return;
    };
    for recorded in [false, true] {
        let (none, weights) = train(&emulated, recorded);
        assert!(none.is_empty(), "{none:?}");
        let mut reached = 0;
        for n in 1..1000 {
            emulated.fail(&format!("oom={n}"));
            let (failed, here) = train(&emulated, recorded);
            let waiting = emulated.is_failing();
            emulated.fail("");
            if waiting {
                break;
            }
            reached = n;
            for error in &failed {
                let (Error::Device(why) | Error::Operator { error: why, .. }) = error else {
                    panic!("allocation {n}: {error}")
                };
                let host = why.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY");
                assert!(host || why.kind() == ErrorKind::OutOfMemory, "allocation {n}: {error}");
            }
            assert_eq!(here, weights, "allocation {n}, {failed:?}");
        }
        assert!(reached > 20, "{reached} allocations");
    }
}

fn unary(device: &Cuda) -> Result<(), gradscale_cuda::Error> {
    let table = device.table(2, 0)?;
    let (x, mut y) = (device.alloc(DType::F32, 9)?, device.alloc(DType::F32, 9)?);
    let y = Store::keep(Slot::ONE, &table, &mut y);
    device.launch(Launch::Unary { op: Unary::Id, len: 9, x: &x, y })
}

/// A device that was lost by a kernel's failure reports that in every later call, and is dropped without a panic.
#[test]
fn a_device_that_is_lost() {
    let Ok(emulated) = Emulated::new(80, 2) else {
        println!("SKIPPED: no C++ compiler");
        return;
    };
    emulated.fail("lost=unary");
    let device = emulated.open().expect("a device");
    let mut table = device.table(2, 0).expect("a table");
    // The failure is reported at the next synchronisation.
    unary(&device).ok();
    let control = Control { exponents: &[0; 2], hyperparameters: &[], seed: 0, detail: Detail::None };
    device.upload(&control, 0..0, &mut table).ok();
    for _ in 0..2 {
        let error = device.alloc(DType::F32, 1).and_then(|_| unary(&device)).expect_err("it is lost");
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    }
    drop((table, device));
    // Another process or context may use the device again.
    emulated.fail("");
    unary(&emulated.open().expect("a device")).expect("it is new");
}

/// Modules that do not load: the driver's error.
#[test]
fn a_module_that_does_not_load() {
    let Ok(emulated) = Emulated::new(80, 2) else {
        println!("SKIPPED: no C++ compiler");
        return;
    };
    emulated.fail("unloadable=unary");
    let error = unary(&emulated.open().expect("a device")).expect_err("it does not load");
    assert!(error.to_string().contains("load a module: CUDA_ERROR_INVALID_IMAGE"), "{error}");
}

/// If the driver refuses tensor maps, the kernels that need them are not used, and the reason is reported.
#[test]
fn tensor_maps_that_are_refused() {
    let Ok(emulated) = Emulated::new(90, 1) else {
        println!("SKIPPED: no C++ compiler");
        return;
    };
    emulated.fail("maps");
    let device = emulated.open().expect("a device");
    gemm::check_some(&device, 8);
    let refused: Vec<_> =
        device.self_test_results().into_iter().filter(|(name, _)| name.starts_with("wgmma_tma")).collect();
    assert!(!refused.is_empty());
    for (name, proof) in refused {
        let reason = proof.expect_err("it is refused");
        assert!(reason.contains("CUDA_ERROR_INVALID_VALUE"), "{name}: {reason}");
    }
}

/// `gradscale-cuda prove` names each kernel that is wrong or hangs, and continues with the next.
#[test]
fn every_kernel_is_proven_in_a_process_of_its_own() {
    if let Err(reason) = Emulated::new(90, 1) {
        println!("SKIPPED: {reason}");
        return;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("libraries");
    fs::create_dir_all(&folder).expect("a folder");
    for (name, link) in [("cuda", "libcuda.so"), ("nvrtc", "libnvrtc.so")] {
        let library = emulated::path(&format!("libgradscale_emulated_{name}.so")).expect("a library");
        fs::remove_file(folder.join(link)).ok();
        std::os::unix::fs::symlink(library, folder.join(link)).expect("a link");
    }
    let prove = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradscale-cuda"));
        command.env("LD_LIBRARY_PATH", &folder).env("GRADSCALE_CUBINS", "").arg("prove");
        command.env("GRADSCALE_PROVE_SECONDS", "60");
        command
    };
    let faults = "90x1:broken=wgmma_tma_forward_128x64,hang=wgmma_tma_gemm_128x128";
    for (module, expected) in [
        ("wgmma_tma_forward_128x64", "results differ, the first at"),
        ("wgmma_tma_gemm_128x256", ""),
        ("conv_halo_data+8_channels", ""),
        ("wgmma_tma_gemm_x", "no self-test is called wgmma_tma_gemm_x"),
    ] {
        let output = prove().arg(module).env("GRADSCALE_EMULATED_CUDA", faults).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(expected) && output.status.success() == expected.is_empty(), "{module}: {said}");
    }
    // All kernels, each with a time limit so short that none finishes.
    let mut command = prove();
    command.env("GRADSCALE_EMULATED_CUDA", "90x1:hang=").env("GRADSCALE_PROVE_SECONDS", "0");
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{said}");
    let hanging = said.lines().filter(|line| line.ends_with("hangs: nothing after 0 s")).count();
    assert_eq!(
        said.lines().last(),
        Some(&*format!("{hanging} self-tests of modules for this architecture alone, {hanging} not right"))
    );
    assert_eq!(hanging, 61, "{said}");
}
