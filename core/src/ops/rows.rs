//! Rows of a table by index: embedding.

use super::{ShapeError, elements};

/// `count` rows of `width` elements, out of or into a table of `table` rows.
///
/// Gather: `y[i] = x[index[i]]`, a row of zeros for an index beyond the table. Scatter: `y[index[i]] += x[i]` from
/// zeros, in the order of i; rows with an index beyond the table are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    count: u32,
    table: u32,
    width: u32,
}

impl Rows {
    /// # Errors
    /// [`ShapeError::TooLarge`].
    pub fn new(count: u32, table: u32, width: u32) -> Result<Self, ShapeError> {
        elements(&[count, width])?;
        elements(&[table, width])?;
        Ok(Self { count, table, width })
    }

    /// Indices.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Rows of the table.
    #[must_use]
    pub const fn table(&self) -> u32 {
        self.table
    }

    /// Elements of a row.
    #[must_use]
    pub const fn width(&self) -> u32 {
        self.width
    }
}
