#!/usr/bin/env python3
"""Tests of scripts/paired.py: against values of scipy 1.17.1, and by simulation.

The values below were printed by this command, with TABLE and SETS as in this file:

    python3 -c 'from scipy import stats; import numpy as np
    for f in (1, 2, 3, 4, 7, 9, 19, 30, 99):
        print(f, stats.t.ppf(.975, f), stats.t.ppf(.8, f), 2 * stats.t.sf(1.5, f), stats.t.sf(-2.5, f))
    for d, m in SETS:
        n, r = len(d), stats.ttest_1samp(d, 0.0)
        tost = max(stats.ttest_1samp(d, -m, alternative="greater").pvalue, stats.ttest_1samp(d, m, alternative="less").pvalue)
        print(r.statistic, r.pvalue, r.confidence_interval(.95), r.confidence_interval(.9), tost,
              (stats.t.ppf(.975, n - 1) + stats.t.ppf(.8, n - 1)) * stats.sem(d))'
"""
import math
import random
import sys
import unittest

import paired
from paired import Paired

TABLE = [
    (1, 12.706204736174694, 1.3763819204711738, 0.3743340836219977, 0.8788810584091566),
    (2, 4.302652729749462, 1.0606601717798214, 0.2723931248910011, 0.9351941398892446),
    (3, 3.1824463052837078, 0.9784723123633042, 0.23058386524482294, 0.9561466764959672),
    (4, 2.7764451051977934, 0.9409645772351816, 0.208, 0.966616727594006),
    (7, 2.364624251592784, 0.8960296443137653, 0.17729848698997, 0.9795038907071235),
    (9, 2.262157162798205, 0.8834038596855346, 0.16785065605707505, 0.9830690861585072),
    (19, 2.0930240544083087, 0.8609505502689286, 0.15004853074227162, 0.9891297944158013),
    (30, 2.0422724563012378, 0.8537672614712979, 0.144065929128646, 0.9909421754659666),
    (99, 1.9842169515864174, 0.8452670319534972, 0.13679681771597335, 0.9929687015394255),
]
# Differences, margin; t, p, 95 % interval, 90 % interval, p of TOST, smallest difference that would have been seen.
SETS = [
    ([0.0041, -0.0012, 0.0063, 0.0008, 0.0029, 0.0035, -0.0004], 0.005, 2.26349632436347, 0.06423888964584537,
     (-0.00018521589157172646, 0.004756644463000299), (0.000323460192749871, 0.004247968378678699), 0.01807676933887529, 0.003385523638416402),
    ([0.5, 1.5], 1.0, 2.0, 0.2951672353008665, (-5.353102368087347, 7.353102368087347), (-2.1568757573375223, 4.156875757337518), 0.5, 7.041293328322934),
    ([0.13, -0.62, 0.74, 0.31, -0.05, -0.88, 0.42, 0.09, 1.2, -0.36], 1.0, 0.49837953941975277, 0.6301683668771987,
     (-0.34682444486451475, 0.5428244448645148), (-0.2624583519007747, 0.45845835190077455), 0.0006571996043131904, 0.6185345822228364),
]


class AgainstScipy(unittest.TestCase):
    def near(self, got, want):
        self.assertLess(abs(got - want), 1e-10 * max(1, abs(want)))

    def test_student(self):
        for freedom, ppf, ppf_power, two_sided, upper in TABLE:
            self.near(paired.quantile(.975, freedom), ppf)
            self.near(paired.quantile(.8, freedom), ppf_power)
            self.near(2 * paired.above(1.5, freedom), two_sided)
            self.near(paired.above(-2.5, freedom), upper)

    def test_sets(self):
        for differences, margin, t, p, interval, narrower, tost, detectable in SETS:
            pairs = Paired(differences)
            self.near(pairs.ratio(pairs.mean), t)
            self.near(pairs.p, p)
            for got, want in zip(pairs.interval() + pairs.interval(.9), interval + narrower):
                self.near(got, want)
            self.near(pairs.equivalence_p(margin), tost)
            self.near(pairs.detectable, detectable)


