//! Concatenation, slices and splits.

use super::{reshape::same_memory, strides};
#[cfg(feature = "onnx")]
use crate::onnx::{Is, Writer};
use crate::{
    Shape, TraceError, Var,
    error::TraceErrorKind,
    graph::{Context, Gradient, Node, Operation, Operator, ScaleRule, StoreSpec, mismatch, sizes},
};
use gradscale_core::{
    amp::{MAX_INPUTS, Precision},
    backend::{DType, Slot},
    ops::{ActivationFlow, Dim, Op, Strided},
};

/// Checks that a tensor has the axis `axis`, and returns an error of the layer `name` otherwise.
pub(super) fn within(name: &str, axis: usize) -> Result<(), TraceError> {
    let words = || TraceErrorKind::Range(format!("{axis} is not an axis; 0 is n, 1 h, 2 w, 3 c"));
    if axis < 4 { Ok(()) } else { Err(TraceError::new(name, words())) }
}

impl<'t> Var<'t> {
    /// Concatenates tensors along an axis (0 n, 1 h, 2 w, 3 c); the other sizes must agree. More than eight tensors are
    /// concatenated in groups of eight.
    ///
    /// # Errors
    /// Other sizes that differ, or an axis beyond 3.
    pub fn concat(self, others: &[Self], axis: usize) -> Self {
        self.try_record(|| {
            within("concat", axis)?;
            if others.len() >= MAX_INPUTS {
                let mut parts: Vec<Self> = std::iter::once(self).chain(others.iter().copied()).collect();
                while parts.len() > 1 {
                    let join = |some: &[Self]| if let [one] = some { *one } else { some[0].concat(&some[1..], axis) };
                    parts = parts.chunks(MAX_INPUTS).map(join).collect();
                }
                return Ok(parts[0]);
            }
            let mut shape = self.shape().sizes();
            for other in others {
                let mut fits = other.shape().sizes();
                let size = fits[axis];
                fits[axis] = shape[axis];
                if fits != shape {
                    let mut expected = self.shape().sizes().map(Some);
                    expected[axis] = None;
                    return Err(mismatch("concat", "part", *other, expected));
                }
                shape[axis] += size;
            }
            Ok(self.record_op("concat", Op::Concat, Concat(axis), others, Shape::from(shape)))
        })
    }

    /// Returns `len` positions of x from `start` on, along an axis.
    ///
    /// # Errors
    /// A slice that extends beyond the axis.
    pub fn slice(self, axis: usize, start: usize, len: usize) -> Self {
        self.try_record(|| {
            within("slice", axis)?;
            let mut shape = self.shape().sizes();
            if start.checked_add(len).is_none_or(|end| end > shape[axis]) {
                let words = format!("{len} elements from {start} exceed axis {axis} of {}", self.shape());
                return Err(TraceError::new("slice", TraceErrorKind::Range(words)));
            }
            shape[axis] = len;
            Ok(self.record_op("slice", Op::Slice, Slice { axis, start }, &[], Shape::from(shape)))
        })
    }

    /// Splits an axis into consecutive parts of the given lengths. In the backward pass their gradients are
    /// concatenated, and that gradient is a site.
    ///
    /// # Errors
    /// Lengths whose sum is not the size of the axis, or an axis beyond 3.
    pub fn split(self, axis: usize, lens: &[usize]) -> Vec<Self> {
        self.split_into(self.tape().number("split"), axis, lens, |part, _| part)
    }

    /// Applies [`Var::split`] inside of a layer whose calls share sites: all operators are named after `name`.
    pub(crate) fn split_as(self, name: &str, axis: usize, lens: &[usize]) -> Vec<Self> {
        let name = format!("{name}.split");
        self.split_into(name.clone(), axis, lens, |part, i| part.named(&format!("{name}.{i}")))
    }

    fn split_into(self, name: String, axis: usize, lens: &[usize], called: impl Fn(Self, usize) -> Self) -> Vec<Self> {
        let whole = self.try_record(|| {
            let total = lens.iter().try_fold(0usize, |sum, &len| sum.checked_add(len));
            within("split", axis)?;
            if total != Some(self.shape().sizes()[axis]) {
                let words = format!("{lens:?} do not add up to axis {axis} of {}", self.shape());
                return Err(TraceError::new("split", TraceErrorKind::Range(words)));
            }
            Ok(self.record_named_op(name, Op::Split, Split, &[], self.shape()))
        });
        let mut start = 0usize;
        let part = |(i, &len): (usize, &usize)| {
            let from = start;
            start = start.saturating_add(len);
            called(whole.slice(axis, from, len), i)
        };
        lens.iter().enumerate().map(part).collect()
    }
}

/// Operator that concatenates tensors along this axis.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Concat(usize);

