//! Products of shapes that want each tile, on every way to bring operands: the reference backend's results, bit for bit,
//! on integers.

#![allow(dead_code, reason = "each test uses some of it")]

use crate::stored::{SITE, read_stored};
use gradscale_conformance::Reference;
use gradscale_core::{
    backend::{Backend, Control, DType, Data, Launch, Slot, Store},
    ops::{Conv2d, Gemm, Pass, ShapeError},
    stats::{Detail, Stats},
};
use gradscale_cuda::Cuda;
use half::f16;

/// One product.
#[derive(Clone, Copy, Debug)]
enum Work {
    Gemm(Gemm),
    Conv(Conv2d, Pass),
}

/// Small integers, the same for every device.
fn numbers(len: usize, seed: u32) -> Vec<f16> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f16::from_f32((state >> 24) as f32 % 7.0 - 3.0)
    };
    (0..len).map(|_| next()).collect()
}

fn product(shape: [u32; 4]) -> usize {
    shape.into_iter().product::<u32>() as usize
}

/// Returns the results for operands and results of these types, and their row. With `more` a bias is added, if possible, and the destination is
/// accumulated.
fn results<B: Backend>(device: &B, work: Work, types: [DType; 2], more: bool) -> Result<(Vec<f32>, Stats), B::Error> {
    results_of(device, work, types, more, &|_| {})
}

/// Returns the same of a first operand that `change` has changed, if it is halves.
fn results_of<B: Backend>(
    device: &B, work: Work, [operand_type, y_type]: [DType; 2], more: bool, change: &dyn Fn(&mut [f16]),
) -> Result<(Vec<f32>, Stats), B::Error> {
    let [a_len, b_len, y_len] = match work {
        Work::Gemm(p) => p.lens().map(|len| len as usize),
        Work::Conv(p, Pass::Forward) => [product(p.x()), product(p.w()), product(p.y())],
        Work::Conv(p, Pass::Data) => [product(p.y()), product(p.w()), product(p.x())],
        Work::Conv(p, Pass::Weight) => [product(p.x()), product(p.y()), product(p.w())],
    };
    let load = |len, seed, dtype| {
        let mut buffer = device.alloc(dtype, len)?;
        let mut values = numbers(len, seed);
        if seed == 1 {
            change(&mut values);
        }
        match dtype {
            DType::F16 => device.write(Data::F16(&values), &mut buffer)?,
            _ => device.write(Data::F32(&values.iter().map(|x| x.to_f32()).collect::<Vec<_>>()), &mut buffer)?,
        }
        Ok::<_, B::Error>(buffer)
    };
    let (a, b, mut y) = (load(a_len, 1, operand_type)?, load(b_len, 2, operand_type)?, load(y_len, 3, y_type)?);
    let mut table = device.table(3, 0)?;
    let control = Control { exponents: &[0, 0, -3], hyperparameters: &[], seed: 0, detail: Detail::Full };
    device.upload(&control, 0..3, &mut table)?;
    let columns = match work {
        Work::Gemm(p) => p.shape().n,
        Work::Conv(p, Pass::Forward) => p.y()[3],
        Work::Conv(..) => 0,
    };
    let bias = load(columns as usize, 4, operand_type)?;
    let bias = Some(&bias).filter(|_| more && columns != 0);
    let store = Store { add: more, ..Store::site(Slot::ONE, SITE, &table, &mut y) };
    match work {
        Work::Gemm(p) => device.launch(Launch::Gemm { p, a: &a, b: &b, bias, y: store })?,
        Work::Conv(p, pass) => device.launch(Launch::Conv { p, pass, a: &a, b: &b, bias, y: store })?,
    }
    read_stored(device, &y, y_type, y_len, &table)
}

