#!/usr/bin/env python3
"""The page of scripts/performance.py out of made-up results, and processes that take turns.

The last line starts with PASSED or FAILED (exit status 1).
"""
import json
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import performance_page as page
from turns import Turns

ABOUT = {"commit": "abc", "machine": "a machine, 2 cores", "instructions": "AVX2", "date": "2026-01-01", "quick": False, "profile": "release", "load": 0.1,
         "peers": {"OpenBLAS": "0.3.30 (Haswell)", "torch": "2.15"}}


def product(case, ours, **theirs):
    names = {"blas": "OpenBLAS sgemm", "crate": "`gemm` crate, f32", "torch": "PyTorch f32", "onednn": "oneDNN f32"}
    return {"case": case, "amount": 1e9, "unit": "GMAC/s", "limit": 100.0, "peak": 100.0, "copy": 40.0, "beside": "", "threads": 1,
            "ours": ours, "theirs": {names[name]: values for name, values in theirs.items()}}


def step(network, sizes, ours, **theirs):
    names = {"f32": "PyTorch f32", "last": "PyTorch f32, channels last", "bf16": "PyTorch bf16"}
    return {"network": network, "sizes": sizes, "threads": 2, "ours": ours, "theirs": {names[name]: of for name, of in theirs.items()}}