impl Operator for Concat {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let node = at.node;
        let half = at.precision() == Some(Precision::Half);
        let result = at.new_buffer(if half { DType::F16 } else { DType::F32 }, node.shape.len());
        let mut start = 0;
        let mut parts = Vec::new();
        for i in 0..node.inputs.len() {
            parts.push(at.read_any(i)?.buf);
        }
        // The smallest exponent of all parts is exact for each, so the result is no site.
        let common = if half { at.common_slot()? } else { Slot::ONE };
        for (i, x) in parts.into_iter().enumerate() {
            let from = at.activation_slot(i);
            let p = part(node, [node.shape, at.input(i)], self.0, start, Way::Into)?;
            start += at.input(i).sizes()[self.0];
            let y = StoreSpec { from, ..StoreSpec::passthrough(result, common) };
            at.emit(Operation::Copy { p, x, y });
        }
        at.set_activation_slot(result, common);
        at.set_output(result);
        Ok(())
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let count = at.node().inputs.len();
        let first = (0..count).all(|i| at.is_first(i));
        let parts = (0..count).map(|i| if first { at.first(i) } else { at.x(i) }).collect::<Result<Vec<_>, _>>()?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let y = at.emit("Concat", &parts, &[("axis", Is::Int(Writer::axis(self.0, first)))]);
        at.give_any(y, first);
        Ok(())
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (node, mut start) = (at.node, 0);
        for i in 0..node.inputs.len() {
            let shape = at.input(i);
            if at.needs_grad(i) {
                let (p, x) = (part(node, [node.shape, shape], self.0, start, Way::Out)?, dy.value.buf);
                at.emit_gradient(i, dy, at.flow(), ScaleRule::FromValues, |y| Operation::Copy { p, x, y })?;
            }
            start += shape.sizes()[self.0];
        }
        Ok(())
    }
}

/// Operator that slices a tensor along an axis, from a start on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Slice {
    axis: usize,
    start: usize,
}

impl Operator for Slice {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let x = at.read_any(0)?.buf;
        let p = part(at.node, [at.input(0), at.node.shape], self.axis, self.start, Way::Out)?;
        at.store(|y| Operation::Copy { p, x, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        export(at, self.axis, self.start)
    }

    /// Emits zeros with the part at its position, as f32 or half, whatever the type of dy; the cast after it is the
    /// site.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (node, shape) = (at.node, at.input(0));
        let whole = at.new_buffer(dy.value.dtype, shape.len());
        let everywhere = [Dim { len: node.size(shape.len())?, x: 0, y: 1 }];
        let p = Strided::new(&everywhere, 0, 0).map_err(|error| node.error(error))?;
        at.emit(Operation::Copy { p, x: at.zero(), y: StoreSpec::passthrough(whole, Slot::ONE) });
        let p = part(node, [shape, node.shape], self.axis, self.start, Way::Into)?;
        at.emit(Operation::Copy { p, x: dy.value.buf, y: StoreSpec::passthrough(whole, dy.slot) });
        at.forward_grad(0, Gradient { value: whole, slot: dy.slot })
    }
}

/// Operator that marks a split, at which the gradients of its slices are added.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Split;

/// Writes the ONNX slice of a node's input along an axis.
#[cfg(feature = "onnx")]
pub(super) fn export(at: &mut Writer<'_>, axis: usize, start: usize) -> Result<(), TraceError> {
    let (x, first) = at.any(0)?;
    let end = start + at.node().shape.sizes()[axis];
    let (start, end, axis) = (at.sizes(&[start]), at.sizes(&[end]), at.ints(&[Writer::axis(axis, first)]));
    let y = at.emit("Slice", &[&x, &start, &end, &axis], &[]);
    at.give_any(y, first);
    Ok(())
}

impl Operator for Split {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        same_memory(at)
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        at.give_input()
    }

    fn rule_of_sum(&self) -> ScaleRule {
        ScaleRule::FromConcat
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        at.forward_grad(0, dy)
    }
}

/// Direction of a copy between a whole tensor and its part: out of the whole, or into it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    Out,
    Into,
}

/// Returns the copy between a whole tensor and a dense part of it that starts at `start` along an axis.
pub(super) fn part(
    node: &Node, [whole, piece]: [Shape; 2], axis: usize, start: usize, way: Way,
) -> Result<Strided, TraceError> {
    let (whole, piece) = (sizes(&node.name, whole)?, sizes(&node.name, piece)?);
    let (of_whole, of_piece) = (strides(whole), strides(piece));
    let dims = [0, 1, 2, 3].map(|i| match way {
        Way::Out => Dim { len: piece[i], x: of_whole[i], y: of_piece[i] },
        Way::Into => Dim { len: piece[i], x: of_piece[i], y: of_whole[i] },
    });
    let first = node.size(start)?.saturating_mul(u32::try_from(of_whole[axis]).unwrap_or(u32::MAX));
    let [x0, y0] = match way {
        Way::Out => [first, 0],
        Way::Into => [0, first],
    };
    Strided::new(&dims, x0, y0).map_err(|error| node.error(error))
}
