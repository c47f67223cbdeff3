#![doc = include_str!("../README.md")]

mod guard;
mod layers;
mod ops;
mod site;

pub use gradscale_adapters::{
    Error, NextAction, NonFiniteKind, NonFiniteSite, Outcome, Scaler, SiteReport, SkipCause, Skipped,
};
pub use guard::StepGuard;
pub use layers::{ScaledConv2d, ScaledLinear};
pub use site::Site;
