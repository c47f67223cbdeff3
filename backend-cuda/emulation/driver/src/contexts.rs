//! Devices and their primary contexts.

use crate::{
    objects::{Context, DEVICE_MEMORY_BYTES, Device, Handle},
    state::{State, forbidden, state},
    status::{self, Status, done},
};
use core::{
    cell::Cell,
    ffi::{c_char, c_int, c_uint},
};

thread_local! {
    static CURRENT: Cell<Handle> = const { Cell::new(0) };
}

impl State {
    /// Returns the current context of the calling thread, which must not be destroyed.
    pub fn current(&self) -> Handle {
        let current = CURRENT.get();
        if current == 0 {
            forbidden("a call without a context");
        }
        if !self.contexts.contains_key(&current) {
            forbidden("a call in a context that was released");
        }
        current
    }

    /// Returns the index of the current context's device, or `None` without a context.
    pub fn entered_device(&self) -> Option<usize> {
        self.contexts.get(&CURRENT.get()).map(|context| context.device)
    }

    /// Returns the device of the current context.
    pub fn device(&mut self) -> &mut Device {
        let current = self.current();
        let ordinal = self.contexts[&current].device;
        &mut self.devices[ordinal]
    }

    /// Returns the current context, or the error of its device if that is lost.
    pub fn entered(&self) -> Result<Handle, Status> {
        let current = self.current();
        self.contexts[&current].sticky_error.map_or(Ok(current), Err)
    }
}

fn ordinal(device: c_int) -> Result<usize, Status> {
    let ordinal = usize::try_from(device).map_err(|_| status::INVALID_DEVICE)?;
    if ordinal < state().devices.len() { Ok(ordinal) } else { Err(status::INVALID_DEVICE) }
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> Status {
    if state().devices.is_empty() { status::NO_DEVICE } else { status::SUCCESS }
}

/// Returns the version of the driver, which a test chooses by device.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the caller's memory.
    unsafe { version.write(state().device().faults.driver_version()) };
    status::SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Status {
    let devices = c_int::try_from(state().devices.len()).unwrap_or(c_int::MAX);
    // SAFETY: the caller's memory.
    unsafe { count.write(devices) };
    status::SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, number: c_int) -> Status {
    // SAFETY: the caller's memory.
    done(ordinal(number).map(|_| unsafe { device.write(number) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) -> Status {
    done(ordinal(device).and_then(|ordinal| {
        let state = state();
        let device = &state.devices[ordinal];
        let number = match attribute {
            16 => device.multiprocessors,
            75 => device.arch / 10,
            76 => device.arch % 10,
            _ => return Err(status::INVALID_VALUE),
        };
        // SAFETY: the caller's memory.
        unsafe { value.write(number.cast_signed()) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) -> Status {
    done(ordinal(device).and_then(|_| {
        let text = b"emulated\0";
        if usize::try_from(len).is_ok_and(|len| len >= text.len()) {
            // SAFETY: the caller's memory is that long.
            unsafe { name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
            Ok(())
        } else {
            Err(status::INVALID_VALUE)
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> Status {
    // SAFETY: the caller's memory.
    done(ordinal(device).map(|_| unsafe { bytes.write(usize::try_from(DEVICE_MEMORY_BYTES).unwrap_or(usize::MAX)) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) -> Status {
    done(ordinal(device).map(|ordinal| {
        let mut state = state();
        let (handle, holders) = match state.devices[ordinal].primary {
            Some((handle, holders)) => (handle, holders + 1),
            None => {
                let handle = state.handle();
                state.contexts.insert(handle, Context { device: ordinal, sticky_error: None });
                (handle, 1)
            }
        };
        state.devices[ordinal].primary = Some((handle, holders));
        // SAFETY: the caller's memory.
        unsafe { context.write(handle) };
    }))
}

/// Releases a primary context; with its last holder the context and everything in it are destroyed.
#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Status {
    done(ordinal(device).map(|ordinal| {
        let mut state = state();
        let Some((handle, holders)) = state.devices[ordinal].primary else {
            forbidden("a context is released that nobody holds");
        };
        state.devices[ordinal].primary = (holders > 1).then(|| (handle, holders - 1));
        if holders == 1 {
            state.finish(handle).ok();
            let state = &mut *state;
            state.streams.retain(|_, stream| stream.context != handle);
            state.events.retain(|_, event| event.context != handle);
            state.modules.retain(|_, module| module.context != handle);
            let modules = &state.modules;
            state.functions.retain(|_, function| modules.contains_key(&function.module));
            state.graphs.retain(|_, graph| graph.context != handle);
            state.executables.retain(|_, executable| executable.context != handle);
            state.memory.retain(|_, block| block.context != handle);
            state.pinned.retain(|_, pinned| pinned.context != handle);
            state.contexts.remove(&handle);
        }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: Handle) -> Status {
    if context != 0 && !state().contexts.contains_key(&context) {
        forbidden("a context that was released becomes current");
    }
    CURRENT.set(context);
    status::SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: Status, name: *mut *const c_char) -> Status {
    match status::name(error) {
        // SAFETY: the caller's memory.
        Some(text) => unsafe { name.write(text.as_ptr()) },
        None => return status::INVALID_VALUE,
    }
    status::SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: Status, text: *mut *const c_char) -> Status {
    // SAFETY: as the caller's.
    unsafe { cuGetErrorName(error, text) }
}
