//! State of the driver behind one lock, because calls come from any thread.

use crate::{
    faults::Faults,
    objects::{Allocation, Context, Device, Event, Executable, Function, Graph, Handle, Module, Pinned, Stream},
    status::{self, Status},
};
use core::ffi::{CStr, c_char, c_int};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

/// State of the emulated driver: devices and all objects by handle.
#[derive(Debug, Default)]
pub struct State {
    pub devices: Vec<Device>,
    pub contexts: HashMap<Handle, Context>,
    pub streams: HashMap<Handle, Stream>,
    pub events: HashMap<Handle, Event>,
    pub modules: HashMap<Handle, Module>,
    pub functions: HashMap<Handle, Function>,
    pub graphs: HashMap<Handle, Graph>,
    pub executables: HashMap<Handle, Executable>,
    /// Allocations of device memory, by start address.
    pub memory: BTreeMap<u64, Allocation>,
    /// Allocations of pinned host memory by address.
    pub pinned: BTreeMap<usize, Pinned>,
    handles: usize,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    let mut state = State::default();
    let listed = std::env::var("GRADSCALE_EMULATED_CUDA").unwrap_or_default();
    for device in listed.split_whitespace() {
        match Device::parse(device) {
            Ok(device) => state.devices.push(device),
            Err(reason) => forbidden(&format!("GRADSCALE_EMULATED_CUDA: {reason}")),
        }
    }
    Mutex::new(state)
});

/// Locks the global state of the emulated driver.
pub fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process, because the caller's operation is undefined on a GPU.
pub fn forbidden(what: &str) -> ! {
    eprintln!("emulated CUDA: {what}");
    std::process::abort()
}

impl State {
    /// Returns a new handle that no object has.
    pub fn handle(&mut self) -> Handle {
        self.handles += 16;
        0x1000 + self.handles
    }
}

/// Adds a device, `text` as in `GRADSCALE_EMULATED_CUDA`, and returns its number.
///
/// # Safety
/// `text` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulated_device(text: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let device = Device::parse(&text).unwrap_or_else(|reason| forbidden(&reason));
    let mut state = state();
    state.devices.push(device);
    c_int::try_from(state.devices.len() - 1).unwrap_or(c_int::MAX)
}

/// Replaces the faults of a device.
///
/// # Safety
/// `text` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulated_faults(ordinal: c_int, text: *const c_char) -> Status {
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let faults = Faults::parse(&text).unwrap_or_else(|reason| forbidden(&reason));
    match usize::try_from(ordinal).ok().and_then(|ordinal| state().devices.get_mut(ordinal).map(|d| d.faults = faults))
    {
        Some(()) => status::SUCCESS,
        None => status::INVALID_DEVICE,
    }
}

/// Returns 1 if an allocation of the device is still to fail.
#[unsafe(no_mangle)]
pub extern "C" fn emulated_is_failing(ordinal: c_int) -> c_int {
    let state = state();
    let device = usize::try_from(ordinal).ok().and_then(|ordinal| state.devices.get(ordinal));
    c_int::from(device.is_some_and(|device| device.faults.out_of_memory_in.is_some()))
}

/// Returns the index of the device of the calling thread's context; -1 without one.
#[unsafe(no_mangle)]
pub extern "C" fn emulated_current_device() -> c_int {
    let state = state();
    let device = state.entered_device();
    device.and_then(|device| c_int::try_from(device).ok()).unwrap_or(-1)
}

/// Returns 1 if the range of `bytes` bytes at `at` is allocated memory of the current device.
#[unsafe(no_mangle)]
pub extern "C" fn emulated_is_allocated(at: u64, bytes: usize) -> c_int {
    let state = state();
    let context = state.current();
    let within =
        |(start, block): (u64, &Allocation)| block.context == context && at + bytes as u64 <= start + block.bytes;
    c_int::from(state.block_of(at).is_some_and(within))
}

/// Writes the modules whose kernels have run on a device, as NAME:BLOCKS of the largest launch, with spaces between;
/// returns the length without the final zero. At most `len` bytes are written.
///
/// # Safety
/// `text` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulated_modules(ordinal: c_int, text: *mut c_char, len: usize) -> usize {
    let state = state();
    let ordinal = usize::try_from(ordinal).unwrap_or(usize::MAX);
    let used = state
        .devices
        .get(ordinal)
        .map(|device| device.used.iter().map(|(name, most)| format!("{name}:{most}")).collect::<Vec<_>>().join(" "));
    let used = used.unwrap_or_default();
    let count = used.len().min(len.saturating_sub(1));
    // SAFETY: the caller's promise.
    unsafe {
        if len != 0 {
            text.cast::<u8>().copy_from_nonoverlapping(used.as_ptr(), count);
            text.add(count).write(0);
        }
    }
    used.len()
}

/// Writes four counts of a device: kernels launched one by one, graphs launched, copies to it that have not run yet,
/// dependent launches that have run.
///
/// # Safety
/// `counts` has room for four.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulated_counts(ordinal: c_int, counts: *mut u64) -> Status {
    let state = state();
    let Some((device, ordinal)) =
        usize::try_from(ordinal).ok().and_then(|ordinal| Some((state.devices.get(ordinal)?, ordinal)))
    else {
        return status::INVALID_DEVICE;
    };
    let is_here = |stream: &&Stream| state.contexts.get(&stream.context).is_some_and(|one| one.device == ordinal);
    let waiting: usize = state.streams.values().filter(is_here).map(Stream::count_pending_uploads).sum();
    let ([launched, repeated], dependent) = (device.launched, device.dependent);
    // SAFETY: the caller's promise.
    unsafe { counts.cast::<[u64; 4]>().write([launched, repeated, waiting as u64, dependent]) };
    status::SUCCESS
}
