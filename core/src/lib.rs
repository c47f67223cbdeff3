#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

/// `Debug` of an error is its sentence: a `main` that returns one prints what people read.
macro_rules! sentence {
    ($error:ty) => {
        impl core::fmt::Debug for $error {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}
pub(crate) use sentence;

pub mod accumulate;
pub mod amp;
pub mod backend;
pub mod cast;
pub mod descriptor;
pub mod format;
pub mod fraction;
pub mod loss_scale;
pub mod model;
pub mod op;
pub mod parts;
pub mod rules;
pub mod scale;
pub mod scaled;
pub mod site;
pub mod solve;
pub mod stats;
pub mod step;
