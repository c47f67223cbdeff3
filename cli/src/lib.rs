//! The parts of the `gradscale` program.

#![forbid(unsafe_code)]

pub mod args;
pub mod build_feature;
pub mod commands;
pub mod config;
mod data_messages;
pub mod device;
mod drawing;
mod failure;
mod help;
mod machine;
pub mod metrics;
pub mod optimizer;
mod output;
mod parallel;
pub mod program;
mod ranks;
mod record;
mod report;
pub mod rule_versions;
mod sanity_checks;
pub mod setup;
pub mod tasks;
pub mod trace;

pub use failure::Failure;
pub use gradscale_data as data;
