//! Maximum of each bin of boxes of images, and its vjp. The geometry here is computed in integers; everything is exact.

use super::Case;
use crate::{
    case::{Check, Fail},
    compare::same_bits,
    data::{Random, held},
    epilogue,
    property::property,
    rig::Rig,
};
use core::cell::RefCell;
use gradscale_core::{
    backend::{Backend, DType, Launch},
    ops::RoiPool,
};
use proptest::prelude::*;

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("roi_pool::shapes", shapes::<B>));
    cases.push(Case::new("roi_pool::corners", corners::<B>));
    cases.push(Case::new("roi_pool::ties", ties::<B>));
    cases.push(Case::new("roi_pool::no_image", no_image::<B>));
    cases.push(Case::new("roi_pool::epilogue", stores::<B>));
    cases.push(Case::new("roi_pool::any", any_boxes::<B>));
}

/// Images `[n, h, w, c]`, bins, places for each unit.
#[derive(Clone, Copy, Debug)]
struct Shape {
    x: [u32; 4],
    bins: [u32; 2],
    scale: f32,
}

impl Shape {
    fn build(&self, boxes: usize) -> Result<RoiPool, Fail> {
        RoiPool::new(self.x, boxes as u32, self.bins, self.scale).map_err(|error| Fail::new(error.to_string()))
    }

    fn pixels(&self) -> usize {
        self.x.iter().product::<u32>() as usize
    }

    fn results(&self, boxes: usize) -> usize {
        boxes * (self.bins[0] * self.bins[1] * self.x[3]) as usize
    }

    /// Returns for each result, in order, the pixels that are compared: position in the image, and element of x.
    fn bins(&self, boxes: &[[f32; 5]]) -> Vec<Vec<(u32, usize)>> {
        let [n, h, w, c] = self.x;
        let mut all = Vec::new();
        for &[image, left, top, right, bottom] in boxes {
            let there = image >= 0.0 && image < n as f32 && [left, top, right, bottom].iter().all(|v| !v.is_nan());
            for (r, s) in (0..self.bins[0]).flat_map(|r| (0..self.bins[1]).map(move |s| (r, s))) {
                let rows = self.along(h, self.bins[0], top, bottom, r);
                let columns = self.along(w, self.bins[1], left, right, s);
                let places: Vec<(u32, u32)> =
                    rows.iter().flat_map(|&u| columns.iter().map(move |&v| (u, v))).filter(|_| there).collect();
                for channel in 0..c {
                    let element = |(u, v): (u32, u32)| (((image as u32 * h + u) * w + v) * c + channel) as usize;
                    all.push(places.iter().map(|&(u, v)| (u * w + v, element((u, v)))).collect());
                }
            }
        }
        all
    }

    /// Returns the positions along an axis whose part of a box overlaps with a bin.
    fn along(&self, size: u32, bins: u32, from: f32, to: f32, bin: u32) -> Vec<u32> {
        // Halves are rounded away from 0. The clamp is far outside all images of these tests.
        let corner = |v: f32| f64::from(v * self.scale).clamp(-1_048_576.0, 1_048_576.0).round() as i64;
        let (first, last) = (corner(from), corner(to).max(corner(from)));
        let (len, bins, bin) = (last - first + 1, i64::from(bins), i64::from(bin));
        // Position j of the box covers j to j + 1, and bin i covers i·len/bins to (i + 1)·len/bins.
        let meets = |place: &u32| {
            let j = i64::from(*place) - first;
            (0..len).contains(&j) && (j + 1) * bins > bin * len && j * bins < (bin + 1) * len
        };
        (0..size).filter(meets).collect()
    }
}

