//! RoI max pooling: the largest value of each bin of a box.

use crate::{Cpu, Memory, elementwise::load_f32, threading::Cost};
use gradscale_core::{backend::Store, ops::RoiPool};
use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

/// Region of interest of RoI max pooling: an image, and the positions of its bins.
struct RoiBox {
    image: usize,
    /// Range of rows of x of each row of bins, and range of columns of each column of bins.
    places: [Vec<Range<u32>>; 2],
}

/// Reads the boxes of RoI max pooling from their buffer; `None` for a box without an image.
fn parse_boxes(p: &RoiPool, boxes: &Memory) -> Vec<Option<RoiBox>> {
    let Memory::F32(numbers) = boxes else { panic!("boxes are F32") };
    let [count, rows, columns, _] = p.y();
    let along = |axis: usize, bins: u32, ends: [f32; 2]| (0..bins).map(|bin| p.places(axis, ends, bin)).collect();
    let parse = |numbers: &[f32; 5]| {
        let [_, left, top, right, bottom] = *numbers;
        let image = p.image(numbers)? as usize;
        Some(RoiBox { image, places: [along(0, rows, [top, bottom]), along(1, columns, [left, right])] })
    };
    numbers.as_chunks().0.iter().take(count as usize).map(parse).collect()
}

/// Returns the cost of RoI max pooling: each position of each bin is read.
fn pool_cost(boxes: &[Option<RoiBox>], channels: usize) -> Cost {
    let along = |places: &[Range<u32>]| places.iter().map(ExactSizeIterator::len).sum::<usize>();
    Cost::elements(boxes.iter().flatten().map(|roi| along(&roi.places[0]) * along(&roi.places[1]) * channels).sum())
}

impl Cpu {
    pub(crate) fn run_roi_pool(&self, p: &RoiPool, x: &Memory, numbers: &Memory, at: &mut Memory, y: Store<'_, Self>) {
        let boxes = parse_boxes(p, numbers);
        let [_, height, width, channels] = p.x().map(|size| size as usize);
        let [count, rows, columns, _] = p.y().map(|size| size as usize);
        let Memory::U32(at) = at else { panic!("places are U32") };
        let at: Vec<Mutex<&mut [u32]>> = at.chunks_mut((columns * channels).max(1)).map(Mutex::new).collect();
        self.store_rows([count * rows, columns, channels], None, pool_cost(&boxes, channels), y, || {
            let (mut values, boxes, at) = (self.workspace(channels), &boxes, &at);
            move |row, best: &mut [f32]| {
                let mut at = at[row].lock().unwrap_or_else(PoisonError::into_inner);
                best.fill(0.0);
                at[..best.len()].fill(RoiPool::NO_POSITION);
                let Some(roi) = boxes[row / rows].as_ref().filter(|_| channels != 0) else { return };
                let bins = best.chunks_exact_mut(channels).zip(at.chunks_exact_mut(channels));
                for ((best, at), along) in bins.zip(&roi.places[1]) {
                    for (u, v) in roi.places[0][row % rows].clone().flat_map(|u| along.clone().map(move |v| (u, v))) {
                        let place = u * p.x()[2] + v;
                        load_f32(self.isa(), x, (roi.image * height * width + place as usize) * channels, &mut values);
                        keep_largest(best, at, &values, place);
                    }
                }
            }
        });
    }

    pub(crate) fn run_roi_unpool(&self, p: &RoiPool, x: &Memory, numbers: &Memory, at: &Memory, y: Store<'_, Self>) {
        let boxes = parse_boxes(p, numbers);
        let [images, height, width, channels] = p.x().map(|size| size as usize);
        let [_, rows, columns, _] = p.y().map(|size| size as usize);
        let Memory::U32(at) = at else { panic!("places are U32") };
        self.store_rows([images * height, width, channels], None, pool_cost(&boxes, channels), y, || {
            let (mut values, boxes) = (self.workspace(columns * channels), &boxes);
            move |row, sums: &mut [f32]| {
                let (image, u) = (row / height, row % height);
                sums.fill(0.0);
                let covers_row = |places: &Range<u32>| (places.start as usize..places.end as usize).contains(&u);
                for (k, roi) in boxes.iter().enumerate() {
                    let Some(roi) = roi.as_ref().filter(|roi| roi.image == image) else { continue };
                    for r in (0..rows).filter(|&r| covers_row(&roi.places[0][r])) {
                        let start = (k * rows + r) * values.len();
                        load_f32(self.isa(), x, start, &mut values);
                        for (i, (&place, &value)) in at[start..].iter().zip(&*values).enumerate() {
                            // Positions in other rows are too small or, by wrapping, too large.
                            let v = (place as usize).wrapping_sub(u * width);
                            if v < width {
                                sums[v * channels + i % channels] += value;
                            }
                        }
                    }
                }
            }
        });
    }
}

/// Keeps the larger values, the first NaN, and of equal values the first.
fn keep_largest(best: &mut [f32], at: &mut [u32], values: &[f32], place: u32) {
    for ((best, at), &value) in best.iter_mut().zip(at).zip(values) {
        let wins = *at == RoiPool::NO_POSITION || value > *best || (value.is_nan() && !best.is_nan());
        *best = if wins { value } else { *best };
        *at = if wins { place } else { *at };
    }
}
