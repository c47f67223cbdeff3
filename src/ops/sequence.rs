//! Sequences: single positions, and masks for sequences of different lengths.

#[cfg(feature = "onnx")]
use super::slice::export;
use super::{
    binary::like,
    reshape::same_memory,
    slice::{Way, part, within},
};
#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    Shape, TraceError, Var,
    error::TraceErrorKind,
    graph::{BufferId, Context, Gradient, Operation, Operator, ScaleRule, StoreSpec, Tape, other_shape, unary},
};
use gradscale_core::{
    backend::{DType, Data, Slot},
    ops::{ActivationFlow, Binary, BinaryOp, Broadcast, Dim, Op, Strided, Unary},
};

impl<'t> Var<'t> {
    /// Splits an axis (0 n, 1 h, 2 w, 3 c) into its positions, each a part whose axis has size 1: torch's `unbind`. In
    /// the backward pass all parts are written into one tensor, so the cost is linear in the axis; with slices it is
    /// quadratic.
    ///
    /// # Errors
    /// An axis beyond 3.
    pub fn unbind(self, axis: usize) -> Vec<Self> {
        self.unbind_as(&self.tape().number("unbind"), axis)
    }

    /// Applies [`Var::unbind`] inside of a layer: all operators are named after `name`, also if another batch has more
    /// positions.
    pub(crate) fn unbind_as(self, name: &str, axis: usize) -> Vec<Self> {
        let whole = self.unbound_as(name, axis);
        // A scalar replaces the result if the axis does not fit.
        let count = self.shape().sizes().get(axis).copied().unwrap_or(1);
        if axis < 4 { (0..count).map(|at| whole.place_as(name, axis, at)).collect() } else { vec![whole] }
    }

    /// Marks a value whose positions along an axis are read one by one, by [`Var::place_as`] or by operators of a step.
    pub(crate) fn unbound_as(self, name: &str, axis: usize) -> Self {
        self.try_record(|| {
            within(name, axis)?;
            self.sizes(name)?;
            Ok(self.record_named_op(name.to_owned(), Op::Split, Unbound, &[], self.shape()))
        })
    }

    /// Returns position `at` along an axis of a value that [`Var::unbound_as`] has marked.
    pub(crate) fn place_as(self, name: &str, axis: usize, at: usize) -> Self {
        let mut shape = self.shape().sizes();
        shape[axis] = 1;
        self.record_named_op(format!("{name}.part"), Op::Slice, Place { axis, at }, &[], Shape::from(shape))
    }

    /// Selects values of x `[n, 1, t, c]`, whose positions start at `first`: those inside of each sequence, or outside
    /// of it if not `inside`. Elsewhere value and gradient are 0, whatever x has there. Lengths are integers `[n]`;
    /// `steps` is their maximum.
    pub(crate) fn select(self, name: &str, lengths: Self, steps: usize, places: Places) -> Self {
        self.try_record(|| {
            let sizes = self.sizes(name)?;
            if lengths.shape().len() != self.shape().sizes()[0] {
                return Err(other_shape(name, "lengths", lengths, [self.shape().sizes()[0]].into()));
            }
            let operator = Select { steps, sizes, places };
            Ok(self.record_named_op(name.to_owned(), Op::Select, operator, &[lengths], self.shape()))
        })
    }
}

/// Operator that marks a value whose positions along an axis [`Place`]s extract.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Unbound;

impl Operator for Unbound {
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

    /// Emits the gradient of x. dy exists in f32, assembled by the positions; if x is half, the cast after it is the
    /// site.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        at.forward_grad(0, dy)
    }
}

/// Operator that extracts one position along an axis of an [`Unbound`] node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    axis: usize,
    at: usize,
}

