//! Device memory of a training: fixed buffers, and an arena that all programs share.

use crate::graph::{BufferId, Program};
use gradscale_core::backend::{Backend, Buffer, DType};
use std::cmp::Reverse;

/// Device memory of a training by purpose, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// Activations and their gradients, in bytes: everything that programs use in a step, except for `ahead` and
    /// `parameters`.
    pub activations: u64,
    /// Prefetched inputs of a coming step ([`crate::Trainer::prefetch`]), in bytes.
    pub ahead: u64,
    /// Parameters in bytes: master weights, gradients, optimizer state, half copies.
    pub parameters: u64,
    /// Constants of all cached programs in bytes: attention masks, interpolation matrices.
    pub constants: u64,
    /// Workspace that operators keep on the device between launches, in bytes: partial sums (CUDA: up to 64 MiB in one
    /// allocation), lists.
    pub workspace: u64,
}

/// Type and length of a freed arena index, which fit no program.
const FREED: (DType, usize) = (DType::F32, usize::MAX);

/// Device memory of a training: buffers by id. An entry is empty while a launch borrows its buffer, or before it is
/// allocated.
pub(crate) struct Memory<B: Backend> {
    fixed: Vec<Option<B::Buffer>>,
    arena: Vec<Option<B::Buffer>>,
    /// Type and length of each buffer of the arena, by index.
    kinds: Vec<(DType, usize)>,
    /// Arena indices of f32 scratch for decisions inside a step.
    scratch: Vec<usize>,
    /// Indices of the arena that no other program of a step may use ([`Program::holds`]).
    held: Vec<usize>,
    /// Buffers with prefetched inputs of a coming step.
    ahead: Vec<Option<B::Buffer>>,
    /// Buffers with scalars that the host writes before an update.
    numbers: Vec<Option<B::Buffer>>,
    /// Buffers of launches that a fused one replaces, while they run.
    unfused: Vec<Option<B::Buffer>>,
}

impl<B: Backend> Memory<B> {
    pub const fn new() -> Self {
        Self {
            fixed: Vec::new(),
            arena: Vec::new(),
            kinds: Vec::new(),
            scratch: Vec::new(),
            held: Vec::new(),
            ahead: Vec::new(),
            numbers: Vec::new(),
            unfused: Vec::new(),
        }
    }

    fn place(&mut self, buf: BufferId) -> &mut Option<B::Buffer> {
        match buf {
            BufferId::Persistent(i) => nth(&mut self.fixed, i),
            BufferId::HostScalar(i) => nth(&mut self.numbers, i),
            BufferId::Unfused(i) => nth(&mut self.unfused, i),
            BufferId::Arena(i) => &mut self.arena[i],
            BufferId::PrefetchedInput(_) => unreachable!("launches only read what was sent ahead"),
        }
    }

    pub fn has(&self, buf: BufferId) -> bool {
        self.find(buf).is_some()
    }

    pub fn put(&mut self, buf: BufferId, buffer: B::Buffer) {
        *self.place(buf) = Some(buffer);
    }

    /// Moves a buffer out of the memory, so that a launch can write it.
    pub fn take(&mut self, buf: BufferId) -> B::Buffer {
        self.place(buf).take().expect("a launch names each destination once, and all are allocated before it")
    }

    /// Frees the memory of a buffer that is not referenced any more.
    pub fn free(&mut self, buf: BufferId) {
        *self.place(buf) = None;
    }

    pub fn get(&self, buf: BufferId) -> &B::Buffer {
        self.find(buf).expect("no launch reads where it writes, and all is allocated before it")
    }

    fn find(&self, buf: BufferId) -> Option<&B::Buffer> {
        match buf {
            BufferId::Persistent(i) => self.fixed.get(i)?.as_ref(),
            BufferId::Arena(i) => self.arena.get(i)?.as_ref(),
            BufferId::PrefetchedInput(i) => self.ahead.get(i)?.as_ref(),
            BufferId::HostScalar(i) => self.numbers.get(i)?.as_ref(),
            BufferId::Unfused(i) => self.unfused.get(i)?.as_ref(),
        }
    }

