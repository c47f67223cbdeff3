//! Boxes of images, resampled to one size, and the vjp of that.

use super::Case;
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits},
    data::Random,
    epilogue,
    property::property,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, Launch},
    ops::{GatherScatter, RoiAlign},
};
use proptest::prelude::*;

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("roi_align::gather", |b: &B| shapes(b, GatherScatter::Gather)));
    cases.push(Case::new("roi_align::scatter", |b: &B| shapes(b, GatherScatter::Scatter)));
    cases.push(Case::new("roi_align::whole_places", whole_places::<B>));
    cases.push(Case::new("roi_align::outside", outside::<B>));
    cases.push(Case::new("roi_align::adjoint", adjoint::<B>));
    cases.push(Case::new("roi_align::no_image", no_image::<B>));
    cases.push(Case::new("roi_align::epilogue", stores::<B>));
    cases.push(Case::new("roi_align::any", any_boxes::<B>));
}

const WAYS: [GatherScatter; 2] = [GatherScatter::Gather, GatherScatter::Scatter];

/// Images `[n, h, w, c]`, bins, places for each unit, points of a bin along each axis.
#[derive(Clone, Copy, Debug)]
struct Shape {
    x: [u32; 4],
    bins: [u32; 2],
    scale: f32,
    samples: u32,
}

impl Shape {
    fn build(&self, boxes: usize) -> Result<RoiAlign, Fail> {
        RoiAlign::new(self.x, boxes as u32, self.bins, self.scale, self.samples)
            .map_err(|error| Fail::new(error.to_string()))
    }

    /// One term for each corner of each point of each bin: element of the bins, element of the images, share.
    fn terms(&self, boxes: &[[f32; 5]]) -> Vec<(usize, usize, f64)> {
        let [_, height, width, channels] = self.x.map(|size| size as usize);
        let [rows, columns] = self.bins;
        let points = f64::from(self.samples * self.samples);
        let mut terms = Vec::new();
        for (k, one) in boxes.iter().enumerate() {
            // A number of an image is cut, not rounded.
            if !(one[0] >= 0.0 && one[0] < self.x[0] as f32) {
                continue;
            }
            let image = one[0] as usize;
            let (down, right) =
                (self.corners(height, rows, one[2], one[4]), self.corners(width, columns, one[1], one[3]));
            for (&(r, u, a), &(s, v, b)) in down.iter().flat_map(|d| right.iter().map(move |r| (d, r))) {
                for c in 0..channels {
                    let bin = ((k * rows as usize + r) * columns as usize + s) * channels + c;
                    terms.push((bin, ((image * height + u) * width + v) * channels + c, a * b / points));
                }
            }
        }
        terms
    }

    /// Bin, place and share of the corners along an axis, in f64.
    fn corners(&self, size: usize, bins: u32, from: f32, to: f32) -> Vec<(usize, usize, f64)> {
        let scale = f64::from(self.scale);
        let (start, end) = (f64::from(from) * scale - 0.5, f64::from(to) * scale - 0.5);
        let count = f64::from(bins * self.samples);
        let mut all = Vec::new();
        for point in 0..bins * self.samples {
            let at = start + (f64::from(point) + 0.5) * (end - start) / count;
            if size == 0 || at.is_nan() || at < -1.0 || at > size as f64 {
                continue;
            }
            let at = at.clamp(0.0, (size - 1) as f64);
            let (low, bin) = (at.floor() as usize, (point / self.samples) as usize);
            all.push((bin, low, 1.0 - at.fract()));
            if at.fract() != 0.0 {
                all.push((bin, low + 1, at.fract()));
            }
        }
        all
    }
}

fn check<B: Backend>(
    rig: &Rig<'_, B>, shape: &Shape, way: GatherScatter, dtype: DType, boxes: &[[f32; 5]], x: &[f32],
) -> Result<(Vec<f32>, Vec<Want>), Fail> {
    let p = shape.build(boxes.len())?;
    let [bins, pixels] = [p.y(), p.x()].map(|shape| shape.iter().product::<u32>() as usize);
    let mut want = vec![Want::sum([]); if way == GatherScatter::Gather { bins } else { pixels }];
    for (bin, pixel, share) in shape.terms(boxes) {
        let (to, from) = if way == GatherScatter::Gather { (bin, pixel) } else { (pixel, bin) };
        let (term, want) = (f64::from(x[from]) * share, &mut want[to]);
        // A share is known to the place's own digits.
        let scale = want.scale + f64::from(x[from].abs()) / f64::from(shape.samples * shape.samples);
        *want = Want { value: want.value + term, scale, terms: want.terms + 1 };
    }
    let images = rig.padded(dtype, x)?;
    let numbers = rig.padded(DType::F32, boxes.as_flattened())?;
    let got =
        rig.plain(want.len(), |y| rig.backend.launch(Launch::RoiAlign { p, way, x: &images, boxes: &numbers, y }))?;
    Ok((got, want))
}

