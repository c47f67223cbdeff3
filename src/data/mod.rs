//! Data loading: the order of an epoch, batches out of slices.
//!
//! A sequence of batches depends only on a seed and a position. A training that is resumed from a checkpoint therefore
//! needs only these to use the same batches.

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

/// Reason why batches cannot be created. [`fmt::Debug`] writes the sentence of [`fmt::Display`].
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataError {
    /// The batch size is 0 or exceeds the number of examples.
    Batch {
        /// Batch size that was rejected.
        batch: usize,
        /// Number of examples in the data.
        count: usize,
    },
    /// The data of a batch source have another number of elements than their shape.
    Length {
        /// Number of elements in the data, which differs from that of the shape.
        got: usize,
        /// Shape of the tensor, which its data do not fit.
        shape: Shape,
    },
    /// Tensors of the data have different numbers of examples.
    Count {
        /// Index from 0 of the tensor with another number of examples than the first.
        tensor: usize,
        /// Number of examples of the tensor with that index.
        got: usize,
        /// Number of examples of the first tensor, which all must have.
        with: usize,
    },
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch { batch: 0, .. } => f.write_str("a batch needs at least one example"),
            Self::Batch { batch, count } => write!(
                f,
                "a batch of {batch} examples needs as many, but there are \
                {count}"
            ),
            Self::Length { got, shape } => write!(f, "{got} elements do not fit the shape {shape}"),
            Self::Count { tensor, got, with } => {
                write!(f, "tensor {tensor} has {got} examples, but the first has {with}")
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
