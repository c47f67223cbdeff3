//! Convolutions and their gradients.

use super::{
    Case,
    convolution::{Convolution, HALVES, Types},
    shared::{HALF_AND_F32, Numbers, of, same_each_time},
};
use crate::{
    case::{Check, Fail},
    compare::same_numbers,
    epilogue::{self, same_row},
    property::{is_brief, merge, property},
    rig::{Rig, SLOTS},
};
use gradscale_core::{
    backend::{Backend, DType, Slot, Store},
    ops::Pass,
    stats::Detail,
};
use proptest::prelude::*;

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for (name, shapes) in shapes() {
        for pass in Pass::ALL {
            let (shapes, pass_name) = (shapes.clone(), format!("{pass:?}").to_lowercase());
            cases.push(Case::new(format!("conv::{name}_{pass_name}"), move |b: &B| {
                let mut measured = vec![];
                for shape in &shapes {
                    for dtype in HALF_AND_F32 {
                        let types = Types { operands: [dtype; 2], ..HALVES };
                        shape.check(b, pass, types, 1, Numbers::Integers)?;
                        merge(&mut measured, &shape.check(b, pass, types, 2, Numbers::Any)?);
                    }
                }
                Ok(measured)
            }));
        }
    }
    cases.push(Case::new("conv::types", types::<B>));
    cases.push(Case::new("conv::bias", bias::<B>));
    cases.push(Case::new("conv::nothing", nothing::<B>));
    cases.push(Case::new("conv::sums_in_f32", sums_in_f32::<B>));
    cases.push(Case::new("conv::not_finite", not_finite::<B>));
    cases.push(Case::new("conv::adjoint", adjoint::<B>));
    cases.push(Case::new("conv::weight_gradient", weight_gradient::<B>));
    cases.push(Case::new("conv::epilogue", epilogue::<B>));
    cases.push(Case::new("conv::same_bits_each_time", deterministic::<B>));
    cases.push(Case::new("conv::scratch_memory", scratch_memory::<B>));
    cases.push(Case::new("conv::any_shape", any_shape::<B>));
}

