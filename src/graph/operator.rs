//! What an operator must say of itself. Operators are rooms of their own, in [`crate::ops`].

use super::{Context, Gradient, Rule};
use crate::{TraceError, error::TraceErrorKind, onnx::Writer};
use gradscale_core::backend::Data;
use std::{any::Any, fmt, ops::Range};

/// An operator as data: what it launches, forward and backward.
pub(crate) trait Operator: Same + fmt::Debug + Send + Sync {
    /// Emits the launches of the forward pass.
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError>;

    /// Emits the gradients of its inputs from that of its result.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError>;

    /// Writes its counterpart in an ONNX model.
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        Err(at.refused("an operator of training"))
    }

    /// Whether a gradient flows back through it.
    fn is_differentiable(&self) -> bool {
        true
    }

    /// Whether its result is integers, which no precision concerns.
    fn gives_integers(&self) -> bool {
        false
    }

    /// The input that is integers, if one is.
    fn integers(&self) -> Option<usize> {
        None
    }

    /// The inputs that are lengths beside these, if some are: integers too.
    fn lengths(&self) -> Range<usize> {
        0..0
    }

    /// The input that is coordinates, if one is: f32 at every level, and no reason to compute in f32.
    fn coordinates(&self) -> Option<usize> {
        None
    }

    /// The input that is a bias, if it may have one: its gradient's site is called so.
    fn bias(&self) -> Option<usize> {
        None
    }

    /// Whether its precision is that of its inputs alone, its result being f32.
    fn is_loss(&self) -> bool {
        false
    }

    /// How the exponent of its gradient is decided where that is a sum over several consumers.
    fn rule_of_sum(&self) -> Rule {
        Rule::Branch
    }

    /// Another node whose saved values it reads.
    fn reads_saved(&self) -> Option<usize> {
        None
    }

    /// What is wrong with data of the host that is its input `i`.
    fn check(&self, _i: usize, _data: Data<'_>) -> Result<(), TraceErrorKind> {
        Ok(())
    }
}

/// Equality of operators whose types are not known.
pub(crate) trait Same: Any {
    /// Whether this is the same operator with the same numbers.
    fn same(&self, other: &dyn Operator) -> bool;
}

impl<T: Operator + PartialEq> Same for T {
    fn same(&self, other: &dyn Operator) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }
}
