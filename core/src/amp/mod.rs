//! Automatic mixed precision as data: which operator runs in which precision, and the casts that follow.

mod plan;
mod policy;

pub use crate::ops::List;
pub use plan::{Input, MAX_INPUTS, Node, PlanError, Planned, plan, plan_with};
pub use policy::{AmpPolicy, Full, Level, OVERRIDES, Precision, Settings};
