"""Statistics of paired runs, with the standard library alone: the same as `gradscale compare` prints.

Methods share initial weights, order and noise of each seed, so methods are compared seed by seed. The analysed quantity
is the difference of a pair. `scripts/paired_test.py` compares every number with scipy's.
"""
import math
import statistics

# Two-sided level of tests, and the chance with which a difference of `detectable` would have been seen.
LEVEL = 0.05
POWER = 0.8
# Differences that count as none, fixed before any run: half a percent of a loss, one point of a score in percent.
LOSS_MARGIN = 0.005
SCORE_MARGIN = 1.0


def within(t, freedom):
    """Probability that |T| < |t| for Student's t with a whole number of degrees of freedom, by the finite sums of
    Abramowitz and Stegun 26.7.3 and 26.7.4."""
    if math.isinf(t):
        return 1.0
    theta = math.atan(abs(t) / math.sqrt(freedom))
    cosine = math.cos(theta)
    odd = freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    # Odd: cos + 2/3 cos³ + …, even: 1 + 1/2 cos² + …, up to cos^(freedom − 2).
    for power in range(2 if not odd else 3, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (power - 1) / power
    if odd:
        return 2 / math.pi * (theta + math.sin(theta) * total)
    return math.sin(theta) * total


def quantile(probability, freedom):
    """Quantile of Student's t distribution, for a probability of at least one half."""
    low, high = 0.0, 1.0
    inside = 2 * probability - 1
    while within(high, freedom) < inside:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, freedom) < inside else (low, middle)
    return (low + high) / 2


def above(t, freedom):
    """Probability that Student's t is above t."""
    tail = (1 - within(t, freedom)) / 2
    return tail if t >= 0 else 1 - tail


class Paired:
    """Differences of two methods over the same seeds, at least two."""

    def __init__(self, differences):
        self.differences = list(differences)
        self.pairs = len(self.differences)
        if self.pairs < 2 or not all(map(math.isfinite, self.differences)):
            raise ValueError("at least two finite differences are needed")
        self.mean = statistics.mean(self.differences)
        self.deviation = statistics.stdev(self.differences)
        self.error = self.deviation / math.sqrt(self.pairs)

    def ratio(self, difference):
        """A difference in standard errors; pairs that are all the same leave no doubt."""
        if self.error > 0:
            return difference / self.error
        return math.copysign(math.inf, difference) if difference else 0.0

    @property
    def p(self):
        """Two-sided p of no difference."""
        return 2 * above(abs(self.ratio(self.mean)), self.pairs - 1)

    def interval(self, confidence=1 - LEVEL):
        half = quantile((1 + confidence) / 2, self.pairs - 1) * self.error
        return self.mean - half, self.mean + half

    @property
    def detectable(self):
        """The smallest difference that would have been seen with a probability of `POWER`."""
        freedom = self.pairs - 1
        return (quantile(1 - LEVEL / 2, freedom) + quantile(POWER, freedom)) * self.error

    def equivalence_p(self, margin):
        """p value of two one-sided tests (TOST), which is small if the difference is within ± margin."""
        if not margin > 0:
            return 1.0
        return max(above(self.ratio(self.mean + margin), self.pairs - 1), above(self.ratio(margin - self.mean), self.pairs - 1))

    def verdict(self, margin, claim=None):
        """`differs`, `equal` within the margin, `no test` of a claim that is too small to detect, or `not told
        apart`."""
        if self.p < LEVEL:
            return "differs"
        if self.equivalence_p(margin) < LEVEL:
            return "equal"
        if self.detectable > abs(margin if claim is None else claim):
            return "no test"
        return "not told apart"

    def text(self, digits):
        """Mean difference, its 95 % interval and the number of pairs, with this number of digits."""
        low, high = self.interval()
        # No negative zero.
        number = lambda value: f"{round(value, digits) + 0.0:+.{digits}f}"
        return f"{number(self.mean)} [{number(low)}, {number(high)}], n = {self.pairs}"