/// Kinds of convolutions that devices may treat in different ways.
fn shapes() -> Vec<(&'static str, Vec<Convolution>)> {
    let new = Convolution::new;
    vec![
        (
            "pointwise",
            vec![
                new([2, 5, 4, 3], 7, [1, 1]),
                new([1, 1, 1, 1], 1, [1, 1]),
                new([1, 7, 6, 33], 17, [1, 1]).stride([2, 2]),
                new([3, 4, 4, 64], 32, [1, 1]),
                // All outputs except one depend on padding only.
                new([1, 1, 1, 2], 3, [1, 1]).pad([2, 1]),
            ],
        ),
        (
            "three_by_three",
            vec![
                new([2, 6, 5, 4], 8, [3, 3]),
                new([1, 7, 9, 5], 6, [3, 3]).pad([1, 1]),
                new([2, 8, 7, 3], 16, [3, 3]).pad([1, 1]).stride([2, 2]),
                new([1, 3, 3, 4], 4, [3, 3]),
                // An image smaller than the kernel.
                new([3, 1, 2, 4], 5, [3, 3]).pad([1, 1]),
            ],
        ),
        (
            "seven_by_seven",
            vec![
                new([1, 15, 13, 3], 8, [7, 7]).pad([3, 3]).stride([2, 2]),
                new([2, 7, 8, 2], 3, [7, 7]),
                new([1, 4, 5, 3], 2, [7, 7]).pad([3, 3]),
            ],
        ),
        (
            "even_kernel",
            vec![
                new([1, 6, 7, 3], 4, [2, 2]),
                new([2, 6, 8, 4], 3, [2, 2]).stride([2, 2]),
                new([1, 7, 8, 3], 5, [4, 4]).pad([1, 1]).stride([2, 2]),
                new([1, 5, 5, 2], 3, [2, 4]).pad([1, 2]),
            ],
        ),
        (
            "not_square",
            vec![
                new([1, 9, 5, 3], 4, [5, 3]).pad([2, 0]).stride([1, 2]),
                new([1, 5, 11, 3], 4, [1, 7]).pad([0, 3]).stride([3, 1]),
                new([2, 10, 6, 2], 3, [3, 1]).stride([1, 3]).pad([1, 2]).dilation([2, 1]),
            ],
        ),
        (
            "dilated",
            vec![
                new([1, 9, 8, 4], 5, [3, 3]).pad([2, 2]).dilation([2, 2]),
                new([1, 10, 9, 3], 4, [3, 2]).pad([1, 3]).dilation([3, 4]).stride([2, 3]),
                // A stride and a distance of taps that share a factor: some of x is never read.
                new([1, 11, 11, 2], 3, [3, 3]).dilation([4, 2]).stride([2, 4]).pad([0, 1]),
            ],
        ),
        (
            "strides_beyond_kernel",
            vec![
                new([2, 8, 9, 3], 4, [1, 2]).stride([3, 4]),
                new([1, 10, 10, 2], 2, [2, 2]).stride([5, 3]).pad([1, 1]),
            ],
        ),
        (
            "grouped",
            vec![
                new([2, 5, 6, 6], 4, [3, 3]).pad([1, 1]).groups(2),
                new([1, 5, 5, 12], 9, [3, 2]).groups(3).stride([2, 1]),
                new([1, 4, 4, 32], 32, [1, 1]).groups(2),
                new([1, 6, 4, 34], 34, [3, 3]).groups(2).pad([1, 1]),
            ],
        ),
        (
            "depthwise",
            vec![
                new([2, 6, 7, 8], 8, [3, 3]).pad([1, 1]).groups(8),
                new([1, 7, 6, 5], 5, [5, 5]).pad([2, 2]).stride([2, 2]).groups(5),
                // Two and three outputs for each input.
                new([1, 6, 6, 17], 34, [3, 3]).groups(17).pad([1, 1]),
                new([1, 5, 4, 3], 9, [2, 2]).groups(3).dilation([2, 1]),
            ],
        ),
        ("tile_edges", {
            let channels = [[1, 1], [15, 1], [16, 16], [17, 31], [8, 33], [33, 7], [64, 9], [9, 65]];
            let edges = channels.map(|[c, o]| new([1, 5, 4, c], o, [3, 3]).pad([1, 1]));
            let widths = [15, 16, 17, 31, 32, 33, 65].map(|w| new([1, 2, w, 3], 4, [1, 3]).pad([0, 1]));
            edges.into_iter().chain(widths).collect()
        }),
        (
            "many_places",
            vec![
                new([2, 24, 32, 16], 16, [3, 3]).pad([1, 1]),
                new([5, 33, 31, 3], 8, [3, 3]).stride([2, 2]).pad([1, 1]),
            ],
        ),
    ]
}

/// Returns a shape with every feature, for properties that do not depend on the shape.
fn rich() -> Convolution {
    Convolution::new([2, 8, 7, 6], 4, [3, 2]).pad([1, 1]).stride([2, 1]).dilation([1, 2]).groups(2)
}

/// Operands of two types.
fn types<B: Backend>(b: &B) -> Check {
    let mut measured = vec![];
    for pass in Pass::ALL {
        for operands in [[DType::F16, DType::F32], [DType::F32, DType::F16]] {
            for shape in [rich(), Convolution::new([1, 6, 6, 16], 16, [3, 3]).pad([1, 1])] {
                let types = Types { operands, bias: None };
                shape.check(b, pass, types, 3, Numbers::Integers)?;
                merge(&mut measured, &shape.check(b, pass, types, 4, Numbers::Any)?);
            }
        }
    }
    Ok(measured)
}