/// Shapes that want each tile, and operands that are not aligned.
fn shapes() -> Result<Vec<Work>, ShapeError> {
    let mut all = vec![];
    for [m, n, k] in
        [[136, 144, 72], [264, 392, 136], [104, 112, 200], [200, 40, 104], [48, 136, 40], [24, 56, 136], [33, 21, 45]]
    {
        let p = Gemm::new(m, n, k)?;
        all.extend([p, p.transpose_a()?, p.transpose_b()?, p.transpose_a()?.transpose_b()?].map(Work::Gemm));
    }
    // Channels in and out; images of 7 × 5 pixels or 2 × 3.
    for [c, o, large] in [
        [72, 136, 1],
        [136, 72, 1],
        [8, 16, 1],
        [16, 8, 0],
        [72, 72, 0],
        [8, 72, 0],
        [5, 7, 0],
        [12, 20, 0],
        [136, 8, 1],
        // Few rows and two columns of tiles of 64 × 128, which gradients of inputs take on a device before sm_90.
        [136, 24, 0],
    ] {
        let x = if large == 1 { [2, 7, 5, c] } else { [2, 2, 3, c] };
        let p = Conv2d::padded(x, o, [3, 3], [1, 1])?;
        all.extend(Pass::ALL.map(|pass| Work::Conv(p, pass)));
    }
    for [c, o] in [[40, 136], [16, 24]] {
        let pointwise = Conv2d::new([2, 7, 5, c], o, [1, 1])?;
        all.extend(Pass::ALL.map(|pass| Work::Conv(pointwise, pass)));
    }
    // Few channels, which are padded to eight.
    let few = [
        Conv2d::padded([2, 12, 13, 3], 64, [7, 7], [3, 3])?,
        Conv2d::padded([2, 25, 23, 3], 72, [7, 7], [3, 3])?.stride([2, 2])?,
        Conv2d::new([1, 16, 16, 1], 8, [1, 1])?,
        Conv2d::padded([3, 9, 8, 5], 24, [3, 2], [1, 2])?.dilation([2, 1])?,
        Conv2d::padded([3, 9, 8, 7], 11, [3, 3], [1, 1])?,
    ];
    all.extend(few.into_iter().flat_map(|p| Pass::ALL.map(|pass| Work::Conv(p, pass))));
    // Shapes for TMA: multiples of 64 channels, strided windows, dilated taps, groups, an even kernel.
    let by_tma = [
        Conv2d::padded([3, 7, 5, 64], 136, [3, 3], [1, 1])?,
        Conv2d::padded([2, 9, 8, 128], 192, [3, 5], [1, 2])?.stride([2, 3])?,
        Conv2d::padded([1, 13, 12, 64], 192, [2, 3], [2, 3])?.dilation([3, 2])?,
        Conv2d::padded([2, 9, 8, 128], 384, [1, 3], [0, 1])?.groups(2)?,
        Conv2d::new([2, 10, 9, 192], 64, [2, 2])?,
        // Wide enough for the largest tile of convolutions in all three directions.
        Conv2d::padded([2, 7, 9, 256], 256, [1, 3], [0, 1])?,
        Conv2d::new([2, 10, 9, 64], 136, [1, 1])?,
    ];
    all.extend(by_tma.into_iter().flat_map(|p| Pass::ALL.map(|pass| Work::Conv(p, pass))));
    // Whole tiles of pixels, for which halo tiles are fastest.
    let halo = Conv2d::padded([2, 16, 32, 64], 64, [3, 3], [1, 1])?;
    all.extend(Pass::ALL.map(|pass| Work::Conv(halo, pass)));
    // Shapes that TMA does not support, and empty ones.
    let nothing = [
        Conv2d::padded([0, 6, 6, 64], 128, [3, 3], [1, 1])?,
        Conv2d::padded([2, 12, 12, 0], 128, [3, 3], [1, 1])?,
        Conv2d::padded([2, 12, 12, 128], 0, [3, 3], [1, 1])?,
        Conv2d::padded([9, 0, 12, 64], 128, [1, 1], [1, 1])?,
    ];
    all.extend(nothing.into_iter().flat_map(|p| Pass::ALL.map(|pass| Work::Conv(p, pass))));
    all.push(Work::Gemm(Gemm::new(136, 144, 0)?));
    // Groups of channels that TMA does not load: the next group's follow.
    for [c, o] in [[72, 136], [136, 24], [8, 16], [12, 20]] {
        let p = Conv2d::padded([2, 7, 5, 2 * c], 2 * o, [3, 3], [1, 1])?.groups(2)?;
        all.extend(Pass::ALL.map(|pass| Work::Conv(p, pass)));
    }
    let strided = Conv2d::padded([2, 9, 8, 32], 48, [3, 3], [1, 1])?.stride([2, 2])?.groups(2)?;
    all.extend(Pass::ALL.map(|pass| Work::Conv(strided, pass)));
    Ok(all)
}

