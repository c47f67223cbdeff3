//! Pooling and its gradient, one row of the result at a time.

use crate::{Cpu, Memory, arch::RowWindows, elementwise::load_f32, threading::Cost};
use gradscale_core::{
    backend::Store,
    ops::{GatherScatter, Pool, PoolOp},
};
use std::sync::Mutex;

/// Sizes of a pooling operator as usize: shapes, window, stride, padding.
#[derive(Clone, Copy)]
struct PoolShape {
    x: [usize; 4],
    y: [usize; 4],
    window: [usize; 2],
    stride: [usize; 2],
    pad: [usize; 2],
    max: bool,
}

impl PoolShape {
    fn new(p: &Pool) -> Self {
        Self {
            x: p.x().map(|size| size as usize),
            y: p.y().map(|size| size as usize),
            window: p.window().map(|size| size as usize),
            stride: p.strides().map(|size| size as usize),
            pad: p.padding().map(|size| size as usize),
            max: p.op() == PoolOp::Max,
        }
    }

    /// Returns the coordinate in x along an axis of window `p`, offset `i`.
    fn input_coord(&self, axis: usize, p: usize, i: usize) -> Option<usize> {
        (p * self.stride[axis] + i).checked_sub(self.pad[axis]).filter(|&at| at < self.x[1 + axis])
    }

    /// Returns the windows along an axis that contain coordinate `at`, with its offset in each.
    fn windows_over(&self, axis: usize, at: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let end = at + self.pad[axis];
        let first = (end + 1).saturating_sub(self.window[axis]).div_ceil(self.stride[axis]);
        let last = (end / self.stride[axis] + 1).min(self.y[1 + axis]);
        (first..last).map(move |p| (p, end - p * self.stride[axis]))
    }

    /// Returns the geometry of the windows along a row of x, for row `i` of each window.
    const fn row_windows(&self, i: usize) -> RowWindows {
        let [channels, window, stride, pad] = [self.x[3], self.window[1], self.stride[1], self.pad[1]];
        RowWindows { channels, window, stride, pad, offset: i * window }
    }

    /// Returns the cost of the pooling: each window reads all its positions.
    fn cost(&self) -> Cost {
        Cost::elements(self.y.iter().chain(&self.window).product())
    }

    /// Returns the number of positions of a window, as f32.
    fn area(&self) -> f32 {
        (self.window[0] * self.window[1]) as f32
    }
}

impl Cpu {
    pub(crate) fn run_pool(&self, p: &Pool, x: &Memory, at: Option<&mut Memory>, y: Store<'_, Self>) {
        let shape = PoolShape::new(p);
        let [images, rows, pixels, channels] = shape.y;
        let result = [images * rows, pixels, channels];
        let cost = shape.cost();
        if !shape.max {
            return self.store_rows(result, None, cost, y, || {
                let mut input_row = self.workspace(shape.x[2] * channels);
                move |row, sums: &mut [f32]| self.average_row(&shape, x, row, &mut input_row, sums)
            });
        }
        let at: Option<Vec<Mutex<&mut [u8]>>> = at.map(|at| match at {
            Memory::U8(at) => at.chunks_mut((pixels * channels).max(1)).map(Mutex::new).collect(),
            _ => panic!("pooling offsets are U8"),
        });
        self.store_rows(result, None, cost, y, || {
            let (mut input_row, mut scratch_offsets) =
                (self.workspace(shape.x[2] * channels), vec![0; pixels * channels]);
            let at = &at;
            move |row, best: &mut [f32]| {
                let (image, p) = (row / rows, row % rows);
                let mut guard = at.as_ref().map(|at| at[row].lock().unwrap_or_else(std::sync::PoisonError::into_inner));
                let at = guard.as_deref_mut().map_or(&mut scratch_offsets[..], |at| &mut at[..best.len()]);
                best.fill(f32::NEG_INFINITY);
                at.fill(u8::MAX);
                for i in 0..shape.window[0] {
                    if let (Some(u), true) = (shape.input_coord(0, p, i), channels != 0) {
                        load_f32(self.isa(), x, (image * shape.x[1] + u) * input_row.len(), &mut input_row);
                        self.isa().max_pool_row(&input_row, best, at, shape.row_windows(i));
                    }
                }
            }
        });
    }

