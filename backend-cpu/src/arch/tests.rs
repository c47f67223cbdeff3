//! Every kernel of every instruction set that this machine has, against the definition.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use super::{
    F16Rows, FusedStoreParams, Isa, KSegment, LANES, MicroKernelArgs, StoreInput, Thresholds, simd16::Element,
};
use gradscale_core::{
    cast::{Round, f16_from_f32},
    format::Format,
    stats::{Convention, Detail, Stats},
};
use half::f16;

/// Numbers in [0, 2^24), from a fixed sequence.
fn random(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    }
}

/// f32 of all exponents, with few zeros and no NaN.
fn floats(len: usize, seed: u64) -> Vec<f32> {
    let mut next = random(seed);
    let mut float = || match next() % 64 {
        0 => 0.0,
        1 => -0.0,
        _ => f32::from_bits((next() << 8 | next() & 0xFF) & 0xBFFF_FFFF),
    };
    (0..len).map(|_| float()).collect()
}

/// NaN of every payload too, at positions before and after the last whole vector.
#[test]
fn casts_are_those_of_core_bit_for_bit() {
    let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    // Every upper half with the lower ones around ties, so that all roundings occur.
    let lows = [0, 1, 0x0FFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x2FFF, 0x3000, 0x3001, 0xFFFF];
    let floats: Vec<f32> = (0..=0xFFFFu32).flat_map(|high| lows.map(|low| f32::from_bits(high << 16 | low))).collect();
    let down: Vec<u16> = floats.iter().map(|&x| f16_from_f32(x, Round::NearestEven).to_bits()).collect();
    for isa in Isa::available() {
        for len in [1, 3, 7, 13, 61] {
            for (x, want) in halves.chunks(len).zip((0..=u16::MAX).collect::<Vec<_>>().chunks(len)) {
                let mut y = vec![0f32; x.len()];
                isa.f16_to_f32(x, &mut y);
                for (y, &bits) in y.iter().zip(want) {
                    assert_eq!(y.to_bits(), Format::FP16.decode(bits.into()).to_bits(), "{isa}: half {bits:#06x}");
                }
            }
        }
        for (x, want) in floats.chunks(1003).zip(down.chunks(1003)) {
            let mut y = vec![f16::ZERO; x.len()];
            isa.f32_to_f16(x, &mut y);
            for ((x, y), &want) in x.iter().zip(y).zip(want) {
                assert_eq!(y.to_bits(), want, "{isa}: f32 {:#010x}", x.to_bits());
            }
        }
    }
}

/// Tests tiles of every number of rows and columns, with exact sums; nothing outside them is read or written.
#[test]
fn tiles_of_every_size() {
    const GAP: usize = 3;
    for isa in Isa::available() {
        for columns in 1..=isa.tile_columns() {
            // One tile, and several.
            for rows in 1..=2 * isa.tile_rows(columns) + 1 {
                let (depth, b_k_stride, acc_row) = (5, columns + GAP, columns + GAP);
                let mut next = random((columns * 64 + rows) as u64);
                let mut small = || (next() % 17) as f32 - 8.0;
                let a: Vec<f32> = (0..2 * rows * depth).map(|_| small()).collect();
                // Two runs of steps; the gaps between the rows of b contain NaN.
                let mut b: Vec<f32> = (0..2 * depth * b_k_stride + LANES).map(|_| small()).collect();
                b.chunks_mut(b_k_stride).flat_map(|row| row.get_mut(columns..)).for_each(|gap| gap.fill(f32::NAN));
                let mut acc: Vec<f32> = (0..rows * acc_row).map(|_| small()).collect();
                acc.truncate((rows - 1) * acc_row + columns);
                let k_segments = [
                    KSegment { a: 0, b: 0, depth },
                    KSegment { a: rows * depth, b: depth, depth: depth - 1 },
                    KSegment { a: 0, b: 0, depth: 0 },
                ];
                let overwrite = rows % 2 == 0;
                let mut want = acc.clone();
                if overwrite {
                    want.chunks_mut(acc_row).for_each(|row| row[..columns].fill(0.0));
                }
                for run in k_segments {
                    for k in 0..run.depth {
                        for r in 0..rows {
                            for c in 0..columns {
                                want[r * acc_row + c] += a[run.a + r * depth + k] * b[(run.b + k) * b_k_stride + c];
                            }
                        }
                    }
                }
                // The last row of b as short as possible, then with padding after it, then with data to prefetch.
                let (short, halves) = ((2 * depth - 1) * b_k_stride + columns, vec![f16::ONE; rows * depth]);
                for (b, prefetch) in [(&b[..short], &[][..]), (&b, &[]), (&b, &halves)] {
                    let tile = MicroKernelArgs {
                        a: &a,
                        a_row_stride: depth,
                        a_k_stride: 1,
                        b,
                        b_k_stride,
                        k_segments: &k_segments,
                        rows,
                        columns,
                        overwrite,
                        prefetch,
                    };
                    let mut acc = acc.clone();
                    isa.accumulate_tile(&tile, &mut acc, acc_row);
                    assert_eq!(
                        acc,
                        want,
                        "{isa}: {rows} × {columns}, {} behind b, {} ahead",
                        b.len() - short,
                        prefetch.len()
                    );
                }
            }
        }
    }
}

