//! A decorator that records: another device's launches, kept and repeated.

mod operands;

use core::{
    cell::{Cell, RefCell},
    fmt,
    ops::Range,
};
use gradscale_core::{
    backend::{Backend, Buffer, Caps, Control, DType, Data, DataMut, DeviceResult, Launch, OnDevice},
    ops::Attention,
    stats::{Detail, Stats},
};
use operands::{Keep, Kept, run};
use std::rc::Rc;

/// State that changes from step to step, which a faulty recording would keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeps {
    /// A recording as it should be.
    #[default]
    Nothing,
    /// The exponents of the step that was recorded.
    Exponents,
    /// The hyperparameters of that step.
    Hyperparameters,
    /// The dropout seed of that step.
    Seed,
}

/// Backend that passes calls to another backend, and can record. While [`Backend::record`] runs, launches are stored
/// and nothing is computed. With it recording can be tested even where no device records.
pub struct Recorder<B: Backend> {
    inner: B,
    keeps: Keeps,
    log: RefCell<Option<Vec<Launch<Kept<B>>>>>,
    last: RefCell<Option<Uploaded<B>>>,
    records: Rc<Cell<usize>>,
    repeats: Rc<Cell<usize>>,
    launched: Rc<Cell<usize>>,
}

/// Memory that recorded launches share with its owner.
#[derive(Debug)]
pub struct Shared<T> {
    memory: Rc<RefCell<T>>,
    dtype: DType,
    len: usize,
}

/// Table that recorded launches share with its owner.
#[derive(Debug)]
pub struct SharedTable<T>(Rc<RefCell<T>>);

/// Launches, and the control under which they were recorded.
pub struct Recorded<B: Backend> {
    launches: Vec<Launch<Kept<B>>>,
    control: Uploaded<B>,
}

/// Last uploaded control, and the table to which it was uploaded.
struct Uploaded<B: Backend> {
    exponents: Vec<i32>,
    hyperparameters: Vec<f32>,
    seed: u64,
    detail: Detail,
    table: Rc<RefCell<B::Table>>,
}

impl<B: Backend> Recorder<B> {
    /// Creates a recording decorator around `inner`.
    pub fn new(inner: B) -> Self {
        Self::keeping(inner, Keeps::Nothing)
    }

    /// The same with a mistake.
    pub fn keeping(inner: B, keeps: Keeps) -> Self {
        Self {
            inner,
            keeps,
            log: RefCell::new(None),
            last: RefCell::new(None),
            records: Rc::default(),
            repeats: Rc::default(),
            launched: Rc::default(),
        }
    }

    /// Returns the counter of recordings that were made, which stays valid after the recorder has been moved.
    pub fn records(&self) -> Rc<Cell<usize>> {
        self.records.clone()
    }

    /// Returns the counter of replayed recordings, which stays valid after the recorder has been moved.
    pub fn repeats(&self) -> Rc<Cell<usize>> {
        self.repeats.clone()
    }

    /// Returns the counter of launches outside recordings, which stays valid after the recorder has been moved.
    pub fn launched(&self) -> Rc<Cell<usize>> {
        self.launched.clone()
    }
}

