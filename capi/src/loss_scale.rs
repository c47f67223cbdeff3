//! Loss scales: one scale for all gradients.

use crate::{
    casts::read_if,
    memory::{Plain, Tag, open, read, seal, write},
    status::{
        answer,
        gs_status::{self, GS_ERROR_CORRUPTED, GS_ERROR_ENUM, GS_ERROR_FLOOR, GS_ERROR_VERSION},
    },
};
use gradscale_core::{
    loss_scale::{
        Bounds, Chainer, Delayed, DelayedConfig, Dynamic, DynamicConfig, FLOOR_STEPS, Feedback, Hysteresis, LogMax,
        LogMaxConfig, LossScale, RisingFloor, WORDS, propose_fixed,
    },
    scaled::Scaled,
};

/// Number of 64-bit words of a gs_loss_scale.
pub const GS_LOSS_SCALE_WORDS: usize = 37;
const _: () = assert!(GS_LOSS_SCALE_WORDS == WORDS + 3, "cbindgen wants a number");
/// Maximum number of steps of a rising minimum.
pub const GS_MAX_FLOORS: usize = 8;
const _: () = assert!(GS_MAX_FLOORS == FLOOR_STEPS, "cbindgen wants a number");

/// Loss scale with its whole state: initialised by one of the functions below, and then changed by functions of this
/// library only. It may be copied and stored in a file, on machines of one byte order; there is nothing to free.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct gs_loss_scale {
    /// Private state of the loss scale; do not modify.
    pub words: [i64; GS_LOSS_SCALE_WORDS],
}

// SAFETY: integers.
unsafe impl Plain for gs_loss_scale {}

/// Number of overflows after which a dynamic scale is lowered.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_hysteresis {
    /// Every overflow lowers the scale: no hysteresis.
    GS_HYSTERESIS_NONE = 0,
    /// The n-th overflow since the scale last grew (Megatron).
    GS_HYSTERESIS_CUMULATIVE = 1,
    /// The n-th overflow without a finite step in between (DeepSpeed's switch).
    GS_HYSTERESIS_CONSECUTIVE = 2,
}

/// Settings of a dynamic scale. gs_dynamic_config_init fills them with the defaults: 2^16, doubled after 2000
/// consecutive finite steps, halved at each overflow.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct gs_dynamic_config {
    /// Size of this structure in bytes: sizeof(gs_dynamic_config).
    pub size: u32,
    /// Exponent of the scale in the first step.
    pub init_exponent: i32,
    /// Exponent added after growth_interval finite steps, positive.
    pub growth_exponent: i32,
    /// Exponent added after an overflow, which is negative.
    pub backoff_exponent: i32,
    /// Consecutive finite steps after which the scale grows.
    pub growth_interval: u32,
    /// Minimum exponent of the scale.
    pub min_exponent: i32,
    /// Maximum exponent of the scale.
    pub max_exponent: i32,
    /// Kind of hysteresis, a gs_hysteresis.
    pub hysteresis: u32,
    /// Number n of overflows of the hysteresis, at least 1.
    pub hysteresis_overflows: u32,
    /// Minimum fraction of overflows among the steps since the last change that lowers the scale, in parts per million.
    pub tolerance_ppm: u32,
    /// Number of steps of the rising minimum.
    pub floor_count: u32,
    /// Number of training steps from which each minimum is valid.
    pub floor_steps: [u64; GS_MAX_FLOORS],
    /// Minimum exponent from that number of training steps on.
    pub floor_exponents: [i32; GS_MAX_FLOORS],
}

// SAFETY: integers; C fills the padding between them, and it is never read.
unsafe impl Plain for gs_dynamic_config {}

#[expect(clippy::cast_possible_truncation, reason = "some hundred bytes")]
const SIZE: u32 = size_of::<gs_dynamic_config>() as u32;

impl gs_loss_scale {
    fn open(&self) -> Result<LossScale, gs_status> {
        let words = open(Tag::LossScale, &self.words)?;
        let (length, words) = words.split_first().ok_or(GS_ERROR_CORRUPTED)?;
        let length = usize::try_from(*length).map_err(|_| GS_ERROR_CORRUPTED)?;
        Ok(LossScale::from_words(words.get(..length).ok_or(GS_ERROR_CORRUPTED)?)?)
    }

