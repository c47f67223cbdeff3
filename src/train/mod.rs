//! Training: one device, all parameters, their optimizer and their sites.

mod checkpoint;
mod decide;
mod evaluate;
mod gradients;
mod inspect;
mod launches;
mod memory;
mod operands;
mod outcome;
mod prefetch;
mod programs;
mod repeat;
mod run;
mod step;

pub use gradients::Gradients;
pub use inspect::Named;
pub use memory::MemoryReport;
pub use operands::{Operands, Source};
pub use outcome::{Repeated, Skipped, StepOutcome};
pub use prefetch::{Inputs, Prefetched};
pub use repeat::Attempt;
pub use run::wait;

use crate::{
    Error, Layers, Method, Parameters, Scaling,
    graph::{Buf, Fixed, ParameterInfo, Part, Program},
    optim::Optimizer,
    parameters::{Definition, Owner, Role},
    sites::{Sites, SlotKind},
};
use gradscale_core::{
    amp::{AmpPolicy, Level, Precision},
    backend::{Backend, DType, Data, Slot},
    stats::Detail,
};
use memory::Memory;
use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

static TRAINERS: AtomicU64 = AtomicU64::new(0);

/// A step that has been recorded, or how far it is from that.
#[derive(Debug)]
enum Recorded<R> {
    /// Not run yet: the first run warms up whatever a device compiles and allocates.
    Cold,
    /// Run once; the next run that decides nothing at once is recorded.
    Warm,
    /// The device does not record: the launches are enqueued again.
    Plain,
    Ready(R),
}

/// Compiled steps that are kept, unless told.
const PROGRAMS: usize = 256;

/// Trains the parameters of one or more networks on one device.
///
/// ```
/// use gradscale::{Batch, Cpu, Method, Parameters, Trainer, nn::{Linear, Module}, optim::Optimizer};
///
/// let mut parameters = Parameters::seeded(0);
/// let net = Linear::new(&mut parameters.at("net"), 2, 2);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Optimizer::sgd(0.5), Method::mixed())?;
/// let (x, labels) = ([1.0, 0.0, 0.0, 1.0], [0u8, 1]);
/// for _ in 0..10 {
///     let batch = [Batch::f32([2, 2], &x), Batch::u8([2], &labels)];
///     let gradients = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels))?;
///     let outcome = trainer.step(gradients)?;
///     assert!(outcome.skipped.is_none());
/// }
/// let best = trainer.evaluate([Batch::f32([2, 2], &x)], |[x]| net.forward(x).argmax())?;
/// assert_eq!(best.data, [0.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Gradients are used up by the step. Stepping twice does not compile:
///
/// ```compile_fail,E0382
/// # use gradscale::{Cpu, Gradients, Trainer};
/// fn twice(trainer: &mut Trainer<Cpu>, gradients: Gradients) {
///     trainer.step(gradients).unwrap();
///     trainer.step(gradients).unwrap();
/// }
/// ```
///
/// Nor does clipping what is still scaled: only a parameter's gradient, which is unscaled at birth, can be clipped.
///
/// ```compile_fail,E0599
/// # use gradscale::{Gradients, Tensor, core::scaled::Scaled};
/// fn clip(activation_gradient: Scaled<Tensor>) -> Gradients {
///     activation_gradient.clip_norm(1.0)
/// }
/// ```
pub struct Trainer<B: Backend> {
    device: B,
    policy: AmpPolicy,
    layers: Layers,
    weight_gradients: Precision,
    /// Whose parameters these are.
    owner: Owner,
    definitions: Vec<Definition>,
    known: Vec<ParameterInfo>,
    groups: Vec<usize>,
    optimizer: Optimizer,
    sites: Sites,
    memory: Memory<B>,
    fixed: Fixed,
    table: Option<B::Table>,
    /// Slots that the table has.
    slots: usize,
    constants: Vec<Vec<f32>>,
    programs: Vec<Program>,
    recorded: Vec<Recorded<B::Recording>>,
    /// How many are kept.
    most_programs: usize,
    /// Programs asked for so far.
    clock: u64,
    /// The program of the last backward pass, and the name of its loss.
    last: Option<(usize, String)>,
    recording: bool,
    keep: bool,
    /// Steps taken.
    taken: u64,
    /// Micro-batches begun: the seed of dropout.
    seed: u64,
    dials: Vec<f32>,
    detail: Detail,
    /// The least that every step observes.
    least: Detail,
    /// What the paper's rules would decide from, if that is observed.
    observed: Option<Vec<(Slot, Operands)>>,
    /// Share of running statistics that stays.
    momentum: f32,
    skip_limit: u32,
    in_a_row: u32,
    /// Attempts at the coming step that failed and were left to the caller to repeat.
    failed: u32,
    /// Attempts before the last of the last step, if operands are observed.
    attempts: Vec<Attempt>,
    id: u64,
    serial: u64,
    /// Batches sent ahead so far.
    ahead: u64,
}

