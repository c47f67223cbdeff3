//! Automatic mixed precision as data: the precision of every operator, and the casts that it requires.

mod plan;
mod policy;

pub use crate::ops::List;
pub use plan::{Input, MAX_INPUTS, Node, PlanError, Planned, plan, plan_with};
pub use policy::{AmpPolicy, Full, Level, OVERRIDES, Precision, Settings};
