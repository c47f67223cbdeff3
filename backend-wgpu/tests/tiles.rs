//! Products that are large enough for whole tiles and slices, against the CPU: the suite's are small.

#![allow(clippy::unwrap_used, reason = "a test: small sizes, devices that are there")]

use gradscale::Cpu;
use gradscale_core::{
    backend::{Backend, Control, DType, Data, DataMut, Launch, Slot, Store},
    ops::{Conv2d, Gemm, Pass},
    stats::{Convention, Detail, Stats},
};
use gradscale_wgpu::Wgpu;
use pollster::block_on;

/// Small integers, whose sums of products are exact in any order.
fn integers(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) % 7) as f32 - 3.0
    };
    (0..len).map(|_| next()).collect()
}

/// Result and row of an operator on two operands.
fn run<B: Backend>(
    device: &B, lens: [usize; 3], work: impl Fn(&B, &B::Buffer, &B::Buffer, Store<'_, B>) -> Result<(), B::Error>,
) -> (Vec<f32>, Stats) {
    let mut table = device.table(4, 0).unwrap();
    let control = Control { exponents: &[0, 0, 3, 5], hyperparameters: &[], seed: 1, detail: Detail::Full };
    device.upload(&control, 0..4, &mut table).unwrap();
    let operand = |len, seed| {
        let values: Vec<half::f16> = integers(len, seed).into_iter().map(half::f16::from_f32).collect();
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

/// Products that cooperative matrices may take, with them where the adapter has them, and without. With
/// `GRADSCALE_REQUIRE_COOP=1` they must have been taken.
#[test]
fn cooperative_matrices_agree_with_the_cpu() {
    let (Some(gpu), Some(without)) = (device(), device()) else { return };
    let (without, cpu) = (without.without_cooperative_matrices(), Cpu::new(0).unwrap());
    for (m, n, k) in [(136, 152, 104), (260, 36, 20), (64, 64, 516)] {
        for transposed in [[false, false], [true, false], [false, true], [true, true]] {
            let p = Gemm::new(m, n, k).and_then(|p| p.batched(2, [m * k, k * n, m * n])).unwrap();
            let p = if transposed[0] { p.transpose_a().unwrap() } else { p };
            let p = if transposed[1] { p.transpose_b().unwrap() } else { p };
            let lens = p.lens().map(|len| len as usize);
            let want =
                run(&cpu, lens, |device, a, b, store| device.launch(Launch::Gemm { p, a, b, bias: None, y: store }));
            for device in [&gpu, &without] {
                let got = run(device, lens, |device, a, b, store| {
                    device.launch(Launch::Gemm { p, a, b, bias: None, y: store })
                });
                same(&format!("{p:?}"), &got, &want);
            }
        }
    }
    let used = gpu.has_cooperative_matrices();
    println!("cooperative matrices: {}", if used { "used" } else { "not offered, or not exact" });
    let required = std::env::var("GRADSCALE_REQUIRE_COOP").is_ok_and(|value| value == "1");
    assert!(used || !required, "cooperative matrices are required and were not used");
    assert!(!without.has_cooperative_matrices());
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
        // So many places that the weight gradient is cut into slices, with a small tile and with a large one.
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
