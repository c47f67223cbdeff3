//! NCCL, NVIDIA's library of collectives between GPUs, loaded on first use.
//!
//! Its run-time packages have only the name `libnccl.so.2`, which cudarc does not search for, so the functions are
//! loaded here. Their signatures have not changed since NCCL 2.7 (`nccl.h`).

use crate::{Error, gpu::Gpu};
use core::ffi::{CStr, c_char, c_int, c_void};
use cudarc::driver::sys::CUstream;
use gradscale_core::backend::UniqueId;
use libloading::Library;
use std::sync::{Arc, OnceLock};

/// File names of the library, searched by the loader's rules.
const LIBRARY_NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// Identity of a group of ranks in NCCL: `ncclUniqueId`.
#[derive(Clone, Copy)]
#[repr(C)]
struct NcclUniqueId(UniqueId);

/// Handle of an NCCL communicator: `ncclComm_t`.
type Comm = *mut c_void;
/// Status that functions of NCCL return: `ncclResult_t`.
type Status = c_int;
/// Status of a successful call; the next is `ncclInProgress`, which blocking calls do not return.
const SUCCESS: Status = 0;
/// Operation of a reduction that adds: `ncclSum`.
const SUM: c_int = 0;

/// Element type of a collective: `ncclDataType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataType {
    I64 = 4,
    F16 = 6,
    F32 = 7,
}

macro_rules! functions {
    ($($name:ident: $symbol:literal, fn($($argument:ty),*) -> $result:ty;)*) => {
        /// Function pointers loaded from the NCCL library.
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// Library handle, which keeps the functions loaded.
            _library: Library,
        }

        impl Functions {
            fn load(library: Library) -> Option<Self> {
                // SAFETY: the functions have these types in `nccl.h`.
                unsafe { Some(Self { $($name: *library.get($symbol).ok()?,)* _library: library }) }
            }
        }
    };
}

functions! {
    unique_id: b"ncclGetUniqueId", fn(*mut NcclUniqueId) -> Status;
    init: b"ncclCommInitRank", fn(*mut Comm, c_int, NcclUniqueId, c_int) -> Status;
    destroy: b"ncclCommDestroy", fn(Comm) -> Status;
    abort: b"ncclCommAbort", fn(Comm) -> Status;
    async_error: b"ncclCommGetAsyncError", fn(Comm, *mut Status) -> Status;
    error_string: b"ncclGetErrorString", fn(Status) -> *const c_char;
    last_error: b"ncclGetLastError", fn(Comm) -> *const c_char;
    group_start: b"ncclGroupStart", fn() -> Status;
    group_end: b"ncclGroupEnd", fn() -> Status;
    send: b"ncclSend", fn(*const c_void, usize, c_int, c_int, Comm, CUstream) -> Status;
    recv: b"ncclRecv", fn(*mut c_void, usize, c_int, c_int, Comm, CUstream) -> Status;
    all_gather: b"ncclAllGather", fn(*const c_void, *mut c_void, usize, c_int, Comm, CUstream) -> Status;
    all_reduce: b"ncclAllReduce", fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, CUstream) -> Status;
    reduce_scatter: b"ncclReduceScatter", fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, CUstream) -> Status;
}

fn load_functions() -> Result<&'static Functions, Error> {
    static LOADED: OnceLock<Option<Functions>> = OnceLock::new();
    let load = || {
        // SAFETY: NVIDIA's library, whose initialisers do no harm.
        let library = LIBRARY_NAMES.into_iter().find_map(|name| unsafe { Library::new(name) }.ok())?;
        Functions::load(library)
    };
    LOADED.get_or_init(load).as_ref().ok_or(Error::NoLibrary { library: "nccl" })
}

/// Returns true if the NCCL library can be loaded.
pub(crate) fn is_present() -> bool {
    load_functions().is_ok()
}

/// Returns NCCL's message for an error; that of the call itself, if there is one.
fn nccl_error(functions: &Functions, comm: Comm, status: Status, doing: &'static str) -> Error {
    // SAFETY: texts that end with a zero, of a library that stays; no communicator is allowed.
    let text = |at: *const c_char| match unsafe { at.as_ref().map(|at| CStr::from_ptr(at)) } {
        Some(text) => text.to_string_lossy().trim().to_owned(),
        None => String::new(),
    };
    // SAFETY: as above.
    let (kind, last) = unsafe { ((functions.error_string)(status), (functions.last_error)(comm)) };
    let (kind, last) = (text(kind), text(last));
    let why = if last.is_empty() { kind } else { format!("{kind}: {last}") };
    Error::Nccl { doing, why: why.split_whitespace().collect::<Vec<_>>().join(" ") }
}

/// Creates the unique id by which ranks join a communicator.
///
/// # Errors
/// No library, or its own.
pub(crate) fn create_unique_id() -> Result<UniqueId, Error> {
    let functions = load_functions()?;
    let mut id = NcclUniqueId([0; 128]);
    // SAFETY: the memory is this function's own.
    match unsafe { (functions.unique_id)(&raw mut id) } {
        SUCCESS => Ok(id.0),
        status => Err(nccl_error(functions, core::ptr::null_mut(), status, "begin")),
    }
}

/// Communicator of NCCL for one rank, on its GPU.
pub(crate) struct Nccl {
    gpu: Arc<Gpu>,
    functions: &'static Functions,
    comm: Comm,
    pub rank: usize,
    pub ranks: usize,
}

// SAFETY: any thread may use a communicator, but only one at a time; it is behind a lock.
unsafe impl Send for Nccl {}

impl core::fmt::Debug for Nccl {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Nccl").field("rank", &self.rank).field("ranks", &self.ranks).finish_non_exhaustive()
    }
}

