//! Measurement of the window of a single loss scale, see [`crate::window`].

use crate::{
    Error, GradientScaling, Scaling, SharedLayers,
    sites::SlotKind,
    train::{Gradients, Trainer, step::StepReadback},
    window::{GradientErrors, NamedGradient, Probe, Reference, ScaleWindows},
};
use gradscale_core::{
    amp::Precision,
    backend::Backend,
    loss_scale::{Fixed, LossScale},
    solve::Amax,
    stats::{Detail, Stats},
};
use pollster::block_on;

/// Storage of gradients in a measurement. Each variant has its own programs and sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::train) enum Stores {
    /// All gradients in f32, as the reference.
    Single,
    /// Activation gradients in half where activations are half, each at its own scale; weight gradients in f32.
    PerTensor,
    /// Activation gradients in half where activations are half, all at one scale; weight gradients in f32.
    OneScale,
    /// As [`Self::OneScale`], with weight gradients in half too.
    OneScaleHalfWeights,
}

impl Stores {
    /// Returns the prefix of the measurement's site names, which no layer name contains. It also distinguishes
    /// programs.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Single => "window-f32:",
            Self::PerTensor => "window-tensors:",
            Self::OneScale => "window-scale:",
            Self::OneScaleHalfWeights => "window-scale-half:",
        }
    }

    /// Returns the precision in which weight gradients are stored.
    pub const fn weight_gradients(self) -> Precision {
        match self {
            Self::Single | Self::PerTensor | Self::OneScale => Precision::Single,
            Self::OneScaleHalfWeights => Precision::Half,
        }
    }
}

/// Measures the errors of the parameters' gradients of a batch at the exponents in force, relative to the same
/// backward pass with all gradients in f32. `attempt` is as for [`Trainer::window`]; it is called three times.
///
/// Parameters whose gradient is zero but for rounding are excluded, as in [`crate::window`]. `None` if gradients are
/// not finite in f32, or if a value overflows at these exponents: no step applies such gradients.
///
/// ```
/// # use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{Linear, Module}, optim::Sgd};
/// # let mut parameters = Parameters::seeded(0);
/// # let net = Linear::new(&mut parameters.at("net"), 2, 2);
/// # let method: Method = "fixed:1024".parse()?;
/// # let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), method)?;
/// // One class: the gradients of both rows have the same sign, so the bias sums them without cancellation.
/// let batch = [Input::f32([2, 2], &[1.0, 0.0, 0.0, 1.0]), Input::u8([2], &[0, 0])];
/// let errors = gradscale::gradient_errors(&mut trainer, |trainer| {
///     trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels))
/// })?;
/// // One rounding to 11 bits.
/// assert!(errors.expect("finite gradients").worst <= 2.0f64.powi(-11));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of `attempt`, gradients of another trainer or of several losses, or the device's.
pub fn gradient_errors<B: Backend, F: From<Error<B::Error>>>(
    trainer: &mut Trainer<B>, mut attempt: impl FnMut(&mut Trainer<B>) -> Result<Gradients, F>,
) -> Result<Option<GradientErrors>, F> {
    let sites = trainer.sites.len();
    let mut is_first_pass = false;
    let errors = trainer.restored_after(|trainer, seed| {
        // First, because the sites of the other passes are behind those in force.
        let own = trainer.probe_stores(None, &mut attempt, seed)?;
        is_first_pass = trainer.sites.len() > sites;
        if own.overflowed.is_some() {
            return Ok(None);
        }
        let reference = trainer.measure_reference(&mut attempt, seed)?;
        Ok(reference.and_then(|reference| reference.errors(&own.gradients)))
    });
    if is_first_pass {
        // Its program refers to sites that are gone.
        trainer.exec.remove_programs(|_| true);
    }
    errors
}

impl<B: Backend> Trainer<B> {
    /// Measures at which loss scales every parameter gradient of a batch is as accurate as with per-tensor scales: see
    /// [`crate::window`]. `attempt` runs the backward pass of that batch; it is called some fifty times and must do the
    /// same each time, as for [`Trainer::step_with`]. None if the gradients are not finite in f32 either.
    ///
    /// Parameters, optimizer, scales and the seed of dropout are afterwards as before. Gradients that no step has taken yet
    /// are not valid any more.
    ///
    /// ```
    /// # use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{Linear, Module}, optim::Sgd, window::Place};
    /// # let mut parameters = Parameters::seeded(0);
    /// # let net = Linear::new(&mut parameters.at("net"), 2, 2);
    /// # let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?;
    /// let batch = [Input::f32([2, 2], &[1.0, 0.0, 0.0, 1.0]), Input::u8([2], &[0, 1])];
    /// let window = trainer.window(|trainer| trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels)))?;
    /// let window = window.expect("finite gradients");
    /// // Gradients near 1/4 overflow at 2^18 and have all their digits far down.
    /// assert!(matches!(window.half.place(7), Place::Inside { .. }));
    /// # Ok::<(), gradscale::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `attempt`, gradients of another trainer or of several losses, or the device's.
    pub fn window<F: From<Error<B::Error>>>(
        &mut self, mut attempt: impl FnMut(&mut Self) -> Result<Gradients, F>,
    ) -> Result<Option<ScaleWindows>, F> {
        self.restored_after(|trainer, seed| trainer.measure_window(&mut attempt, seed))
    }

