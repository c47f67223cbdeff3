//! Dynamic loss scaling and its variants (Micikevicius et al. 2018; Kuchaiev et al. 2018).

use super::{Bounds, RisingFloor, ScheduleError};

/// Setting of a dynamic loss scale: number of overflows after which it is lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hysteresis {
    /// No hysteresis: every overflow lowers the scale.
    None,
    /// Cumulative hysteresis: lowers the scale at the h-th overflow since it last grew, and at each one after that.
    /// Finite steps in between do not reset the count (Megatron).
    Cumulative(u32),
    /// Consecutive hysteresis: lowers the scale at the h-th overflow without a finite step in between, and at each one
    /// after that (DeepSpeed's switch).
    Consecutive(u32),
}

/// Settings of a dynamic loss scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicConfig {
    /// Exponent of the loss scale in the first step.
    pub start: i32,
    /// Exponent added to the loss scale after `interval` consecutive finite steps, positive.
    pub growth: i32,
    /// Exponent added to the loss scale after an overflow, negative.
    pub backoff: i32,
    /// Number of consecutive finite steps after which the loss scale grows.
    pub interval: u32,
    /// Minimum and maximum exponent of the loss scale.
    pub bounds: Bounds,
    /// Number of overflows after which the scale is lowered.
    pub hysteresis: Hysteresis,
    /// Minimum fraction of overflows among the steps since the last change of the loss scale that lowers it, in parts
    /// per million (fairseq). 0 lowers it at each overflow.
    pub tolerance_ppm: u32,
    /// Minimum exponent of the loss scale, which rises with the number of steps.
    pub floor: RisingFloor,
}

impl Default for DynamicConfig {
    /// Returns the default settings: 2^16 as the first scale, ×2 after 2000 consecutive finite steps, ×½ at each
    /// overflow.
    fn default() -> Self {
        Self {
            start: 16,
            growth: 1,
            backoff: -1,
            interval: 2000,
            bounds: Bounds::default(),
            hysteresis: Hysteresis::None,
            tolerance_ppm: 0,
            floor: RisingFloor::default(),
        }
    }
}

impl DynamicConfig {
    /// Returns the settings of OpenSeq2Seq's "backoff": starts at the maximum scale, 2^24.
    #[must_use]
    pub fn backoff() -> Self {
        Self { start: 24, bounds: Bounds { most: 24, ..Bounds::default() }, ..Self::default() }
    }
}

/// Dynamic loss scale: grows after a number of finite steps and shrinks after overflows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dynamic {
    pub(super) config: DynamicConfig,
    pub(super) state: State,
}

/// State of a dynamic loss scale: exponent in force and counts of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub exponent: i32,
    /// Number of consecutive finite steps so far.
    pub clean: u32,
    /// Number of overflows that remain until the loss scale is lowered.
    pub patience: u32,
    /// Number of overflows, and of steps, since the loss scale last changed.
    pub overflows: u64,
    pub steps: u64,
    /// Number of applied steps since the start, on which the rising minimum depends.
    pub taken: u64,
}

impl Dynamic {
    /// Creates a dynamic loss scale in its initial state.
    ///
    /// # Errors
    /// [`ScheduleError`] for invalid settings.
    pub fn new(config: DynamicConfig) -> Result<Self, ScheduleError> {
        if config.bounds.clamp(config.start) != config.start {
            return Err(ScheduleError::Start(config.start));
        }
        if config.growth < 1 {
            return Err(ScheduleError::Factor(config.growth));
        }
        if config.backoff > -1 {
            return Err(ScheduleError::Factor(config.backoff));
        }
        if config.interval == 0 || patience(config.hysteresis) == 0 {
            return Err(ScheduleError::Interval);
        }
        if config.tolerance_ppm >= 1_000_000 {
            return Err(ScheduleError::Tolerance(config.tolerance_ppm));
        }
        config.floor.check(config.bounds)?;
        let exponent = config.start.max(config.floor.at(0, config.bounds));
        let state =
            State { exponent, clean: 0, patience: patience(config.hysteresis), overflows: 0, steps: 0, taken: 0 };
        Ok(Self { config, state })
    }

    /// Returns the settings of the dynamic loss scale.
    #[must_use]
    pub const fn config(&self) -> &DynamicConfig {
        &self.config
    }

    /// Returns the exponent of the dynamic loss scale in force.
    #[must_use]
    pub const fn exponent(&self) -> i32 {
        self.state.exponent
    }

    /// Returns the number of finite steps until the dynamic loss scale grows; `None` at its maximum.
    pub(super) fn first_growth(&self) -> Option<u64> {
        let left = self.config.interval.saturating_sub(self.state.clean);
        (self.state.exponent < self.config.bounds.most()).then_some(u64::from(left))
    }

    /// Updates the dynamic loss scale after a step, which overflowed if `found_inf`.
    pub fn update(&mut self, found_inf: bool) {
        let (config, state) = (&self.config, &mut self.state);
        state.steps = state.steps.saturating_add(1);
        if found_inf {
            state.clean = 0;
            state.overflows = state.overflows.saturating_add(1);
            state.patience = state.patience.saturating_sub(1);
            let share = u128::from(state.overflows) * 1_000_000;
            let tolerated = share < u128::from(config.tolerance_ppm) * u128::from(state.steps);
            if state.patience == 0 && !tolerated {
                self.change(config.backoff);
            }
        } else {
            state.clean += 1;
            state.taken = state.taken.saturating_add(1);
            if matches!(config.hysteresis, Hysteresis::Consecutive(_)) {
                state.patience = patience(config.hysteresis);
            }
            if state.clean >= config.interval {
                state.clean = 0;
                state.patience = patience(config.hysteresis);
                self.change(config.growth);
            }
        }
        let floor = self.config.floor.at(self.state.taken, self.config.bounds);
        self.state.exponent = self.state.exponent.max(floor);
    }

    fn change(&mut self, by: i32) {
        self.state.exponent = self.config.bounds.clamp(self.state.exponent.saturating_add(by));
        self.state.steps = 0;
        self.state.overflows = 0;
    }
}

impl Default for Dynamic {
    fn default() -> Self {
        let config = DynamicConfig::default();
        let state = State { exponent: config.start, clean: 0, patience: 1, overflows: 0, steps: 0, taken: 0 };
        Self { config, state }
    }
}

/// Returns the number of overflows after which a hysteresis lowers the loss scale.
const fn patience(hysteresis: Hysteresis) -> u32 {
    match hysteresis {
        Hysteresis::None => 1,
        Hysteresis::Cumulative(h) | Hysteresis::Consecutive(h) => h,
    }
}
