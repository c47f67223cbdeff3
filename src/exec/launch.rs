//! Execution of one operation on a device: buffer ids are resolved to buffers.

use super::{memory::Memory, times::Enqueued};
use crate::graph::{Buf, Operation, Planned, Target, Updated};
use gradscale_core::{
    backend::{Backend, Done, MapOperands, OnDevice, Param, Slot, Store},
    scaled::Scaled,
};
use std::slice::IterMut;

/// Enqueues one operation on the device, and records its name and cost if launches are timed.
pub(super) fn run<B: Backend>(
    device: &B, table: &B::Table, memory: &mut Memory<B>, operation: &Operation, noted: Option<&mut Vec<Enqueued>>,
) -> Done<B> {
    // Buffers that are written are moved out of the memory, so that the others can be borrowed at the same time.
    let mut listed = Listed::default();
    // The lists of the operation are moved to `listed`.
    let operation = operation.clone().map(&mut listed);
    let updated = listed.parameters.iter().flat_map(written);
    let written_bufs: Vec<Buf> = updated.chain(listed.writes.iter().copied()).collect();
    let mut taken: Vec<B::Buffer> = written_bufs.iter().map(|&buf| memory.take(buf)).collect();
    let done = {
        let memory = &*memory;
        let mut places = taken.iter_mut();
        let mut parameters: Vec<Param<'_, B::Buffer>> =
            listed.parameters.iter().map(|one| param(one, memory, &mut places)).collect();
        let terms: Vec<_> = listed.terms.iter().map(|term| term.map(|buf| memory.get(buf))).collect();
        let gradients: Vec<&B::Buffer> = listed.gradients.iter().map(|&buf| memory.get(buf)).collect();
        let launch = operation.map(&mut Lent {
            memory,
            places,
            table,
            terms: &terms,
            gradients: &gradients,
            parameters: Some(&mut parameters),
        });
        noted.into_iter().for_each(|noted| noted.push(Enqueued::of(&launch)));
        device.launch(launch)
    };
    for (buf, buffer) in written_bufs.into_iter().zip(taken) {
        memory.put(buf, buffer);
    }
    done
}

/// Returns the buffers of a parameter that an optimizer's update writes.
fn written(one: &Updated) -> impl Iterator<Item = Buf> + use<> {
    let Updated { master, state: [first, second], half, .. } = *one;
    [Some(master), first, second, half].into_iter().flatten()
}

fn param<'a, B: Backend>(
    one: &Updated, memory: &'a Memory<B>, places: &mut IterMut<'a, B::Buffer>,
) -> Param<'a, B::Buffer> {
    let mut next = || places.next().expect(TAKEN);
    Param {
        len: one.len,
        master: next(),
        grad: memory.get(one.grad),
        state: one.state.map(|state| state.map(|_| next())),
        half: one.half.map(|_| next()),
    }
}

const TAKEN: &str = "all that is written was taken";

/// Collector of the buffers that an operation writes and of its lists of operands.
#[derive(Default)]
struct Listed {
    /// Buffers that the operation writes, in the order of its fields.
    writes: Vec<Buf>,
    terms: Vec<Scaled<Buf, Slot>>,
    gradients: Vec<Buf>,
    parameters: Vec<Updated>,
}

impl MapOperands<Planned, Planned> for Listed {
    fn read(&mut self, read: Buf) -> Buf {
        read
    }
    fn write(&mut self, write: Buf) -> Buf {
        self.writes.push(write);
        write
    }
    fn store(&mut self, store: Target) -> Target {
        self.writes.push(store.y.buf);
        store
    }
    fn terms(&mut self, terms: Vec<Scaled<Buf, Slot>>) -> Vec<Scaled<Buf, Slot>> {
        self.terms = terms;
        Vec::new()
    }
    fn gradients(&mut self, gradients: Vec<Buf>) -> Vec<Buf> {
        self.gradients = gradients;
        Vec::new()
    }
    fn parameters(&mut self, parameters: Vec<Updated>) -> Vec<Updated> {
        self.parameters = parameters;
        Vec::new()
    }
    fn table(&mut self, (): ()) {}
}

/// Operand mapping that resolves buffer ids to borrowed buffers.
struct Lent<'a, B: Backend> {
    memory: &'a Memory<B>,
    places: IterMut<'a, B::Buffer>,
    table: &'a B::Table,
    terms: &'a [Scaled<&'a B::Buffer, Slot>],
    gradients: &'a [&'a B::Buffer],
    parameters: Option<&'a mut [Param<'a, B::Buffer>]>,
}

impl<'a, B: Backend> MapOperands<Planned, OnDevice<'a, B>> for Lent<'a, B> {
    fn read(&mut self, read: Buf) -> &'a B::Buffer {
        self.memory.get(read)
    }
    fn write(&mut self, _: Buf) -> &'a mut B::Buffer {
        self.places.next().expect(TAKEN)
    }
    fn store(&mut self, Target { from, to, detail, add, .. }: Target) -> Store<'a, B> {
        Store { y: self.places.next().expect(TAKEN), table: self.table, from, to, detail, add }
    }
    fn terms(&mut self, _: Vec<Scaled<Buf, Slot>>) -> &'a [Scaled<&'a B::Buffer, Slot>] {
        self.terms
    }
    fn gradients(&mut self, _: Vec<Buf>) -> &'a [&'a B::Buffer] {
        self.gradients
    }
    fn parameters(&mut self, _: Vec<Updated>) -> &'a mut [Param<'a, B::Buffer>] {
        self.parameters.take().unwrap_or_default()
    }
    fn table(&mut self, (): ()) -> &'a B::Table {
        self.table
    }
}
