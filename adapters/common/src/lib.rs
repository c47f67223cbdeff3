#![doc = include_str!("../README.md")]

mod error;
mod outcome;
mod saved;
mod scaler;
mod step;

pub use error::Error;
pub use gradscale::{Cause as SkipCause, gradscale_core, gradscale_core::step_outcome::NonFiniteKind};
pub use outcome::{NextAction, NonFiniteSite, Outcome, Skipped};
pub use scaler::{Scaler, Site, SiteReport};
