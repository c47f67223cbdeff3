#![doc = include_str!("../README.md")]

mod guard;
mod layers;
mod ops;
mod site;

pub use gradscale_adapters::{Cause, End, Error, NonFiniteKind, Outcome, Scaler, SiteReport, Skipped};
pub use guard::Guard;
pub use layers::{ScaledConv2d, ScaledLinear};
pub use site::Site;
