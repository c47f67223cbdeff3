//! A decorator that records: another device's launches, kept and repeated.

use core::{
    cell::{Cell, Ref, RefCell},
    fmt,
    ops::Range,
};
use gradscale_core::{
    backend::{
        Backend, Buffer, Caps, Control, DType, Data, DataMut, Done, Launch, MapOperands, OnDevice, Operands, Param,
        Slot, Store,
    },
    scaled::Scaled,
    stats::{Detail, Stats},
};
use std::{marker::PhantomData, rc::Rc, vec::IntoIter};

/// What changes from step to step and a bad recording would keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeps {
    /// A recording as it should be.
    #[default]
    Nothing,
    /// The exponents of the step that was recorded.
    Exponents,
    /// Its dials.
    Dials,
    /// Its seed.
    Seed,
}

/// A backend that does what another does, and records: while [`Backend::record`] runs, launches are kept and nothing is
/// computed. So recording can be tested where no device records.
pub struct Recorder<B: Backend> {
    inner: B,
    keeps: Keeps,
    log: RefCell<Option<Vec<Launch<Kept<B>>>>>,
    last: RefCell<Option<Uploaded<B>>>,
    repeats: Rc<Cell<usize>>,
}

/// Memory that recorded launches share with whoever allocated it.
#[derive(Debug)]
pub struct Shared<T> {
    memory: Rc<RefCell<T>>,
    dtype: DType,
    len: usize,
}

/// A table, likewise.
#[derive(Debug)]
pub struct SharedTable<T>(Rc<RefCell<T>>);

/// Launches, and the control under which they were recorded.
pub struct Recorded<B: Backend> {
    launches: Vec<Launch<Kept<B>>>,
    control: Uploaded<B>,
}

/// What was uploaded last, and where to.
struct Uploaded<B: Backend> {
    exponents: Vec<i32>,
    dials: Vec<f32>,
    seed: u64,
    detail: Detail,
    table: Rc<RefCell<B::Table>>,
}

impl<B: Backend> Recorder<B> {
    /// Records what `inner` is to do.
    pub fn new(inner: B) -> Self {
        Self::keeping(inner, Keeps::Nothing)
    }

    /// The same with a mistake.
    pub fn keeping(inner: B, keeps: Keeps) -> Self {
        Self { inner, keeps, log: RefCell::new(None), last: RefCell::new(None), repeats: Rc::default() }
    }

    /// How often a recording was repeated; goes on counting when the recorder is given away.
    pub fn repeats(&self) -> Rc<Cell<usize>> {
        self.repeats.clone()
    }
}

impl<T> Buffer for Shared<T> {
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn len(&self) -> usize {
        self.len
    }
}

/// Operands that own what they refer to.
struct Kept<B>(PhantomData<B>);

type Memory<B> = Rc<RefCell<<B as Backend>::Buffer>>;

impl<B: Backend> Operands for Kept<B> {
    type Read = Memory<B>;
    type Write = Memory<B>;
    type Store = KeptStore<B>;
    type Terms = Vec<(Memory<B>, Slot)>;
    type Gradients = Vec<Memory<B>>;
    type Parameters = Vec<KeptParam<B>>;
    type Table = Rc<RefCell<B::Table>>;
}

struct KeptStore<B: Backend> {
    y: Memory<B>,
    table: Rc<RefCell<B::Table>>,
    slots: [Slot; 2],
    detail: Detail,
    add: bool,
}

struct KeptParam<B: Backend> {
    master: Memory<B>,
    grad: Memory<B>,
    state: [Option<Memory<B>>; 2],
    half: Option<Memory<B>>,
}

