//! Loops in plain Rust, compiled once for the target and once for each instruction set.
//!
//! No product is fused with a sum in them, so that every instruction set has the same bits.

mod attention;
mod channels;
mod classes;
mod elements;
mod frames;
mod gru;
mod lstm;
pub mod math;
mod observe;
mod panels;
mod rows;
mod softmax;
mod update;
mod windows;

pub use observe::{FusedStoreParams, Thresholds};
pub use update::{Adam, Sgd};
pub use windows::RowWindows;

/// Macro: compiles a kernel for every instruction set, and calls the variant for this machine. Functions that the
/// kernel calls must be `#[inline(always)]`, or closures of few operations, because only inlined code gets wider
/// vectors.
macro_rules! compiled {
    ($isa:ident, [$($generics:tt)*] ($($arg:ident: $type:ty),*) [$($out:tt)*] $plain:expr, $avx2:expr, $avx512:expr) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        fn avx2<$($generics)*>($($arg: $type),*) $($out)* {
            $avx2($($arg),*)
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
        fn avx512<$($generics)*>($($arg: $type),*) $($out)* {
            $avx512($($arg),*)
        }

        match $isa {
            Self::Portable => $plain($($arg),*),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves the features.
            Self::Avx2(_) => unsafe { avx2($($arg),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves the features.
            Self::Avx512(_) | Self::Amx(_) => unsafe { avx512($($arg),*) },
            // Every AArch64 target of the compiler's has NEON.
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => $plain($($arg),*),
            // It is there because the whole crate is compiled for it.
            #[cfg(target_feature = "simd128")]
            Self::Simd128(_) => $plain($($arg),*),
        }
    }};
}

/// Macro: defines each function as a method of [`crate::Isa`], whose loops the compiler vectorises. Type parameters are
/// in brackets.
macro_rules! kernels {
    ($($(#[$doc:meta])* fn $name:ident [$($generics:tt)*] ($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? $body:block)*) => {
        impl crate::Isa {
            $($(#[$doc])*
            pub(crate) fn $name<$($generics)*>(self, $($arg: $type),*) $(-> $out)? {
                #[inline(always)]
                fn body<$($generics)*>($($arg: $type),*) $(-> $out)? $body

                $crate::arch::loops::compiled!(self, [$($generics)*] ($($arg: $type),*) [$(-> $out)?] body, body, body)
            })*
        }
    };
}

/// Macro: defines each function as a method of [`super::Isa`], whose vectors are the [`F32x16`](super::simd16::Lanes)
/// of the instruction set: the first parameter in brackets. The other is an [`Element`](super::simd16::Element).
macro_rules! lane_kernels {
    ($($(#[$doc:meta])* fn $name:ident [$lanes:ident, $element:ident] ($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {
        impl crate::Isa {
            $($(#[$doc])*
            pub(crate) fn $name<$element: $crate::arch::simd16::Element>(self, $($arg: $type),*) {
                #[inline(always)]
                fn body<$lanes: $crate::arch::simd16::F32x16, $element: $crate::arch::simd16::Element>($($arg: $type),*) $body

                $crate::arch::loops::compiled!(
                    self, [$element: $crate::arch::simd16::Element] ($($arg: $type),*) []
                    body::<$crate::arch::simd16::PortableF32x16, $element>,
                    body::<$crate::arch::avx2::Avx2F32x16, $element>,
                    body::<$crate::arch::avx512::Avx512F32x16, $element>
                )
            })*
        }
    };
}

use compiled;
pub(crate) use {kernels, lane_kernels};
