//! Products that are large enough for whole tiles and slices, against the CPU: the suite's are small.

#![allow(clippy::unwrap_used, reason = "a test: small sizes, devices that are there")]

use gradscale::{
    CheckpointError, Cpu, Error, Input, Method, Parameters, Trainer,
    nn::{Linear, Module},
    optim::Sgd,
};
use gradscale_core::{
    backend::{Backend, Control, DType, Data, DataMut, Launch, Slot, Store},
    ops::{Conv2d, Gemm, Pass},
    stats::{Convention, Detail, Stats},
};
use gradscale_wgpu::{
    Adapter, EnginePreference, EngineReason, ProductEngine, ProductLaunches, ProductTile, TilePreference, Wgpu,
    adapters,
};
use pollster::block_on;
use std::collections::BTreeMap;

/// Small integers, whose sums of products are exact in any order.
fn integers(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) % 7) as f32 - 3.0
    };
    (0..len).map(|_| next()).collect()
}

/// Numbers of many magnitudes, whose sums depend on their order.
fn fractions(len: usize, seed: u64) -> Vec<f32> {
    let magnitudes = [-5, 2, -2, 5, 1, -3, 4, 0, -4, 3, -1].map(|exponent| 2f32.powi(exponent));
    integers(len, seed).into_iter().zip(magnitudes.into_iter().cycle()).map(|(a, b)| (a + 0.37) * b).collect()
}

