//! Products of operands of eight bits on the emulation, whose tensor cores keep 14 bits of such sums.

mod emulated;
mod fp8_conv;
mod fp8_gemm;
mod stored;

use emulated::Emulated;
use gradscale::{
    Cpu, Input, Method, Parameters, Trainer, TrainerOptions, Var,
    gradscale_core::{
        backend::{Backend, DType, Launch, Slot, Store},
        ops::{Conv2d, Gemm, Pass},
        store_format::StoreFormat,
    },
    models::{Decoder, DecoderSize},
    nn::{self, Linear, Module},
    optim::AdamW,
};
use gradscale_cuda::{
    Cuda, Error,
    kernels::{MMA_FP8, MMA_FP8_CONV, wgmma_fp8_kernels},
};

/// Creates a device, or prints why there is none.
fn emulated(arch: u32, multiprocessors: u32) -> Option<Emulated> {
    Emulated::new(arch, multiprocessors).inspect_err(|reason| println!("SKIPPED: {reason}")).ok()
}

#[test]
fn every_tile_of_every_pair_of_formats() {
    // Many multiprocessors take small tiles and divide sums, one takes large tiles.
    let Some(devices) = [1, 8].map(|count| emulated(89, count)).into_iter().collect::<Option<Vec<_>>>() else { return };
    fp8_gemm::check(&devices[0].open().expect("a device"));
    fp8_gemm::check_some(&devices[1].open().expect("a device"));
    let used = |name: &str| devices.iter().any(|emulated| emulated.used().contains_key(name));
    let kernels = MMA_FP8.as_flattened().as_flattened().iter().map(|kernel| kernel.module.name);
    let unused: Vec<_> = kernels.chain(["pack_fp8", "split_k_reduce"]).filter(|name| !used(name)).collect();
    assert!(unused.is_empty(), "no shape runs {unused:?}");
}

/// Convolutions in each tile and pair of formats.
#[test]
fn every_convolution_of_every_pair_of_formats() {
    // Many multiprocessors take small tiles and divide sums, one takes large tiles.
    let Some(devices) = [1, 8].map(|count| emulated(89, count)).into_iter().collect::<Option<Vec<_>>>() else { return };
    fp8_conv::check(&devices[0].open().expect("a device"));
    fp8_conv::check_integers(&devices[1].open().expect("a device"));
    let used = |name: &str| devices.iter().any(|emulated| emulated.used().contains_key(name));
    let kernels = MMA_FP8_CONV.as_flattened().as_flattened().iter().map(|kernel| kernel.module.name);
    let unused: Vec<_> = kernels.chain(["pack_fp8", "split_k_reduce"]).filter(|name| !used(name)).collect();
    assert!(unused.is_empty(), "no shape runs {unused:?}");
}

/// Convolutions and passes that units for eight bits do not compute take kernels of halves.
#[test]
fn convolutions_of_halves() {
    let Some(emulated) = emulated(89, 1) else { return };
    fp8_conv::check_halves(&emulated.open().expect("a device"));
    let used = emulated.used();
    assert!(used.keys().all(|name| !name.contains("fp8")), "{used:?}");
}

/// Kernels by warpgroups, which pass their self-tests first.
#[test]
fn every_pair_of_formats_by_warpgroups() {
    let Some(emulated) = emulated(90, 1) else { return };
    let device = emulated.open().expect("a device");
    fp8_gemm::check_some(&device);
    fp8_gemm::check_long_sums_of_a_tile(&device);
    let (used, tested) = (emulated.used(), device.self_test_results());
    for name in wgmma_fp8_kernels().map(|kernel| kernel.module.name) {
        assert!(used.contains_key(name) && tested.get(name) == Some(&Ok(())), "{name}: {tested:?}");
    }
}