/// Tests short rows of halves with exact sums; nothing outside them is read or written.
#[test]
fn rows_of_halves() {
    for isa in Isa::available() {
        for columns in (1..=isa.tile_columns()).filter(|&columns| isa.has_f16_row_kernels(columns)) {
            let height = isa.tile_rows(columns);
            for (rows, depth) in [(1, 1), (height, 5), (2 * height + 1, 27), (height + 3, F16Rows::MAX_K)] {
                let mut next = random((columns * 64 + rows) as u64);
                let mut small = || (next() % 17) as f32 - 8.0;
                let a: Vec<f16> = (0..rows * depth).map(|_| f16::from_f32(small())).collect();
                // NaN after the columns of b.
                let b_k_stride = columns.next_multiple_of(LANES);
                let mut b: Vec<f32> = (0..depth * b_k_stride).map(|_| small()).collect();
                b.chunks_mut(b_k_stride).for_each(|row| row[columns..].fill(f32::NAN));
                let run = [KSegment { a: 0, b: 0, depth }];
                let halves = F16Rows { a: &a, b: &b, b_k_stride, run, columns };
                let (mut acc, mut converted) = (vec![f32::NAN; rows * columns], vec![f32::NAN; height * depth]);
                assert!(isa.multiply_f16_rows(&halves, &mut acc, &mut converted), "{isa}");
                for (r, row) in acc.chunks(columns).enumerate() {
                    for (c, &sum) in row.iter().enumerate() {
                        let want: f32 = (0..depth).map(|k| a[r * depth + k].to_f32() * b[k * b_k_stride + c]).sum();
                        assert_eq!(sum, want, "{isa}: {rows} × {columns} of {depth}, at {r}, {c}");
                    }
                }
            }
        }
    }
}

/// A tile that would leave its slices is refused.
#[cfg(panic = "unwind")]
#[test]
fn tiles_stay_inside() {
    for isa in Isa::available() {
        let columns = isa.tile_columns();
        let (a, b) = (vec![1.0; 8], vec![1.0; 4 * columns]);
        let tile = |run: KSegment| {
            let (k_segments, overwrite) = (&[run], false);
            let (b_k_stride, prefetch) = (columns, &[]);
            let tile = MicroKernelArgs {
                a: &a,
                a_row_stride: 4,
                a_k_stride: 1,
                b: &b,
                b_k_stride,
                k_segments,
                rows: 2,
                columns,
                overwrite,
                prefetch,
            };
            let mut acc = vec![0.0; 2 * columns];
            std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| isa.accumulate_tile(&tile, &mut acc, columns)))
        };
        assert!(tile(KSegment { a: 0, b: 0, depth: 4 }).is_ok());
        for (a, b, depth) in [(1, 0, 4), (0, 1, 4), (0, 0, 5), (usize::MAX, 0, 2), (0, usize::MAX, 2)] {
            assert!(tile(KSegment { a, b, depth }).is_err(), "{isa}: {a}, {b}, {depth}");
        }
        if isa.has_f16_row_kernels(columns) {
            let rows = |[start, halves, depth, converted]: [usize; 4]| {
                let (halves, run) = (vec![f16::ONE; halves], [KSegment { a: start, b: 0, depth }]);
                let rows = F16Rows { a: &halves, b: &b, b_k_stride: columns, run, columns };
                let (mut acc, mut converted) = (vec![0.0; 2 * columns], vec![0.0; converted]);
                std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
                    isa.multiply_f16_rows(&rows, &mut acc, &mut converted)
                }))
            };
            let converted = 5 * isa.tile_rows(columns);
            assert!(rows([0, 8, 4, converted]).is_ok());
            for sizes in [[0, 7, 4, converted], [0, 10, 5, converted], [0, 8, 4, 7], [1, 8, 4, converted]] {
                assert!(rows(sizes).is_err(), "{isa}: {sizes:?}");
            }
        }
    }
}

