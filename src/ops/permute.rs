//! Permutation of axes.

use super::strides;
#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    Shape, TraceError, Var,
    error::TraceErrorKind,
    graph::{Context, Gradient, Node, Operation, Operator, ScaleRule, sizes},
};
use gradscale_core::ops::{ActivationFlow, Dim, Op, Strided};

impl<'t> Var<'t> {
    /// Permutes the axes: axis `i` of the result is axis `order[i]` of x (0 n, 1 h, 2 w, 3 c).
    ///
    /// # Errors
    /// An order that does not name each axis once, or too many elements.
    pub fn permute(self, order: [usize; 4]) -> Self {
        self.try_record(|| {
            let mut sorted = order;
            sorted.sort_unstable();
            if sorted != [0, 1, 2, 3] {
                let words = format!("{order:?} does not name each axis from 0 to 3 once");
                return Err(TraceError::new("permute", TraceErrorKind::Range(words)));
            }
            let sizes = self.shape().sizes();
            self.sizes("permute")?;
            Ok(self.record_op(
                "permute",
                Op::Transpose,
                Permute(order),
                &[],
                Shape::from(order.map(|axis| sizes[axis])),
            ))
        })
    }
}

/// Operator that permutes axes: for each axis of the result, the axis of x.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Permute([usize; 4]);

impl Operator for Permute {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let x = at.read_any(0)?.buf;
        let p = permutation(at.node, at.input(0), self.0)?;
        at.store(|y| Operation::Copy { p, x, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let x = at.x(0)?;
        let y = at.permuted(&x, self.0);
        at.set_output(y);
        Ok(())
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let mut back = [0; 4];
        self.0.iter().enumerate().for_each(|(i, &axis)| back[axis] = i);
        let (p, x) = (permutation(at.node, at.node.shape, back)?, dy.value.buf);
        at.emit_gradient(0, dy, at.flow(), ScaleRule::FromValues, |y| Operation::Copy { p, x, y })
    }
}

/// Returns the strided copy in which axis `i` of the result is axis `order[i]` of x.
fn permutation(node: &Node, x: Shape, order: [usize; 4]) -> Result<Strided, TraceError> {
    let x = sizes(&node.name, x)?;
    let (of_x, of_y) = (strides(x), strides(order.map(|axis| x[axis])));
    let dims = [0, 1, 2, 3].map(|i| Dim { len: x[order[i]], x: of_x[order[i]], y: of_y[i] });
    Strided::new(&dims, 0, 0).map_err(|error| node.error(error))
}