impl Operator for Place {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let x = at.read_any(0)?.buf;
        let p = part(at.node, [at.input(0), at.node.shape], self.axis, self.at, Way::Out)?;
        at.store(|y| Operation::Copy { p, x, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        export(at, self.axis, self.at)
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        add_to_place(at, 0, at.node.shape, [self.axis, self.at], dy)
    }
}

/// Writes a part of the gradient of input `i`, which is one f32 tensor, at a position along an axis. The tensor has the
/// exponent of the first part that is written; other parts are rescaled to it.
pub(super) fn add_to_place(
    at: &mut Context<'_, '_, '_>, i: usize, piece: Shape, [axis, place]: [usize; 2], dy: Gradient,
) -> Result<(), TraceError> {
    let (shape, whole) = (at.input(i), gradient_of_places(at, i, dy.slot)?);
    let p = part(at.node, [shape, piece], axis, place, Way::Into)?;
    at.emit(Operation::Copy { p, x: dy.value.buf, y: StoreSpec::rescaled(whole.value, dy.slot, whole.slot) });
    Ok(())
}

/// Returns the gradient of input `i`, f32, into which operators write parts. The first of them creates it, at the exponent
/// of its slot.
pub(super) fn gradient_of_places(at: &mut Context<'_, '_, '_>, i: usize, slot: Slot) -> Result<Gradient, TraceError> {
    if let Some(whole) = at.peek_grad(i) {
        return Ok(whole);
    }
    // Positions without a gradient remain 0.
    let value = at.new_buffer(DType::F32, at.input(i).len());
    fill(at, StoreSpec::passthrough(value, Slot::ONE))?;
    let whole = Gradient { value, slot };
    at.push_grad(i, whole);
    Ok(whole)
}

impl Tape {
    /// Records zeros, stored like a batch's data, without a gradient: for example an initial state.
    ///
    /// # Errors
    /// More than 2^32 − 1 elements.
    pub fn zeros(&self, shape: impl Into<Shape>) -> Var<'_> {
        self.record_source("zeros", Op::Expand, Zeros, shape.into())
    }
}

/// Operator that returns zeros, without inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Zeros;

impl Operator for Zeros {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (x, p) = (at.zero(), everywhere(at, at.node.shape.len())?);
        at.store(|y| Operation::Copy { p, x, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let sizes = at.node().shape.sizes();
        let sizes = at.sizes(&sizes);
        let y = at.emit("ConstantOfShape", &[&sizes], &[]);
        at.set_output(y);
        Ok(())
    }

    fn is_differentiable(&self) -> bool {
        false
    }

    fn vjp(&self, _: &mut Context<'_, '_, '_>, _: Gradient) -> Result<(), TraceError> {
        Ok(())
    }
}

/// Returns the strided copy that repeats a scalar to a given length.
fn everywhere(at: &Context<'_, '_, '_>, len: usize) -> Result<Strided, TraceError> {
    Strided::new(&[Dim { len: at.node.size(len)?, x: 0, y: 1 }], 0, 0).map_err(|error| at.node.error(error))
}

pub(super) fn fill(at: &mut Context<'_, '_, '_>, y: StoreSpec) -> Result<(), TraceError> {
    let (x, p) = (at.zero(), everywhere(at, y.y.len)?);
    at.emit(Operation::Copy { p, x, y });
    Ok(())
}

/// Selection of the positions of a sequence: before its end, or one position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Places {
    /// All positions before the end of the sequence.
    All,
    /// The position with this number, if it is before the end of the sequence.
    Before(u32),
    /// The position with this number, if it is not before the end of the sequence.
    Behind(u32),
}

/// Operator that selects positions of sequences, 0 elsewhere, with inputs x and lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Select {
    steps: usize,
    sizes: [u32; 4],
    places: Places,
}

impl Select {
    /// Returns a launch that selects x where a number is positive, else 0. It is the derivative of ReLU, which selects
    /// and never multiplies, because values after the end may be ∞ or NaN.
    fn launch(&self, at: &mut Context<'_, '_, '_>) -> Result<(Binary, BufferId), TraceError> {
        let lengths = at.operand(1).buf;
        let [n, h, w, c] = self.sizes;
        // length − position, or position + 1 − length.
        #[expect(clippy::cast_precision_loss, reason = "places beyond 2^24 do not fit a batch's memory")]
        let ahead = match self.places {
            Places::All => None,
            Places::Before(place) => Some(Unary::Affine { a: 1.0, b: -(place as f32) }),
            Places::Behind(place) => Some(Unary::Affine { a: -1.0, b: place as f32 + 1.0 }),
        };
        let mask = match ahead {
            Some(ahead) => {
                let first = at.emit_temporary(n as usize, Slot::ONE, |y| unary(ahead, lengths, y));
                for_each_value(at, first, n, h.saturating_mul(w).saturating_mul(c))?
            }
            None => places_left(at, lengths, self.sizes)?,
        };
        Ok((like(at.node, BinaryOp::Grad(Unary::Relu), Broadcast::All)?, mask))
    }
}

/// Repeats one value of each sequence for all of the sequence's values.
fn for_each_value(at: &mut Context<'_, '_, '_>, x: BufferId, n: u32, each: u32) -> Result<BufferId, TraceError> {
    let dims = [Dim { len: n, x: 1, y: each.into() }, Dim { len: each, x: 0, y: 1 }];
    let p = Strided::new(&dims, 0, 0).map_err(|error| at.node.error(error))?;
    Ok(at.emit_temporary(n as usize * each as usize, Slot::ONE, |y| Operation::Copy { p, x, y }))
}