/// Sizes of which operands are copied to aligned rows, and strides whose gradients are computed in phases.
fn copied_shapes() -> Result<Vec<Work>, ShapeError> {
    let columns = Gemm::new(200, 11, 136)?;
    let mut all = vec![columns, columns.transpose_b()?, Gemm::new(136, 72, 135)?.transpose_b()?];
    all.extend([Gemm::new(133, 67, 264)?.transpose_a()?, Gemm::new(160, 133, 200)?]);
    // Three heads of attention over 65 tokens, and one matrix for all of a batch.
    all.push(Gemm::new(65, 64, 65)?.batched(3, [65 * 65, 65 * 64, 65 * 64])?);
    all.push(Gemm::new(65, 65, 64)?.transpose_a()?.batched(3, [65 * 64, 0, 65 * 65])?);
    let mut all: Vec<Work> = all.into_iter().map(Work::Gemm).collect();
    // A classifier of more than 128 pixels for each image, odd channels on both sides, images of three channels.
    for p in [
        Conv2d::new([2, 13, 11, 64], 11, [1, 1])?,
        Conv2d::padded([3, 7, 9, 21], 13, [3, 3], [1, 1])?,
        Conv2d::padded([3, 9, 8, 3], 24, [3, 2], [1, 2])?,
    ] {
        all.extend(Pass::ALL.map(|pass| Work::Conv(p, pass)));
    }
    for p in [
        Conv2d::padded([2, 9, 8, 16], 24, [3, 3], [1, 1])?.stride([2, 2])?,
        // One tap for a quarter of the pixels, and none for the others.
        Conv2d::new([2, 9, 8, 64], 72, [1, 1])?.stride([2, 2])?,
        // A dilation that shares a factor with the stride, so that whole rows have no taps.
        Conv2d::padded([2, 11, 13, 8], 16, [3, 4], [3, 2])?.stride([2, 3])?.dilation([2, 2])?,
        // Fewer taps than pixels between them, and rows that no window reaches.
        Conv2d::new([1, 11, 10, 24], 8, [2, 3])?.stride([4, 3])?,
        // Odd channels too, as in the last layer of a generator.
        Conv2d::padded([2, 10, 12, 3], 20, [4, 4], [1, 1])?.stride([2, 2])?,
    ] {
        all.push(Work::Conv(p, Pass::Data));
    }
    Ok(all)
}

/// Convolutions by halo tiles: of an odd number of slices, of stages that are not full, of one tile and of several, of images
/// smaller than a tile, with paddings from none to all, and of several blocks of results.
fn halo_shapes() -> Result<Vec<Work>, ShapeError> {
    let mut all = vec![];
    for (images, size, summed, results, kernel, padding) in [
        (1, [1, 1], 8, 32, [3, 3], [1, 1]),
        (2, [7, 9], 8, 64, [7, 7], [3, 3]),
        (1, [17, 33], 8, 72, [3, 5], [1, 2]),
        (1, [20, 20], 8, 40, [2, 4], [0, 3]),
        (3, [7, 9], 16, 64, [3, 3], [2, 2]),
        (2, [18, 20], 16, 32, [3, 5], [0, 0]),
        (1, [16, 16], 16, 128, [5, 5], [2, 2]),
        (1, [17, 33], 32, 64, [3, 3], [1, 1]),
        (2, [9, 7], 32, 72, [5, 5], [4, 4]),
        (1, [19, 18], 48, 64, [3, 3], [1, 0]),
        (1, [7, 9], 48, 40, [7, 5], [3, 2]),
        (1, [1, 1], 64, 64, [3, 3], [1, 1]),
        (1, [17, 33], 64, 32, [3, 3], [1, 1]),
        (2, [7, 9], 64, 128, [7, 7], [3, 3]),
        (1, [9, 17], 64, 72, [2, 3], [1, 0]),
    ] {
        let conv = |c, o| Conv2d::padded([images, size[0], size[1], c], o, kernel, padding);
        all.extend([Work::Conv(conv(summed, results)?, Pass::Forward), Work::Conv(conv(results, summed)?, Pass::Data)]);
    }
    // Images of three channels, and phases of a strided convolution.
    all.push(Work::Conv(Conv2d::padded([2, 12, 18, 3], 64, [7, 7], [3, 3])?, Pass::Forward));
    let strided = Conv2d::padded([2, 21, 35, 40], 16, [5, 5], [2, 2])?.stride([2, 2])?;
    all.push(Work::Conv(strided, Pass::Data));
    Ok(all)
}

