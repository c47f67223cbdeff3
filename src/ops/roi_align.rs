//! RoIAlign: boxes of images, resampled to one size.

#[cfg(feature = "onnx")]
use crate::onnx::{INT64, Is, Writer};
use crate::{
    Shape, TraceError, Var,
    graph::{Context, Gradient, Operation, Operator, ScaleRule, input, mismatch, size},
};
use gradscale_core::ops::{ActivationFlow, GatherScatter, Op, RoiAlign};

impl<'t> Var<'t> {
    /// Applies RoIAlign (He et al. 2017): divides each box of the images `[n, h, w, c]` into `bins` rows and columns,
    /// `[boxes, rows, columns, c]`. A bin is the mean of `samples` × `samples` points, each interpolated between its
    /// four neighbours, like torchvision's `roi_align` with `aligned=True` and that `sampling_ratio`.
    ///
    /// Boxes are f32 `[boxes, 5]`: image number, then left, top, right and bottom. Multiplied by `scale` these are
    /// pixels of x; for example, the features of a network that halves four times have a scale of 1/16. A box with an
    /// invalid image number gives zeros. Boxes have no gradient.
    ///
    /// # Errors
    /// Boxes of another shape, a scale that is not positive, or no samples.
    pub fn roi_align(self, boxes: Self, bins: [u32; 2], scale: f32, samples: u32) -> Self {
        self.try_record(|| {
            let name = "roi_align";
            let len = boxes.shape().len();
            let ([.., five], count) = (boxes.shape().sizes(), len / 5);
            if five != 5 || boxes.shape() != Shape::from([count, 5]) {
                return Err(mismatch(name, "boxes", boxes, [None, Some(1), Some(1), Some(5)]));
            }
            let p = RoiAlign::new(self.sizes(name)?, size(name, count)?, bins, scale, samples)
                .map_err(|error| input(name, error, self.shape()))?;
            let shape = Shape::from(p.y().map(|size| size as usize));
            Ok(self.record_op(name, Op::RoiAlign, p, &[boxes], shape))
        })
    }
}

/// Impl of the RoIAlign operator, with inputs x and boxes.
impl Operator for RoiAlign {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (p, way, x) = (*self, GatherScatter::Gather, at.read(0)?.buf);
        let boxes = at.read_single(1)?.buf;
        at.store(|y| Operation::RoiAlign { p, way, x, boxes, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let ([images, ..], [_, rows, columns, _]) = (self.x(), self.y());
        let x = at.first(0)?;
        let Boxes { corners, image, own } = Boxes::write(at, images)?;
        let how = [
            ("output_height", Is::Int(rows.into())),
            ("output_width", Is::Int(columns.into())),
            ("sampling_ratio", Is::Int(self.samples().into())),
            ("spatial_scale", Is::Float(self.scale())),
            ("coordinate_transformation_mode", Is::Text("half_pixel")),
            ("mode", Is::Text("avg")),
        ];
        let y = at.emit("RoiAlign", &[&x, &corners, &image], &how);
        let y = zero_elsewhere(at, &own, &y);
        at.set_first_output(y);
        Ok(())
    }

    fn coordinates(&self) -> Option<usize> {
        Some(1)
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (p, way, x, boxes) = (*self, GatherScatter::Scatter, dy.value.buf, at.operand(1).buf);
        if !at.needs_grad(0) {
            return Ok(());
        }
        at.emit_gradient(0, dy, at.flow(), ScaleRule::FromValues, |y| Operation::RoiAlign { p, way, x, boxes, y })
    }
}

/// Boxes of regions, input 1 of a node, in the form of ONNX's operators.
#[cfg(feature = "onnx")]
pub(super) struct Boxes {
    /// ONNX name of the boxes' corners: left, top, right, bottom.
    pub corners: String,
    /// ONNX name of the boxes' image indices, which are clamped to existing images.
    pub image: String,
    /// ONNX name of the condition that the image index was valid: `[boxes, 1, 1, 1]`.
    pub own: String,
}

#[cfg(feature = "onnx")]
impl Boxes {
    pub fn write(at: &mut Writer<'_>, images: u32) -> Result<Self, TraceError> {
        let (boxes, count) = (at.x(1)?, at.shape(1).len() / 5);
        let boxes = at.reshape(&boxes, &[count, 5]);
        let [zero, one, five, axis] = [0, 1, 5, 1].map(|number| at.ints(&[number]));
        let corners = at.emit("Slice", &[&boxes, &one, &five, &axis], &[]);
        let image = at.emit("Slice", &[&boxes, &zero, &one, &axis], &[]);
        let image = at.emit("Cast", &[&image], &[("to", Is::Int(INT64))]);
        let number = at.reshape(&image, &[count]);
        let last = at.ints(&[i64::from(images) - 1]);
        let image = at.emit("Max", &[&number, &zero], &[]);
        let image = at.emit("Min", &[&image, &last], &[]);
        let own = at.emit("Equal", &[&image, &number], &[]);
        let own = at.reshape(&own, &[count, 1, 1, 1]);
        Ok(Self { corners, image, own })
    }
}

/// Writes a selection to the ONNX model: zeros for boxes with an invalid image number.
#[cfg(feature = "onnx")]
pub(super) fn zero_elsewhere(at: &mut Writer<'_>, own: &str, y: &str) -> String {
    let nothing = at.number(0.0);
    at.emit("Where", &[own, y, &nothing], &[])
}
