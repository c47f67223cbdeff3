//! The largest values along an axis, and their positions.

use super::positions::{AxisView, axis_view};
#[cfg(feature = "onnx")]
use crate::onnx::{Is, Writer};
use crate::{
    Shape, TraceError, Var,
    error::TraceErrorKind,
    graph::{BufferId, Context, Gradient, Operation, Operator, ScaleRule, StoreSpec, Value, cast, size},
};
use gradscale_core::{
    backend::{DType, Slot},
    ops::{ActivationFlow, BinaryOp, Broadcast, Dim, Op, Reduce, ReduceOp, Strided, Unary},
};

/// Value that replaces an element that was found, so that it is not found again. It is finite, because some devices have
/// no ∞.
const FOUND: f32 = f32::MIN;

impl<'t> Var<'t> {
    /// Finds the `k` largest values along an axis (0 n, 1 h, 2 w, 3 c), the largest first: torch's `topk`. Returns
    /// values and positions (words), whose axis has size k. Of equal values the first comes first, NaN is above all
    /// numbers, and −∞ counts as equal to the least number. The gradient of a value goes to its position; positions have
    /// none.
    ///
    /// Each value takes a pass over the tensor, so the cost grows with k. It serves the choice of experts or of
    /// candidates, and does not replace a sort.
    ///
    /// ```
    /// use gradscale::{Input, Cpu, Method, Parameters, Trainer, optim::Sgd};
    /// let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(1), Sgd::new(0.1), Method::mixed())?;
    /// let scores = [Input::f32([2, 4], &[1.0, 7.0, 3.0, 7.0, -2.0, -8.0, -1.0, -3.0])];
    /// let values = trainer.evaluate(scores, |[x]| x.top_k(3, 2).0)?;
    /// assert_eq!(values.data, [7.0, 7.0, -1.0, -2.0]);
    /// let places = trainer.evaluate_integers(scores, |[x]| x.top_k(3, 2).1)?;
    /// assert_eq!(places.data, [1, 3, 2, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An axis beyond 3 or of more than 2^24 positions, a `k` of 0 or beyond the size of the axis, or too many elements.
    #[doc(alias = "topk")]
    pub fn top_k(self, axis: usize, k: usize) -> (Self, Self) {
        let values = self.try_record(|| {
            let (view, k) = (axis_view("top_k", self, axis)?, size("top_k", k)?);
            if k == 0 || k > view.len {
                let words = format!("expected k from 1 to {}, the size of axis {axis}, not {k}", view.len);
                return Err(TraceError::new("top_k", TraceErrorKind::Range(words)));
            }
            let mut shape = self.shape().sizes();
            shape[axis] = k as usize;
            Ok(self.record_op("top_k", Op::TopK, TopK { view, k }, &[], Shape::from(shape)))
        });
        let positions = Positions { of: values.id() };
        (values, values.record_op("top_k.positions", Op::ArgMax, positions, &[], values.shape()))
    }
}

/// Operator of the k largest values along an axis; it saves their positions, words `[outer, k, inner]`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TopK {
    view: AxisView,
    k: u32,
}

impl TopK {
    /// Emits a copy of values for each line to position `part` of a tensor `[outer, k, inner]`.
    fn put(&self, at: &mut Context<'_, '_, '_>, x: BufferId, part: u32, y: Value) -> Result<(), TraceError> {
        let AxisView { outer, inner, .. } = self.view;
        let step = i64::from(inner);
        let dims = [Dim { len: outer, x: step, y: i64::from(self.k) * step }, Dim { len: inner, x: 1, y: 1 }];
        let p = Strided::new(&dims, 0, part * inner).map_err(|error| at.node.error(error))?;
        at.emit(Operation::Copy { p, x, y: StoreSpec::passthrough(y, Slot::ONE) });
        Ok(())
    }

    fn reduction(&self, at: &Context<'_, '_, '_>, op: ReduceOp) -> Result<Reduce, TraceError> {
        let AxisView { outer, len, inner } = self.view;
        Reduce::new(op, outer, len, inner).map_err(|error| at.node.error(error))
    }
}

