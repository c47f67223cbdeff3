//! Sites of a model, and the stores of the attempt in progress.

use crate::Error;
use gradscale::{
    ForwardScaling, Method, Scaling,
    gradscale_core::{
        backend::Slot,
        cast::{Round, f16_slice_from_f32, f16_slice_to_f32},
        stats::{Convention, Detail, Stats},
    },
    sites::{Sites, SlotKind},
};
use gradscale_cpu::{Cpu, Slice, SliceMut};
use half::f16;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Statistics row of a site that has stored nothing.
pub(crate) const EMPTY: Stats = Stats::new(Convention::FP16, 0, Detail::None);

/// Scaler: all sites of the parameters that one optimizer step updates, under one method. Clones share the same sites.
#[doc(alias = "GradScaler")]
#[derive(Clone)]
pub struct Scaler(Arc<Shared>);

struct Shared {
    /// Text of the method, as the user gave it.
    method: String,
    /// True if values are rounded to FP16; false for f32, the baseline.
    rounds: bool,
    cpu: Cpu,
    state: Mutex<State>,
}

/// State of a scaler that changes from step to step.
pub(crate) struct State {
    pub sites: Sites,
    /// Statistics rows of the attempt in progress, by slot.
    pub rows: Vec<Stats>,
    /// Slots of the sites in the order of their first stores.
    pub order: Vec<Slot>,
    /// Number of attempts at this step that failed.
    pub failed: u32,
}

/// Report of one cast site: name, exponent and statistics of its stores.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteReport {
    /// Name of the cast site in the model.
    pub name: String,
    /// Exponent in force in the next step: gradients are stored times 2^exponent.
    pub exponent: i32,
    /// Fraction of the site's non-zero values that became zero in the last step.
    pub flushed: f64,
    /// Number of values that overflowed, or were ±∞ or NaN on input, over all steps.
    pub overflows: u64,
    /// log2 of the largest magnitude of the last step; `None` if all values were zero.
    pub log2_amax: Option<f64>,
}

impl Scaler {
    /// Creates a scaler without sites. Methods have the syntax of gradscale: `gs` is recommended; `dynamic`,
    /// `fixed:1024`, `fp16` and `fp32` (which rounds nothing) are for comparison.
    ///
    /// # Errors
    /// [`Error::Method`] in three cases: the text is not a method; its rule decides from the operands of a product
    /// (`gs:paper`), which an adapter does not provide; or its options belong to the network here (`amp`, `f32`, `wgrad`,
    /// `calls=each`). [`Error::Threads`].
    pub fn new(method: &str) -> Result<Self, Error> {
        Self::with_threads(method, 0)
    }

    /// Creates a scaler like [`Scaler::new`], with `threads` threads that store gradients (0: one for each core).
    ///
    /// # Errors
    /// See [`Scaler::new`].
    pub fn with_threads(method: &str, threads: usize) -> Result<Self, Error> {
        let wrong = |cause: &str| Error::Method { method: method.to_owned(), cause: cause.to_owned() };
        let parsed: Method = method.parse().map_err(|error: gradscale::MethodError| {
            // The text starts like the sentence of this error.
            let text = error.to_string();
            wrong(text.strip_prefix(&format!("method {method}: ")).unwrap_or(&text))
        })?;
        let rounds = parsed != Method::fp32();
        let plain = match &parsed.scaling {
            Scaling::Loss(schedule) => Method::loss_scale(schedule.clone()),
            Scaling::Gradient(gradient) if gradient.preset.decides_from_rows() => Method::gradient_scaling(*gradient),
            Scaling::Blocks(_) => return Err(wrong("only the engine stores in blocks; choose gs or amax")),
            Scaling::Gradient(_) => {
                return Err(wrong("decides from the operands of products, which an adapter does not see"));
            }
        };
        let forward = match &parsed.scaling {
            Scaling::Gradient(gradient) => gradient.forward,
            Scaling::Loss(_) | Scaling::Blocks(_) => ForwardScaling::Off,
        };
        // The default, `repeat`, has no effect here. A method that names it wants that effect.
        if forward == ForwardScaling::On || forward == ForwardScaling::Repeat && method.contains("forward=") {
            return Err(wrong("only the engine gives activations exponents; leave out forward"));
        }
        if rounds && parsed != plain {
            return Err(wrong("the model chooses the layers in half here, not the method"));
        }
        let sites = Sites::new(parsed.scaling).map_err(|error| wrong(&error.to_string()))?;
        if sites.each_call() {
            return Err(wrong("each call of a layer cannot decide by itself here; remove calls=each"));
        }
        let cpu = Cpu::new(threads).map_err(|error| Error::Threads(error.to_string()))?;
        let rows = vec![EMPTY; sites.len()];
        let state = Mutex::new(State { sites, rows, order: Vec::new(), failed: 0 });
        Ok(Self(Arc::new(Shared { method: method.to_owned(), rounds, cpu, state })))
    }

