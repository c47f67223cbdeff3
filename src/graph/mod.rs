//! Graph compiler: from the tape of a network to launches, with precisions and casts, the backward pass, and memory.
//!
//! This module knows operators only by the trait [`Operator`]; each operator is a file of [`crate::ops`]. The trait is
//! defined here and not in a module of its own, because tape, compiler and context all refer to it.

mod backward;
mod bucket_plan;
mod compile;
mod context;
mod forward;
mod free_places;
mod fuse_attention;
mod launch;
mod memory;
mod operand_formats;
mod plan;
mod program;
mod round_stores;
mod store_blocks;
mod sync_points;
mod tape;
mod waiting_values;

use compile::Compiler;
pub(crate) use compile::{CompileOptions, compile};
pub(crate) use context::Context;
pub(crate) use launch::{
    BufferId, BufferIds, CastSpec, Fixed, Gradient, Launch, Operation, ParamTensor, ParamUpdate, STATES, ScaleRule,
    StoreSpec, Value, cast, cast_value, unary,
};
pub use plan::PlanRow;
pub(crate) use plan::plan;
pub(crate) use program::{AuxOutput, ParameterInfo, Program, Purpose, Traced};
pub(crate) use sync_points::{BucketPlan, DistributedPlan, StatsSync, SyncPayload, SyncPoint, SyncReason, ValueCount};
pub(crate) use tape::{Node, NodeKind, Trace, input, mismatch, other_shape, size, sizes};
pub use tape::{Tape, Var};

#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{TraceError, error::TraceErrorKind};
use gradscale_core::{
    backend::Data,
    ops::{ActivationFlow, Op},
};
use std::{any::Any, fmt, ops::Range};

/// Trait of an operator of a network: emits its launches, forward and backward.
pub(crate) trait Operator: Same + fmt::Debug + Send + Sync {
    /// Emits the launches of the operator's forward pass.
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError>;

    /// Emits the gradients of the operator's inputs from the gradient of its result.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError>;

    /// Writes the operator's counterpart in an ONNX model.
    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        Err(at.unsupported("an operator of training"))
    }

    /// Returns the effect of the operator on the exponents of its inputs, if forward stores have exponents. `op` is the
    /// node's name in the table of operators. By default an operator reads true values, which is right for each; one
    /// that reads values with their exponents must follow the row of the table.
    fn activation_flow(&self, _op: Op) -> ActivationFlow {
        ActivationFlow::TrueValues
    }

    /// Returns true if a gradient flows back through the operator.
    fn is_differentiable(&self) -> bool {
        true
    }

    /// Returns true if the operator's result is integers, which have no precision.
    fn gives_integers(&self) -> bool {
        false
    }

    /// Returns the index of the operator's integer input, if it has one.
    fn integers(&self) -> Option<usize> {
        None
    }

    /// Returns the indices of the operator's integer inputs with lengths, besides that of [`Operator::integers`].
    fn lengths(&self) -> Range<usize> {
        0..0
    }

    /// Returns the index of the operator's input with coordinates, if it has one. Coordinates are f32 at every level,
    /// and do not make the operator compute in f32.
    fn coordinates(&self) -> Option<usize> {
        None
    }

    /// Returns the index of the operator's bias input, if it can have one; the gradient's site is named after it.
    fn bias(&self) -> Option<usize> {
        None
    }

    /// Returns true for a loss, whose result is f32, so that its precision depends on its inputs alone.
    fn is_loss(&self) -> bool {
        false
    }

    /// Returns the rule for the exponent of the gradient of the operator's result if that is a sum over several
    /// consumers.
    fn rule_of_sum(&self) -> ScaleRule {
        ScaleRule::FromSum
    }

    /// Returns another node whose saved values the operator reads.
    fn reads_saved(&self) -> Option<usize> {
        None
    }

    /// Checks host data for input `i` of the operator, and returns the error.
    fn check(&self, _i: usize, _data: Data<'_>) -> Result<(), TraceErrorKind> {
        Ok(())
    }
}

/// Trait for equality of operators behind a trait object.
pub(crate) trait Same: Any {
    /// Returns true if `other` is the same operator with the same settings.
    fn same(&self, other: &dyn Operator) -> bool;
}

impl<T: Operator + PartialEq> Same for T {
    fn same(&self, other: &dyn Operator) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }
}