/// From the operands of a call to those that are kept.
struct Keep;

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
    fn terms(&mut self, terms: &'a [Scaled<&'a Shared<B::Buffer>, Slot>]) -> Vec<(Memory<B>, Slot)> {
        terms.iter().map(|term| (term.data.memory.clone(), term.alpha)).collect()
    }
    fn gradients(&mut self, gradients: &'a [&'a Shared<B::Buffer>]) -> Vec<Memory<B>> {
        gradients.iter().map(|gradient| gradient.memory.clone()).collect()
    }
    fn parameters(&mut self, parameters: &'a mut [Param<'a, Shared<B::Buffer>>]) -> Vec<KeptParam<B>> {
        let keep = |param: &Param<'_, Shared<B::Buffer>>| KeptParam {
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

/// The operands of a kept launch in the order of its fields. They are borrowed first, all at once, and lent then.
struct Listed<B: Backend> {
    reads: Vec<Memory<B>>,
    writes: Vec<Memory<B>>,
    stores: Vec<KeptStore<B>>,
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

/// What was borrowed, in the same order.
struct Lent<'a, B: Backend> {
    reads: IntoIter<&'a B::Buffer>,
    writes: IntoIter<&'a mut B::Buffer>,
    stores: IntoIter<Store<'a, B>>,
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
fn run<B: Backend>(inner: &B, launch: Launch<Kept<B>>) -> Done<B> {
    let mut listed = Listed {
        reads: Vec::new(),
        writes: Vec::new(),
        stores: Vec::new(),
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
    let table = listed.table.as_ref().map(|table| table.borrow());
    let terms: Vec<_> = listed.terms.iter().map(|(memory, slot)| (memory.borrow(), *slot)).collect();
    let terms: Vec<_> = terms.iter().map(|(memory, slot)| Scaled::new(&**memory, *slot)).collect();
    let gradients = borrowed(&listed.gradients);
    let gradients: Vec<&B::Buffer> = gradients.iter().map(|gradient| &**gradient).collect();
    let mut held: Vec<_> = listed
        .parameters
        .iter()
        .map(|KeptParam { master, grad, state, half }| {
            let state = state.each_ref().map(|state| state.as_ref().map(|state| state.borrow_mut()));
            (master.borrow_mut(), grad.borrow(), state, half.as_ref().map(|half| half.borrow_mut()))
        })
        .collect();
    let mut parameters: Vec<Param<'_, B::Buffer>> = held
        .iter_mut()
        .map(|(master, grad, state, half)| {
            let state = state.each_mut().map(|state| state.as_deref_mut());
            Param { master: &mut **master, grad: &**grad, state, half: half.as_deref_mut() }
        })
        .collect();
    let mut lent = Lent {
        reads: reads.iter().map(|read| &**read).collect::<Vec<_>>().into_iter(),
        writes: writes.iter_mut().map(|write| &mut **write).collect::<Vec<_>>().into_iter(),
        stores: stores.collect::<Vec<_>>().into_iter(),
        terms: &terms,
        gradients: &gradients,
        parameters: Some(&mut parameters),
        table: table.as_deref(),
    };
    inner.launch(bare.map(&mut lent))
}

impl<B: Backend> Backend for Recorder<B> {
    type Buffer = Shared<B::Buffer>;
    type Table = SharedTable<B::Table>;
    type Recording = Recorded<B>;
    type Error = B::Error;

    fn caps(&self) -> Caps<'_> {
        self.inner.caps()
    }
    fn alloc(&self, dtype: DType, len: usize) -> Result<Self::Buffer, B::Error> {
        Ok(Shared { memory: Rc::new(RefCell::new(self.inner.alloc(dtype, len)?)), dtype, len })
    }
    fn write(&self, src: Data<'_>, dst: &mut Self::Buffer) -> Done<Self> {
        self.inner.write(src, &mut dst.memory.borrow_mut())
    }
    #[expect(clippy::await_holding_refcell_ref, reason = "nothing else runs meanwhile")]
    async fn read(&self, src: &Self::Buffer, dst: DataMut<'_>) -> Done<Self> {
        self.inner.read(&src.memory.borrow(), dst).await
    }
    fn table(&self, slots: u16, dials: u16) -> Result<Self::Table, B::Error> {
        Ok(SharedTable(Rc::new(RefCell::new(self.inner.table(slots, dials)?))))
    }
    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Self::Table) -> Done<Self> {
        *self.last.borrow_mut() = Some(Uploaded {
            exponents: control.exponents.to_vec(),
            dials: control.dials.to_vec(),
            seed: control.seed,
            detail: control.detail,
            table: table.0.clone(),
        });
        self.inner.upload(control, clear, &mut table.0.borrow_mut())
    }
    #[expect(clippy::await_holding_refcell_ref, reason = "nothing else runs meanwhile")]
    async fn collect(
        &self, table: &Self::Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Self::Buffer], values: &mut [f32],
    ) -> Done<Self> {
        let scalars: Vec<_> = scalars.iter().map(|scalar| scalar.memory.borrow()).collect();
        let scalars: Vec<&B::Buffer> = scalars.iter().map(|scalar| &**scalar).collect();
        self.inner.collect(&table.0.borrow(), rows, out, &scalars, values).await
    }
    fn record(&self, work: impl FnOnce() -> Done<Self>) -> Result<Option<Recorded<B>>, B::Error> {
        *self.log.borrow_mut() = Some(Vec::new());
        let done = work();
        let (launches, control) = (self.log.borrow_mut().take(), self.last.borrow().clone());
        done.map(|()| Some(Recorded { launches: launches?, control: control? }))
    }
    fn repeat(&self, step: &Recorded<B>) -> Done<Self> {
        self.repeats.set(self.repeats.get() + 1);
        let mut control = self.last.borrow().clone().expect("a step follows an upload");
        match self.keeps {
            Keeps::Nothing => {}
            Keeps::Exponents => control.exponents.clone_from(&step.control.exponents),
            Keeps::Dials => control.dials.clone_from(&step.control.dials),
            Keeps::Seed => control.seed = step.control.seed,
        }
        let Uploaded { exponents, dials, seed, detail, table } = &control;
        let control = Control { exponents, dials, seed: *seed, detail: *detail };
        self.inner.upload(&control, 0..0, &mut table.borrow_mut())?;
        step.launches.iter().try_for_each(|launch| run(&self.inner, launch.clone()))
    }
    fn launch(&self, launch: Launch<OnDevice<'_, Self>>) -> Done<Self> {
        let launch = launch.map(&mut Keep);
        match self.log.borrow_mut().as_mut() {
            Some(log) => {
                log.push(launch);
                Ok(())
            }
            None => run(&self.inner, launch),
        }
    }
}

impl<B: Backend> fmt::Debug for Recorder<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("keeps", &self.keeps).field("repeats", &self.repeats).finish_non_exhaustive()
    }
}

impl<B: Backend> fmt::Debug for Recorded<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("launches", &self.launches.len()).finish_non_exhaustive()
    }
}

// Derived, these would ask that the device itself can be copied.
impl<B> Clone for Kept<B> {
    fn clone(&self) -> Self {
        Self(PhantomData)
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
        let Self { master, grad, state, half } = self;
        Self { master: master.clone(), grad: grad.clone(), state: state.clone(), half: half.clone() }
    }
}

impl<B: Backend> Clone for Uploaded<B> {
    fn clone(&self) -> Self {
        let Self { exponents, dials, seed, detail, table } = self;
        Self { exponents: exponents.clone(), dials: dials.clone(), seed: *seed, detail: *detail, table: table.clone() }
    }
}
