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

/// A handle as callers see it: never given twice.
pub type Handle = usize;

/// Bytes of memory of each device: enough for the conformance suite, and little enough that tests can exceed it.
pub const MEMORY: u64 = 4 << 30;

/// A device.
#[derive(Debug)]
pub struct Device {
    /// Compute capability, as in `sm_80`.
    pub arch: u32,
    pub multiprocessors: u32,
    pub faults: Faults,
    /// The primary context while somebody holds it, and how many do.
    pub primary: Option<(Handle, u32)>,
    /// Modules whose kernels have run.
    pub used: BTreeMap<String, u64>,
    /// Kernels launched one by one, and recordings.
    pub launched: [u64; 2],
}

/// A context.
#[derive(Debug)]
pub struct Context {
    pub device: usize,
    /// What its device died of: every later call has it.
    pub lost: Option<Status>,
}

impl Device {
    /// A device as `80x2`, or `80x2:` and faults.
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
        })
    }
}

/// Device memory that was allocated as one.
#[derive(Debug)]
pub struct Block {
    pub context: Handle,
    pub bytes: u64,
    /// Never another block's, though addresses come again.
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

/// Bytes of the allocator's.
#[derive(Debug)]
pub struct Owned(pub *mut u8, Layout);

// SAFETY: bytes are not a thread's own.
unsafe impl Send for Owned {}

impl Owned {
    /// Memory full of NaN, so that what was never written is seen.
    pub fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes, 256).ok()?;
        // SAFETY: nobody asks for nothing, as callers see to.
        let at = unsafe { alloc(layout) };
        if at.is_null() {
            return None;
        }
        // SAFETY: so long it is.
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

/// A loaded module.
#[derive(Debug)]
pub struct Module {
    pub context: Handle,
    pub name: String,
    pub library: Arc<Library>,
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Function {
    pub module: Handle,
    pub entry: Entry,
    /// Bytes of its parameters.
    pub parameters: usize,
    /// Bytes of shared memory that launches may ask for.
    pub shared: u32,
}

/// A launch that is still to run.
#[derive(Clone, Debug)]
pub struct Launch {
    pub function: Handle,
    pub blocks: [u32; 3],
    pub shared: u32,
    /// Aligned as parameters are.
    pub parameters: Arc<[u64]>,
    /// Start and id of each block of memory that they name.
    pub named: Arc<[(u64, u64)]>,
}

pub type Entry = unsafe extern "C" fn(blocks: *const u32, shared: u32, parameters: *const u64);

impl Launch {
    /// The blocks that it names.
    pub fn named(&self) -> impl Iterator<Item = u64> {
        self.named.iter().map(|&(_, id)| id)
    }
}

/// What was recorded.
#[derive(Debug)]
pub struct Graph {
    pub context: Handle,
    pub launches: Arc<Vec<Launch>>,
}

/// The same, ready to run.
#[derive(Debug)]
pub struct Executable {
    pub context: Handle,
    pub launches: Arc<Vec<Launch>>,
}

/// Something enqueued.
#[derive(Clone, Debug)]
pub enum Work {
    Launch(Launch),
    Graph(Arc<Vec<Launch>>),
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
    /// An event takes the time.
    Stamp(Handle),
    /// Another stream gets as far as this.
    Wait(Point),
}

/// A place in a stream: after so much of its work.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub stream: Handle,
    pub count: u64,
}

/// How far each stream is known to have come.
pub type Known = HashMap<Handle, u64>;

/// A stream.
#[derive(Debug)]
pub struct Stream {
    pub context: Handle,
    pub queue: VecDeque<Work>,
    /// How much was enqueued, and how much of it was done.
    pub count: u64,
    pub done: u64,
    /// What comes after all that is enqueued here by now.
    pub known: Known,
    /// The blocks that work named, by its count, as far as some other stream need not come after it.
    pub named: Vec<(u64, Vec<u64>)>,
    pub capture: Option<Capture>,
}

/// What is recorded.
#[derive(Debug, Default)]
pub struct Capture {
    pub launches: Vec<Launch>,
    /// Something was asked for meanwhile that cannot be recorded.
    pub invalid: bool,
}

/// An event.
#[derive(Debug)]
pub struct Event {
    pub context: Handle,
    pub recorded: Option<(Point, Known)>,
    pub at: Option<Instant>,
}

pub fn merge(into: &mut Known, from: &Known) {
    for (&stream, &count) in from {
        let known = into.entry(stream).or_default();
        *known = count.max(*known);
    }
}

impl Stream {
    /// Copies to the device that are still to run.
    pub fn copies_waiting(&self) -> usize {
        self.queue.iter().filter(|work| matches!(work, Work::CopyIn { .. })).count()
    }

    /// Whether a copy that is still to run uses memory of the host.
    pub fn waits_for_host(&self, memory: &Range<usize>) -> bool {
        let uses = |at: usize, bytes: usize| at < memory.end && memory.start < at + bytes;
        self.queue.iter().any(|work| match work {
            Work::CopyIn { from, bytes, .. } => uses(*from, *bytes),
            Work::CopyOut { to, bytes, .. } => uses(*to, *bytes),
            Work::Launch(_) | Work::Graph(_) | Work::Fill { .. } | Work::Stamp(_) | Work::Wait(_) => false,
        })
    }
}
