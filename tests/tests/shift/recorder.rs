//! A device that records: the CPU's operators, kept as closures and repeated.
//!
//! What changes from step to step lies in the table, so closures that know buffers, descriptors and slots are enough.

use gradscale::Cpu;
use gradscale_core::{
    backend::{Backend, Buffer, Caps, Control, DType, Data, DataMut, Done, Normed, Param, Scored, Slot, Store},
    descriptor::{Binary, Conv2d, Gemm, Norm, Optimizer, Pass, Pool, Reduce, Rows, Strided, Unary, Way, Xent},
    scaled::Scaled,
    stats::{Detail, Stats},
};
use std::{
    cell::{Cell, RefCell},
    ops::Range,
    rc::Rc,
};

type Memory = <Cpu as Backend>::Buffer;
type Table = <Cpu as Backend>::Table;
type Error = <Cpu as Backend>::Error;
type Launch = Box<dyn Fn(&Cpu) -> Result<(), Error>>;
type Cell1<T> = Rc<RefCell<T>>;

pub struct Recorder {
    inner: Cpu,
    log: RefCell<Option<Vec<Launch>>>,
    pub repeats: Rc<Cell<usize>>,
}

pub struct Shared(Cell1<Memory>, DType, usize);
pub struct SharedTable(Cell1<Table>);

impl Buffer for Shared {
    fn dtype(&self) -> DType {
        self.1
    }
    fn len(&self) -> usize {
        self.2
    }
}

/// A store that owns what it refers to.
struct Owned {
    y: Cell1<Memory>,
    table: Cell1<Table>,
    slots: [Slot; 2],
    detail: Detail,
    add: bool,
}

impl Owned {
    fn new(store: Store<'_, Recorder>) -> Self {
        let Store { y, table, from, to, detail, add } = store;
        Self { y: y.0.clone(), table: table.0.clone(), slots: [from, to], detail, add }
    }

    fn with<T>(&self, run: impl FnOnce(Store<'_, Cpu>) -> T) -> T {
        let (mut y, table) = (self.y.borrow_mut(), self.table.borrow());
        let [from, to] = self.slots;
        run(Store { y: &mut y, table: &table, from, to, detail: self.detail, add: self.add })
    }
}

impl Recorder {
    pub fn new(inner: Cpu) -> Self {
        Self { inner, log: RefCell::new(None), repeats: Rc::default() }
    }

    fn go(&self, launch: impl Fn(&Cpu) -> Result<(), Error> + 'static) -> Result<(), Error> {
        match self.log.borrow_mut().as_mut() {
            Some(log) => {
                log.push(Box::new(launch));
                Ok(())
            }
            None => launch(&self.inner),
        }
    }
}

fn own(buffer: Option<&Shared>) -> Option<Cell1<Memory>> {
    buffer.map(|buffer| buffer.0.clone())
}

/// Runs with an operand that may be missing.
fn with<T>(buffer: Option<&Cell1<Memory>>, run: impl FnOnce(Option<&Memory>) -> T) -> T {
    match buffer {
        Some(buffer) => run(Some(&buffer.borrow())),
        None => run(None),
    }
}

impl Backend for Recorder {
    type Buffer = Shared;
    type Table = SharedTable;
    type Recording = Vec<Launch>;
    type Error = Error;

