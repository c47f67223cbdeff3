//! WebAssembly interface of the npm package: the functions of `gradscale.h`, and those below, which own memory. Only
//! the package's JavaScript calls them, with pointers into memory that it has requested. All persistent state is in
//! JavaScript, so a module instance that has failed can be discarded.
#![cfg(target_arch = "wasm32")]

use gradscale_c::gs_status::{self, GS_ERROR_FORMAT, GS_ERROR_LENGTH, GS_ERROR_OTHER, GS_OK};
use gradscale_c::{
    GS_ABI_VERSION, gs_counts, gs_flush, gs_format, gs_row, gs_row_counts, gs_row_merge, gs_row_store_fp16,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::Gemm,
    stats::Detail,
};
use gradscale_cpu::{Cpu, Isa, Memory, Slice, SliceMut};
use half::f16;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Memory for the arguments of a single call.
static ARGUMENTS: Mutex<Vec<[u64; 2]>> = Mutex::new(Vec::new());

/// Reserves `bytes` bytes for the arguments of the next call, and returns NULL if memory is exhausted. Invalidates the
/// arguments of the last call.
#[unsafe(no_mangle)]
pub extern "C" fn gs_npm_reserve(bytes: usize) -> *mut [u64; 2] {
    let mut arguments = ARGUMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let len = bytes.div_ceil(16).max(1);
    if arguments.len() < len {
        // Frees the old buffer first, because its content is not needed and memory may be short.
        *arguments = Vec::new();
        if arguments.try_reserve_exact(len).is_err() {
            return std::ptr::null_mut();
        }
        arguments.resize(len, [0; 2]);
    }
    arguments.as_mut_ptr()
}

/// Returns the GS_ABI_VERSION of the structures whose layout the JavaScript code contains.
#[unsafe(no_mangle)]
pub extern "C" fn gs_npm_version() -> u32 {
    GS_ABI_VERSION
}

/// Returns 1 if this module was compiled with SIMD128, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn gs_npm_simd() -> u32 {
    u32::from(Isa::best() != Isa::Portable)
}

fn cpu() -> Result<&'static Cpu, gs_status> {
    static CPU: OnceLock<Option<Cpu>> = OnceLock::new();
    CPU.get_or_init(|| Cpu::new(1).ok()).as_ref().ok_or(GS_ERROR_OTHER)
}

/// Stores a gradient as `gs_row_store_fp16` does, but by the CPU backend's kernels: same halves, counters and histogram.
///
/// # Safety
/// As for `gs_row_store_fp16`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_npm_store_fp16(
    row: *mut gs_row, v: *const f32, from: i32, y: *mut u16, count: usize,
) -> gs_status {
    // SAFETY: promised by the caller. An invalid row is rejected here.
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
        return unsafe { gs_row_store_fp16(row, v, from, y, count) };
    };
    // SAFETY: promised by the caller; a half is 16 bits, whatever they are.
    let (x, y) =
        unsafe { (std::slice::from_raw_parts(v, count), std::slice::from_raw_parts_mut(y.cast::<f16>(), count)) };
    let Ok(seen) = cpu.store(Slice::F32(x), from, SliceMut::F16(y), old.exponent, detail) else {
        return GS_ERROR_LENGTH;
    };
    let seen = gs_row { words: seen.to_words(), ..old };
    // SAFETY: promised by the caller.
    unsafe { gs_row_merge(row, &seen) }
}

/// Index of the word of a row that has its level of detail; see the table of `gs_row` in `gradscale.h`.
const DETAIL: usize = 15;

/// Copies an operand of a product to a buffer: f32 values, or FP16 bit patterns if `halves` is not 0.
///
/// # Safety
/// `from` points to `len` elements.
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

/// Computes y = op(a) · op(b) in f32, of shape m × n, with k terms in each sum. In `halves` and `transposed`, bit 0
/// concerns a and bit 1 concerns b. Returns GS_ERROR_FORMAT for an invalid shape, and GS_ERROR_LENGTH if memory is exhausted.
///
/// # Safety
/// The operands have the elements of these shapes, and y overlaps neither of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_npm_matmul(
    a: *const f32, b: *const f32, y: *mut f32, m: u32, n: u32, k: u32, halves: u32, transposed: u32,
) -> gs_status {
    let shape = || {
        let gemm = Gemm::new(m, n, k)?;
        let gemm = if transposed & 1 != 0 { gemm.transpose_a()? } else { gemm };
        if transposed & 2 != 0 { gemm.transpose_b() } else { Ok(gemm) }
    };
    let (Ok(p), Ok(cpu)) = (shape(), cpu()) else { return GS_ERROR_FORMAT };
    let [a_len, b_len, y_len] = p.lens().map(|len| len as usize);
    // SAFETY: promised by the caller.
    let operands = unsafe { (operand(a, halves & 1, a_len), operand(b, halves & 2, b_len)) };
    let (Some(a), Some(b), Ok(mut result)) = (operands.0, operands.1, cpu.alloc(DType::F32, y_len)) else {
        return GS_ERROR_LENGTH;
    };
    let Ok(table) = cpu.table(Slot::FIRST_SITE.0, 0) else { return GS_ERROR_OTHER };
    let store = Store::keep(Slot::ONE, &table, &mut result);
    if cpu.launch(Launch::Gemm { p, a: &a, b: &b, bias: None, y: store }).is_err() {
        return GS_ERROR_OTHER;
    }
    let Memory::F32(result) = &result else { return GS_ERROR_OTHER };
    // SAFETY: promised by the caller.
    unsafe { y.copy_from_nonoverlapping(result.as_ptr(), y_len) };
    GS_OK
}
