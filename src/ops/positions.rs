//! A tensor as `[outer, len, inner]` around one of its axes, and conditions for positions along that axis.

use super::slice::within;
use crate::{
    TraceError, Var,
    error::TraceErrorKind,
    graph::{BufferId, Context, Operation, StoreSpec, unary},
};
use gradscale_core::{
    backend::{DType, Slot},
    ops::{Binary, BinaryOp, Broadcast, Dim, Reduce, Strided, Unary},
};

/// Largest number of positions along an axis, 2^24. Positions are compared as f32, which has all integers up to it.
const MAX_POSITIONS: u32 = 1 << 24;

/// Sizes of a tensor around an axis: the product of the sizes before it, its own, and the product of those after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AxisView {
    pub outer: u32,
    pub len: u32,
    pub inner: u32,
}

/// Values for each outer and inner index, as part of a tensor with more of them: `stride` between outer indices, from
/// element `start` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct EachLine {
    start: u32,
    stride: i64,
}

/// Returns the sizes of a tensor around an axis.
pub(super) fn axis_view(name: &str, x: Var<'_>, axis: usize) -> Result<AxisView, TraceError> {
    within(name, axis)?;
    let sizes = x.sizes(name)?;
    let len = sizes[axis];
    if len > MAX_POSITIONS {
        let words = format!("axis {axis} has {len} positions, more than 2^24");
        return Err(TraceError::new(name, TraceErrorKind::Range(words)));
    }
    let product = |sizes: &[u32]| sizes.iter().product();
    Ok(AxisView { outer: product(&sizes[..axis]), len, inner: product(&sizes[axis + 1..]) })
}

impl AxisView {
    /// Returns the number of elements of the tensor.
    pub const fn count(self) -> usize {
        self.outer as usize * self.len as usize * self.inner as usize
    }

    /// Returns the number of lines along the axis.
    pub const fn lines(self) -> usize {
        self.outer as usize * self.inner as usize
    }

    /// Returns the values for each line in a tensor `[outer, inner]` (`part` 0).
    pub const fn each(self, part: u32) -> EachLine {
        self.each_of(part, 1)
    }

    /// Returns the values for each line at position `part` of a tensor `[outer, parts, inner]`.
    pub const fn each_of(self, part: u32, parts: u32) -> EachLine {
        EachLine { start: part * self.inner, stride: parts as i64 * self.inner as i64 }
    }

    /// Returns the descriptor of a function of two tensors with the sizes of the view.
    pub fn binary(self, at: &Context<'_, '_, '_>, op: BinaryOp, over: Broadcast) -> Result<Binary, TraceError> {
        Binary::new(op, self.outer, self.len * self.inner, over).map_err(|error| at.node.error(error))
    }

    /// Emits a function of each element.
    pub fn emit_unary(self, at: &mut Context<'_, '_, '_>, op: Unary, x: BufferId) -> BufferId {
        at.emit_temporary(self.count(), Slot::ONE, |y| unary(op, x, y))
    }

    /// Emits the positions of the first maxima of x, words `[outer, inner]`.
    pub fn emit_places(self, at: &mut Context<'_, '_, '_>, p: Reduce, x: BufferId) -> BufferId {
        let places = at.new_buffer(DType::U32, self.lines());
        at.emit(Operation::Reduce { p, x, y: StoreSpec::passthrough(places, Slot::ONE) });
        places.buf
    }

    /// Emits values for each line, repeated along the axis, as f32 at the exponent of `slot`.
    pub fn emit_repeated(
        self, at: &mut Context<'_, '_, '_>, x: BufferId, line: EachLine, slot: Slot,
    ) -> Result<BufferId, TraceError> {
        let inner = i64::from(self.inner);
        let dims = [
            Dim { len: self.outer, x: line.stride, y: i64::from(self.len) * inner },
            Dim { len: self.len, x: 0, y: inner },
            Dim { len: self.inner, x: 1, y: 1 },
        ];
        let p = Strided::new(&dims, line.start, 0).map_err(|error| at.node.error(error))?;
        Ok(at.emit_temporary(self.count(), slot, |y| Operation::Copy { p, x, y }))
    }

    /// Emits the distance of each position from that of its line, in positions: 0 there, and at least 1 elsewhere.
    pub fn emit_distance(
        self, at: &mut Context<'_, '_, '_>, places: BufferId, line: EachLine,
    ) -> Result<BufferId, TraceError> {
        let wide = self.emit_repeated(at, places, line, Slot::ONE)?;
        #[expect(clippy::cast_precision_loss, reason = "at most 2^24")]
        let all = (0..self.len).flat_map(|place| (0..self.inner).map(move |_| place as f32)).collect();
        let (p, b) = (self.binary(at, BinaryOp::Sub, Broadcast::PerColumn)?, at.constant(all));
        let apart = at.emit_temporary(self.count(), Slot::ONE, |y| Operation::Binary { p, a: wide, b, y });
        Ok(self.emit_unary(at, Unary::Abs, apart))
    }
}
