//! The parts of the `gradscale` program.

#![forbid(unsafe_code)]

pub mod amp;
pub mod args;
pub mod commands;
pub mod compare;
pub mod config;
pub mod data;
pub mod device;
mod doubts;
mod failure;
mod machine;
pub mod metrics;
pub mod optimizer;
mod output;
pub mod predict;
pub mod propose;
pub mod regimes;
pub mod replay;
mod report;
pub mod rule;
pub mod task;
mod text;
pub mod trace;
pub mod train;

pub use failure::Failure;
