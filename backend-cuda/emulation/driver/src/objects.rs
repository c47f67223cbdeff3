//! Objects of the driver: devices, contexts, memory, modules, graphs, streams, events. Other files act on them through
//! the state, so this file imports none of them.

use crate::{faults::Faults, status::Status};
use core::ops::Range;
use libloading::Library;
use std::{
    alloc::{Layout, alloc, dealloc},
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

/// Handle of an object of the emulated driver; it is never reused.
pub type Handle = usize;

/// Bytes of memory of each device: enough for the conformance suite, and little enough that tests can exceed it.
pub const DEVICE_MEMORY_BYTES: u64 = 4 << 30;

/// Emulated GPU, with its memory and faults.
#[derive(Debug)]
pub struct Device {
    /// Compute capability of the GPU, as in `sm_80`.
    pub arch: u32,
    pub multiprocessors: u32,
    pub faults: Faults,
    /// Primary context while it is retained, and how many times it is.
    pub primary: Option<(Handle, u32)>,
    /// Largest number of blocks of a launch, by the module of its kernel.
    pub used: BTreeMap<String, u64>,
    /// Number of kernels launched one by one, and number of graphs launched.
    pub launched: [u64; 2],
    /// Number of dependent launches that have run, those of graphs included.
    pub dependent: u64,
}

/// Emulated CUDA context.
#[derive(Debug)]
pub struct Context {
    pub device: usize,
    /// Error that every later call of the context returns, because its device failed.
    pub sticky_error: Option<Status>,
}

impl Device {
    /// Parses a device such as `80x2` (compute capability and multiprocessors), or `80x2:` and faults.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (kind, faults) = text.split_once(':').unwrap_or((text, ""));
        let parts = kind.split_once('x').and_then(|(arch, count)| Some((arch.parse().ok()?, count.parse().ok()?)));
        let (arch, multiprocessors) = parts.ok_or_else(|| format!("{kind}: a device is such as 80x2"))?;
        Ok(Self {
            arch,
            multiprocessors,
            faults: Faults::parse(faults)?,
            primary: None,
            used: BTreeMap::new(),
            launched: [0; 2],
            dependent: 0,
        })
    }
}

/// Allocation of device memory by one call of `cuMemAlloc`.
#[derive(Debug)]
pub struct Allocation {
    pub context: Handle,
    pub bytes: u64,
    /// Unique number of the allocation, because addresses are reused.
    pub id: u64,
    #[expect(dead_code, reason = "it is freed with this")]
    pub owned: Owned,
}

/// Memory of the host that the device may read and write by itself.
#[derive(Debug)]
pub struct Pinned {
    pub context: Handle,
    pub bytes: usize,
    #[expect(dead_code, reason = "it is freed with this")]
    pub owned: Owned,
}

/// Memory from the host's allocator, freed when dropped.
#[derive(Debug)]
pub struct Owned(pub *mut u8, Layout);

// SAFETY: memory of the allocator may be used and freed by any thread.
unsafe impl Send for Owned {}

impl Owned {
    /// Allocates memory filled with NaN, so that reads of memory that was never written show in results.
    pub fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes, 256).ok()?;
        // SAFETY: callers check that `bytes` is not 0.
        let at = unsafe { alloc(layout) };
        if at.is_null() {
            return None;
        }
        // SAFETY: the allocation has this length.
        unsafe { at.write_bytes(0xFF, bytes) };
        Some(Self(at, layout))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.0, self.1) };
    }
}

/// Module of kernels (`CUmodule`), loaded in a context.
#[derive(Debug)]
pub struct Module {
    pub context: Handle,
    pub name: String,
    pub library: Arc<Library>,
}

/// Kernel entry point (`CUfunction`) of a loaded module.
#[derive(Clone, Debug)]
pub struct Function {
    pub module: Handle,
    pub entry: EntryPoint,
    /// Size of the kernel's parameters in bytes.
    pub parameters: usize,
    /// Maximum dynamic shared memory of a launch, in bytes.
    pub shared: u32,
}

