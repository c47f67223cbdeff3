//! Matrix products.

use super::{
    Case,
    product::Product,
    shared::{HALF_AND_F32, Numbers, same_each_time},
};
use crate::{
    case::Check,
    compare::same_numbers,
    epilogue::{self, same_row},
    property::{merge, property},
    rig::{Rig, SLOTS},
};
use gradscale_core::{
    backend::{Backend, DType, Slot, Store},
    stats::Detail,
};
use proptest::prelude::*;

/// Sizes around those by which a device may divide a matrix.
const SIZES: [usize; 18] = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129];
const TRANSPOSED: [[bool; 2]; 4] = [[false, false], [true, false], [false, true], [true, true]];

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("gemm::tile_edges", tile_edges::<B>));
    cases.push(Case::new("gemm::cubes", cubes::<B>));
    cases.push(Case::new("gemm::long_sums", long_sums::<B>));
    cases.push(Case::new("gemm::types_and_transpositions", types::<B>));
    cases.push(Case::new("gemm::one_product_rounds_once", one_product::<B>));
    cases.push(Case::new("gemm::sums_in_f32", sums_in_f32::<B>));
    cases.push(Case::new("gemm::cancellation", cancellation::<B>));
    cases.push(Case::new("gemm::zero_dimensions", zero_dimensions::<B>));
    cases.push(Case::new("gemm::leading_dimensions", leading::<B>));
    cases.push(Case::new("gemm::batches", batches::<B>));
    cases.push(Case::new("gemm::bias", bias::<B>));
    cases.push(Case::new("gemm::add", add::<B>));
    cases.push(Case::new("gemm::not_finite", not_finite::<B>));
    cases.push(Case::new("gemm::far_exponents", far_exponents::<B>));
    cases.push(Case::new("gemm::parameter_gradient", parameter_gradient::<B>));
    cases.push(Case::new("gemm::epilogue", epilogue::<B>));
    cases.push(Case::new("gemm::same_bits_each_time", deterministic::<B>));
    cases.push(Case::new("gemm::any_shape", any_shape::<B>));
}

/// Tests each size alone, and as two of the three dimensions, so that remainders occur in one direction and in two.
fn tile_edges<B: Backend>(b: &B) -> Check {
    for (round, s) in SIZES.into_iter().enumerate() {
        for (i, [m, n, k]) in [[s, 5, 6], [5, s, 6], [5, 6, s], [s, s, 5], [s, 5, s], [5, s, s]].into_iter().enumerate()
        {
            for (j, [ta, tb]) in TRANSPOSED.into_iter().enumerate() {
                // Every other product is one of f32.
                let dtype = HALF_AND_F32[(round + i + j) % 2];
                let product = Product { types: [dtype; 2], ..Product::new(m, n, k).transposed(ta, tb) };
                product.check(b, 1, Numbers::Integers)?;
            }
        }
    }
    Ok(vec![])
}

/// Remainders in all three directions, and none.
fn cubes<B: Backend>(b: &B) -> Check {
    let mut measured = vec![];
    for (i, s) in SIZES.into_iter().enumerate() {
        let [ta, tb] = TRANSPOSED[i % 4];
        let dtype = HALF_AND_F32[i / 4 % 2];
        let product = Product { types: [dtype; 2], ..Product::new(s, s, s).transposed(ta, tb) };
        product.check(b, 2, Numbers::Integers)?;
        if s < 100 {
            merge(&mut measured, &product.check(b, 3, Numbers::Any)?);
        }
    }
    for [m, n, k] in [[127, 65, 33], [33, 129, 64], [64, 17, 257], [100, 200, 50], [1, 300, 77], [300, 1, 77]] {
        Product::new(m, n, k).check(b, 4, Numbers::Integers)?;
    }
    Ok(measured)
}

