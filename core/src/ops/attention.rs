//! Attention whose scores and weights are not stored.

use super::{ShapeError, SoftmaxColumns, elements};

/// Sizes of an attention: `sequences · heads` matrices of queries, keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    /// Number of sequences of the batch.
    pub sequences: u32,
    /// Number of heads of a sequence.
    pub heads: u32,
    /// Number of queries of a head.
    pub queries: u32,
    /// Number of keys, and of values, of a head.
    pub keys: u32,
    /// Number of elements of a query and of a key.
    pub depth: u32,
    /// Number of elements of a value and of a result.
    pub width: u32,
}

/// Descriptor of attention `y = P·v` with the weights `P = softmax(S)` of the scores `S = q·kᵀ`, for q `[batch, queries,
/// depth]`, k `[batch, keys, depth]`, v `[batch, keys, width]` and y `[batch, queries, width]`, where batch is `sequences ·
/// heads`. Scores and weights are f32 and are not stored. The queries have already been divided by √depth.
///
/// A row of scores reads the columns that [`SoftmaxColumns`] selects. The forward pass also writes the logarithm of the
/// row's sum, `L = max + ln Σ e^(S − max)`, from which the backward pass computes the weights again: `P = e^(S − L)`.
/// Weights may be rounded to halves for their products with v and with dy; the sum is that of the unrounded weights.
///
/// | row | y | L |
/// |---|---|---|
/// | reads no column | 0 | −∞ |
/// | reads a score of NaN or +∞, or nothing but −∞ | NaN | NaN |
/// | otherwise, a score of −∞ has the weight 0 | `Σ P·v` | `max + ln Σ e^(S − max)` |
///
/// The gradients are `dv = Pᵀ·dy`, `dP = dy·vᵀ`, `δ = Σ dy·y` of each row, `dS = P·(dP − δ)`, `dq = dS·k` and
/// `dk = dSᵀ·q`. dP and dS are cast to halves, each at the exponent of its site ([`crate::backend::Cast`]): dS is computed
/// from the rounded dP and from δ at its exponent, dq and dk from the rounded dS. Where the weight is 0, dS is 0. Both casts
/// observe the columns that a row reads, and no others, each once.
///
/// As in a product with stored weights, a value or key that is not finite may make results NaN of a row that does not read
/// it. The order of a sum depends on the shape alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    shape: AttentionShape,
    read: SoftmaxColumns,
}

impl Attention {
    /// Maximum number of elements of a query, key or value, because kernels keep a row of each on the chip. Heads of common
    /// networks have 64 or 128.
    pub const MAX_HEAD: u32 = 128;

    /// Creates the descriptor of an attention whose rows of scores read some columns.
    ///
    /// # Errors
    /// [`ShapeError::Head`] for heads that are empty or larger than [`Attention::MAX_HEAD`] and for
    /// [`SoftmaxColumns::Masked`], since a mask is as large as the scores. [`ShapeError::Empty`] without keys,
    /// [`ShapeError::TooLarge`].
    pub fn new(shape: AttentionShape, read: SoftmaxColumns) -> Result<Self, ShapeError> {
        let AttentionShape { sequences, heads, queries, keys, depth, width } = shape;
        let heads_fit = [depth, width].into_iter().all(|size| (1..=Self::MAX_HEAD).contains(&size));
        if !heads_fit || read == SoftmaxColumns::Masked {
            return Err(ShapeError::Head);
        }
        if keys == 0 {
            return Err(ShapeError::Empty);
        }
        for rows in [[queries, keys], [queries, depth], [queries, width], [keys, depth], [keys, width]] {
            elements(&[sequences, heads, rows[0], rows[1]])?;
        }
        Ok(Self { shape, read })
    }

    /// Returns the sizes of the attention.
    #[must_use]
    pub const fn shape(&self) -> AttentionShape {
        self.shape
    }

    /// Returns the columns that a row of scores reads.
    #[must_use]
    pub const fn read(&self) -> SoftmaxColumns {
        self.read
    }

    /// Returns the number of matrices of queries: the heads of all sequences.
    #[must_use]
    pub const fn batch(&self) -> u32 {
        self.shape.sequences * self.shape.heads
    }

    /// Returns the number of rows of scores, and of elements of L.
    #[must_use]
    pub const fn rows(&self) -> u32 {
        self.batch() * self.shape.queries
    }

    /// Returns the number of elements of q.
    #[must_use]
    pub const fn q_len(&self) -> u32 {
        self.rows() * self.shape.depth
    }

    /// Returns the number of elements of k.
    #[must_use]
    pub const fn k_len(&self) -> u32 {
        self.batch() * self.shape.keys * self.shape.depth
    }

    /// Returns the number of elements of v.
    #[must_use]
    pub const fn v_len(&self) -> u32 {
        self.batch() * self.shape.keys * self.shape.width
    }

    /// Returns the number of elements of the result.
    #[must_use]
    pub const fn y_len(&self) -> u32 {
        self.rows() * self.shape.width
    }

    /// Returns the number of elements of the lengths, one for each sequence; 0 if columns need none.
    #[must_use]
    pub const fn lengths_len(&self) -> u32 {
        match self.read {
            SoftmaxColumns::All | SoftmaxColumns::Causal | SoftmaxColumns::Masked => 0,
            SoftmaxColumns::Within => self.shape.sequences,
        }
    }

    /// Returns the number of columns that a query of a head reads. `length` is that of its sequence, and is used with
    /// [`SoftmaxColumns::Within`] only.
    #[must_use]
    pub const fn columns_of_query(&self, query: u32, length: u32) -> u32 {
        let end = match self.read {
            SoftmaxColumns::All | SoftmaxColumns::Masked => self.shape.keys,
            SoftmaxColumns::Causal => query + 1,
            SoftmaxColumns::Within => length,
        };
        if end < self.shape.keys { end } else { self.shape.keys }
    }
}
