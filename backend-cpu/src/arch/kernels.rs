//! Plain loops, compiled once for the target and once for each instruction set.

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
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
                fn wide<$($generics)*>($($arg: $type),*) $(-> $out)? {
                    body($($arg),*)
                }

                match self {
                    Self::Portable => body($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: the token proves the features.
                    Self::Avx512(_) => unsafe { wide($($arg),*) },
                }
            })*
        }
    };
}

pub(crate) use kernels;
