//! LRU cache of compiled programs, with their recordings and memory, and lists of operations. It evicts the least recently
//! used programs.

use super::{
    Constants, Executor,
    record::{Capture, LaunchFailure},
};
use crate::graph::{BufferId, DistributedPlan, Launch, Operation, Program, Purpose, Trace};
use gradscale_core::backend::{Backend, DType, Data};
use std::{collections::HashMap, sync::Arc};

/// Default capacity of the program cache, in programs.
const DEFAULT_CACHE_CAPACITY: usize = 256;
/// Default limit of the constants of all cached programs, in bytes.
const DEFAULT_CONSTANT_BYTES: u64 = 1 << 28;

/// Default limit of the launches in all recordings of programs. A driver keeps several kilobytes for each.
const DEFAULT_RECORDED_LAUNCHES: usize = 1 << 17;

/// Cache entry: a program with the recordings of its segments.
struct CacheEntry<R> {
    program: Program,
    /// Recordings of the program's segments between synchronisation points.
    recorded: Vec<Capture<R>>,
    /// Clock value of the program's last use.
    used: u64,
}

impl<R> CacheEntry<R> {
    /// Returns the number of launches in the recordings of the program.
    fn recorded_launches(&self) -> usize {
        let segments = self.recorded.iter().enumerate().filter(|(_, recorded)| recorded.is_captured());
        segments.map(|(segment, _)| self.program.segment(segment).len()).sum()
    }

    /// Drops recordings; the next run of each records it again.
    fn drop_recordings(&mut self) {
        let captured = self.recorded.iter_mut().filter(|recorded| recorded.is_captured());
        captured.for_each(|recorded| *recorded = Capture::WarmedUp);
    }
}

/// Cache of compiled programs that evicts the least recently used one.
pub(super) struct ProgramCache<R> {
    /// Entries by number; `None` after an eviction, until the number is reused.
    all: Vec<Option<CacheEntry<R>>>,
    /// Numbers of cached programs by the hash of their trace.
    by_hash: HashMap<u64, Vec<usize>>,
    /// Lists of operations that are not programs, for example updates of parameters.
    lists: Vec<(Vec<Operation>, Capture<R>)>,
    /// Maximum number of programs in the cache.
    capacity: usize,
    /// Limit of the cached programs' constants, in bytes.
    max_constant_bytes: u64,
    /// Limit of the launches in all recordings of programs.
    max_recorded_launches: usize,
    /// Clock of the cache: number of lookups so far.
    clock: u64,
    /// Clock value at which the step in progress began.
    since: u64,
}

/// Reason why a lookup cannot fail: the number of a program is used only while the program is cached. A new program
/// evicts an evaluation only after it has ended, and a backward pass only after a later one has begun.
const NUMBER_IS_CACHED: &str = "a program whose number is used is kept";

impl<R> ProgramCache<R> {
    pub fn new() -> Self {
        let (all, by_hash, lists) = Default::default();
        Self {
            all,
            by_hash,
            lists,
            capacity: DEFAULT_CACHE_CAPACITY,
            max_constant_bytes: DEFAULT_CONSTANT_BYTES,
            max_recorded_launches: DEFAULT_RECORDED_LAUNCHES,
            clock: 0,
            since: u64::MAX,
        }
    }

    /// Drops all recordings, because they contain buffers or a table that was replaced.
    pub fn invalidate_captures(&mut self) {
        let of_programs = self.all.iter_mut().flatten().flat_map(|stored| &mut stored.recorded);
        of_programs.for_each(|recorded| *recorded = Capture::NotRun);
        self.lists.iter_mut().for_each(|(_, recorded)| *recorded = Capture::NotRun);
    }

    /// Drops the recordings that contain the buffer at a place of the arena, because that was replaced. They are recorded
    /// again at their next run, without a run before, because the device has compiled and allocated everything else.
    fn invalidate_place(&mut self, place: usize) {
        let reads = |launch: &Launch| launch.buffers().contains(&BufferId::Arena(place));
        for stored in self.all.iter_mut().flatten() {
            let is_recorded = stored.recorded.iter().any(Capture::is_captured);
            if is_recorded && stored.program.launches.iter().any(reads) {
                stored.drop_recordings();
            }
        }
        for (operations, recorded) in &mut self.lists {
            if recorded.is_captured() && operations.iter().any(|operation| reads(&operation.clone().into())) {
                *recorded = Capture::WarmedUp;
            }
        }
    }