    /// Creates a site, named after the layer whose output's gradient is stored there.
    ///
    /// # Errors
    /// [`Error::Name`] if the name exists already, [`Error::Sites`] beyond 65532 sites.
    pub fn site(&self, name: &str) -> Result<Site, Error> {
        let mut state = self.state();
        let before = state.sites.len();
        let slot = state.sites.slot(name, SlotKind::Site).map_err(|_| Error::Sites(name.to_owned()))?;
        if state.sites.len() == before {
            return Err(Error::Name(name.to_owned()));
        }
        state.rows.push(EMPTY);
        Ok(Site { scaler: self.clone(), slot })
    }

    /// Returns the text of the method, as the user gave it.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.0.method
    }

    /// Returns names and exponents in force, in the order in which sites were created.
    #[must_use]
    pub fn exponents(&self) -> Vec<(String, i32)> {
        let state = self.state();
        state.slots().map(|slot| (state.sites.name(slot).to_owned(), state.sites.exponent(slot))).collect()
    }

    /// Returns the statistics of each site that has stored in the last step.
    #[must_use]
    pub fn report(&self) -> Vec<SiteReport> {
        let owned = |site: gradscale::SiteReport<'_>| SiteReport {
            name: site.name.to_owned(),
            exponent: site.alpha,
            flushed: site.gamma_measured,
            overflows: site.overflows,
            log2_amax: site.log2_amax,
        };
        self.state().sites.reports().map(owned).collect()
    }

    /// Rounds operands of a product to FP16, nearest even, and back; leaves them unchanged under `fp32`.
    pub fn round_to_f16(&self, values: &mut [f32]) {
        if !self.0.rounds {
            return;
        }
        let mut halves = vec![f16::ZERO; values.len()];
        // Cannot fail, because the lengths are equal.
        if f16_slice_from_f32(values, &mut halves, Round::NearestEven).is_ok() {
            let _ = f16_slice_to_f32(&halves, values);
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while the lock is held, so a poisoned lock has a valid state.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Scaler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scaler").field("method", &self.0.method).field("sites", &self.exponents().len()).finish()
    }
}

impl State {
    /// Returns the slots of all sites, without the two reserved slots.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (2..u16::try_from(self.sites.len()).unwrap_or(u16::MAX)).map(Slot)
    }
}

/// Cast site that stores gradients as FP16 at its own exponent. Clones are the same site.
#[derive(Clone, Debug)]
pub struct Site {
    scaler: Scaler,
    slot: Slot,
}

impl Site {
    /// Returns the scaler to which the site belongs.
    #[must_use]
    pub const fn scaler(&self) -> &Scaler {
        &self.scaler
    }

    /// Returns the name of the site in the model.
    #[must_use]
    pub fn name(&self) -> String {
        self.scaler.state().sites.name(self.slot).to_owned()
    }

    /// Returns the exponent of the site in force.
    #[must_use]
    pub fn exponent(&self) -> i32 {
        self.scaler.state().sites.exponent(self.slot)
    }

    /// Returns the statistics of the site's stores in the last step.
    #[must_use]
    pub fn row(&self) -> Option<Stats> {
        self.scaler.state().sites.row(self.slot).copied()
    }

    /// Stores a gradient: multiplies it by 2^exponent, rounds it once to FP16, nearest even, and returns the stored
    /// values times 2^-exponent. A site that decides inside the step observes the values first.
    ///
    /// A site that stores more than once in a step (a layer that is called several times, several micro-batches) uses
    /// one exponent for all.
    pub fn store(&self, gradient: &mut [f32]) {
        let shared = &*self.scaler.0;
        if !shared.rounds {
            return;
        }
        let mut state = self.scaler.state();
        let State { sites, rows, order, .. } = &mut *state;
        let row = &mut rows[usize::from(self.slot.0)];
        let first = row.detail() == Detail::None;
        if first {
            if sites.at_once(self.slot) {
                let seen = shared.cpu.observe(Slice::F32(gradient), 0, 0, Detail::Full);
                sites.decide_from(self.slot, &seen, 0);
            }
            order.push(self.slot);
        } else {
            sites.share(self.slot);
        }
        let (exponent, detail) = (sites.exponent(self.slot), sites.detail(&[self.slot]));
        let mut halves = vec![f16::ZERO; gradient.len()];
        // Cannot fail, because the lengths are equal.
        let stored = shared.cpu.store(Slice::F32(gradient), 0, SliceMut::F16(&mut halves), exponent, detail);
        let _ = shared.cpu.store(Slice::F16(&halves), exponent, SliceMut::F32(gradient), 0, Detail::None);
        if let Ok(stored) = stored {
            *row = if first { stored } else { row.merge(&stored).unwrap_or(*row) };
        }
    }
}
