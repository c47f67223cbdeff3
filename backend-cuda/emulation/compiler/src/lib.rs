//! Emulation of NVIDIA's run-time compiler: the functions of `libnvrtc.so` that gradscale-cuda calls. Kernels are
//! compiled by the host's C++ compiler, with `machine.hpp` instead of the file of instructions (`ptx.cuh`). The output
//! is no machine code but the path of a library, which the emulated driver loads.
//!
//! Libraries are stored in the folder `emulated` next to this library, by a hash of their source.

mod build;

use core::ffi::{CStr, c_char, c_int};
use std::{
    collections::HashMap,
    ffi::CString,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

/// Status of a call of NVRTC: `nvrtcResult`.
type Status = u32;
const SUCCESS: Status = 0;
const INVALID_PROGRAM: Status = 4;
const COMPILATION: Status = 6;

/// Program of the emulated NVRTC: its source, log and compiled code.
#[derive(Debug, Default)]
struct Program {
    name: String,
    source: String,
    log: CString,
    image: Vec<u8>,
}

/// Programs by handle; a handle is never reused.
static PROGRAMS: LazyLock<Mutex<(usize, HashMap<usize, Program>)>> = LazyLock::new(Mutex::default);

fn programs() -> MutexGuard<'static, (usize, HashMap<usize, Program>)> {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Applies a function to the program of a handle; returns an error for an unknown handle.
fn with(program: usize, work: impl FnOnce(&mut Program) -> Status) -> Status {
    programs().1.get_mut(&program).map_or(INVALID_PROGRAM, work)
}

/// Copies a C string.
///
/// # Safety
/// The text ends with a zero.
unsafe fn text(at: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}

/// Returns 0 if kernels can be compiled here, or 1 without a C++ compiler.
#[unsafe(no_mangle)]
pub extern "C" fn emulated_compiler_is_missing() -> c_int {
    c_int::from(!build::is_possible())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> Status {
    // SAFETY: the caller's memory.
    unsafe {
        major.write(13);
        minor.write(0);
    }
    SUCCESS
}

/// Compute capabilities that the emulated machine distinguishes.
const ARCHITECTURES: [c_int; 3] = [75, 80, 90];

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetNumSupportedArchs(count: *mut c_int) -> Status {
    // SAFETY: the caller's memory.
    unsafe { count.write(3) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetSupportedArchs(archs: *mut c_int) -> Status {
    // SAFETY: the caller's array has the number of elements that `nvrtcGetNumSupportedArchs` has returned.
    unsafe { archs.copy_from_nonoverlapping(ARCHITECTURES.as_ptr(), ARCHITECTURES.len()) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetErrorString(status: Status) -> *const c_char {
    match status {
        SUCCESS => c"NVRTC_SUCCESS".as_ptr(),
        INVALID_PROGRAM => c"NVRTC_ERROR_INVALID_PROGRAM".as_ptr(),
        COMPILATION => c"NVRTC_ERROR_COMPILATION".as_ptr(),
        _ => c"NVRTC_ERROR unknown".as_ptr(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCreateProgram(
    program: *mut usize, source: *const c_char, name: *const c_char, _headers: c_int, _texts: *const *const c_char,
    _names: *const *const c_char,
) -> Status {
    // SAFETY: the caller's texts.
    let (source, name) = unsafe { (text(source), text(name)) };
    let mut programs = programs();
    programs.0 += 16;
    let handle = programs.0;
    let name = name.trim_end_matches(".cu").to_owned();
    programs.1.insert(handle, Program { name, source, ..Program::default() });
    // SAFETY: the caller's memory.
    unsafe { program.write(handle) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCompileProgram(program: usize, count: c_int, options: *const *const c_char) -> Status {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the caller's texts.
    let options: Vec<_> = (0..count).map(|i| unsafe { text(*options.add(i)) }).collect();
    let arch = options.iter().find_map(|option| option.strip_prefix("--gpu-architecture=sm_"));
    let arch = arch.and_then(|arch| arch.trim_end_matches('a').parse().ok()).unwrap_or(75);
    // Compiled without the lock: another program may be made meanwhile.
    let Some((name, source)) = programs().1.get(&program).map(|program| (program.name.clone(), program.source.clone()))
    else {
        return INVALID_PROGRAM;
    };
    let built = build::library(&name, &source, arch);
    with(program, |program| match built {
        Ok(path) => {
            program.image = format!("EMULATED {}\0", path.display()).into_bytes();
            SUCCESS
        }
        Err(log) => {
            program.log = CString::new(log).unwrap_or_default();
            COMPILATION
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetProgramLogSize(program: usize, size: *mut usize) -> Status {
    with(program, |program| {
        // SAFETY: the caller's memory.
        unsafe { size.write(program.log.as_bytes_with_nul().len()) };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetProgramLog(program: usize, log: *mut c_char) -> Status {
    with(program, |program| {
        let text = program.log.as_bytes_with_nul();
        // SAFETY: the caller's buffer has the size that `nvrtcGetProgramLogSize` has returned.
        unsafe { log.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetCUBINSize(program: usize, size: *mut usize) -> Status {
    with(program, |program| {
        // SAFETY: the caller's memory.
        unsafe { size.write(program.image.len()) };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetCUBIN(program: usize, image: *mut c_char) -> Status {
    with(program, |program| {
        // SAFETY: the caller's buffer has the size that `nvrtcGetCUBINSize` has returned.
        unsafe { image.cast::<u8>().copy_from_nonoverlapping(program.image.as_ptr(), program.image.len()) };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcDestroyProgram(program: *mut usize) -> Status {
    // SAFETY: the caller's memory.
    match programs().1.remove(unsafe { &*program }) {
        Some(_) => SUCCESS,
        None => INVALID_PROGRAM,
    }
}