impl Nccl {
    /// Joins the communicator of all ranks, and waits until all have joined.
    ///
    /// # Errors
    /// No library, or its own: two ranks on one GPU are among them.
    pub fn join(gpu: &Arc<Gpu>, unique_id: &UniqueId, rank: u32, ranks: u32) -> Result<Self, Error> {
        let functions = load_functions()?;
        gpu.enter()?;
        let mut comm: Comm = core::ptr::null_mut();
        let number = |number: u32| c_int::try_from(number).unwrap_or(c_int::MAX);
        // SAFETY: the memory is this function's own, and the GPU's context is current.
        let status = unsafe { (functions.init)(&raw mut comm, number(ranks), NcclUniqueId(*unique_id), number(rank)) };
        if status != SUCCESS {
            return Err(nccl_error(functions, core::ptr::null_mut(), status, "join other GPUs"));
        }
        Ok(Self { gpu: gpu.clone(), functions, comm, rank: rank as usize, ranks: ranks as usize })
    }

    fn check(&self, status: Status, doing: &'static str) -> Result<(), Error> {
        if status == SUCCESS { Ok(()) } else { Err(nccl_error(self.functions, self.comm, status, doing)) }
    }

    /// Sends each rank its `count` values, which are stored in the order of the ranks, and receives as many from each.
    ///
    /// # Safety
    /// Device memory at both addresses holds as many values for each rank.
    ///
    /// # Errors
    /// The library's.
    pub unsafe fn all_to_all(&self, from: u64, to: u64, count: usize, kind: DataType) -> Result<(), Error> {
        let doing = "exchange gradients";
        let bytes = count as u64 * kind.bytes();
        let stream = self.stream()?;
        // SAFETY: the caller's promise.
        unsafe {
            self.check((self.functions.group_start)(), doing)?;
            let all = (0..self.ranks).try_for_each(|rank| {
                let (at, peer) = (rank as u64 * bytes, c_int::try_from(rank).unwrap_or(c_int::MAX));
                let (from, to) = ((from + at) as *const c_void, (to + at) as *mut c_void);
                self.check((self.functions.send)(from, count, kind as c_int, peer, self.comm, stream), doing)?;
                self.check((self.functions.recv)(to, count, kind as c_int, peer, self.comm, stream), doing)
            });
            let ended = self.check((self.functions.group_end)(), doing);
            all.and(ended)
        }
    }

    /// Gathers `count` values of each rank on all ranks; those of this rank are already at their position.
    ///
    /// # Safety
    /// Device memory from `at` on holds as many values for each rank.
    ///
    /// # Errors
    /// The library's.
    pub unsafe fn all_gather(&self, at: u64, count: usize, kind: DataType) -> Result<(), Error> {
        let own_values = (at + (self.rank * count) as u64 * kind.bytes()) as *const c_void;
        let stream = self.stream()?;
        // SAFETY: the caller's promise; with its own values in place a rank may gather into them.
        let status = unsafe {
            (self.functions.all_gather)(own_values, at as *mut c_void, count, kind as c_int, self.comm, stream)
        };
        self.check(status, "gather gradients")
    }

    /// Computes the sums over all ranks of `count` values for each rank, stored in the order of the ranks. Returns
    /// those of this rank.
    ///
    /// # Safety
    /// Device memory from `from` on holds as many values for each rank, from `to` on for one.
    ///
    /// # Errors
    /// The library's.
    pub unsafe fn reduce_scatter(&self, from: u64, to: u64, count: usize, kind: DataType) -> Result<(), Error> {
        let stream = self.stream()?;
        let (from, to) = (from as *const c_void, to as *mut c_void);
        // SAFETY: the caller's promise.
        let status = unsafe { (self.functions.reduce_scatter)(from, to, count, kind as c_int, SUM, self.comm, stream) };
        self.check(status, "add gradients")
    }

    /// Replaces values on the device by their sums over all ranks.
    ///
    /// # Safety
    /// Device memory from `at` on holds as many values.
    ///
    /// # Errors
    /// The library's.
    pub unsafe fn all_reduce(&self, at: u64, count: usize, kind: DataType) -> Result<(), Error> {
        let stream = self.stream()?;
        // SAFETY: the caller's promise; in place is allowed.
        let status = unsafe {
            (self.functions.all_reduce)(
                at as *const c_void,
                at as *mut c_void,
                count,
                kind as c_int,
                SUM,
                self.comm,
                stream,
            )
        };
        self.check(status, "add gradients")
    }

    /// Waits for all enqueued work and collectives.
    ///
    /// # Errors
    /// An error that has happened meanwhile, on this rank or in the connection to another rank.
    pub fn wait(&self) -> Result<(), Error> {
        let waited = self.gpu.wait();
        let mut status = SUCCESS;
        // SAFETY: the communicator lives, the memory is this function's own.
        let asked = unsafe { (self.functions.async_error)(self.comm, &raw mut status) };
        self.check(asked, "return its error")?;
        self.check(status, "exchange gradients")?;
        waited
    }

    fn stream(&self) -> Result<CUstream, Error> {
        self.gpu.enter()?;
        Ok(self.gpu.stream())
    }
}

impl DataType {
    /// Returns the bytes of a value of this type.
    const fn bytes(self) -> u64 {
        match self {
            Self::I64 => 8,
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        if self.gpu.enter().is_err() {
            return;
        }
        let mut status = SUCCESS;
        // SAFETY: the communicator is this one's alone. Where something has failed others may be gone, and are not waited
        // for.
        unsafe {
            let asked = (self.functions.async_error)(self.comm, &raw mut status);
            if asked == SUCCESS && status == SUCCESS {
                (self.functions.destroy)(self.comm);
            } else {
                (self.functions.abort)(self.comm);
            }
        }
    }
}