/// Long rows and few results, which devices may cut into several sums.
fn long_sums<B: Backend>(b: &B) -> Check {
    let mut measured = vec![];
    for k in [255, 256, 257, 1023, 1025, 4096, 20_001] {
        for [ta, tb] in TRANSPOSED {
            let product = Product { bias: Some(DType::F32), ..Product::new(2, 3, k).transposed(ta, tb) };
            product.check(b, 5, Numbers::Integers)?;
            for numbers in [Numbers::Any, Numbers::Positive] {
                merge(&mut measured, &product.check(b, 6, numbers)?);
                let f32s = Product { types: [DType::F32; 2], ..product.clone() };
                merge(&mut measured, &f32s.check(b, 7, numbers)?);
            }
        }
    }
    Ok(measured)
}

/// Operands of one type and of two, transposed in all four ways. Here too f32 operands that lose digits are seen.
fn types<B: Backend>(b: &B) -> Check {
    let mut measured = vec![];
    for [ta, tb] in TRANSPOSED {
        for (m, n, k) in [(20, 37, 53), (64, 48, 32), (3, 70, 129)] {
            for types in [[0, 0], [0, 1], [1, 0], [1, 1]].map(|types| types.map(|i: usize| HALF_AND_F32[i])) {
                let product = Product { types, ..Product::new(m, n, k).transposed(ta, tb) };
                product.check(b, 8, Numbers::Integers)?;
                for numbers in [Numbers::Any, Numbers::Positive] {
                    merge(&mut measured, &product.check(b, 9, numbers)?);
                }
            }
        }
    }
    Ok(measured)
}

/// With k = 1 every order of summation returns the rounded product: exact for halves, rounded once for f32.
fn one_product<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for dtype in HALF_AND_F32 {
        let product = Product { types: [dtype; 2], ..Product::new(37, 50, 1) };
        let operands = product.operands(10, Numbers::Any);
        let loaded = product.load(&rig, &operands)?;
        let want: Vec<f32> = product.want(&operands).iter().map(|want| want.value as f32).collect();
        same_numbers("k = 1", &rig.plain(want.len(), |y| loaded.run(b, y))?, &want)?;
    }
    Ok(vec![])
}

/// Sums that half cannot hold on the way, in matrices of several sizes: a device may have another way for each.
fn sums_in_f32<B: Backend>(b: &B) -> Check {
    let mut steps = vec![1.0; 301];
    steps[0] = 2048.0;
    let mut late = steps.clone();
    late.rotate_left(40);
    let overflow = vec![65504.0, 65504.0, -65504.0];
    for row in [steps, late, overflow, vec![-65504.0, 32752.0, 32752.0, 1.0], vec![1.0; 4096]] {
        for [m, n] in [[1, 1], [3, 5], [17, 33], [48, 64]] {
            for [ta, tb] in TRANSPOSED.into_iter().take(if m * n * row.len() < 250_000 { 4 } else { 1 }) {
                let k = row.len();
                let product = Product::new(m, n, k).transposed(ta, tb);
                // The row in a, then in b.
                let repeat = |along: bool, len: usize| -> Vec<f32> {
                    (0..k * len).map(|at| row[if along { at % k } else { at / len }]).collect()
                };
                let ones = |len: usize| vec![1.0; len];
                product.check_with(b, &[repeat(!ta, m), ones(k * n), vec![]], Numbers::Integers)?;
                if k < 4096 {
                    product.check_with(b, &[ones(k * m), repeat(tb, n), vec![]], Numbers::Integers)?;
                }
            }
        }
    }
    Ok(vec![])
}

