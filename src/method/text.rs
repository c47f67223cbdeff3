//! Methods as people write them, and back.

use super::{Method, Scaling, baselines, gradient, precision, schedule};
use gradscale_core::{amp::Precision, loss_scale::LossScale};
use std::{fmt, str::FromStr};

/// Methods as people write them.
pub const METHODS: &str = "fp32, fp16, fixed:SCALE, dynamic, dynamic:INTERVAL, logmax, delayed, amax[:history=N], gs[:exact|paper|paper-literal|authors], and after each but fp32 [,OPTION=VALUE …]; by name torch, torch-f32, torch-20th, torch-floor, apex, deepspeed, megatron, zhao";

/// Why a text names no method.
#[derive(Clone, PartialEq)]
pub struct MethodError {
    text: String,
    cause: String,
}

impl fmt::Display for MethodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "method {}: {}", self.text, self.cause)
    }
}

/// The sentence of [`fmt::Display`].
impl fmt::Debug for MethodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for MethodError {}

impl FromStr for Method {
    type Err = MethodError;

    /// `fp32`, `fp16`, `fixed:128`, `dynamic` (×2 after 2000 clean steps), `dynamic:10` (the paper's baseline, which
    /// grows by 2^(1/10) each step), `logmax`, `delayed`, `gs`, `gs:paper` …
    ///
    /// [`super::BASELINES`] are loss scales by the names of those who have them: `torch`, `megatron`, `torch:least=2^0`.
    ///
    /// Options of `dynamic`, scales being powers of two written as 65536 or 2^16: `init` (2^16), `interval` (2000 clean
    /// steps, or `steps/20` for [`Method::for_steps`]), `growth` (2) and `backoff` (0.5), `least` (2^-24) and `most` (2^30), `hysteresis` (`cumulative:N` or
    /// `consecutive:N` overflows before it is lowered), `tolerance` (share of overflows below which it is not) and
    /// `floor` (a minimum that rises: `40000:2^13/150000:2^15` for 2^13 from step 40 000 and 2^15 from step 150 000).
    /// `dynamic:10` has `least` and `most`, `logmax` these and `mean`, `spread` (decays), `quantile` and `ceiling`
    /// (2^16), `delayed` `history` (16 steps back, at most 16) and `margin` (binades left free). All of these, `fixed`
    /// and `fp16` have `wgrad=half`: see [`Method::weight_gradients`].
    ///
    /// `amax` is a scale for every gradient from its largest magnitude, as FP8 libraries have them: the tensor's own
    /// (current scaling), or with `history=16` the largest of the last 16 steps (delayed scaling); `margin` leaves binades
    /// free, and `calls` is that of `gs`.
    ///
    /// Options of `gs`: `gamma`, `interval`, `calls`, and for the exact rule `window`, `room`, `history`, `outliers`.
    /// `calls=each` gives each call of a shared layer an exponent of its own: see [`super::SharedLayers`].
    ///
    /// `history=ring`, the default, remembers the last 16 rows of each site and repeats a batch that does not fit;
    /// `room` is then the most room. `history=0` decides from each row alone and skips such a batch
    /// (`gs:exact,room=6,history=0` was the default before); `history=least`, or 1, also looks back 16 steps for the
    /// largest value. `outliers=24` skips batches, finite as they are, that lie more than 24 exponents above the last.
    ///
    /// Options of all but `fp32`: `amp=O2` for a level; `allow`, `deny`, `inside` and `infer` put operators on another
    /// list (`deny=gelu+silu`); `f32` and `half` name layers that run in that precision (`f32=net.encoder+net.head`; `%2C`
    /// is a comma in a name, and so for others that mean something here).
    fn from_str(text: &str) -> Result<Self, MethodError> {
        parse(text.trim(), None).map_err(|cause| MethodError { text: text.trim().to_owned(), cause })
    }
}

impl Method {
    /// Reads a method as [`str::parse`] does, for a training of so many steps: `interval=steps/20` is then a twentieth of
    /// these, and at least one.
    ///
    /// A dynamic scale with the usual interval of 2000 steps never grows in a shorter training. An interval that follows
    /// the length of the run shows in minutes what the usual one does in days.
    ///
    /// # Errors
    /// A text that names no method.
    ///
    /// ```
    /// use gradscale::Method;
    /// assert_eq!(Method::for_steps("dynamic:interval=steps/20", 400)?.to_string(), "dynamic:interval=20");
    /// # Ok::<(), gradscale::MethodError>(())
    /// ```
    pub fn for_steps(text: &str, steps: u64) -> Result<Self, MethodError> {
        parse(text.trim(), Some(steps)).map_err(|cause| MethodError { text: text.trim().to_owned(), cause })
    }
}

