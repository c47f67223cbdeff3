//! Parser and formatter of loss-scale schedules, with a name for every setting of `core`.

use super::text::{Options, Text};
use gradscale_core::{
    loss_scale::{
        Bounds, Chainer, Delayed, DelayedConfig, Dynamic, DynamicConfig, Fixed, Hysteresis, LogMax, LogMaxConfig,
        LossScale, RisingFloor, ScheduleError,
    },
    scale::exponent_of,
};
use std::{fmt, str::FromStr};

/// Parses a schedule; `None` if there is none of that name.
pub(super) fn parse(name: &str, mut options: Options<'_>) -> Result<Option<LossScale>, String> {
    let schedule = match (name, options.first) {
        ("fp16", None) => {
            options.end("fp16", "wgrad")?;
            LossScale::None
        }
        ("fixed", Some(scale)) => {
            options.end("fixed", "wgrad")?;
            fixed(scale)?
        }
        ("fixed", None) => return Err("say which scale: fixed:128".to_owned()),
        ("dynamic", None) => LossScale::Dynamic(dynamic(&mut options)?),
        ("dynamic", Some(interval)) => {
            let wrong = || format!("dynamic:N grows by 2^(1/N) each step, N a whole number from 1, not {interval}");
            let interval = interval.parse().map_err(|_| wrong())?;
            let bounds = bounds(&mut options, Bounds::default())?;
            options.end("dynamic:N", "min, max, wgrad; dynamic:interval=N has more")?;
            LossScale::Chainer(Chainer::new(interval, bounds).map_err(words)?)
        }
        ("logmax", None) => LossScale::LogMax(log_max(&mut options)?),
        ("delayed", None) => LossScale::Delayed(delayed(&mut options)?),
        _ => return Ok(None),
    };
    Ok(Some(schedule))
}

fn fixed(text: &str) -> Result<LossScale, String> {
    match (text.parse::<Scale>(), text.parse()) {
        (Ok(Scale(exponent)), _) => match Fixed::new(exponent) {
            Some(fixed) => Ok(LossScale::Fixed(fixed)),
            None => Err(ScheduleError::Scale(2f64.powi(exponent)).to_string()),
        },
        (Err(()), Ok(number)) => LossScale::fixed(number).map_err(words),
        (Err(()), Err(_)) => Err(format!("a loss scale is {SCALE}, not {text}")),
    }
}

fn dynamic(options: &mut Options<'_>) -> Result<Dynamic, String> {
    let usual = DynamicConfig::default();
    let config = DynamicConfig {
        start: exponent(options, "init")?.unwrap_or(usual.start),
        growth: exponent(options, "growth")?.unwrap_or(usual.growth),
        backoff: exponent(options, "backoff")?.unwrap_or(usual.backoff),
        interval: interval(options)?.unwrap_or(usual.interval),
        bounds: bounds(options, usual.bounds)?,
        hysteresis: options.take("hysteresis").map(hysteresis).transpose()?.unwrap_or(usual.hysteresis),
        tolerance_ppm: options.take("tolerance").map(tolerance).transpose()?.unwrap_or(usual.tolerance_ppm),
        floor: options.take("floor").map(floor).transpose()?.unwrap_or(usual.floor),
    };
    options.end("dynamic", "init, interval, growth, backoff, min, max, hysteresis, tolerance, floor, wgrad")?;
    Dynamic::new(config).map_err(words)
}

/// Parses the number of finite steps before a dynamic scale grows: a number, or a fraction of the training.
fn interval(options: &mut Options<'_>) -> Result<Option<u32>, String> {
    let Some(text) = options.take("interval") else { return Ok(None) };
    let wrong = || format!("interval is a whole number of steps from 1, or steps/N, not {text}");
    let Some(parts) = text.strip_prefix("steps") else { return text.parse().map(Some).map_err(|_| wrong()) };
    let parts = parts.strip_prefix('/').and_then(|parts| parts.parse::<u64>().ok()).filter(|parts| *parts > 0);
    let parts = parts.ok_or_else(wrong)?;
    let steps = options
        .steps
        .ok_or_else(|| format!("interval={text} needs the number of training steps (Method::for_steps)"))?;
    Ok(Some(u32::try_from(steps / parts).unwrap_or(u32::MAX).max(1)))
}