/// Long sums of few results: cut on a device of eight multiprocessors.
fn long_sums() -> Result<Vec<Work>, ShapeError> {
    // Groups of channels that TMA does not load, and channels that it does.
    let forward = [
        Conv2d::padded([2, 7, 5, 400], 32, [3, 3], [1, 1])?.groups(2)?,
        Conv2d::padded([2, 7, 5, 256], 64, [3, 3], [1, 1])?,
    ];
    let weights = [Conv2d::new([1, 40, 40, 144], 32, [1, 1])?.groups(2)?, Conv2d::new([1, 40, 40, 128], 32, [1, 1])?];
    let mut all = vec![Work::Gemm(Gemm::new(64, 64, 2048)?), Work::Gemm(Gemm::new(128, 128, 1536)?)];
    all.extend(forward.map(|p| Work::Conv(p, Pass::Forward)));
    all.extend(weights.map(|p| Work::Conv(p, Pass::Weight)));
    Ok(all)
}

/// Tests all shapes on a device, and panics if results differ from the reference.
pub fn check(device: &Cuda) {
    check_some(device, usize::MAX);
}

/// Tests the first `count` shapes.
pub fn check_some(device: &Cuda, count: usize) {
    check_these(device, shapes().expect("valid shapes").into_iter().take(count), false);
}

/// Tests shapes of which operands are copied.
pub fn check_copied(device: &Cuda, more: bool) {
    check_these(device, copied_shapes().expect("valid shapes"), more);
}

/// Tests convolutions that halo tiles compute, with a bias and an added destination if `more`, and some with results in f32.
pub fn check_halo(device: &Cuda, more: bool) {
    let shapes = halo_shapes().expect("valid shapes");
    check_these(device, shapes.iter().copied(), more);
    check_typed(device, shapes.into_iter().take(8), [DType::F16, DType::F32], more);
}

/// Tests that a value that is not finite reaches those results alone whose taps read it: as many as by the other kernels.
pub fn check_infinity(halo: &Cuda, others: &Cuda) {
    for (channels, kernel) in [(8, [3, 3]), (8, [2, 3]), (16, [3, 3]), (48, [3, 3])] {
        let p = Conv2d::padded([2, 18, 17, channels], 32, kernel, [1, 1]).expect("a valid shape");
        let work = Work::Conv(p, Pass::Forward);
        // One in each image, the last one at its last pixel.
        let change = |x: &mut [f16]| {
            let half = x.len() / 2;
            (x[half / 3], x[2 * half - 1]) = (f16::INFINITY, f16::INFINITY);
        };
        let [(values, row), (want, want_row)] =
            [halo, others].map(|device| results_of(device, work, [DType::F16; 2], false, &change).expect("runs"));
        assert!(values.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits()), "{work:?}");
        assert_eq!(row.counts(), want_row.counts(), "{work:?}");
        assert!(values.iter().any(|value| !value.is_finite()), "{work:?}");
    }
}