/// Values, places and, of integers, the gradient, each bit for bit.
fn check<B: Backend>(
    rig: &Rig<'_, B>, shape: &Shape, dtype: DType, boxes: &[[f32; 5]], x: &[f32],
) -> Result<Vec<f32>, Fail> {
    let (p, len) = (shape.build(boxes.len())?, shape.results(boxes.len()));
    let values = held(dtype, x);
    let won: Vec<Option<(u32, usize)>> = shape.bins(boxes).iter().map(|bin| winner(bin, &values)).collect();
    let images = rig.padded(dtype, x)?;
    let numbers = rig.padded(DType::F32, boxes.as_flattened())?;
    let mut at = rig.output(DType::U32, len)?;
    let got = rig.plain(len, |y| {
        rig.backend.launch(Launch::RoiPool { p, x: &images, boxes: &numbers, indices: &mut at.buffer, y })
    })?;
    let want: Vec<f32> = won.iter().map(|won| won.map_or(0.0, |(_, i)| values[i])).collect();
    same_bits("largest", &got, &want)?;
    let places: Vec<f32> = won.iter().map(|won| won.map_or(RoiPool::NO_POSITION, |(place, _)| place) as f32).collect();
    same_bits("places", &rig.take(&at)?, &places)?;

    let gradients = Random(len as u64).many(len, |random| random.integer(9));
    let mut want = vec![0.0; shape.pixels()];
    won.iter().zip(&gradients).for_each(|(won, d)| won.iter().for_each(|&(_, i)| want[i] += d));
    let d = rig.padded(dtype, &gradients)?;
    let sent = rig.plain(want.len(), |y| {
        rig.backend.launch(Launch::RoiUnpool { p, x: &d, boxes: &numbers, indices: &at.buffer, y })
    })?;
    same_bits("gradient", &sent, &want)?;
    Ok(got)
}

/// The first NaN, else the first of the largest.
fn winner(bin: &[(u32, usize)], x: &[f32]) -> Option<(u32, usize)> {
    let largest = bin.iter().map(|&(_, i)| x[i]).fold(f32::NEG_INFINITY, f32::max);
    let nan = bin.iter().find(|&&(_, i)| x[i].is_nan());
    nan.or_else(|| bin.iter().find(|&&(_, i)| x[i] == largest)).copied()
}

/// Boxes inside images and around their edges.
fn around(random: &mut Random, shape: &Shape, count: usize) -> Vec<[f32; 5]> {
    let [n, h, w, _] = shape.x;
    let mut one = || {
        let image = random.below(u64::from(n.max(1))) as f32;
        let mut place = |size: u32| (random.unit() * 1.5 - 0.25) * size as f32 / shape.scale;
        let ([left, right], [top, bottom]) = ([place(w), place(w)], [place(h), place(h)]);
        [image, left, top, right, bottom]
    };
    (0..count).map(|_| one()).collect()
}

fn shapes<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let all = [
        (Shape { x: [1, 1, 1, 1], bins: [1, 1], scale: 1.0 }, 3),
        (Shape { x: [2, 7, 5, 3], bins: [2, 3], scale: 1.0 }, 9),
        (Shape { x: [3, 6, 9, 8], bins: [3, 2], scale: 0.25 }, 12),
        (Shape { x: [1, 12, 12, 17], bins: [7, 7], scale: 0.0625 }, 5),
        (Shape { x: [2, 11, 13, 16], bins: [7, 7], scale: 0.3 }, 7),
        (Shape { x: [0, 4, 4, 5], bins: [2, 2], scale: 0.5 }, 4),
        (Shape { x: [2, 0, 4, 5], bins: [2, 2], scale: 0.5 }, 4),
        (Shape { x: [2, 4, 4, 0], bins: [2, 2], scale: 0.5 }, 4),
        (Shape { x: [2, 4, 4, 5], bins: [2, 2], scale: 0.5 }, 0),
    ];
    for (i, (shape, count)) in all.iter().enumerate() {
        for dtype in [DType::F32, DType::F16] {
            let mut random = Random(i as u64);
            let boxes = around(&mut random, shape, *count);
            let x = random.many(shape.pixels(), Random::normal);
            check(&rig, shape, dtype, &boxes, &x)?;
        }
    }
    Ok(vec![])
}

/// A line of 1, 2, … in one bin returns its last position. Halves are rounded away from 0, and corners belong to the
/// box. A box that ends before it begins has one position, and parts outside the image have none.
fn corners<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let shape = Shape { x: [1, 1, 8, 1], bins: [1, 1], scale: 0.5 };
    let x: Vec<f32> = (1..=8u8).map(f32::from).collect();
    let all = [
        ([0.0, 0.0], 1.0),
        ([0.0, 6.0], 4.0),
        ([0.0, 0.98], 1.0),
        ([0.0, 1.0], 2.0),
        ([0.0, 5.0], 4.0),
        ([10.0, 2.0], 6.0),
        ([-9.0, 4.0], 3.0),
        ([-9.0, -1.0], 0.0),
        ([-9.0, -0.98], 1.0),
        ([15.0, 20.0], 0.0),
        ([14.9, 20.0], 8.0),
        ([-1e30, 1e30], 8.0),
        ([f32::NEG_INFINITY, f32::INFINITY], 8.0),
        ([1e30, 1e30], 0.0),
    ];
    let boxes: Vec<[f32; 5]> = all.iter().map(|&([left, right], _)| [0.0, left, 0.0, right, 0.0]).collect();
    let want: Vec<f32> = all.iter().map(|&(_, want)| want).collect();
    same_bits("ends of lines", &check(&rig, &shape, DType::F32, &boxes, &x)?, &want)?;
    // Five places in two bins share the middle; in seven bins each place is in one or two.
    let line = [[0.0, 0.0, 0.0, 8.0, 0.0]];
    let two = check(&rig, &Shape { bins: [1, 2], ..shape }, DType::F32, &line, &x)?;
    same_bits("two bins", &two, &[3.0, 5.0])?;
    let seven = check(&rig, &Shape { bins: [1, 7], ..shape }, DType::F32, &line, &x)?;
    same_bits("seven bins", &seven, &[1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 5.0])?;
    Ok(vec![])
}

