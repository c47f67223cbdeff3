//! The engine tested by someone who did not write it: against naive f64, by properties, by hand-made traces.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "test data is small and known")]

mod bound;
mod choices;
mod corners;
mod custom;
mod eight_bits;
mod f64;
mod f64_more;
mod forward;
mod fused_attention;
mod golden;
mod gradients;
mod graph;
mod init;
mod invariant;
mod language;
mod layers;
mod logits;
mod messages;
mod networks;
mod operators;
mod operators_more;
mod over_time;
mod plan;
mod recompute;
mod recurrent;
mod refused;
mod rows;
mod run;
mod shared;
mod spec12;
mod speech;
mod traces;
mod traces_more;
mod training;
mod translation;
mod window;
