//! Operands that steps of recurrent cells share: products with the inputs and with the hidden state.

#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    Shape, TraceError, Var,
    graph::{other_shape, size},
};
use gradscale_core::ops::CellStep;

/// Products of a recurrent cell with the inputs: of one step alone, or of all steps, `[n, 1, steps, gates·hidden]`, marked
/// by [`Var::unbound_as`], of which one is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepProducts<'t> {
    pub all: Var<'t>,
    /// Step that is read; `None` if there is no other.
    pub step: Option<usize>,
    /// True for the step that is computed first.
    pub is_first: bool,
}

impl<'t> StepProducts<'t> {
    /// Returns the descriptor of the step of cell `name` from its products with the hidden state and from its state.
    pub(super) fn descriptor<const GATES: u32>(
        self, name: &str, of_hidden: Var<'t>, state: Var<'t>,
    ) -> Result<CellStep<GATES>, TraceError> {
        let [n, height, width, hidden] = state.shape().sizes();
        let gates = GATES as usize * hidden;
        let of_step = Shape::from([n, height, width, gates]);
        let steps = if self.step.is_some() { self.all.shape().sizes()[2] } else { 1 };
        let of_all = if self.step.is_some() { Shape::from([n, 1, steps, gates]) } else { of_step };
        for (value, what, fits) in
            [(of_hidden, "product with the state", of_step), (self.all, "product with x", of_all)]
        {
            if value.shape() != fits {
                return Err(other_shape(name, what, value, fits));
            }
        }
        let p = CellStep::new(size(name, state.shape().rows())?, size(name, hidden)?);
        let p = p.and_then(|p| p.of_step(size_of(self.step.unwrap_or(0)), size_of(steps)));
        p.map_err(|error| TraceError::new(name, error))
    }
}

/// Converts a number of steps, which are fewer than elements, to the type of descriptors.
fn size_of(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Writes the products of a cell's step with the inputs, its input 1, in the shape of those with the hidden state.
#[cfg(feature = "onnx")]
pub(super) fn products_of_step<const GATES: u32>(
    at: &mut Writer<'_>, p: &CellStep<GATES>,
) -> Result<String, TraceError> {
    let [step, steps] = p.step();
    let mut products = at.x(1)?;
    if steps > 1 {
        let ends = [step, step + 1].map(|place| at.ints(&[place.into()]));
        let axis = at.ints(&[Writer::axis(2, false)]);
        products = at.emit("Slice", &[&products, &ends[0], &ends[1], &axis], &[]);
    }
    let [n, height, width, hidden] = at.node().shape.sizes();
    Ok(at.reshape(&products, &[n, height, width, GATES as usize * hidden]))
}

/// Writes the values of one gate.
#[cfg(feature = "onnx")]
pub(super) fn gate_of(at: &mut Writer<'_>, values: &str, gate: usize) -> String {
    let hidden = at.node().shape.sizes()[3];
    let ends = [gate, gate + 1].map(|end| at.ints(&[(end * hidden) as i64]));
    let axis = at.ints(&[Writer::axis(3, false)]);
    at.emit("Slice", &[values, &ends[0], &ends[1], &axis], &[])
}