fn inputs(shape: &Shape, way: GatherScatter, boxes: usize) -> usize {
    let [n, h, w, c] = shape.x;
    let [rows, columns] = shape.bins;
    if way == GatherScatter::Gather { n * h * w * c } else { boxes as u32 * rows * columns * c }
        .try_into()
        .expect("small")
}

/// Boxes inside images and around their edges.
fn around(random: &mut Random, shape: &Shape, count: usize) -> Vec<[f32; 5]> {
    let [n, h, w, _] = shape.x;
    let mut one = || {
        let image = random.below(u64::from(n.max(1))) as f32;
        let mut place = |size: u32| (random.unit() * 1.5 - 0.25) * size as f32 / shape.scale;
        let ([left, right], [top, bottom]) = ([place(w), place(w)], [place(h), place(h)]);
        [image, left.min(right), top.min(bottom), left.max(right), top.max(bottom)]
    };
    (0..count).map(|_| one()).collect()
}

/// Returns true if a point is so close to the edge after which it counts as 0 that rounding decides.
fn on_the_edge(shape: &Shape, boxes: &[[f32; 5]]) -> bool {
    let [_, h, w, _] = shape.x;
    let near = |from: f32, to: f32, bins: u32, size: u32| {
        let (start, end) = (from * shape.scale - 0.5, to * shape.scale - 0.5);
        (0..bins * shape.samples).any(|i| {
            let at = start + (i as f32 + 0.5) * (end - start) / (bins * shape.samples) as f32;
            (at + 1.0).abs() < 1e-3 || (at - size as f32).abs() < 1e-3
        })
    };
    boxes.iter().any(|b| near(b[2], b[4], shape.bins[0], h) || near(b[1], b[3], shape.bins[1], w))
}

fn shapes<B: Backend>(b: &B, way: GatherScatter) -> Check {
    let rig = Rig::new(b)?;
    let mut measured = Vec::new();
    let all = [
        (Shape { x: [1, 1, 1, 1], bins: [1, 1], scale: 1.0, samples: 1 }, 3),
        (Shape { x: [2, 7, 5, 3], bins: [2, 3], scale: 1.0, samples: 2 }, 9),
        (Shape { x: [3, 6, 9, 8], bins: [3, 2], scale: 0.25, samples: 2 }, 12),
        (Shape { x: [1, 12, 12, 17], bins: [7, 7], scale: 0.0625, samples: 1 }, 5),
        (Shape { x: [2, 4, 4, 5], bins: [1, 1], scale: 0.5, samples: 3 }, 4),
        (Shape { x: [0, 4, 4, 5], bins: [2, 2], scale: 0.5, samples: 2 }, 4),
        (Shape { x: [2, 0, 4, 5], bins: [2, 2], scale: 0.5, samples: 2 }, 4),
        (Shape { x: [2, 4, 4, 5], bins: [2, 2], scale: 0.5, samples: 2 }, 0),
    ];
    for (i, (shape, count)) in all.iter().enumerate() {
        for dtype in [DType::F32, DType::F16] {
            let mut random = Random(i as u64);
            let mut boxes = around(&mut random, shape, *count);
            while on_the_edge(shape, &boxes) {
                boxes = around(&mut random, shape, *count);
            }
            let x = crate::data::held(dtype, &random.many(inputs(shape, way, *count), Random::normal));
            let (got, want) = check(&rig, shape, way, dtype, &boxes, &x)?;
            measured.push(compare("roi_align", DType::F32, &b.caps(), &got, &want)?);
        }
    }
    Ok(measured)
}

/// A point at the center of a pixel takes only that pixel's value, however large its neighbours are.
fn whole_places<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let shape = Shape { x: [2, 4, 6, 3], bins: [2, 3], scale: 0.5, samples: 1 };
    // Columns 2 to 4 and rows 1 to 2 of the second image.
    let boxes = [[1.0, 4.0, 2.0, 10.0, 6.0]];
    let inside = |i: usize| i / 72 == 1 && (1..3).contains(&(i / 18 % 4)) && (2..5).contains(&(i / 3 % 6));
    let x: Vec<f32> = (0..144).map(|i| if inside(i) { i as f32 } else { 1e30 }).collect();
    let want: Vec<f32> = (0..144).filter(|&i| inside(i)).map(|i| i as f32).collect();
    let (got, _) = check(&rig, &shape, GatherScatter::Gather, DType::F32, &boxes, &x)?;
    same_bits("places in the middle", &got, &want)?;
    Ok(vec![])
}

