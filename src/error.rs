//! Errors of the library.
//!
//! `Debug` of an error writes its sentence too, so that a `main` that returns one prints a readable message. The
//! details of an error are in its public fields.

use crate::{CheckpointError, Shape, distributed::DistributedError};
use gradscale_core::{
    amp::PlanError,
    backend::DType,
    loss_scale::ScheduleError,
    model::terms::TermsError,
    ops::{Op, ShapeError},
    solve::ConfigError,
};
use std::fmt;

/// Reason why a network cannot be traced: an operator does not fit its inputs. [`fmt::Debug`] writes the sentence of
/// [`fmt::Display`].
#[derive(Clone, PartialEq)]
pub struct TraceError {
    /// Name of the operator or layer at which tracing failed.
    pub name: String,
    /// Kind of the trace error.
    pub kind: TraceErrorKind,
}

/// Kind of a trace error: reason why an operator cannot be recorded.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TraceErrorKind {
    /// The operator has a shape or setting that no device operator supports.
    Shape(ShapeError),
    /// The operator has an input shape that no device operator supports.
    Input {
        /// Reason why the input shape is rejected.
        error: ShapeError,
        /// Shape of the input that is rejected.
        shape: Shape,
    },
    /// The shape of an operand differs from the expected one. Boxed, because errors are to be small.
    Mismatch(Box<OperandMismatch>),
    /// The data have another number of elements than their shape.
    Length {
        /// Number of elements in the data, which differs from that of the shape.
        got: usize,
        /// Shape of the tensor, which its data do not fit.
        shape: Shape,
    },
    /// An operand has a type that the operator does not accept.
    Type {
        /// Operand with the wrong type: indices, labels, a batch.
        what: &'static str,
        /// Element types that the operator accepts for the operand.
        takes: Vec<DType>,
        /// Element type that the operand has.
        got: DType,
    },
    /// A label is neither a class nor the ignored label.
    Label {
        /// Value of the label that is not a class.
        label: u32,
        /// Index of the invalid label among the labels, from 0.
        row: usize,
        /// Number of classes that the loss has.
        classes: u32,
    },
    /// An index is beyond the end of its axis.
    Index {
        /// Value of the index that is beyond the end.
        index: u32,
        /// Position of the index among the indices, from 0.
        place: usize,
        /// Length of the axis that is indexed.
        count: u32,
    },
    /// A parameter belongs to other [`crate::Parameters`] than the trainer's; it has this shape.
    Foreign(Shape),
    /// The loss of the network is not a single value, or does not depend on any parameter.
    Loss(Shape),
    /// Theorem 1 does not apply to the shape of the product.
    Terms(TermsError),
    /// The precision plan of the network cannot be computed.
    Plan(PlanError),
    /// A later micro-batch has operators that the first did not have.
    NewSites,
    /// The network has more sites than a table can hold.
    Sites,
    /// The number of inputs differs from that of the step to repeat.
    Inputs {
        /// Number of inputs that the caller passed.
        got: usize,
        /// Number of inputs that the traced step has.
        with: usize,
    },
    /// The number of attention heads does not divide the width.
    Heads {
        /// Number of attention heads that was set.
        heads: usize,
        /// Number of channels of a token, which the heads must divide.
        width: usize,
    },
    /// A setting does not fit a tensor (an axis, a slice beyond its end); the reason as a sentence.
    Range(String),
}

