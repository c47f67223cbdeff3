//! Cumulative sums along an axis.

use super::positions::{AxisView, axis_view};
#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    TraceError, Var,
    graph::{BufferId, Context, Gradient, Operation, Operator, ScaleRule, StoreSpec, Value, cast},
};
use gradscale_core::{
    backend::{DType, Slot},
    ops::{ActivationFlow, Dim, Op, Strided},
};

impl Var<'_> {
    /// Computes cumulative sums along an axis (0 n, 1 h, 2 w, 3 c), in f32: position i becomes the sum of the positions
    /// 0 to i. Sums are formed in pairs, in log2 of the size steps over the tensor, so their order and their bits do not
    /// depend on the number of threads. A NaN has no influence on positions before it.
    ///
    /// ```
    /// use gradscale::{Input, Cpu, Method, Parameters, Trainer, optim::Sgd};
    /// let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(1), Sgd::new(0.1), Method::mixed())?;
    /// let y = trainer.evaluate([Input::f32([1, 4], &[1.0, 2.0, 3.0, 4.0])], |[x]| x.cumsum(3))?;
    /// assert_eq!(y.data, [1.0, 3.0, 6.0, 10.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An axis beyond 3 or of more than 2^24 positions, or too many elements.
    pub fn cumsum(self, axis: usize) -> Self {
        self.try_record(|| {
            let view = axis_view("cumsum", self, axis)?;
            Ok(self.record_op("cumsum", Op::Cumsum, Cumsum(view), &[], self.shape()))
        })
    }
}

/// Order in which positions are summed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// From the first position on: the forward pass.
    Ascending,
    /// From the last position on: the gradient.
    Descending,
}

/// Operator of cumulative sums along the axis of this view.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cumsum(AxisView);

impl Cumsum {
    /// Emits the sums: after step k each position has the sum of 2^k positions that end, or start, with it (Hillis and
    /// Steele 1986).
    fn scan(
        &self, at: &mut Context<'_, '_, '_>, x: BufferId, slot: Slot, order: Order,
    ) -> Result<BufferId, TraceError> {
        let AxisView { outer, len, inner } = self.0;
        let (mut x, mut apart) = (x, 1);
        let (line, step) = (i64::from(len) * i64::from(inner), i64::from(inner));
        while apart < len {
            let y = Value::f32(at.emit_temporary(self.0.count(), slot, |y| cast(x, y)), self.0.count());
            let dims = [
                Dim { len: outer, x: line, y: line },
                Dim { len: len - apart, x: step, y: step },
                Dim { len: inner, x: 1, y: 1 },
            ];
            let [from, to] = match order {
                Order::Ascending => [0, apart * inner],
                Order::Descending => [apart * inner, 0],
            };
            let p = Strided::new(&dims, from, to).map_err(|error| at.node.error(error))?;
            at.emit(Operation::Copy { p, x, y: StoreSpec { add: true, ..StoreSpec::passthrough(y, slot) } });
            x = y.buf;
            apart *= 2;
        }
        Ok(x)
    }
}

impl Operator for Cumsum {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let x = at.read_any(0)?;
        let x = match x.dtype {
            DType::U8 | DType::U32 => at.emit_temporary(x.len, Slot::ONE, |y| cast(x.buf, y)),
            DType::F32 | DType::F16 => x.buf,
        };
        let sums = self.scan(at, x, Slot::ONE, Order::Ascending)?;
        at.store(|y| cast(sums, y))
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (sizes, AxisView { outer, len, inner }) = (at.node().shape.sizes(), self.0);
        let x = at.shaped(0, &[outer, len, inner].map(|size| size as usize))?;
        let axis = at.ints(&[1]);
        let y = at.emit("CumSum", &[&x, &axis], &[]);
        let y = at.reshape(&y, &sizes);
        at.set_output(y);
        Ok(())
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let sums = self.scan(at, dy.value.buf, dy.slot, Order::Descending)?;
        at.emit_gradient(0, dy, at.flow(), ScaleRule::FromValues, |y| cast(sums, y))
    }
}