    /// Maps the arena of a program to the shared arena, largest buffers first to the largest. Calls `invalidate` with the
    /// index of each buffer before it is replaced by a longer one, because recordings contain the old one.
    pub fn bind(
        &mut self, device: &B, program: &mut Program, mut invalidate: impl FnMut(usize),
    ) -> Result<(), B::Error> {
        let mut taken = vec![false; self.arena.len()];
        self.scratch.iter().chain(&self.held).for_each(|&place| taken[place] = true);
        let mut order: Vec<usize> = (0..program.arena.len()).collect();
        order.sort_by_key(|&at| Reverse(program.arena[at].1));
        let mut places = vec![0; program.arena.len()];
        // Only one step is in progress at a time, so a buffer held by one program can hold a value of another.
        let mut holding: Vec<usize> = Vec::new();
        for at in order {
            let (dtype, len) = program.arena[at];
            let holds = program.holds(at);
            let is_free = |&i: &usize| {
                let free = if holds { self.held.contains(&i) && !holding.contains(&i) } else { !taken[i] };
                free && self.kinds[i].0 == dtype && self.kinds[i] != FREED
            };
            let place = match (0..self.kinds.len()).filter(is_free).max_by_key(|&i| (self.kinds[i].1, Reverse(i))) {
                Some(place) if self.kinds[place].1 >= len => place,
                Some(place) => {
                    // If the allocation fails, the shorter buffer remains.
                    let longer = device.alloc(dtype, len)?;
                    invalidate(place);
                    self.arena[place] = Some(longer);
                    self.kinds[place].1 = len;
                    place
                }
                None => self.push(device, (dtype, len))?,
            };
            taken.resize(self.kinds.len(), false);
            taken[place] = true;
            if holds {
                holding.push(place);
            }
            places[at] = place;
        }
        holding.retain(|place| !self.held.contains(place));
        self.held.extend(holding);
        program.rename(|i| places[i]);
        Ok(())
    }

    fn push(&mut self, device: &B, kind: (DType, usize)) -> Result<usize, B::Error> {
        let buffer = device.alloc(kind.0, kind.1)?;
        if let Some(place) = self.kinds.iter().position(|&kind| kind == FREED) {
            (self.arena[place], self.kinds[place]) = (Some(buffer), kind);
            return Ok(place);
        }
        self.arena.push(Some(buffer));
        self.kinds.push(kind);
        Ok(self.arena.len() - 1)
    }

    /// Allocates f32 scratch of the given length, which no program uses.
    pub fn scratch(&mut self, device: &B, len: usize) -> Result<BufferId, B::Error> {
        let kind = (DType::F32, len);
        if let Some(&place) = self.scratch.iter().find(|&&place| self.kinds[place] == kind) {
            return Ok(BufferId::Arena(place));
        }
        let place = self.push(device, kind)?;
        self.scratch.push(place);
        Ok(BufferId::Arena(place))
    }

    /// Allocates memory for an input of a coming step, at least of that length.
    pub fn ahead(&mut self, device: &B, input: usize, kind: (DType, usize)) -> Result<&mut B::Buffer, B::Error> {
        let place = nth(&mut self.ahead, input);
        // A buffer that is too small or of another type is freed first.
        place.take_if(|buffer| buffer.dtype() != kind.0 || buffer.len() < kind.1);
        Ok(match place {
            Some(buffer) => buffer,
            None => place.insert(device.alloc(kind.0, kind.1)?),
        })
    }

    /// Frees the scratch of decisions inside a step. Its indices stay reserved for the next.
    pub fn free_scratch(&mut self) {
        for place in std::mem::take(&mut self.scratch) {
            (self.arena[place], self.kinds[place]) = (None, FREED);
        }
    }

    /// Frees the buffers of launches that a fused one replaces.
    pub fn free_unfused(&mut self) {
        self.unfused.clear();
    }

    /// Returns the memory by purpose. `constants` are bytes among the fixed buffers. The device reports the workspace.
    pub fn report(&self, constants: u64) -> MemoryReport {
        let size = |buffer: &B::Buffer| (buffer.len() * buffer.dtype().size()) as u64;
        let bytes = |buffers: &[Option<B::Buffer>]| buffers.iter().flatten().map(size).sum::<u64>();
        let parameters = bytes(&self.fixed).saturating_sub(constants);
        let (activations, ahead) = (bytes(&self.arena), bytes(&self.ahead));
        MemoryReport { activations, ahead, parameters, constants, workspace: 0 }
    }
}

/// Returns the entry of a vector at an index, and extends the vector if needed.
fn nth<T>(places: &mut Vec<Option<T>>, i: usize) -> &mut Option<T> {
    if places.len() <= i {
        places.resize_with(i + 1, || None);
    }
    &mut places[i]
}