/// Terms are far larger than their sum.
fn cancellation<B: Backend>(b: &B) -> Check {
    let mut measured = vec![];
    for dtype in HALF_AND_F32 {
        let product = Product { types: [dtype; 2], ..Product::new(19, 23, 200) };
        let mut operands = product.operands(11, Numbers::Any);
        let [a, b_values, _] = &mut operands;
        // Columns 2l and 2l + 1 of a cancel, but for 2^-8 of them.
        for i in 0..19 * 100 {
            // Two-bit values, so that a half can hold the other number too.
            a[2 * i] = a[2 * i].trunc().clamp(-3.0, 3.0);
            a[2 * i + 1] = -a[2 * i] * (1.0 - 2f32.powi(-8));
        }
        for l in 0..100 {
            for j in 0..23 {
                b_values[(2 * l + 1) * 23 + j] = b_values[2 * l * 23 + j];
            }
        }
        merge(&mut measured, &product.check_with(b, &operands, Numbers::Any)?);
    }
    // Integers close to f32's exact range: no partial sum is rounded, so the small rest is exact.
    let product = Product { types: [DType::F32; 2], ..Product::new(9, 9, 4) };
    let rows = [4_000_000.0, -3_999_999.0, 4_000_001.0, -4_000_003.0];
    let a: Vec<f32> = (0..36).map(|i| rows[i % 4]).collect();
    product.check_with(b, &[a, vec![1.0; 36], vec![]], Numbers::Integers)?;
    Ok(measured)
}

/// Products without elements, and sums without terms.
fn zero_dimensions<B: Backend>(b: &B) -> Check {
    for mnk in [[0, 5, 3], [5, 0, 3], [5, 3, 0], [0, 0, 3], [0, 3, 0], [3, 0, 0], [0, 0, 0], [40, 33, 0]] {
        for [ta, tb] in TRANSPOSED {
            for (bias, add, batch) in
                [(None, false, 1), (Some(DType::F16), false, 2), (None, true, 3), (Some(DType::F32), true, 0)]
            {
                let product = Product { mnk, transposed: [ta, tb], bias, add, batch, ..Product::new(0, 0, 0) };
                product.check(b, 12, Numbers::Integers)?;
            }
        }
    }
    Ok(vec![])
}

/// Rows with gaps between them. The gaps of a and b contain NaN, and those of y must not change.
fn leading<B: Backend>(b: &B) -> Check {
    let mut measured = vec![];
    for mnk in [[5, 6, 7], [16, 16, 16], [33, 20, 65]] {
        for [ta, tb] in TRANSPOSED {
            for gaps in [[1, 0, 0], [0, 3, 0], [0, 0, 5], [2, 1, 3], [16, 16, 16], [9, 40, 1]] {
                let product = Product { mnk, gaps, transposed: [ta, tb], ..Product::new(0, 0, 0) };
                product.check(b, 13, Numbers::Integers)?;
                let product = Product { bias: Some(DType::F32), add: true, types: [DType::F32; 2], ..product };
                merge(&mut measured, &product.check(b, 14, Numbers::Any)?);
            }
        }
    }
    Ok(measured)
}

/// Several products: dense, apart, with one a or one b for all.
fn batches<B: Backend>(b: &B) -> Check {
    let mut measured = vec![];
    for mnk in [[1, 1, 1], [7, 9, 5], [16, 16, 16], [17, 33, 20]] {
        for apart in [
            [Some(0); 3],
            [Some(3), Some(1), Some(2)],
            [None, Some(0), Some(0)],
            [Some(2), None, Some(0)],
            [None, None, Some(7)],
        ] {
            for (i, [ta, tb]) in TRANSPOSED.into_iter().enumerate() {
                let product = Product { mnk, apart, transposed: [ta, tb], batch: 2 + 3 * i, ..Product::new(0, 0, 0) };
                let product = Product { bias: Some(DType::F16), gaps: [i, 0, i / 2], ..product };
                product.check(b, 15, Numbers::Integers)?;
                merge(&mut measured, &product.check(b, 16, Numbers::Any)?);
            }
        }
    }
    Product { batch: 130, ..Product::new(2, 3, 4) }.check(b, 17, Numbers::Integers)?;
    Ok(measured)
}

