//! Compiled programs and lists of operations that are kept, with their recordings and the memory they need.

use super::{
    Constants, Executor,
    record::{Failed, Recorded},
};
use crate::graph::{DistributedPlan, Launch, Operation, Program, Purpose, Trace};
use gradscale_core::backend::{Backend, DType, Data};
use std::{collections::HashMap, sync::Arc};

/// Compiled steps that are kept, unless told.
const MOST: usize = 256;
/// Bytes of constants that they keep, unless told.
const MOST_BYTES: u64 = 1 << 28;

/// A program and how far it is from being repeated as one.
struct Stored<R> {
    program: Program,
    /// Recording of each segment between synchronisation points.
    recorded: Vec<Recorded<R>>,
    /// When it was last asked for.
    used: u64,
}

/// What is kept.
pub(super) struct Programs<R> {
    /// By number; a place is empty where a program has gone and none has come.
    all: Vec<Option<Stored<R>>>,
    /// Numbers by the hash of the trace.
    by_hash: HashMap<u64, Vec<usize>>,
    /// Operations that are no program: updates.
    lists: Vec<(Vec<Operation>, Recorded<R>)>,
    /// How many programs are kept.
    most: usize,
    /// Bytes of constants that are kept.
    most_bytes: u64,
    /// Programs asked for so far.
    clock: u64,
    /// When the first program of the step in progress was asked for.
    since: u64,
}

/// Whose number is used was inserted, and not evicted since: a new program takes the place of an evaluation only when that
/// is over, and of a backward pass only when a later one has begun.
const KEPT: &str = "a program whose number is used is kept";

impl<R> Programs<R> {
    pub fn new() -> Self {
        let (all, by_hash, lists) = Default::default();
        Self { all, by_hash, lists, most: MOST, most_bytes: MOST_BYTES, clock: 0, since: u64::MAX }
    }

    /// Recordings name buffers and a table; where one of these is another, they are made anew.
    pub fn forget(&mut self) {
        let of_programs = self.all.iter_mut().flatten().flat_map(|stored| &mut stored.recorded);
        of_programs.for_each(|recorded| *recorded = Recorded::Cold);
        self.lists.iter_mut().for_each(|(_, recorded)| *recorded = Recorded::Cold);
    }

    fn get(&self, index: usize) -> &Stored<R> {
        self.all[index].as_ref().expect(KEPT)
    }

    fn get_mut(&mut self, index: usize) -> &mut Stored<R> {
        self.all[index].as_mut().expect(KEPT)
    }

    /// Of those that may go, the one not used for longest: no backward pass that ran since the last one began, which can be
    /// looked at and repeated, and not the one that was asked for now.
    fn oldest(&self, may_go: impl Fn(&Program) -> bool) -> Option<usize> {
        let stored = self.all.iter().enumerate().filter_map(|(index, stored)| Some((index, stored.as_ref()?)));
        let stays = |one: &Program| matches!(one.purpose, Purpose::Train { .. } | Purpose::Update);
        let older = stored.filter(|(_, one)| one.used < self.clock && (one.used < self.since || !stays(&one.program)));
        let older = older.filter(|(_, one)| may_go(&one.program));
        older.min_by_key(|(_, one)| one.used).map(|(index, _)| index)
    }

    fn take(&mut self, index: usize) -> Option<Program> {
        let gone = self.all[index].take()?.program;
        if let Some(numbers) = self.by_hash.get_mut(&gone.trace.hash) {
            numbers.retain(|&number| number != index);
            if numbers.is_empty() {
                self.by_hash.remove(&gone.trace.hash);
            }
        }
        Some(gone)
    }

