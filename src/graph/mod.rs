//! Graph compiler: from the tape of a network to launches, with precisions and casts, the backward pass, and memory.
//!
//! This module knows operators only by the trait [`Operator`]; each operator is a file of [`crate::ops`].

mod backward;
mod compile;
mod context;
mod forward;
mod launch;
mod memory;
mod operator;
mod plan;
mod sync_points;
mod tape;

use compile::Compiler;
pub(crate) use compile::{AuxOutput, CompileOptions, ParameterInfo, Program, Purpose, Traced, compile};
pub(crate) use context::Context;
pub(crate) use launch::{
    BufferId, BufferIds, Fixed, Gradient, Launch, Operation, ParamTensor, ParamUpdate, STATES, ScaleRule, StoreSpec,
    Value, cast, unary,
};
pub(crate) use operator::Operator;
pub use plan::PlanRow;
pub(crate) use plan::plan;
pub(crate) use sync_points::{BucketPlan, DistributedPlan, StatsSync, SyncPayload, SyncPoint, SyncReason, ValueCount};
pub(crate) use tape::{Node, NodeKind, Trace, input, mismatch, size, sizes};
pub use tape::{Tape, Var};
