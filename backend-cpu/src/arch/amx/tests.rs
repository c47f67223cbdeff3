//! Tiles and how they are packed, against plain loops.

use super::{Amx, K_BLOCK, KSegment, SourceLines, TILE_DIM, TileGemm};
use half::f16;

/// Halves of all exponents, finite, from a fixed sequence.
fn halves(len: usize, seed: u64) -> Vec<f16> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 48) as u16
    };
    (0..len).map(|_| f16::from_bits(next() & 0xBBFF)).collect()
}

fn value(high: u16, low: u16) -> f32 {
    f32::from_bits(u32::from(high) << 16) + f32::from_bits(u32::from(low) << 16)
}

#[test]
fn every_half_is_the_sum_of_its_parts() {
    let Some(amx) = Amx::new() else { return println!("SKIPPED: no AMX here") };
    let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    for len in [31, 32, 33] {
        for x in all.chunks(len) {
            // Lower parts follow upper ones, block by block.
            let mut out = [u16::MAX; 4 * K_BLOCK];
            let finite = amx.split_to_bf16(x, 2 * K_BLOCK, K_BLOCK, &mut out);
            assert_eq!([finite, amx.all_finite(x)], [x.iter().all(|x| x.is_finite()); 2]);
            let at = |i: usize| i / K_BLOCK * 2 * K_BLOCK + i % K_BLOCK;
            for (i, x) in x.iter().enumerate().filter(|(_, x)| x.is_finite()) {
                assert_eq!(value(out[at(i)], out[at(i) + K_BLOCK]), x.to_f32(), "{:#06x}", x.to_bits());
            }
            let zeros = (x.len()..x.len().next_multiple_of(K_BLOCK)).map(at);
            assert!(zeros.into_iter().all(|at| out[at] == 0 && out[at + K_BLOCK] == 0));
        }
    }
}

/// Tiles of all sizes, from rows and from columns, with zeros where the matrix has ended.
#[test]
fn tiles_are_packed() {
    let Some(amx) = Amx::new() else { return println!("SKIPPED: no AMX here") };
    let step = 40;
    let mut data = halves(K_BLOCK * step, 1);
    for is_k_major in [false, true] {
        let (max_count, longest) = if is_k_major { (K_BLOCK, TILE_DIM) } else { (TILE_DIM, K_BLOCK) };
        for (count, len) in (0..=max_count).flat_map(|count| [1, 7, longest - 1, longest].map(|len| (count, len))) {
            let end = if count == 0 { 0 } else { (count - 1) * step + len };
            let lines = SourceLines { data: &data[..end], step, count, len, is_k_major };
            // Element k of row or column i.
            let want = |i: usize, k: usize| {
                let (line, at) = if is_k_major { (k, i) } else { (i, k) };
                if line < count && at < len { data[line * step + at].to_f32() } else { 0.0 }
            };
            // Lower parts follow upper ones, in every row; nothing outside them is written.
            let (row, mut out) = (2 * K_BLOCK + 3, [u16::MAX; TILE_DIM * (2 * K_BLOCK + 3)]);
            assert!(amx.pack_a_tile(&lines, row, K_BLOCK, &mut out));
            for (i, k) in (0..TILE_DIM).flat_map(|i| (0..K_BLOCK).map(move |k| (i, k))) {
                let at = i * row + k;
                assert_eq!(value(out[at], out[at + K_BLOCK]), want(i, k), "{count} × {len}: {i}, {k}");
            }
            assert!(amx.pack_b_tile(&lines, row, K_BLOCK, &mut out));
            for (i, k) in (0..TILE_DIM).flat_map(|i| (0..K_BLOCK).map(move |k| (i, k))) {
                let at = k / 2 * row + 2 * i + k % 2;
                assert_eq!(value(out[at], out[at + K_BLOCK]), want(i, k), "{count} × {len}: {i}, {k}");
            }
            assert!(out.chunks(row).all(|row| row[2 * K_BLOCK..].iter().all(|&x| x == u16::MAX)));
        }
    }
    data[step + 3] = f16::NEG_INFINITY;
    let lines = SourceLines { data: &data, step, count: 2, len: 4, is_k_major: false };
    let mut out = [0; 2 * TILE_DIM * K_BLOCK];
    assert!(
        !amx.pack_a_tile(&lines, 2 * K_BLOCK, K_BLOCK, &mut out)
            && !amx.pack_b_tile(&lines, 2 * K_BLOCK, K_BLOCK, &mut out)
    );
    assert!(amx.pack_a_tile(&SourceLines { len: 3, ..lines }, 2 * K_BLOCK, K_BLOCK, &mut out));
}

#[test]
fn pairs_are_side_by_side() {
    let Some(amx) = Amx::new() else { return println!("SKIPPED: no AMX here") };
    for (len, pair_distance) in [(1, 1), (16, 3), (37, 5), (64, 64), (40, 100)] {
        let x = halves(len, 2);
        let (mut high, mut low) = (vec![0; 2 * len], vec![0; 2 * len]);
        let bits: Vec<u16> = x.iter().map(|x| x.to_bits()).collect();
        amx.split_pairs(&bits, pair_distance, &mut high, &mut low);
        for i in 0..len {
            let second = x.get(i + pair_distance).map_or(0.0, |x| x.to_f32());
            let got = [2 * i, 2 * i + 1].map(|at| value(high[at], low[at]));
            assert_eq!(got, [x[i].to_f32(), second], "{len}, {pair_distance}: {i}");
        }
    }
}