impl<B: Backend> fmt::Debug for Trainer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Trainer");
        all.field("device", &self.device.caps().name).field("parameters", &self.definitions.len());
        all.field("steps", &self.taken).field("sites", self.sites.scaling()).finish_non_exhaustive()
    }
}

impl<B: Backend> Trainer<B> {
    /// Uploads the parameters' first values.
    ///
    /// # Errors
    /// Two parameters of one name, weight gradients in half under gradient scaling, numbers of the optimizer or of the method that make no sense, a group of the
    /// optimizer that no parameter belongs to, a device without memory.
    pub fn new(
        device: B, parameters: Parameters, optimizer: Optimizer, method: Method,
    ) -> Result<Self, Error<B::Error>> {
        let mut names = HashSet::new();
        if let Some(twice) = parameters.all.iter().find(|one| !names.insert(one.name.as_str())) {
            return Err(Error::Duplicate(twice.name.clone()));
        }
        if let Some(wrong) = parameters.all.iter().find(|one| one.values.len() != one.shape.len()) {
            let (name, values) = (&wrong.name, wrong.values.len());
            return Err(Error::Parameter(format!(
                "parameter {name} is {}, and was given {values} values",
                wrong.shape
            )));
        }
        optimizer.check().map_err(Error::Optimizer)?;
        let weights = parameters.all.iter().filter(|one| one.role == Role::Weight).map(|one| one.name.as_str());
        if let Some(prefix) = optimizer.idle_group(weights.clone()) {
            // The first words of all names are the parts that could have been meant.
            let parts: BTreeSet<&str> =
                weights.map(|name| name.split_once('.').map_or(name, |(part, _)| part)).collect();
            let parts = parts.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Error::Group { prefix: prefix.to_owned(), parts });
        }
        if let (Scaling::Gradient(_), Precision::Half) = (&method.scaling, method.weight_gradients) {
            return Err(Error::WeightGradients);
        }
        let mut sites = Sites::new(method.scaling)?;
        let mut known = Vec::new();
        for definition in &parameters.all {
            let slot = sites.slot(&definition.name, SlotKind::Parameter)?;
            known.push(ParameterInfo { role: definition.role, slot, len: definition.shape.len() });
        }
        let groups = parameters.all.iter().map(|one| optimizer.group_of(&one.name)).collect();
        let fixed = Fixed { parameters: parameters.all.len() };
        let mut trainer = Self {
            device,
            policy: method.amp,
            layers: method.layers,
            weight_gradients: method.weight_gradients,
            owner: parameters.owner,
            definitions: parameters.all,
            known,
            groups,
            dials: optimizer.dials(0, 0.9),
            optimizer,
            sites,
            memory: Memory::new(),
            fixed,
            table: None,
            slots: 0,
            constants: Vec::new(),
            programs: Vec::new(),
            recorded: Vec::new(),
            most_programs: PROGRAMS,
            clock: 0,
            last: None,
            recording: true,
            keep: false,
            taken: 0,
            seed: 0,
            detail: Detail::Counts,
            least: Detail::Counts,
            observed: None,
            momentum: 0.9,
            skip_limit: 100,
            in_a_row: 0,
            failed: 0,
            attempts: Vec::new(),
            id: TRAINERS.fetch_add(1, Ordering::Relaxed),
            serial: 0,
            ahead: 0,
        };
        trainer.allocate().map_err(Error::Device)?;
        Ok(trainer)
    }

    /// Training ends with an error after so many skipped steps in a row; 0: never. 100 unless told.
    #[must_use]
    pub const fn with_skip_limit(mut self, limit: u32) -> Self {
        self.skip_limit = limit;
        self
    }

    /// Share of batch norm's running statistics that stays in a step, 0.9 unless told (PyTorch's momentum is one
    /// minus this).
    #[must_use]
    pub const fn with_statistics_kept(mut self, share: f32) -> Self {
        self.momentum = share;
        self
    }

    /// Whether steps are recorded and repeated where the device can; they are unless told. Results are the same.
    #[must_use]
    pub const fn with_recording(mut self, recording: bool) -> Self {
        self.recording = recording;
        self
    }

    /// How many compiled steps, with their recordings, are kept: one for each shape of a batch; 256 unless told, at least
    /// 2. One more takes the place of the one not used for longest. They share memory: it is that of the largest.
    #[must_use]
    pub const fn with_programs(mut self, most: usize) -> Self {
        self.most_programs = if most < 2 { 2 } else { most };
        self
    }

    /// Keeps every buffer of a step to its end, for [`Trainer::scaled_gradients`]. Costs memory.
    #[must_use]
    pub const fn with_all_kept(mut self) -> Self {
        self.keep = true;
        self
    }

    /// The least that cast sites observe in every step from now on, whatever their rules ask for: [`Detail::Full`]
    /// gives every row of [`Trainer::sites`] a histogram. Costs time.
    pub const fn set_detail(&mut self, least: Detail) {
        self.least = least;
    }

    fn allocate(&mut self) -> Result<(), B::Error> {
        for (id, definition) in self.definitions.iter().enumerate() {
            let len = definition.shape.len();
            let mut master = self.device.alloc(DType::F32, len)?;
            self.device.write(Data::F32(&definition.values), &mut master)?;
            self.memory.put(Fixed::part(id, Part::Master), master);
            if definition.role != Role::Constant {
                let gradient = self.device.alloc(DType::F32, len)?;
                self.memory.put(Fixed::part(id, Part::Gradient), gradient);
            }
            if definition.role == Role::Weight {
                let states = self.optimizer.descriptor(self.groups[id]).map_or(0, |descriptor| descriptor.states());
                for part in [Part::State0, Part::State1].into_iter().take(states) {
                    let state = zeros(&self.device, len)?;
                    self.memory.put(Fixed::part(id, part), state);
                }
            }
        }
        for (buf, value) in
            [(self.fixed.zero(), 0.0), (self.fixed.one(), 1.0), (self.fixed.norm(), 0.0), (self.fixed.loss(), 0.0)]
        {
            let mut number = self.device.alloc(DType::F32, 1)?;
            self.device.write(Data::F32(&[value]), &mut number)?;
            self.memory.put(buf, number);
        }
        Ok(())
    }

    /// Slots of all parameters: the rows that an update looks at.
    fn guard(&self) -> Range<u16> {
        let first = Slot::FIRST.0;
        first..first + u16::try_from(self.known.len()).unwrap_or(u16::MAX - first)
    }

    /// The level of the policy.
    fn level(&self) -> Level {
        self.policy.level()
    }

    fn master(&self, id: usize) -> Buf {
        Fixed::part(id, Part::Master)
    }
}

fn zeros<B: Backend>(device: &B, len: usize) -> Result<B::Buffer, B::Error> {
    let mut buffer = device.alloc(DType::F32, len)?;
    device.write(Data::F32(&vec![0.0; len]), &mut buffer)?;
    Ok(buffer)
}