fn log_max(options: &mut Options<'_>) -> Result<LogMax, String> {
    const DECAY: &str = "a share from 0 to below 1";
    let usual = LogMaxConfig::default();
    let config = LogMaxConfig {
        mean_decay: options.read("mean", DECAY)?.unwrap_or(usual.mean_decay),
        spread_decay: options.read("spread", DECAY)?.unwrap_or(usual.spread_decay),
        quantile: options.read("quantile", "a number from 0 to 1000")?.unwrap_or(usual.quantile),
        ceiling: exponent(options, "ceiling")?.unwrap_or(usual.ceiling),
        bounds: bounds(options, usual.bounds)?,
    };
    options.end("logmax", "mean, spread, quantile, ceiling, min, max, wgrad")?;
    LogMax::new(config).map_err(words)
}

fn delayed(options: &mut Options<'_>) -> Result<Delayed, String> {
    let usual = DelayedConfig::default();
    let config = DelayedConfig {
        history: options.read("history", "a whole number of steps")?.unwrap_or(usual.history),
        margin: options.read("margin", "a whole number of binades")?.unwrap_or(usual.margin),
        bounds: bounds(options, usual.bounds)?,
    };
    options.end("delayed", "history, margin, min, max, wgrad")?;
    Delayed::new(config).map_err(words)
}

fn bounds(options: &mut Options<'_>, usual: Bounds) -> Result<Bounds, String> {
    let least = exponent(options, "min")?.unwrap_or(usual.least());
    Bounds::new(least, exponent(options, "max")?.unwrap_or(usual.most())).map_err(words)
}

fn exponent(options: &mut Options<'_>, key: &str) -> Result<Option<i32>, String> {
    Ok(options.read(key, SCALE)?.map(|Scale(exponent)| exponent))
}

fn hysteresis(text: &str) -> Result<Hysteresis, String> {
    let wrong = || format!("hysteresis is none, cumulative:N or consecutive:N overflows, not {text}");
    if text == "none" {
        return Ok(Hysteresis::None);
    }
    let (kind, count) = text.split_once(':').ok_or_else(wrong)?;
    let count = count.parse().map_err(|_| wrong())?;
    match kind {
        "cumulative" => Ok(Hysteresis::Cumulative(count)),
        "consecutive" => Ok(Hysteresis::Consecutive(count)),
        _ => Err(wrong()),
    }
}

fn tolerance(text: &str) -> Result<u32, String> {
    let share = text.parse().ok().filter(|share: &f64| (0.0..1.0).contains(share)).map(|share| (share * 1e6).round());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 10^6")]
    let ppm = share.map(|ppm| ppm as u32).filter(|ppm| *ppm < 1_000_000);
    ppm.ok_or_else(|| format!("tolerance is a share of steps from 0 to below 1, in millionths, not {text}"))
}

fn floor(text: &str) -> Result<RisingFloor, String> {
    let wrong = || format!("floor is STEP:SCALE, more of these behind a slash (40000:2^13/150000:2^15), not {text}");
    let pair = |part: &str| {
        let (step, scale) = part.split_once(':').ok_or_else(wrong)?;
        let Scale(exponent) = scale.trim().parse().map_err(|()| wrong())?;
        Ok((step.trim().parse().map_err(|_| wrong())?, exponent))
    };
    let steps = text.split('/').map(pair).collect::<Result<Vec<(u64, i32)>, String>>()?;
    RisingFloor::new(&steps).map_err(words)
}

fn words(error: ScheduleError) -> String {
    error.to_string()
}