/// Emits, for each value of `[n, h, t, c]`, the number of positions left in its sequence, which is positive before its
/// end.
pub(super) fn places_left(
    at: &mut Context<'_, '_, '_>, lengths: BufferId, [n, h, w, c]: [u32; 4],
) -> Result<BufferId, TraceError> {
    let each = h.saturating_mul(w).saturating_mul(c);
    let first = at.emit_temporary(n as usize, Slot::ONE, |y| unary(Unary::Id, lengths, y));
    let a = for_each_value(at, first, n, each)?;
    #[expect(clippy::cast_precision_loss, reason = "places beyond 2^24 do not fit a batch's memory")]
    let places = (0..h).flat_map(|_| (0..w).flat_map(|place| (0..c).map(move |_| place as f32))).collect();
    let b = at.constant(places);
    let p = Binary::new(BinaryOp::Sub, n, each, Broadcast::PerColumn).map_err(|error| at.node.error(error))?;
    Ok(at.emit_temporary(n as usize * each as usize, Slot::ONE, |y| Operation::Binary { p, a, b, y }))
}

/// Writes a condition that values of `[_, h, t, c]` are before the end of their sequence, whose lengths are input `i`.
/// Sizes that it does not depend on are 1.
#[cfg(feature = "onnx")]
pub(super) fn before_end(at: &mut Writer<'_>, i: usize, [_, h, w, c]: [usize; 4]) -> Result<String, TraceError> {
    // Along c if that is the time axis.
    let (steps, sizes) = if (h, w) == (1, 1) { (c, [1, 1, 1, c]) } else { (w, [1, 1, w, 1]) };
    let lengths = at.integers(i)?;
    let count = at.shape(i).len();
    let lengths = at.reshape(&lengths, &[count, 1, 1, 1]);
    let places: Vec<i64> = (0..steps as i64).collect();
    let places = at.ints(&places);
    let places = at.reshape(&places, &sizes);
    Ok(at.emit("Greater", &[&lengths, &places], &[]))
}

/// Checks that no sequence length from the host exceeds the number of steps.
pub(super) fn within_steps(steps: usize, data: Data<'_>) -> Result<(), TraceErrorKind> {
    let longer = |len: u32| usize::try_from(len).map_or(true, |len| len > steps);
    let found = match data {
        Data::U8(all) => all.iter().map(|&len| len.into()).enumerate().find(|(_, len)| longer(*len)),
        Data::U32(all) => all.iter().copied().enumerate().find(|(_, len)| longer(*len)),
        Data::F32(_) | Data::F16(_) => None,
    };
    let words = |(i, len)| format!("sequence {i} of the batch has length {len}, but there are {steps} steps");
    found.map_or(Ok(()), |found| Err(TraceErrorKind::Range(words(found))))
}

impl Operator for Select {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let b = at.read(0)?.buf;
        at.read_integers(1, "lengths", &[DType::U8, DType::U32])?;
        let (p, a) = self.launch(at)?;
        at.store(|y| Operation::Binary { p, a, b, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let [_, h, w, c] = at.shape(0).sizes();
        let inside = match self.places {
            Places::All => before_end(at, 1, [1, h, w, c])?,
            // The position is before the end, or it is not.
            Places::Before(place) | Places::Behind(place) => {
                let lengths = at.integers(1)?;
                let lengths = at.reshape(&lengths, &[at.shape(1).len(), 1, 1, 1]);
                let place = at.ints(&[i64::from(place)]);
                let before = at.emit("Greater", &[&lengths, &place], &[]);
                let behind = matches!(self.places, Places::Behind(_));
                if behind { at.emit("Not", &[&before], &[]) } else { before }
            }
        };
        let (x, zero) = (at.x(0)?, at.number(0.0));
        let y = at.emit("Where", &[&inside, &x, &zero], &[]);
        at.set_output(y);
        Ok(())
    }

    fn integers(&self) -> Option<usize> {
        Some(1)
    }

    fn check(&self, i: usize, data: Data<'_>) -> Result<(), TraceErrorKind> {
        if i == 1 { within_steps(self.steps, data) } else { Ok(()) }
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (p, a) = self.launch(at)?;
        let b = dy.value.buf;
        at.emit_gradient(0, dy, at.flow(), ScaleRule::FromValues, |y| Operation::Binary { p, a, b, y })
    }
}
