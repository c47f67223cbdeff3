//! Loss-scale schedules, each over many steps with overflows, saved and restored in between.

use crate::{hash::Hash, inputs};
use core::fmt::{self, Write};
use gradscale_core::{
    loss_scale::{
        Bounds, Chainer, Delayed, DelayedConfig, Dynamic, DynamicConfig, Feedback, Hysteresis, LogMax, LogMaxConfig,
        LossScale, RisingFloor, ScheduleError,
    },
    scaled::Scaled,
};

const STEPS: u32 = 2000;

/// Prints the section about loss-scale schedules: one line for each.
pub fn print(out: &mut impl Write) -> fmt::Result {
    let dynamic = |config| Dynamic::new(config).map(LossScale::Dynamic);
    let fast = || DynamicConfig { interval: 50, ..DynamicConfig::default() };
    schedule(out, "dynamic", dynamic(fast()))?;
    schedule(out, "backoff", dynamic(DynamicConfig { interval: 70, ..DynamicConfig::backoff() }))?;
    for hysteresis in [Hysteresis::Cumulative(2), Hysteresis::Consecutive(3)] {
        schedule(out, "hysteresis", dynamic(DynamicConfig { hysteresis, ..fast() }))?;
    }
    schedule(out, "tolerance", dynamic(DynamicConfig { tolerance_ppm: 50_000, ..fast() }))?;
    let rising = RisingFloor::new(&[(300, 14), (900, 20)]).and_then(|floor| dynamic(DynamicConfig { floor, ..fast() }));
    schedule(out, "rising minimum", rising)?;
    schedule(out, "chainer", Chainer::new(10, Bounds::default()).map(LossScale::Chainer))?;
    schedule(out, "log-normal", LogMax::new(LogMaxConfig::default()).map(LossScale::LogMax))?;
    schedule(out, "delayed", Delayed::new(DelayedConfig::default()).map(LossScale::Delayed))
}

fn schedule(out: &mut impl Write, name: &str, schedule: Result<LossScale, ScheduleError>) -> fmt::Result {
    let Ok(mut schedule) = schedule else { return Err(fmt::Error) };
    let (mut hash, mut least, mut most) = (Hash::new(), schedule.exponent(), schedule.exponent());
    for step in 0..STEPS {
        let r = inputs::random(step);
        // The largest gradient drifts downwards. A value beyond 16 bits is an overflow, and some overflows have other
        // causes.
        let log2 = 2 - (step / 150).cast_signed() + (r & 3).cast_signed();
        let amax = f32::from_bits(((log2 + 127).cast_unsigned() << 23) | r >> 9);
        let found_inf = log2 + schedule.exponent() >= 16 || r.is_multiple_of(97);
        schedule.update(&Feedback { found_inf, amax: Some(Scaled::new(amax, 0)) });
        hash.add(u64::from(schedule.exponent().cast_unsigned()));
        least = least.min(schedule.exponent());
        most = most.max(schedule.exponent());
        if step.is_multiple_of(500) {
            let Ok(restored) = LossScale::from_words(&schedule.to_words()) else { return Err(fmt::Error) };
            schedule = restored;
        }
    }
    writeln!(out, "schedule, {name}: 2^{least} to 2^{most}, {:016x}, at last {:?}", hash.get(), schedule.to_words())
}