/// Only fused multiply-adds may differ, and only tiles have them.
#[test]
fn loops_give_the_same_bits() {
    let x = floats(4001, 1);
    let converted: Vec<f32> = x.iter().map(|x| x % 16.0).collect();
    let loop_bits = |isa: Isa| {
        let mut all: Vec<Vec<f32>> = Vec::new();
        let functions: [fn(Isa, &mut [f32]); 10] = [
            Isa::exp,
            Isa::sigmoid,
            Isa::silu,
            Isa::silu_slope,
            Isa::tanh,
            Isa::erf,
            Isa::erf_slope,
            Isa::gelu,
            Isa::gelu_slope,
            Isa::ln,
        ];
        for function in functions {
            for x in [&x, &converted] {
                let mut out = x.clone();
                function(isa, &mut out);
                all.push(out);
            }
        }
        let mut out = converted.iter().map(|x| x.abs() + 0.01).collect::<Vec<_>>();
        isa.pow(&mut out, -0.75, |x| x.powf(-0.75));
        all.push(out);
        let mut out = converted.clone();
        isa.dropout(&mut out, 0.75, 3, 1 << 40 | 5, u32::MAX - 4002);
        all.push(out);
        let mut sums = [0f64; 4];
        isa.add_moments(&converted, &mut sums);
        let sums = sums.iter().flat_map(|sum| [(sum.to_bits() >> 32) as u32, sum.to_bits() as u32]);
        let bits = |value: &f32| if value.is_nan() { u32::MAX } else { value.to_bits() };
        all.iter().flatten().map(bits).chain(sums).collect::<Vec<_>>()
    };
    let want = loop_bits(Isa::Portable);
    for isa in Isa::available() {
        let different = loop_bits(isa).iter().zip(&want).filter(|(got, want)| got != want).count();
        assert_eq!(different, 0, "{isa}");
    }
}

/// Normalisations of halves, and of the same numbers as f32, with rests in every place.
#[test]
fn norms_give_the_same_bits() {
    /// All results of one instruction set, of operands of one type.
    fn norm_bits<T: Element>(isa: Isa, x: [&[T]; 2]) -> Vec<u32> {
        const LEN: usize = 259;
        let numbers: Vec<f32> = (0..4 * LEN).map(|i| 0.25 + (i * 37 % 101) as f32 / 64.0).collect();
        let pattern = |which: usize| &numbers[which * LEN..][..LEN];
        let mut sums = vec![0.5f32; 6 * LEN];
        let (first, rest) = sums.split_at_mut(LEN);
        isa.add_by_channel(x[0], first);
        let (second, rest) = rest.split_at_mut(LEN);
        isa.add_squared_distances(x[0], pattern(0), second);
        let (third, rest) = rest.split_at_mut(LEN);
        let (fourth, rest) = rest.split_at_mut(LEN);
        isa.add_gradients(x, [pattern(0), pattern(1)], [third, fourth]);
        let mut y = vec![0f32; 4 * x[0].len()];
        for (i, y) in y.chunks_exact_mut(x[0].len()).enumerate() {
            match i {
                0 => isa.normalise(x[0], [pattern(0), pattern(1), pattern(2)], y),
                1 => isa.normalise_vjp(x, [pattern(0), pattern(1), pattern(2), pattern(3)], y),
                // Rows of seven groups of 37 channels, and some groups more.
                2 => isa.normalise_rows(x[0], 37, [pattern(0), pattern(1)], [pattern(2), pattern(3)], y),
                _ => isa.normalise_rows_vjp(x, 37, [0, 1, 2, 3].map(pattern), pattern(1), y),
            }
        }
        // Of long rows, whose sums go on in f64.
        let mut saved = vec![0f32; 8 * LEN];
        let [means, variances, plain, weighted] = {
            let mut parts = saved.chunks_exact_mut(2 * LEN);
            core::array::from_fn(|_| parts.next().expect("four"))
        };
        let (all, products) = rest.split_at_mut(LEN);
        for size in [37, 1039] {
            isa.row_means(x[0], size, means);
            isa.row_variances(x[0], size, means, variances);
            let scales: Vec<f32> = (0..LEN.max(size)).map(|i| numbers[i % numbers.len()]).collect();
            let mut wide = [vec![0f32; scales.len()], vec![0f32; scales.len()]];
            let sums = wide.each_mut().map(|sums| &mut sums[..]);
            isa.row_gradients(x, size, [means, variances], &scales, [&mut *plain, &mut *weighted], sums);
            all.iter_mut().zip(&wide[0]).for_each(|(all, sum)| *all += sum);
            products.iter_mut().zip(&wide[1]).for_each(|(all, sum)| *all += sum);
        }
        sums.iter().chain(&y).chain(&saved).map(|value| value.to_bits()).collect()
    }

    let halves = [1, 2].map(|seed| -> Vec<f16> {
        floats(4001, seed)
            .iter()
            .map(|x| f16::from_f32(x % 16.0))
            .map(|x| if x.is_finite() { x } else { f16::ONE })
            .collect()
    });
    let floats = halves.each_ref().map(|x| x.iter().map(|x| x.to_f32()).collect::<Vec<_>>());
    let want = norm_bits(Isa::Portable, floats.each_ref().map(|x| &x[..]));
    assert!(want.iter().all(|bits| f32::from_bits(*bits).is_finite()));
    for isa in Isa::available() {
        assert_eq!(norm_bits(isa, floats.each_ref().map(|x| &x[..])), want, "{isa}: f32");
        assert_eq!(norm_bits(isa, halves.each_ref().map(|x| &x[..])), want, "{isa}: halves");
    }
}

