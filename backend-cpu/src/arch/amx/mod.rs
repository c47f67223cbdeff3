//! AMX: products of halves by tiles of bf16, without a loss.
//!
//! A half has 11 significant bits; bf16 has 8 and a wider exponent. So a finite half is the sum of two bf16, and a
//! product of halves is the sum of four products, each exact in f32. The matrix unit thus multiplies halves with f32
//! accumulation, as the reference does, at a quarter of its rate for bf16: four times the f32 rate of AVX-512. Infinity
//! and NaN have no such parts; packing reports them, and the caller takes another kernel.

mod microkernel;
mod pack;
#[cfg(test)]
mod tests;

pub use microkernel::{KSegment, TileGemm};
pub use pack::{SourceLines, as_bf16, as_bf16_mut};

use super::avx512::Avx512;
use core::arch::{
    asm,
    x86_64::{__cpuid, __cpuid_count, _xgetbv},
};

/// Number of steps of k in a tile. Both operands have a whole number of such blocks.
pub const K_BLOCK: usize = 32;
/// Number of columns, and of rows, of an AMX tile of results.
pub const TILE_DIM: usize = 16;

/// Proof that this machine has AMX with bf16 besides AVX-512, and that the system lets this process use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amx(pub Avx512);

impl Amx {
    /// Returns the proof that AMX can be used, if the machine and the system allow it.
    pub fn new() -> Option<Self> {
        let avx512 = Avx512::new()?;
        (has_tiles() && permitted()).then_some(Self(avx512))
    }
}

/// Returns whether the processor has tiles of bf16 and the system preserves them.
fn has_tiles() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const BF16_AND_TILE: u32 = 1 << 22 | 1 << 24;
    const TILE_STATE: u64 = 1 << 17 | 1 << 18;
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    // SAFETY: the system uses XSAVE, so the instruction is there.
    let kept = unsafe { state() };
    __cpuid_count(7, 0).edx & BF16_AND_TILE == BF16_AND_TILE && kept & TILE_STATE == TILE_STATE
}

/// Returns the processor state that the system preserves for each thread.
///
/// # Safety
/// The system uses XSAVE.
#[target_feature(enable = "xsave")]
unsafe fn state() -> u64 {
    // SAFETY: register 0 is there where the instruction is.
    unsafe { _xgetbv(0) }
}

/// Requests tiles from Linux for this process. All its threads, present and future, may then use them.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let answer: i64;
    // SAFETY: the call changes only the permissions of this process; the kernel overwrites rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => answer,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer == 0
}

/// Returns false: on other systems it is unknown how to request tiles, so they are not used.
#[cfg(not(target_os = "linux"))]
const fn permitted() -> bool {
    false
}
