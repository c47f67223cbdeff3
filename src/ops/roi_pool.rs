//! RoI max pooling: boxes of images, with the maximum of each bin.

#[cfg(feature = "onnx")]
use super::roi_align::{Boxes, zero_elsewhere};
#[cfg(feature = "onnx")]
use crate::onnx::{FLOAT, Is, Writer};
use crate::{
    Shape, TraceError, Var,
    graph::{Context, Gradient, Operation, Operator, ScaleRule, input, mismatch, size},
};
use gradscale_core::{
    backend::DType,
    ops::{ActivationFlow, Op, RoiPool},
};

impl<'t> Var<'t> {
    /// Applies RoI max pooling (Girshick 2015): the maximum of each of `bins` rows and columns of boxes of the images
    /// `[n, h, w, c]`, `[boxes, rows, columns, c]`, like torchvision's `roi_pool`. [`RoiPool`] describes the rounding
    /// of corners.
    ///
    /// Boxes are f32 `[boxes, 5]`: image number, then left, top, right and bottom. Multiplied by `scale` these are
    /// pixels of x; for example, the features of a network that halves four times have a scale of 1/16. A box with an
    /// invalid image number gives zeros, and so does a bin outside the image. Boxes have no gradient.
    ///
    /// # Errors
    /// Boxes of another shape, a scale that is not positive, or more than 1024 bins along an axis.
    pub fn roi_pool(self, boxes: Self, bins: [u32; 2], scale: f32) -> Self {
        self.try_record(|| {
            let name = "roi_pool";
            let len = boxes.shape().len();
            let ([.., five], count) = (boxes.shape().sizes(), len / 5);
            if five != 5 || boxes.shape() != Shape::from([count, 5]) {
                return Err(mismatch(name, "boxes", boxes, [None, Some(1), Some(1), Some(5)]));
            }
            let p = RoiPool::new(self.sizes(name)?, size(name, count)?, bins, scale)
                .map_err(|error| input(name, error, self.shape()))?;
            let shape = Shape::from(p.y().map(|size| size as usize));
            Ok(self.record_op(name, Op::RoiPool, p, &[boxes], shape))
        })
    }
}

/// Impl of the RoI max pooling operator, with inputs x and boxes.
impl Operator for RoiPool {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (p, x) = (*self, at.read(0)?.buf);
        let boxes = at.read_single(1)?.buf;
        let indices = at.new_buffer(DType::U32, at.node.shape.len());
        at.save(indices);
        let indices = indices.buf;
        at.store(|y| Operation::RoiPool { p, x, boxes, indices, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let ([images, ..], [_, rows, columns, _]) = (self.x(), self.y());
        let x = at.first(0)?;
        let Boxes { corners, image, own } = Boxes::write(at, images)?;
        // ONNX's operator has both in one tensor.
        let image = at.emit("Cast", &[&image], &[("to", Is::Int(FLOAT))]);
        let image = at.reshape(&image, &[self.y()[0] as usize, 1]);
        let boxes = at.emit("Concat", &[&image, &corners], &[("axis", Is::Int(1))]);
        let size = [rows, columns].map(i64::from);
        let how = [("pooled_shape", Is::Ints(&size)), ("spatial_scale", Is::Float(self.scale()))];
        let y = at.emit("MaxRoiPool", &[&x, &boxes], &how);
        let y = zero_elsewhere(at, &own, &y);
        at.set_first_output(y);
        Ok(())
    }

    fn coordinates(&self) -> Option<usize> {
        Some(1)
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (p, x, boxes) = (*self, dy.value.buf, at.operand(1).buf);
        let Some(indices) = at.saved().map(|indices| indices.buf).filter(|_| at.needs_grad(0)) else { return Ok(()) };
        at.emit_gradient(0, dy, at.flow(), ScaleRule::FromValues, |y| Operation::RoiUnpool { p, x, boxes, indices, y })
    }
}
