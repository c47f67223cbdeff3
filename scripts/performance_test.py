#!/usr/bin/env python3
"""The pages of scripts/performance.py and scripts/rust_peers.py out of made-up results, and processes that take turns.

The last line starts with PASSED or FAILED (exit status 1).
"""
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
import performance_page as page
import rust_peers
import rust_peers_page
from turns import ROOT, Turns

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


def training(network, threads, seconds, **changed):
    """A row of scripts/rust_peers.py, in which `seconds` are the times of each side."""
    sides = list(rust_peers_page.SIDES)
    losses = {side: [2.5, 2.4, 2.3] for side in sides} | {"gradscale gs": [2.5, 2.401, 2.3]}
    return {"network": network, "threads": threads, "losses": losses, "parameters": dict.fromkeys(sides, 1234),
            "seconds": dict(zip(sides, [[one] * 4 for one in seconds])), "peak": dict(zip(sides, [1e8, 6e7, 2e8, 3e8]))} | changed


class RustPeers(unittest.TestCase):
    ABOUT = {"commit": "abc", "machine": "a machine, 2 cores", "date": "2026-01-01", "cargo": "1.95.0", "flags": "-C x", "load": 0.1}
    BUILDS = [{"name": name, "version": "0.22.1", "crates": 141, "wall": 61.2, "processor": 120.0} for name in rust_peers_page.CRATES]

    def test_pages(self):
        rows = [training(network, threads, [0.02, 0.03, 0.04, 0.1]) for network in rust_peers_page.NETWORKS for threads in (1, 2)]
        rows[1]["seconds"]["burn"] = [0.02, 0.02, 0.02, 0.02]
        found = {"steps": self.ABOUT | {"rows": rows}, "builds": self.ABOUT | {"rows": self.BUILDS}}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            pages = [folder / "performance.md", folder / "README.md"]
            originals = [page.PAGE.read_text(), rust_peers_page.README.read_text()]
            with mock.patch.multiple(rust_peers_page, PAGE=pages[0], README=pages[1]):
                with self.assertRaisesRegex(SystemExit, "no results"):
                    rust_peers_page.write_pages(folder)
                for path, text in zip(pages, originals, strict=True):
                    path.write_text(text)
                (folder / "steps.json").write_text(json.dumps(found["steps"]))
                self.assertEqual(rust_peers_page.write_pages(folder), ["builds"])
                (folder / "builds.json").write_text(json.dumps(found["builds"]))
                for _ in range(2):
                    # The pages as they are have room for the results, which replace those of before.
                    self.assertEqual(rust_peers_page.write_pages(folder), [])
                    performance, readme = (path.read_text() for path in pages)
        section = performance.split(rust_peers_page.MARKS[0])[1].split(rust_peers_page.MARKS[1])[0]
        self.assertIn("| MLP 784 – 1024 – 1024 – 10, 256 images | 1 | 20.0 (20.0 – 20.0) | 30.0 (30.0 – 30.0) | 40.0 (40.0 – 40.0) "
                      "| 100 (100 – 100) | 0.50 (0.50 – 0.50) | 0.20 (0.20 – 0.20) | 1.50 (1.50 – 1.50) |", section)
        self.assertIn("| transformer, 4 layers, width 256, 4 heads, 4 × 128 | 2 | 100 | 60 | 200 | 300 |", section)
        self.assertIn("gradscale gs 4e-04, burn 0e+00, candle 0e+00", section)
        self.assertIn("| burn 0.22.1 | 141 | 61 | 120 |", section)
        self.assertIn("steps of MLP, CNN and transformer in f32 on 2 threads take these shares of their time: 1.00, 0.50 and 0.50 of burn 0.22.1's; "
                      "0.20, 0.20 and 0.20 of candle 0.11.1's", readme)
        self.assertEqual(len(readme.splitlines()), len(originals[1].splitlines()))
        # Every row of a table has the cells of its head.
        for lines in re.findall(r"(?:^\|.*\n)+", section, re.M):
            self.assertEqual(len({line.count("|") for line in lines.splitlines()}), 1, lines)

    def test_trainings_that_differ_are_named(self):
        row = training("mlp", 1, [0.02] * 4)
        self.assertIsNone(rust_peers_page.disagreement(row))
        wrong = {
            "losses of candle differ from those of gradscale f32 by 4.2e-03, more than 1e-04": {"candle": [2.5, 2.41, 2.3]},
            "losses of gradscale gs differ": {"gradscale gs": [2.5, 2.4, 2.33]},
            "a loss is not finite": {"burn": [2.5, float("nan"), 2.3]},
            "hardly changes": dict.fromkeys(rust_peers_page.SIDES, [2.5, 2.5, 2.5]),
        }
        for words, losses in wrong.items():
            self.assertIn(words, rust_peers_page.disagreement(row | {"losses": row["losses"] | losses}))
        counts = row["parameters"] | {"burn": 1235}
        self.assertIn("numbers of parameters differ", rust_peers_page.disagreement(row | {"parameters": counts}))

    def test_failures_of_cargo_are_one_line(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            rust_peers.copy_programs(folder)
            # The engine is found from anywhere, and there is one.
            (found,) = re.findall(r'gradscale = \{ path = "(.*)" \}', (folder / "gradscale/Cargo.toml").read_text())
            self.assertEqual(pathlib.Path(found), ROOT)
            self.assertEqual({path.parent.name for path in folder.glob("*/main.rs")}, set(rust_peers_page.CRATES))
            with mock.patch.dict(os.environ, PATH=name):
                with self.assertRaisesRegex(SystemExit, "cargo is not installed"):
                    rust_peers.run_cargo(folder, "burn", "fetch")
                (folder / "cargo").write_text("#!/bin/sh\necho warning: old >&2\necho error: no network >&2\nexit 101\n")
                (folder / "cargo").chmod(0o755)
                with self.assertRaisesRegex(SystemExit, "^cargo fetch failed for burn: error: no network; all of it: .*cargo.log$"):
                    rust_peers.run_cargo(folder, "burn", "fetch")
        tree = "peer-burn v0.0.0 (/a)\nburn v0.22.1\nserde v1.0.1\nserde_derive v1.0.1 (proc-macro)\nserde v1.0.1 (*)\n"
        self.assertEqual((rust_peers.count_crates(tree), rust_peers.read_version(tree, "burn")), (3, "0.22.1"))


# This check needs nothing to be fetched.
if __name__ == "__main__" and "--fetch" not in sys.argv:
    done = unittest.main(exit=False).result
    print(f"{'PASSED' if done.wasSuccessful() else 'FAILED'}: {done.testsRun} tests")
    sys.exit(not done.wasSuccessful())
