//! Statistics of paired runs: two methods that share first weights, order and noise, seed by seed.
//!
//! `scripts/paired.py` has the same in Python, and both are tested against values that scipy printed.

use crate::record::Spread;
use serde::Serialize;

/// Significance level of two-sided tests and of confidence intervals.
pub const LEVEL: f64 = 0.05;
/// Probability with which a difference of [`Paired::detectable`] would have been found.
pub const POWER: f64 = 0.8;
/// Part of a loss within which two losses count as equal. Fixed before any run: chaos alone moves losses by about this.
pub const LOSS_MARGIN: f64 = 0.005;
/// Share of answers within which two scores count as equal, fixed before any run: one point.
pub const SCORE_MARGIN: f64 = 0.01;

/// Paired differences between two methods over the same seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paired {
    /// Number of seeds that both methods have finished, at least two.
    pub pairs: usize,
    /// Mean of the differences between paired runs.
    pub mean: f64,
    /// Standard deviation of the differences between paired runs.
    pub deviation: f64,
}

/// Verdict of a paired comparison of two methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The methods differ: p is below 0.05.
    Differs,
    /// The methods are equal within the margin, by two one-sided tests.
    Equal,
    /// Neither, though a difference as large as the margin would have been seen.
    NotToldApart,
    /// Neither, and a difference as large as the margin could not have been seen.
    NoTest,
}

impl Paired {
    /// Computes the statistics of differences. `None` for fewer than two, or if one is not finite.
    pub fn new(differences: &[f64]) -> Option<Self> {
        let Spread { mean, deviation } = Spread::new(differences)?;
        let are_finite = differences.iter().all(|difference| difference.is_finite());
        Some(Self { pairs: differences.len(), mean, deviation: deviation.filter(|_| are_finite)? })
    }

    fn error(&self) -> f64 {
        self.deviation / (self.pairs as f64).sqrt()
    }

    fn student(&self) -> Student {
        Student { freedom: self.pairs - 1 }
    }

    /// Returns a difference in standard errors. Pairs that are all the same leave no doubt.
    fn ratio(&self, difference: f64) -> f64 {
        if difference == 0.0 { 0.0 } else { difference / self.error() }
    }

    /// Returns the two-sided p-value of the hypothesis that there is no difference.
    pub fn p(&self) -> f64 {
        2.0 * self.student().above(self.ratio(self.mean).abs())
    }

    /// Returns half of the width of [`Paired::interval`]: the largest mean that chance explains.
    pub fn half_width(&self) -> f64 {
        self.student().quantile(1.0 - LEVEL / 2.0) * self.error()
    }

    /// Returns the 95 % confidence interval of the mean difference.
    pub fn interval(&self) -> [f64; 2] {
        let half = self.half_width();
        [self.mean - half, self.mean + half]
    }

    /// Returns the smallest difference that would have been found with a probability of [`POWER`].
    pub fn detectable(&self) -> f64 {
        let student = self.student();
        (student.quantile(1.0 - LEVEL / 2.0) + student.quantile(POWER)) * self.error()
    }

    /// Returns the p-value of two one-sided tests (TOST), which is small if the difference is within ± `margin`.
    pub fn equivalence_p(&self, margin: f64) -> f64 {
        if margin.is_nan() || margin <= 0.0 {
            return 1.0;
        }
        let student = self.student();
        student.above(self.ratio(self.mean + margin)).max(student.above(self.ratio(margin - self.mean)))
    }

    /// Returns the verdict for a margin that was fixed beforehand.
    pub fn verdict(&self, margin: f64) -> Verdict {
        if self.p() < LEVEL {
            Verdict::Differs
        } else if self.equivalence_p(margin) < LEVEL {
            Verdict::Equal
        } else if self.detectable() > margin {
            Verdict::NoTest
        } else {
            Verdict::NotToldApart
        }
    }
}

/// Student's t distribution with a whole number of degrees of freedom.
#[derive(Clone, Copy, Debug)]
struct Student {
    freedom: usize,
}

