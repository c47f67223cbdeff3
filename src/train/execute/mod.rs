//! Programs of a training: look-up, execution, decisions inside a step.

mod compiled;
mod decide_in_step;
mod evaluate;
mod operand_stats;
mod program_lookup;
mod run;
mod scale_window;
mod times;

pub use compiled::{Program, ProgramKind};
pub use operand_stats::{Observation, Operands, Source};
pub use scale_window::gradient_errors;

pub(super) use run::ExecutionMode;
pub(super) use scale_window::Stores;