/// Points outside: at most a place away they are the edge's, farther they are 0. In eighths, so that all is exact.
fn outside<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let shape = Shape { x: [1, 2, 2, 1], bins: [1, 1], scale: 1.0, samples: 1 };
    let x = [1.0, 2.0, 4.0, 8.0];
    // A box without width is one point; its middle is at the number less half a place.
    let point = |column: f32, row: f32| [0.0, column + 0.5, row + 0.5, column + 0.5, row + 0.5];
    let all = [
        (point(0.0, 0.0), 1.0),
        (point(-1.0, 0.0), 1.0),
        (point(-1.125, 0.0), 0.0),
        (point(0.0, -1.0), 1.0),
        (point(0.0, -1.125), 0.0),
        (point(2.0, 0.0), 2.0),
        (point(2.125, 0.0), 0.0),
        (point(0.0, 2.0), 4.0),
        (point(0.0, 2.125), 0.0),
        (point(0.5, 0.5), 3.75),
        (point(0.25, 1.0), 5.0),
        (point(1.5, 1.5), 8.0),
    ];
    let (boxes, want): (Vec<[f32; 5]>, Vec<f32>) = all.into_iter().unzip();
    for dtype in [DType::F32, DType::F16] {
        let (got, _) = check(&rig, &shape, GatherScatter::Gather, dtype, &boxes, &x)?;
        same_bits("points around an image", &got, &want)?;
    }
    Ok(vec![])
}

/// ⟨scatter(d), x⟩ = ⟨d, gather(x)⟩, in eighths and integers, so that all is exact.
fn adjoint<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let shape = Shape { x: [2, 6, 7, 9], bins: [2, 2], scale: 0.5, samples: 2 };
    let mut random = Random(5);
    let mut boxes = || {
        let mut eighth = || random.below(32) as f32 / 2.0 - 2.0;
        // Bins have size four, so that sample points are at multiples of 1/8.
        let (left, top) = (eighth(), eighth());
        [random.below(2) as f32, left, top, left + 8.0, top + 4.0]
    };
    let boxes: Vec<[f32; 5]> = (0..20).map(|_| boxes()).collect();
    let mut random = Random(6);
    let [x, d] = WAYS.map(|way| random.many(inputs(&shape, way, boxes.len()), |random| random.integer(9)));
    let (bins, _) = check(&rig, &shape, GatherScatter::Gather, DType::F16, &boxes, &x)?;
    let (images, _) = check(&rig, &shape, GatherScatter::Scatter, DType::F16, &boxes, &d)?;
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    let (left, right) = (dot(&images, &x), dot(&d, &bins));
    if left != right || left == 0.0 {
        return Err(Fail::new(format!("scattered {left}, gathered {right}")));
    }
    Ok(vec![])
}

/// Boxes of images that do not exist, and boxes with NaN: their results are zeros, and they propagate no gradient.
fn no_image<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let shape = Shape { x: [2, 3, 3, 2], bins: [2, 2], scale: 1.0, samples: 2 };
    let none = [2.0, -1.0, 1e30, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let mut boxes: Vec<[f32; 5]> = none.iter().map(|&image| [image, 0.0, 0.0, 3.0, 3.0]).collect();
    boxes.push([0.0, f32::NAN, f32::NAN, f32::NAN, f32::NAN]);
    boxes.push([0.0, 0.0, f32::NAN, 3.0, 2.0]);
    for way in WAYS {
        let x = vec![1.0; inputs(&shape, way, boxes.len())];
        let (got, _) = check(&rig, &shape, way, DType::F32, &boxes, &x)?;
        same_bits(&format!("{way:?} of no image"), &got, &vec![0.0; got.len()])?;
    }
    Ok(vec![])
}

fn stores<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let shape = Shape { x: [2, 9, 11, 12], bins: [5, 6], scale: 0.5, samples: 2 };
    let mut random = Random(7);
    let boxes = around(&mut random, &shape, 7);
    let p = shape.build(boxes.len())?;
    let numbers = rig.padded(DType::F32, boxes.as_flattened())?;
    for (way, len) in [(GatherScatter::Gather, 7 * 30 * 12), (GatherScatter::Scatter, 2 * 99 * 12)] {
        let x = random.many(inputs(&shape, way, boxes.len()), |random| random.normal() * 1e-2);
        let x = rig.padded(DType::F16, &x)?;
        epilogue::check(&mut rig, len, |b, y| b.launch(Launch::RoiAlign { p, way, x: &x, boxes: &numbers, y }))?;
    }
    Ok(vec![])
}

fn any_boxes<B: Backend>(b: &B) -> Check {
    let sizes = (1..4u32, 1..8u32, 1..8u32, 1..10u32);
    let way = prop::sample::select(WAYS.to_vec());
    property(
        &(sizes, 1..4u32, 1..4u32, 1..3u32, 0..6usize, way, any::<u32>()),
        |((n, h, w, c), r, s, samples, count, way, seed)| {
            let rig = Rig::new(b)?;
            let shape = Shape { x: [n, h, w, c], bins: [r, s], scale: 0.5, samples };
            let mut random = Random(seed.into());
            let boxes = around(&mut random, &shape, count);
            if on_the_edge(&shape, &boxes) {
                return Ok(vec![]);
            }
            let x = random.many(inputs(&shape, way, count), Random::normal);
            let (got, want) = check(&rig, &shape, way, DType::F32, &boxes, &x)?;
            Ok(vec![compare("roi_align", DType::F32, &b.caps(), &got, &want)?])
        },
    )
}