/// The shortest text that is read as this method, with every number that is not the usual one: what setters, presets and
/// text can make is read as the same again. A schedule is named as it starts.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = match &self.scaling {
            Scaling::Loss(LossScale::None) if *self == Self::fp32() => return f.write_str("fp32"),
            Scaling::Loss(schedule) => schedule::text(schedule),
            Scaling::Gradient(gradient) => gradient::text(gradient),
        };
        if self.weight_gradients == Precision::Half {
            text.push("wgrad", "half");
        }
        precision::text(&mut text, &self.amp, &self.layers);
        f.write_str(&text.0)
    }
}

fn parse(text: &str, steps: Option<u64>) -> Result<Method, String> {
    let expanded = baselines::expand(text);
    let text = expanded.as_deref().unwrap_or(text);
    let (name, mut options) = match text.find([':', ',']) {
        Some(end) => (&text[..end], Options::parse(&text[end + 1..])?),
        None => (text, Options::default()),
    };
    options.steps = steps;
    if name == "fp32" {
        return if options.is_empty() { Ok(Method::fp32()) } else { Err("all in f32 has no options".to_owned()) };
    }
    let (amp, layers) = precision::parse(&mut options)?;
    let method = match name {
        "gs" => Method::gradient_scaling(gradient::parse(options)?),
        "amax" => Method::gradient_scaling(gradient::parse_amax(options)?),
        _ => {
            let weight_gradients = match options.take("wgrad") {
                None | Some("f32") => Precision::Single,
                Some("half") => Precision::Half,
                Some(other) => return Err(format!("wgrad is half or f32, not {other}")),
            };
            let schedule = schedule::parse(name, options)?.ok_or_else(|| format!("unknown; there are {METHODS}"))?;
            Method::loss_scale(schedule).with_weight_gradients(weight_gradients)
        }
    };
    Ok(method.with_amp(amp).with_layers(layers))
}

/// Options of precision.
const EVERYWHERE: &str = "and amp, f32, half, allow, deny, inside, infer for every method";

/// What stands behind a method's name: a word, then options.
#[derive(Debug, Default)]
pub(super) struct Options<'a> {
    /// The word without a key, which comes first.
    pub first: Option<&'a str>,
    /// Steps of the training, where they are known.
    pub steps: Option<u64>,
    rest: Vec<(&'a str, &'a str)>,
}

impl<'a> Options<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let mut options = Self::default();
        for (at, part) in text.split(',').map(str::trim).filter(|part| !part.is_empty()).enumerate() {
            match part.split_once('=') {
                Some((key, value)) => {
                    if options.rest.iter().any(|(known, _)| *known == key.trim()) {
                        return Err(format!("{} stands there twice", key.trim()));
                    }
                    options.rest.push((key.trim(), value.trim()));
                }
                None if at == 0 => options.first = Some(part),
                None => return Err(format!("{part} is no option=value")),
            }
        }
        Ok(options)
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.rest.is_empty()
    }

    /// The value of an option, which is then done with.
    pub fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.rest.iter().position(|(known, _)| *known == key)?;
        Some(self.rest.remove(at).1)
    }

    /// The value of an option in the type that it must have; `what` says which values there are.
    pub fn read<T: FromStr>(&mut self, key: &str, what: &str) -> Result<Option<T>, String> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| format!("{key} is {what}, not {value}"))
    }

    /// That nothing is left; `name` has the options `known`.
    pub fn end(&self, name: &str, known: &str) -> Result<(), String> {
        match self.rest.first() {
            Some((key, _)) => Err(format!("{name} has no option {key}; there are {known}; {EVERYWHERE}")),
            None => Ok(()),
        }
    }
}

/// A method's text as it grows.
pub(super) struct Text(pub String);

impl Text {
    pub fn push(&mut self, key: &str, value: impl fmt::Display) {
        let separator = if self.0.contains(':') { ',' } else { ':' };
        self.0.push_str(&format!("{separator}{key}={value}"));
    }

    /// Unless it is the usual one.
    pub fn unless<T: PartialEq>(&mut self, usual: T, key: &str, value: T, shown: impl fmt::Display) {
        if value != usual {
            self.push(key, shown);
        }
    }
}
