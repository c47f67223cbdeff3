//! One example of a data set.

/// One example of a data set: values with a label.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// Rows, columns and channels of the values; `[1, 1, n]` for a row of n numbers.
    pub shape: [usize; 3],
    /// Values of the example; channels vary fastest.
    pub values: Vec<f32>,
    /// Class of the example, from 0.
    pub label: u32,
}