impl<T: Buffer> Shared<T> {
    fn new(memory: T) -> Self {
        let (dtype, len) = (memory.dtype(), memory.len());
        Self { memory: Rc::new(RefCell::new(memory)), dtype, len }
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

impl<B: Backend> Backend for Recorder<B> {
    type Buffer = Shared<B::Buffer>;
    type Table = SharedTable<B::Table>;
    type Recording = Recorded<B>;
    type Error = B::Error;

    fn caps(&self) -> Caps<'_> {
        self.inner.caps()
    }
    fn alloc(&self, dtype: DType, len: usize) -> Result<Self::Buffer, B::Error> {
        self.inner.alloc(dtype, len).map(Shared::new)
    }
    fn alloc_group(&self, dtype: DType, lens: &[usize], buffers: &mut impl Extend<Self::Buffer>) -> DeviceResult<Self> {
        let mut inner = Vec::new();
        self.inner.alloc_group(dtype, lens, &mut inner)?;
        buffers.extend(inner.into_iter().map(Shared::new));
        Ok(())
    }
    fn write(&self, src: Data<'_>, dst: &mut Self::Buffer) -> DeviceResult<Self> {
        self.inner.write(src, &mut dst.memory.borrow_mut())
    }
    #[expect(clippy::await_holding_refcell_ref, reason = "nothing else runs meanwhile")]
    async fn read(&self, src: &Self::Buffer, dst: DataMut<'_>) -> DeviceResult<Self> {
        self.inner.read(&src.memory.borrow(), dst).await
    }
    fn table(&self, slots: u16, hyperparameters: u16) -> Result<Self::Table, B::Error> {
        Ok(SharedTable(Rc::new(RefCell::new(self.inner.table(slots, hyperparameters)?))))
    }
    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Self::Table) -> DeviceResult<Self> {
        *self.last.borrow_mut() = Some(Uploaded {
            exponents: control.exponents.to_vec(),
            hyperparameters: control.hyperparameters.to_vec(),
            seed: control.seed,
            detail: control.detail,
            table: table.0.clone(),
        });
        self.inner.upload(control, clear, &mut table.0.borrow_mut())
    }
    #[expect(clippy::await_holding_refcell_ref, reason = "nothing else runs meanwhile")]
    async fn collect(
        &self, table: &Self::Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Self::Buffer], values: &mut [f32],
    ) -> DeviceResult<Self> {
        let scalars: Vec<_> = scalars.iter().map(|scalar| scalar.memory.borrow()).collect();
        let scalars: Vec<&B::Buffer> = scalars.iter().map(|scalar| &**scalar).collect();
        self.inner.collect(&table.0.borrow(), rows, out, &scalars, values).await
    }
    fn fuses_attention(&self, p: &Attention) -> bool {
        self.inner.fuses_attention(p)
    }
    fn record(&self, work: impl FnOnce() -> DeviceResult<Self>) -> Result<Option<Recorded<B>>, B::Error> {
        self.records.set(self.records.get() + 1);
        *self.log.borrow_mut() = Some(Vec::new());
        let done = work();
        let (launches, control) = (self.log.borrow_mut().take(), self.last.borrow().clone());
        done.map(|()| Some(Recorded { launches: launches?, control: control? }))
    }
    fn replay(&self, step: &Recorded<B>) -> DeviceResult<Self> {
        self.repeats.set(self.repeats.get() + 1);
        let mut control = self.last.borrow().clone().expect("a step follows an upload");
        match self.keeps {
            Keeps::Nothing => {}
            Keeps::Exponents => control.exponents.clone_from(&step.control.exponents),
            Keeps::Hyperparameters => control.hyperparameters.clone_from(&step.control.hyperparameters),
            Keeps::Seed => control.seed = step.control.seed,
        }
        let Uploaded { exponents, hyperparameters, seed, detail, table } = &control;
        let control = Control { exponents, hyperparameters, seed: *seed, detail: *detail };
        self.inner.upload(&control, 0..0, &mut table.borrow_mut())?;
        step.launches.iter().try_for_each(|launch| run(&self.inner, launch.clone()))
    }
    fn launch(&self, launch: Launch<OnDevice<'_, Self>>) -> DeviceResult<Self> {
        let launch = launch.map(&mut Keep);
        match self.log.borrow_mut().as_mut() {
            Some(log) => {
                log.push(launch);
                Ok(())
            }
            None => {
                self.launched.set(self.launched.get() + 1);
                run(&self.inner, launch)
            }
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

// A derived implementation would require that the device itself can be cloned.
impl<B: Backend> Clone for Uploaded<B> {
    fn clone(&self) -> Self {
        let Self { exponents, hyperparameters, seed, detail, table } = self;
        Self {
            exponents: exponents.clone(),
            hyperparameters: hyperparameters.clone(),
            seed: *seed,
            detail: *detail,
            table: table.clone(),
        }
    }
}
