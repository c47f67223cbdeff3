//! The case of recorded steps tested: a device that records passes it, one that keeps what changes from step to step
//! does not.

use gradscale_conformance::{Case, Memory, Outcome, Reference, Table, suite};
use gradscale_core::{
    backend::{Backend, Buffer, Caps, Control, DType, Data, DataMut, Done, ErrorKind, Param, Store},
    descriptor::{Gemm, Optimizer, Unary},
    stats::{Detail, Stats},
};
use std::{cell::RefCell, ops::Range, rc::Rc};

/// What an upload brings that a bad recording would keep.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keeps {
    Nothing,
    Exponents,
    Dials,
    Seed,
}

/// The reference backend with launches that can be repeated.
struct Recorder {
    inner: Reference,
    keeps: Keeps,
    log: RefCell<Option<Vec<Launch>>>,
    last: RefCell<Option<Uploaded>>,
}

/// What was uploaded last, and where to.
#[derive(Clone)]
struct Uploaded {
    exponents: Vec<i32>,
    dials: Vec<f32>,
    seed: u64,
    detail: Detail,
    table: Rc<RefCell<Table>>,
}

/// Launches, and the control under which they were recorded.
struct Recorded {
    launches: Vec<Launch>,
    control: Uploaded,
}

type Launch = Rc<dyn Fn(&Reference) -> Result<(), ErrorKind>>;

struct Shared(Rc<RefCell<Memory>>, DType, usize);

struct SharedTable(Rc<RefCell<Table>>);

impl Buffer for Shared {
    fn dtype(&self) -> DType {
        self.1
    }
    fn len(&self) -> usize {
        self.2
    }
}

impl Recorder {
    fn launch(&self, launch: Launch) -> Result<(), ErrorKind> {
        match self.log.borrow_mut().as_mut() {
            Some(log) => {
                log.push(launch);
                Ok(())
            }
            None => launch(&self.inner),
        }
    }
}

/// A store that owns what it refers to.
struct Owned {
    y: Rc<RefCell<Memory>>,
    table: Rc<RefCell<Table>>,
    like: [gradscale_core::backend::Slot; 2],
    detail: Detail,
    add: bool,
}

impl Owned {
    fn new(store: Store<'_, Recorder>) -> Self {
        Self {
            y: store.y.0.clone(),
            table: store.table.0.clone(),
            like: [store.from, store.to],
            detail: store.detail,
            add: store.add,
        }
    }

    fn with<T>(&self, run: impl FnOnce(Store<'_, Reference>) -> T) -> T {
        let (mut y, table) = (self.y.borrow_mut(), self.table.borrow());
        let [from, to] = self.like;
        run(Store { y: &mut y, table: &table, from, to, detail: self.detail, add: self.add })
    }
}

impl Backend for Recorder {
    type Buffer = Shared;
    type Table = SharedTable;
    type Recording = Recorded;
    type Error = ErrorKind;

    fn caps(&self) -> Caps<'_> {
        self.inner.caps()
    }
    fn alloc(&self, dtype: DType, len: usize) -> Result<Shared, ErrorKind> {
        Ok(Shared(Rc::new(RefCell::new(self.inner.alloc(dtype, len)?)), dtype, len))
    }
    fn write(&self, src: Data<'_>, dst: &mut Shared) -> Done<Self> {
        self.inner.write(src, &mut dst.0.borrow_mut())
    }
    async fn read(&self, src: &Shared, dst: DataMut<'_>) -> Done<Self> {
        let memory = src.0.borrow().clone();
        self.inner.read(&memory, dst).await
    }
    fn table(&self, slots: u16, dials: u16) -> Result<SharedTable, ErrorKind> {
        Ok(SharedTable(Rc::new(RefCell::new(self.inner.table(slots, dials)?))))
    }
    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut SharedTable) -> Done<Self> {
        *self.last.borrow_mut() = Some(Uploaded {
            exponents: control.exponents.to_vec(),
            dials: control.dials.to_vec(),
            seed: control.seed,
            detail: control.detail,
            table: table.0.clone(),
        });
        self.inner.upload(control, clear, &mut table.0.borrow_mut())
    }
    #[expect(clippy::await_holding_refcell_ref, reason = "the future inside is ready at once")]
    async fn collect(
        &self, table: &SharedTable, rows: Range<u16>, out: &mut [Stats], _: &[&Shared], _: &mut [f32],
    ) -> Done<Self> {
        let table = table.0.clone();
        let table = table.borrow();
        // The reference backend's futures are ready at once.
        core::pin::pin!(self.inner.collect(&table, rows, out, &[], &mut [])).await
    }
    fn record(&self, work: impl FnOnce() -> Done<Self>) -> Result<Option<Recorded>, ErrorKind> {
        *self.log.borrow_mut() = Some(Vec::new());
        let done = work();
        let (launches, control) = (self.log.borrow_mut().take(), self.last.borrow().clone());
        done.map(|()| Some(Recorded { launches: launches?, control: control? }))
    }
    fn repeat(&self, step: &Recorded) -> Done<Self> {
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
        step.launches.iter().try_for_each(|launch| launch(&self.inner))
    }
    fn unary(&self, op: Unary, x: &Shared, y: Store<'_, Self>) -> Done<Self> {
        let (x, y) = (x.0.clone(), Owned::new(y));
        self.launch(Rc::new(move |inner| y.with(|y| inner.unary(op, &x.borrow(), y))))
    }
    fn gemm(&self, p: &Gemm, a: &Shared, b: &Shared, _: Option<&Shared>, y: Store<'_, Self>) -> Done<Self> {
        let (p, a, b, y) = (*p, a.0.clone(), b.0.clone(), Owned::new(y));
        self.launch(Rc::new(move |inner| y.with(|y| inner.gemm(&p, &a.borrow(), &b.borrow(), None, y))))
    }
    fn optimize(
        &self, p: &Optimizer, table: &SharedTable, guard: Range<u16>, _: Option<&Shared>,
        params: &mut [Param<'_, Shared>],
    ) -> Done<Self> {
        let (p, table) = (*p, table.0.clone());
        let buffers: Vec<_> = params
            .iter()
            .map(|p| (p.master.0.clone(), p.grad.0.clone(), p.half.as_ref().expect("the case has one").0.clone()))
            .collect();
        self.launch(Rc::new(move |inner| {
            for (master, grad, half) in &buffers {
                let (mut master, mut half) = (master.borrow_mut(), half.borrow_mut());
                let grad = grad.borrow();
                let param = Param { master: &mut *master, grad: &grad, state: [None, None], half: Some(&mut half) };
                inner.optimize(&p, &table.borrow(), guard.clone(), None, &mut [param])?;
            }
            Ok(())
        }))
    }
}

fn outcome(keeps: Keeps) -> Outcome {
    let recorder = Recorder { inner: Reference::default(), keeps, log: RefCell::default(), last: RefCell::default() };
    let cases = suite::<Recorder>();
    let case: Vec<&Case<Recorder>> = cases.iter().filter(|case| case.name.starts_with("record::")).collect();
    assert_eq!(case.len(), 1);
    case[0].run(&recorder)
}

#[test]
fn a_recording_device_passes() {
    assert_eq!(outcome(Keeps::Nothing), Outcome::Passed(vec![]));
}

#[test]
fn a_device_that_keeps_control_fails() {
    for keeps in [Keeps::Exponents, Keeps::Dials, Keeps::Seed] {
        assert!(matches!(outcome(keeps), Outcome::Failed(_)), "{keeps:?} passed");
    }
}
