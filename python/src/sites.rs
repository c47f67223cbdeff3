//! Cast sites of a training, with their common method.

use crate::{
    outcome::Outcome,
    rules::Decision,
    stats::Stats,
    words::{ROW_WORDS, detail_name, format_of, row_of},
    wrong,
};
use gradscale::{
    Cause, ForwardScaling, GradientScaling, Method, Products, Scaling,
    gradscale_core::{
        backend::Slot, loss_scale::LossScale, site::Trigger, solve::NoDecision, stats, store_format::StoreFormat,
    },
    sites::{self, Attempt, Finished, SavedSite, SiteReport, SlotKind},
};
use numpy::{PyArray1, PyReadonlyArray2};
use pyo3::{exceptions::PyKeyError, prelude::*, types::PyDict};

/// Number of slots that the engine reserves; Python's site indices start after them.
const RESERVED: usize = 2;

/// Input of a site's decision.
#[derive(FromPyObject)]
enum DecisionInput<'py> {
    Row(PyRef<'py, Stats>),
    Decision(PyRef<'py, Decision>),
}

/// Names, exponents and decisions of all cast sites of a training.
#[pyclass(module = "gradscale")]
#[derive(Clone, Debug)]
pub struct Sites {
    sites: sites::Sites,
    /// Text of the method, as the caller passed it.
    method: String,
    /// True if rows are read a step later.
    deferred: bool,
}

fn slot(index: usize) -> Slot {
    Slot(u16::try_from(index + RESERVED).unwrap_or(u16::MAX))
}

/// Returns true if decisions need only a statistics row.
fn decides_from_rows(scaling: &Scaling) -> bool {
    match scaling {
        Scaling::Loss(_) | Scaling::Blocks(_) => true,
        Scaling::Gradient(gradient) => gradient.preset.decides_from_rows(),
    }
}

fn scaling(method: &str) -> PyResult<Scaling> {
    Ok(method.parse::<Method>().map_err(wrong)?.scaling)
}

/// Returns the setting of activations in a method that repeats batches, or that stores them in 8 bits; off for all others.
fn forward_of(scaling: &Scaling) -> ForwardScaling {
    match scaling {
        Scaling::Gradient(gradient) if gradient.repeats() || gradient.formats.scales_forward() => gradient.forward,
        Scaling::Gradient(_) | Scaling::Loss(_) | Scaling::Blocks(_) => ForwardScaling::Off,
    }
}

#[pymethods]
impl Sites {
    #[new]
    #[pyo3(signature = (method="gs", names=Vec::new(), *, deferred=false, total_steps=None))]
    fn new(method: &str, names: Vec<String>, deferred: bool, total_steps: Option<u64>) -> PyResult<Self> {
        let method = crate::method_for(method, total_steps)?;
        let scaling = scaling(&method)?;
        if matches!(scaling, Scaling::Blocks(_)) {
            return Err(wrong(format!("{method} has a scale for each block, and only the program trains with it")));
        }
        if deferred && !decides_from_rows(&scaling) {
            return Err(wrong(format!("{method} decides inside a step, which late rows cannot")));
        }
        let sites = sites::Sites::new(scaling).map_err(wrong)?;
        let mut all = Self { sites, method, deferred };
        for name in names {
            all.add(&name, "site", false)?;
        }
        Ok(all)
    }

    #[pyo3(signature = (name, kind="site", *, shared=false))]
    fn add(&mut self, name: &str, kind: &str, shared: bool) -> PyResult<usize> {
        let kind = match kind {
            "site" => SlotKind::Site,
            "forward" => SlotKind::Forward,
            "weight" => SlotKind::Weight,
            "parameter" => SlotKind::Parameter,
            other => {
                return Err(wrong(format!("{other} is not a kind of site; choose site, forward, weight or parameter")));
            }
        };
        if self.names().contains(&name) {
            return Err(wrong(format!("{name} exists already")));
        }
        let slot = self.sites.slot(name, kind).map_err(wrong)?;
        if shared || self.deferred {
            self.sites.share(slot);
        }
        Ok(usize::from(slot.0) - RESERVED)
    }

    /// Declares that a site is stored to several times in a step.
    fn mark_shared(&mut self, index: usize) -> PyResult<()> {
        let slot = self.known(index)?;
        self.sites.share(slot);
        Ok(())
    }

    fn __len__(&self) -> usize {
        self.sites.len() - RESERVED
    }

    #[getter]
    fn names(&self) -> Vec<&str> {
        (0..self.__len__()).map(|index| self.sites.name(slot(index))).collect()
    }

    fn index(&self, name: &str) -> PyResult<usize> {
        let found = self.names().iter().position(|other| *other == name);
        found.ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    #[getter]
    fn method(&self) -> &str {
        &self.method
    }

    #[getter]
    const fn deferred(&self) -> bool {
        self.deferred
    }

    /// Returns the current exponent of each site.
    #[getter]
    fn exponents<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i32>> {
        PyArray1::from_slice(py, &self.sites.exponents()[RESERVED..])
    }

    /// Returns the level of detail of each row in the next step.
    #[getter]
    fn details<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i32>> {
        let all = (0..self.__len__()).map(|index| self.sites.detail(&[slot(index)]).code().cast_signed());
        PyArray1::from_iter(py, all)
    }

    /// Returns the format of each site's stores.
    #[getter]
    fn formats(&self) -> Vec<&'static str> {
        (0..self.__len__()).map(|index| self.format_of(slot(index)).name()).collect()
    }

    /// Returns for each site whether it decides inside the coming step.
    #[getter]
    fn decides_in_step<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<bool>> {
        PyArray1::from_iter(py, (0..self.__len__()).map(|index| self.sites.at_once(slot(index))))
    }

    /// Returns the exponent of the loss scale; 0 under gradient scaling.
    #[getter]
    fn loss_exponent(&self) -> i32 {
        self.sites.loss_scale()
    }

    /// Returns the setting of activations in the method: off, repeat or on.
    #[getter]
    fn forward(&self) -> &'static str {
        match forward_of(self.sites.scaling()) {
            ForwardScaling::Off => "off",
            ForwardScaling::Repeat => "repeat",
            ForwardScaling::On => "on",
        }
    }

    /// Returns the formats of activations and of weights in the method.
    #[getter]
    fn forward_formats(&self) -> (&'static str, &'static str) {
        match self.sites.scaling() {
            Scaling::Gradient(gradient) => (gradient.formats.activation.name(), gradient.formats.weight.name()),
            Scaling::Loss(_) | Scaling::Blocks(_) => (StoreFormat::Fp16.name(), StoreFormat::Fp16.name()),
        }
    }

    /// Returns the formats of gradients, activations and weights if the method has products in FP8.
    #[getter]
    fn fp8_products(&self) -> Option<(&'static str, &'static str, &'static str)> {
        match self.sites.scaling() {
            Scaling::Gradient(GradientScaling { products: Products::EightBits, formats, .. }) => {
                Some((formats.gradient.name(), formats.activation.name(), formats.weight.name()))
            }
            Scaling::Gradient(GradientScaling { products: Products::Half, .. })
            | Scaling::Loss(_)
            | Scaling::Blocks(_) => None,
        }
    }

    /// Gives the sites of the kinds `forward` and `weight` exponents from now on.
    fn scale_forward(&mut self) {
        self.sites.give_forward_exponents(forward_of(self.sites.scaling()) == ForwardScaling::On);
    }

    /// Returns true if a batch that overflows is to be retried.
    #[getter]
    fn can_repeat(&self) -> bool {
        self.sites.repeats()
    }

    /// Decides inside the step: by the exact rule from the row of a first run, or by the choice of another rule,
    /// relative to the exponent `measured_at`. With None nothing is decided. Returns the exponent to store with.
    /// Without a decision a site that never had an exponent stores at `incoming`.
    #[pyo3(signature = (index, decision, incoming=0, *, measured_at=None))]
    fn decide(
        &mut self, index: usize, decision: Option<DecisionInput<'_>>, incoming: i32, measured_at: Option<i32>,
    ) -> PyResult<i32> {
        let slot = self.known(index)?;
        match decision {
            Some(DecisionInput::Row(_)) if !decides_from_rows(self.sites.scaling()) => {
                return Err(wrong(format!("{} decides from more than a row; pass the choice of Rule", self.method)));
            }
            Some(DecisionInput::Row(row)) => {
                self.check_format(slot, &row.0)?;
                self.sites.decide_from(slot, &row.0, incoming);
            }
            Some(DecisionInput::Decision(decision)) => {
                let measured_at = measured_at.ok_or_else(|| wrong("a decision needs the exponent measured_at"))?;
                self.sites.decide(slot, Ok(decision.0), measured_at, incoming);
            }
            None => self.sites.decide(slot, Err(NoDecision::Empty), incoming, incoming),
        }
        Ok(self.sites.exponent(slot))
    }

    /// Processes the rows of a step, in the order of the sites; `order` is that of the stores. If `failed_attempts` is
    /// None, values were not finite before anything was scaled, so a repeat cannot help.
    #[pyo3(signature = (rows, found_inf=None, *, order=None, repeatable=false, failed_attempts=Some(0), micro_batches=1))]
    fn finish(
        &mut self, rows: PyReadonlyArray2<'_, u32>, found_inf: Option<bool>, order: Option<Vec<usize>>,
        repeatable: bool, failed_attempts: Option<u32>, micro_batches: u32,
    ) -> PyResult<Outcome> {
        let words = rows.as_slice()?;
        if words.len() != self.__len__() * ROW_WORDS {
            return Err(wrong(format!("{} words are not the rows of {} sites", words.len(), self.__len__())));
        }
        let mut all = vec![Stats::EMPTY; RESERVED];
        for (index, words) in words.chunks_exact(ROW_WORDS).enumerate() {
            let slot = slot(index);
            let row = row_of(words).map_err(|error| wrong(format!("{}: {error}", self.sites.name(slot))))?;
            // A site that stored nothing has zeros, which name no format.
            all.push(if row.detail() == stats::Detail::None { row.counted_in(self.format_of(slot)) } else { row });
            self.check_format(slot, &row)?;
        }
        let stored = |index: &usize| all.get(index + RESERVED).is_some_and(|row| row.detail() != stats::Detail::None);
        let order: Vec<Slot> = match order {
            Some(order) => {
                order.iter().map(|&index| self.known(index)).collect::<PyResult<Vec<_>>>()?;
                order.into_iter().filter(stored).map(slot).collect()
            }
            None => (0..self.__len__()).filter(stored).map(slot).collect(),
        };
        let counts = |slot: &Slot| all[usize::from(slot.0)].counts();
        let lost = |slot: &Slot| counts(slot).non_finite() != 0 || counts(slot).overflowed != 0;
        let found_inf = found_inf.unwrap_or_else(|| order.iter().any(lost));
        let attempt =
            Attempt { found_inf, failed: failed_attempts.unwrap_or(u32::MAX), repeatable, micro: micro_batches };
        let finished = match self.sites.finish(&all, &order, attempt) {
            Finished::Skipped(blame, Cause::Repeats) if failed_attempts.is_none() => {
                Finished::Skipped(blame, Cause::NotFinite)
            }
            finished => finished,
        };
        Ok(Outcome::from_finished(finished, |blame| {
            let slot = order[blame.site];
            (usize::from(slot.0) - RESERVED, self.sites.name(slot).to_owned())
        }))
    }

    /// Returns the last row of a site, or None if it has not stored.
    fn row(&self, index: usize) -> PyResult<Option<Stats>> {
        Ok(self.sites.row(self.known(index)?).copied().map(Stats))
    }

    /// Returns a warning about a dynamic loss scale after the last step: its kind, and a sentence.
    fn loss_scale_warning(&self) -> Option<(&'static str, String)> {
        self.sites.loss_scale_warning().map(|warning| (warning.name(), warning.to_string()))
    }

    /// Returns a report of each site of a kind that has stored.
    #[pyo3(signature = (kind="site"))]
    fn report<'py>(&self, py: Python<'py>, kind: &str) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let reports: Vec<SiteReport<'_>> = match kind {
            "site" => self.sites.reports().collect(),
            "forward" => self.sites.forward_reports().collect(),
            "weight" => self.sites.weight_reports().collect(),
            other => {
                return Err(wrong(format!(
                    "{other} is not a kind of site with reports; choose site, forward or weight"
                )));
            }
        };
        let entries = reports.into_iter().map(|site| {
            let entry = PyDict::new(py);
            entry.set_item("name", site.name)?;
            entry.set_item("exponent", site.alpha)?;
            entry.set_item("flushed", site.gamma_measured)?;
            entry.set_item("flushed_predicted", site.gamma_predicted)?;
            entry.set_item("limited_by", site.bound.map(|bound| bound.to_string()))?;
            entry.set_item("overflows", site.overflows)?;
            entry.set_item("subnormal", site.subnormal_share)?;
            entry.set_item("log2_amax", site.log2_amax)?;
            entry.set_item("format", format_of(site.row).name())?;
            entry.set_item("detail", detail_name(site.row.detail()))?;
            Ok(entry)
        });
        entries.collect()
    }

    /// Returns the last decisions of a site, oldest first.
    fn history<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let site = self.sites.site(self.known(index)?);
        let entries = site.into_iter().flat_map(|site| site.history()).map(|decision| {
            let entry = PyDict::new(py);
            entry.set_item("before", decision.before)?;
            entry.set_item("exponent", decision.alpha)?;
            entry.set_item("limited_by", decision.choice.held.to_string())?;
            entry.set_item("flushed_predicted", decision.choice.gamma)?;
            entry.set_item(
                "trigger",
                match decision.trigger {
                    Trigger::First => "first",
                    Trigger::Interval => "interval",
                    Trigger::Overflow => "overflow",
                    Trigger::AfterSkip => "after_skip",
                    Trigger::Repeat => "repeat",
                },
            )?;
            Ok(entry)
        });
        entries.collect()
    }

    /// Returns the state of all sites as a dictionary, for a checkpoint.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = PyDict::new(py);
        state.set_item("method", &self.method)?;
        state.set_item("late", self.deferred)?;
        if let Scaling::Loss(schedule) = self.sites.scaling() {
            state.set_item("loss_scale", schedule.to_words().to_vec())?;
        }
        if self.sites.forward_active() {
            state.set_item("forward", true)?;
        }
        state.set_item("sites", serde_json::to_string(&self.sites.save()).map_err(wrong)?)?;
        Ok(state)
    }

    /// Restores a saved state, bit for bit. The method becomes the saved one.
    fn load_state_dict(&mut self, state: &Bound<'_, PyDict>) -> PyResult<()> {
        let get = |key: &str| state.get_item(key)?.ok_or_else(|| wrong(format!("a saved state has no {key}")));
        let method: String = get("method")?.extract()?;
        let deferred: bool = get("late")?.extract()?;
        let text: String = get("sites")?.extract()?;
        let saved: Vec<SavedSite> =
            serde_json::from_str(&text).map_err(|error| wrong(format!("saved sites: {error}")))?;
        let schedule = match state.get_item("loss_scale")? {
            Some(words) => Some(LossScale::from_words(&words.extract::<Vec<i64>>()?).map_err(wrong)?),
            None => None,
        };
        // Everything is checked before anything changes.
        let scaling = scaling(&method)?;
        let raises = forward_of(&scaling) == ForwardScaling::On;
        let mut sites = sites::Sites::new(scaling).map_err(wrong)?;
        if state.contains("forward")? {
            sites.give_forward_exponents(raises);
        }
        sites.restore(schedule, &saved).map_err(wrong)?;
        let loaded = Self { sites, method, deferred };
        // Sites that exist here keep their indices.
        let mut there = loaded.names().into_iter();
        for name in self.names() {
            match there.next() {
                Some(other) if other == name => {}
                Some(other) => return Err(wrong(format!("{name} is called {other} in the saved state"))),
                None => return Err(wrong(format!("{name} is not in the saved state"))),
            }
        }
        *self = loaded;
        Ok(())
    }

    fn __getstate__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.state_dict(py)
    }

    fn __setstate__(&mut self, state: &Bound<'_, PyDict>) -> PyResult<()> {
        self.load_state_dict(state)
    }

    fn __copy__(&self) -> Self {
        self.clone()
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> Self {
        self.clone()
    }

    fn __repr__(&self) -> String {
        format!("<Sites by {}: {}>", self.method, self.__len__())
    }
}

impl Sites {
    /// Returns the format in which a site stores.
    fn format_of(&self, slot: Slot) -> StoreFormat {
        self.sites.format(slot)
    }

    /// Checks that a row was counted in the format of its site.
    fn check_format(&self, slot: Slot, row: &stats::Stats) -> PyResult<()> {
        let (site, counted) = (self.format_of(slot), format_of(row));
        if site == counted || row.detail() == stats::Detail::None {
            return Ok(());
        }
        let name = self.sites.name(slot);
        Err(wrong(format!("{name} stores in {site}, but its row was counted in {counted}; pass format=\"{site}\"")))
    }

    fn known(&self, index: usize) -> PyResult<Slot> {
        if index < self.__len__() { Ok(slot(index)) } else { Err(wrong(format!("site {index} does not exist"))) }
    }
}
