//! Resampling of images to another size.

use super::strides;
#[cfg(feature = "onnx")]
use crate::onnx::{Is, Writer};
use crate::{
    Shape, TraceError, Var,
    graph::{BufferId, Context, Gradient, Operation, Operator, ScaleRule, StoreSpec, size, sizes},
};
use gradscale_core::{
    backend::Slot,
    ops::{Dim, Gemm, GradientFlow, Op, Reduce, ReduceOp, ShapeError, Strided},
};

/// Operator that resamples images: a product with a constant matrix along each of two axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resample {
    weights: Weights,
    /// Height and width of the images before resampling.
    from: [u32; 2],
    /// Height and width of the images after resampling.
    to: [u32; 2],
}

/// Weights of the input positions for a position of the resampled image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weights {
    /// Linear interpolation of two neighbouring positions along an axis.
    Linear { align_corners: bool },
    /// Mean over a window of input positions.
    Mean,
}

impl Resample {
    /// Returns the matrix along axis 0 (h) or 1 (w), `[to, from]`; `None` if it is the identity.
    fn matrix(&self, axis: usize) -> Option<Vec<f32>> {
        let (from, to) = (self.from[axis], self.to[axis]);
        if from == to {
            return None;
        }
        let mut matrix = vec![0.0; from as usize * to as usize];
        for (row, at) in matrix.chunks_mut(from as usize).zip(0..to) {
            match self.weights {
                Weights::Linear { align_corners } => {
                    let (low, share) = neighbours(at, from, to, align_corners);
                    row[low] += 1.0 - share;
                    row[(low + 1).min(from as usize - 1)] += share;
                }
                Weights::Mean => {
                    let [start, end] = window(at, from, to);
                    row[start..end].fill(1.0 / (end - start) as f32);
                }
            }
        }
        Some(matrix)
    }
}

/// Returns the lower neighbour of position `at`, and the weight of the upper one. With `align_corners` pixels are
/// points of a grid between the corners; otherwise they are squares with their centres as points.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place inside the image")]
fn neighbours(at: u32, from: u32, to: u32, align_corners: bool) -> (usize, f32) {
    let (at, from, to) = (f64::from(at), f64::from(from), f64::from(to));
    let place = match align_corners {
        true if to > 1.0 => at * (from - 1.0) / (to - 1.0),
        true => 0.0,
        false => ((at + 0.5) * from / to - 0.5).max(0.0),
    };
    let low = place.floor().min(from - 1.0);
    (low as usize, (place - low) as f32)
}

/// Returns window `at` of `to` over `from` positions: from ⌊at·from/to⌋ to ⌈(at + 1)·from/to⌉, as in PyTorch.
fn window(at: u32, from: u32, to: u32) -> [usize; 2] {
    let [at, from, to] = [at, from, to].map(|size| size as usize);
    [at * from / to, ((at + 1) * from).div_ceil(to)]
}

impl<'t> Var<'t> {
    /// Upsamples by the nearest pixel: repeats each pixel `factor` times along h and w.
    ///
    /// # Errors
    /// A factor of 0, or too many elements.
    pub fn upsample_nearest(self, factor: [u32; 2]) -> Self {
        self.try_record(|| {
            let [n, h, w, c] = self.sizes("upsample")?;
            if factor.contains(&0) {
                return Err(TraceError::new("upsample", ShapeError::Window));
            }
            let too_large = || TraceError::new("upsample", ShapeError::TooLarge);
            let times = |size: u32, factor: u32| size.checked_mul(factor).ok_or_else(too_large);
            let shape = Shape::from([n, times(h, factor[0])?, times(w, factor[1])?, c].map(|size| size as usize));
            sizes("upsample", shape)?;
            Ok(if factor == [1, 1] {
                self
            } else {
                self.record_op("upsample", Op::Interpolate, Repeat(factor), &[], shape)
            })
        })
    }

    /// Resamples to height and width `size`, with linear interpolation between neighbours along h and w. With
    /// `align_corners` the ends of the grid are the centres of the corner pixels, otherwise their edges.
    ///
    /// ∞ or NaN in an image affects all of its pixels.
    ///
    /// # Errors
    /// A size of 0, an image without pixels, or too many elements.
    pub fn upsample_bilinear(self, size: [u32; 2], align_corners: bool) -> Self {
        self.resample("upsample", Op::Interpolate, Weights::Linear { align_corners }, size)
    }

