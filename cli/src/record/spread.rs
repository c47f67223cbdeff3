//! Mean and standard deviation of several values.

/// Mean and standard deviation of several values, for example of the scores of several seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub mean: f64,
    /// Standard deviation of a sample (the divisor is the count minus one); `None` for a single value.
    pub deviation: Option<f64>,
}

impl Spread {
    /// Computes mean and deviation; `None` without a value.
    pub fn new(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
        (!values.is_empty()).then_some(Self { mean, deviation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation() {
        assert_eq!(Spread::new(&[]), None);
        assert_eq!(Spread::new(&[5.0]), Some(Spread { mean: 5.0, deviation: None }));
        assert_eq!(Spread::new(&[1.0, 3.0]), Some(Spread { mean: 2.0, deviation: Some(2f64.sqrt()) }));
    }
}