/// Kernel launch that has not run yet.
#[derive(Clone, Debug)]
pub struct KernelLaunch {
    pub function: Handle,
    pub blocks: [u32; 3],
    pub shared: u32,
    /// Bytes of the parameters, aligned to eight.
    pub parameters: Arc<[u64]>,
    /// Start and id of each allocation that the parameters point to.
    pub named: Arc<[(u64, u64)]>,
    /// Parameters without addresses, if the launch is dependent: it may start before the kernel before it has ended, so
    /// it must wait before it uses memory.
    pub preamble: Option<Arc<[u64]>>,
}

/// Function of a module that runs all blocks of a launch. `preamble` is null unless the launch is dependent.
pub type EntryPoint =
    unsafe extern "C" fn(blocks: *const u32, shared: u32, parameters: *const u64, preamble: *const u64);

impl KernelLaunch {
    /// Returns the ids of the allocations that the parameters point to.
    pub fn named(&self) -> impl Iterator<Item = u64> {
        self.named.iter().map(|&(_, id)| id)
    }
}

/// Kernel launches of a finished capture, as a CUDA graph.
#[derive(Debug)]
pub struct Graph {
    pub context: Handle,
    pub launches: Arc<Vec<KernelLaunch>>,
}

/// Instantiated CUDA graph, which can be launched.
#[derive(Debug)]
pub struct Executable {
    pub context: Handle,
    pub launches: Arc<Vec<KernelLaunch>>,
}

/// Item of a stream's queue of work.
#[derive(Clone, Debug)]
pub enum Work {
    Launch(KernelLaunch),
    Graph(Arc<Vec<KernelLaunch>>),
    CopyIn {
        from: usize,
        to: u64,
        bytes: usize,
    },
    CopyOut {
        from: u64,
        to: usize,
        bytes: usize,
    },
    Fill {
        to: u64,
        value: u8,
        bytes: usize,
    },
    /// Stores the current time in an event.
    RecordEvent(Handle),
    /// Waits until another stream reaches a position.
    Wait(StreamPosition),
}

/// Position in a stream: after the first `count` items of its work.
#[derive(Clone, Copy, Debug)]
pub struct StreamPosition {
    pub stream: Handle,
    pub count: u64,
}

/// Vector clock (Lamport 1978, Fidge 1988): for each stream, how many items of its work happen before an operation.
pub type VectorClock = HashMap<Handle, u64>;

/// Emulated CUDA stream.
#[derive(Debug)]
pub struct Stream {
    pub context: Handle,
    pub queue: VecDeque<Work>,
    /// Number of items enqueued, and of those executed.
    pub count: u64,
    pub done: u64,
    /// Vector clock of the work that happens before the next item of this stream.
    pub clock: VectorClock,
    /// Allocations that work accesses, by its count, for work that is not ordered before all other streams yet.
    pub named: Vec<(u64, Vec<u64>)>,
    pub capture: Option<Capture>,
}

/// Stream capture in progress, with its launches so far.
#[derive(Debug, Default)]
pub struct Capture {
    pub launches: Vec<KernelLaunch>,
    /// True if a call that cannot be captured was made during the capture.
    pub invalid: bool,
}

/// Emulated CUDA event.
#[derive(Debug)]
pub struct Event {
    pub context: Handle,
    pub recorded: Option<(StreamPosition, VectorClock)>,
    pub at: Option<Instant>,
}

/// Merges two vector clocks: the maximum for each stream.
pub fn merge_clocks(into: &mut VectorClock, from: &VectorClock) {
    for (&stream, &count) in from {
        let merged = into.entry(stream).or_default();
        *merged = count.max(*merged);
    }
}

impl Stream {
    /// Returns the number of copies to the device that have not run yet.
    pub fn count_pending_uploads(&self) -> usize {
        self.queue.iter().filter(|work| matches!(work, Work::CopyIn { .. })).count()
    }

    /// Returns whether a copy that has not run yet uses memory of the host.
    pub fn has_pending_copy_of(&self, memory: &Range<usize>) -> bool {
        let uses = |at: usize, bytes: usize| at < memory.end && memory.start < at + bytes;
        self.queue.iter().any(|work| match work {
            Work::CopyIn { from, bytes, .. } => uses(*from, *bytes),
            Work::CopyOut { to, bytes, .. } => uses(*to, *bytes),
            Work::Launch(_) | Work::Graph(_) | Work::Fill { .. } | Work::RecordEvent(_) | Work::Wait(_) => false,
        })
    }
}