/// Products in f32 of which four neighbouring elements are aligned, of more rows and columns than a tile has, and results
/// of any width.
fn f32_shapes() -> Result<Vec<Work>, ShapeError> {
    let (p, odd) = (Gemm::new(136, 144, 44)?, Gemm::new(133, 67, 44)?.transpose_b()?);
    let mut all = vec![p, p.transpose_a()?, p.transpose_b()?, p.transpose_a()?.transpose_b()?, odd];
    all.push(Gemm::new(40, 24, 20)?.batched(3, [800, 0, 960])?);
    let mut all: Vec<Work> = all.into_iter().map(Work::Gemm).collect();
    let grouped = Conv2d::padded([2, 9, 8, 24], 40, [3, 3], [1, 1])?.stride([2, 2])?.groups(2)?;
    for p in [Conv2d::padded([2, 9, 8, 12], 20, [3, 3], [1, 1])?, grouped] {
        all.extend(Pass::ALL.map(|pass| Work::Conv(p, pass)));
    }
    Ok(all)
}

/// Products in f32 of long sums, for each tile of the kernels on tensor cores, with operands that are divided into bands.
fn long_f32_shapes() -> Result<Vec<Work>, ShapeError> {
    let (p, narrow) = (Gemm::new(264, 136, 264)?, Gemm::new(200, 40, 520)?);
    let mut all = vec![];
    for p in [p, narrow] {
        all.extend([p, p.transpose_a()?, p.transpose_b()?, p.transpose_a()?.transpose_b()?]);
    }
    all.push(Gemm::new(133, 67, 264)?.transpose_b()?);
    all.push(Gemm::new(136, 72, 256)?.batched(3, [136 * 256, 72 * 256, 136 * 72])?);
    let mut all: Vec<Work> = all.into_iter().map(Work::Gemm).collect();
    for p in [
        Conv2d::padded([3, 13, 12, 64], 136, [3, 3], [1, 1])?,
        Conv2d::padded([2, 14, 13, 128], 64, [3, 2], [1, 2])?,
        // Boxes with channels that the tensors do not have, strided windows, dilated taps, groups.
        Conv2d::padded([3, 13, 11, 72], 40, [3, 3], [1, 1])?,
        Conv2d::padded([2, 24, 25, 72], 136, [2, 3], [2, 3])?.dilation([3, 2])?.stride([1, 2])?,
        Conv2d::padded([2, 13, 12, 128], 384, [1, 3], [0, 1])?.groups(2)?,
        Conv2d::new([2, 14, 13, 64], 264, [1, 1])?,
    ] {
        all.extend(Pass::ALL.map(|pass| Work::Conv(p, pass)));
    }
    Ok(all)
}

/// Tests products in f32 of long sums.
pub fn check_long_f32(device: &Cuda, more: bool) {
    check_typed(device, long_f32_shapes().expect("valid shapes"), [DType::F32; 2], more);
}

/// Tests products in f32.
pub fn check_f32(device: &Cuda, more: bool) {
    check_typed(device, f32_shapes().expect("valid shapes"), [DType::F32; 2], more);
}

/// Shapes of long sums.
pub fn check_long_sums(device: &Cuda) {
    for more in [false, true] {
        check_these(device, long_sums().expect("valid shapes"), more);
    }
}

/// Tests a sum that is longer than one accumulator may add. A kernel with TMA operands divides it itself.
pub fn check_longest_sum(device: &Cuda) {
    let p = Conv2d::new([1, 66, 64, 128], 8, [1, 1]).expect("a valid shape");
    check_these(device, [Work::Conv(p, Pass::Weight)], false);
}

fn check_these(device: &Cuda, shapes: impl IntoIterator<Item = Work>, more: bool) {
    check_typed(device, shapes, [DType::F16; 2], more);
}

fn check_typed(device: &Cuda, shapes: impl IntoIterator<Item = Work>, types: [DType; 2], more: bool) {
    let name = device.caps().name.to_owned();
    for work in shapes {
        let (values, row) = results(device, work, types, more).expect("runs");
        let (want, want_row) = results(&Reference::default(), work, types, more).expect("runs");
        let differs = values.iter().zip(&want).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{name}, {work:?}, {:?}", device.self_test_results());
        assert_eq!(row.counts(), want_row.counts(), "{name}, {work:?}");
        // A row into which nothing was stored has no histogram.
        if !values.is_empty() {
            assert_eq!(row.bins(), want_row.bins(), "{name}, {work:?}");
        }
    }
}