/// One value for each channel of the result: of y going forward, of x going back (a transposed convolution).
fn bias<B: Backend>(b: &B) -> Check {
    let mut measured = vec![];
    for pass in [Pass::Forward, Pass::Data] {
        for shape in [
            rich(),
            Convolution::new([1, 5, 5, 17], 33, [3, 3]),
            Convolution::new([2, 3, 4, 8], 5, [1, 1]),
            Convolution::new([1, 9, 9, 3], 16, [4, 4]).stride([2, 2]).pad([1, 1]),
            Convolution::new([1, 6, 6, 8], 8, [3, 3]).groups(8),
            // Places that only the bias reaches.
            Convolution::new([1, 7, 7, 2], 3, [1, 1]).stride([3, 3]).pad([2, 2]),
        ] {
            for (operands, bias) in
                [([DType::F16; 2], DType::F16), ([DType::F32; 2], DType::F16), ([DType::F16; 2], DType::F32)]
            {
                let types = Types { operands, bias: Some(bias) };
                shape.check(b, pass, types, 5, Numbers::Integers)?;
                merge(&mut measured, &shape.check(b, pass, types, 6, Numbers::Any)?);
            }
        }
    }
    Ok(measured)
}

/// No images, no inputs, no outputs. Weights of no images have gradient 0, which must be written.
fn nothing<B: Backend>(b: &B) -> Check {
    for shape in [
        Convolution::new([0, 6, 6, 4], 8, [3, 3]).pad([1, 1]),
        Convolution::new([2, 4, 4, 0], 3, [3, 3]),
        Convolution::new([2, 4, 4, 3], 0, [2, 2]).stride([2, 2]),
    ] {
        for pass in Pass::ALL {
            let bias = if pass == Pass::Weight { None } else { Some(DType::F32) };
            shape.check(b, pass, HALVES, 7, Numbers::Integers)?;
            shape.check(b, pass, Types { bias, ..HALVES }, 7, Numbers::Integers)?;
        }
    }
    Ok(vec![])
}

/// Sums that half cannot hold on the way: 2048 and many ones; 65504 twice, and back.
fn sums_in_f32<B: Backend>(b: &B) -> Check {
    for (shape, pass) in [
        (Convolution::new([2, 4, 5, 35], 18, [3, 3]), Pass::Forward),
        (Convolution::new([2, 4, 5, 18], 35, [3, 3]), Pass::Data),
        (Convolution::new([5, 10, 9, 18], 20, [3, 2]), Pass::Weight),
        (Convolution::new([1, 18, 18, 4], 4, [17, 17]).groups(4), Pass::Forward),
    ] {
        let [a, w, _] = shape.shapes(pass).map(|shape| shape.iter().product::<usize>());
        for [first, rest] in [[2048.0, 1.0], [65504.0, 0.0]] {
            // One in 29 numbers is large. 29 is prime, so each sum contains several of them.
            let large = |i: usize| if i % 29 == 3 { first } else { rest };
            let signs = |i: usize| if first > 60_000.0 && i % 58 == 32 { -1.0 } else { 1.0 };
            let values: Vec<f32> = (0..a).map(|i| large(i) * signs(i)).collect();
            shape.check_with(b, pass, HALVES, &[values, vec![1.0; w], vec![]], Numbers::Integers)?;
        }
    }
    Ok(vec![])
}

/// NaN and ∞ in an operand reach the results that read them, 0·∞ is NaN, and no others. Zeros outside an image are
/// no operands, so the weights stay finite here.
fn not_finite<B: Backend>(b: &B) -> Check {
    for shape in
        [rich(), Convolution::new([2, 9, 9, 3], 5, [3, 3]), Convolution::new([1, 8, 8, 16], 16, [3, 3]).pad([1, 1])]
    {
        for pass in Pass::ALL {
            for values in [[f32::INFINITY, f32::NEG_INFINITY], [f32::NAN, f32::INFINITY]] {
                let mut operands = shape.operands(pass, HALVES, 8, Numbers::Integers);
                let len = operands[0].len();
                operands[0][len / 3] = values[0];
                operands[0][len - 1] = values[1];
                shape.check_with(b, pass, HALVES, &operands, Numbers::Integers)?;
            }
        }
    }
    // If no window exceeds the image, every weight is multiplied by real operands only.
    let shape = Convolution::new([2, 6, 7, 5], 9, [3, 3]);
    for pass in [Pass::Forward, Pass::Weight] {
        let mut operands = shape.operands(pass, HALVES, 8, Numbers::Integers);
        operands[1][100] = f32::INFINITY;
        operands[1][7] = f32::NAN;
        shape.check_with(b, pass, HALVES, &operands, Numbers::Integers)?;
    }
    Ok(vec![])
}