    /// Computes row `row` of the means of an average pooling.
    fn average_row(&self, shape: &PoolShape, x: &Memory, row: usize, input_row: &mut [f32], sums: &mut [f32]) {
        let (image, p, channels) = (row / shape.y[1], row % shape.y[1], shape.x[3]);
        sums.fill(0.0);
        for u in (0..shape.window[0]).filter_map(|i| shape.input_coord(0, p, i)) {
            load_f32(self.isa(), x, (image * shape.x[1] + u) * input_row.len(), input_row);
            for (q, sums) in sums.chunks_exact_mut(channels.max(1)).enumerate() {
                for v in (0..shape.window[1]).filter_map(|j| shape.input_coord(1, q, j)) {
                    sums.iter_mut().zip(&input_row[v * channels..]).for_each(|(sum, &v)| *sum += v);
                }
            }
        }
        sums.iter_mut().for_each(|sum| *sum /= shape.area());
    }

    pub(crate) fn run_unpool(&self, p: &Pool, way: GatherScatter, x: &Memory, at: Option<&Memory>, y: Store<'_, Self>) {
        let shape = PoolShape::new(p);
        let at = match (at, shape.max) {
            (Some(Memory::U8(at)), true) => Some(&at[..]),
            (_, false) => None,
            _ => panic!("unpooling needs U8 offsets"),
        };
        let cost = shape.cost();
        match (way, at) {
            (GatherScatter::Scatter, at) => {
                let result = [shape.x[0] * shape.x[1], shape.x[2], shape.x[3]];
                self.store_rows(result, None, cost, y, || {
                    let mut input_row = self.workspace(shape.y[2] * shape.x[3]);
                    move |row, sums: &mut [f32]| self.unpool_row(&shape, x, at, row, &mut input_row, sums)
                });
            }
            (GatherScatter::Gather, Some(at)) => {
                let result = [shape.y[0] * shape.y[1], shape.y[2], shape.y[3]];
                self.store_rows(result, None, cost, y, || {
                    let mut input_row = self.workspace(shape.x[2] * shape.x[3]);
                    move |row, values: &mut [f32]| self.gather_pooled_row(&shape, x, at, row, &mut input_row, values)
                });
            }
            (GatherScatter::Gather, None) => self.run_pool(p, x, None, y),
        }
    }

    /// Computes row `row` of the unpooled tensor: the sum over all windows that contain it, in order.
    fn unpool_row(
        &self, shape: &PoolShape, x: &Memory, at: Option<&[u8]>, row: usize, input_row: &mut [f32], sums: &mut [f32],
    ) {
        let (image, u, channels) = (row / shape.x[1], row % shape.x[1], shape.x[3]);
        sums.fill(0.0);
        if channels == 0 {
            return;
        }
        for (p, i) in shape.windows_over(0, u) {
            let start = (image * shape.y[1] + p) * input_row.len();
            load_f32(self.isa(), x, start, input_row);
            if let Some(at) = at {
                self.isa().scatter_row(input_row, &at[start..start + input_row.len()], sums, shape.row_windows(i));
                continue;
            }
            for (q, values) in input_row.chunks_exact(channels).enumerate() {
                for v in (0..shape.window[1]).filter_map(|j| shape.input_coord(1, q, j)) {
                    let sums = &mut sums[v * channels..(v + 1) * channels];
                    sums.iter_mut().zip(values).for_each(|(sum, &v)| *sum += v / shape.area());
                }
            }
        }
    }

    /// Computes row `row` of the pooled tensor from the chosen positions of each window.
    fn gather_pooled_row(
        &self, shape: &PoolShape, x: &Memory, at: &[u8], row: usize, input_row: &mut [f32], values: &mut [f32],
    ) {
        let (image, p, channels) = (row / shape.y[1], row % shape.y[1], shape.x[3]);
        let at = &at[row * values.len()..(row + 1) * values.len()];
        values.fill(0.0);
        for i in 0..shape.window[0] {
            if let (Some(u), true) = (shape.input_coord(0, p, i), channels != 0) {
                load_f32(self.isa(), x, (image * shape.x[1] + u) * input_row.len(), input_row);
                self.isa().gather_row(input_row, at, values, shape.row_windows(i));
            }
        }
    }
}