/// A kernel that fails its self-test is replaced by the one for all devices.
#[test]
fn a_wrong_kernel_is_not_used() {
    let Some(emulated) = emulated(90, 1) else { return };
    emulated.fail("broken=wgmma_fp8_e4m3_e5m2");
    let device = emulated.open().expect("a device");
    fp8_gemm::check_one(&device, [StoreFormat::E4m3, StoreFormat::E5m2]);
    let failed: Vec<_> = device.self_test_results().into_iter().filter(|(_, result)| result.is_err()).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(emulated.used().contains_key("mma_fp8_e4m3_e5m2_128x128"), "{:?}", emulated.used());
}

/// Packs operands in bands: of one matrix, or of rows of one.
#[test]
fn bands() {
    let Some(emulated) = emulated(89, 1) else { return };
    let device = emulated.open().expect("a device").with_max_copy_bytes(4096);
    fp8_gemm::check_integers(&device);
    fp8_conv::check_integers(&device);
}

/// Returns the error of a product, or of a convolution, with operands of eight bits.
fn refusal(device: &Cuda, is_conv: bool) -> Error {
    let table = device.table(2, 0).expect("a table");
    let [a, b, mut y] = [(), (), ()].map(|()| device.alloc(DType::F16, 256).expect("memory"));
    let (y, formats) = (Store::keep(Slot::ONE, &table, &mut y), [StoreFormat::E5m2, StoreFormat::E4m3]);
    let launch = if is_conv {
        let p = Conv2d::new([1, 4, 4, 16], 16, [1, 1]).expect("a valid shape").operand_formats(formats);
        Launch::Conv { p, pass: Pass::Forward, a: &a, b: &b, bias: None, y }
    } else {
        let p = Gemm::new(16, 16, 16).expect("a valid shape").operand_formats(formats);
        Launch::Gemm { p, a: &a, b: &b, bias: None, y }
    };
    device.launch(launch).expect_err("sm_80")
}

#[test]
fn a_device_without_eight_bits_says_so() {
    let Some(emulated) = emulated(80, 1) else { return };
    let device = emulated.open().expect("a device");
    let words = "products in eight bits need compute capability 89 and the device has 80; leave products=fp8 out";
    for is_conv in [false, true] {
        assert_eq!(refusal(&device, is_conv).to_string(), words);
    }
    // A trainer is refused before it allocates memory.
    let mut parameters = Parameters::seeded(1);
    let _loss = decoder(&mut parameters);
    let method: Method = "gs:format=e4m3,products=fp8".parse().unwrap_or_else(|error| panic!("{error}"));
    let error = Trainer::new(device, parameters, AdamW::new(0.01), method).expect_err("sm_80");
    assert!(matches!(error, gradscale::Error::Device(Error::NoEightBitProducts { arch: 80 })), "{error}");
    assert_eq!(error.to_string(), words);
}

/// Loss of a network, of inputs and labels.
type Loss = Box<dyn for<'t> Fn(Var<'t>, Var<'t>) -> Var<'t>>;

/// Adds a decoder with attention to the parameters.
fn decoder(parameters: &mut Parameters) -> Loss {
    let size = DecoderSize { context: 6, width: 24, heads: 2, layers: 1, dropout: 0.0 };
    let net = Decoder::new(&mut parameters.at("net"), 20, size);
    Box::new(move |x, labels| net.logits(x).cross_entropy(labels))
}

/// Adds convolutions to the parameters: of three channels, which multiplies halves forward; strided; of groups; dilated.
fn convolutions(parameters: &mut Parameters) -> Loss {
    let pictures = nn::Conv2d::new(&mut parameters.at("pictures"), 3, 16, 3);
    let strided =
        nn::Conv2d::new(&mut parameters.at("strided"), 16, 32, 3).stride(2).bias(&mut parameters.at("strided"));
    let grouped = nn::Conv2d::grouped(&mut parameters.at("grouped"), 32, 32, 3, 2);
    let dilated = nn::Conv2d::new(&mut parameters.at("dilated"), 32, 16, 3).dilation(2);
    let last = Linear::new(&mut parameters.at("last"), 16 * 16, 4);
    Box::new(move |x, labels| {
        let x = strided.forward(pictures.forward(x).relu()).relu();
        last.forward(dilated.forward(grouped.forward(x).relu()).relu().flatten()).cross_entropy(labels)
    })
}

