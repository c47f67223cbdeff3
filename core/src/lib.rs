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

/// Enums that kernels know by numbers: a row is the variant, its number, and what kernels call that number.
macro_rules! codes {
    ($enum:ty { $($variant:pat => $code:literal $name:literal,)* }) => {
        impl $enum {
            /// The number by which kernels know it.
            #[must_use]
            pub const fn code(self) -> u32 {
                match self { $($variant => $code,)* }
            }

            /// What kernels call these numbers.
            pub(crate) const CODES: &'static [(&'static str, u32)] = &[$(($name, $code),)*];
        }
    };
}
pub(crate) use codes;

pub mod accumulate;
pub mod amp;
pub mod backend;
pub mod cast;
pub mod format;
pub mod fraction;
pub mod loss_scale;
pub mod model;
pub mod ops;
pub mod parts;
pub mod rules;
pub mod scale;
pub mod scaled;
pub mod site;
pub mod solve;
pub mod stats;
pub mod step;
