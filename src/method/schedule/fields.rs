//! Fields of loss-scale schedules: one table each, which serves a method's text, checkpoints and their comparison.
//!
//! To add a field to a schedule, add a row here and its number in `core/src/loss_scale`.

use super::Scale;
use crate::{
    configuration::Configuration,
    method::options::{Options, Text},
};
use gradscale_core::loss_scale::{
    Bounds, Chainer, Delayed, DelayedConfig, Dynamic, DynamicConfig, Hysteresis, LogMax, LogMaxConfig, LossScale,
    RisingFloor, ScheduleError,
};
use serde_json::Value;

/// Expected format of a [`Scale`], for error messages.
pub(super) const SCALE: &str = "a power of two, as 65536, 0.5 or 2^16";
const DECAY: &str = "a share from 0 to below 1";

/// Draft of a loss-scale schedule: numbers that were not checked yet. Limits are apart, because they are valid only as
/// a pair.
pub(super) struct Draft<C> {
    numbers: C,
    min: i32,
    max: i32,
}

impl<C> Draft<C> {
    fn new(numbers: C, bounds: Bounds) -> Self {
        Self { numbers, min: bounds.least(), max: bounds.most() }
    }

    fn bounds(&self) -> Result<Bounds, ScheduleError> {
        Bounds::new(self.min, self.max)
    }
}

/// Field of a loss-scale schedule with the settings `C`: its names, and how it is read and written.
struct Field<C: 'static> {
    /// Name of the field in a method's text.
    name: &'static str,
    /// Name of the field in checkpoints, which never changes.
    saved_name: &'static str,
    read: fn(&mut Draft<C>, FieldText<'_>) -> Result<(), String>,
    /// Text of the value. A field whose text is that of the default is left out.
    write: fn(&Draft<C>) -> String,
    save: fn(&Draft<C>) -> Value,
}

/// Text of a value, as it follows the name of a field.
struct FieldText<'a> {
    name: &'static str,
    text: &'a str,
    /// Number of steps of the training, if it is known.
    steps: Option<u64>,
}

impl FieldText<'_> {
    /// Parses the field's value; `what` describes valid values in the error.
    fn parse<T: std::str::FromStr>(&self, what: &str) -> Result<T, String> {
        self.text.parse().map_err(|_| format!("{} must be {what}, not {}", self.name, self.text))
    }

    fn exponent(&self) -> Result<i32, String> {
        self.parse::<Scale>(SCALE).map(|Scale(exponent)| exponent)
    }
}

/// Fields of the dynamic loss scale (`dynamic`), in the order of its text.
const DYNAMIC: [Field<DynamicConfig>; 9] = [
    Field {
        name: "init",
        saved_name: "init",
        read: |draft, text| text.exponent().map(|exponent| draft.numbers.start = exponent),
        write: |draft| Scale(draft.numbers.start).to_string(),
        save: |draft| draft.numbers.start.into(),
    },
    Field {
        name: "interval",
        saved_name: "interval",
        read: |draft, text| interval(&text).map(|steps| draft.numbers.interval = steps),
        write: |draft| draft.numbers.interval.to_string(),
        save: |draft| draft.numbers.interval.into(),
    },
    Field {
        name: "growth",
        saved_name: "growth",
        read: |draft, text| text.exponent().map(|exponent| draft.numbers.growth = exponent),
        write: |draft| Scale(draft.numbers.growth).to_string(),
        save: |draft| draft.numbers.growth.into(),
    },
    Field {
        name: "backoff",
        saved_name: "backoff",
        read: |draft, text| text.exponent().map(|exponent| draft.numbers.backoff = exponent),
        write: |draft| Scale(draft.numbers.backoff).to_string(),
        save: |draft| draft.numbers.backoff.into(),
    },
    min_field(),
    max_field(),
    Field {
        name: "hysteresis",
        saved_name: "hysteresis",
        read: |draft, text| hysteresis(text.text).map(|hysteresis| draft.numbers.hysteresis = hysteresis),
        write: |draft| hysteresis_text(draft.numbers.hysteresis),
        save: |draft| hysteresis_text(draft.numbers.hysteresis).into(),
    },
    Field {
        name: "tolerance",
        saved_name: "tolerance",
        read: |draft, text| tolerance(text.text).map(|ppm| draft.numbers.tolerance_ppm = ppm),
        write: |draft| (f64::from(draft.numbers.tolerance_ppm) / 1e6).to_string(),
        save: |draft| (f64::from(draft.numbers.tolerance_ppm) / 1e6).into(),
    },
    Field {
        name: "floor",
        saved_name: "floor",
        read: |draft, text| floor(text.text).map(|floor| draft.numbers.floor = floor),
        write: |draft| {
            let steps = draft.numbers.floor.steps().iter();
            steps.map(|&(step, exponent)| format!("{step}:{}", Scale(exponent))).collect::<Vec<_>>().join("/")
        },
        save: |draft| {
            let steps = draft.numbers.floor.steps().iter();
            steps.map(|(step, exponent)| format!("{step}:2^{exponent}")).collect::<Vec<_>>().into()
        },
    },
];