    fn caps(&self) -> Caps<'_> {
        self.inner.caps()
    }
    fn alloc(&self, dtype: DType, len: usize) -> Result<Shared, Error> {
        Ok(Shared(Rc::new(RefCell::new(self.inner.alloc(dtype, len)?)), dtype, len))
    }
    fn write(&self, src: Data<'_>, dst: &mut Shared) -> Done<Self> {
        self.inner.write(src, &mut dst.0.borrow_mut())
    }
    #[expect(clippy::await_holding_refcell_ref, reason = "the CPU never waits")]
    async fn read(&self, src: &Shared, dst: DataMut<'_>) -> Done<Self> {
        self.inner.read(&src.0.borrow(), dst).await
    }
    fn table(&self, slots: u16, dials: u16) -> Result<SharedTable, Error> {
        Ok(SharedTable(Rc::new(RefCell::new(self.inner.table(slots, dials)?))))
    }
    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut SharedTable) -> Done<Self> {
        self.inner.upload(control, clear, &mut table.0.borrow_mut())
    }
    #[expect(clippy::await_holding_refcell_ref, reason = "the CPU never waits")]
    async fn collect(
        &self, table: &SharedTable, rows: Range<u16>, out: &mut [Stats], scalars: &[&Shared], values: &mut [f32],
    ) -> Done<Self> {
        self.inner.collect(&table.0.borrow(), rows, out, &[], &mut []).await?;
        for (scalar, value) in scalars.iter().zip(values) {
            self.inner.read(&scalar.0.borrow(), DataMut::F32(std::slice::from_mut(value))).await?;
        }
        Ok(())
    }
    fn record(&self, work: impl FnOnce() -> Done<Self>) -> Result<Option<Vec<Launch>>, Error> {
        *self.log.borrow_mut() = Some(Vec::new());
        let done = work();
        let launches = self.log.borrow_mut().take();
        done.map(|()| launches)
    }
    fn repeat(&self, step: &Vec<Launch>) -> Done<Self> {
        self.repeats.set(self.repeats.get() + 1);
        step.iter().try_for_each(|launch| launch(&self.inner))
    }

    fn unary(&self, op: Unary, x: &Shared, y: Store<'_, Self>) -> Done<Self> {
        let (x, y) = (x.0.clone(), Owned::new(y));
        self.go(move |cpu| y.with(|y| cpu.unary(op, &x.borrow(), y)))
    }
    fn binary(&self, p: &Binary, a: &Shared, b: &Shared, y: Store<'_, Self>) -> Done<Self> {
        let (p, a, b, y) = (*p, a.0.clone(), b.0.clone(), Owned::new(y));
        self.go(move |cpu| y.with(|y| cpu.binary(&p, &a.borrow(), &b.borrow(), y)))
    }
    fn sum(&self, terms: &[Scaled<&Shared, Slot>], y: Store<'_, Self>) -> Done<Self> {
        let terms: Vec<_> = terms.iter().map(|term| (term.data.0.clone(), term.alpha)).collect();
        let y = Owned::new(y);
        self.go(move |cpu| {
            let borrowed: Vec<_> = terms.iter().map(|(buffer, slot)| (buffer.borrow(), *slot)).collect();
            let terms: Vec<_> = borrowed.iter().map(|(buffer, slot)| Scaled::new(&**buffer, *slot)).collect();
            y.with(|y| cpu.sum(&terms, y))
        })
    }
    fn reduce(&self, p: &Reduce, x: &Shared, y: Store<'_, Self>) -> Done<Self> {
        let (p, x, y) = (*p, x.0.clone(), Owned::new(y));
        self.go(move |cpu| y.with(|y| cpu.reduce(&p, &x.borrow(), y)))
    }
    fn copy(&self, p: &Strided, x: &Shared, y: Store<'_, Self>) -> Done<Self> {
        let (p, x, y) = (p.clone(), x.0.clone(), Owned::new(y));
        self.go(move |cpu| y.with(|y| cpu.copy(&p, &x.borrow(), y)))
    }
    fn gemm(&self, p: &Gemm, a: &Shared, b: &Shared, bias: Option<&Shared>, y: Store<'_, Self>) -> Done<Self> {
        let (p, a, b, bias, y) = (*p, a.0.clone(), b.0.clone(), own(bias), Owned::new(y));
        self.go(move |cpu| with(bias.as_ref(), |bias| y.with(|y| cpu.gemm(&p, &a.borrow(), &b.borrow(), bias, y))))
    }
    fn conv(
        &self, p: &Conv2d, pass: Pass, a: &Shared, b: &Shared, bias: Option<&Shared>, y: Store<'_, Self>,
    ) -> Done<Self> {
        let (p, a, b, bias, y) = (*p, a.0.clone(), b.0.clone(), own(bias), Owned::new(y));
        self.go(move |cpu| {
            with(bias.as_ref(), |bias| y.with(|y| cpu.conv(&p, pass, &a.borrow(), &b.borrow(), bias, y)))
        })
    }
    fn pool(&self, p: &Pool, x: &Shared, at: Option<&mut Shared>, y: Store<'_, Self>) -> Done<Self> {
        let (p, x, at, y) = (*p, x.0.clone(), own(at.as_deref()), Owned::new(y));
        self.go(move |cpu| {
            let mut at = at.as_ref().map(|at| at.borrow_mut());
            y.with(|y| cpu.pool(&p, &x.borrow(), at.as_deref_mut(), y))
        })
    }
    fn unpool(&self, p: &Pool, way: Way, x: &Shared, at: Option<&Shared>, y: Store<'_, Self>) -> Done<Self> {
        let (p, x, at, y) = (*p, x.0.clone(), own(at), Owned::new(y));
        self.go(move |cpu| with(at.as_ref(), |at| y.with(|y| cpu.unpool(&p, way, &x.borrow(), at, y))))
    }
    fn rows(&self, p: &Rows, way: Way, x: &Shared, index: &Shared, y: Store<'_, Self>) -> Done<Self> {
        let (p, x, index, y) = (*p, x.0.clone(), index.0.clone(), Owned::new(y));
        self.go(move |cpu| y.with(|y| cpu.rows(&p, way, &x.borrow(), &index.borrow(), y)))
    }
    fn norm(
        &self, p: &Norm, x: &Shared, affine: Option<[&Shared; 2]>, saved: &mut Shared, y: Store<'_, Self>,
    ) -> Done<Self> {
        let affine = affine.map(|affine| affine.map(|one| one.0.clone()));
        let (p, x, saved, y) = (*p, x.0.clone(), saved.0.clone(), Owned::new(y));
        self.go(move |cpu| {
            let affine = affine.as_ref().map(|affine| affine.each_ref().map(|one| one.borrow()));
            let affine = affine.as_ref().map(|affine| affine.each_ref().map(|one| &**one));
            y.with(|y| cpu.norm(&p, &x.borrow(), affine, &mut saved.borrow_mut(), y))
        })
    }
    fn norm_vjp(
        &self, p: &Norm, x: Normed<'_, Shared>, dy: &Shared, dx: Store<'_, Self>, affine: Option<[Store<'_, Self>; 2]>,
    ) -> Done<Self> {
        let (p, scale, dy, dx) = (*p, own(x.scale), dy.0.clone(), Owned::new(dx));
        let (x, saved, affine) = (x.x.0.clone(), x.saved.0.clone(), affine.map(|stores| stores.map(Owned::new)));
        self.go(move |cpu| {
            with(scale.as_ref(), |scale| {
                let (x, saved, dy) = (x.borrow(), saved.borrow(), dy.borrow());
                let x = Normed { x: &*x, saved: &*saved, scale };
                dx.with(|dx| match &affine {
                    Some([a, b]) => a.with(|a| b.with(|b| cpu.norm_vjp(&p, x, &dy, dx, Some([a, b])))),
                    None => cpu.norm_vjp(&p, x, &dy, dx, None),
                })
            })
        })
    }
    fn xent(&self, p: &Xent, x: Scored<'_, Shared>, out: &mut Shared) -> Done<Self> {
        let (p, weights, out) = (*p, own(x.weights), out.0.clone());
        let (logits, labels) = (x.logits.0.clone(), x.labels.0.clone());
        self.go(move |cpu| {
            with(weights.as_ref(), |weights| {
                let x = Scored { logits: &*logits.borrow(), labels: &*labels.borrow(), weights };
                cpu.xent(&p, x, &mut out.borrow_mut())
            })
        })
    }
    fn xent_vjp(&self, p: &Xent, x: Scored<'_, Shared>, out: &Shared, g: &Shared, dx: Store<'_, Self>) -> Done<Self> {
        let (p, weights, out, g, dx) = (*p, own(x.weights), out.0.clone(), g.0.clone(), Owned::new(dx));
        let (logits, labels) = (x.logits.0.clone(), x.labels.0.clone());
        self.go(move |cpu| {
            with(weights.as_ref(), |weights| {
                let x = Scored { logits: &*logits.borrow(), labels: &*labels.borrow(), weights };
                dx.with(|dx| cpu.xent_vjp(&p, x, &out.borrow(), &g.borrow(), dx))
            })
        })
    }
    fn global_norm(&self, grads: &[&Shared], norm: &mut Shared) -> Done<Self> {
        let grads: Vec<_> = grads.iter().map(|grad| grad.0.borrow()).collect();
        let grads: Vec<&Memory> = grads.iter().map(|grad| &**grad).collect();
        self.inner.global_norm(&grads, &mut norm.0.borrow_mut())
    }
    fn optimize(
        &self, p: &Optimizer, table: &SharedTable, guard: Range<u16>, norm: Option<&Shared>,
        params: &mut [Param<'_, Shared>],
    ) -> Done<Self> {
        let norm = norm.map(|norm| norm.0.borrow());
        for Param { master, grad, state, half } in params {
            let mut states = state.each_mut().map(|state| state.as_mut().map(|state| state.0.borrow_mut()));
            let [first, second] = &mut states;
            let mut half = half.as_mut().map(|half| half.0.borrow_mut());
            let (mut master, grad) = (master.0.borrow_mut(), grad.0.borrow());
            let state = [first.as_deref_mut(), second.as_deref_mut()];
            let param = Param { master: &mut *master, grad: &*grad, state, half: half.as_deref_mut() };
            self.inner.optimize(p, &table.0.borrow(), guard.clone(), norm.as_deref(), &mut [param])?;
        }
        Ok(())
    }
}