    /// Drops the recordings of the least recently used programs until `count` further launches of program `index` can be
    /// recorded. Returns `false` if the program's own exceed the limit.
    fn make_room(&mut self, index: usize, count: usize) -> bool {
        loop {
            let recorded: usize = self.all.iter().flatten().map(CacheEntry::recorded_launches).sum();
            if recorded + count <= self.max_recorded_launches {
                return true;
            }
            let others = self.all.iter_mut().enumerate().filter(|&(other, _)| other != index);
            let others = others.filter_map(|(_, stored)| stored.as_mut());
            let oldest = others.filter(|stored| stored.recorded_launches() > 0).min_by_key(|stored| stored.used);
            match oldest {
                Some(oldest) => oldest.drop_recordings(),
                None => return false,
            }
        }
    }

    fn get(&self, index: usize) -> &CacheEntry<R> {
        self.all[index].as_ref().expect(NUMBER_IS_CACHED)
    }

    fn get_mut(&mut self, index: usize) -> &mut CacheEntry<R> {
        self.all[index].as_mut().expect(NUMBER_IS_CACHED)
    }

    /// Returns the least recently used program among those that `may_go`. Backward passes since the last one began are
    /// never evicted, because they can be inspected and repeated, and neither is the program that was just looked up.
    fn lru_victim(&self, may_go: impl Fn(&Program) -> bool) -> Option<usize> {
        let stored = self.all.iter().enumerate().filter_map(|(index, stored)| Some((index, stored.as_ref()?)));
        let stays = |one: &Program| matches!(one.purpose, Purpose::Train { .. } | Purpose::Update);
        let older = stored.filter(|(_, one)| one.used < self.clock && (one.used < self.since || !stays(&one.program)));
        let older = older.filter(|(_, one)| may_go(&one.program));
        older.min_by_key(|(_, one)| one.used).map(|(index, _)| index)
    }

    fn remove(&mut self, index: usize) -> Option<Program> {
        let gone = self.all[index].take()?.program;
        if let Some(numbers) = self.by_hash.get_mut(&gone.trace.hash) {
            numbers.retain(|&number| number != index);
            if numbers.is_empty() {
                self.by_hash.remove(&gone.trace.hash);
            }
        }
        Some(gone)
    }

    fn add(&mut self, stored: CacheEntry<R>) -> usize {
        let hash = stored.program.trace.hash;
        let index = self.all.iter().position(Option::is_none).unwrap_or(self.all.len());
        if index == self.all.len() {
            self.all.push(None);
        }
        self.all[index] = Some(stored);
        self.by_hash.entry(hash).or_default().push(index);
        index
    }
}

impl<B: Backend> Executor<B> {
    /// Sets the capacity of the program cache in programs, at least 2.
    pub fn set_capacity(&mut self, most: usize) {
        self.programs.capacity = most.max(2);
    }

    /// Sets the limit of the cached programs' constants in bytes.
    pub const fn set_constant_limit(&mut self, most: u64) {
        self.programs.max_constant_bytes = most;
    }

    /// Sets the limit of the launches in all recordings of programs.
    pub const fn set_recorded_launches(&mut self, most: usize) {
        self.programs.max_recorded_launches = most;
    }

    /// Looks up the compiled program of a trace in the cache.
    pub fn lookup(
        &mut self, trace: &Arc<Trace>, purpose: Purpose, prefix: &str, distributed: DistributedPlan,
        scales_forward: bool,
    ) -> Option<usize> {
        let programs = &mut self.programs;
        programs.clock += 1;
        let same = |one: &Program| {
            let known = Arc::ptr_eq(&one.trace, trace) || *one.trace == **trace;
            let alike = one.distributed == distributed && one.scales_forward == scales_forward;
            one.purpose == purpose && one.prefix == prefix && alike && known
        };
        let numbers = programs.by_hash.get(&trace.hash)?;
        let index = numbers.iter().copied().find(|&index| same(&programs.get(index).program))?;
        let clock = programs.clock;
        programs.get_mut(index).used = clock;
        Some(index)
    }

    /// Assigns buffers of the arena, which all programs share, to the buffers of a program.
    pub fn bind_memory(&mut self, program: &mut Program) -> Result<(), B::Error> {
        for number in self.constants.abandoned(&program.constants) {
            self.memory.free(self.fixed.constant(number));
        }
        while let Some((number, values)) = self.constants.waiting() {
            let mut buffer = self.device.alloc(DType::F32, values.len())?;
            self.device.write(Data::F32(values), &mut buffer)?;
            self.memory.put(self.fixed.constant(number), buffer);
            self.constants.uploaded(number);
        }
        let Self { device, memory, programs, .. } = self;
        memory.bind(device, program, |place| programs.invalidate_place(place))?;
        self.constants.hold(&program.constants);
        Ok(())
    }

