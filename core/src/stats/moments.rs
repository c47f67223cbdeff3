//! Sums for the models of the paper, the only part of a row that depends on the order of its values.

use num_traits::Float;

/// Sums of a row for the paper's models: Σu and Σu² over the finite values, Σ ln|u| and Σ ln²|u| over the non-zero
/// ones.
///
/// Sums are accumulated in 16 lanes and blocks of 4096 in f32, blocks in f64. So the relative error of the sums of
/// positive terms is at most 2^-24 · (4096/16 + 16 + 2) plus that of one logarithm: about 2^-15.9, and typically far
/// below. Sums of squares leave the range of f32 outside 2^-63 … 2^60; stored halves stay well inside.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// Sum of the finite values u before rounding: Σu.
    pub sum: f64,
    /// Sum of the squares of the finite values, Σu².
    pub sum_sq: f64,
    /// Sum of logarithms of the non-zero magnitudes, Σ ln|u|.
    pub sum_ln: f64,
    /// Sum of squared logarithms of the non-zero magnitudes, Σ ln²|u|.
    pub sum_ln_sq: f64,
}

const LANES: usize = 16;
const BLOCK: usize = 4096;

impl Moments {
    pub(super) fn observe(&mut self, u: &[f32]) {
        for block in u.chunks(BLOCK) {
            let mut lanes = [[0f32; LANES]; 4];
            for row in block.chunks(LANES) {
                let [sum, sq, ln, ln_sq] = &mut lanes;
                for ((((&u, sum), sq), ln), ln_sq) in row.iter().zip(sum).zip(sq).zip(ln).zip(ln_sq) {
                    if !u.is_finite() || u == 0.0 {
                        continue;
                    }
                    let log = libm::logf(u.abs());
                    *sum += u;
                    *sq += u * u;
                    *ln += log;
                    *ln_sq += log * log;
                }
            }
            let [sum, sq, ln, ln_sq] = lanes.map(|lane| lane.iter().fold(0.0, |total, &x| total + f64::from(x)));
            self.sum += sum;
            self.sum_sq += sq;
            self.sum_ln += ln;
            self.sum_ln_sq += ln_sq;
        }
    }

    pub(super) fn merged(self, other: &Self) -> Self {
        Self {
            sum: self.sum + other.sum,
            sum_sq: self.sum_sq + other.sum_sq,
            sum_ln: self.sum_ln + other.sum_ln,
            sum_ln_sq: self.sum_ln_sq + other.sum_ln_sq,
        }
    }

    pub(super) fn to_array(self) -> [f64; 4] {
        [self.sum, self.sum_sq, self.sum_ln, self.sum_ln_sq]
    }
}

/// Computes mean and standard deviation (of the population) from n, Σx, Σx²; `None` for n = 0 or sums that are not
/// finite.
pub(crate) fn mean_and_spread<F: Float>(n: F, sum: F, sum_sq: F) -> Option<(F, F)> {
    if n <= F::zero() {
        return None;
    }
    let mean = sum / n;
    // Rounding may make the variance of equal values negative.
    let spread = (sum_sq / n - mean * mean).max(F::zero()).sqrt();
    (mean.is_finite() && spread.is_finite()).then_some((mean, spread))
}
