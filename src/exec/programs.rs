//! Compiled programs and lists of operations that are kept, with their recordings and the memory they need.

use super::{
    Executor,
    record::{Failed, Recorded},
};
use crate::graph::{Launch, Operation, Program, Purpose, Trace};
use gradscale_core::backend::{Backend, DType, Data};

/// Compiled steps that are kept, unless told.
const MOST: usize = 256;

/// A program and how far it is from being repeated as one.
struct Stored<R> {
    program: Program,
    recorded: Recorded<R>,
    /// When it was last asked for.
    used: u64,
}

/// What is kept.
pub(super) struct Programs<R> {
    all: Vec<Stored<R>>,
    /// Operations that are no program: updates.
    lists: Vec<(Vec<Operation>, Recorded<R>)>,
    /// How many programs are kept.
    most: usize,
    /// Programs asked for so far.
    clock: u64,
    /// When the first program of the step in progress was asked for.
    since: u64,
}

impl<R> Programs<R> {
    pub const fn new() -> Self {
        Self { all: Vec::new(), lists: Vec::new(), most: MOST, clock: 0, since: u64::MAX }
    }

    /// Recordings name buffers and a table; where one of these is another, they are made anew.
    pub fn forget(&mut self) {
        self.all.iter_mut().for_each(|stored| stored.recorded = Recorded::Cold);
        self.lists.iter_mut().for_each(|(_, recorded)| *recorded = Recorded::Cold);
    }

    /// The program that gives its place to another: where there are enough of them, the one not used for longest, but
    /// none of those that ran since the last backward pass began, which can be looked at and repeated.
    fn evicted(&self) -> Option<usize> {
        let older = (0..self.all.len()).filter(|&index| self.all[index].used < self.since);
        older.min_by_key(|&index| self.all[index].used).filter(|_| self.all.len() >= self.most)
    }
}

impl<B: Backend> Executor<B> {
    /// How many programs are kept, at least 2.
    pub fn keep(&mut self, most: usize) {
        self.programs.most = most.max(2);
    }

    /// The program of a trace, if it is known.
    pub fn find(&mut self, trace: &Trace, purpose: Purpose, prefix: &str) -> Option<usize> {
        let same = |one: &Stored<_>| {
            one.program.purpose == purpose && one.program.prefix == prefix && one.program.trace == *trace
        };
        let programs = &mut self.programs;
        programs.clock += 1;
        let index = programs.all.iter().position(same)?;
        programs.all[index].used = programs.clock;
        Some(index)
    }

    /// Gives the buffers of a program memory, which it shares with all others.
    pub fn link(&mut self, program: &mut Program) -> Result<(), B::Error> {
        // Also constants of programs that could not be finished: the next one finds them known.
        while let Some(values) = self.constants.get(self.uploaded) {
            let mut buffer = self.device.alloc(DType::F32, values.len())?;
            self.device.write(Data::F32(values), &mut buffer)?;
            self.memory.put(self.fixed.constant(self.uploaded), buffer);
            self.uploaded += 1;
        }
        let Self { device, memory, programs, .. } = self;
        memory.link(device, program, || programs.forget())
    }

    /// Keeps a new program, in the place of one that has not been used for long. Its buffers get memory.
    pub fn insert(&mut self, mut program: Program) -> Result<usize, B::Error> {
        self.link(&mut program)?;
        let stored = Stored { program, recorded: Recorded::Cold, used: self.programs.clock };
        if let Some(index) = self.programs.evicted() {
            self.programs.all[index] = stored;
            return Ok(index);
        }
        self.programs.all.push(stored);
        Ok(self.programs.all.len() - 1)
    }

    pub fn program(&self, index: usize) -> &Program {
        &self.programs.all[index].program
    }

    /// A step begins with this program: it and those that run until the next step begins are kept.
    pub fn begin(&mut self, index: usize) {
        self.programs.since = self.programs.all[index].used;
    }

    /// Runs all launches of a program in one go.
    pub fn run_program(&mut self, index: usize) -> Result<(), Failed<B::Error>> {
        let stored = &mut self.programs.all[index];
        let launches = std::mem::take(&mut stored.program.launches);
        let mut recorded = std::mem::take(&mut stored.recorded);
        let ran = self.run_list(launches.iter().map(|launch| &launch.operation), &mut recorded);
        let stored = &mut self.programs.all[index];
        (stored.program.launches, stored.recorded) = (launches, recorded);
        ran
    }

    /// Lends a program's launches to somebody who runs them one by one, and takes them back with
    /// [`Executor::ran_one_by_one`].
    pub fn launches(&mut self, index: usize) -> Vec<Launch> {
        std::mem::take(&mut self.programs.all[index].program.launches)
    }

    /// What [`Executor::launches`] lent. Where all have run, the device has compiled and allocated what they need.
    pub fn ran_one_by_one(&mut self, index: usize, launches: Vec<Launch>, all: bool) {
        let stored = &mut self.programs.all[index];
        stored.program.launches = launches;
        // What has been recorded names the same places and the same table.
        if let (Recorded::Cold, true) = (&stored.recorded, all) {
            stored.recorded = Recorded::Warm;
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