/// Result and row of an operator on two operands of small integers.
fn run<B: Backend>(
    device: &B, lens: [usize; 3], work: impl Fn(&B, &B::Buffer, &B::Buffer, Store<'_, B>) -> Result<(), B::Error>,
) -> (Vec<f32>, Stats) {
    run_on(integers, device, lens, work)
}

/// Result and row of an operator on two operands.
fn run_on<B: Backend>(
    numbers: fn(usize, u64) -> Vec<f32>, device: &B, lens: [usize; 3],
    work: impl Fn(&B, &B::Buffer, &B::Buffer, Store<'_, B>) -> Result<(), B::Error>,
) -> (Vec<f32>, Stats) {
    let mut table = device.table(4, 0).unwrap();
    let control = Control { exponents: &[0, 0, 3, 5], hyperparameters: &[], seed: 1, detail: Detail::Full };
    device.upload(&control, 0..4, &mut table).unwrap();
    let operand = |len, seed| {
        let values: Vec<half::f16> = numbers(len, seed).into_iter().map(half::f16::from_f32).collect();
        let mut buffer = device.alloc(DType::F16, len).unwrap();
        device.write(Data::F16(&values), &mut buffer).unwrap();
        buffer
    };
    let (a, b) = (operand(lens[0], 1), operand(lens[1], 2));
    let mut y = device.alloc(DType::F32, lens[2]).unwrap();
    work(device, &a, &b, Store::site(Slot(2), Slot(3), &table, &mut y)).unwrap();
    let mut values = vec![0f32; lens[2]];
    block_on(device.read(&y, DataMut::F32(&mut values))).unwrap();
    let mut rows = [Stats::new(Convention::FP16, 0, Detail::None)];
    block_on(device.collect(&table, 3..4, &mut rows, &[], &mut [])).unwrap();
    (values, rows[0])
}

/// Equal but for the sign of zero, which depends on the order of sums.
fn same(name: &str, (gpu, gpu_row): &(Vec<f32>, Stats), (cpu, cpu_row): &(Vec<f32>, Stats)) {
    let differing = gpu.iter().zip(cpu).filter(|(a, b)| a != b).count();
    assert_eq!(differing, 0, "{name}: {differing} of {} results differ", cpu.len());
    assert_eq!((gpu_row.counts(), gpu_row.bins()), (cpu_row.counts(), cpu_row.bins()), "{name}");
}

/// The first adapter's, if there is one.
fn device() -> Option<Wgpu> {
    let required = std::env::var("GRADSCALE_REQUIRE_DEVICE").is_ok_and(|value| value == "1");
    match Wgpu::new(0) {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            assert!(!required, "no device, and one is required: {error}");
            println!("SKIPPED: {error}");
            None
        }
    }
}

/// The first adapter that has cooperative matrices, opened with them, however slow they are. With
/// `GRADSCALE_REQUIRE_COOP=1` there must be one.
fn cooperative() -> Option<(Adapter, Wgpu)> {
    let required = std::env::var("GRADSCALE_REQUIRE_COOP").is_ok_and(|value| value == "1");
    let mut causes = Vec::new();
    for adapter in adapters() {
        match Wgpu::open_with(&adapter, cfg!(debug_assertions), EnginePreference::Cooperative) {
            Ok(device) => return Some((adapter, device)),
            Err(error) => causes.push(format!("{}: {error}", adapter.name())),
        }
    }
    assert!(!required, "cooperative matrices are required: {causes:?}");
    println!("SKIPPED: {causes:?}");
    None
}

fn gemm<B: Backend>(device: &B, p: Gemm) -> (Vec<f32>, Stats) {
    let lens = p.lens().map(|len| len as usize);
    run(device, lens, |device, a, b, store| device.launch(Launch::Gemm { p, a, b, bias: None, y: store }))
}

/// Products by cooperative matrices and without agree with the CPU, and went to the kernel that is named.
#[test]
fn cooperative_matrices_agree_with_the_cpu() {
    let Some((adapter, gpu)) = cooperative() else { return };
    let fastest = Wgpu::open_with(&adapter, cfg!(debug_assertions), EnginePreference::Fastest).unwrap();
    println!("{}: {} ({})", adapter.name(), fastest.product_engine(), fastest.product_engine_reason());
    let (without, cpu) = (fastest.without_cooperative_matrices(), Cpu::new(0).unwrap());
    let mut products = 0;
    for (m, n, k) in [(136, 152, 104), (260, 36, 20), (64, 64, 516)] {
        for transposed in [[false, false], [true, false], [false, true], [true, true]] {
            let p = Gemm::new(m, n, k).and_then(|p| p.batched(2, [m * k, k * n, m * n])).unwrap();
            let p = if transposed[0] { p.transpose_a().unwrap() } else { p };
            let p = if transposed[1] { p.transpose_b().unwrap() } else { p };
            let want = gemm(&cpu, p);
            for device in [&gpu, &without] {
                same(&format!("{p:?} by {}", device.product_engine()), &gemm(device, p), &want);
            }
            products += 1;
        }
    }
    assert_eq!(gpu.product_launches(), ProductLaunches { simt: 0, cooperative: products });
    assert_eq!(without.product_launches(), ProductLaunches { simt: products, cooperative: 0 });
    // Sizes that are no multiples of four go by SIMT, and are counted there.
    let p = Gemm::new(65, 66, 67).unwrap();
    same("remainders", &gemm(&gpu, p), &gemm(&cpu, p));
    assert_eq!(gpu.product_launches(), ProductLaunches { simt: 1, cooperative: products });
    println!("cooperative matrices: {products} products by {}", gpu.product_engine());
}

/// All passes of convolutions by cooperative matrices agree with the CPU, and went to the kernel that is named: with a
/// remainder of each size, strides, dilation and groups, a sum that is divided, and one tap, which is a product of matrices.
#[test]
fn convolutions_by_cooperative_matrices_agree_with_the_cpu() {
    let Some((_, gpu)) = cooperative() else { return };
    let cpu = Cpu::new(0).unwrap();
    let conv = |x, outputs, kernel| Conv2d::new(x, outputs, kernel).unwrap();
    let mut expected = ProductLaunches::default();
    for (p, by_coop) in [
        (conv([1, 12, 11, 48], 80, [3, 3]).pad([1, 1]).unwrap(), [true; 3]),
        // 40 outputs are no multiple of 16, so the data gradient would have two taps in a step.
        (
            conv([2, 9, 10, 48], 40, [3, 2]).stride([2, 1]).and_then(|p| p.dilation([1, 2])).unwrap(),
            [true, false, true],
        ),
        (conv([1, 11, 12, 96], 96, [3, 3]).stride([1, 2]).and_then(|p| p.groups(2)).unwrap(), [true; 3]),
        // 3136 places, which the weight gradient adds in two splits.
        (conv([1, 56, 55, 48], 48, [1, 2]).pad([0, 1]).unwrap(), [true; 3]),
        (conv([2, 64, 50, 40], 36, [1, 1]), [true; 3]),
        // Three channels are no eights.
        (conv([1, 9, 9, 3], 64, [3, 3]), [false; 3]),
    ] {
        let [x, w, y] = [p.x(), p.w(), p.y()].map(|shape| shape.iter().product::<u32>() as usize);
        let passes = [(Pass::Forward, [x, w, y]), (Pass::Data, [y, w, x]), (Pass::Weight, [x, y, w])];
        for ((pass, lens), by_coop) in passes.into_iter().zip(by_coop) {
            let name = format!("{pass:?} of {p:?}");
            let got = run(&gpu, lens, |device, a, b, store| {
                device.launch(Launch::Conv { p, pass, a, b, bias: None, y: store })
            });
            let want = run(&cpu, lens, |device, a, b, store| {
                device.launch(Launch::Conv { p, pass, a, b, bias: None, y: store })
            });
            same(&name, &got, &want);
            *if by_coop { &mut expected.cooperative } else { &mut expected.simt } += 1;
            assert_eq!(gpu.product_launches(), expected, "{name}");
        }
    }
    println!("cooperative matrices: {} passes by {}", expected.cooperative, gpu.product_engine());
}

/// Two devices on one adapter choose the same, and a pinned engine is the one that runs.
#[test]
fn the_engine_of_products_is_chosen_alike_and_can_be_pinned() {
    for adapter in adapters() {
        let open = |preference| Wgpu::open_with(&adapter, cfg!(debug_assertions), preference);
        let [first, second] = [open(EnginePreference::Fastest), open(EnginePreference::Fastest)].map(Result::unwrap);
        let reasons = [&first, &second].map(|device| device.product_engine_reason().to_string());
        println!("{}: {} ({})", adapter.name(), first.product_engine(), reasons.join(" / "));
        assert_eq!(first.product_engine(), second.product_engine(), "{reasons:?}");
        let simt = open(EnginePreference::Simt).unwrap();
        assert_eq!((simt.product_engine(), simt.product_engine_reason()), (ProductEngine::Simt, &EngineReason::Pinned));
        gemm(&simt, Gemm::new(64, 64, 64).unwrap());
        assert_eq!(simt.product_launches(), ProductLaunches { simt: 1, cooperative: 0 });
    }
}

/// A training by this device; the bytes of its checkpoint.
fn trainer(device: Wgpu) -> (Trainer<Wgpu>, Linear) {
    let mut parameters = Parameters::seeded(3);
    let net = Linear::new(&mut parameters.at("net"), 64, 64);
    (Trainer::new(device, parameters, Sgd::new(0.5), Method::mixed()).unwrap(), net)
}

/// Steps with a batch that cooperative matrices can multiply.
fn train((trainer, net): &mut (Trainer<Wgpu>, Linear), steps: usize) {
    let x: Vec<f32> = (0..64 * 64).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let labels: Vec<u8> = (0..64).collect();
    for _ in 0..steps {
        let batch = [Input::f32([64, 64], &x), Input::u8([64], &labels)];
        let gradients = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels)).unwrap();
        assert!(trainer.step(gradients).unwrap().skipped.is_none());
    }
}