/// One value for each column, in half and f32, in f32 before anything is rounded.
fn bias<B: Backend>(b: &B) -> Check {
    let mut measured = vec![];
    for dtype in HALF_AND_F32 {
        for [m, n, k] in [[1, 1, 1], [4, 17, 3], [33, 65, 16], [2, 200, 0]] {
            for types in [[DType::F16; 2], [DType::F32; 2]] {
                let product = Product { bias: Some(dtype), types, ..Product::new(m, n, k) };
                product.check(b, 18, Numbers::Integers)?;
                merge(&mut measured, &product.check(b, 19, Numbers::Any)?);
            }
        }
    }
    // 2048 + 0.75 + 0.75: rounded to half before the bias is added, it would stay 2048.
    let product = Product { bias: Some(DType::F16), ..Product::new(3, 20, 2) };
    product.check_with(b, &[[2048.0, 0.75].repeat(3), vec![1.0; 40], vec![0.75; 20]], Numbers::Integers)?;
    Ok(measured)
}

/// Accumulates to existing values. The bias is added once, even if a device divides one sum into several.
fn add<B: Backend>(b: &B) -> Check {
    for [m, n, k] in [[1, 1, 1], [16, 16, 16], [31, 17, 9], [3, 5, 3000]] {
        for batch in [1, 3] {
            let product = Product { add: true, batch, bias: Some(DType::F32), ..Product::new(m, n, k) };
            // Quarters of integers, far below 2^24: every order is exact.
            product.check(b, 20, Numbers::Integers)?;
        }
    }
    Ok(vec![])
}

/// NaN and ∞ reach the results that they belong to, 0·∞ is NaN, and no others.
fn not_finite<B: Backend>(b: &B) -> Check {
    for [m, n, k] in [[6, 7, 8], [33, 40, 17]] {
        for [ta, tb] in TRANSPOSED {
            for (value, other) in [(f32::INFINITY, f32::NEG_INFINITY), (f32::NAN, f32::INFINITY)] {
                let product = Product { gaps: [1, 2, 3], bias: Some(DType::F32), ..Product::new(m, n, k) };
                let product = product.transposed(ta, tb);
                let [mut a, mut b_values, mut bias] = product.operands(21, Numbers::Integers);
                // The last place of a and one of b, both read; the bias of one column.
                if let Some(last) = a.last_mut() {
                    *last = value;
                }
                let middle = (0..b_values.len() / 2).rev().find(|&at| !b_values[at].is_nan()).unwrap_or(0);
                b_values[middle] = other;
                bias[3] = f32::INFINITY;
                product.check_with(b, &[a, b_values, bias], Numbers::Integers)?;
            }
        }
    }
    Ok(vec![])
}

/// Exponents so large that no f32 can hold 2^α. Only their difference affects the results.
fn far_exponents<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let product = Product::new(20, 18, 10);
    let operands = product.operands(22, Numbers::Integers);
    let loaded = product.load(&rig, &operands)?;
    let exact: Vec<f64> = product.want(&operands).iter().map(|want| want.value).collect();
    let steps = [
        (1000, 1003),
        (i32::MAX, i32::MAX - 7),
        (i32::MIN, i32::MIN + 9),
        (0, 120),
        (0, -110),
        (-900, -1040),
        (i32::MIN, i32::MAX),
        (i32::MAX, i32::MIN),
    ];
    for (from, to) in steps {
        // Beyond 2^±400 every number has become ∞ or 0.
        let step = (i64::from(to) - i64::from(from)).clamp(-400, 400) as i32;
        let scaled: Vec<f32> = exact.iter().map(|v| (v * 2f64.powi(step)) as f32).collect();
        if !b.caps().f32_subnormals && scaled.iter().any(|v| v.is_subnormal()) {
            continue;
        }
        rig.set(&[from, to])?;
        let mut y = rig.output(DType::F32, scaled.len())?;
        loaded.run(b, Store::site(Slot(2), Slot(3), &rig.table, &mut y.buffer))?;
        let what = format!("from 2^{from} to 2^{to}");
        same_numbers(&what, &rig.take(&y)?, &scaled)?;
        same_row(&what, &rig, Slot(3), &scaled, Detail::Moments)?;
    }
    Ok(vec![])
}

