//! A step: backward pass, retry after an overflow, update, outcome. After a skip, parameters, optimizer state, step
//! counts, schedule and running statistics are as before, bit for bit.

mod backward;
mod finish;
mod gradients;
mod outcome;
mod pass;
mod retry;
mod scale_forward;
mod update;

pub use gradients::Gradients;
pub use outcome::{ExponentsAfter, Repeated, Skipped, StepOutcome, UnusableLoss};
pub use pass::Pass;
pub use retry::Attempt;

pub(super) use backward::fits;
pub(super) use finish::StepReadback;
pub(super) use retry::Failed;
pub(super) use update::Update;