pub(super) fn text(schedule: &LossScale) -> Text {
    match schedule {
        // Gradient scaling applies no scale to the loss.
        LossScale::None | LossScale::Gradient => Text("fp16".to_owned()),
        LossScale::Fixed(fixed) => Text(format!("fixed:{}", Scale(fixed.exponent()))),
        LossScale::Dynamic(dynamic) => dynamic_text(dynamic.config()),
        LossScale::LogMax(log_max) => {
            let (config, usual) = (log_max.config(), LogMaxConfig::default());
            let mut text = Text("logmax".to_owned());
            text.unless(usual.mean_decay, "mean", config.mean_decay, config.mean_decay);
            text.unless(usual.spread_decay, "spread", config.spread_decay, config.spread_decay);
            text.unless(usual.quantile, "quantile", config.quantile, config.quantile);
            text.unless(usual.ceiling, "ceiling", config.ceiling, Scale(config.ceiling));
            bounds_text(&mut text, config.bounds);
            text
        }
        LossScale::Chainer(chainer) => {
            let mut text = Text(format!("dynamic:{}", chainer.interval()));
            bounds_text(&mut text, chainer.bounds());
            text
        }
        LossScale::Delayed(delayed) => {
            let (config, usual) = (delayed.config(), DelayedConfig::default());
            let mut text = Text("delayed".to_owned());
            text.unless(usual.history, "history", config.history, config.history);
            text.unless(usual.margin, "margin", config.margin, config.margin);
            bounds_text(&mut text, config.bounds);
            text
        }
    }
}

fn dynamic_text(config: &DynamicConfig) -> Text {
    let usual = DynamicConfig::default();
    let mut text = Text("dynamic".to_owned());
    text.unless(usual.start, "init", config.start, Scale(config.start));
    text.unless(usual.interval, "interval", config.interval, config.interval);
    text.unless(usual.growth, "growth", config.growth, Scale(config.growth));
    text.unless(usual.backoff, "backoff", config.backoff, Scale(config.backoff));
    bounds_text(&mut text, config.bounds);
    match config.hysteresis {
        Hysteresis::None => {}
        Hysteresis::Cumulative(count) => text.push("hysteresis", format_args!("cumulative:{count}")),
        Hysteresis::Consecutive(count) => text.push("hysteresis", format_args!("consecutive:{count}")),
    }
    text.unless(usual.tolerance_ppm, "tolerance", config.tolerance_ppm, f64::from(config.tolerance_ppm) / 1e6);
    if !config.floor.steps().is_empty() {
        let steps = config.floor.steps().iter().map(|&(step, exponent)| format!("{step}:{}", Scale(exponent)));
        text.push("floor", steps.collect::<Vec<_>>().join("/"));
    }
    text
}

fn bounds_text(text: &mut Text, bounds: Bounds) {
    let usual = Bounds::default();
    text.unless(usual.least(), "min", bounds.least(), Scale(bounds.least()));
    text.unless(usual.most(), "max", bounds.most(), Scale(bounds.most()));
}

/// Expected format of a [`Scale`], for error messages.
const SCALE: &str = "a power of two, as 65536, 0.5 or 2^16";

/// Power of two, stored as its exponent and written `65536`, `0.5` or `2^16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scale(i32);

impl FromStr for Scale {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let power = text.strip_prefix("2^").map(str::parse::<i32>);
        let exponent = match power {
            // The limit exceeds the range of every schedule, and 2^exponent stays finite.
            Some(exponent) => exponent.ok().filter(|exponent| exponent.abs() < 1000),
            None => text.parse().ok().and_then(|number| exponent_of(number).ok()),
        };
        exponent.map(Self).ok_or(())
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // Powers of two that are easily recognised.
            small @ 0..=9 => write!(f, "{}", 1 << small),
            exponent => write!(f, "2^{exponent}"),
        }
    }
}

#[cfg(test)]
mod tests;