    /// Inserts a new program and assigns memory to its buffers. Evicts the least recently used programs if there are
    /// too many, or if their constants exceed the limit.
    pub fn insert(&mut self, mut program: Program) -> Result<usize, B::Error> {
        self.bind_memory(&mut program)?;
        while self.programs.all.iter().flatten().count() >= self.programs.capacity && self.evict(|_, _| true) {}
        while self.constants.bytes() > self.programs.max_constant_bytes
            && self.evict(|constants, program| constants.alone(&program.constants) > 0)
        {}
        let recorded = (0..program.segment_count()).map(|_| Capture::NotRun).collect();
        Ok(self.programs.add(CacheEntry { program, recorded, used: self.programs.clock }))
    }

    /// Evicts a program, with the constants that only it uses; returns true if there was one.
    fn evict(&mut self, may_go: impl Fn(&Constants, &Program) -> bool) -> bool {
        let lru_victim = self.programs.lru_victim(|program| may_go(&self.constants, program));
        let Some(gone) = lru_victim.and_then(|index| self.programs.remove(index)) else { return false };
        for number in self.constants.release(&gone.constants) {
            self.memory.free(self.fixed.constant(number));
        }
        true
    }

    /// Returns trace, purpose and prefix of all training programs whose forward stores have no exponents.
    pub fn unscaled_training_programs(&self) -> Vec<(Arc<Trace>, Purpose, String)> {
        let programs = self.programs.all.iter().flatten().map(|stored| &stored.program);
        let unscaled = programs.filter(|program| program.is_unscaled_training());
        unscaled.map(|program| (program.trace.clone(), program.purpose, program.prefix.clone())).collect()
    }

    /// Removes the programs for which `is_removed` holds, with the constants that only they use. Their numbers must not
    /// be in use.
    pub fn remove_programs(&mut self, is_removed: impl Fn(&Program) -> bool) {
        for index in 0..self.programs.all.len() {
            if self.programs.all[index].as_ref().is_some_and(|stored| is_removed(&stored.program))
                && let Some(gone) = self.programs.remove(index)
            {
                for number in self.constants.release(&gone.constants) {
                    self.memory.free(self.fixed.constant(number));
                }
            }
        }
    }

    pub fn program(&self, index: usize) -> &Program {
        &self.programs.get(index).program
    }

    /// Starts a step with this program. ProgramCache that run until the next step starts are not evicted.
    pub fn begin(&mut self, index: usize) {
        self.programs.since = self.programs.get(index).used;
    }

    /// Runs the launches of a segment of a program, by its recording if there is one.
    pub fn run_segment(&mut self, index: usize, segment: usize) -> Result<(), LaunchFailure<B::Error>> {
        let range = self.programs.get(index).program.segment(segment);
        let is_due = matches!(self.programs.get(index).recorded[segment], Capture::WarmedUp);
        let fits = !is_due || !self.recording || self.programs.make_room(index, range.len());
        let stored = self.programs.get_mut(index);
        let launches = std::mem::take(&mut stored.program.launches);
        let mut recorded = std::mem::take(&mut stored.recorded[segment]);
        let operations = launches[range.clone()].iter().map(|launch| &launch.operation);
        let ran = if fits {
            self.run_list(operations, &mut recorded)
        } else {
            self.run_list(operations, &mut Capture::Unsupported)
        };
        let stored = self.programs.get_mut(index);
        (stored.program.launches, stored.recorded[segment]) = (launches, recorded);
        ran.map_err(|(at, error)| (at.map(|at| range.start + at), error))
    }

    /// Moves a program's launches out, to be run one by one; [`Executor::ran_one_by_one`] returns them.
    pub fn launches(&mut self, index: usize) -> Vec<Launch> {
        std::mem::take(&mut self.programs.get_mut(index).program.launches)
    }

    /// Returns the launches of [`Executor::launches`]. If all of a segment have run (`all`), the device has compiled
    /// and allocated everything that they need.
    pub fn ran_one_by_one(&mut self, index: usize, segment: usize, launches: Vec<Launch>, all: bool) {
        let stored = self.programs.get_mut(index);
        stored.program.launches = launches;
        // Existing recordings contain the same buffers and the same table.
        if let (Capture::NotRun, true) = (&stored.recorded[segment], all) {
            stored.recorded[segment] = Capture::WarmedUp;
        }
    }

    /// Inserts a list of operations, whose buffers are all allocated, and returns its number.
    pub fn add_op_list(&mut self, operations: Vec<Operation>) -> usize {
        self.programs.lists.push((operations, Capture::NotRun));
        self.programs.lists.len() - 1
    }

    /// Removes all lists of operations from the cache.
    pub fn clear_lists(&mut self) {
        self.programs.lists.clear();
    }

    /// Runs a cached list of operations, by its recording if there is one.
    pub fn run_op_list(&mut self, index: usize) -> Result<(), B::Error> {
        let (operations, mut recorded) = std::mem::take(&mut self.programs.lists[index]);
        let ran = self.run_list(operations.iter(), &mut recorded);
        self.programs.lists[index] = (operations, recorded);
        ran.map_err(|(_, error)| error)
    }
}