impl Operator for TopK {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    /// Emits k searches. Values are selected from x and not from what is searched, so that they are exact.
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (view, x) = (self.view, at.read(0)?.buf);
        let count = at.node.shape.len();
        let (values, places) = (at.new_buffer(DType::F32, count), at.new_buffer(DType::U32, count));
        let [largest, sum] = [ReduceOp::ArgMax, ReduceOp::Sum].map(|op| self.reduction(at, op));
        let (largest, sum) = (largest?, sum?);
        let select = view.binary(at, BinaryOp::Grad(Unary::Relu), Broadcast::All)?;
        // Above the value of elements that were found, also for −∞.
        let (p, least) = (view.binary(at, BinaryOp::Max, Broadcast::One)?, at.constant(vec![FOUND.next_up()]));
        let mut rest = at.emit_temporary(view.count(), Slot::ONE, |y| Operation::Binary { p, a: x, b: least, y });
        let fill = view.binary(at, BinaryOp::Grad(Unary::Relu), Broadcast::One)?;
        let found = at.constant(vec![FOUND]);
        for part in 0..self.k {
            let place = view.emit_places(at, largest, rest);
            self.put(at, place, part, places)?;
            let elsewhere = view.emit_distance(at, place, view.each(0))?;
            let here = view.emit_unary(at, Unary::Affine { a: -1.0, b: 1.0 }, elsewhere);
            let only =
                at.emit_temporary(view.count(), Slot::ONE, |y| Operation::Binary { p: select, a: here, b: x, y });
            let value = at.emit_temporary(view.lines(), Slot::ONE, |y| Operation::Reduce { p: sum, x: only, y });
            self.put(at, value, part, values)?;
            if part + 1 < self.k {
                let (a, b) = (elsewhere, rest);
                let next = at.emit_temporary(view.count(), Slot::ONE, |y| Operation::Binary { p: select, a, b, y });
                let y = StoreSpec::passthrough(Value::f32(next, view.count()), Slot::ONE);
                at.emit(Operation::Binary { p: fill, a: here, b: found, y: StoreSpec { add: true, ..y } });
                rest = next;
            }
        }
        at.save(places);
        at.store(|y| cast(values.buf, y))
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (sizes, AxisView { outer, len, inner }) = (at.node().shape.sizes(), self.view);
        let x = at.shaped(0, &[outer, len, inner].map(|size| size as usize))?;
        let k = at.ints(&[self.k.into()]);
        let [values, places] = at.emit_many("TopK", &[&x, &k], &[("axis", Is::Int(1))]);
        let places = at.reshape(&places, &sizes);
        at.save(places);
        let values = at.reshape(&values, &sizes);
        at.set_output(values);
        Ok(())
    }

    /// Emits each value's gradient at its position, 0 elsewhere. Positions differ, so the sum over values is exact.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (view, places) = (self.view, at.saved().map_or(dy.value.buf, |places| places.buf));
        let p = view.binary(at, BinaryOp::Grad(Unary::Relu), Broadcast::All)?;
        let all = at.new_buffer(DType::F32, view.count());
        for part in 0..self.k {
            let line = view.each_of(part, self.k);
            let elsewhere = view.emit_distance(at, places, line)?;
            let a = view.emit_unary(at, Unary::Affine { a: -1.0, b: 1.0 }, elsewhere);
            let b = view.emit_repeated(at, dy.value.buf, line, dy.slot)?;
            let y = StoreSpec { add: part > 0, ..StoreSpec::passthrough(all, dy.slot) };
            at.emit(Operation::Binary { p, a, b, y });
        }
        at.emit_gradient(0, dy, at.flow(), ScaleRule::FromValues, |y| cast(all.buf, y))
    }
}

/// Operator that returns the positions that [`TopK`] saved, with its values as input.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Positions {
    of: usize,
}

impl Operator for Positions {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        at.saved_of(self.of).into_iter().for_each(|places| at.set_output(places));
        Ok(())
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let places = at.saved(self.of).ok_or_else(|| at.unsupported("these values kept no positions"))?;
        at.give_integers(places);
        Ok(())
    }

    fn gives_integers(&self) -> bool {
        true
    }

    fn is_differentiable(&self) -> bool {
        false
    }

    fn reads_saved(&self) -> Option<usize> {
        Some(self.of)
    }

    fn vjp(&self, _: &mut Context<'_, '_, '_>, _: Gradient) -> Result<(), TraceError> {
        Ok(())
    }
}
