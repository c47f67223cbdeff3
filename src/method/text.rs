//! Parser and formatter of methods.

use super::{Method, Scaling, baselines, block, formats, gradient, options::Options, precision, schedule};
use gradscale_core::{amp::Precision, loss_scale::LossScale};
use std::{fmt, str::FromStr};

/// Overview of the methods and their syntax, for messages.
pub const METHODS: &str = "fp32, fp16, fixed:SCALE, dynamic, dynamic:INTERVAL, logmax, delayed, amax[:history=N], block:format=e4m3[,size=N,scale=up], gs[:exact|paper|paper-literal|authors], and after each but fp32 [,OPTION=VALUE …]; by name torch, torch-f32, torch-20th, torch-floor, apex, deepspeed, megatron, zhao";

/// Reason why a text is not a method: the text and the cause.
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

/// Debug impl of the error, which writes the same sentence as [`fmt::Display`].
impl fmt::Debug for MethodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for MethodError {}

impl FromStr for Method {
    type Err = MethodError;

    /// Parses `fp32`, `fp16`, `fixed:128`, `dynamic` (×2 after 2000 finite steps), `dynamic:10` (the paper's baseline,
    /// which grows by 2^(1/10) each step), `logmax`, `delayed`, `gs`, `gs:paper` …
    ///
    /// [`super::BASELINES`] are loss scales by the names of the libraries that use them: `torch`, `megatron`,
    /// `torch:min=2^0`.
    ///
    /// Options of `dynamic`:
    ///
    /// - `init` (default 2^16). Scales are powers of two, written as 65536 or 2^16.
    /// - `interval`: 2000 finite steps, or `steps/20` for [`Method::for_steps`].
    /// - `growth` (2) and `backoff` (0.5).
    /// - `min` (2^-24) and `max` (2^30).
    /// - `hysteresis`: `cumulative:N` or `consecutive:N` overflows before the scale is lowered.
    /// - `tolerance`: fraction of overflows below which the scale is not lowered.
    /// - `floor`: a minimum that rises. For example, `40000:2^13/150000:2^15` is 2^13 from step 40 000 and 2^15 from
    ///   step 150 000.
    ///
    /// `dynamic:10` has `min` and `max`. `logmax` has these, and `mean`, `spread` (decays), `quantile` and `ceiling`
    /// (2^16). `delayed` has `history` (16 steps, the maximum) and `margin` (binades left free). All of these, `fixed`
    /// and `fp16` have `wgrad=half`: see [`Method::weight_gradients`].
    ///
    /// `amax` is a scale for every gradient from its largest magnitude, as in FP8 libraries. By default that of the
    /// tensor itself decides (current scaling); with `history=16` the largest of the last 16 steps does (delayed
    /// scaling). `margin` leaves binades free, and `calls` is that of `gs`.
    ///
    /// `block` stores in 8 bits, with a power of two for each block of `size` values along the last axis (default 32, as in
    /// the MX formats): `block:format=e4m3,size=128`. See [`super::BlockScaling`].
    ///
    /// Options of `gs`: `gamma`, `interval`, `calls`, and for the exact rule `window`, `room`, `history`, `outliers`,
    /// `forward`, `format`, `products`.
    /// `calls=each` gives each call of a shared layer its own exponent: see [`super::SharedLayers`].
    ///
    /// `history=ring`, the default, remembers the last 16 rows of each site and repeats a batch that overflows; `room`
    /// is then the maximum headroom. `history=0` decides from each row alone and skips such a batch
    /// (`gs:exact,room=6,history=0` was the default before). `history=least`, or 1, also uses the largest value of the
    /// last 16 steps. `outliers=24` skips batches more than 24 exponents above the history, although they are finite.
    ///
    /// `forward` gives activations exponents: see [`super::ForwardScaling`]. `forward=repeat` begins with the first batch
    /// that overflows in its forward pass, and repeats it. `forward=on` begins with the first step, and scales small
    /// activations up too. With `forward=off`, the default, a batch whose activations overflow is skipped.
    ///
    /// `format=e5m2` rounds what is stored in half to a format of 8 bits, `e5m2` or `e4m3`, under the exact rule and
    /// `amax`. `grad`, `act` and `weight` set that of gradients, activations and weights alone, for example
    /// `grad=e5m2,act=e4m3`; see [`super::StoreFormats`]. Activations and weights in 8 bits imply `forward=on`.
    /// `products=fp8` lets a device multiply two operands of 8 bits in units for these: see [`super::Products`].
    ///
    /// Options of all methods except `fp32`: `amp=O2` sets a level. `allow`, `deny`, `inside` and `infer` move
    /// operators to another list (`deny=gelu+silu`). `f32` and `half` name layers that run in that precision
    /// (`f32=net.encoder+net.head`). In a name, `%2C` is a comma, and other characters with a meaning here are encoded
    /// in the same way.
    fn from_str(text: &str) -> Result<Self, MethodError> {
        parse(text.trim(), None).map_err(|cause| MethodError { text: text.trim().to_owned(), cause })
    }
}

impl Method {
    /// Parses a method like [`str::parse`], for a training of `steps` steps: `interval=steps/20` is then a twentieth of
    /// these, and at least one.
    ///
    /// A dynamic scale with the default interval of 2000 steps never grows in a shorter training. An interval in
    /// proportion to the length shows within minutes the behaviour that the default shows after days.
    ///
    /// # Errors
    /// A text that is not a method.
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

/// Formats the shortest text that parses to this method, with every setting that is not the default. The text
/// round-trips for all methods that setters, presets and texts can create. A schedule is formatted in its initial
/// state.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = match &self.scaling {
            Scaling::Loss(LossScale::None) if *self == Self::fp32() => return f.write_str("fp32"),
            Scaling::Loss(schedule) => schedule::text(schedule),
            Scaling::Gradient(gradient) => gradient::text(gradient),
            Scaling::Blocks(blocks) => block::text(*blocks),
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
        return if options.is_empty() { Ok(Method::fp32()) } else { Err("fp32 has no options".to_owned()) };
    }
    let (amp, layers) = precision::parse(&mut options)?;
    let method = match name {
        "gs" => Method::gradient_scaling(gradient::parse(options)?),
        "amax" => Method::gradient_scaling(gradient::parse_amax(options)?),
        "block" => Method::block_scaling(block::parse(options)?),
        _ => {
            let weight_gradients = match options.take("wgrad") {
                None | Some("f32") => Precision::Single,
                Some("half") => Precision::Half,
                Some(other) => return Err(format!("wgrad must be half or f32, not {other}")),
            };
            formats::refuse(&mut options, "needs a scale for each store, which a loss scale does not have")?;
            let schedule = schedule::parse(name, options)?.ok_or_else(|| {
                format!(
                    "unknown; the methods are \
                {METHODS}"
                )
            })?;
            Method::loss_scale(schedule).with_weight_gradients(weight_gradients)
        }
    };
    Ok(method.with_amp(amp).with_layers(layers))
}
