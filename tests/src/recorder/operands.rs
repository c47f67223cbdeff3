//! Recorded launches: ownership of their operands, and borrowing them for a replay.

use super::{Recorder, Shared, SharedTable};
use core::cell::{Ref, RefCell};
use gradscale_core::{
    backend::{Backend, Cast, DeviceResult, Launch, MapOperands, OnDevice, Operands, Param, Slot, Store},
    scaled::Scaled,
    stats::Detail,
};
use std::{marker::PhantomData, rc::Rc, vec::IntoIter};

/// Operand type that owns its buffers.
pub(super) struct Kept<B>(PhantomData<B>);

pub(super) type Memory<B> = Rc<RefCell<<B as Backend>::Buffer>>;

impl<B: Backend> Operands for Kept<B> {
    type Read = Memory<B>;
    type Write = Memory<B>;
    type Store = KeptStore<B>;
    type Cast = KeptCast<B>;
    type Terms = Vec<(Memory<B>, Slot)>;
    type Gradients = Vec<Memory<B>>;
    type Parameters = Vec<KeptParam<B>>;
    type Table = Rc<RefCell<B::Table>>;
}

pub(super) struct KeptStore<B: Backend> {
    y: Memory<B>,
    table: Rc<RefCell<B::Table>>,
    slots: [Slot; 2],
    detail: Detail,
    add: bool,
}

pub(super) struct KeptCast<B: Backend> {
    table: Rc<RefCell<B::Table>>,
    slots: [Slot; 2],
    detail: Detail,
}

pub(super) struct KeptParam<B: Backend> {
    len: u32,
    master: Memory<B>,
    grad: Memory<B>,
    state: [Option<Memory<B>>; 2],
    half: Option<Memory<B>>,
}

/// Conversion of a call's operands to owned ones.
pub(super) struct Keep;

impl<'a, B: Backend + 'a> MapOperands<OnDevice<'a, Recorder<B>>, Kept<B>> for Keep {
    fn read(&mut self, read: &'a Shared<B::Buffer>) -> Memory<B> {
        read.memory.clone()
    }
    fn write(&mut self, write: &'a mut Shared<B::Buffer>) -> Memory<B> {
        write.memory.clone()
    }
    fn store(&mut self, store: Store<'a, Recorder<B>>) -> KeptStore<B> {
        let Store { y, table, from, to, detail, add } = store;
        KeptStore { y: y.memory.clone(), table: table.0.clone(), slots: [from, to], detail, add }
    }
    fn cast(&mut self, Cast { table, from, to, detail }: Cast<'a, Recorder<B>>) -> KeptCast<B> {
        KeptCast { table: table.0.clone(), slots: [from, to], detail }
    }
    fn terms(&mut self, terms: &'a [Scaled<&'a Shared<B::Buffer>, Slot>]) -> Vec<(Memory<B>, Slot)> {
        terms.iter().map(|term| (term.data.memory.clone(), term.alpha)).collect()
    }
    fn gradients(&mut self, gradients: &'a [&'a Shared<B::Buffer>]) -> Vec<Memory<B>> {
        gradients.iter().map(|gradient| gradient.memory.clone()).collect()
    }
    fn parameters(&mut self, parameters: &'a mut [Param<'a, Shared<B::Buffer>>]) -> Vec<KeptParam<B>> {
        let keep = |param: &Param<'_, Shared<B::Buffer>>| KeptParam {
            len: param.len,
            master: param.master.memory.clone(),
            grad: param.grad.memory.clone(),
            state: param.state.each_ref().map(|state| state.as_ref().map(|state| state.memory.clone())),
            half: param.half.as_ref().map(|half| half.memory.clone()),
        };
        parameters.iter().map(keep).collect()
    }
    fn table(&mut self, table: &'a SharedTable<B::Table>) -> Rc<RefCell<B::Table>> {
        table.0.clone()
    }
}

/// Operands of a recorded launch in the order of its fields. All are borrowed first, and then passed to the device.
struct Listed<B: Backend> {
    reads: Vec<Memory<B>>,
    writes: Vec<Memory<B>>,
    stores: Vec<KeptStore<B>>,
    casts: Vec<KeptCast<B>>,
    terms: Vec<(Memory<B>, Slot)>,
    gradients: Vec<Memory<B>>,
    parameters: Vec<KeptParam<B>>,
    table: Option<Rc<RefCell<B::Table>>>,
}

/// A launch without its operands.
struct Bare;

impl Operands for Bare {
    type Read = ();
    type Write = ();
    type Store = ();
    type Cast = ();
    type Terms = ();
    type Gradients = ();
    type Parameters = ();
    type Table = ();
}

impl<B: Backend> MapOperands<Kept<B>, Bare> for Listed<B> {
    fn read(&mut self, read: Memory<B>) {
        self.reads.push(read);
    }
    fn write(&mut self, write: Memory<B>) {
        self.writes.push(write);
    }
    fn store(&mut self, store: KeptStore<B>) {
        self.stores.push(store);
    }
    fn cast(&mut self, cast: KeptCast<B>) {
        self.casts.push(cast);
    }
    fn terms(&mut self, terms: Vec<(Memory<B>, Slot)>) {
        self.terms = terms;
    }
    fn gradients(&mut self, gradients: Vec<Memory<B>>) {
        self.gradients = gradients;
    }
    fn parameters(&mut self, parameters: Vec<KeptParam<B>>) {
        self.parameters = parameters;
    }
    fn table(&mut self, table: Rc<RefCell<B::Table>>) {
        self.table = Some(table);
    }
}

