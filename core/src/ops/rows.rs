//! Gather and scatter of table rows by index: embedding.

use super::{ShapeError, elements};

/// Descriptor of a gather or scatter: `count` rows of `width` elements, from or to a table of `table` rows.
///
/// Gather: `y[i] = x[index[i]]`, zeros for an index beyond the table. Scatter: `y[index[i]] += x[i]` from zeros, in the
/// order of i; rows with an index beyond the table are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    count: u32,
    table: u32,
    width: u32,
}

impl Rows {
    /// Creates the descriptor of a lookup of `count` indices in a table of `table` rows with `width` elements each.
    ///
    /// # Errors
    /// [`ShapeError::TooLarge`].
    pub fn new(count: u32, table: u32, width: u32) -> Result<Self, ShapeError> {
        elements(&[count, width])?;
        elements(&[table, width])?;
        Ok(Self { count, table, width })
    }

    /// Returns the number of indices to look up.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of rows of the embedding table.
    #[must_use]
    pub const fn table(&self) -> u32 {
        self.table
    }

    /// Returns the number of elements of a row of the embedding table.
    #[must_use]
    pub const fn width(&self) -> u32 {
        self.width
    }
}