/// Fields of the LogMax loss scale (`logmax`), in the order of its text.
const LOG_MAX: [Field<LogMaxConfig>; 6] = [
    Field {
        name: "mean",
        saved_name: "mean",
        read: |draft, text| text.parse(DECAY).map(|decay| draft.numbers.mean_decay = decay),
        write: |draft| draft.numbers.mean_decay.to_string(),
        save: |draft| draft.numbers.mean_decay.into(),
    },
    Field {
        name: "spread",
        saved_name: "spread",
        read: |draft, text| text.parse(DECAY).map(|decay| draft.numbers.spread_decay = decay),
        write: |draft| draft.numbers.spread_decay.to_string(),
        save: |draft| draft.numbers.spread_decay.into(),
    },
    Field {
        name: "quantile",
        saved_name: "quantile",
        read: |draft, text| text.parse("a number from 0 to 1000").map(|quantile| draft.numbers.quantile = quantile),
        write: |draft| draft.numbers.quantile.to_string(),
        save: |draft| draft.numbers.quantile.into(),
    },
    Field {
        name: "ceiling",
        saved_name: "ceiling",
        read: |draft, text| text.exponent().map(|exponent| draft.numbers.ceiling = exponent),
        write: |draft| Scale(draft.numbers.ceiling).to_string(),
        save: |draft| draft.numbers.ceiling.into(),
    },
    min_field(),
    max_field(),
];

/// Fields of the delayed loss scale (`delayed`), in the order of its text.
const DELAYED: [Field<DelayedConfig>; 4] = [
    Field {
        name: "history",
        saved_name: "history",
        read: |draft, text| text.parse("a whole number of steps").map(|steps| draft.numbers.history = steps),
        write: |draft| draft.numbers.history.to_string(),
        save: |draft| draft.numbers.history.into(),
    },
    Field {
        name: "margin",
        saved_name: "margin",
        read: |draft, text| text.parse("a whole number of binades").map(|binades| draft.numbers.margin = binades),
        write: |draft| draft.numbers.margin.to_string(),
        save: |draft| draft.numbers.margin.into(),
    },
    min_field(),
    max_field(),
];

/// Fields of `dynamic:N`. N itself precedes the options, and is no field.
const CHAINER: [Field<u32>; 2] = [min_field(), max_field()];

const fn min_field<C>() -> Field<C> {
    Field {
        name: "min",
        saved_name: "least",
        read: |draft, text| text.exponent().map(|exponent| draft.min = exponent),
        write: |draft| Scale(draft.min).to_string(),
        save: |draft| draft.min.into(),
    }
}

const fn max_field<C>() -> Field<C> {
    Field {
        name: "max",
        saved_name: "most",
        read: |draft, text| text.exponent().map(|exponent| draft.max = exponent),
        write: |draft| Scale(draft.max).to_string(),
        save: |draft| draft.max.into(),
    }
}

