//! Pooling: windows, ties and offsets. The geometry here is also used for unpooling.

use super::{Case, shared::of};
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits, same_numbers},
    data::{Random, held, readable},
    epilogue,
    property::{merge, property},
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, Launch},
    ops::{GatherScatter, Pool, PoolOp},
};
use proptest::prelude::*;

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("pool::max", |b: &B| every_shape(b, check_max)));
    cases.push(Case::new("pool::average", |b: &B| every_shape(b, check_average)));
    cases.push(Case::new("pool::ties", ties::<B>));
    cases.push(Case::new("pool::offset_255", offset_255::<B>));
    cases.push(Case::new("pool::epilogue", pool_epilogue::<B>));
    cases.push(Case::new("pool::any", any_pool::<B>));
}

/// Pooling, with its results computed from the definition by loops.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    x: [u32; 4],
    window: [u32; 2],
    stride: [u32; 2],
    pad: [u32; 2],
    ceil: bool,
}

pub(super) const SHAPES: [Shape; 20] = [
    shape([2, 8, 6, 4], [2, 2], [2, 2], [0, 0], false),
    shape([2, 7, 5, 3], [2, 2], [2, 2], [0, 0], true),
    shape([1, 7, 5, 3], [2, 2], [2, 2], [0, 0], false),
    shape([2, 9, 6, 5], [3, 3], [2, 2], [1, 1], false),
    shape([1, 6, 7, 33], [3, 3], [1, 1], [1, 1], false),
    shape([1, 8, 9, 2], [3, 2], [2, 3], [1, 0], true),
    shape([3, 10, 10, 1], [2, 2], [3, 4], [0, 0], true),
    shape([1, 8, 8, 2], [4, 4], [3, 3], [2, 2], true),
    // Local response normalisation: a channel at a time becomes a row.
    shape([24, 1, 16, 1], [1, 5], [1, 1], [0, 2], false),
    // Global.
    shape([2, 6, 7, 65], [6, 7], [6, 7], [0, 0], false),
    shape([1, 64, 48, 17], [2, 2], [2, 2], [0, 0], false),
    // Channels that come in eights.
    shape([2, 7, 9, 16], [2, 2], [2, 2], [0, 0], true),
    shape([1, 8, 7, 8], [3, 3], [2, 2], [1, 1], false),
    // The same with several results for each thread, and with pixels in no window.
    shape([3, 31, 27, 40], [2, 2], [2, 2], [0, 0], false),
    shape([2, 26, 27, 40], [3, 3], [2, 2], [1, 1], false),
    shape([1, 14, 13, 16], [3, 3], [2, 2], [0, 0], true),
    // Windows of the same sizes, with another stride or padding.
    shape([1, 9, 8, 16], [3, 3], [1, 1], [1, 1], false),
    shape([1, 8, 9, 8], [2, 2], [2, 2], [1, 1], false),
    shape([0, 4, 4, 3], [2, 2], [2, 2], [0, 0], false),
    shape([2, 4, 4, 0], [2, 2], [2, 2], [0, 0], false),
];

pub(super) const fn shape(x: [u32; 4], window: [u32; 2], stride: [u32; 2], pad: [u32; 2], ceil: bool) -> Shape {
    Shape { x, window, stride, pad, ceil }
}

impl Shape {
    pub(super) fn build(&self, op: PoolOp) -> Pool {
        let pool = Pool::new(op, self.x, self.window).and_then(|p| p.stride(self.stride)).and_then(|p| p.pad(self.pad));
        pool.and_then(|p| if self.ceil { p.ceil() } else { Ok(p) }).expect("a valid window")
    }

    /// Windows along an axis: as many as fit, with `ceil` also those that only begin inside.
    fn out(&self, axis: usize) -> u32 {
        let (size, pad) = (self.x[1 + axis], self.pad[axis]);
        let fits = |o: &u32| o * self.stride[axis] + self.window[axis] <= size + 2 * pad;
        let reaches = |o: &u32| (o - 1) * self.stride[axis] + self.window[axis] < size + 2 * pad;
        let begins = |o: &u32| o * self.stride[axis] < size + pad;
        let whole = (0..).take_while(fits).count() as u32;
        whole + u32::from(self.ceil && reaches(&whole) && begins(&whole))
    }

    pub(super) fn area(&self) -> usize {
        (self.window[0] * self.window[1]) as usize
    }

    pub(super) fn x_len(&self) -> usize {
        self.x.iter().product::<u32>() as usize
    }