class Verdicts(unittest.TestCase):
    def test_each(self):
        same = [0.001, -0.001, 0.0005, -0.0005]
        self.assertEqual(Paired(same).verdict(1.0), "equal")
        self.assertEqual(Paired([5.0, 5.1, 4.9, 5.2]).verdict(1.0), "differs")
        # A spread of 20 points cannot test a claim of 7.
        self.assertEqual(Paired([20.0, -18.0, 3.0]).verdict(1.0, claim=7.0), "no test")
        # Nearly: it would have seen 7, and the interval is wider than the margin.
        self.assertEqual(Paired([1.5, -1.0, 1.2, -0.4, 0.9]).verdict(1.0, claim=7.0), "not told apart")
        self.assertEqual(Paired([1.5, -1.0, 1.2, -0.4, 0.9]).verdict(1.0), "no test")

    def test_pairs_without_a_spread(self):
        zero = Paired([0.0, 0.0, 0.0])
        self.assertEqual((zero.p, zero.detectable, zero.verdict(.1)), (1.0, 0.0, "equal"))
        self.assertEqual(Paired([2.0, 2.0, 2.0]).verdict(.1), "differs")

    def test_text(self):
        self.assertEqual(Paired([1.5, 0.5]).text(2), "+1.00 [-5.35, +7.35], n = 2")
        self.assertEqual(Paired([1e-9, -2e-9]).text(3), "+0.000 [+0.000, +0.000], n = 2")

    def test_claims(self):
        import workloads

        claim = lambda expects, size=7.0: workloads.Claim("", "", "map", "gs", "dynamic", expects, size)
        said = lambda expects, differences, baseline=60.0: claim(expects).verdict(Paired(differences), baseline)
        self.assertEqual(said("above", [20.0, -18.0, 3.0]), "no test: only 58.9 or more would have been seen, for a claim of 7.0")
        self.assertEqual(said("above", [7.0, 8.0, 7.5]), "reproduced")
        self.assertEqual(said("above", [-7.0, -8.0, -7.5]), "refuted here")
        self.assertEqual(said("above", [.01, -.01, .02]), "refuted here: equal within 1 point")
        self.assertTrue(said("equal", [1.0, -1.0, .5]).startswith("no test: only "))
        self.assertEqual(said("equal", [.01, -.01, .02]), "reproduced: equal within 1 point")
        self.assertEqual(said("diverges", [-50.0, -55.0, -52.0]), "reproduced")
        self.assertEqual(said("diverges", [-2.0, 1.0, .5]), "not at this size: it does not diverge")
        self.assertTrue(said("diverges", [-90.0, 20.0, -10.0]).startswith("no test"))

    def test_what_is_no_pair(self):
        for wrong in ([], [1.0], [1.0, math.nan]):
            with self.assertRaises(ValueError):
                Paired(wrong)


class Simulation(unittest.TestCase):
    """Rates over 4000 draws of eight pairs each have a standard error of at most .008."""

    def share(self, mean, condition, draws=4000, pairs=8, seed=5):
        draw = random.Random(seed)
        return sum(condition(Paired([draw.gauss(mean, 1.0) for _ in range(pairs)])) for _ in range(draws)) / draws

    def test_five_in_a_hundred_differ_by_chance(self):
        self.assertAlmostEqual(self.share(0.0, lambda pairs: pairs.p < .05), .05, delta=.012)

    def test_intervals_cover(self):
        covers = lambda pairs: pairs.interval()[0] <= .3 <= pairs.interval()[1]
        self.assertAlmostEqual(self.share(.3, covers, 1500), .95, delta=.02)

    def test_equality_is_claimed_wrongly_in_five_of_a_hundred(self):
        # The true difference is the margin: the worst case.
        self.assertAlmostEqual(self.share(1.5, lambda pairs: pairs.equivalence_p(1.5) < .05), .05, delta=.012)

    def test_power(self):
        # With true deviation 1, a difference of (t + t)/√8 is detected in about 80 % (slightly fewer, because the
        # deviation is estimated too).
        size = (paired.quantile(.975, 7) + paired.quantile(.8, 7)) / math.sqrt(8)
        self.assertAlmostEqual(self.share(size, lambda pairs: pairs.p < .05), .8, delta=.03)


# This check needs nothing to be fetched.
if __name__ == "__main__" and "--fetch" not in sys.argv:
    unittest.main()
