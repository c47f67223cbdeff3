#!/usr/bin/env python3
"""Tests of scripts/test_times.py.

`--fetch` fetches nothing, because nothing is needed.
"""
import sys
import unittest
from collections import namedtuple

import test_times

Result = namedtuple("Result", "name wall processors verdict")
RESULTS = [
    Result("build", 400, 700, "PASSED"),
    Result("claims", 1, 0, "PASSED"),
    Result("cli: fuzz", 9, 20, "FAILED"),
    Result("cli: plan", 2, 3, "PASSED"),
    Result("cli: train", 2, 4, "PASSED"),
    Result("web: training", 1, 1, "PASSED"),
]
PAGE = f"before\n{test_times.MARKS[0]}\nold\n{test_times.MARKS[1]}\nafter\n"


def page(results, released="", before=()):
    return test_times.with_table(PAGE, "head", test_times.rows(results), released, dict(before))


class Table(unittest.TestCase):
    def test_short_programs_share_a_row(self):
        text = page(RESULTS)
        self.assertIn("| cli: 2 more | 4 | 7 |", text)
        self.assertIn("| cli: fuzz (failed) | 9 | 20 |", text)
        self.assertIn("| build | 400 | 700 | all test programs, from nothing |", text)
        self.assertTrue(text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text)

    def test_parts_are_compared_with_the_last_release(self):
        then = test_times.read(page(RESULTS[:1] + RESULTS[3:]))
        self.assertEqual(then, {"build": 700, "cli: more": 7})
        slower = [Result("build", 450, 801, "PASSED"), *RESULTS[1:], Result("cli: window", 1, 1, "PASSED")]
        text = page(slower, "v0.1.0", then)
        self.assertIn("| part | seconds | of processors | at v0.1.0 | what it alone proves |", text)
        self.assertIn("| build | 450 | 801 | 700 | all test programs, from nothing |", text)
        self.assertIn("| claims | 1 | 0 | new |", text)
        self.assertIn("| cli: 3 more | 5 | 8 | 7 |", text)
        # A table with the additional column is read like one without.
        self.assertEqual(test_times.read(text)["build"], 801)

    def test_rows_have_a_cell_for_each_column(self):
        for released in "", "v0.1.0":
            table = [line for line in page(RESULTS, released).splitlines() if line.startswith("|")]
            self.assertEqual(len({line.count("|") for line in table}), 1, table)


if __name__ == "__main__":
    if sys.argv[1:] == ["--fetch"]:
        sys.exit()
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    print(f"PASSED: {result.testsRun} tests" if result.wasSuccessful() else "FAILED: see above")
    sys.exit(not result.wasSuccessful())