/// A checkpoint records its engine. A resumed training uses that engine, whichever the device had chosen, with the same
/// bits. A device without the engine returns an error and changes nothing; a pinned device keeps its engine and reports
/// it.
#[test]
fn a_resumed_training_keeps_its_engine() {
    let Some((adapter, device)) = cooperative() else { return };
    let simt = || Wgpu::open_with(&adapter, cfg!(debug_assertions), EnginePreference::Simt).unwrap();
    let fastest = || Wgpu::open_with(&adapter, cfg!(debug_assertions), EnginePreference::Fastest).unwrap();
    let engine = device.product_engine();
    let mut whole = trainer(device);
    train(&mut whole, 4);
    assert!(whole.0.device().product_launches().cooperative > 0);
    let saved = whole.0.save(&BTreeMap::new()).unwrap();
    assert!(String::from_utf8_lossy(&saved).contains(&engine.to_string()));
    train(&mut whole, 3);

    // A checkpoint of SIMT is resumed with SIMT, whichever engine the device has chosen by timing.
    let bits = |of: &(Trainer<Wgpu>, Linear)| of.0.save(&BTreeMap::new()).unwrap();
    let mut plain = trainer(simt());
    train(&mut plain, 1);
    let mut resumed = trainer(fastest());
    resumed.0.load(&bits(&plain)).unwrap();
    assert_eq!((resumed.0.device().product_engine(), resumed.0.replaced_engine()), (ProductEngine::Simt, None));
    let launches = |of: &(Trainer<Wgpu>, Linear)| of.0.device().product_launches();
    let before = launches(&resumed);
    train(&mut resumed, 3);
    let by_simt = launches(&resumed);
    assert!(by_simt.simt > before.simt && by_simt.cooperative == before.cooperative, "{before:?} {by_simt:?}");

    // Its steps are recorded already. After loading a checkpoint of the other engine they are recorded again, with its
    // bits.
    resumed.0.load(&saved).unwrap();
    assert_eq!(resumed.0.device().product_engine(), engine);
    train(&mut resumed, 3);
    let after = launches(&resumed);
    assert!(after.cooperative > by_simt.cooperative && after.simt == by_simt.simt, "{by_simt:?} {after:?}");
    assert!(bits(&whole) == bits(&resumed), "other weights");

    let mut lacking = trainer(fastest().without_cooperative_matrices());
    let untouched = bits(&lacking);
    let error = lacking.0.load(&saved).expect_err("it has no such engine");
    let Error::Checkpoint(CheckpointError::Settings { of, differences }) = &error else { panic!("{error}") };
    assert_eq!((of.as_str(), differences.len()), (CheckpointError::DEVICE, 1));
    assert!(error.to_string().contains(&format!("GEMM engine {engine} in the checkpoint, simt here")), "{error}");
    assert!(bits(&lacking) == untouched, "something was changed");

    let mut pinned = trainer(simt());
    pinned.0.load(&saved).unwrap();
    let replaced = pinned.0.replaced_engine().expect("it is another");
    assert_eq!((replaced.there.as_str(), replaced.here.as_str()), (&*engine.to_string(), "simt"));
    train(&mut pinned, 1);
    assert_eq!(pinned.0.device().product_launches().cooperative, 0);
}