/// Parses a dynamic loss scale from the options of the method `dynamic`.
pub(super) fn parse_dynamic(options: &mut Options<'_>) -> Result<LossScale, String> {
    let usual = DynamicConfig::default();
    let mut draft = Draft::new(usual.clone(), usual.bounds);
    read_fields(&DYNAMIC, &mut draft, options, "dynamic", "")?;
    let bounds = draft.bounds().map_err(words)?;
    Dynamic::new(DynamicConfig { bounds, ..draft.numbers }).map(LossScale::Dynamic).map_err(words)
}

/// Parses Chainer's loss scale from the options of the method `dynamic:N`.
pub(super) fn parse_chainer(interval: u32, options: &mut Options<'_>) -> Result<LossScale, String> {
    let mut draft = Draft::new(interval, Bounds::default());
    read_fields(&CHAINER, &mut draft, options, "dynamic:N", "; dynamic:interval=N has more")?;
    let bounds = draft.bounds().map_err(words)?;
    Chainer::new(interval, bounds).map(LossScale::Chainer).map_err(words)
}

/// Parses a LogMax loss scale from the options of the method `logmax`.
pub(super) fn parse_log_max(options: &mut Options<'_>) -> Result<LossScale, String> {
    let usual = LogMaxConfig::default();
    let mut draft = Draft::new(usual, usual.bounds);
    read_fields(&LOG_MAX, &mut draft, options, "logmax", "")?;
    let bounds = draft.bounds().map_err(words)?;
    LogMax::new(LogMaxConfig { bounds, ..draft.numbers }).map(LossScale::LogMax).map_err(words)
}

/// Parses a delayed loss scale from the options of the method `delayed`.
pub(super) fn parse_delayed(options: &mut Options<'_>) -> Result<LossScale, String> {
    let usual = DelayedConfig::default();
    let mut draft = Draft::new(usual, usual.bounds);
    read_fields(&DELAYED, &mut draft, options, "delayed", "")?;
    let bounds = draft.bounds().map_err(words)?;
    Delayed::new(DelayedConfig { bounds, ..draft.numbers }).map(LossScale::Delayed).map_err(words)
}

/// Reads the fields of a table, and rejects all other options. `more` is appended to the list of options in the error.
fn read_fields<C>(
    fields: &[Field<C>], draft: &mut Draft<C>, options: &mut Options<'_>, schedule: &str, more: &str,
) -> Result<(), String> {
    for &Field { name, read, .. } in fields {
        if let Some(text) = options.take(name) {
            read(draft, FieldText { name, text, steps: options.steps })?;
        }
    }
    let names = fields.iter().map(|field| field.name).chain(["wgrad"]).collect::<Vec<_>>().join(", ");
    options.end(schedule, &format!("{names}{more}"))
}

/// Writes the fields of a loss-scale schedule that differ from their defaults to a method's text.
pub(super) fn write(text: &mut Text, schedule: &LossScale) {
    match schedule {
        LossScale::None | LossScale::Gradient | LossScale::Fixed(_) => {}
        LossScale::Dynamic(dynamic) => {
            write_fields(text, &DYNAMIC, &dynamic_draft(dynamic), &dynamic_draft(&Dynamic::default()))
        }
        LossScale::LogMax(log_max) => {
            let usual = LogMaxConfig::default();
            write_fields(text, &LOG_MAX, &log_max_draft(log_max), &Draft::new(usual, usual.bounds));
        }
        LossScale::Chainer(chainer) => {
            write_fields(text, &CHAINER, &chainer_draft(chainer), &Draft::new(chainer.interval(), Bounds::default()));
        }
        LossScale::Delayed(delayed) => {
            let usual = DelayedConfig::default();
            write_fields(text, &DELAYED, &delayed_draft(delayed), &Draft::new(usual, usual.bounds));
        }
    }
}

fn write_fields<C>(text: &mut Text, fields: &[Field<C>], draft: &Draft<C>, usual: &Draft<C>) {
    for field in fields {
        let value = (field.write)(draft);
        if value != (field.write)(usual) {
            text.push(field.name, value);
        }
    }
}