/// Counters and histograms are core's.
#[test]
fn counters_are_those_of_core() {
    let convention = Convention::FP16;
    let thresholds = Thresholds {
        flush: convention.flush_end(),
        subnormal: convention.subnormal_end(),
        overflow: convention.overflow_start(),
    };
    let values: Vec<f32> = floats(70_001, 3).into_iter().map(|x| x % 65_000.0).collect();
    for isa in Isa::available() {
        for len in [0, 1, 15, 16, 17, 100, 4096, 70_001] {
            let mut row = Stats::new(convention, 0, Detail::Full);
            row.observe(&values[..len]);
            let [zeros, below_flush, below_normal, max_bits] = isa.count_values(&values[..len], thresholds);
            let counts = row.counts();
            let got = [zeros, below_flush - zeros, below_normal - below_flush, max_bits];
            let want = [counts.zeros as u32, counts.flushed as u32, counts.subnormal as u32, counts.amax.to_bits()];
            assert_eq!(got, want, "{isa}: {len}");
            let mut bins = [0; 256];
            isa.add_to_histogram(&values[..len], convention.key_constant(), &mut bins);
            assert_eq!(Some(&bins[..]), row.bins().map(|bins| &bins[..]), "{isa}: {len}");
        }
    }
}

/// A fused pass has the results of separate passes, for values of similar exponents, of all exponents, and for zeros.
#[test]
fn fused_store_equals_separate_passes() {
    let convention = Convention::FP16;
    let thresholds = Thresholds {
        flush: convention.flush_end(),
        subnormal: convention.subnormal_end(),
        overflow: convention.overflow_start(),
    };
    let all = floats(4096, 4);
    let sets: [Vec<f32>; 4] = [
        all.iter().map(|x| x % 8.0).collect(),
        all.iter().map(|x| f32::from_bits(x.to_bits() & 0x83FF_FFFF | 0x3C00_0000) / 4.0).collect(),
        all.iter().enumerate().map(|(i, x)| if i % 700 == 5 { x % 1e-30 } else { 0.0 * x }).collect(),
        all.iter().map(|x| x % 8.0 * f32::MIN_POSITIVE).collect(),
    ];
    let lens = [0, 1, 16, 63, 64, 65, 1000, 4095, 4096];
    let inputs: Vec<&[f32]> = sets.iter().flat_map(|set| lens.map(|len| &set[..len])).collect();
    for (isa, x) in Isa::available().into_iter().flat_map(|isa| inputs.iter().map(move |&x| (isa, x))) {
        let len = x.len();
        for (factor, detail) in
            [(1.0, Detail::None), (0.5, Detail::Counts), (8192.0, Detail::Full), (0.25, Detail::Moments)]
        {
            let params = FusedStoreParams { factor, detail, thresholds, key_constant: convention.key_constant() };
            let (mut y, mut bins, mut sums) = (vec![f16::ZERO; len], [7; 256], [0.5; 4]);
            let Some(seen) = isa.store_fused(StoreInput::F32(x), params, &mut y, &mut bins, &mut sums) else {
                continue;
            };
            let mut values = x.to_vec();
            isa.map(&mut values, |x| x * factor);
            let (mut want, mut want_bins, mut want_sums) = (vec![f16::ZERO; len], [7; 256], [0.5; 4]);
            isa.f32_to_f16(&values, &mut want);
            let counts = if detail >= Detail::Counts { isa.count_values(&values, thresholds) } else { [0; 4] };
            if counts[3] < thresholds.overflow {
                if detail >= Detail::Full {
                    isa.add_to_histogram(&values, params.key_constant, &mut want_bins);
                }
                if detail >= Detail::Moments {
                    isa.add_moments(&values, &mut want_sums);
                }
            }
            let bits = |y: &[f16]| y.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&y), bits(&want), "{isa}: {len}, {detail:?}");
            assert_eq!((seen, bins), (counts, want_bins), "{isa}: {len}, {detail:?}");
            assert_eq!(sums.map(f64::to_bits), want_sums.map(f64::to_bits), "{isa}: {len}, {detail:?}");
        }
    }
}
