//! Plain loops, compiled once for the target and once for each instruction set.
//!
//! Nothing in them fuses a product with a sum, so that every instruction set gives the same bits.

mod channels;
mod classes;
mod elements;
mod frames;
pub mod math;
mod observe;
mod rows;
mod update;
mod windows;

pub use observe::{Limits, Pass};
pub use update::{Adam, Sgd};
pub use windows::Along;

/// Makes each function a method of [`super::Isa`], whose body is compiled for the widest vectors that the machine has.
/// Type parameters stand in brackets. What a body calls must be `#[inline(always)]`, or a closure of few operations:
/// only what is inlined gets wider.
macro_rules! kernels {
    ($($(#[$doc:meta])* fn $name:ident [$($generics:tt)*] ($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? $body:block)*) => {
        impl crate::Isa {
            $($(#[$doc])*
            pub(crate) fn $name<$($generics)*>(self, $($arg: $type),*) $(-> $out)? {
                #[inline(always)]
                fn body<$($generics)*>($($arg: $type),*) $(-> $out)? $body

                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2,fma,f16c")]
                fn avx2<$($generics)*>($($arg: $type),*) $(-> $out)? {
                    body($($arg),*)
                }

                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
                fn avx512<$($generics)*>($($arg: $type),*) $(-> $out)? {
                    body($($arg),*)
                }

                match self {
                    Self::Portable => body($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: the token proves the features.
                    Self::Avx2(_) => unsafe { avx2($($arg),*) },
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: the token proves the features.
                    Self::Avx512(_) | Self::Amx(_) => unsafe { avx512($($arg),*) },
                    // Every AArch64 target of the compiler's has NEON.
                    #[cfg(target_arch = "aarch64")]
                    Self::Neon(_) => body($($arg),*),
                    // It is there because the whole crate is compiled for it.
                    #[cfg(target_feature = "simd128")]
                    Self::Simd128(_) => body($($arg),*),
                }
            })*
        }
    };
}

pub(crate) use kernels;