/// Every tile has the bits of the others, for numbers whose sums depend on their order, and of the CPU for integers: with
/// remainders in every direction, in all layouts and passes, with and without whole vectors.
///
/// With `GRADSCALE_BRIEF=1` each size has one layout or pass for every tile, and all of them for the largest tile alone: for
/// drivers that take seconds to compile a kernel. The text of a tile is that of the others with other constants.
#[test]
fn every_tile_has_the_same_bits() {
    let Some(_) = device() else { return };
    let brief = std::env::var("GRADSCALE_BRIEF").is_ok_and(|value| value == "1");
    let cpu = Cpu::new(0).unwrap();
    let devices: Vec<(ProductTile, Wgpu)> =
        ProductTile::ALL.map(|tile| (tile, Wgpu::new(0).unwrap().with_product_tile(tile))).into();
    let same_bits = |name: &str, results: Vec<(Vec<f32>, Stats)>| {
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        for ((tile, _), (values, row)) in devices.iter().zip(&results) {
            assert!(bits(values) == bits(&results[0].0), "{name}: other bits by {tile:?}");
            assert_eq!(row.counts(), results[0].1.counts(), "{name} by {tile:?}");
        }
    };
    // Sizes that are multiples of four and a depth of eight; then none is.
    for (m, n, k) in [(132, 136, 72), (131, 70, 37)] {
        for transposed in [false, true] {
            let devices = if brief && transposed != (k % 8 == 0) { &devices[..1] } else { &devices[..] };
            let p = Gemm::new(m, n, k).unwrap();
            let p = if transposed { p.transpose_a().and_then(|p| p.transpose_b()).unwrap() } else { p };
            let lens = p.lens().map(|len| len as usize);
            let want = gemm(&cpu, p);
            devices.iter().for_each(|(tile, gpu)| same(&format!("{p:?} by {tile:?}"), &gemm(gpu, p), &want));
            let on = |gpu: &Wgpu| {
                run_on(fractions, gpu, lens, |device, a, b, store| {
                    device.launch(Launch::Gemm { p, a, b, bias: None, y: store })
                })
            };
            same_bits(&format!("{p:?}"), devices.iter().map(|(_, gpu)| on(gpu)).collect());
        }
    }
    for (p, brief_pass) in [
        // Whole vectors and the same tap in a step; then neither, with strides and dilation.
        (Conv2d::new([2, 9, 8, 16], 72, [3, 3]).and_then(|p| p.pad([1, 1])).unwrap(), Pass::Forward),
        (
            Conv2d::new([1, 13, 12, 6], 10, [3, 2])
                .and_then(|p| p.stride([2, 3]))
                .and_then(|p| p.dilation([1, 2]))
                .unwrap(),
            Pass::Weight,
        ),
    ] {
        let [x, w, y] = [p.x(), p.w(), p.y()].map(|shape| shape.iter().product::<u32>() as usize);
        for (pass, lens) in [(Pass::Forward, [x, w, y]), (Pass::Data, [y, w, x]), (Pass::Weight, [x, y, w])] {
            let devices = if brief && pass != brief_pass { &devices[..1] } else { &devices[..] };
            let name = format!("{pass:?} of {p:?}");
            let want = run(&cpu, lens, |device, a, b, store| {
                device.launch(Launch::Conv { p, pass, a, b, bias: None, y: store })
            });
            let on = |numbers, gpu: &Wgpu| {
                run_on(numbers, gpu, lens, |device, a, b, store| {
                    device.launch(Launch::Conv { p, pass, a, b, bias: None, y: store })
                })
            };
            devices.iter().for_each(|(tile, gpu)| same(&format!("{name} by {tile:?}"), &on(integers, gpu), &want));
            same_bits(&name, devices.iter().map(|(_, gpu)| on(fractions, gpu)).collect());
        }
    }
}