/// Operand whose shape is not the expected one.
#[derive(Clone, Debug, PartialEq)]
pub struct OperandMismatch {
    /// Kind of the layer, for example `Linear`; `None` if the error has the name of an operator.
    pub layer: Option<&'static str>,
    /// Name of the operand, for example `input`, `bias` or `labels`.
    pub operand: &'static str,
    /// Shape that the operand has.
    pub got: Shape,
    /// Type of the operand if it is an input of integers, which may have been passed by mistake.
    pub integers: Option<DType>,
    /// Sizes n, h, w, c that the operand must have; `None` stands for any size.
    pub expected: [Option<usize>; 4],
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let TraceErrorKind::Mismatch(mismatch) = &self.kind
            && let Some(layer) = mismatch.layer
        {
            write!(f, "{layer} ")?;
        }
        write!(f, "{}: ", self.name)?;
        match &self.kind {
            TraceErrorKind::Shape(error) => write!(f, "{error}"),
            TraceErrorKind::Mismatch(mismatch) => write!(f, "{mismatch}"),
            TraceErrorKind::Length { got, shape } => write!(f, "{got} elements do not fit the shape {shape}"),
            TraceErrorKind::Input { error, shape } => write!(f, "{error}; the input is {shape} (n × h × w × c)"),
            TraceErrorKind::Type { what, takes, got } => {
                let takes: Vec<String> = takes.iter().copied().map(word).collect();
                write!(f, "{what} must be {}, not {}", takes.join(" or "), word(*got))
            }
            TraceErrorKind::Label { label, row, classes } => {
                write!(f, "label {row} of the batch is {label}, but the {classes} classes are numbered from 0")
            }
            TraceErrorKind::Index { index, place, count } => {
                write!(f, "index {place} of the batch is {index}, but the {count} positions are numbered from 0")
            }
            TraceErrorKind::Foreign(shape) => {
                write!(f, "a parameter of {shape} is not in this trainer's Parameters; build the network from those")
            }
            TraceErrorKind::Loss(shape) => match shape.len() {
                1 => f.write_str("the loss depends on no weight, so there is nothing to train"),
                _ => write!(f, "a loss must be one number, not {shape}; take its mean or sum"),
            },
            TraceErrorKind::Terms(error) => write!(f, "{error}"),
            TraceErrorKind::Plan(error) => write!(f, "{error}"),
            TraceErrorKind::Inputs { got, with } => write!(f, "{got} inputs, but the step to repeat had {with}"),
            TraceErrorKind::NewSites => f.write_str(
                "a later micro-batch has operators that the first lacks; all micro-batches of a step must run the same \
                 network",
            ),
            TraceErrorKind::Sites => f.write_str("more than 65534 sites"),
            TraceErrorKind::Heads { heads, width } => {
                write!(f, "a width of {width} channels is not divisible by {heads} heads")
            }
            TraceErrorKind::Range(words) => f.write_str(words),
        }
    }
}

impl fmt::Debug for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for TraceError {}

/// Writes which operand has which shape, and what was expected of it. Images that have their channels in the second
/// place are named, because other frameworks have them there.
impl fmt::Display for OperandMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operand, integers, ref expected, .. } = *self;
        let ([n, h, w, c], sizes) = (*expected, self.got.sizes());
        let is_flat = |size: Option<usize>| matches!(size, None | Some(1));
        let short = sizes[1..3] == [1, 1] && is_flat(h) && is_flat(w);
        write!(f, "{operand} {}", bracketed(&sizes.map(Some), short))?;
        if let Some(dtype) = integers {
            write!(f, " of {} integers", word(dtype))?;
        }
        write!(f, ", expected {}", bracketed(expected, short))?;
        if !short {
            f.write_str(" (n, h, w, c)")?;
        }
        let any = n.is_none() && h.is_none() && w.is_none();
        if any && !short && c == Some(sizes[1]) {
            f.write_str("; channels come last")?;
        }
        Ok(())
    }
}

/// Returns sizes as `[2, 8]`, or all four if not `short`; `_` stands for any size.
fn bracketed(&[n, h, w, c]: &[Option<usize>; 4], short: bool) -> String {
    let size = |size: Option<usize>| size.map_or("_".to_owned(), |size| size.to_string());
    match short {
        true => format!("[{}, {}]", size(n), size(c)),
        false => format!("[{}, {}, {}, {}]", size(n), size(h), size(w), size(c)),
    }
}

/// Returns the name of an element type in Rust and in [`crate::Input`].
fn word(dtype: DType) -> String {
    format!("{dtype:?}").to_lowercase()
}

