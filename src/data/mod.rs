//! Data on their way into a training: the order of an epoch, batches out of slices.
//!
//! All that a sequence of batches depends on is a seed and a position, so a training that goes on from a checkpoint needs
//! no more than these to see the same batches.

mod batches;
mod candidates;
mod loader;
mod order;
mod random;

pub use batches::{Batches, Last};
pub use candidates::{Candidates, LogUniform};
pub use loader::{InOrder, Loader, in_order};
pub use order::{Order, Sample};
pub use random::Random;

use crate::Shape;
use std::fmt;

/// Why there are no batches. [`fmt::Debug`] is the sentence of [`fmt::Display`].
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataError {
    /// A batch of nothing, or of more examples than there are.
    Batch {
        /// Examples of a batch.
        batch: usize,
        /// Examples.
        count: usize,
    },
    /// Data of a wrong length for their shape.
    Length {
        /// Elements given.
        got: usize,
        /// Shape stated.
        shape: Shape,
    },
    /// Inputs and targets of unlike number.
    Count {
        /// Which of the tensors, from 0.
        tensor: usize,
        /// Its examples.
        got: usize,
        /// Those of the first.
        with: usize,
    },
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch { batch: 0, .. } => f.write_str("a batch has one example at least"),
            Self::Batch { batch, count } => write!(f, "batches of {batch} examples, and there are {count}"),
            Self::Length { got, shape } => write!(f, "{got} elements for a shape of {shape}"),
            Self::Count { tensor, got, with } => {
                write!(f, "tensor {tensor} has {got} examples, and the first has {with}")
            }
        }
    }
}

impl fmt::Debug for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for DataError {}