/// Of several maxima the first wins, and the first NaN. Zeros of either sign are equal, and minima are found too.
fn ties<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let shape = Shape { x: [1, 2, 3, 1], bins: [1, 1], scale: 1.0 };
    let (nan, low) = (f32::NAN, f32::NEG_INFINITY);
    for x in [
        [1.0, 2.0, 2.0, 0.5, 2.0, 1.0],
        [1.0, nan, 2.0, nan, f32::INFINITY, 1.0],
        [-0.0, 0.0, 0.0, -0.0, 0.0, -0.0],
        [low, low, low, low, low, low],
        [-3.0, -2.0, -2.5, -2.0, -4.0, low],
    ] {
        for dtype in [DType::F32, DType::F16] {
            check(&rig, &shape, dtype, &[[0.0, 0.0, 0.0, 2.0, 1.0], [0.0, 1.0, 0.0, 2.0, 0.0]], &x)?;
        }
    }
    Ok(vec![])
}

/// Boxes of images that do not exist, and boxes with NaN: zeros, no positions, and no gradient.
fn no_image<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let shape = Shape { x: [2, 3, 3, 2], bins: [2, 2], scale: 1.0 };
    let none = [2.0, -1.0, 1e30, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let mut boxes: Vec<[f32; 5]> = none.iter().map(|&image| [image, 0.0, 0.0, 3.0, 3.0]).collect();
    boxes.extend((1..5).map(|i| {
        let mut one = [0.0, 0.0, 0.0, 3.0, 2.0];
        one[i] = f32::NAN;
        one
    }));
    let got = check(&rig, &shape, DType::F32, &boxes, &[1.0; 36])?;
    same_bits("of no image", &got, &vec![0.0; got.len()])?;
    Ok(vec![])
}

fn stores<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let shape = Shape { x: [2, 9, 11, 12], bins: [5, 6], scale: 0.5 };
    let mut random = Random(7);
    let boxes = around(&mut random, &shape, 7);
    let (p, len) = (shape.build(boxes.len())?, shape.results(boxes.len()));
    let numbers = rig.padded(DType::F32, boxes.as_flattened())?;
    let [x, d] = [shape.pixels(), len].map(|len| random.many(len, |random| random.normal() * 1e-2));
    let (x, d, at) = (rig.padded(DType::F16, &x)?, rig.padded(DType::F16, &d)?, rig.output(DType::U32, len)?);
    let at = RefCell::new(at.buffer);
    epilogue::check(&mut rig, len, |b, y| {
        b.launch(Launch::RoiPool { p, x: &x, boxes: &numbers, indices: &mut at.borrow_mut(), y })
    })?;
    let at = at.into_inner();
    epilogue::check(&mut rig, shape.pixels(), |b, y| {
        b.launch(Launch::RoiUnpool { p, x: &d, boxes: &numbers, indices: &at, y })
    })?;
    Ok(vec![])
}

fn any_boxes<B: Backend>(b: &B) -> Check {
    let sizes = (1..4u32, 1..8u32, 1..8u32, 1..10u32);
    property(&(sizes, 1..4u32, 1..4u32, 0..6usize, any::<u32>()), |((n, h, w, c), r, s, count, seed)| {
        let rig = Rig::new(b)?;
        let shape = Shape { x: [n, h, w, c], bins: [r, s], scale: 0.5 };
        let mut random = Random(seed.into());
        let boxes = around(&mut random, &shape, count);
        let x = random.many(shape.pixels(), |random| random.integer(3));
        check(&rig, &shape, DType::F32, &boxes, &x)?;
        Ok(vec![])
    })
}
