//! RoIAlign: boxes of images, resampled to one size by bilinear interpolation.

use crate::{Cpu, Memory, elementwise::load_f32, threading::Cost};
use gradscale_core::{
    backend::Store,
    ops::{GatherScatter, RoiAlign},
};

/// Positions of x that a box samples along an axis, each with its bin and its weight.
type Points = Vec<(usize, usize, f32)>;

/// Region of interest of RoIAlign: an image, and the sampled positions.
struct RoiBox {
    image: usize,
    /// Sampled positions along the rows, and along the columns.
    points: [Points; 2],
}

/// Reads the boxes of RoIAlign from their buffer; `None` for a box without an image.
fn parse_boxes(p: &RoiAlign, boxes: &Memory) -> Vec<Option<RoiBox>> {
    let Memory::F32(numbers) = boxes else { panic!("boxes are F32") };
    let [count, rows, columns, _] = p.y();
    let along = |axis: usize, bins: u32, ends: [f32; 2]| -> Points {
        let points = (0..bins).flat_map(|bin| (0..p.samples()).map(move |sample| (bin, sample)));
        let shares = points.filter_map(|(bin, sample)| p.point(axis, ends, bin, sample).map(|two| (bin, two)));
        shares.flat_map(|(bin, two)| two.map(|(place, share)| (bin as usize, place as usize, share))).collect()
    };
    let (numbers, _) = numbers.as_chunks();
    let parse = |&[image, left, top, right, bottom]: &[f32; 5]| {
        let image = p.image(image)? as usize;
        Some(RoiBox { image, points: [along(0, rows, [top, bottom]), along(1, columns, [left, right])] })
    };
    numbers.iter().take(count as usize).map(parse).collect()
}

impl Cpu {
    pub(crate) fn run_roi_align(
        &self, p: &RoiAlign, way: GatherScatter, x: &Memory, numbers: &Memory, y: Store<'_, Self>,
    ) {
        let boxes = parse_boxes(p, numbers);
        let [images, height, width, channels] = p.x().map(|size| size as usize);
        let [count, rows, columns, _] = p.y().map(|size| size as usize);
        let points = (p.samples() * p.samples()) as f32;
        // Each point is a mean of four.
        let cost = Cost::elements(4 * count * rows * columns * channels * (p.samples() * p.samples()) as usize);
        // Terms of a row of the result: positions of x, positions in the row, and their weights.
        match way {
            GatherScatter::Gather => self.store_rows([count * rows, columns, channels], None, cost, y, || {
                let (mut values, boxes) = (self.workspace(channels), &boxes);
                move |row, sums: &mut [f32]| {
                    sums.fill(0.0);
                    let Some(roi) = &boxes[row / rows] else { return };
                    for &(_, u, down) in roi.points[0].iter().filter(|(bin, ..)| *bin == row % rows) {
                        for &(bin, v, right) in &roi.points[1] {
                            load_f32(self.isa(), x, ((roi.image * height + u) * width + v) * channels, &mut values);
                            add_weighted(&mut sums[bin * channels..], &values, down * right);
                        }
                    }
                    sums.iter_mut().for_each(|sum| *sum /= points);
                }
            }),
            GatherScatter::Scatter => self.store_rows([images * height, width, channels], None, cost, y, || {
                let (mut values, boxes) = (self.workspace(channels), &boxes);
                move |row, sums: &mut [f32]| {
                    sums.fill(0.0);
                    for (i, roi) in boxes.iter().enumerate() {
                        let Some(roi) = roi.as_ref().filter(|roi| roi.image == row / height) else { continue };
                        for &(r, _, down) in roi.points[0].iter().filter(|(_, u, _)| *u == row % height) {
                            for &(bin, v, right) in &roi.points[1] {
                                load_f32(self.isa(), x, ((i * rows + r) * columns + bin) * channels, &mut values);
                                add_weighted(&mut sums[v * channels..], &values, down * right);
                            }
                        }
                    }
                    sums.iter_mut().for_each(|sum| *sum /= points);
                }
            }),
        }
    }
}

fn add_weighted(sums: &mut [f32], values: &[f32], share: f32) {
    sums.iter_mut().zip(values).for_each(|(sum, &v)| *sum += share * v);
}