/// Borrowed operands, in the same order.
struct Lent<'a, B: Backend> {
    reads: IntoIter<&'a B::Buffer>,
    writes: IntoIter<&'a mut B::Buffer>,
    stores: IntoIter<Store<'a, B>>,
    casts: IntoIter<Cast<'a, B>>,
    terms: &'a [Scaled<&'a B::Buffer, Slot>],
    gradients: &'a [&'a B::Buffer],
    parameters: Option<&'a mut [Param<'a, B::Buffer>]>,
    table: Option<&'a B::Table>,
}

const LISTED: &str = "as many were listed";

impl<'a, B: Backend> MapOperands<Bare, OnDevice<'a, B>> for Lent<'a, B> {
    fn read(&mut self, (): ()) -> &'a B::Buffer {
        self.reads.next().expect(LISTED)
    }
    fn write(&mut self, (): ()) -> &'a mut B::Buffer {
        self.writes.next().expect(LISTED)
    }
    fn store(&mut self, (): ()) -> Store<'a, B> {
        self.stores.next().expect(LISTED)
    }
    fn cast(&mut self, (): ()) -> Cast<'a, B> {
        self.casts.next().expect(LISTED)
    }
    fn terms(&mut self, (): ()) -> &'a [Scaled<&'a B::Buffer, Slot>] {
        self.terms
    }
    fn gradients(&mut self, (): ()) -> &'a [&'a B::Buffer] {
        self.gradients
    }
    fn parameters(&mut self, (): ()) -> &'a mut [Param<'a, B::Buffer>] {
        self.parameters.take().expect(LISTED)
    }
    fn table(&mut self, (): ()) -> &'a B::Table {
        self.table.expect(LISTED)
    }
}

fn borrowed<T>(memories: &[Rc<RefCell<T>>]) -> Vec<Ref<'_, T>> {
    memories.iter().map(|memory| memory.borrow()).collect()
}

/// Runs a kept launch.
pub(super) fn run<B: Backend>(inner: &B, launch: Launch<Kept<B>>) -> DeviceResult<B> {
    let mut listed = Listed {
        reads: Vec::new(),
        writes: Vec::new(),
        stores: Vec::new(),
        casts: Vec::new(),
        terms: Vec::new(),
        gradients: Vec::new(),
        parameters: Vec::new(),
        table: None,
    };
    let bare = launch.map(&mut listed);
    let reads = borrowed(&listed.reads);
    let mut writes: Vec<_> = listed.writes.iter().map(|memory| memory.borrow_mut()).collect();
    let tables: Vec<_> = listed.stores.iter().map(|store| store.table.borrow()).collect();
    let mut ys: Vec<_> = listed.stores.iter().map(|store| store.y.borrow_mut()).collect();
    let stores = listed.stores.iter().zip(&tables).zip(&mut ys).map(|((store, table), y)| {
        let &KeptStore { slots: [from, to], detail, add, .. } = store;
        Store { y: &mut **y, table: &**table, from, to, detail, add }
    });
    let cast_tables: Vec<_> = listed.casts.iter().map(|cast| cast.table.borrow()).collect();
    let casts = listed.casts.iter().zip(&cast_tables).map(|(cast, table)| {
        let &KeptCast { slots: [from, to], detail, .. } = cast;
        Cast { table: &**table, from, to, detail }
    });
    let table = listed.table.as_ref().map(|table| table.borrow());
    let terms: Vec<_> = listed.terms.iter().map(|(memory, slot)| (memory.borrow(), *slot)).collect();
    let terms: Vec<_> = terms.iter().map(|(memory, slot)| Scaled::new(&**memory, *slot)).collect();
    let gradients = borrowed(&listed.gradients);
    let gradients: Vec<&B::Buffer> = gradients.iter().map(|gradient| &**gradient).collect();
    let mut held: Vec<_> = listed
        .parameters
        .iter()
        .map(|KeptParam { len, master, grad, state, half }| {
            let state = state.each_ref().map(|state| state.as_ref().map(|state| state.borrow_mut()));
            (*len, master.borrow_mut(), grad.borrow(), state, half.as_ref().map(|half| half.borrow_mut()))
        })
        .collect();
    let mut parameters: Vec<Param<'_, B::Buffer>> = held
        .iter_mut()
        .map(|(len, master, grad, state, half)| {
            let state = state.each_mut().map(|state| state.as_deref_mut());
            Param { len: *len, master: &mut **master, grad: &**grad, state, half: half.as_deref_mut() }
        })
        .collect();
    let mut lent = Lent {
        reads: reads.iter().map(|read| &**read).collect::<Vec<_>>().into_iter(),
        writes: writes.iter_mut().map(|write| &mut **write).collect::<Vec<_>>().into_iter(),
        stores: stores.collect::<Vec<_>>().into_iter(),
        casts: casts.collect::<Vec<_>>().into_iter(),
        terms: &terms,
        gradients: &gradients,
        parameters: Some(&mut parameters),
        table: table.as_deref(),
    };
    inner.launch(bare.map(&mut lent))
}

// Derived implementations would require that the device itself can be cloned.
impl<B> Clone for Kept<B> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<B: Backend> Clone for KeptCast<B> {
    fn clone(&self) -> Self {
        let Self { table, slots, detail } = self;
        Self { table: table.clone(), slots: *slots, detail: *detail }
    }
}

impl<B: Backend> Clone for KeptStore<B> {
    fn clone(&self) -> Self {
        let Self { y, table, slots, detail, add } = self;
        Self { y: y.clone(), table: table.clone(), slots: *slots, detail: *detail, add: *add }
    }
}

impl<B: Backend> Clone for KeptParam<B> {
    fn clone(&self) -> Self {
        let Self { len, master, grad, state, half } = self;
        Self { len: *len, master: master.clone(), grad: grad.clone(), state: state.clone(), half: half.clone() }
    }
}
