//! Broadcasting: repetition of values along axes of size 1.

use super::strides;
#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    Shape, TraceError, Var,
    graph::{Context, Gradient, Operation, Operator, ScaleRule, other_shape, sizes},
};
use gradscale_core::ops::{ActivationFlow, Dim, GradientFlow, Op, Reduce, ReduceOp, Strided};

impl Var<'_> {
    /// Repeats the values along axes of size 1 to a tensor of that shape. The gradient is summed over the repetitions.
    ///
    /// # Errors
    /// Another size along an axis that is not of size 1, or too many elements.
    pub fn expand(self, shape: impl Into<Shape>) -> Self {
        self.try_record(|| {
            let shape = shape.into();
            if together(self.shape(), shape) != Some(shape) {
                return Err(other_shape("expand", "input", self, shape));
            }
            sizes("expand", shape)?;
            Ok(if shape == self.shape() { self } else { self.record_op("expand", Op::Expand, Expand, &[], shape) })
        })
    }
}

/// Returns the common shape of two values: along each axis their equal size, or that of the other if one has size 1.
pub(super) fn together(a: Shape, b: Shape) -> Option<Shape> {
    let mut sizes = [0; 4];
    for ((size, a), b) in sizes.iter_mut().zip(a.sizes()).zip(b.sizes()) {
        *size = match (a, b) {
            _ if a == b => a,
            (1, other) | (other, 1) => other,
            _ => return None,
        };
    }
    Some(Shape::from(sizes))
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Expand;

impl Operator for Expand {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (node, x) = (at.node, at.read_any(0)?.buf);
        let (from, to) = (sizes(&node.name, at.input(0))?, node.sizes()?);
        let (of_x, of_y) = (strides(from), strides(to));
        let dims = [0, 1, 2, 3].map(|i| {
            let x = if from[i] == to[i] { of_x[i] } else { 0 };
            Dim { len: to[i], x, y: of_y[i] }
        });
        let p = Strided::new(&dims, 0, 0).map_err(|error| node.error(error))?;
        at.store(|y| Operation::Copy { p, x, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (x, sizes) = (at.x(0)?, at.node().shape.sizes());
        let sizes = at.sizes(&sizes);
        let y = at.emit("Expand", &[&x, &sizes], &[]);
        at.set_output(y);
        Ok(())
    }

    /// Sums dy over each run of axes that were repeated; in f32 until the last sum, which is stored.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let node = at.node;
        let (from, mut shape) = (sizes(&node.name, at.input(0))?, node.sizes()?);
        let grew = |i: usize, shape: [u32; 4]| from[i] != shape[i];
        let mut x = dy.value.buf;
        while let Some(first) = (0..4).find(|&i| grew(i, shape)) {
            let behind = (first..4).find(|&i| !grew(i, shape)).unwrap_or(4);
            let [outer, len, inner] =
                [&shape[..first], &shape[first..behind], &shape[behind..]].map(|sizes| sizes.iter().product::<u32>());
            shape[first..behind].fill(1);
            let p = Reduce::new(ReduceOp::Sum, outer, len, inner).map_err(|error| node.error(error))?;
            if (0..4).all(|i| !grew(i, shape)) {
                return at.emit_gradient(0, dy, GradientFlow::Cast, ScaleRule::FromValues, |y| Operation::Reduce {
                    p,
                    x,
                    y,
                });
            }
            x = at.emit_temporary((outer * inner) as usize, dy.slot, |y| Operation::Reduce { p, x, y });
        }
        at.forward_grad(0, dy)
    }
}
