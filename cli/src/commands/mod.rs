//! Commands, each with its arguments.

pub mod compare;
pub mod completions;
pub mod devices;
pub mod export;
pub mod inspect;
pub mod plan;
pub mod predict;
pub mod propose;
pub mod regimes;
pub mod replay;
pub mod report;
pub mod train;
pub mod window;