impl TraceError {
    pub(crate) fn new(name: &str, kind: impl Into<TraceErrorKind>) -> Self {
        Self { name: name.to_owned(), kind: kind.into() }
    }

    /// Names the kind of the layer whose operand has a wrong shape.
    pub(crate) fn in_layer(mut self, kind: &'static str) -> Self {
        if let TraceErrorKind::Mismatch(mismatch) = &mut self.kind {
            mismatch.layer = Some(kind);
        }
        self
    }
}

impl From<ShapeError> for TraceErrorKind {
    fn from(error: ShapeError) -> Self {
        Self::Shape(error)
    }
}

impl From<TermsError> for TraceErrorKind {
    fn from(error: TermsError) -> Self {
        Self::Terms(error)
    }
}

impl From<PlanError> for TraceErrorKind {
    fn from(error: PlanError) -> Self {
        Self::Plan(error)
    }
}

/// Reason why a training cannot start or continue. `E` is the device's own error; the default is the CPU's.
///
/// [`fmt::Debug`] writes the sentence of [`fmt::Display`], so that a `main` which returns an error prints it:
///
/// ```
/// use gradscale::{Input, Cpu, Error, Method, Parameters, Trainer, nn::{Linear, Module}, optim::{Optimizer, Sgd}};
/// fn main_of_yours() -> Result<(), Error> {
///     let mut parameters = Parameters::seeded(1);
///     let net = Linear::new(&mut parameters.at("net"), 3, 1);
///     let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
///     trainer.evaluate([Input::f32([2, 4], &[0.5; 8])], |[x]| net.forward(x))?;
///     Ok(())
/// }
/// let printed = format!("Error: {:?}", main_of_yours().unwrap_err());
/// assert_eq!(printed, "Error: Linear net: input [2, 4], expected [_, 3]");
/// ```
#[non_exhaustive]
pub enum Error<E = crate::device::Usual> {
    /// Tracing failed: the network does not fit its inputs.
    Trace(TraceError),
    /// The device failed outside of the operators of a network.
    Device(E),
    /// The device has no clock to measure launches.
    NoClock {
        /// Name of the device without a clock.
        device: String,
    },
    /// The device failed at an operator of the network. An asynchronous device may report it at a later operator.
    Operator {
        /// Name of the layer or operator at which the device failed.
        name: String,
        /// Kind of the operator at which the device failed.
        op: Op,
        /// True if the device failed at the operator's gradient.
        backward: bool,
        /// Native error of the device's driver.
        error: E,
    },
    /// A setting of the optimizer is invalid.
    Optimizer(ShapeError),
    /// A setting of the scaling rule is invalid.
    Rule(ConfigError),
    /// A setting of the loss scale is invalid.
    LossScale(ScheduleError),
    /// Too many consecutive steps were skipped.
    Skips {
        /// Number of consecutive steps that were skipped.
        in_a_row: u32,
        /// Reason why the last step was skipped.
        last: String,
    },
    /// Two parameters have the same name.
    Duplicate(String),
    /// No parameter has the requested name, or its length differs from that of the values; the reason as a sentence.
    Parameter(String),
    /// No parameter belongs to a parameter group of the optimizer.
    Group {
        /// Name prefix of the group without parameters.
        prefix: String,
        /// Name prefixes of the parts that the network has.
        parts: String,
    },
    /// Weight gradients are to be stored in half, which gradient scaling does not support.
    WeightGradients,
    /// The checkpoint is invalid, or belongs to another training.
    Checkpoint(CheckpointError),
    /// Gradients are requested of another trainer or of an earlier step, or a repeat without a step.
    Gradients,
    /// A prefetched batch is of another trainer, or a later batch has replaced its buffer.
    Prefetched,
    /// A [`crate::Program`] cannot run here; it has this description.
    Program(&'static str),
    /// Ranks cannot train together, or cannot continue.
    Distributed(DistributedError),
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(error) => write!(f, "{error}"),
            Self::Device(error) => write!(f, "{error}"),
            Self::Operator { name, op, backward, error } => {
                let gradient = if *backward { ", its gradient" } else { "" };
                write!(f, "{name} ({op}{gradient}): {error}")
            }
            Self::Optimizer(ShapeError::Value(x)) => write!(
                f,
                "optimizer: {x} is out of range: learning rate and weight decay must be finite and at least 0, \
                 momentum and betas in [0, 1), eps at least 1e-17, clipping limits positive"
            ),
            Self::Optimizer(error) => write!(f, "optimizer: {error}"),
            Self::Rule(error) => write!(f, "gradient scaling: {error}"),
            Self::LossScale(error) => write!(f, "loss scale: {error}"),
            Self::Skips { in_a_row, last } => {
                write!(f, "{in_a_row} steps in a row were skipped; the last was {last}")
            }
            Self::Duplicate(name) => {
                write!(f, "two parameters are called {name}; give each layer its own scope with parameters.at")
            }
            Self::Parameter(words) => f.write_str(words),
            Self::Group { prefix, parts } => {
                write!(f, "optimizer: no parameter begins with {prefix}; the parts are {parts}")
            }
            Self::WeightGradients => {
                f.write_str("wgrad=half needs a loss scale, because weight gradients are f32 under gradient scaling")
            }
            Self::Checkpoint(cause) => write!(f, "checkpoint: {cause}"),
            Self::Gradients => {
                f.write_str("these gradients belong to another trainer or an earlier step, or there are none to repeat")
            }
            Self::Prefetched => {
                f.write_str("this prefetched batch belongs to another trainer, or a later one has replaced it")
            }
            Self::Program(what) => write!(f, "this program is {what}"),
            Self::NoClock { device } => {
                write!(f, "{device} has no clock for launches (on a GPU, a driver without timestamps)")
            }
            Self::Distributed(error) => write!(f, "{error}"),
        }
    }
}

