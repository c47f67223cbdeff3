//! Normalisations.

#[cfg(feature = "onnx")]
use crate::onnx::{Is, Writer};
use crate::{
    Parameter, TraceError, Var,
    error::TraceErrorKind,
    graph::{
        Context, Fixed, Gradient, Operation, Operator, ParamTensor, ScaleRule, StoreSpec, Value, input, other_shape,
    },
};
use gradscale_core::{
    amp::Precision,
    backend::{DType, NormSaved},
    ops::{Binary, BinaryOp, Broadcast, GradientFlow, Norm, NormOver, Op, ShapeError},
};

impl<'t> Var<'t> {
    /// Normalises x, then applies scale and shift of each channel. `running` are statistics `[2, channels]`, which are
    /// updated in training and used in evaluation.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn norm(
        self, name: &str, op: Op, norm: impl FnOnce([u32; 4]) -> Result<Norm, ShapeError>, [scale, shift]: [Self; 2],
        running: Option<&Parameter>,
    ) -> Self {
        self.try_record(|| {
            let p = norm(self.sizes(name)?).map_err(|error| input(name, error, self.shape()))?;
            Ok(self.normalised(name, op, p, &[scale, shift], running))
        })
    }

    /// Normalises each pixel over its channels to mean 0 and variance 1, then applies scale and shift of each channel.
    /// It computes in f32 and stores in the type of x.
    ///
    /// # Errors
    /// Shapes that do not fit, or an `eps` that is not positive.
    pub fn layer_norm(self, name: &str, eps: f32, affine: [Self; 2]) -> Self {
        self.try_record(|| {
            let p = self.of_rows(name, |rows, width| Norm::layer(rows, width, eps))?;
            Ok(self.normalised(name, Op::LayerNorm, p, &affine, None))
        })
    }

    /// Divides each pixel's channels by the root of their mean square (+ `eps`), and multiplies by the scale of each
    /// channel. It computes in f32 and stores in the type of x.
    ///
    /// # Errors
    /// Shapes that do not fit, or an `eps` that is not positive.
    pub fn rms_norm(self, name: &str, eps: f32, scale: Self) -> Self {
        self.try_record(|| {
            let p = self.of_rows(name, |rows, width| Norm::rms(rows, width, eps))?;
            Ok(self.normalised(name, Op::RmsNorm, p, &[scale], None))
        })
    }

    fn of_rows(self, name: &str, norm: impl FnOnce(u32, u32) -> Result<Norm, ShapeError>) -> Result<Norm, TraceError> {
        let [n, h, w, c] = self.sizes(name)?;
        norm(n * h * w, c).map_err(|error| TraceError::new(name, error))
    }

    /// Records a normalisation and returns its result; `affine` is the scale and an optional shift.
    fn normalised(self, name: &str, op: Op, p: Norm, affine: &[Self], running: Option<&Parameter>) -> Self {
        self.try_record(|| {
            for (operand, affine) in ["scale", "shift"].into_iter().zip(affine) {
                if affine.shape().len() != self.shape().channels() {
                    return Err(other_shape(name, operand, *affine, [self.shape().channels()].into()));
                }
            }
            if running.is_some_and(|running| running.shape.len() != 2 * p.groups() as usize) {
                let words = format!("the running statistics do not have {} channels", self.shape());
                return Err(TraceError::new(name, TraceErrorKind::Range(words)));
            }
            let p = if running.is_some() && !self.tape().training() { p.given() } else { p };
            running.into_iter().for_each(|running| self.tape().check(running));
            // In a scope without updates of running statistics, a batch is normalised by its own statistics only.
            let running = running.filter(|_| p.is_given() || self.tape().updates_running_stats());
            let norm = Normalise { p, running: running.map(|running| running.id) };
            Ok(self.record_named_op(name.to_owned(), op, norm, affine, self.shape()))
        })
    }
}

/// Operator of a normalisation, with inputs x, scale, an optional shift, and optional running statistics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Normalise {
    pub(super) p: Norm,
    pub(super) running: Option<usize>,
}

/// Writes x / √(mean x² + ε), times a factor for each channel.
#[cfg(feature = "onnx")]
fn rms(at: &mut Writer<'_>, eps: f32, scale: &str) -> Result<(), TraceError> {
    let (x, eps, axis) = (at.x(0)?, at.number(eps), at.ints(&[-1]));
    let square = at.emit("Mul", &[&x, &x], &[]);
    let mean = at.emit("ReduceMean", &[&square, &axis], &[]);
    let size = at.emit("Add", &[&mean, &eps], &[]);
    let size = at.emit("Sqrt", &[&size], &[]);
    let y = at.emit("Div", &[&x, &size], &[]);
    let y = at.emit("Mul", &[&y, scale], &[]);
    at.set_output(y);
    Ok(())
}

