//! Loss-scale schedules as text and in checkpoints, with a name for every setting of `core`.

mod fields;

use super::options::{Options, Text};
use crate::configuration::Configuration;
use fields::{SCALE, words};
use gradscale_core::{
    loss_scale::{Fixed, LossScale, ScheduleError},
    scale::exponent_of,
};
use std::{fmt, str::FromStr};

/// Parses a loss-scale schedule from a method's text; `None` if there is none of that name.
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
        ("fixed", None) => return Err("fixed needs a scale, for example fixed:128".to_owned()),
        ("dynamic", None) => fields::parse_dynamic(&mut options)?,
        ("dynamic", Some(interval)) => {
            let wrong = || {
                format!("dynamic:N needs a whole number N from 1, not {interval}; the scale grows by 2^(1/N) each step")
            };
            fields::parse_chainer(interval.parse().map_err(|_| wrong())?, &mut options)?
        }
        ("logmax", None) => fields::parse_log_max(&mut options)?,
        ("delayed", None) => fields::parse_delayed(&mut options)?,
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
        (Err(()), Err(_)) => Err(format!("a loss scale must be {SCALE}, not {text}")),
    }
}

pub(super) fn text(schedule: &LossScale) -> Text {
    let mut text = Text(match schedule {
        // Gradient scaling applies no scale to the loss.
        LossScale::None | LossScale::Gradient => "fp16".to_owned(),
        LossScale::Fixed(fixed) => format!("fixed:{}", Scale(fixed.exponent())),
        LossScale::Dynamic(_) => "dynamic".to_owned(),
        LossScale::LogMax(_) => "logmax".to_owned(),
        LossScale::Chainer(chainer) => format!("dynamic:{}", chainer.interval()),
        LossScale::Delayed(_) => "delayed".to_owned(),
    });
    fields::write(&mut text, schedule);
    text
}

/// Saves a loss-scale schedule in a checkpoint's settings: its kind and all of its numbers.
pub(super) fn save(all: &mut Configuration, schedule: &LossScale) {
    let kind = match schedule {
        LossScale::None | LossScale::Gradient => "none",
        LossScale::Fixed(fixed) => {
            all.set("scale", format!("2^{}", fixed.exponent()));
            "fixed"
        }
        LossScale::Dynamic(_) => "dynamic",
        LossScale::LogMax(_) => "logmax",
        LossScale::Chainer(_) => "dynamic:N",
        LossScale::Delayed(_) => "delayed",
    };
    fields::save(all, schedule);
    all.set("scaling", kind);
}

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
