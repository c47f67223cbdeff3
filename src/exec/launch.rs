//! Execution of one operation on a device: buffer ids are resolved to buffers.

use super::memory::Memory;
use crate::graph::{BufferId, BufferIds, CastSpec, Operation, ParamUpdate, StoreSpec};
use gradscale_core::{
    backend::{Backend, Cast, Cost, DeviceResult, Launch, MapOperands, OnDevice, Param, Slot, Store},
    scaled::Scaled,
};
use std::slice::IterMut;

/// Enqueues one operation on the device, and records its name and cost if launches are timed.
pub(super) fn run<B: Backend>(
    device: &B, table: &B::Table, memory: &mut Memory<B>, operation: &Operation, noted: Option<&mut Vec<Enqueued>>,
) -> DeviceResult<B> {
    // Buffers that are written are moved out of the memory, so that the others can be borrowed at the same time.
    let mut collected = CollectWrites::default();
    // The lists of the operation are moved to `collected`.
    let operation = operation.clone().map(&mut collected);
    let updated = collected.parameters.iter().flat_map(written);
    let written_bufs: Vec<BufferId> = updated.chain(collected.writes.iter().copied()).collect();
    let mut taken: Vec<B::Buffer> = written_bufs.iter().map(|&buf| memory.take(buf)).collect();
    let done = {
        let memory = &*memory;
        let mut places = taken.iter_mut();
        let mut parameters: Vec<Param<'_, B::Buffer>> =
            collected.parameters.iter().map(|one| param(one, memory, &mut places)).collect();
        let terms: Vec<_> = collected.terms.iter().map(|term| term.map(|buf| memory.get(buf))).collect();
        let gradients: Vec<&B::Buffer> = collected.gradients.iter().map(|&buf| memory.get(buf)).collect();
        let launch = operation.map(&mut ResolveBuffers {
            memory,
            places,
            table,
            terms: &terms,
            gradients: &gradients,
            parameters: Some(&mut parameters),
        });
        noted.into_iter().for_each(|noted| noted.push(Enqueued::describe(&launch)));
        device.launch(launch)
    };
    for (buf, buffer) in written_bufs.into_iter().zip(taken) {
        memory.put(buf, buffer);
    }
    done
}

/// Returns the buffers of a parameter that an optimizer's update writes.
fn written(one: &ParamUpdate) -> impl Iterator<Item = BufferId> + use<> {
    let ParamUpdate { master, state: [first, second], half, .. } = *one;
    [Some(master), first, second, half].into_iter().flatten()
}

fn param<'a, B: Backend>(
    one: &ParamUpdate, memory: &'a Memory<B>, places: &mut IterMut<'a, B::Buffer>,
) -> Param<'a, B::Buffer> {
    let mut next = || places.next().expect(WRITES_ARE_TAKEN);
    Param {
        len: one.len,
        master: next(),
        grad: memory.get(one.grad),
        state: one.state.map(|state| state.map(|_| next())),
        half: one.half.map(|_| next()),
    }
}

const WRITES_ARE_TAKEN: &str = "all that is written was taken";

/// Name, size and cost of a launch that was enqueued and is timed.
pub(super) struct Enqueued {
    pub name: &'static str,
    pub shape: String,
    pub cost: Cost,
}

impl Enqueued {
    /// Describes a launch on the device.
    pub fn describe<B: Backend>(launch: &Launch<OnDevice<'_, B>>) -> Self {
        Self { name: launch.name(), shape: launch.shape().to_string(), cost: launch.cost() }
    }
}

/// Collector of the buffers that an operation writes and of its lists of operands.
#[derive(Default)]
struct CollectWrites {
    /// Buffers that the operation writes, in the order of its fields.
    writes: Vec<BufferId>,
    terms: Vec<Scaled<BufferId, Slot>>,
    gradients: Vec<BufferId>,
    parameters: Vec<ParamUpdate>,
}

impl MapOperands<BufferIds, BufferIds> for CollectWrites {
    fn read(&mut self, read: BufferId) -> BufferId {
        read
    }
    fn write(&mut self, write: BufferId) -> BufferId {
        self.writes.push(write);
        write
    }
    fn store(&mut self, store: StoreSpec) -> StoreSpec {
        self.writes.push(store.y.buf);
        store
    }
    fn cast(&mut self, cast: CastSpec) -> CastSpec {
        cast
    }
    fn terms(&mut self, terms: Vec<Scaled<BufferId, Slot>>) -> Vec<Scaled<BufferId, Slot>> {
        self.terms = terms;
        Vec::new()
    }
    fn gradients(&mut self, gradients: Vec<BufferId>) -> Vec<BufferId> {
        self.gradients = gradients;
        Vec::new()
    }
    fn parameters(&mut self, parameters: Vec<ParamUpdate>) -> Vec<ParamUpdate> {
        self.parameters = parameters;
        Vec::new()
    }
    fn table(&mut self, (): ()) {}
}

/// Operand mapping that resolves buffer ids to borrowed buffers.
struct ResolveBuffers<'a, B: Backend> {
    memory: &'a Memory<B>,
    places: IterMut<'a, B::Buffer>,
    table: &'a B::Table,
    terms: &'a [Scaled<&'a B::Buffer, Slot>],
    gradients: &'a [&'a B::Buffer],
    parameters: Option<&'a mut [Param<'a, B::Buffer>]>,
}

impl<'a, B: Backend> MapOperands<BufferIds, OnDevice<'a, B>> for ResolveBuffers<'a, B> {
    fn read(&mut self, read: BufferId) -> &'a B::Buffer {
        self.memory.get(read)
    }
    fn write(&mut self, _: BufferId) -> &'a mut B::Buffer {
        self.places.next().expect(WRITES_ARE_TAKEN)
    }
    fn store(&mut self, StoreSpec { from, to, detail, add, .. }: StoreSpec) -> Store<'a, B> {
        Store { y: self.places.next().expect(WRITES_ARE_TAKEN), table: self.table, from, to, detail, add }
    }
    fn cast(&mut self, CastSpec { from, to, detail }: CastSpec) -> Cast<'a, B> {
        Cast { table: self.table, from, to, detail }
    }
    fn terms(&mut self, _: Vec<Scaled<BufferId, Slot>>) -> &'a [Scaled<&'a B::Buffer, Slot>] {
        self.terms
    }
    fn gradients(&mut self, _: Vec<BufferId>) -> &'a [&'a B::Buffer] {
        self.gradients
    }
    fn parameters(&mut self, _: Vec<ParamUpdate>) -> &'a mut [Param<'a, B::Buffer>] {
        self.parameters.take().unwrap_or_default()
    }
    fn table(&mut self, (): ()) -> &'a B::Table {
        self.table
    }
}
