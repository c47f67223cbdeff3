//! Pooling and unpooling, one row of the result at a time.

use crate::{Cpu, Memory, elementwise::load};
use gradscale_core::{
    backend::Store,
    descriptor::{Pool, PoolOp, Way},
};
use std::sync::Mutex;

/// The numbers of a pooling, as usize.
struct Shape {
    x: [usize; 4],
    y: [usize; 4],
    window: [usize; 2],
    stride: [usize; 2],
    pad: [usize; 2],
    max: bool,
}

impl Shape {
    fn of(p: &Pool) -> Self {
        Self {
            x: p.x().map(|size| size as usize),
            y: p.y().map(|size| size as usize),
            window: p.window().map(|size| size as usize),
            stride: p.strides().map(|size| size as usize),
            pad: p.padding().map(|size| size as usize),
            max: p.op() == PoolOp::Max,
        }
    }

    /// The place along an axis of window `p`, offset `i`.
    fn place(&self, axis: usize, p: usize, i: usize) -> Option<usize> {
        (p * self.stride[axis] + i).checked_sub(self.pad[axis]).filter(|&at| at < self.x[1 + axis])
    }

    /// The windows along an axis that reach place `at`, with the offset at which they do.
    fn windows(&self, axis: usize, at: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let end = at + self.pad[axis];
        let first = (end + 1).saturating_sub(self.window[axis]).div_ceil(self.stride[axis]);
        let last = (end / self.stride[axis] + 1).min(self.y[1 + axis]);
        (first..last).map(move |p| (p, end - p * self.stride[axis]))
    }

    fn area(&self) -> f32 {
        (self.window[0] * self.window[1]) as f32
    }
}

impl Cpu {
    pub(crate) fn run_pool(&self, p: &Pool, x: &Memory, at: Option<&mut Memory>, y: Store<'_, Self>) {
        let shape = Shape::of(p);
        let [images, rows, pixels, channels] = shape.y;
        let at: Option<Vec<Mutex<&mut [u8]>>> = at.map(|at| match at {
            Memory::U8(at) => at.chunks_mut((pixels * channels).max(1)).map(Mutex::new).collect(),
            _ => panic!("pooling offsets are U8"),
        });
        self.rows_of([images * rows, pixels, channels], None, y, |row, best| {
            let (image, p) = (row / rows, row % rows);
            let mut unused = Vec::new();
            let mut guard = at.as_ref().map(|at| at[row].lock().unwrap_or_else(std::sync::PoisonError::into_inner));
            let at = match &mut guard {
                Some(at) => &mut at[..best.len()],
                None => {
                    unused.resize(best.len(), 0);
                    &mut unused[..]
                }
            };
            let mut seen = vec![false; pixels];
            let mut line = self.scratch(shape.x[2] * channels);
            for i in 0..shape.window[0] {
                let Some(u) = shape.place(0, p, i) else { continue };
                load(self.isa(), x, (image * shape.x[1] + u) * line.len(), &mut line);
                for (q, seen) in seen.iter_mut().enumerate() {
                    let here = q * channels..(q + 1) * channels;
                    for j in 0..shape.window[1] {
                        let Some(v) = shape.place(1, q, j) else { continue };
                        let values = &line[v * channels..(v + 1) * channels];
                        let (best, at) = (&mut best[here.clone()], &mut at[here.clone()]);
                        if !shape.max {
                            best.iter_mut().zip(values).for_each(|(sum, &v)| *sum += v);
                            continue;
                        }
                        // A window of at most 256 places.
                        let [offset, ..] = (i * shape.window[1] + j).to_le_bytes();
                        for ((best, at), &v) in best.iter_mut().zip(at).zip(values) {
                            if !*seen || v > *best || v.is_nan() && !best.is_nan() {
                                (*best, *at) = (v, offset);
                            }
                        }
                        *seen = true;
                    }
                }
            }
            if !shape.max {
                best.iter_mut().for_each(|sum| *sum /= shape.area());
            }
        });
    }

    pub(crate) fn run_unpool(&self, p: &Pool, way: Way, x: &Memory, at: Option<&Memory>, y: Store<'_, Self>) {
        let shape = Shape::of(p);
        let at = match (at, shape.max) {
            (Some(Memory::U8(at)), true) => Some(&at[..]),
            (_, false) => None,
            _ => panic!("unpooling needs U8 offsets"),
        };
        match (way, at) {
            (Way::Scatter, at) => {
                let result = [shape.x[0] * shape.x[1], shape.x[2], shape.x[3]];
                self.rows_of(result, None, y, |row, sums| self.scatter(&shape, x, at, row, sums));
            }
            (Way::Gather, Some(at)) => {
                let result = [shape.y[0] * shape.y[1], shape.y[2], shape.y[3]];
                self.rows_of(result, None, y, |row, values| gather(&shape, x, at, row, values));
            }
            (Way::Gather, None) => self.run_pool(p, x, None, y),
        }
    }

    /// Row `row` of the unpooled tensor: what the windows over it send there, in their order.
    fn scatter(&self, shape: &Shape, x: &Memory, at: Option<&[u8]>, row: usize, sums: &mut [f32]) {
        let (image, u, channels) = (row / shape.x[1], row % shape.x[1], shape.x[3]);
        let mut line = self.scratch(shape.y[2] * channels);
        for (p, i) in shape.windows(0, u) {
            let start = (image * shape.y[1] + p) * line.len();
            load(self.isa(), x, start, &mut line);
            for (q, values) in line.chunks_exact(channels.max(1)).enumerate() {
                for j in 0..shape.window[1] {
                    let Some(v) = shape.place(1, q, j) else { continue };
                    let sums = &mut sums[v * channels..(v + 1) * channels];
                    match at {
                        None => sums.iter_mut().zip(values).for_each(|(sum, &v)| *sum += v / shape.area()),
                        Some(at) => {
                            let at = &at[start + q * channels..start + (q + 1) * channels];
                            let offset = i * shape.window[1] + j;
                            for ((sum, &v), &at) in sums.iter_mut().zip(values).zip(at) {
                                // A select: the value may be ∞ where it does not belong.
                                *sum += if usize::from(at) == offset { v } else { 0.0 };
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Row `row` of the pooled tensor, from the places that were chosen.
fn gather(shape: &Shape, x: &Memory, at: &[u8], row: usize, values: &mut [f32]) {
    let (image, p, channels) = (row / shape.y[1], row % shape.y[1], shape.y[3]);
    let at = &at[row * values.len()..(row + 1) * values.len()];
    for (i, (value, &at)) in values.iter_mut().zip(at).enumerate() {
        let (q, c, at) = (i / channels, i % channels, usize::from(at));
        let places = (shape.place(0, p, at / shape.window[1]), shape.place(1, q, at % shape.window[1]));
        if let (Some(u), Some(v)) = places {
            *value = x.get(((image * shape.x[1] + u) * shape.x[2] + v) * channels + c);
        }
    }
}
