#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(clippy::needless_doctest_main, reason = "the whole file of a test is shown")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "test data is small and known")]

mod case;
mod cases;
mod compare;
mod counting;
mod ctc;
mod data;
mod epilogue;
mod fault;
mod nhwc;
mod property;
mod recorder;
mod reference;
mod rig;
mod runner;
mod tolerance;
mod wait;

pub use case::{Case, Check, Fail, Measured, Outcome};
pub use cases::{ATTENTION, OPERATORS, suite};
pub use counting::{Calls, Counting};
pub use fault::Fault;
pub use property::{CASES, seed};
pub use recorder::{Keeps, Recorded, Recorder, Shared, SharedTable};
pub use reference::{Memory, Reference, Table};
pub use runner::{main, main_for_each};
pub use tolerance::{TOLERANCES, Tolerance};
pub use wait::{Driver, drive_by};