/// Trains a network for some steps, and returns the losses and the bits of the weights.
fn train<B: Backend<Error: 'static>>(
    device: B, method: &str, recorded: bool, network: fn(&mut Parameters) -> Loss, batch: [Input<'_>; 2],
) -> (Vec<f32>, Vec<u32>) {
    let mut parameters = Parameters::seeded(1);
    let loss = network(&mut parameters);
    let method: Method = method.parse().unwrap_or_else(|error| panic!("{error}"));
    let mut trainer = Trainer::new(device, parameters, AdamW::new(0.01), method)
        .expect("a trainer")
        .with_options(TrainerOptions::new().with_recording(recorded));
    let losses = (0..5).map(|_| {
        let gradients = trainer.backward(batch, |[x, labels]| loss(x, labels)).expect("gradients");
        let outcome = trainer.step(gradients).expect("a step");
        assert_eq!(outcome.skipped, None);
        outcome.loss
    });
    let losses = losses.collect();
    let weights = trainer.parameters().expect("readable").into_iter();
    (losses, weights.flat_map(|(_, tensor)| tensor.data.into_iter().map(f32::to_bits)).collect())
}

/// Tests that a training with products in eight bits learns as one with products of halves, and that its recorded steps
/// have the bits of eager ones. The CPU multiplies halves under both methods. The training must use `kernels`.
fn check_training(network: fn(&mut Parameters) -> Loss, batch: [Input<'_>; 2], kernels: &[&str]) {
    let Some(emulated) = emulated(89, 2) else { return };
    let half = "gs:grad=e5m2,act=e4m3,weight=e4m3";
    let fp8 = format!("{half},products=fp8");
    let open = || emulated.open().expect("a device");
    let [eager, recorded] = [false, true].map(|recorded| train(open(), &fp8, recorded, network, batch));
    assert_eq!(recorded, eager);
    let used = emulated.used();
    for &kernel in kernels {
        assert!(used.contains_key(kernel), "{kernel}: {used:?}");
    }
    let beside = train(open(), half, true, network, batch);
    assert_ne!(beside.1, eager.1);
    let [first, last] = [beside.0[0], beside.0[4]];
    assert!(last < 0.9 * first, "{:?}", beside.0);
    for (a, b) in eager.0.iter().zip(&beside.0) {
        assert!((a - b).abs() < 0.02 * b, "{:?} beside {:?}", eager.0, beside.0);
    }
    let cpu = || Cpu::new(1).expect("a CPU");
    let [on_cpu, halves_on_cpu] = [&fp8, half].map(|method| train(cpu(), method, true, network, batch));
    assert_eq!(on_cpu, halves_on_cpu);
}

#[test]
fn a_decoder_learns_with_products_in_eight_bits() {
    let tokens: Vec<u32> = (0..12).map(|i| i * 7 % 20).collect();
    let labels: Vec<u32> = (0..12).map(|i| (i + 1) * 7 % 20).collect();
    let batch = [Input::u32([2, 6], &tokens), Input::u32([2, 1, 6], &labels)];
    // Products of the forward pass; gradients of weights, and of what they multiply; gradients of the right side of an
    // attention product.
    let kernels = ["mma_fp8_e4m3_e4m3_64x64", "mma_fp8_e5m2_e4m3_64x64", "mma_fp8_e4m3_e5m2_64x64"];
    check_training(decoder, batch, &kernels);
}

#[test]
fn convolutions_learn_with_products_in_eight_bits() {
    let pictures: Vec<f32> = (0..4 * 8 * 8 * 3).map(|i| (i * i % 97) as f32 / 97.0).collect();
    let batch = [Input::f32([4, 8, 8, 3], &pictures), Input::u32([4], &[0, 1, 2, 3])];
    // The forward and the data pass; the weight gradient of halves.
    let kernels = ["mma_fp8_conv_e4m3_e4m3_64x64", "mma_fp8_conv_e5m2_e4m3_64x64", "mma_sync_weight_64x128"];
    check_training(convolutions, batch, &kernels);
}