    /// Returns for each result, in order, the pairs (offset in the window, position in x) that are inside x.
    pub(super) fn windows(&self) -> Vec<Vec<(u32, usize)>> {
        let [n, h, w, c] = self.x;
        let mut windows = Vec::new();
        for image in 0..n {
            for (r, s) in (0..self.out(0)).flat_map(|r| (0..self.out(1)).map(move |s| (r, s))) {
                for channel in 0..c {
                    let mut window = Vec::new();
                    for (i, j) in (0..self.window[0]).flat_map(|i| (0..self.window[1]).map(move |j| (i, j))) {
                        let (u, v) = (r * self.stride[0] + i, s * self.stride[1] + j);
                        let inside =
                            (self.pad[0]..h + self.pad[0]).contains(&u) && (self.pad[1]..w + self.pad[1]).contains(&v);
                        if inside {
                            let place = ((image * h + u - self.pad[0]) * w + v - self.pad[1]) * c + channel;
                            window.push((i * self.window[1] + j, place as usize));
                        }
                    }
                    windows.push(window);
                }
            }
        }
        windows
    }

    /// Some offset into x for each window.
    pub(super) fn offsets(&self, seed: u64) -> Vec<f32> {
        let mut random = Random(seed);
        self.windows().iter().map(|window| window[random.below(window.len() as u64) as usize].0 as f32).collect()
    }
}

/// The place of an offset in its window.
pub(super) fn place(window: &[(u32, usize)], offset: f32) -> usize {
    window.iter().find(|&&(o, _)| o as f32 == offset).expect("offsets lie inside x").1
}

/// The winner of a window: the first NaN, else the first of the largest.
pub(super) fn winner(window: &[(u32, usize)], x: &[f32]) -> (u32, usize) {
    let largest = window.iter().map(|&(_, i)| x[i]).fold(f32::NEG_INFINITY, f32::max);
    let nan = window.iter().find(|&&(_, i)| x[i].is_nan());
    *nan.or_else(|| window.iter().find(|&&(_, i)| x[i] == largest)).expect("a window meets its image")
}

pub(super) fn every_shape<B: Backend>(b: &B, check: impl Fn(&Rig<'_, B>, &Shape, DType) -> Check) -> Check {
    let rig = Rig::new(b)?;
    let mut measured = vec![];
    for (shape, dtype) in SHAPES.iter().flat_map(|shape| [DType::F32, DType::F16].map(|dtype| (shape, dtype))) {
        let seen = check(&rig, shape, dtype).map_err(of(format!("{shape:?} {dtype:?}")))?;
        merge(&mut measured, &seen);
    }
    Ok(measured)
}

/// Values and offsets of `max`, each bit for bit; the values also without offsets.
fn max_is<B: Backend>(rig: &Rig<'_, B>, shape: &Shape, dtype: DType, x: &[f32]) -> Result<(), Fail> {
    let (p, windows, b) = (shape.build(PoolOp::Max), shape.windows(), rig.backend);
    if p.y() != [shape.x[0], shape.out(0), shape.out(1), shape.x[3]] {
        return Err(Fail::new(format!("the descriptor says the result is {:?}", p.y())));
    }
    let (values, x) = (held(dtype, x), rig.padded(dtype, x)?);
    let won: Vec<(u32, usize)> = windows.iter().map(|window| winner(window, &values)).collect();
    let want: Vec<f32> = won.iter().map(|&(_, i)| values[i]).collect();
    let mut at = rig.output(DType::U8, windows.len())?;
    let got = rig.plain(windows.len(), |y| b.launch(Launch::Pool { p, x: &x, indices: Some(&mut at.buffer), y }))?;
    same_bits("offsets", &rig.take(&at)?, &won.iter().map(|&(o, _)| o as f32).collect::<Vec<_>>())?;
    same_bits("largest", &got, &want)?;
    same_bits(
        "largest, without offsets",
        &rig.plain(windows.len(), |y| b.launch(Launch::Pool { p, x: &x, indices: None, y }))?,
        &want,
    )
}

fn check_max<B: Backend>(rig: &Rig<'_, B>, shape: &Shape, dtype: DType) -> Check {
    let mut random = Random(1);
    // All values are negative, so that padding would win if it counted.
    max_is(rig, shape, dtype, &random.many(shape.x_len(), |random| random.half() - 1.5))?;
    max_is(rig, shape, dtype, &random.many(shape.x_len(), Random::normal))?;
    Ok(vec![])
}

fn check_average<B: Backend>(rig: &Rig<'_, B>, shape: &Shape, dtype: DType) -> Check {
    let (p, windows, b) = (shape.build(PoolOp::Average), shape.windows(), rig.backend);
    let mut random = Random(2);
    // Integers have exact sums; shares of a power of two are exact too.
    let values = random.many(shape.x_len(), |random| random.integer(100));
    let x = rig.padded(dtype, &values)?;
    let got = rig.plain(windows.len(), |y| b.launch(Launch::Pool { p, x: &x, indices: None, y }))?;
    if shape.area().is_power_of_two() {
        let sum = |window: &Vec<(u32, usize)>| window.iter().map(|&(_, i)| values[i]).sum::<f32>();
        let want: Vec<f32> = windows.iter().map(|window| sum(window) / shape.area() as f32).collect();
        same_numbers("mean of integers", &got, &want)?;
    }
    let values = readable(dtype, &random.many(shape.x_len(), |random| random.normal() * 1.1));
    let x = rig.padded(dtype, &values)?;
    let got = rig.plain(windows.len(), |y| b.launch(Launch::Pool { p, x: &x, indices: None, y }))?;
    let want: Vec<Want> = windows
        .iter()
        .map(|window| Want::sum(window.iter().map(|&(_, i)| f64::from(values[i]))).times(1.0 / shape.area() as f64))
        .collect();
    Ok(vec![compare("average", DType::F32, &b.caps(), &got, &want)?])
}

/// Of several maxima the lowest offset wins. −∞ does not win over any number but has a position; the first NaN wins.
fn ties<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for (shape, dtype) in SHAPES.iter().flat_map(|shape| [DType::F32, DType::F16].map(|dtype| (shape, dtype))) {
        let mut random = Random(3);
        let special = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, -1.0, 1.0];
        let mut fill =
            |pick: &[f32]| random.many(shape.x_len(), |random| pick[random.below(pick.len() as u64) as usize]);
        for x in [fill(&[-3.0]), fill(&[1.0, 2.0]), fill(&special[..1]), fill(&special[..2]), fill(&special)] {
            max_is(&rig, shape, dtype, &x)?;
        }
        // ±0 are equal: the first wins, whichever is handed on.
        let zeros = fill(&[0.0, -0.0]);
        let (p, windows) = (shape.build(PoolOp::Max), shape.windows());
        let x = rig.input(dtype, &zeros)?;
        let mut at = rig.output(DType::U8, windows.len())?;
        let got =
            rig.plain(windows.len(), |y| b.launch(Launch::Pool { p, x: &x, indices: Some(&mut at.buffer), y }))?;
        let first: Vec<f32> = windows.iter().map(|window| window[0].0 as f32).collect();
        same_bits("offsets among zeros", &rig.take(&at)?, &first)?;
        if got.iter().any(|&v| v != 0.0) {
            return Err(Fail::new("the largest of zeros is not 0"));
        }
    }
    Ok(vec![])
}