    fn from_scale(scale: &LossScale) -> Self {
        let words = scale.to_words();
        let mut content = [0; GS_LOSS_SCALE_WORDS - 2];
        if let [length, rest @ ..] = content.as_mut_slice() {
            *length = i64::try_from(words.len()).unwrap_or(0);
            for (to, from) in rest.iter_mut().zip(&words) {
                *to = *from;
            }
        }
        Self { words: seal(Tag::LossScale, &content) }
    }
}

/// # Safety
/// As for [`write`].
unsafe fn create(loss_scale: *mut gs_loss_scale, make: impl FnOnce() -> Result<LossScale, gs_status>) -> gs_status {
    // SAFETY: promised by the caller.
    answer(|| unsafe { write(loss_scale, gs_loss_scale::from_scale(&make()?)) })
}

/// Initialises a constant scale: a power of two from 2^-126 to 2^126.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_loss_scale_init_fixed(loss_scale: *mut gs_loss_scale, scale: f64) -> gs_status {
    // SAFETY: promised by the caller.
    unsafe { create(loss_scale, || Ok(LossScale::fixed(scale)?)) }
}

/// Fills config with the default settings of a dynamic scale.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_dynamic_config_init(config: *mut gs_dynamic_config) -> gs_status {
    let DynamicConfig { start, growth, backoff, interval, bounds, tolerance_ppm, .. } = DynamicConfig::default();
    let new = gs_dynamic_config {
        size: SIZE,
        init_exponent: start,
        growth_exponent: growth,
        backoff_exponent: backoff,
        growth_interval: interval,
        min_exponent: bounds.least(),
        max_exponent: bounds.most(),
        hysteresis: gs_hysteresis::GS_HYSTERESIS_NONE as u32,
        hysteresis_overflows: 1,
        tolerance_ppm,
        floor_count: 0,
        floor_steps: [0; GS_MAX_FLOORS],
        floor_exponents: [0; GS_MAX_FLOORS],
    };
    // SAFETY: promised by the caller.
    answer(|| unsafe { write(config, new) })
}

/// Initialises a scale that grows after finite steps and shrinks after overflows. config may be NULL for the default
/// settings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_loss_scale_init_dynamic(
    loss_scale: *mut gs_loss_scale, config: *const gs_dynamic_config,
) -> gs_status {
    let make = || {
        // SAFETY: promised by the caller.
        let Some(given) = (unsafe { read_if(config)? }) else { return Ok(LossScale::Dynamic(Dynamic::default())) };
        if given.size != SIZE {
            return Err(GS_ERROR_VERSION);
        }
        let count =
            usize::try_from(given.floor_count).ok().filter(|&count| count <= FLOOR_STEPS).ok_or(GS_ERROR_FLOOR)?;
        let mut floor = [(0, 0); FLOOR_STEPS];
        for (pair, of) in floor.iter_mut().zip(given.floor_steps.iter().zip(&given.floor_exponents)) {
            *pair = (*of.0, *of.1);
        }
        #[allow(clippy::needless_update, reason = "a field that C does not have yet is as usual")]
        let config = DynamicConfig {
            start: given.init_exponent,
            growth: given.growth_exponent,
            backoff: given.backoff_exponent,
            interval: given.growth_interval,
            bounds: Bounds::new(given.min_exponent, given.max_exponent)?,
            hysteresis: match given.hysteresis {
                n if n == gs_hysteresis::GS_HYSTERESIS_NONE as u32 => Hysteresis::None,
                n if n == gs_hysteresis::GS_HYSTERESIS_CUMULATIVE as u32 => {
                    Hysteresis::Cumulative(given.hysteresis_overflows)
                }
                n if n == gs_hysteresis::GS_HYSTERESIS_CONSECUTIVE as u32 => {
                    Hysteresis::Consecutive(given.hysteresis_overflows)
                }
                _ => return Err(GS_ERROR_ENUM),
            },
            tolerance_ppm: given.tolerance_ppm,
            floor: RisingFloor::new(floor.get(..count).unwrap_or_default())?,
            ..DynamicConfig::default()
        };
        Ok(LossScale::Dynamic(Dynamic::new(config)?))
    };
    // SAFETY: promised by the caller.
    unsafe { create(loss_scale, make) }
}

