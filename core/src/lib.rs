#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

/// Macro: implements `Debug` of an error as its `Display` sentence, so that a `main` that returns one prints a readable
/// message.
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

/// Macro: defines the numbers by which kernels know the variants of an enum. A row has the variant, its number, and the
/// kernels' name of that number.
macro_rules! codes {
    ($enum:ty { $($variant:pat => $code:literal $name:literal,)* }) => {
        impl $enum {
            /// Returns the number that represents the variant in the source of device kernels.
            #[must_use]
            pub const fn code(self) -> u32 {
                match self { $($variant => $code,)* }
            }

            /// Names of the variants in the source of device kernels, with their numbers.
            pub(crate) const CODES: &'static [(&'static str, u32)] = &[$(($name, $code),)*];
        }
    };
}
pub(crate) use codes;

pub mod accumulate;
pub mod activation_rules;
pub mod amp;
pub mod backend;
pub mod block_format;
pub mod cast;
pub mod decompose;
pub mod format;
pub mod fraction;
pub mod gradient_rules;
pub mod loss_scale;
pub mod model;
pub mod ops;
pub mod scale;
pub mod scaled;
pub mod site;
pub mod solve;
pub mod stats;
pub mod step_outcome;
pub mod store_format;
