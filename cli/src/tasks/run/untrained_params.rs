//! Detection of parameters that no gradient has changed.

/// Returns true if values changed only by a common factor below 1, up to the rounding of `steps` steps. Weight decay
/// does that where gradients are zero. A single value must be unchanged.
pub(super) fn only_decayed(first: &[f32], now: &[f32], steps: u64) -> bool {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    if bits(first) == bits(now) {
        return true;
    }
    let sum = |terms: &[f32]| terms.iter().zip(first).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    let factor = sum(now) / sum(first);
    // Two roundings in each step: that of the decay, and that of the difference.
    #[expect(clippy::cast_precision_loss, reason = "a bound")]
    let bound = steps as f64 * f64::from(f32::EPSILON);
    let near = |(&first, &now): (&f32, &f32)| {
        let expected = factor * f64::from(first);
        (f64::from(now) - expected).abs() <= bound * f64::from(first).abs()
    };
    first.len() > 1 && (0.0..1.0).contains(&factor) && first.iter().zip(now).all(near)
}

#[cfg(test)]
mod tests {
    use super::only_decayed;

    #[test]
    fn decay_is_told_from_learning() {
        let first = [0.5, -0.25, 1e-3, 0.0, 0.125];
        let decayed: Vec<f32> =
            first.iter().map(|&value| (0..60).fold(value, |value, _| value - 0.1 * (5e-4 * value))).collect();
        assert!(only_decayed(&first, &first, 1) && only_decayed(&first, &decayed, 60));
        let mut learned = decayed.clone();
        learned[2] *= 1.001;
        assert!(!only_decayed(&first, &learned, 60));
        learned.clone_from(&decayed);
        learned[3] = 1e-9;
        assert!(!only_decayed(&first, &learned, 60), "from zero nothing decays");
        let grown = first.map(|value| 1.01 * value);
        assert!(!only_decayed(&first, &grown, 60), "decay makes nothing larger");
        assert!(!only_decayed(&[0.5], &[0.4], 60), "one value");
        assert!(!only_decayed(&first, &[f32::NAN; 5], 60));
    }
}
