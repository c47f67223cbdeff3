//! What the JavaScript of this package calls: the functions of `gradscale.h`, and those below, which need memory of their
//! own. The JavaScript alone calls them, with pointers into memory that it asked for; it keeps all that lasts, so that an
//! instance which fails can be thrown away.
#![cfg(target_arch = "wasm32")]

use gradscale_c::gs_status::{self, GS_FORMAT, GS_LENGTH, GS_OK, GS_OTHER};
use gradscale_c::{
    GS_VERSION_NUMBER, gs_counts, gs_flush, gs_format, gs_row, gs_row_counts, gs_row_merge, gs_row_store16,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::Gemm,
    stats::Detail,
};
use gradscale_cpu::{Cpu, Isa, Memory, Slice, SliceMut};
use half::f16;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Memory for the arguments of one call.
static ARGUMENTS: Mutex<Vec<[u64; 2]>> = Mutex::new(Vec::new());

/// So many bytes for the arguments of the next call, or NULL where there are no more. Those of the last call are void.
#[unsafe(no_mangle)]
pub extern "C" fn gs_npm_reserve(bytes: usize) -> *mut [u64; 2] {
    let mut arguments = ARGUMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let len = bytes.div_ceil(16).max(1);
    if arguments.len() < len {
        // The old ones are worth nothing: first away with them.
        *arguments = Vec::new();
        if arguments.try_reserve_exact(len).is_err() {
            return std::ptr::null_mut();
        }
        arguments.resize(len, [0; 2]);
    }
    arguments.as_mut_ptr()
}

/// GS_VERSION_NUMBER of the structures whose layout the JavaScript knows.
#[unsafe(no_mangle)]
pub extern "C" fn gs_npm_version() -> u32 {
    GS_VERSION_NUMBER
}

/// 1 if this module has SIMD128, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn gs_npm_simd() -> u32 {
    u32::from(Isa::best() != Isa::Portable)
}

fn cpu() -> Result<&'static Cpu, gs_status> {
    static CPU: OnceLock<Option<Cpu>> = OnceLock::new();
    CPU.get_or_init(|| Cpu::new(1).ok()).as_ref().ok_or(GS_OTHER)
}

/// As `gs_row_store16`, by the CPU backend's kernels: the same halves, counters and histogram.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_npm_store16(
    row: *mut gs_row, v: *const f32, from: i32, y: *mut u16, count: usize,
) -> gs_status {
    // SAFETY: promised by the caller. What is no row is found here.
    let status = unsafe { gs_row_counts(row, &mut gs_counts::default()) };
    if status != GS_OK {
        return status;
    }
    // SAFETY: promised by the caller.
    let old = unsafe { row.read() };
    let levels = [Detail::None, Detail::Counts, Detail::Full, Detail::Moments];
    let detail = levels.into_iter().find(|detail| detail.code() == old.words[DETAIL]);
    let usual = old.format == gs_format::GS_FP16 as u32 && old.flush == gs_flush::GS_FLUSH_NEAREST as u32;
    let (Some(detail), true, Ok(cpu)) = (detail, usual && count > 0, cpu()) else {
        // SAFETY: promised by the caller.
        return unsafe { gs_row_store16(row, v, from, y, count) };
    };
    // SAFETY: promised by the caller; a half is 16 bits, whatever they are.
    let (x, y) =
        unsafe { (std::slice::from_raw_parts(v, count), std::slice::from_raw_parts_mut(y.cast::<f16>(), count)) };
    let Ok(seen) = cpu.store(Slice::F32(x), from, SliceMut::F16(y), old.exponent, detail) else { return GS_LENGTH };
    let seen = gs_row { words: seen.to_words(), ..old };
    // SAFETY: promised by the caller.
    unsafe { gs_row_merge(row, &seen) }
}

/// Where a row says what it observes: the table in `gradscale.h`.
const DETAIL: usize = 15;

/// Numbers of an operand: f32, or patterns of FP16.
///
/// # Safety
/// So many of them are there.
unsafe fn operand(from: *const f32, halves: u32, len: usize) -> Option<Memory> {
    // SAFETY: promised by the caller; a half is 16 bits, whatever they are.
    unsafe {
        if halves == 0 {
            copy(std::slice::from_raw_parts(from, len)).map(Memory::F32)
        } else {
            copy(std::slice::from_raw_parts(from.cast::<f16>(), len)).map(Memory::F16)
        }
    }
}

fn copy<T: Copy>(from: &[T]) -> Option<Vec<T>> {
    let mut to = Vec::new();
    to.try_reserve_exact(from.len()).ok()?;
    to.extend_from_slice(from);
    Some(to)
}

/// y = op(a) · op(b) in f32: m × n, with k terms of each sum. `halves` and `transposed` have a bit for a (1) and one for b
/// (2). GS_FORMAT for a shape that is none, GS_LENGTH where memory ends.
///
/// # Safety
/// The operands have so many elements, and nothing else is in y.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_npm_product(
    a: *const f32, b: *const f32, y: *mut f32, m: u32, n: u32, k: u32, halves: u32, transposed: u32,
) -> gs_status {
    let shape = || {
        let gemm = Gemm::new(m, n, k)?;
        let gemm = if transposed & 1 != 0 { gemm.transpose_a()? } else { gemm };
        if transposed & 2 != 0 { gemm.transpose_b() } else { Ok(gemm) }
    };
    let (Ok(p), Ok(cpu)) = (shape(), cpu()) else { return GS_FORMAT };
    let [a_len, b_len, y_len] = p.lens().map(|len| len as usize);
    // SAFETY: promised by the caller.
    let operands = unsafe { (operand(a, halves & 1, a_len), operand(b, halves & 2, b_len)) };
    let (Some(a), Some(b), Ok(mut result)) = (operands.0, operands.1, cpu.alloc(DType::F32, y_len)) else {
        return GS_LENGTH;
    };
    let Ok(table) = cpu.table(Slot::FIRST_SITE.0, 0) else { return GS_OTHER };
    let store = Store::keep(Slot::ONE, &table, &mut result);
    if cpu.launch(Launch::Gemm { p, a: &a, b: &b, bias: None, y: store }).is_err() {
        return GS_OTHER;
    }
    let Memory::F32(result) = &result else { return GS_OTHER };
    // SAFETY: promised by the caller.
    unsafe { y.copy_from_nonoverlapping(result.as_ptr(), y_len) };
    GS_OK
}