class Page(unittest.TestCase):
    def cells(self, part, row):
        """Rows by column."""
        return [dict(zip(page.COLUMNS, cells, strict=True)) for cells in page.CELLS[part](row)]

    def test_goals(self):
        less, more = page.Goal(0.8, 1.0, True), page.Goal(0.95, 0.85)
        self.assertEqual([less.outcome(ratio) for ratio in (0.8, 0.88, 1.25)],
                         ["goal", "floor; 10 % short of the goal", "**missed** by 25 %"])
        self.assertEqual([more.outcome(ratio) for ratio in (0.95, 0.855, 0.68)],
                         ["goal", "floor; 10 % short of the goal", "**missed** by 20 %"])

    def test_a_step_is_compared_with_the_faster_layout_and_with_bf16(self):
        f32, bf16 = self.cells("steps", step("segnet", [16, 12, 90, 120], [0.09] * 3, f32=[0.12] * 3, last=[0.1] * 3, bf16=[0.06] * 3))
        self.assertEqual((f32["baseline"], f32["ratio (quartiles)"]), ("PyTorch f32, channels last", "0.90 (0.90 – 0.90)"))
        self.assertTrue(f32["outcome"].startswith("floor"))
        self.assertEqual((bf16["ratio (quartiles)"], bf16["outcome"]), ("1.50 (1.50 – 1.50)", "**missed** by 7 %"))
        (gru,) = self.cells("steps", step("gru", [16, 64, 1000, 128, 256, 2], [0.1], f32=[0.2]))
        self.assertEqual((gru["ratio (quartiles)"], gru["outcome"]), ("0.50", "goal"))

    def test_a_ratio_is_that_of_each_turn(self):
        # The whole machine was slow in the second turn: that is no difference between both.
        (row,) = self.cells("gemm", product("gemm 256³, f16", [0.1, 1.0, 0.1], blas=[0.1, 1.0, 0.1], torch=[0.05] * 3))
        self.assertEqual((row["baseline"], row["ratio (quartiles)"]), ("OpenBLAS sgemm", "1.00 (1.00 – 1.00)"))
        self.assertIn("PyTorch f32", row["others"])

    def test_training_shapes_meet_the_best_peer(self):
        (row,) = self.cells("shapes", product("gemm 9×8×7, f16", [0.1] * 3, blas=[0.2] * 3, crate=[0.05] * 3, torch=[0.1] * 3))
        self.assertEqual((row["baseline"], row["outcome"]), ("`gemm` crate, f32", "**missed** by 33 %"))

    def test_elements_are_measured_by_the_copy_of_their_turn(self):
        row = product("norm", [0.1] * 3, torch=[0.2] * 3)
        # At 40 GB/s of copy the limit is 100. Here the copy is half as fast, so the limit is 50.
        row["theirs"]["copy"] = [page.COPIED / 20e9] * 3
        (cells,) = self.cells("elements", row)
        self.assertIn("0.20 (0.20 – 0.20) of the copy; 2.00 (2.00 – 2.00) × PyTorch", cells["ratio (quartiles)"])
        self.assertEqual(cells["outcome"], "goal")
        row["theirs"]["PyTorch f32"] = [0.05] * 3
        self.assertEqual(self.cells("elements", row)[0]["outcome"], "**missed**: 50 % behind PyTorch")

    def test_weak_baselines_are_named(self):
        found = ABOUT | {"rows": [product("gemm 256³, f16", [0.01], blas=[0.02]), product("gemm 512³, f16", [0.01], blas=[0.011])]}
        self.assertEqual(page.weak("gemm", found), ["gemm 256³, f16, 1 thread: OpenBLAS sgemm reaches 50 % of the peak"])
        self.assertIn("OpenBLAS 0.3.30 (Haswell): not its widest kernel", page.weak("gemm", found | {"instructions": "AVX-512"}))

    def test_other_machines_and_what_people_wrote_stay(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            rows = [product("gemm 256³, f16", [0.011], blas=[0.011])]
            (folder / "gemm.json").write_text(json.dumps(ABOUT | {"rows": rows}))
            machine, text, missing = page.measured(folder, ["gemm", "steps"])
            (folder / "steps.json").write_text(json.dumps(ABOUT | {"instructions": "AVX-512", "rows": []}))
            with self.assertRaises(SystemExit):
                page.measured(folder, ["gemm", "steps"])
        self.assertEqual((machine, missing), ("a machine, 2 cores, AVX2", ["steps"]))
        first, last = (mark.format(machine) for mark in page.MARKS)
        other = "\n".join(mark.format("another") for mark in page.MARKS)
        before = f"# Head\n\n{first}\nold\n{last}\n\n{other}\n\n{page.END_OF_MACHINES}\n\nWhat bounds it.\n"
        after = page.placed(text, machine, before)
        self.assertTrue(after.startswith("# Head\n") and after.endswith(f"\n\n{other}\n\n{page.END_OF_MACHINES}\n\nWhat bounds it.\n"))
        self.assertNotIn("old", after)
        self.assertIn("| gemm 256³, f16 | 1 | OpenBLAS sgemm | 90.9 GMAC/s | 90.9 GMAC/s | 1.00 | ≥ 0.95 | ≥ 0.85 | goal |  |", after)
        self.assertEqual(page.placed(text, machine, after), after)
        added = page.placed(text, "new", after)
        self.assertIn(f"{page.MARKS[1].format('new')}\n\n{page.END_OF_MACHINES}", added)
        self.assertTrue(added.startswith(after[: after.index(page.END_OF_MACHINES)]))
        for broken in ("# Without marks\n", f"{last}\n{first}\n{page.END_OF_MACHINES}"):
            with self.assertRaises(ValueError):
                page.placed(text, machine, broken)
        # The page itself has room for more.
        page.placed(text, machine, page.PAGE.read_text())

    def test_instruction_sets_meet_the_widest(self):
        row = product("gemm 1024³, f16", [0.2]) | {"isa": "AVX2", "theirs": {"AVX-512": [0.1]}}
        (cells,) = self.cells("isa", row)
        self.assertEqual((cells["baseline"], cells["ratio (quartiles)"], cells["outcome"]), ("half of AVX-512's rate", "1.00", "goal"))
        (cells,) = self.cells("isa", row | {"isa": "portable", "theirs": {"AVX2": [0.1]}})
        self.assertEqual((cells["baseline"], cells["ratio (quartiles)"], cells["outcome"]), ("AVX2's rate", "0.50", "–"))

    def test_a_slow_bf16_is_a_weak_baseline(self):
        rows = [step("segnet", [16, 12, 90, 120], [0.09], f32=[0.1], bf16=[bf16]) for bf16 in (0.05, 2.0)]
        self.assertEqual(page.weak("steps", ABOUT | {"rows": rows}),
                         ["SegNetBasic, 16 channels, 12 × 90 × 120, 2 threads: PyTorch bf16 takes 20.0 times as long as PyTorch f32"])

    def test_slopes(self):
        self.assertAlmostEqual(page.slope([(1, 3.0), (2, 12.0), (4, 48.0)]), 2.0)
        rows = [step("segnet", [16, n, 90, 120], [0.01 * n], f32=[0.02], last=[0.03])
                | {"series": "images", "memory": {"ours": n * 1e6, "PyTorch f32": n * 2e6}} for n in (1, 2)]
        of = lambda drawn: page.series({"rows": rows}, drawn)["images"]
        self.assertEqual(of("ms of a step"), {"ours": [(1, 10.0), (2, 20.0)], "PyTorch f32": [(1, 20.0), (2, 20.0)]})
        self.assertEqual(of("MB of a step"), {"ours": [(1, 1.0), (2, 2.0)], "PyTorch f32": [(1, 2.0), (2, 4.0)]})

    def test_turns(self):
        answers = "import sys\nprint('talk', flush=True)\nfor line in sys.stdin: print('{\"said\": \"' + line.strip() + '\"}', flush=True)"
        with Turns([sys.executable, "-c", answers]) as one:
            self.assertEqual([one.ask("a"), one.ask("b")], [{"said": "a"}, {"said": "b"}])
        with Turns([sys.executable, "-c", ""]) as one:
            self.assertIsNone(one.read())
        with self.assertRaises(SystemExit), Turns([sys.executable, "-c", "raise SystemExit(3)"]) as one:
            one.read()


# This check needs nothing to be fetched.
if __name__ == "__main__" and "--fetch" not in sys.argv:
    done = unittest.main(exit=False).result
    print(f"{'PASSED' if done.wasSuccessful() else 'FAILED'}: {done.testsRun} tests")
    sys.exit(not done.wasSuccessful())