    /// Applies average pooling to `size` windows, which overlap if `size` does not divide the image: window i of p over
    /// s pixels goes from ⌊i·s/p⌋ to ⌈(i + 1)·s/p⌉. `[1, 1]` is the mean of the image.
    ///
    /// # Errors
    /// A size of 0, an image without pixels, or too many elements.
    pub fn adaptive_average_pool(self, size: [u32; 2]) -> Self {
        self.try_record(|| {
            let [_, h, w, _] = self.sizes("average_pool")?;
            match [h.checked_rem(size[0]), w.checked_rem(size[1])] {
                [Some(0), Some(0)] if h != 0 && w != 0 => Ok(self.average_pool([h / size[0], w / size[1]])),
                _ => Ok(self.resample("average_pool", Op::AveragePool, Weights::Mean, size)),
            }
        })
    }

    /// Applies max pooling to `size` windows, which are those of [`Var::adaptive_average_pool`]; of several equal
    /// maxima the first is used.
    ///
    /// # Errors
    /// A size of 0, an image without pixels, or a window of more than 256.
    pub fn adaptive_max_pool(self, size: [u32; 2]) -> Self {
        self.try_record(|| {
            let [_, h, w, _] = self.sizes("max_pool")?;
            if size.contains(&0) || h == 0 || w == 0 {
                return Err(TraceError::new("max_pool", ShapeError::Window));
            }
            if h.is_multiple_of(size[0]) && w.is_multiple_of(size[1]) {
                return Ok(self.max_pool([h / size[0], w / size[1]]));
            }
            // Along w first, so that of several equal maxima the first in row-major order is used.
            Ok(self.largest(2, w, size[1]).largest(1, h, size[0]))
        })
    }

    /// Computes the maxima of `to` windows of x along one axis.
    fn largest(self, axis: usize, from: u32, to: u32) -> Self {
        self.try_record(|| {
            let pool = |var: Self, len: usize| {
                let len = size("max_pool", len)?;
                Ok(var.max_pool(if axis == 1 { [len, 1] } else { [1, len] }))
            };
            if from.is_multiple_of(to) {
                return if from == to { Ok(self) } else { pool(self, (from / to) as usize) };
            }
            let part = |at: u32| {
                let [start, end] = window(at, from, to);
                pool(self.slice(axis, start, end - start), end - start)
            };
            let parts = (0..to).map(part).collect::<Result<Vec<Self>, _>>()?;
            let (first, others) = parts.split_first().ok_or(TraceError::new("max_pool", ShapeError::Window))?;
            Ok(first.concat(others, axis))
        })
    }

    fn resample(self, kind: &'static str, op: Op, weights: Weights, to: [u32; 2]) -> Self {
        self.try_record(|| {
            let [n, h, w, c] = self.sizes(kind)?;
            if to.contains(&0) || h == 0 || w == 0 {
                return Err(TraceError::new(kind, ShapeError::Window));
            }
            let shape = Shape::from([n, to[0], to[1], c].map(|size| size as usize));
            // The shape between both products must fit, too.
            for of in [shape, Shape::from([n, to[0], w, c].map(|size| size as usize))] {
                sizes(kind, of)?;
            }
            for (from, to) in [(h, to[0]), (w, to[1])] {
                sizes(kind, Shape::from([from as usize, to as usize]))?;
            }
            let p = Resample { weights, from: [h, w], to };
            Ok(if p.from == p.to { self } else { self.record_op(kind, op, p, &[], shape) })
        })
    }
}

impl Operator for Resample {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let x = at.read(0)?.buf;
        let steps = self.steps(at, false)?;
        let Some((last, x)) = all_but_last(at, steps, x, Slot::ONE) else { return Ok(()) };
        at.store(|y| last.operation(x, y))
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (mut x, [n, _, _, c]) = (at.x(0)?, at.node().shape.sizes());
        let ([h, w], [down, right]) = (self.from.map(|size| size as usize), self.to.map(|size| size as usize));
        if let Some(matrix) = self.matrix(0) {
            let matrix = at.constant(&[down, h], &matrix);
            let rows = at.reshape(&x, &[n, h, w * c]);
            x = at.emit("MatMul", &[&matrix, &rows], &[]);
        }
        if let Some(matrix) = self.matrix(1) {
            let matrix = at.constant(&[right, w], &matrix);
            let columns = at.reshape(&x, &[n * down, w, c]);
            x = at.emit("MatMul", &[&matrix, &columns], &[]);
        }
        let y = at.reshape(&x, &[n, down, right, c]);
        at.set_output(y);
        Ok(())
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let steps = self.steps(at, true)?;
        let Some((last, x)) = all_but_last(at, steps, dy.value.buf, dy.slot) else { return Ok(()) };
        at.emit_gradient(0, dy, GradientFlow::Cast, ScaleRule::FromValues, |y| last.operation(x, y))
    }
}

