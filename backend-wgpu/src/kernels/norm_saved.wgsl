// Means and variances of the groups of a normalisation, as they are saved for its gradient. Needs math.wgsl.

/// Returns 1 / √(variance + eps).
fn inverse_std(variance: f32, eps: f32) -> f32 {
    return divide(1.0, square_root(variance + eps));
}
