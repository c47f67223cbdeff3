//! Maximum and minimum: of two tensors, and along an axis.

use super::{
    binary::like,
    expand::together,
    positions::{AxisView, axis_view},
};
#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    Shape, TraceError, Var,
    graph::{BufferId, Context, Gradient, Operation, Operator, ScaleRule, other_shape, unary},
};
use gradscale_core::{
    backend::Slot,
    ops::{ActivationFlow, BinaryOp, Broadcast, GradientFlow, Op, Reduce, ReduceOp, ShapeError, Unary},
};

/// Which extremum an operator computes. A minimum is the negative maximum of negative values, without rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Extremum {
    Max,
    Min,
}

impl<'t> Var<'t> {
    /// Computes the larger of each two values, or NaN if one is NaN: torch's `maximum`. Sizes of 1 are repeated along
    /// their axis. The gradient goes to the larger value; two equal values get half of it each, as in torch.
    ///
    /// # Errors
    /// Sizes that differ and are not 1, or too many elements.
    pub fn maximum(self, b: Self) -> Self {
        self.extremum("maximum", Extremum::Max, b)
    }

    /// Computes the smaller of each two values, or NaN if one is NaN: torch's `minimum`. Shapes and gradients are as
    /// for [`Var::maximum`].
    ///
    /// # Errors
    /// Sizes that differ and are not 1, or too many elements.
    pub fn minimum(self, b: Self) -> Self {
        self.extremum("minimum", Extremum::Min, b)
    }

    fn extremum(self, name: &'static str, which: Extremum, b: Self) -> Self {
        self.try_record(|| {
            let all = together(self.shape(), b.shape());
            let all = all.ok_or_else(|| other_shape(name, "right operand", b, self.shape()))?;
            let a = self.expand(all);
            a.sizes(name)?;
            Ok(a.record_op(name, Op::Maximum, OfTwo(which), &[b.expand(all)], all))
        })
    }

    /// Computes the maximum along an axis (0 n, 1 h, 2 w, 3 c), or NaN if one value is NaN; the size of the axis
    /// becomes 1. The gradient goes to the first of the largest values, as with torch's `max(dim)`; torch's `amax`
    /// divides it among them.
    ///
    /// ```
    /// use gradscale::{Input, Cpu, Method, Parameters, Trainer, optim::Sgd};
    /// let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(1), Sgd::new(0.1), Method::mixed())?;
    /// let y = trainer.evaluate([Input::f32([2, 3], &[1.0, 5.0, 2.0, -1.0, -4.0, -1.0])], |[x]| x.max_axis(3))?;
    /// assert_eq!(y.data, [5.0, -1.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An axis beyond 3, of size 0 or of more than 2^24 positions, or too many elements.
    #[doc(alias = "amax")]
    pub fn max_axis(self, axis: usize) -> Self {
        self.extremum_along("max", Extremum::Max, axis)
    }

    /// Computes the minimum along an axis (0 n, 1 h, 2 w, 3 c), with the conventions of [`Var::max_axis`].
    ///
    /// # Errors
    /// An axis beyond 3, of size 0 or of more than 2^24 positions, or too many elements.
    #[doc(alias = "amin")]
    pub fn min_axis(self, axis: usize) -> Self {
        self.extremum_along("min", Extremum::Min, axis)
    }

    fn extremum_along(self, name: &'static str, which: Extremum, axis: usize) -> Self {
        self.try_record(|| {
            let view = axis_view(name, self, axis)?;
            if view.len == 0 {
                return Err(TraceError::new(name, ShapeError::Empty));
            }
            let mut shape = self.shape().sizes();
            shape[axis] = 1;
            Ok(self.record_op(name, Op::Max, AlongAxis { which, view }, &[], Shape::from(shape)))
        })
    }
}

/// Emits the negative values of x for a minimum, and returns x for a maximum.
fn oriented(at: &mut Context<'_, '_, '_>, which: Extremum, x: BufferId, len: usize) -> BufferId {
    match which {
        Extremum::Max => x,
        Extremum::Min => at.emit_temporary(len, Slot::ONE, |y| unary(Unary::Neg, x, y)),
    }
}

/// Operator of the element-wise maximum or minimum, with inputs a and b.
#[derive(Clone, Copy, Debug, PartialEq)]
struct OfTwo(Extremum);

