//! What can go wrong.
//!
//! `Debug` of an error is its sentence too: a `main` that returns one prints what people read. What an error holds is in
//! its public fields.

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

/// Why a network cannot be traced: an operator does not fit its inputs. [`fmt::Debug`] is the sentence of
/// [`fmt::Display`].
#[derive(Clone, PartialEq)]
pub struct TraceError {
    /// Name of the operator or layer.
    pub name: String,
    /// What does not fit.
    pub kind: TraceErrorKind,
}

/// What does not fit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TraceErrorKind {
    /// No device operator has such a shape, or such a number.
    Shape(ShapeError),
    /// No device operator has an input of such a shape.
    Input {
        /// Why.
        error: ShapeError,
        /// The input's.
        shape: Shape,
    },
    /// Two shapes that must agree.
    Mismatch {
        /// What came.
        got: Shape,
        /// What it must fit.
        with: Shape,
    },
    /// Data of a wrong length for its shape.
    Length {
        /// Elements given.
        got: usize,
        /// Shape stated.
        shape: Shape,
    },
    /// A type that the operator does not take.
    Type {
        /// What has it: indices, labels, a batch.
        what: &'static str,
        /// Types that would be taken.
        takes: Vec<DType>,
        /// What came.
        got: DType,
    },
    /// A label that is no class and is not ignored.
    Label {
        /// The label.
        label: u32,
        /// Which of the labels, from 0.
        row: usize,
        /// How many classes there are.
        classes: u32,
    },
    /// An index that is no place along its axis.
    Index {
        /// The index.
        index: u32,
        /// Which of the indices, from 0.
        place: usize,
        /// How many places there are.
        count: u32,
    },
    /// A parameter of other [`crate::Parameters`] than the trainer's.
    Foreign(Shape),
    /// The loss is not one number, or does not depend on any parameter.
    Loss(Shape),
    /// No theorem holds for this shape.
    Terms(TermsError),
    /// The plan of precisions.
    Plan(PlanError),
    /// A later micro-batch with operators that the first did not have.
    NewSites,
    /// More sites than a table holds.
    Sites,
    /// A number of inputs that is not that of the step to repeat.
    Inputs {
        /// What came.
        got: usize,
        /// What was traced.
        with: usize,
    },
    /// Heads of an attention that do not divide its width.
    Heads {
        /// Heads.
        heads: usize,
        /// Channels of a token.
        width: usize,
    },
    /// Numbers that do not fit a tensor (an axis, a part beyond its end), in words.
    Range(String),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match &self.kind {
            TraceErrorKind::Shape(error) => write!(f, "{error}"),
            TraceErrorKind::Mismatch { got, with } => write!(f, "{got} does not fit {with}"),
            TraceErrorKind::Length { got, shape } => write!(f, "{got} elements for a shape of {shape}"),
            TraceErrorKind::Input { error, shape } => write!(f, "{error}; the input is {shape} (n × h × w × c)"),
            TraceErrorKind::Type { what, takes, got } => {
                let takes: Vec<String> = takes.iter().copied().map(word).collect();
                write!(f, "{what} must be {}, not {}", takes.join(" or "), word(*got))
            }
            TraceErrorKind::Label { label, row, classes } => {
                write!(f, "label {row} of the batch is {label}, and there are {classes} classes, from 0")
            }
            TraceErrorKind::Index { index, place, count } => {
                write!(f, "index {place} of the batch is {index}, and there are {count} places, from 0")
            }
            TraceErrorKind::Foreign(shape) => {
                write!(
                    f,
                    "a parameter of {shape} is of other Parameters than this trainer's; build the network from those"
                )
            }
            TraceErrorKind::Loss(shape) => match shape.len() {
                1 => f.write_str("the loss depends on no weight, so there is nothing to train"),
                _ => write!(f, "a loss is one number, not {shape}; take its mean or sum"),
            },
            TraceErrorKind::Terms(error) => write!(f, "{error}"),
            TraceErrorKind::Plan(error) => write!(f, "{error}"),
            TraceErrorKind::Inputs { got, with } => write!(f, "{got} inputs, where the step to repeat had {with}"),
            TraceErrorKind::NewSites => f.write_str(
                "a later micro-batch has operators that the first had not; all of a step must run the same network",
            ),
            TraceErrorKind::Sites => f.write_str("more than 65534 sites"),
            TraceErrorKind::Heads { heads, width } => {
                write!(f, "a width of {width} channels cannot be divided among {heads} heads")
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

/// A type as Rust and [`crate::Input`] call it.
fn word(dtype: DType) -> String {
    format!("{dtype:?}").to_lowercase()
}

impl TraceError {
    pub(crate) fn new(name: &str, kind: impl Into<TraceErrorKind>) -> Self {
        Self { name: name.to_owned(), kind: kind.into() }
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

/// Why a training cannot begin or go on. `E` is the device's own error, the CPU's where none is named.
///
/// [`fmt::Debug`] is the sentence of [`fmt::Display`], so that a `main` which returns an error prints a sentence:
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
/// assert_eq!(printed, "Error: net: 2×4 does not fit 1×3");
/// ```
#[non_exhaustive]
pub enum Error<E = crate::device::Usual> {
    /// The network does not fit its inputs.
    Trace(TraceError),
    /// The device failed.
    Device(E),
    /// The device has no clock to time launches by.
    NoClock {
        /// The device.
        device: String,
    },
    /// The device failed at an operator of the network; one that works later than it is asked may say so at a later one.
    Operator {
        /// Name of the layer or operator.
        name: String,
        /// Which operator it is.
        op: Op,
        /// Whether it was at its gradient.
        backward: bool,
        /// The device's error.
        error: E,
    },
    /// A number of the optimizer makes no sense.
    Optimizer(ShapeError),
    /// A number of the scaling rule makes no sense.
    Rule(ConfigError),
    /// A number of the loss scale makes no sense.
    LossScale(ScheduleError),
    /// Steps were skipped too often in a row.
    Skips {
        /// How often.
        in_a_row: u32,
        /// Why the last one was.
        last: String,
    },
    /// Two parameters of one name.
    Duplicate(String),
    /// No parameter of that name, or values in another number than it has; in words.
    Parameter(String),
    /// A group of the optimizer that no parameter belongs to.
    Group {
        /// Its prefix.
        prefix: String,
        /// The parts that the network has.
        parts: String,
    },
    /// Weight gradients in half under gradient scaling, which has none.
    WeightGradients,
    /// A checkpoint that is none, or of another training.
    Checkpoint(CheckpointError),
    /// Gradients of another trainer, or of a step that is over; or none yet to repeat.
    Gradients,
    /// A batch that was sent ahead by another trainer, or whose place a later one took.
    Prefetched,
    /// A [`crate::Program`] that cannot run here: what it is.
    Program(&'static str),
    /// Ranks that cannot train together, or not any more.
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
                "optimizer: {x} does not do: learning rates and weight decays are finite and not negative, momentum and \
                 betas at least 0 and below 1, eps is at least 1e-17, limits of clipping are positive"
            ),
            Self::Optimizer(error) => write!(f, "optimizer: {error}"),
            Self::Rule(error) => write!(f, "gradient scaling: {error}"),
            Self::LossScale(error) => write!(f, "loss scale: {error}"),
            Self::Skips { in_a_row, last } => {
                write!(f, "{in_a_row} steps in a row were not taken; the last was {last}")
            }
            Self::Duplicate(name) => {
                write!(f, "two parameters are called {name}: give each layer a scope of its own (parameters.at)")
            }
            Self::Parameter(words) => f.write_str(words),
            Self::Group { prefix, parts } => {
                write!(f, "optimizer: no parameter belongs to {prefix}; there are {parts}")
            }
            Self::WeightGradients => {
                f.write_str("weight gradients in half are for a loss scale: under gradient scaling they are f32")
            }
            Self::Checkpoint(cause) => write!(f, "checkpoint: {cause}"),
            Self::Gradients => f.write_str(
                "these gradients are of another trainer or of a step that is over, or there are none to repeat",
            ),
            Self::Prefetched => {
                f.write_str("this batch was sent ahead by another trainer, or a later one has taken its place")
            }
            Self::Program(what) => write!(f, "this program is {what}"),
            Self::NoClock { device } => {
                write!(f, "{device} has no clock for launches; where it is a GPU, its driver offers no timestamps")
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