/// Saves all fields of a loss-scale schedule in a checkpoint's settings, by which checkpoints are compared.
pub(super) fn save(all: &mut Configuration, schedule: &LossScale) {
    match schedule {
        LossScale::None | LossScale::Gradient | LossScale::Fixed(_) => {}
        LossScale::Dynamic(dynamic) => save_fields(all, &DYNAMIC, &dynamic_draft(dynamic)),
        LossScale::LogMax(log_max) => save_fields(all, &LOG_MAX, &log_max_draft(log_max)),
        LossScale::Chainer(chainer) => {
            all.set("interval", chainer.interval());
            save_fields(all, &CHAINER, &chainer_draft(chainer));
        }
        LossScale::Delayed(delayed) => save_fields(all, &DELAYED, &delayed_draft(delayed)),
    }
}

fn save_fields<C>(all: &mut Configuration, fields: &[Field<C>], draft: &Draft<C>) {
    fields.iter().for_each(|field| all.set(field.saved_name, (field.save)(draft)));
}

fn dynamic_draft(dynamic: &Dynamic) -> Draft<DynamicConfig> {
    Draft::new(dynamic.config().clone(), dynamic.config().bounds)
}

fn log_max_draft(log_max: &LogMax) -> Draft<LogMaxConfig> {
    Draft::new(*log_max.config(), log_max.config().bounds)
}

fn chainer_draft(chainer: &Chainer) -> Draft<u32> {
    Draft::new(chainer.interval(), chainer.bounds())
}

fn delayed_draft(delayed: &Delayed) -> Draft<DelayedConfig> {
    Draft::new(*delayed.config(), delayed.config().bounds)
}

/// Parses the number of finite steps before a dynamic scale grows: a number, or a fraction of the training.
fn interval(value: &FieldText<'_>) -> Result<u32, String> {
    let text = value.text;
    let wrong = || format!("interval must be a whole number of steps from 1, or steps/N, not {text}");
    let Some(parts) = text.strip_prefix("steps") else { return text.parse().map_err(|_| wrong()) };
    let parts = parts.strip_prefix('/').and_then(|parts| parts.parse::<u64>().ok()).filter(|parts| *parts > 0);
    let parts = parts.ok_or_else(wrong)?;
    let steps =
        value.steps.ok_or_else(|| format!("interval={text} needs the number of training steps (Method::for_steps)"))?;
    Ok(u32::try_from(steps / parts).unwrap_or(u32::MAX).max(1))
}

fn hysteresis(text: &str) -> Result<Hysteresis, String> {
    let wrong = || format!("hysteresis must be none, cumulative:N or consecutive:N overflows, not {text}");
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

fn hysteresis_text(hysteresis: Hysteresis) -> String {
    match hysteresis {
        Hysteresis::None => "none".to_owned(),
        Hysteresis::Cumulative(count) => format!("cumulative:{count}"),
        Hysteresis::Consecutive(count) => format!("consecutive:{count}"),
    }
}

fn tolerance(text: &str) -> Result<u32, String> {
    let share = text.parse().ok().filter(|share: &f64| (0.0..1.0).contains(share)).map(|share| (share * 1e6).round());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 10^6")]
    let ppm = share.map(|ppm| ppm as u32).filter(|ppm| *ppm < 1_000_000);
    ppm.ok_or_else(|| format!("tolerance must be a share of steps from 0 to below 1, in millionths, not {text}"))
}

fn floor(text: &str) -> Result<RisingFloor, String> {
    let wrong = || format!("floor must be STEP:SCALE, separated by slashes (40000:2^13/150000:2^15), not {text}");
    let pair = |part: &str| {
        let (step, scale) = part.split_once(':').ok_or_else(wrong)?;
        let Scale(exponent) = scale.trim().parse().map_err(|()| wrong())?;
        Ok((step.trim().parse().map_err(|_| wrong())?, exponent))
    };
    let steps = text.split('/').map(pair).collect::<Result<Vec<(u64, i32)>, String>>()?;
    RisingFloor::new(&steps).map_err(words)
}

pub(super) fn words(error: ScheduleError) -> String {
    error.to_string()
}
