//! Operators that only move values.

use super::{Var, Work, mismatch};
use crate::{Shape, TraceError, error::TraceErrorKind};
use gradscale_core::{amp::MAX_INPUTS, op::Op};

/// That there is such an axis.
fn within(name: &str, axis: usize) -> Result<(), TraceError> {
    let words = || TraceErrorKind::Range(format!("there is no axis {axis}: 0 is n, 1 h, 2 w, 3 c"));
    if axis < 4 { Ok(()) } else { Err(TraceError::new(name, words())) }
}

impl<'t> Var<'t> {
    /// The same values in another shape.
    ///
    /// # Errors
    /// A shape of another length.
    pub fn reshape(self, shape: impl Into<Shape>) -> Result<Self, TraceError> {
        let shape = shape.into();
        if shape.len() != self.shape().len() {
            return Err(mismatch("reshape", shape, self.shape()));
        }
        Ok(self.then("reshape", Op::Reshape, Work::Reshape, &[], shape))
    }

    /// `[n, h, w, c]` as `[n, h·w·c]`.
    ///
    /// # Errors
    /// None that a shape can cause; kept for chains.
    pub fn flatten(self) -> Result<Self, TraceError> {
        let [n, h, w, c] = self.shape().sizes();
        self.reshape([n, h * w * c])
    }

    /// The same values; no gradient flows back through here.
    #[must_use]
    pub fn detach(self) -> Self {
        self.then("detach", Op::Reshape, Work::Detach, &[], self.shape())
    }

    /// Joins tensors along an axis (0 n, 1 h, 2 w, 3 c); the other sizes must agree. Of more than eight, eight at a time,
    /// then their results.
    ///
    /// # Errors
    /// Sizes that do not, an axis beyond 3.
    pub fn concat(self, others: &[Self], axis: usize) -> Result<Self, TraceError> {
        within("concat", axis)?;
        if others.len() >= MAX_INPUTS {
            let mut parts: Vec<Self> = std::iter::once(self).chain(others.iter().copied()).collect();
            while parts.len() > 1 {
                let join = |some: &[Self]| if let [one] = some { Ok(*one) } else { some[0].concat(&some[1..], axis) };
                parts = parts.chunks(MAX_INPUTS).map(join).collect::<Result<_, _>>()?;
            }
            return Ok(parts[0]);
        }
        let mut shape = self.shape().sizes();
        for other in others {
            let mut fits = other.shape().sizes();
            let size = fits[axis];
            fits[axis] = shape[axis];
            if fits != shape {
                return Err(mismatch("concat", other.shape(), self.shape()));
            }
            shape[axis] += size;
        }
        Ok(self.then("concat", Op::Concat, Work::Concat(axis), others, Shape::from(shape)))
    }

    /// `len` places from `start` on, along an axis.
    ///
    /// # Errors
    /// A part that does not lie inside.
    pub fn slice(self, axis: usize, start: usize, len: usize) -> Result<Self, TraceError> {
        within("slice", axis)?;
        let mut shape = self.shape().sizes();
        if start.checked_add(len).is_none_or(|end| end > shape[axis]) {
            let words = format!("{len} places from {start} on leave axis {axis} of {}", self.shape());
            return Err(TraceError::new("slice", TraceErrorKind::Range(words)));
        }
        shape[axis] = len;
        Ok(self.then("slice", Op::Slice, Work::Slice { axis, start }, &[], Shape::from(shape)))
    }
    /// The same values with their axes in another order: axis `i` of the result is axis `order[i]` of x (0 n, 1 h, 2 w,
    /// 3 c).
    ///
    /// # Errors
    /// An order that does not name each axis once, or too many elements.
    pub fn permute(self, order: [usize; 4]) -> Result<Self, TraceError> {
        let mut sorted = order;
        sorted.sort_unstable();
        if sorted != [0, 1, 2, 3] {
            let words = format!("{order:?} does not name each axis from 0 to 3 once");
            return Err(TraceError::new("permute", TraceErrorKind::Range(words)));
        }
        let sizes = self.shape().sizes();
        self.sizes("permute")?;
        Ok(self.then("permute", Op::Transpose, Work::Permute(order), &[], Shape::from(order.map(|axis| sizes[axis]))))
    }

    /// Parts of those lengths along an axis, one after the other. Backward their gradients are put together again: that
    /// gradient is a site.
    ///
    /// # Errors
    /// Lengths whose sum is not the axis, an axis beyond 3.
    pub fn split(self, axis: usize, lens: &[usize]) -> Result<Vec<Self>, TraceError> {
        self.split_into(self.tape.number("split"), axis, lens, |part, _| part)
    }

    /// [`Var::split`] inside of a layer, whose calls share sites: all is called after `name`.
    pub(crate) fn split_as(self, name: &str, axis: usize, lens: &[usize]) -> Result<Vec<Self>, TraceError> {
        let name = format!("{name}.split");
        self.split_into(name.clone(), axis, lens, |part, i| part.named(&format!("{name}.{i}")))
    }

    fn split_into(
        self, name: String, axis: usize, lens: &[usize], called: impl Fn(Self, usize) -> Self,
    ) -> Result<Vec<Self>, TraceError> {
        let total = lens.iter().try_fold(0usize, |sum, &len| sum.checked_add(len));
        within("split", axis)?;
        if total != Some(self.shape().sizes()[axis]) {
            let words = format!("{lens:?} do not add up to axis {axis} of {}", self.shape());
            return Err(TraceError::new("split", TraceErrorKind::Range(words)));
        }
        let whole = self.then_named(name, Op::Split, Work::Split, &[], self.shape());
        let mut start = 0;
        let part = |(i, &len): (usize, &usize)| {
            start += len;
            Ok(called(whole.slice(axis, start - len, len)?, i))
        };
        lens.iter().enumerate().map(part).collect()
    }
}
