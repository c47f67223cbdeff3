//! Normalisations.

mod rows;
mod shape;
mod sums;

use crate::{Cpu, Memory, channels::Pattern, elementwise::load};
use gradscale_core::{
    backend::{NormSaved, Store},
    ops::Norm,
};
use rows::Rows;
use shape::{Numbers, Shape};

impl Cpu {
    pub(crate) fn run_norm(
        &self, p: &Norm, x: &Memory, affine: Option<[&Memory; 2]>, saved: &mut Memory, y: Store<'_, Self>,
    ) {
        let (isa, shape, groups, n) = (self.isa(), Shape::of(p), p.groups() as usize, f64::from(p.size()));
        let ones = vec![1.0; shape.channels];
        let saved = &mut saved.f32_mut()[..2 * groups];
        let scale = affine.map_or(&ones[..], |[scale, _]| &scale.f32()[..shape.channels]);
        let zeros = vec![0.0; shape.channels];
        let shift = affine.map_or(&zeros[..], |[_, shift]| &shift.f32()[..shape.channels]);
        if let Some(rows) = Rows::of(p) {
            return self.norm_rows(rows, x, [scale, shift], saved, y);
        }
        if !p.is_given() {
            let (means, variances) = saved.split_at_mut(groups);
            means.fill(0.0);
            if p.is_centered() {
                self.sums(shape, &ones, |start, [values]| load(isa, x, start, values)).means(0, n, means);
            }
            let means = Numbers::new(shape, [means]);
            let distances = |start: usize, [values]: &mut [&mut [f32]; 1]| {
                load(isa, x, start, values);
                means.each(start, values.len(), |range, [means]| isa.squared_distances(&mut values[range], means));
            };
            self.sums(shape, &ones, distances).means(0, n, variances);
        }
        let (means, inverses) = (&saved[..groups], inverses(&saved[groups..], p.eps()));
        let numbers = Numbers::new(shape, [means, &inverses]);
        let [scale, shift] = [scale, shift].map(Pattern::new);
        self.dense(y, shape.len(), |start, [out]| {
            load(isa, x, start, out);
            numbers.each(start, out.len(), |range, [means, inverses]| {
                let (scale, shift) = (scale.from(start + range.start), shift.from(start + range.start));
                isa.normalise(&mut out[range], [means, inverses, scale, shift]);
            });
        });
    }

    pub(crate) fn run_norm_vjp(
        &self, p: &Norm, x: NormSaved<&Memory>, dy: &Memory, dx: Store<'_, Self>, affine: Option<[Store<'_, Self>; 2]>,
    ) {
        let channels = p.x()[3] as usize;
        let scale = x.weight.map_or(vec![1.0; channels], |scale| scale.f32()[..channels].to_vec());
        let sums = match Rows::of(p) {
            Some(rows) => self.norm_rows_vjp(rows, x, dy, dx, &scale, affine.is_some()),
            None => self.norm_images_vjp(p, x, dy, dx, &scale),
        };
        if let Some([scale, shift]) = affine {
            // dscale = Σ dy · x̂, dshift = Σ dy, over everything.
            for (store, which) in [(scale, 1), (shift, 0)] {
                #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
                let totals: Vec<f32> = sums[which].iter().map(|&sum| sum as f32).collect();
                self.dense(store, channels, |start, [out]| out.copy_from_slice(&totals[start..start + out.len()]));
            }
        }
    }

    /// Stores the gradient; returns Σ dy and Σ dy · x̂ of each channel.
    fn norm_images_vjp(
        &self, p: &Norm, x: NormSaved<&Memory>, dy: &Memory, dx: Store<'_, Self>, scale: &[f32],
    ) -> [Vec<f64>; 2] {
        let (isa, shape, groups, n) = (self.isa(), Shape::of(p), p.groups() as usize, f64::from(p.size()));
        let saved = &x.saved.f32()[..2 * groups];
        let (means, inverses) = (&saved[..groups], inverses(&saved[groups..], p.eps()));
        let numbers = Numbers::new(shape, [means, &inverses]);
        // Σ dy and Σ dy · x̂.
        let sums = self.sums(shape, scale, |start, [plain, weighted]| {
            load(isa, dy, start, plain);
            load(isa, x.x, start, weighted);
            numbers.each(start, plain.len(), |range, numbers| {
                isa.weigh(&mut weighted[range.clone()], &plain[range], numbers);
            });
        });
        let (mut plain, mut weighted) = (vec![0f32; groups], vec![0f32; groups]);
        if !p.is_given() {
            if p.is_centered() {
                sums.means(0, n, &mut plain);
            }
            sums.means(1, n, &mut weighted);
        }
        let numbers = Numbers::new(shape, [means, &inverses, &plain, &weighted]);
        let scale = Pattern::new(scale);
        self.dense(dx, shape.len(), |start, [out, values]| {
            load(isa, dy, start, out);
            load(isa, x.x, start, values);
            numbers.each(start, out.len(), |range, [means, inverses, plain, weighted]| {
                let scale = scale.from(start + range.start);
                let numbers = [means, inverses, scale, plain, weighted];
                isa.normalise_vjp(&mut out[range.clone()], &values[range], numbers);
            });
        });
        sums.channels
    }
}

fn inverses(variances: &[f32], eps: f32) -> Vec<f32> {
    variances.iter().map(|&variance| 1.0 / (variance + eps).sqrt()).collect()
}