impl Resample {
    /// Returns the products of the resampling, or those of its transpose: along h, then along w; in reverse order for
    /// the transpose.
    fn steps(&self, at: &mut Context<'_, '_, '_>, back: bool) -> Result<Vec<(ResampleStep, usize)>, TraceError> {
        let node = at.node;
        let [n, .., c] = node.sizes()?;
        let mut steps = Vec::new();
        for axis in [0, 1] {
            let Some(matrix) = self.matrix(axis) else { continue };
            let matrix = at.constant(matrix);
            // One product for each image, or for each row of each image with the new height.
            let (batch, inner) = if axis == 0 { (n, self.from[1] * c) } else { (n * self.to[0], c) };
            let (to, from) = (self.to[axis], self.from[axis]);
            let gemm = if back {
                Gemm::new(from, inner, to)
                    .and_then(|gemm| gemm.batched(batch, [0, to * inner, from * inner]))
                    .and_then(Gemm::transpose_a)
            } else {
                Gemm::new(to, inner, from).and_then(|gemm| gemm.batched(batch, [0, from * inner, to * inner]))
            };
            let len = batch as usize * inner as usize * if back { from } else { to } as usize;
            steps.push((ResampleStep::Product(gemm.map_err(|error| node.error(error))?, matrix), len));
        }
        if back {
            steps.reverse();
        }
        Ok(steps)
    }
}

/// Operator that repeats each pixel along height and width, by these factors.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Repeat([u32; 2]);

impl Operator for Repeat {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (node, x, [down, right]) = (at.node, at.read(0)?.buf, self.0);
        let from = self.from(at)?;
        let ([n, h, w, c], of_x, of_y) = (from, strides(from), strides(node.sizes()?));
        let dims = [
            Dim { len: n, x: of_x[0], y: of_y[0] },
            Dim { len: h, x: of_x[1], y: of_y[1] * i64::from(down) },
            Dim { len: down, x: 0, y: of_y[1] },
            Dim { len: w, x: of_x[2], y: of_y[2] * i64::from(right) },
            Dim { len: right, x: 0, y: of_y[2] },
            Dim { len: c, x: 1, y: 1 },
        ];
        let p = Strided::new(&dims, 0, 0).map_err(|error| node.error(error))?;
        at.store(|y| Operation::Copy { p, x, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let [down, right] = self.0;
        let scales = at.constant(&[4], &[1.0, 1.0, down as f32, right as f32]);
        let x = at.first(0)?;
        let how = [
            ("mode", Is::Text("nearest")),
            ("coordinate_transformation_mode", Is::Text("asymmetric")),
            ("nearest_mode", Is::Text("floor")),
        ];
        let y = at.emit("Resize", &[&x, "", &scales], &how);
        at.set_first_output(y);
        Ok(())
    }

    /// Emits the gradient of each pixel: the sum over its copies.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let [n, h, w, c] = self.from(at)?;
        let [down, right] = self.0;
        let mut steps = Vec::new();
        for (factor, outer, inner) in [(down, n * h, w * right * c), (right, n * h * w, c)] {
            if factor != 1 {
                let p = Reduce::new(ReduceOp::Sum, outer, factor, inner).map_err(|error| at.node.error(error))?;
                steps.push((ResampleStep::Sum(p), outer as usize * inner as usize));
            }
        }
        let Some((last, x)) = all_but_last(at, steps, dy.value.buf, dy.slot) else { return Ok(()) };
        at.emit_gradient(0, dy, GradientFlow::Cast, ScaleRule::FromValues, |y| last.operation(x, y))
    }
}

impl Repeat {
    fn from(self, at: &Context<'_, '_, '_>) -> Result<[u32; 4], TraceError> {
        sizes(&at.node.name, at.input(0))
    }
}

/// Step of a resampling: a product with a matrix, or a sum.
#[derive(Clone, Copy)]
enum ResampleStep {
    Product(Gemm, BufferId),
    Sum(Reduce),
}

impl ResampleStep {
    const fn operation(self, x: BufferId, y: StoreSpec) -> Operation {
        match self {
            Self::Product(p, matrix) => Operation::Gemm { p, a: matrix, b: x, bias: None, y },
            Self::Sum(p) => Operation::Reduce { p, x, y },
        }
    }
}

/// Emits all steps except the last, which the caller stores: returns that step and its input. `None` if there are no
/// steps.
fn all_but_last(
    at: &mut Context<'_, '_, '_>, mut steps: Vec<(ResampleStep, usize)>, from: BufferId, slot: Slot,
) -> Option<(ResampleStep, BufferId)> {
    let (last, _) = steps.pop()?;
    let all = steps.into_iter().fold(from, |x, (step, len)| at.emit_temporary(len, slot, |y| step.operation(x, y)));
    Some((last, all))
}
