#![doc = include_str!("../README.md")]
#![no_std]
#![expect(non_camel_case_types, reason = "these are C's names")]
#![expect(clippy::missing_safety_doc, reason = "what pointers must be is said once, in the header and README.md")]

#[cfg(feature = "std")]
extern crate std;

mod casts;
mod loss_scale;
mod memory;
mod row;
mod site;
mod status;
mod step;

pub use casts::*;
pub use loss_scale::*;
pub use memory::{GS_ABI_VERSION, gs_abi_version};
pub use row::*;
pub use site::*;
pub use status::{gs_format, gs_status, gs_status_string};
pub use step::*;

/// Never called, because no code here panics. If some did, a program with this library would not link, because
/// `gs_panicked` is not defined.
#[cfg(all(not(feature = "std"), not(test), panic = "abort"))]
#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn gs_panicked() -> !;
    }
    // SAFETY: never linked.
    unsafe { gs_panicked() }
}