impl Student {
    /// Returns the probability of |T| < |t| by the finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4.
    fn within(self, t: f64) -> f64 {
        let theta = (t.abs() / (self.freedom as f64).sqrt()).atan();
        let (sine, cosine) = theta.sin_cos();
        let odd = !self.freedom.is_multiple_of(2);
        let (mut term, mut sum) = (if odd { cosine } else { 1.0 }, 0.0);
        for power in (if odd { 3 } else { 2 }..=self.freedom).step_by(2) {
            sum += term;
            term *= cosine * cosine * (power - 1) as f64 / power as f64;
        }
        if odd { std::f64::consts::FRAC_2_PI * (theta + sine * sum) } else { sine * sum }
    }

    /// Returns the probability that Student's T is greater than t.
    fn above(self, t: f64) -> f64 {
        let tail = (1.0 - self.within(t)) / 2.0;
        if t >= 0.0 { tail } else { 1.0 - tail }
    }

    /// Returns the quantile of T for a probability of at least one half and below one.
    fn quantile(self, probability: f64) -> f64 {
        let inside = 2.0 * probability - 1.0;
        let (mut low, mut high) = (0.0, 1.0);
        while self.within(high) < inside {
            high *= 2.0;
        }
        // As many halvings as a number has digits, and a few more.
        for _ in 0..80 {
            let middle = f64::midpoint(low, high);
            if self.within(middle) < inside { low = middle } else { high = middle }
        }
        f64::midpoint(low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(got: f64, want: f64) {
        assert!((got - want).abs() <= 1e-10 * want.abs().max(1.0), "{got} is not {want}");
    }

    /// scipy 1.17.1: `for f in (1, 2, 3, 4, 7, 9, 19, 30, 99): stats.t.ppf(.975, f), stats.t.ppf(.8, f),
    /// 2 * stats.t.sf(1.5, f), stats.t.sf(-2.5, f)`.
    #[test]
    fn student_is_scipys() {
        for (freedom, quantile, of_power, two_sided, above) in [
            (1, 12.706204736174694, 1.3763819204711738, 0.3743340836219977, 0.8788810584091566),
            (2, 4.302652729749462, 1.0606601717798214, 0.2723931248910011, 0.9351941398892446),
            (3, 3.1824463052837078, 0.9784723123633042, 0.23058386524482294, 0.9561466764959672),
            (4, 2.7764451051977934, 0.9409645772351816, 0.208, 0.966616727594006),
            (7, 2.364624251592784, 0.8960296443137653, 0.17729848698997, 0.9795038907071235),
            (9, 2.262157162798205, 0.8834038596855346, 0.16785065605707505, 0.9830690861585072),
            (19, 2.0930240544083087, 0.8609505502689286, 0.15004853074227162, 0.9891297944158013),
            (30, 2.0422724563012378, 0.8537672614712979, 0.144065929128646, 0.9909421754659666),
            (99, 1.9842169515864174, 0.8452670319534972, 0.13679681771597335, 0.9929687015394255),
        ] {
            let student = Student { freedom };
            near(student.quantile(0.975), quantile);
            near(student.quantile(0.8), of_power);
            near(2.0 * student.above(1.5), two_sided);
            near(student.above(-2.5), above);
        }
    }

    /// scipy 1.17.1, of differences `d` and a margin `m`: `r = stats.ttest_1samp(d, 0.0)`, `r.pvalue`,
    /// `r.confidence_interval(.95)`, the larger p of `ttest_1samp(d, -m, alternative="greater")` and
    /// `ttest_1samp(d, m, alternative="less")`, `(stats.t.ppf(.975, n - 1) + stats.t.ppf(.8, n - 1)) * stats.sem(d)`.
    #[test]
    fn tests_are_scipys() {
        type Reference<'a> = (&'a [f64], f64, f64, [f64; 2], f64, f64);
        let sets: [Reference<'_>; 3] = [
            (
                &[0.0041, -0.0012, 0.0063, 0.0008, 0.0029, 0.0035, -0.0004],
                0.005,
                0.06423888964584537,
                [-0.00018521589157172646, 0.004756644463000299],
                0.01807676933887529,
                0.003385523638416402,
            ),
            (&[0.5, 1.5], 1.0, 0.2951672353008665, [-5.353102368087347, 7.353102368087347], 0.5, 7.041293328322934),
            (
                &[0.13, -0.62, 0.74, 0.31, -0.05, -0.88, 0.42, 0.09, 1.2, -0.36],
                1.0,
                0.6301683668771987,
                [-0.34682444486451475, 0.5428244448645148],
                0.0006571996043131904,
                0.6185345822228364,
            ),
        ];
        for (differences, margin, p, interval, tost, detectable) in sets {
            let paired = Paired::new(differences).expect("pairs");
            near(paired.p(), p);
            near(paired.interval()[0], interval[0]);
            near(paired.interval()[1], interval[1]);
            near(paired.equivalence_p(margin), tost);
            near(paired.detectable(), detectable);
        }
    }

    #[test]
    fn verdicts() {
        let verdict = |differences: &[f64], margin| Paired::new(differences).expect("pairs").verdict(margin);
        assert_eq!(verdict(&[0.001, -0.001, 0.0005, -0.0005], 1.0), Verdict::Equal);
        assert_eq!(verdict(&[5.0, 5.1, 4.9, 5.2], 1.0), Verdict::Differs);
        assert_eq!(verdict(&[20.0, -18.0, 3.0], 7.0), Verdict::NoTest);
        assert_eq!(verdict(&[1.5, -1.0, 1.2, -0.4, 0.9], 2.0), Verdict::Equal);
        assert_eq!(verdict(&[1.0, 0.9, -0.5, 1.2, 0.4], 1.2), Verdict::NotToldApart);
        // The same bits in all seeds.
        assert_eq!(verdict(&[0.0; 3], 1e-9), Verdict::Equal);
        assert_eq!(verdict(&[2.0; 3], 0.1), Verdict::Differs);
        // Nothing is within no margin.
        assert_eq!(verdict(&[1e-9, -1e-9], 0.0), Verdict::NoTest);
        for wrong in [&[][..], &[1.0], &[1.0, f64::NAN]] {
            assert_eq!(Paired::new(wrong), None);
        }
    }

    /// Checks the error rates by 2000 draws of eight pairs each, whose rates have a standard error of 0.005 at a rate
    /// of 0.05 and 0.009 at 0.8.
    #[test]
    fn rates_of_errors_by_simulation() {
        let mut random = crate::data::Random::from_key(&[7]);
        let mut unit = || ((random.word() >> 12) as f64 + 0.5) * 2f64.powi(-52);
        let mut normal = || (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
        let mut share = |mean: f64, holds: &dyn Fn(Paired) -> bool| {
            let hold = (0..2000).filter(|_| {
                let differences: Vec<f64> = (0..8).map(|_| mean + normal()).collect();
                holds(Paired::new(&differences).expect("pairs"))
            });
            hold.count() as f64 / 2000.0
        };
        let student = Student { freedom: 7 };
        let size = (student.quantile(0.975) + student.quantile(POWER)) / 8f64.sqrt();
        let near = |got: f64, want: f64, by: f64| assert!((got - want).abs() < by, "{got} is not about {want}");
        near(share(0.0, &|paired| paired.p() < LEVEL), 0.05, 0.02);
        // The worst case: the true difference is the margin.
        near(share(1.5, &|paired| paired.equivalence_p(1.5) < LEVEL), 0.05, 0.02);
        near(share(size, &|paired| paired.p() < LEVEL), POWER, 0.04);
        near(share(0.3, &|paired| paired.interval()[0] <= 0.3 && 0.3 <= paired.interval()[1]), 0.95, 0.02);
    }
}