impl Operator for Normalise {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (p, node) = (self.p, at.node);
        let x = at.read(0)?.buf;
        let scale = at.read_in(1, Some(Precision::Single))?.buf;
        let shift = match node.inputs.get(2) {
            Some(_) => at.read_in(2, Some(Precision::Single))?.buf,
            None => at.constant(vec![0.0; node.shape.channels()]),
        };
        if at.syncs_batch_norm() && p.over() == NormOver::Batch && !p.is_given() {
            return self.forward_synced(at, [x, scale, shift]);
        }
        let groups = p.groups() as usize;
        let saved = match self.running {
            Some(running) if p.is_given() => Value::f32(Fixed::tensor(running, ParamTensor::Master), 2 * groups),
            _ => at.new_buffer(DType::F32, 2 * groups),
        };
        at.save(saved);
        at.store(|y| Operation::Norm { p, x, affine: Some([scale, shift]), saved: saved.buf, y })?;
        if let Some(running) = self.running.filter(|_| at.purpose().is_training() && !p.is_given()) {
            // The running variance is unbiased, n / (n − 1) times the biased one, as in PyTorch.
            let n = f64::from(p.size());
            #[expect(clippy::cast_possible_truncation, reason = "rounded")]
            let unbiased = if n > 1.0 { (n / (n - 1.0)) as f32 } else { 1.0 };
            let factors = [vec![1.0; groups], vec![unbiased; groups]].concat();
            let factors = at.constant(factors);
            let p = Binary::new(BinaryOp::Mul, 1, node.size(2 * groups)?, Broadcast::All);
            let p = p.map_err(|error| node.error(error))?;
            at.update_running_stats(running, 2 * groups, |y| Operation::Binary { p, a: saved.buf, b: factors, y });
        }
        Ok(())
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (p, c, inputs) = (self.p, at.node().shape.channels(), at.node().inputs.len());
        let eps = ("epsilon", Is::Float(p.eps()));
        let scale = at.shaped(1, &[c])?;
        let of_rows = p.x()[1..3] == [1, 1] && p.over() == NormOver::Group(1);
        if inputs == 2 {
            return if of_rows {
                rms(at, p.eps(), &scale)
            } else {
                Err(at.unsupported("this normalisation without a shift"))
            };
        }
        let shift = at.shaped(2, &[c])?;
        match (p.over(), self.running.filter(|_| p.is_given()).and_then(|id| at.parameter(id))) {
            (NormOver::Batch, Some(running)) => {
                let (mean, variance) = running.split_at(c.min(running.len()));
                let (mean, variance) = (at.constant(&[c], mean), at.constant(&[c], variance));
                let x = at.first(0)?;
                let y = at.emit("BatchNormalization", &[&x, &scale, &shift, &mean, &variance], &[eps]);
                at.set_first_output(y);
            }
            (NormOver::Batch, None) => return Err(at.unsupported("statistics of the batch itself")),
            (NormOver::Group(_), _) if of_rows => {
                let x = at.x(0)?;
                let y = at.emit("LayerNormalization", &[&x, &scale, &shift], &[("axis", Is::Int(-1)), eps]);
                at.set_output(y);
            }
            (NormOver::Group(groups), _) => {
                let x = at.first(0)?;
                let attributes = [("num_groups", Is::Int(groups.into())), eps];
                let y = at.emit("GroupNormalization", &[&x, &scale, &shift], &attributes);
                at.set_first_output(y);
            }
        }
        Ok(())
    }

    /// Emits one launch that computes all three gradients; unneeded ones are stored in temporary buffers.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let Some(saved) = at.saved() else { return Ok(()) };
        let (p, node, x, weight) = (self.p, at.node, at.operand(0), at.operand(1).buf);
        if at.syncs_batch_norm() && p.over() == NormOver::Batch && !p.is_given() {
            return self.vjp_synced(at, dy, saved.buf);
        }
        let (dx, rule) = if at.needs_grad(0) {
            at.destination(0, dy, at.flow(), ScaleRule::FromValues)?
        } else {
            let unused = at.new_buffer(x.dtype, node.shape.len());
            (StoreSpec::passthrough(unused, dy.slot), ScaleRule::None)
        };
        let mut of_channels = |i: usize| {
            if at.needs_grad(i) {
                return Ok(at.destination(i, dy, GradientFlow::Cast, ScaleRule::None)?.0);
            }
            let unused = at.new_buffer(DType::F32, node.shape.channels());
            Ok(StoreSpec::passthrough(unused, dy.slot))
        };
        let affine = Some([of_channels(1)?, of_channels(2)?]);
        let x = NormSaved { x: x.buf, saved: saved.buf, weight: Some(weight) };
        at.emit_with_scale_rule(rule, Operation::NormVjp { p, x, dy: dy.value.buf, dx, affine });
        Ok(())
    }
}