/// The three passes are one trilinear form: ⟨conv(x, w), dy⟩ = ⟨x, data(dy, w)⟩ = ⟨w, weight(x, dy)⟩.
fn adjoint<B: Backend>(b: &B) -> Check {
    for (name, shapes) in shapes() {
        for shape in shapes {
            let rig = Rig::new(b)?;
            let [x, w, _] = shape.operands(Pass::Forward, HALVES, 9, Numbers::Integers);
            let [dy, ..] = shape.operands(Pass::Data, HALVES, 10, Numbers::Integers);
            let mut forms = vec![];
            for (pass, a, second, third) in
                [(Pass::Forward, &x, &w, &dy), (Pass::Data, &dy, &w, &x), (Pass::Weight, &x, &dy, &w)]
            {
                let loaded = shape.load(&rig, pass, HALVES, &[a.clone(), second.clone(), vec![]])?;
                let result = rig.plain(shape.len(pass), |y| loaded.run(b, y))?;
                // Integers far below 2^53.
                forms.push(result.iter().zip(third).map(|(&u, &v)| f64::from(u) * f64::from(v)).sum::<f64>());
            }
            if forms.iter().any(|&form| form != forms[0]) {
                return Err(Fail::new(format!("{name}: {shape:?}: ⟨y, dy⟩, ⟨x, dx⟩, ⟨w, dw⟩ are {forms:?}")));
            }
        }
    }
    Ok(vec![])
}

/// The weight gradient of three micro-batches: unscaled at birth, f32, added, counted.
fn weight_gradient<B: Backend>(b: &B) -> Check {
    for (shape, alpha) in [(rich(), 24), (rich(), -30), (Convolution::new([3, 12, 12, 5], 17, [3, 3]), 100)] {
        let mut rig = Rig::new(b)?;
        let len = shape.len(Pass::Weight);
        let mut dw = rig.output(DType::F32, len)?;
        let (mut sums, mut seen) = (vec![0f64; len], vec![]);
        rig.exponents[2] = alpha;
        for batch in 0..3 {
            // The first micro-batch empties the rows, later ones add to them.
            rig.upload_clearing(if batch == 0 { 0..SLOTS } else { 0..0 })?;
            let operands = shape.operands(Pass::Weight, HALVES, 11 + batch, Numbers::Integers);
            let loaded = shape.load(&rig, Pass::Weight, HALVES, &operands)?;
            loaded.run(b, Store::param(Slot(2), Slot(3), batch != 0, &rig.table, &mut dw.buffer))?;
            for (sum, want) in sums.iter_mut().zip(shape.want(Pass::Weight, &operands)) {
                *sum += want.value * 2f64.powi(-alpha);
            }
            seen.extend(sums.iter().map(|&sum| sum as f32));
        }
        let want: Vec<f32> = sums.iter().map(|&sum| sum as f32).collect();
        same_numbers("three micro-batches", &rig.take(&dw)?, &want)?;
        same_row("three micro-batches", &rig, Slot(3), &seen, Detail::Counts)?;
    }
    Ok(vec![])
}

/// Tests the epilogue of each pass.
fn epilogue<B: Backend>(b: &B) -> Check {
    for shape in [
        rich(),
        Convolution::new([2, 9, 7, 5], 17, [3, 3]).pad([1, 1]),
        Convolution::new([1, 8, 8, 8], 8, [3, 3]).groups(8),
        Convolution::new([4, 16, 15, 4], 3, [1, 1]),
    ] {
        for pass in Pass::ALL {
            let types = Types { bias: (pass != Pass::Weight).then_some(DType::F32), ..HALVES };
            let mut rig = Rig::new(b)?;
            let loaded = shape.load(&rig, pass, types, &shape.operands(pass, types, 14, Numbers::Any))?;
            epilogue::check(&mut rig, shape.len(pass), |b, y| loaded.run(b, y))?;
        }
    }
    Ok(vec![])
}

