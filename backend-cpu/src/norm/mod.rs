//! Batch, group and layer normalisation.

mod channel_sums;
mod operands;
mod rows;
mod shape;

use crate::{Cpu, Memory};
use gradscale_core::{
    backend::{NormSaved, Store},
    ops::Norm,
};
use operands::{Operands, with_operands};
use rows::RowNorm;
use shape::{ChannelParams, NormShape};

impl Cpu {
    pub(crate) fn run_norm(
        &self, p: &Norm, x: &Memory, affine: Option<[&Memory; 2]>, saved: &mut Memory, y: Store<'_, Self>,
    ) {
        let (isa, shape, groups, n) = (self.isa(), NormShape::new(p), p.groups() as usize, f64::from(p.size()));
        let ones = vec![1.0; shape.channels];
        let saved = &mut saved.f32_mut()[..2 * groups];
        let scale = affine.map_or(&ones[..], |[scale, _]| &scale.f32()[..shape.channels]);
        let zeros = vec![0.0; shape.channels];
        let shift = affine.map_or(&zeros[..], |[_, shift]| &shift.f32()[..shape.channels]);
        if let Some(rows) = RowNorm::from_norm(p) {
            return self.norm_rows(rows, x, [scale, shift], saved, y);
        }
        if !p.is_given() {
            let (means, variances) = saved.split_at_mut(groups);
            means.fill(0.0);
            if p.is_centered() {
                let sums = |start: usize, len: usize, [sums]: [&mut [f32]; 1]| {
                    with_operands!(Operands::new(self, [x], start, len), x => isa.add_by_channel(x[0], sums));
                };
                self.channel_sums(shape, &ones, sums).means(0, n, means);
            }
            let means = ChannelParams::new(shape, [means]);
            let distances = |start: usize, len: usize, [sums]: [&mut [f32]; 1]| {
                with_operands!(Operands::new(self, [x], start, len), x => {
                    means.for_each_range(start, len, |range, [means]| isa.add_squared_distances(&x[0][range], means, sums));
                });
            };
            self.channel_sums(shape, &ones, distances).means(0, n, variances);
        }
        let (means, inverses) = (&saved[..groups], inverses(&saved[groups..], p.eps()));
        let means = shape.map_channels(|group, _| means[group]);
        let factors = shape.map_channels(|group, channel| inverses[group] * scale[channel]);
        let shifts = shape.map_channels(|_, channel| shift[channel]);
        let channel_params = ChannelParams::new(shape.per_channel(), [&means, &factors, &shifts]);
        self.store_map(y, shape.len(), |start, [out]| {
            with_operands!(Operands::new(self, [x], start, out.len()), x => {
                channel_params.for_each_range(start, out.len(), |range, channel_params| {
                    isa.normalise(&x[0][range.clone()], channel_params, &mut out[range]);
                });
            });
        });
    }

    pub(crate) fn run_norm_vjp(
        &self, p: &Norm, x: NormSaved<&Memory>, dy: &Memory, dx: Store<'_, Self>, affine: Option<[Store<'_, Self>; 2]>,
    ) {
        let channels = p.x()[3] as usize;
        let scale = x.weight.map_or(vec![1.0; channels], |scale| scale.f32()[..channels].to_vec());
        let sums = match RowNorm::from_norm(p) {
            Some(rows) => self.norm_rows_vjp(rows, x, dy, dx, &scale),
            None => self.norm_images_vjp(p, x, dy, dx, &scale),
        };
        if let Some([scale, shift]) = affine {
            // dscale = Σ dy · x̂, dshift = Σ dy, over everything.
            for (store, which) in [(scale, 1), (shift, 0)] {
                #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
                let totals: Vec<f32> = sums[which].iter().map(|&sum| sum as f32).collect();
                self.store_map(store, channels, |start, [out]| out.copy_from_slice(&totals[start..start + out.len()]));
            }
        }
    }

    /// Stores the gradient of a normalisation of images, and returns Σ dy and Σ dy · x̂ of each channel.
    fn norm_images_vjp(
        &self, p: &Norm, x: NormSaved<&Memory>, dy: &Memory, dx: Store<'_, Self>, scale: &[f32],
    ) -> [Vec<f64>; 2] {
        let (isa, shape, groups, n) = (self.isa(), NormShape::new(p), p.groups() as usize, f64::from(p.size()));
        let saved = &x.saved.f32()[..2 * groups];
        let (means, inverses) = (&saved[..groups], inverses(&saved[groups..], p.eps()));
        let channel_params = ChannelParams::new(shape, [means, &inverses]);
        // Σ dy and Σ dy · x̂.
        let gradients = |start: usize, len: usize, [plain, weighted]: [&mut [f32]; 2]| {
            with_operands!(Operands::new(self, [x.x, dy], start, len), operands => {
                channel_params.for_each_range(start, len, |range, channel_params| {
                    let operands = operands.map(|operand| &operand[range.clone()]);
                    isa.add_gradients(operands, channel_params, [&mut *plain, &mut *weighted]);
                });
            });
        };
        let sums = self.channel_sums(shape, scale, gradients);
        let (mut plain, mut weighted) = (vec![0f32; groups], vec![0f32; groups]);
        if !p.is_given() {
            if p.is_centered() {
                sums.means(0, n, &mut plain);
            }
            sums.means(1, n, &mut weighted);
        }
        // (dy · scale − plain − x̂ · weighted) · inverse, with one factor for each term.
        let means = shape.map_channels(|group, _| means[group]);
        let factors = shape.map_channels(|group, channel| inverses[group] * scale[channel]);
        let plain = shape.map_channels(|group, _| inverses[group] * plain[group]);
        let weighted = shape.map_channels(|group, _| inverses[group] * inverses[group] * weighted[group]);
        let channel_params = ChannelParams::new(shape.per_channel(), [&means, &factors, &plain, &weighted]);
        self.store_map(dx, shape.len(), |start, [out]| {
            with_operands!(Operands::new(self, [x.x, dy], start, out.len()), operands => {
                channel_params.for_each_range(start, out.len(), |range, channel_params| {
                    let operands = operands.map(|operand| &operand[range.clone()]);
                    isa.normalise_vjp(operands, channel_params, &mut out[range]);
                });
            });
        });
        sums.channels
    }
}

fn inverses(variances: &[f32], eps: f32) -> Vec<f32> {
    variances.iter().map(|&variance| 1.0 / (variance + eps).sqrt()).collect()
}