/// The weight gradient of a linear layer over three micro-batches: unscaled at birth, added in f32, counted.
fn parameter_gradient<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let product = Product::new(17, 24, 40).transposed(true, false);
    let mut y = rig.output(DType::F32, 17 * 24)?;
    let (mut sums, mut seen) = (vec![0f64; 17 * 24], vec![]);
    let alpha = 40;
    rig.exponents[2] = alpha;
    for batch in 0..3 {
        // The first micro-batch empties the rows, later ones add to them.
        rig.upload_clearing(if batch == 0 { 0..SLOTS } else { 0..0 })?;
        let operands = product.operands(23 + batch, Numbers::Integers);
        let loaded = product.load(&rig, &operands)?;
        loaded.run(b, Store::param(Slot(2), Slot(3), batch != 0, &rig.table, &mut y.buffer))?;
        for (sum, want) in sums.iter_mut().zip(product.want(&operands)) {
            *sum += want.value * 2f64.powi(-alpha);
        }
        seen.extend(sums.iter().map(|&sum| sum as f32));
    }
    let want: Vec<f32> = sums.iter().map(|&sum| sum as f32).collect();
    same_numbers("three micro-batches", &rig.take(&y)?, &want)?;
    same_row("three micro-batches", &rig, Slot(3), &seen, Detail::Counts)?;
    Ok(vec![])
}

/// Tests the epilogue of a small product, of a long one, and of one with many results.
fn epilogue<B: Backend>(b: &B) -> Check {
    let products = [
        Product { bias: Some(DType::F16), ..Product::new(33, 17, 40).transposed(true, true) },
        Product { bias: Some(DType::F32), ..Product::new(16, 48, 64).transposed(false, true) },
        Product { bias: Some(DType::F32), batch: 3, ..Product::new(7, 11, 13).transposed(true, false) },
        Product { bias: Some(DType::F32), ..Product::new(3, 5, 10_000) },
        Product { types: [DType::F32; 2], ..Product::new(257, 130, 3) },
        Product::new(1, 1, 1),
        Product::new(0, 4, 4),
    ];
    for product in products {
        let mut rig = Rig::new(b)?;
        let operands = product.operands(24, Numbers::Any);
        let loaded = product.load(&rig, &operands)?;
        let [m, n, _] = product.mnk;
        epilogue::check(&mut rig, product.batch * m * n, |b, y| loaded.run(b, y))?;
    }
    Ok(vec![])
}

/// Repeated calls return the same bits, even if a device divides one sum into several.
fn deterministic<B: Backend>(b: &B) -> Check {
    for product in [Product::new(65, 70, 150), Product::new(4, 6, 20_000).transposed(true, false)] {
        let mut rig = Rig::new(b)?;
        let loaded = product.load(&rig, &product.operands(25, Numbers::Any))?;
        same_each_time(&mut rig, product.mnk[0] * product.mnk[1], |b, y| loaded.run(b, y))?;
    }
    Ok(vec![])
}

/// Tests random shapes with all features combined.
fn any_shape<B: Backend>(b: &B) -> Check {
    let dtype = || prop::sample::select(HALF_AND_F32.to_vec());
    let flag = any::<bool>;
    let apart = || prop::option::weighted(0.8, 0..5usize);
    let layout = ([0..4usize, 0..4, 0..4], 0..4usize, [apart(), apart()], 0..5usize);
    let kinds = ([flag(), flag(), flag()], [dtype(), dtype()], prop::option::of(dtype()));
    let products = ([0..40usize, 0..40, 0..40], layout, kinds, any::<u64>()).prop_map(
        |(mnk, (gaps, batch, [a, b], y), ([ta, tb, add], types, bias), seed)| {
            let apart = [a, b, Some(y)];
            (Product { mnk, transposed: [ta, tb], gaps, batch, apart, types, bias, add }, seed)
        },
    );
    property(&products, |(product, seed)| {
        product.check(b, seed, Numbers::Integers)?;
        product.check(b, seed, Numbers::Any)
    })
}