/// Tests products of every number of rows and columns, whose sums are exact; nothing outside the result is written.
#[test]
fn products_of_every_size() {
    const GAP: usize = 3;
    let Some(amx) = Amx::new() else { return println!("SKIPPED: no AMX here") };
    // Numbers of ten bits: both parts of each matter, and every sum is exact.
    let small = |x: f16| f32::from((x.to_bits() & 0x1FF) as i16 - 256);
    let split_parts = |len: usize, seed: u64| {
        let values: Vec<f32> = halves(len, seed).into_iter().map(small).collect();
        let exact: Vec<f16> = values.iter().map(|&v| f16::from_f32(v)).collect();
        let padded = len.next_multiple_of(K_BLOCK);
        let mut parts = vec![0; 2 * padded];
        assert!(amx.split_to_bf16(&exact, K_BLOCK, padded, &mut parts));
        (values, parts)
    };
    for (rows, columns) in (1..=70).flat_map(|rows| [1, 15, 16, 17, 32, 33, 48, 49, 64, 70].map(|c| (rows, c))) {
        for (rows, columns) in [(rows, columns), (columns, rows)] {
            let (a_row, b_row, acc_row) = (2 * K_BLOCK + 1, 2 * columns, columns + GAP);
            let a_len = rows * a_row + K_BLOCK;
            let (a, a_parts) = split_parts(a_len, 3);
            let b_len = 4 * K_BLOCK / 2 * b_row;
            let (b, b_parts) = split_parts(b_len, 4);
            let runs = [KSegment { a: 0, b: 0, blocks: 2 }, KSegment { a: 5, b: 3 * K_BLOCK / 2 * b_row, blocks: 1 }];
            let product = TileGemm {
                a: &a_parts,
                a_low: a_len.next_multiple_of(K_BLOCK),
                a_row,
                a_step: K_BLOCK,
                b: &b_parts,
                b_low: b_len.next_multiple_of(K_BLOCK),
                b_row,
                b_step: K_BLOCK / 2 * b_row,
                k_segments: &runs,
                rows,
                columns,
            };
            let mut acc: Vec<f32> = (0..rows * acc_row).map(|i| i as f32).collect();
            let mut want: Vec<f64> = acc.iter().map(|&v| f64::from(v)).collect();
            for (r, c) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
                for run in runs {
                    for k in 0..run.blocks * K_BLOCK {
                        let a = a[run.a + r * a_row + k];
                        let b = b[run.b + k / 2 * b_row + 2 * c + k % 2];
                        want[r * acc_row + c] += f64::from(a) * f64::from(b);
                    }
                }
            }
            amx.multiply(&product, true, &mut acc, acc_row);
            let got: Vec<f64> = acc.iter().map(|&v| f64::from(v)).collect();
            assert_eq!(got, want, "{rows} × {columns}");
            // Overwrites instead of accumulating.
            let mut fresh = vec![f32::NAN; acc.len()];
            amx.multiply(&product, false, &mut fresh, acc_row);
            for (r, c) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
                assert_eq!(fresh[r * acc_row + c], acc[r * acc_row + c] - (r * acc_row + c) as f32);
            }
        }
    }
}

/// A product that would leave its slices is refused.
#[test]
fn products_stay_inside() {
    let Some(amx) = Amx::new() else { return println!("SKIPPED: no AMX here") };
    let (a, b) = (vec![0; 2 * 2 * K_BLOCK], vec![0; 2 * 2 * K_BLOCK]);
    let multiply = |run: KSegment, rows: usize, acc: usize| {
        let product = TileGemm {
            a: &a,
            a_low: 2 * K_BLOCK,
            a_row: K_BLOCK,
            a_step: K_BLOCK,
            b: &b,
            b_low: 2 * K_BLOCK,
            b_row: 4,
            b_step: 2 * K_BLOCK,
            k_segments: &[run],
            rows,
            columns: 2,
        };
        std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            amx.multiply(&product, false, &mut vec![0.0; acc], 2)
        }))
    };
    let run = KSegment { a: 0, b: 0, blocks: 1 };
    assert!(multiply(run, 2, 4).is_ok());
    assert!(multiply(KSegment { a: 1, ..run }, 2, 4).is_err());
    assert!(multiply(KSegment { b: 1, ..run }, 2, 4).is_err());
    assert!(multiply(KSegment { blocks: 0, ..run }, 2, 4).is_err());
    assert!(multiply(KSegment { blocks: 2, ..run }, 2, 4).is_err());
    assert!(multiply(KSegment { a: usize::MAX, ..run }, 2, 4).is_err());
    assert!(multiply(run, 3, 6).is_err());
    assert!(multiply(run, 2, 3).is_err());
}
