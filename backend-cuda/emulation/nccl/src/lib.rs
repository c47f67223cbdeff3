//! Emulation of NCCL: the functions of `libnccl.so.2` that gradscale-cuda calls, between emulated devices whose ranks
//! are threads of one process.
//!
//! A call first waits for the work of its stream, which the emulated driver delays as long as possible, and then for
//! the calls of all other ranks. The last call moves the bytes. Errors that NCCL reports are reported in the same way:
//! two ranks on one GPU, and missing ranks. Undefined behaviour ends the process with a message: memory that is not
//! allocated, and calls of ranks that do not match.

mod collectives;
mod driver;
mod world;

use collectives::{Call, Kind, Way};
use core::ffi::{CStr, c_char, c_int, c_void};
use std::{
    cell::{Cell, RefCell},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use world::World;

/// Status that functions of NCCL return: `ncclResult_t`.
type Status = c_int;

/// Result codes that the emulation returns, with the values of `ncclResult_t` in `nccl.h`.
mod status {
    use super::Status;

    pub const SUCCESS: Status = 0;
    pub const UNHANDLED_CUDA_ERROR: Status = 1;
    pub const INVALID_ARGUMENT: Status = 4;
    pub const INVALID_USAGE: Status = 5;
    pub const REMOTE_ERROR: Status = 6;
}

/// Identity of a group of ranks: `ncclUniqueId`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct UniqueId([u8; 128]);

/// Communicator of the emulated NCCL: a rank's place in its group.
#[derive(Debug)]
pub struct Comm {
    world: Arc<World>,
    rank: usize,
}

thread_local! {
    /// Sends and receives between the start and the end of a group, with their place.
    static GROUP: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
    static GROUP_OF: Cell<*mut Comm> = const { Cell::new(core::ptr::null_mut()) };
    /// Message of the calling thread's last error.
    static LAST_ERROR: Cell<&'static CStr> = const { Cell::new(c"") };
}

/// Ends the process, because the caller's operation is undefined.
fn forbidden(what: &str) -> ! {
    eprintln!("emulated NCCL: {what}");
    std::process::abort()
}

fn failed(status: Status, why: &'static CStr) -> Status {
    LAST_ERROR.set(why);
    status
}

/// Performs a rank's collective call: waits for its stream's work, then for the calls of all ranks.
///
/// # Safety
/// `comm` is a handle that lives.
unsafe fn collective(comm: *mut Comm, calls: Vec<Call>, stream: *mut c_void) -> Status {
    if driver::wait(stream).is_err() {
        return failed(status::UNHANDLED_CUDA_ERROR, c"the stream has failed");
    }
    calls.iter().for_each(Call::check);
    // SAFETY: the caller's promise.
    let comm = unsafe { &*comm };
    match comm.world.meet(comm.rank, calls) {
        Some(()) => status::SUCCESS,
        None => failed(status::REMOTE_ERROR, c"a rank has not come"),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> Status {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let mut bytes = [0; 128];
    bytes[..8].copy_from_slice(&COUNT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    // SAFETY: the caller's memory.
    unsafe { id.write(UniqueId(bytes)) };
    status::SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRank(comm: *mut *mut Comm, ranks: c_int, id: UniqueId, rank: c_int) -> Status {
    let (Ok(ranks), Ok(rank)) = (usize::try_from(ranks), usize::try_from(rank)) else {
        return failed(status::INVALID_ARGUMENT, c"a negative rank");
    };
    if rank >= ranks {
        return failed(status::INVALID_ARGUMENT, c"a rank that is not below their number");
    }
    let Some(device) = driver::device() else { return failed(status::UNHANDLED_CUDA_ERROR, c"no context") };
    match World::join(id.0, ranks, rank, device) {
        Ok(world) => {
            // SAFETY: the caller's memory.
            unsafe { comm.write(Box::into_raw(Box::new(Comm { world, rank }))) };
            status::SUCCESS
        }
        Err(world::Refused::Twice) => failed(status::INVALID_USAGE, c"Duplicate GPU detected"),
        Err(world::Refused::Alone) => failed(status::REMOTE_ERROR, c"a rank has not come"),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommDestroy(comm: *mut Comm) -> Status {
    // SAFETY: a handle that this library has given, and that is used no more.
    drop(unsafe { Box::from_raw(comm) });
    status::SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommAbort(comm: *mut Comm) -> Status {
    // SAFETY: the caller's promise.
    unsafe { ncclCommDestroy(comm) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommGetAsyncError(_comm: *mut Comm, error: *mut Status) -> Status {
    // SAFETY: the caller's memory.
    unsafe { error.write(status::SUCCESS) };
    status::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(error: Status) -> *const c_char {
    let text = match error {
        status::SUCCESS => c"no error",
        status::UNHANDLED_CUDA_ERROR => c"unhandled cuda error",
        status::INVALID_ARGUMENT => c"invalid argument",
        status::INVALID_USAGE => c"invalid usage",
        status::REMOTE_ERROR => c"remote process exited or there was a network error",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_comm: *mut Comm) -> *const c_char {
    LAST_ERROR.get().as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupStart() -> Status {
    if GROUP.replace(Some(Vec::new())).is_some() {
        forbidden("a group within a group");
    }
    status::SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGroupEnd() -> Status {
    let Some(calls) = GROUP.take() else { return failed(status::INVALID_USAGE, c"a group ends that was not begun") };
    let Some(stream) = calls.first().map(|call| call.stream) else { return status::SUCCESS };
    // SAFETY: the handle was given to the group's calls.
    unsafe { collective(GROUP_OF.get(), calls, stream) }
}

/// Adds a send or receive to the calling thread's group; gradscale-cuda makes none outside.
fn in_group(comm: *mut Comm, call: Call) -> Status {
    GROUP_OF.set(comm);
    GROUP.with_borrow_mut(|group| match group {
        Some(calls) => calls.push(call),
        None => forbidden("a message outside of a group"),
    });
    status::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclSend(
    from: *const c_void, count: usize, kind: c_int, peer: c_int, comm: *mut Comm, stream: *mut c_void,
) -> Status {
    let (Some(kind), Ok(to)) = (Kind::from_number(kind), usize::try_from(peer)) else {
        return status::INVALID_ARGUMENT;
    };
    in_group(comm, Call { way: Way::Send(to), from: from as usize, to: 0, count, kind, stream })
}

#[unsafe(no_mangle)]
extern "C" fn ncclRecv(
    to: *mut c_void, count: usize, kind: c_int, peer: c_int, comm: *mut Comm, stream: *mut c_void,
) -> Status {
    let (Some(kind), Ok(from)) = (Kind::from_number(kind), usize::try_from(peer)) else {
        return status::INVALID_ARGUMENT;
    };
    in_group(comm, Call { way: Way::Receive(from), from: 0, to: to as usize, count, kind, stream })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclAllGather(
    from: *const c_void, to: *mut c_void, count: usize, kind: c_int, comm: *mut Comm, stream: *mut c_void,
) -> Status {
    let Some(kind) = Kind::from_number(kind) else { return status::INVALID_ARGUMENT };
    // SAFETY: the caller's handle.
    let ranks = unsafe { &*comm }.world.ranks;
    let way = Way::Gather { ranks };
    // SAFETY: as above.
    unsafe { collective(comm, vec![Call { way, from: from as usize, to: to as usize, count, kind, stream }], stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclAllReduce(
    from: *const c_void, to: *mut c_void, count: usize, kind: c_int, sum: c_int, comm: *mut Comm, stream: *mut c_void,
) -> Status {
    let (Some(kind), 0) = (Kind::from_number(kind), sum) else { return status::INVALID_ARGUMENT };
    let call = Call { way: Way::Reduce, from: from as usize, to: to as usize, count, kind, stream };
    // SAFETY: the caller's handle.
    unsafe { collective(comm, vec![call], stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclReduceScatter(
    from: *const c_void, to: *mut c_void, count: usize, kind: c_int, sum: c_int, comm: *mut Comm, stream: *mut c_void,
) -> Status {
    let (Some(kind), 0) = (Kind::from_number(kind), sum) else { return status::INVALID_ARGUMENT };
    // SAFETY: the caller's handle.
    let ranks = unsafe { &*comm }.world.ranks;
    let call = Call { way: Way::Scatter { ranks }, from: from as usize, to: to as usize, count, kind, stream };
    // SAFETY: as above.
    unsafe { collective(comm, vec![call], stream) }
}
