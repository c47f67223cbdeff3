//! Selection by a mask: values of one tensor or of another.

use super::{binary::like, expand::together};
#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    TraceError, Var,
    graph::{BufferId, Context, Gradient, Operation, Operator, ScaleRule, Value, other_shape, unary},
};
use gradscale_core::{
    backend::{DType, Slot},
    ops::{BinaryOp, Broadcast, Op, Unary},
};

impl Var<'_> {
    /// Selects the values of `a` where this mask is above 0, and those of `b` elsewhere: torch's `where`. The mask has
    /// integers or numbers, usually 0 and 1; a difference `x - y` is the mask of x > y. Sizes of 1 of mask, `a` and `b`
    /// are repeated along their axis. A value that is not selected has no influence, not even if it is NaN, and its
    /// gradient is 0. The mask has no gradient.
    ///
    /// ```
    /// use gradscale::{Input, Cpu, Method, Parameters, Trainer, optim::Sgd};
    /// let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(1), Sgd::new(0.1), Method::mixed())?;
    /// let batch = [Input::u8([2, 2], &[1, 0, 0, 1]), Input::f32([2, 2], &[1.0, 2.0, 3.0, 4.0])];
    /// let y = trainer.evaluate(batch, |[mask, x]| mask.where_cond(x, x.scale(-1.0)))?;
    /// assert_eq!(y.data, [1.0, -2.0, -3.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Sizes that differ and are not 1, or too many elements.
    #[doc(alias = "where")]
    #[doc(alias = "select")]
    #[doc(alias = "masked_fill")]
    pub fn where_cond(self, a: Self, b: Self) -> Self {
        self.try_record(|| {
            let name = "where";
            let both = together(a.shape(), b.shape()).ok_or_else(|| other_shape(name, "second value", b, a.shape()))?;
            let all = together(both, self.shape()).ok_or_else(|| other_shape(name, "mask", self, both))?;
            let (mask, a, b) = (self.expand(all), a.expand(all), b.expand(all));
            mask.sizes(name)?;
            Ok(mask.record_op(name, Op::Select, WhereCond, &[a, b], all))
        })
    }
}

/// Operator that selects values by a mask, with inputs mask, a and b.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WhereCond;

impl Operator for WhereCond {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let mask = at.read_in(0, None)?;
        let (a, b) = (at.read(1)?.buf, at.read(2)?.buf);
        let [is_set, is_clear] = conditions(at, mask)?;
        let (p, len) = (like(at.node, BinaryOp::Grad(Unary::Relu), Broadcast::All)?, at.node.shape.len());
        let a = at.emit_temporary(len, Slot::ONE, |y| Operation::Binary { p, a: is_set, b: a, y });
        let b = at.emit_temporary(len, Slot::ONE, |y| Operation::Binary { p, a: is_clear, b, y });
        let p = like(at.node, BinaryOp::Add, Broadcast::All)?;
        at.store(|y| Operation::Binary { p, a, b, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (mask, a, b, zero) = (at.x(0)?, at.x(1)?, at.x(2)?, at.number(0.0));
        let is_set = at.emit("Greater", &[&mask, &zero], &[]);
        let y = at.emit("Where", &[&is_set, &a, &b], &[]);
        at.set_output(y);
        Ok(())
    }

    fn integers(&self) -> Option<usize> {
        Some(0)
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let mask = at.operand(0);
        let conditions = conditions(at, mask)?;
        let p = like(at.node, BinaryOp::Grad(Unary::Relu), Broadcast::All)?;
        let b = dy.value.buf;
        for (i, a) in conditions.into_iter().enumerate() {
            if at.needs_grad(i + 1) {
                at.emit_gradient(i + 1, dy, at.flow(), ScaleRule::FromValues, |y| Operation::Binary { p, a, b, y })?;
            }
        }
        Ok(())
    }
}

/// Emits a condition for each element, above 0 where the mask is above 0, and its opposite. The derivative of ReLU
/// selects by a condition, because a product with 0 would keep a NaN.
fn conditions(at: &mut Context<'_, '_, '_>, mask: Value) -> Result<[BufferId; 2], TraceError> {
    let len = at.node.shape.len();
    let is_set = match mask.dtype {
        DType::U8 | DType::U32 => at.emit_temporary(len, Slot::ONE, |y| unary(Unary::Id, mask.buf, y)),
        DType::F32 | DType::F16 => mask.buf,
    };
    let (p, b) = (like(at.node, BinaryOp::Grad(Unary::Relu), Broadcast::One)?, at.constant(vec![1.0]));
    let ones = at.emit_temporary(len, Slot::ONE, |y| Operation::Binary { p, a: is_set, b, y });
    let is_clear = at.emit_temporary(len, Slot::ONE, |y| unary(Unary::Affine { a: -1.0, b: 1.0 }, ones, y));
    Ok([is_set, is_clear])
}