    /// Runs a measurement, which gets the seed of dropout, and restores sites and seed after it.
    fn restored_after<T, F: From<Error<B::Error>>>(
        &mut self, measure: impl FnOnce(&mut Self, u64) -> Result<T, F>,
    ) -> Result<T, F> {
        let (sites, observed, least) = (self.sites.clone(), self.observed.take(), self.settings.least);
        let seed = self.counters.seed;
        self.settings.least = Detail::Counts;
        let measured = measure(self, seed);
        self.settings.probed = None;
        (self.sites, self.observed, self.settings.least, self.counters.seed) = (sites, observed, least, seed);
        // The outputs and gradients of these programs have been overwritten, and the programs may have been evicted.
        (self.live_backward, self.last_run) = (None, None);
        self.generations.gradients += 1;
        let prefixes = [Stores::Single, Stores::PerTensor, Stores::OneScale, Stores::OneScaleHalfWeights];
        self.exec.remove_programs(|program| prefixes.iter().any(|stores| program.prefix.starts_with(stores.prefix())));
        // Slots of the measurement are gone.
        self.exec.resize_table(self.sites.len(), self.hyperparameters.len()).map_err(Error::Device)?;
        measured
    }

    /// Measures gradients in f32 and with per-tensor scales. `None` if they are not finite in f32, or none can be
    /// compared. The sites have no scale afterwards.
    fn measure_reference<F: From<Error<B::Error>>>(
        &mut self, attempt: &mut impl FnMut(&mut Self) -> Result<Gradients, F>, seed: u64,
    ) -> Result<Option<Reference>, F> {
        let failed = |error| F::from(Error::Rule(error));
        let unscaled = Scaling::Loss(LossScale::None);
        self.sites = self.sites.with_scaling(unscaled.clone()).map_err(failed)?;
        let exact = self.probe_stores(Some(Stores::Single), attempt, seed)?.gradients;
        if exact.iter().any(|(_, gradient)| gradient.iter().any(|x| !x.is_finite())) {
            return Ok(None);
        }
        let amax = GradientScaling::amax(Amax::new(0, 0).map_err(failed)?).with_calls(SharedLayers::Each);
        self.sites = self.sites.with_scaling(Scaling::Gradient(amax)).map_err(failed)?;
        let tensors = self.probe_stores(Some(Stores::PerTensor), attempt, seed)?.gradients;
        self.sites = self.sites.with_scaling(unscaled).map_err(failed)?;
        Ok(Reference::new(exact, &tensors))
    }

    fn measure_window<F: From<Error<B::Error>>>(
        &mut self, attempt: &mut impl FnMut(&mut Self) -> Result<Gradients, F>, seed: u64,
    ) -> Result<Option<ScaleWindows>, F> {
        let Some(reference) = self.measure_reference(attempt, seed)? else { return Ok(None) };
        let mut windows = |stores: Stores| {
            reference.window(stores.weight_gradients(), |exponent| {
                if let Some(fixed) = Fixed::new(exponent) {
                    self.sites.fix_loss_scale(fixed);
                }
                self.probe_stores(Some(stores), attempt, seed)
            })
        };
        let (single, half) = (windows(Stores::OneScale)?, windows(Stores::OneScaleHalfWeights)?);
        let (compared, left_out) = (reference.compared(), reference.left_out);
        Ok(Some(ScaleWindows { compared, left_out, per_tensor: reference.per_tensor, single, half }))
    }

    /// Runs a backward pass, and reads the gradients of all parameters with the first site at which a value overflowed.
    /// Without `stores`, gradients are stored as in a step.
    fn probe_stores<F: From<Error<B::Error>>>(
        &mut self, stores: Option<Stores>, attempt: &mut impl FnMut(&mut Self) -> Result<Gradients, F>, seed: u64,
    ) -> Result<Probe, F> {
        self.settings.probed = stores;
        self.counters.seed = seed;
        let gradients = attempt(self)?;
        self.check_gradients(&gradients)?;
        let StepReadback { rows, .. } = block_on(self.collect(false))?;
        let overflows = |row: &Stats| row.counts().overflowed != 0 || row.counts().non_finite() != 0;
        let first = gradients
            .order
            .iter()
            .find(|&&slot| self.sites.kind(slot) == SlotKind::Site && overflows(&rows[usize::from(slot.0)]));
        let prefix = stores.map_or("", Stores::prefix);
        let shortened = |name: &str| name.strip_prefix(prefix).unwrap_or(name).to_owned();
        let overflowed = first.map(|&slot| shortened(self.sites.name(slot)));
        self.rows = rows;
        let names: Vec<String> = gradients.contributes.iter().map(|&id| self.parameters.all[id].name.clone()).collect();
        let mut all: Vec<NamedGradient> = Vec::with_capacity(names.len());
        for name in names {
            let gradient = self.gradient(&gradients, &name)?;
            all.extend(gradient.map(|tensor| (name, tensor.data)));
        }
        // A sum of a weight's gradient that is too large for f32 overflows too.
        let infinite = all.iter().find(|(_, gradient)| gradient.iter().any(|x| !x.is_finite()));
        let overflowed = overflowed.or_else(|| infinite.map(|(name, _)| name.clone()));
        Ok(Probe { overflowed, gradients: all })
    }
}