    fn put(&mut self, stored: Stored<R>) -> usize {
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
    /// How many programs are kept, at least 2.
    pub fn keep(&mut self, most: usize) {
        self.programs.most = most.max(2);
    }

    /// How many bytes of constants are kept for programs.
    pub const fn keep_bytes(&mut self, most: u64) {
        self.programs.most_bytes = most;
    }

    /// The program of a trace, if it is known.
    pub fn find(
        &mut self, trace: &Arc<Trace>, purpose: Purpose, prefix: &str, distributed: DistributedPlan,
    ) -> Option<usize> {
        let programs = &mut self.programs;
        programs.clock += 1;
        let same = |one: &Program| {
            let known = Arc::ptr_eq(&one.trace, trace) || *one.trace == **trace;
            one.purpose == purpose && one.prefix == prefix && one.distributed == distributed && known
        };
        let numbers = programs.by_hash.get(&trace.hash)?;
        let index = numbers.iter().copied().find(|&index| same(&programs.get(index).program))?;
        let clock = programs.clock;
        programs.get_mut(index).used = clock;
        Some(index)
    }

    /// Gives the buffers of a program memory, which it shares with all others.
    pub fn link(&mut self, program: &mut Program) -> Result<(), B::Error> {
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
        memory.link(device, program, || programs.forget())?;
        self.constants.hold(&program.constants);
        Ok(())
    }

    /// Keeps a new program. Those that have not been used for long go where there are too many, or too many bytes of
    /// constants. Its buffers get memory.
    pub fn insert(&mut self, mut program: Program) -> Result<usize, B::Error> {
        self.link(&mut program)?;
        while self.programs.all.iter().flatten().count() >= self.programs.most && self.evict(|_, _| true) {}
        while self.constants.bytes() > self.programs.most_bytes
            && self.evict(|constants, program| constants.alone(&program.constants) > 0)
        {}
        let recorded = (0..program.segment_count()).map(|_| Recorded::Cold).collect();
        Ok(self.programs.put(Stored { program, recorded, used: self.programs.clock }))
    }

    /// Whether a program could be evicted, with the constants that only it has used.
    fn evict(&mut self, may_go: impl Fn(&Constants, &Program) -> bool) -> bool {
        let oldest = self.programs.oldest(|program| may_go(&self.constants, program));
        let Some(gone) = oldest.and_then(|index| self.programs.take(index)) else { return false };
        for number in self.constants.release(&gone.constants) {
            self.memory.free(self.fixed.constant(number));
        }
        true
    }

    /// Removes the programs for which `is_removed` holds, with the constants that only they use. Nobody may hold their
    /// numbers.
    pub fn remove_programs(&mut self, is_removed: impl Fn(&Program) -> bool) {
        for index in 0..self.programs.all.len() {
            if self.programs.all[index].as_ref().is_some_and(|stored| is_removed(&stored.program))
                && let Some(gone) = self.programs.take(index)
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

    /// A step begins with this program: it and those that run until the next step begins are kept.
    pub fn begin(&mut self, index: usize) {
        self.programs.since = self.programs.get(index).used;
    }

    /// Runs the launches of a segment of a program in one go.
    pub fn run_segment(&mut self, index: usize, segment: usize) -> Result<(), Failed<B::Error>> {
        let stored = self.programs.get_mut(index);
        let range = stored.program.segment(segment);
        let launches = std::mem::take(&mut stored.program.launches);
        let mut recorded = std::mem::take(&mut stored.recorded[segment]);
        let ran = self.run_list(launches[range.clone()].iter().map(|launch| &launch.operation), &mut recorded);
        let stored = self.programs.get_mut(index);
        (stored.program.launches, stored.recorded[segment]) = (launches, recorded);
        ran.map_err(|(at, error)| (at.map(|at| range.start + at), error))
    }

    /// Lends a program's launches to somebody who runs them one by one, and takes them back with
    /// [`Executor::ran_one_by_one`].
    pub fn launches(&mut self, index: usize) -> Vec<Launch> {
        std::mem::take(&mut self.programs.get_mut(index).program.launches)
    }

    /// What [`Executor::launches`] lent. Where all of a segment have run, the device has compiled and allocated what they
    /// need.
    pub fn ran_one_by_one(&mut self, index: usize, segment: usize, launches: Vec<Launch>, all: bool) {
        let stored = self.programs.get_mut(index);
        stored.program.launches = launches;
        // What has been recorded names the same places and the same table.
        if let (Recorded::Cold, true) = (&stored.recorded[segment], all) {
            stored.recorded[segment] = Recorded::Warm;
        }
    }

    /// Keeps a list of operations, whose buffers are all allocated; its number.
    pub fn insert_list(&mut self, operations: Vec<Operation>) -> usize {
        self.programs.lists.push((operations, Recorded::Cold));
        self.programs.lists.len() - 1
    }

    /// Forgets all lists.
    pub fn clear_lists(&mut self) {
        self.programs.lists.clear();
    }

    /// Runs a list in one go.
    pub fn run_kept_list(&mut self, index: usize) -> Result<(), B::Error> {
        let (operations, mut recorded) = std::mem::take(&mut self.programs.lists[index]);
        let ran = self.run_list(operations.iter(), &mut recorded);
        self.programs.lists[index] = (operations, recorded);
        ran.map_err(|(_, error)| error)
    }
}
