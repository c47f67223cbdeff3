//! Fréchet distance by the crate `nalgebra`.

use nalgebra::{DMatrix, DVector, SymmetricEigen};

/// Normal distribution of image features: mean and covariance.
#[derive(Clone, Debug)]
pub struct Gaussian {
    mean: DVector<f64>,
    covariance: DMatrix<f64>,
}

impl Gaussian {
    /// Fits a Gaussian to rows of `width` features; `None` for fewer than two rows.
    pub fn fit(features: &[f64], width: usize) -> Option<Self> {
        let count = features.len().checked_div(width)?;
        if count < 2 {
            return None;
        }
        let rows = DMatrix::from_row_slice(count, width, &features[..count * width]);
        let mean = rows.row_mean().transpose();
        let centred = DMatrix::from_fn(count, width, |row, column| rows[(row, column)] - mean[column]);
        let covariance = centred.tr_mul(&centred) / (count as f64 - 1.0);
        Some(Self { mean, covariance })
    }

    /// Returns the Fréchet distance to the distribution that always has these features.
    pub fn distance_to_point(&self, features: &[f64]) -> f64 {
        let width = features.len();
        let point = Self { mean: DVector::from_column_slice(features), covariance: DMatrix::zeros(width, width) };
        point.distance(self)
    }

    /// Returns the sum of the variances of all features.
    pub fn spread(&self) -> f64 {
        self.covariance.trace()
    }

    /// Returns the Fréchet distance |μ₁ − μ₂|² + tr(Σ₁ + Σ₂ − 2·(Σ₁Σ₂)^½). The trace of that root is the sum of the
    /// roots of the eigenvalues of Σ₁^½·Σ₂·Σ₁^½, which is symmetric and has the same ones; those that rounding makes
    /// negative are 0. Infinite where features are no numbers.
    pub fn distance(&self, other: &Self) -> f64 {
        let finite = |one: &Self| one.mean.iter().chain(one.covariance.iter()).all(|x| x.is_finite());
        if !(finite(self) && finite(other)) {
            return f64::INFINITY;
        }
        let root = |x: f64| x.max(0.0).sqrt();
        let SymmetricEigen { eigenvectors, eigenvalues } = SymmetricEigen::new(self.covariance.clone());
        let half = &eigenvectors * DMatrix::from_diagonal(&eigenvalues.map(root)) * eigenvectors.transpose();
        let inner = &half * &other.covariance * &half;
        // Rounding leaves it not quite symmetric.
        let inner = (&inner + inner.transpose()) * 0.5;
        let common: f64 = inner.symmetric_eigenvalues().map(root).sum();
        let apart = (&self.mean - &other.mean).norm_squared();
        (apart + self.spread() + other.spread() - 2.0 * common).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares distances with those by `scipy.linalg.sqrtm` (`tests/golden/gan.py`).
    #[test]
    fn distances_are_those_of_scipy() {
        let table = include_str!("../../../../../tests/golden/gan.txt");
        let mut found = 0;
        let numbers = |text: &str| -> Vec<f64> { text.split(' ').map(|x| x.parse().expect("a number")).collect() };
        let rows = table.lines().filter(|line| line.starts_with("frechet ")).collect::<Vec<_>>();
        for pair in rows.chunks(2) {
            let parts = |line: &'static str| line.split('\t').collect::<Vec<_>>();
            let (features, right) = (parts(pair[0]), parts(pair[1]));
            let (shape, values, right) = (numbers(features[2]), numbers(features[3]), numbers(right[3])[0]);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small sizes")]
            let width = shape[2] as usize;
            let (one, two) = values.split_at(values.len() / 2);
            let [one, two] = [one, two].map(|half| Gaussian::fit(half, width).expect("two rows"));
            let bound = 1e-6 * (one.spread() + two.spread() + right.abs());
            for distance in [one.distance(&two), two.distance(&one)] {
                println!("{}: {distance} {right}", features[0]);
                assert!((distance - right).abs() < bound, "{}: {distance}, not {right}", features[0]);
            }
            found += 1;
        }
        assert_eq!(found, 6);
    }

    #[test]
    fn one_image_and_no_numbers() {
        let real = Gaussian::fit(&[0.0, 1.0, 2.0, 3.0, 4.0, 8.0], 2).expect("three rows");
        assert!((real.distance_to_point(&[2.0, 4.0]) - real.spread()).abs() < 1e-12);
        assert!(Gaussian::fit(&[1.0, 2.0], 2).is_none() && Gaussian::fit(&[], 0).is_none());
        assert!(real.distance_to_point(&[f64::NAN, 0.0]).is_infinite());
    }
}
