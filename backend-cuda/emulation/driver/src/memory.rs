//! Device memory and pinned memory of the host.

use crate::{
    objects::{Allocation, DEVICE_MEMORY_BYTES, Handle, Owned, Pinned, Work},
    state::{State, forbidden, state},
    status::{self, Status, done},
};
use core::ffi::{c_uchar, c_uint};

impl State {
    /// Returns the allocation that contains an address.
    pub fn block_of(&self, at: u64) -> Option<(u64, &Allocation)> {
        let (&start, block) = self.memory.range(..=at).next_back()?;
        (at < start + block.bytes).then_some((start, block))
    }

    /// Returns the id of the allocation that contains all of some bytes.
    fn whole(&self, at: u64, bytes: usize, doing: &str) -> u64 {
        match self.block_of(at) {
            Some((start, block)) if at + bytes as u64 <= start + block.bytes => block.id,
            _ => forbidden(&format!("{doing} of memory that is not allocated")),
        }
    }

    fn is_pinned(&self, at: usize, bytes: usize) -> bool {
        let found = self.pinned.range(..=at).next_back();
        found.is_some_and(|(start, pinned)| at + bytes <= start + pinned.bytes)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(at: *mut u64, bytes: usize) -> Status {
    let mut state = state();
    done(state.entered().and_then(|context| {
        if state.is_capturing(context) {
            return Err(status::CAPTURE_UNSUPPORTED);
        }
        if bytes == 0 {
            return Err(status::INVALID_VALUE);
        }
        let used: u64 = state.memory.values().filter(|block| block.context == context).map(|block| block.bytes).sum();
        if state.device().faults.allocation_fails() || used + bytes as u64 > DEVICE_MEMORY_BYTES {
            return Err(status::OUT_OF_MEMORY);
        }
        let owned = Owned::new(bytes).ok_or(status::OUT_OF_MEMORY)?;
        let (start, id) = (owned.0 as u64, state.handle() as u64);
        state.memory.insert(start, Allocation { context, bytes: bytes as u64, id, owned });
        // SAFETY: the caller's memory.
        unsafe { at.write(start) };
        Ok(())
    }))
}

/// Waits for all work, as CUDA's function does, but not for recorded work.
#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(at: u64) -> Status {
    let mut state = state();
    let context = state.current();
    match state.memory.get(&at) {
        Some(block) if block.context == context => {}
        Some(_) => forbidden("device memory is freed in another context"),
        None => forbidden("device memory is freed that is not allocated"),
    }
    let result = state.finish(context);
    state.memory.remove(&at);
    done(result)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(at: *mut usize, bytes: usize, _flags: c_uint) -> Status {
    let mut state = state();
    done(state.entered().and_then(|context| {
        if bytes == 0 || state.device().faults.allocation_fails() {
            return Err(status::OUT_OF_MEMORY);
        }
        let owned = Owned::new(bytes).ok_or(status::OUT_OF_MEMORY)?;
        let start = owned.0 as usize;
        state.pinned.insert(start, Pinned { context, bytes, owned });
        // SAFETY: the caller's memory.
        unsafe { at.write(start) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(at: usize) -> Status {
    let mut state = state();
    state.current();
    let Some(pinned) = state.pinned.remove(&at) else { forbidden("pinned memory is freed that is not allocated") };
    let memory = at..at + pinned.bytes;
    if state.streams.values().any(|stream| stream.has_pending_copy_of(&memory)) {
        forbidden("pinned memory is freed that a copy has yet to read or write");
    }
    status::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: usize, bytes: usize, stream: Handle) -> Status {
    let mut state = state();
    if !state.is_pinned(from, bytes) {
        forbidden("a copy to the device that does not wait, from memory that is not pinned");
    }
    let block = state.whole(to, bytes, "a copy to the device");
    done(state.enqueue(stream, Work::CopyIn { from, to, bytes }, vec![block]))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(to: usize, from: u64, bytes: usize, stream: Handle) -> Status {
    let mut state = state();
    let block = state.whole(from, bytes, "a copy from the device");
    done(state.enqueue(stream, Work::CopyOut { from, to, bytes }, vec![block]))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(to: u64, value: c_uchar, bytes: usize, stream: Handle) -> Status {
    let mut state = state();
    let block = state.whole(to, bytes, "filling");
    done(state.enqueue(stream, Work::Fill { to, value, bytes }, vec![block]))
}