/// The largest windows that a byte can point into.
fn offset_255<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for (x, window) in [([2, 32, 16, 3], [16, 16]), ([2, 3, 512, 1], [1, 256]), ([1, 300, 2, 5], [256, 1])] {
        let shape = shape(x, window, window, [0; 2], false);
        let rising: Vec<f32> = (0..shape.x_len()).map(|i| i as f32 * 0.25 - 700.0).collect();
        max_is(&rig, &shape, DType::F32, &rising)?;
        max_is(&rig, &shape, DType::F16, &Random(4).many(shape.x_len(), Random::normal))?;
        let at = rig.input(DType::U8, &vec![255.0; shape.windows().len()])?;
        let values: Vec<f32> = (1..=shape.windows().len()).map(|i| i as f32).collect();
        let mut want = vec![0.0; shape.x_len()];
        shape.windows().iter().zip(&values).for_each(|(window, &v)| want[place(window, 255.0)] = v);
        let y = rig.input(DType::F16, &values)?;
        let p = shape.build(PoolOp::Max);
        let got = rig.plain(want.len(), |store| {
            b.launch(Launch::Unpool { p, way: GatherScatter::Scatter, x: &y, indices: Some(&at), y: store })
        })?;
        same_bits("scattered to offset 255", &got, &want)?;
    }
    Ok(vec![])
}

fn pool_epilogue<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for (shape, op) in [(SHAPES[4], PoolOp::Max), (SHAPES[4], PoolOp::Average), (SHAPES[0], PoolOp::Average)] {
        let (p, len) = (shape.build(op), shape.windows().len());
        let x = rig.padded(DType::F16, &Random(8).many(shape.x_len(), |random| random.normal() * 1e-2))?;
        epilogue::check(&mut rig, len, |b, y| b.launch(Launch::Pool { p, x: &x, indices: None, y }))?;
    }
    Ok(vec![])
}

/// Any geometry, with many ties.
fn any_pool<B: Backend>(b: &B) -> Check {
    property(&(any_shape(), any::<u64>(), any::<bool>()), |(shape, seed, wide)| {
        let rig = Rig::new(b)?;
        let dtype = if wide { DType::F32 } else { DType::F16 };
        max_is(&rig, &shape, dtype, &Random(seed).many(shape.x_len(), |random| random.integer(3)))?;
        check_average(&rig, &shape, dtype)?;
        Ok(vec![])
    })
}

/// Images of up to 2 x 9 x 9 x 4 and windows that fit them.
pub(super) fn any_shape() -> impl Strategy<Value = Shape> {
    let axis = (1..10u32).prop_flat_map(|size| {
        let window = 1..=size.min(5);
        window.prop_flat_map(move |window| (Just(size), Just(window), 1..5u32, 0..=window / 2))
    });
    (1..3u32, axis.clone(), axis, 1..5u32, any::<bool>()).prop_map(|(n, rows, cols, c, ceil)| {
        shape([n, rows.0, cols.0, c], [rows.1, cols.1], [rows.2, cols.2], [rows.3, cols.3], ceil)
    })
}
