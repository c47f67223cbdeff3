//! The one table of tolerances.

/// Maximum error of one class of operators against exact results.
///
/// The unit is 2^-24 · scale · √length. For a sum, scale is the sum of the magnitudes of its terms and length is their
/// number. Otherwise scale is the magnitude of the result, and length is 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Class of operators.
    pub entry: &'static str,
    /// Largest error seen on any of the project's own backends.
    pub measured: f64,
    /// Largest error allowed: at most four times that.
    pub bound: f64,
}

const fn row(entry: &'static str, measured: f64, bound: f64) -> Tolerance {
    Tolerance { entry, measured, bound }
}

/// Error bounds of all operators, which are the same for every backend.
pub const TOLERANCES: &[Tolerance] = &[
    row("unary", 6.1, 8.0),
    row("unary_vjp", 4.1, 12.0),
    row("div", 1.0, 4.0),
    row("average", 1.3, 4.0),
    row("roi_align", 13.6, 40.0),
    row("norm", 3.7, 10.0),
    row("norm_saved", 2.0, 8.0),
    row("norm_vjp", 3.2, 10.0),
    row("softmax", 1.4, 5.6),
    row("softmax_vjp", 1.5, 6.0),
    // Weights that are rounded to halves contribute up to 2.
    row("attention", 1.5, 3.0),
    row("attention_sums", 1.0, 4.0),
    row("attention_vjp", 1.9, 6.0),
    row("lstm", 1.2, 4.0),
    row("lstm_vjp", 4.1, 12.0),
    row("gru", 0.9, 3.6),
    row("gru_vjp", 2.3, 8.0),
    row("cross_entropy", 1.0, 3.2),
    row("cross_entropy_vjp", 2.1, 6.4),
    row("ctc", 4.5, 16.0),
    row("optimize", 5.0, 15.0),
    // The final rounding contributes up to 1.
    row("global_norm", 1.0, 4.0),
    row("gemm", 1.7, 5.0),
    row("conv", 1.9, 5.0),
    row("reduce", 2.5, 8.0),
];

/// The bound of an entry.
///
/// # Panics
/// If there is no such entry.
#[must_use]
pub fn bound(entry: &str) -> f64 {
    let found = TOLERANCES.iter().find(|row| row.entry == entry);
    found.unwrap_or_else(|| panic!("no tolerance for {entry}")).bound
}