impl<E: fmt::Display> fmt::Debug for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Error<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Trace(error) => Some(error),
            Self::Device(error) | Self::Operator { error, .. } => Some(error),
            Self::Checkpoint(error) => Some(error),
            Self::Distributed(error) => Some(error),
            Self::Optimizer(error) => Some(error),
            Self::Rule(error) => Some(error),
            Self::LossScale(error) => Some(error),
            Self::Skips { .. }
            | Self::Duplicate(_)
            | Self::Parameter(_)
            | Self::Group { .. }
            | Self::WeightGradients
            | Self::Gradients
            | Self::Prefetched
            | Self::NoClock { .. }
            | Self::Program(_) => None,
        }
    }
}

impl<E> From<TraceError> for Error<E> {
    fn from(error: TraceError) -> Self {
        Self::Trace(error)
    }
}

impl<E> From<ConfigError> for Error<E> {
    fn from(error: ConfigError) -> Self {
        Self::Rule(error)
    }
}

impl<E> From<DistributedError> for Error<E> {
    fn from(error: DistributedError) -> Self {
        Self::Distributed(error)
    }
}

#[cfg(any(feature = "cpu", feature = "wgpu", feature = "cuda"))]
impl From<crate::device::AnyDeviceError> for Error<crate::device::AnyDeviceError> {
    fn from(error: crate::device::AnyDeviceError) -> Self {
        Self::Device(error)
    }
}

/// Conversion that lets `?` accept a device's own errors, for example `Cpu::new(0)?`.
#[cfg(feature = "cpu")]
impl From<crate::device::CpuError> for Error<crate::device::CpuError> {
    fn from(error: crate::device::CpuError) -> Self {
        Self::Device(error)
    }
}

#[cfg(feature = "wgpu")]
impl From<crate::device::WgpuError> for Error<crate::device::WgpuError> {
    fn from(error: crate::device::WgpuError) -> Self {
        Self::Device(error)
    }
}

#[cfg(feature = "cuda")]
impl From<crate::device::CudaError> for Error<crate::device::CudaError> {
    fn from(error: crate::device::CudaError) -> Self {
        Self::Device(error)
    }
}