/// Initialises a scale as large as the largest gradient of the last history steps (1 to 16) allows, minus margin
/// exponents, from 2^min_exponent to 2^max_exponent. gs_loss_scale_update needs the largest gradient of each step.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_loss_scale_init_delayed(
    loss_scale: *mut gs_loss_scale, history: u32, margin: u32, min_exponent: i32, max_exponent: i32,
) -> gs_status {
    let make = || {
        let bounds = Bounds::new(min_exponent, max_exponent)?;
        Ok(LossScale::Delayed(Delayed::new(DelayedConfig { history, margin, bounds })?))
    };
    // SAFETY: promised by the caller.
    unsafe { create(loss_scale, make) }
}

/// Initialises a scale that follows mean and standard deviation of log2 of the largest gradient, from 2^least to
/// 2^most. LogMax uses decays of 0.99 and 0.999, a quantile of 3.09, and a ceiling of 16, the log2 of the overflow
/// threshold. gs_loss_scale_update needs the largest gradient of each step.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_loss_scale_init_log_max(
    loss_scale: *mut gs_loss_scale, mean_decay: f64, spread_decay: f64, quantile: f64, ceiling: i32, min_exponent: i32,
    max_exponent: i32,
) -> gs_status {
    let make = || {
        let bounds = Bounds::new(min_exponent, max_exponent)?;
        let config = LogMaxConfig { mean_decay, spread_decay, quantile, ceiling, bounds };
        Ok(LossScale::LogMax(LogMax::new(config)?))
    };
    // SAFETY: promised by the caller.
    unsafe { create(loss_scale, make) }
}

/// Initialises a scale that grows slightly in every step, by a factor of 2 in growth_interval steps, and is halved at
/// an overflow, from 2^min_exponent to 2^max_exponent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_loss_scale_init_chainer(
    loss_scale: *mut gs_loss_scale, growth_interval: u32, min_exponent: i32, max_exponent: i32,
) -> gs_status {
    // SAFETY: promised by the caller.
    unsafe {
        create(loss_scale, || {
            Ok(LossScale::Chainer(Chainer::new(growth_interval, Bounds::new(min_exponent, max_exponent)?)?))
        })
    }
}

/// Returns the exponent in force in exponent: multiply the loss by 2^exponent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_loss_scale_exponent(scale: *const gs_loss_scale, exponent: *mut i32) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let scale = unsafe { read(scale)? }.open()?;
        // SAFETY: promised by the caller.
        unsafe { write(exponent, scale.exponent()) }
    })
}

/// Updates the scale after a step. Call it once for each step, skipped ones included. found_inf is not 0 if some
/// gradient was not finite. amax is the largest magnitude of a gradient, measured at amax_exponent; NaN if it is not
/// known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_loss_scale_update(
    scale: *mut gs_loss_scale, found_inf: u32, amax: f32, amax_exponent: i32,
) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let mut inside = unsafe { read(scale)? }.open()?;
        let amax = (!amax.is_nan()).then_some(Scaled::new(amax, amax_exponent));
        inside.update(&Feedback { found_inf: found_inf != 0, amax });
        // SAFETY: promised by the caller.
        unsafe { write(scale, gs_loss_scale::from_scale(&inside)) }
    })
}

/// Computes the largest exponent at which a gradient of magnitude amax, measured at amax_exponent, stays below 65504.
/// Returns GS_ERROR_SCALE if amax is zero or not finite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_propose_fixed(amax: f32, amax_exponent: i32, exponent: *mut i32) -> gs_status {
    answer(|| {
        let proposed = propose_fixed(Scaled::new(amax, amax_exponent)).ok_or(gs_status::GS_ERROR_SCALE)?;
        // SAFETY: promised by the caller.
        unsafe { write(exponent, proposed) }
    })
}