/// Products that are large enough for the chosen tile have the same bits whichever it is. The largest and the smallest tile
/// suffice, because the test above compares all.
#[test]
fn the_choice_of_a_tile_changes_no_bit() {
    let Some(_) = device() else { return };
    let adapter = Adapter::get(0).unwrap();
    // As many products as are needed for 128 tiles of 128×128, each of little more than a quarter of one.
    let (m, n, k) = (68, 68, 8);
    let p = Gemm::new(m, n, k).and_then(|p| p.batched(128, [m * k, k * n, m * n])).unwrap();
    let lens = p.lens().map(|len| len as usize);
    let mut gpu = Wgpu::new(0).unwrap().without_cooperative_matrices();
    let mut results = Vec::new();
    for tile in [ProductTile::Side128, ProductTile::Side16] {
        gpu = gpu.with_tile_preference(&adapter, TilePreference::Pinned(tile)).unwrap();
        assert_eq!(gpu.product_tile_choice().tile, tile);
        let (values, row) = run_on(fractions, &gpu, lens, |device, a, b, store| {
            device.launch(Launch::Gemm { p, a, b, bias: None, y: store })
        });
        let bits: Vec<u32> = values.into_iter().map(f32::to_bits).collect();
        results.push((tile, bits, *row.counts()));
    }
    let (_, bits, counts) = &results[0];
    for (tile, other, other_counts) in &results {
        assert!(other == bits && other_counts == counts, "other bits by {tile}");
    }
}

#[test]
fn whole_tiles_and_slices_agree_with_the_cpu() {
    let Some(gpu) = device() else { return };
    let cpu = Cpu::new(0).unwrap();
    for p in [
        // Whole tiles in both directions, and a remainder of each.
        Conv2d::new([1, 12, 11, 48], 70, [3, 3]).and_then(|p| p.pad([1, 1])).unwrap(),
        Conv2d::new([2, 9, 10, 40], 36, [3, 2])
            .and_then(|p| p.stride([2, 1]))
            .and_then(|p| p.dilation([1, 2]))
            .unwrap(),
        Conv2d::new([1, 9, 9, 80], 72, [3, 3]).and_then(|p| p.groups(2)).unwrap(),
        // Enough pixels that the weight gradient is divided into slices, with a small and with a large tile.
        Conv2d::new([1, 64, 66, 8], 8, [3, 3]).and_then(|p| p.pad([1, 1])).unwrap(),
        Conv2d::new([2, 64, 50, 40], 40, [1, 1]).unwrap(),
    ] {
        let [x, w, y] = [p.x(), p.w(), p.y()].map(|shape| shape.iter().product::<u32>() as usize);
        for (pass, lens) in [(Pass::Forward, [x, w, y]), (Pass::Data, [y, w, x]), (Pass::Weight, [x, y, w])] {
            let got = run(&gpu, lens, |device, a, b, store| {
                device.launch(Launch::Conv { p, pass, a, b, bias: None, y: store })
            });
            let want = run(&cpu, lens, |device, a, b, store| {
                device.launch(Launch::Conv { p, pass, a, b, bias: None, y: store })
            });
            same(&format!("{pass:?} of {p:?}"), &got, &want);
        }
    }
    for (m, n, k) in [(48, 65, 5000), (3, 5, 40_000), (130, 70, 33)] {
        let p = Gemm::new(m, n, k).unwrap();
        let lens = p.lens().map(|len| len as usize);
        let got = run(&gpu, lens, |device, a, b, store| device.launch(Launch::Gemm { p, a, b, bias: None, y: store }));
        let want = run(&cpu, lens, |device, a, b, store| device.launch(Launch::Gemm { p, a, b, bias: None, y: store }));
        same(&format!("{p:?}"), &got, &want);
    }
}