impl Operator for OfTwo {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (a, b, len) = (at.read(0)?.buf, at.read(1)?.buf, at.node.shape.len());
        let p = like(at.node, BinaryOp::Max, Broadcast::All)?;
        let (a, b) = (oriented(at, self.0, a, len), oriented(at, self.0, b, len));
        match self.0 {
            Extremum::Max => at.store(|y| Operation::Binary { p, a, b, y }),
            Extremum::Min => {
                let largest = at.emit_temporary(len, Slot::ONE, |y| Operation::Binary { p, a, b, y });
                at.store(|y| unary(Unary::Neg, largest, y))
            }
        }
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (a, b) = (at.x(0)?, at.x(1)?);
        let kind = match self.0 {
            Extremum::Max => "Max",
            Extremum::Min => "Min",
        };
        let y = at.emit(kind, &[&a, &b], &[]);
        at.set_output(y);
        Ok(())
    }

    /// Emits dy where an operand is the extremum, dy / 2 where both are, and 0 elsewhere. The derivative of ReLU selects,
    /// so that no ∞ is multiplied by 0.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (len, g) = (at.node.shape.len(), dy.value.buf);
        let (a, b) = match self.0 {
            Extremum::Max => (at.operand(0).buf, at.operand(1).buf),
            Extremum::Min => (at.operand(1).buf, at.operand(0).buf),
        };
        let p = like(at.node, BinaryOp::Sub, Broadcast::All)?;
        let difference = at.emit_temporary(len, Slot::ONE, |y| Operation::Binary { p, a, b, y });
        let first_wins = at.emit_temporary(len, Slot::ONE, |y| unary(Unary::Sign, difference, y));
        let second_wins = at.emit_temporary(len, Slot::ONE, |y| unary(Unary::Neg, first_wins, y));
        let distinct = at.emit_temporary(len, Slot::ONE, |y| unary(Unary::Abs, first_wins, y));
        let tie = at.emit_temporary(len, Slot::ONE, |y| unary(Unary::Affine { a: -1.0, b: 1.0 }, distinct, y));
        let half = at.emit_temporary(len, dy.slot, |y| unary(Unary::Affine { a: 0.5, b: 0.0 }, g, y));
        let select = like(at.node, BinaryOp::Grad(Unary::Relu), Broadcast::All)?;
        let shared = at.emit_temporary(len, dy.slot, |y| Operation::Binary { p: select, a: tie, b: half, y });
        let p = like(at.node, BinaryOp::Add, Broadcast::All)?;
        for (i, wins) in [first_wins, second_wins].into_iter().enumerate() {
            if at.needs_grad(i) {
                let own = at.emit_temporary(len, dy.slot, |y| Operation::Binary { p: select, a: wins, b: g, y });
                at.emit_gradient(i, dy, GradientFlow::Cast, ScaleRule::FromValues, |y| Operation::Binary {
                    p,
                    a: own,
                    b: shared,
                    y,
                })?;
            }
        }
        Ok(())
    }
}

/// Operator of the maximum or minimum along an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
struct AlongAxis {
    which: Extremum,
    view: AxisView,
}

impl AlongAxis {
    fn reduction(&self, at: &Context<'_, '_, '_>, op: ReduceOp) -> Result<Reduce, TraceError> {
        let AxisView { outer, len, inner } = self.view;
        Reduce::new(op, outer, len, inner).map_err(|error| at.node.error(error))
    }
}

impl Operator for AlongAxis {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let x = at.read(0)?.buf;
        let p = self.reduction(at, ReduceOp::Max)?;
        let x = oriented(at, self.which, x, self.view.count());
        match self.which {
            Extremum::Max => at.store(|y| Operation::Reduce { p, x, y }),
            Extremum::Min => {
                let largest = at.emit_temporary(at.node.shape.len(), Slot::ONE, |y| Operation::Reduce { p, x, y });
                at.store(|y| unary(Unary::Neg, largest, y))
            }
        }
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (sizes, AxisView { outer, len, inner }) = (at.node().shape.sizes(), self.view);
        let x = at.shaped(0, &[outer, len, inner].map(|size| size as usize))?;
        let kind = match self.which {
            Extremum::Max => "ReduceMax",
            Extremum::Min => "ReduceMin",
        };
        let axis = at.ints(&[1]);
        let y = at.emit(kind, &[&x, &axis], &[]);
        let y = at.reshape(&y, &sizes);
        at.set_output(y);
        Ok(())
    }

    /// Emits dy at the position of the first extremum, and 0 elsewhere.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (x, view) = (at.operand(0).buf, self.view);
        let x = oriented(at, self.which, x, view.count());
        let p = self.reduction(at, ReduceOp::ArgMax)?;
        let places = view.emit_places(at, p, x);
        let distance = view.emit_distance(at, places, view.each(0))?;
        let here = view.emit_unary(at, Unary::Affine { a: -1.0, b: 1.0 }, distance);
        let wide = view.emit_repeated(at, dy.value.buf, view.each(0), dy.slot)?;
        let p = view.binary(at, BinaryOp::Grad(Unary::Relu), Broadcast::All)?;
        at.emit_gradient(0, dy, at.flow(), ScaleRule::FromValues, |y| Operation::Binary { p, a: here, b: wide, y })
    }
}