/// Repeated calls return the same bits, in the result and in the row.
fn deterministic<B: Backend>(b: &B) -> Check {
    for shape in [rich(), Convolution::new([3, 20, 17, 8], 12, [3, 3]).pad([1, 1])] {
        for pass in Pass::ALL {
            let mut rig = Rig::new(b)?;
            let loaded = shape.load(&rig, pass, HALVES, &shape.operands(pass, HALVES, 15, Numbers::Any))?;
            same_each_time(&mut rig, shape.len(pass), |b, y| loaded.run(b, y)).map_err(of(format!("{pass:?}")))?;
        }
    }
    Ok(vec![])
}

/// Number of pixels for each of which a gradient of weights may store a partial sum of all results. The sums then cause
/// little memory traffic. A copy of the image for each tap would take four times as much with these channels.
const PIXELS_OF_A_SUM: usize = 256;

/// A convolution may allocate a tenth of its operands' memory, and a gradient of weights partial sums, but no copy of
/// the image for each tap.
fn scratch_memory<B: Backend>(b: &B) -> Check {
    if b.scratch_peak().is_none() {
        return Ok(vec![]);
    }
    // Large enough that fixed memory per thread or workgroup is negligible, while an im2col buffer would be found.
    let channels = if is_brief() { 8 } else { 32 };
    let shape = Convolution::new([2, 192, 96, channels], channels, [3, 3]).pad([1, 1]);
    for pass in Pass::ALL {
        let rig = Rig::new(b)?;
        let result = if pass == Pass::Weight { DType::F32 } else { DType::F16 };
        let loaded = shape.load(&rig, pass, HALVES, &shape.operands(pass, HALVES, 16, Numbers::Any))?;
        let mut y = rig.output(result, shape.len(pass))?;
        rig.take(&y)?;
        b.scratch_peak();
        loaded.run(b, Store::site(Slot::ONE, Slot(3), &rig.table, &mut y.buffer))?;
        rig.take(&y)?;
        let types = [DType::F16, DType::F16, result].map(|dtype| dtype.size());
        let bytes =
            shape.shapes(pass).into_iter().zip(types).map(|(shape, size)| shape.iter().product::<usize>() * size);
        let operands = bytes.sum::<usize>() as u64;
        let [images, height, width, _] = shape.x;
        let parts = if pass == Pass::Weight { images * height * width / PIXELS_OF_A_SUM } else { 0 };
        let allowed = operands / 10 + 4 * (parts * shape.len(pass)) as u64;
        if let Some(peak) = b.scratch_peak().filter(|&peak| peak > allowed) {
            return Err(Fail::new(format!("{pass:?} used {peak} bytes beside operands of {operands}, not {allowed}")));
        }
    }
    Ok(vec![])
}

/// Tests random shapes with all features combined.
fn any_shape<B: Backend>(b: &B) -> Check {
    let image = (0..4usize, [1..9usize, 1..9], [1..5usize, 1..5], 1..4usize);
    let window = ([1..5usize, 1..5], [1..4usize, 1..4], [0..4usize, 0..4], [1..4usize, 1..4]);
    let dtype = || prop::sample::select(HALF_AND_F32.to_vec());
    let kinds = (prop::sample::select(Pass::ALL.to_vec()), [dtype(), dtype()], prop::option::of(dtype()));
    let shapes = (image, window, kinds, any::<u64>()).prop_filter_map(
        "a kernel larger than the padded image",
        |((images, [h, w], [c, o], groups), (kernel, stride, pad, dilation), (pass, operands, bias), seed)| {
            let x = [images, h, w, c * groups];
            let shape = Convolution { x, out: o * groups, kernel, stride, pad, dilation, groups };
            let fits = |axis: usize| (kernel[axis] - 1) * dilation[axis] < x[1 + axis] + 2 * pad[axis];
            let bias = bias.filter(|_| pass != Pass::Weight);
            (fits(0) && fits(1)).then_some((shape, pass, Types { operands, bias }, seed))
        },
    );
    property(&shapes, |(shape, pass, types, seed)| {
        shape.check(b, pass, types, seed, Numbers::Integers)?;
        shape.check(b, pass, types, seed, Numbers::Any)
    })
}
