//! What can go wrong.

use crate::{CheckpointError, Shape};
use gradscale_core::{
    amp::PlanError, backend::DType, descriptor::ShapeError, loss_scale::ScheduleError, model::terms::TermsError,
    solve::ConfigError,
};
use std::fmt;

/// Why a network cannot be traced: an operator does not fit its inputs.
#[derive(Clone, Debug, PartialEq)]
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
    /// No device operator has such a shape.
    Shape(ShapeError),
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
    Type(DType),
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
    /// A part of a tensor beyond its end.
    Range,
    /// Heads of an attention that do not divide its width.
    Heads {
        /// Heads.
        heads: usize,
        /// Channels of a token.
        width: usize,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match &self.kind {
            TraceErrorKind::Shape(error) => write!(f, "{error}"),
            TraceErrorKind::Mismatch { got, with } => write!(f, "{got} does not fit {with}"),
            TraceErrorKind::Length { got, shape } => write!(f, "{got} elements for a shape of {shape}"),
            TraceErrorKind::Type(dtype) => write!(f, "does not take {dtype:?}"),
            TraceErrorKind::Loss(shape) => {
                write!(f, "a loss is one number that depends on a parameter, not {shape}")
            }
            TraceErrorKind::Terms(error) => write!(f, "{error}"),
            TraceErrorKind::Plan(error) => write!(f, "{error}"),
            TraceErrorKind::Inputs { got, with } => write!(f, "{got} inputs for a step of {with}"),
            TraceErrorKind::NewSites => f.write_str("a later micro-batch has operators that the first had not"),
            TraceErrorKind::Sites => f.write_str("more than 65534 sites"),
            TraceErrorKind::Heads { heads, width } => {
                write!(f, "a width of {width} channels cannot be divided among {heads} heads")
            }
            TraceErrorKind::Range => f.write_str("a part beyond the end of its tensor"),
        }
    }
}

impl std::error::Error for TraceError {}

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

/// Why a training cannot begin or go on. `E` is the device's own error.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error<E> {
    /// The network does not fit its inputs.
    Trace(TraceError),
    /// The device failed.
    Device(E),
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
    /// No parameter of that name, or not of that size.
    Parameter(String),
    /// A group of the optimizer that no parameter belongs to.
    Group {
        /// Its prefix.
        prefix: String,
        /// The parts that the network has.
        parts: String,
    },
    /// A checkpoint that is none, or of another training.
    Checkpoint(CheckpointError),
    /// Gradients of another trainer, or of a step that is over; or none yet to repeat.
    Gradients,
    /// A batch that was sent ahead by another trainer, or whose place a later one took.
    Prefetched,
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(error) => write!(f, "{error}"),
            Self::Device(error) => write!(f, "{error}"),
            Self::Optimizer(error) => write!(f, "optimizer: {error}"),
            Self::Rule(error) => write!(f, "gradient scaling: {error}"),
            Self::LossScale(error) => write!(f, "loss scale: {error}"),
            Self::Skips { in_a_row, last } => {
                write!(f, "{in_a_row} steps in a row were not taken; the last was {last}")
            }
            Self::Duplicate(name) => write!(f, "two parameters are called {name}"),
            Self::Parameter(name) => write!(f, "there is no parameter {name} of that size"),
            Self::Group { prefix, parts } => {
                write!(f, "optimizer: no parameter belongs to the group {prefix}; there are {parts}")
            }
            Self::Checkpoint(cause) => write!(f, "checkpoint: {cause}"),
            Self::Gradients => {
                f.write_str("there are no such gradients: of another trainer, of a step that is over, or none yet")
            }
            Self::Prefetched => f.write_str("this batch is not ahead: of another trainer, or another took its place"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Error<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Trace(error) => Some(error),
            Self::Device(error) => Some(error),
            Self::Checkpoint(error) => Some(error),
            _ => None,
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
