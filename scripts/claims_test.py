#!/usr/bin/env python3
"""Tests that docs/claims.md, the section of Table 3 and their figures are those of the records."""
import pathlib
import sys
import tempfile
import threading
import unittest

import claims
import eight_bits
import layer_scales
import master_weights
import predicted
import records
import regimes
import study
import table3
import workloads
from study import Study


class Claims(unittest.TestCase):
    def test_the_page_is_that_of_the_records(self):
        self.assertEqual(claims.PAGE.read_text(), claims.render(), "run scripts/claims.py")

    def test_figures_are_read(self):
        self.assertRegex(claims.science("fp16", "mIoU %"), r"^\d+\.\d ± \d+\.\d$")
        self.assertRegex(claims.gpu("segnet step: scaling on / off"), r"^\d\.\d+$")
        self.assertTrue(claims.observed("ResNet-18: all within 0.7 points, gs"))

    def test_a_figure_that_is_not_there_stops(self):
        for wrong in (lambda: claims.science("fp17", "mIoU %"), lambda: claims.science("fp16", "mAP %"), lambda: claims.gpu("nothing"),
                      lambda: claims.table_rows("docs/science.md", "Table 4"), lambda: claims.natural_score("bad_image", "none")):
            with self.assertRaises(KeyError):
                wrong()

    def test_a_claim_needs_a_verdict(self):
        with self.assertRaises(ValueError):
            claims.Claim("X", "", "perhaps", "", "")


def rows(differences, method="gs:authors", baseline="zhao"):
    """A made-up record: the baseline has a score of 20 everywhere."""
    of = lambda name, seed, score: {"method": name, "seed": str(seed), "miou": str(score), "loss_last_half": "1", "loss_first_tenth": "2"}
    found = [of(method, seed, 20 + value) for seed, value in enumerate(differences)]
    return found + [of(baseline, seed, 20) for seed in range(len(differences))]


class Studies(unittest.TestCase):
    def test_sections_are_those_of_the_records(self):
        for one in (table3, master_weights):
            text = one.STUDY.page.read_text()
            self.assertEqual(text.count(one.STUDY.marks[0]), 1)
            self.assertEqual(text, one.STUDY.between_marks(text, one.section(one.STUDY.shown_rows())), f"run scripts/{one.STUDY.name}.py")

    def test_workloads_are_those_of_the_records(self):
        self.assertEqual((claims.ROOT / "docs/workloads.md").read_text(), workloads.render(), "run scripts/workloads.py")
        self.assertEqual((claims.ROOT / "docs/eight-bits.md").read_text(), eight_bits.render(), "run scripts/eight_bits.py")

    def test_every_workload_is_trained_by_every_method(self):
        for workload in workloads.WORKLOADS:
            trained = {(row["method"], int(row["seed"])) for row in workload.read_rows()}
            self.assertEqual(trained, {(method, seed) for method in workload.methods for seed in range(workloads.SEEDS)}, workload.network)

    def test_seeds_of_methods_beside_the_question(self):
        some, trained = Study("x", "docs/science.md", "", [], 9, ["a", "b"], [], [("miou", "mIoU")], ["b"]), []
        some.read_rows = lambda: [{"method": "a", "seed": "0", "steps": "9"}]
        some.train = lambda data, results, program, method, seed, steps: trained.append((method, seed))
        some.train_missing(None, None, None, some.methods, 5, 9)
        self.assertEqual(trained, [("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3), ("a", 4)])
        self.assertEqual(some.plan(some.read_rows()), " Planned and not run yet, seeds: 9 of a, 3 of b.")
        self.assertEqual(some.plan([{"method": method} for method in "a" * 10 + "bbb"]), "")

    def test_shares_of_the_last_histogram(self):
        site = lambda zeros, flushed, counts: {"iteration": [0, 5], "zeros": [.9, zeros], "gamma_measured": [.9, flushed],
                                               "histogram": {"iteration": 5, "counts": counts}}
        # 100 that are not zero, of which 10 become zero, beside 100 zeros; 300, of which 30 do, beside none.
        flushed, zeros = study.last_shares([site(.5, .1, [40, 60]), site(0, .1, [300]), {"histogram": None}])
        self.assertAlmostEqual(flushed, 10)
        self.assertAlmostEqual(zeros, 20)
        self.assertEqual(study.last_shares([]), (None, None))

    def test_each_answer(self):
        for differences, answer in [([1.3, 1.4, 1.2, 1.3], "*reproduced*"), ([.1, -.1, .05, 0], "*refuted here*"), ([-2, -2.1, -1.9, -2], "*refuted here*"),
                                    ([9, -8, 3], "*no test*"), ([1.0], "has not been tested")]:
            self.assertIn(answer, table3.answer(rows(differences)), differences)

    def test_master_weights(self):
        of = lambda losses: [{"method": method, "seed": str(seed), "loss_last_half": str(loss)} for method, some in losses.items() for seed, loss in enumerate(some)]
        for half, verdict in [([1.5, 1.6, 1.55], "reproduced"), ([1.0, 1.001, .999], "refuted here"), ([.5, .4, .45], "refuted here"), ([1.5, .4, 1.3], "no test"), ([1.0], "not tried")]:
            self.assertEqual(master_weights.verdict_of(of({master_weights.O2: [1.0] * 3, master_weights.O3: half})), verdict, half)

    def test_pairs_are_of_the_same_seed(self):
        # The baseline of seed 1 is missing.
        kept = [row for row in rows([1.0, 2.0, 4.0]) if (row["method"], row["seed"]) != ("zhao", "1")]
        pairs, mean = table3.STUDY.pairs_of(kept, "gs:authors", "zhao", "miou")
        self.assertEqual((pairs.pairs, pairs.mean, mean), (2, 2.5, 20.0))

    def test_the_longest_runs_are_shown(self):
        study = Study("x", "docs/science.md", "", [], 9, ["a", "b"], [], [("miou", "mIoU")])
        of = lambda method, seed, steps: {"method": method, "seed": str(seed), "steps": str(steps)}
        study.read_rows = lambda: [of("a", 0, 60), of("a", 1, 60), of("b", 0, 60), of("a", 0, 250)]
        self.assertEqual({row["steps"] for row in study.shown_rows()}, {"60"})
        study.read_rows = lambda: [of("a", 0, 60), of("a", 1, 60), of("a", 0, 250), of("a", 1, 250)]
        self.assertEqual({row["steps"] for row in study.shown_rows()}, {"250"})
        study.read_rows = lambda: [of("a", 0, 60)]
        self.assertEqual(study.shown_rows(), [])

    def test_runs_that_stopped_are_counted_and_not_averaged(self):
        one = Study("x", "docs/science.md", "", [], 9, ["a", "b"], [("b", "a")], [("miou", "mIoU")])
        blank = dict.fromkeys(one.columns(), "")
        of = lambda method, seed, stopped, loss: {**blank, "method": method, "seed": str(seed), "steps": "9", "stopped": stopped, "loss_last_half": str(loss),
                                                 "skipped": "0", "repeated": "0", "flushed_worst": "0", "activation_bytes": "1e6"}
        some = [of("a", 0, "", 1), of("a", 1, "", 1), of("b", 0, "", 2), of("b", 1, "5", 99)]
        self.assertEqual(one.values(some, "b", "loss_last_half"), {0: 2.0})
        self.assertIn("| b | 2, 1 stopped | 2.0000 |", one.levels(some))
        self.assertIn("| b − a | runs that went through | 1 of 2; stopped after 5 steps |", one.difference_table(some))
        self.assertIn("stopped after 3 to 5 steps", one.difference_table([*some, of("b", 2, "3", 99)]))

    def test_a_row_of_what_the_program_writes(self):
        run = {"method": "gs", "seed": 3, "activation_bytes": 5, "loss": [4.0] * 2 + [2.0] * 8 + [1.0] * 10, "skipped_steps": 1, "repeats": 2,
               "metrics": {"miou": .25, "class_accuracy": .5, "global_accuracy": .75},
               "sites": [{"worst": .5, "lost": [.1, .25], "alpha": [0, 7], "histogram": None},
                         {"worst": .125, "lost": [None, None], "alpha": [0, -3], "histogram": None}]}
        row = table3.STUDY.row_of({"runs": [run], "version": "v", "commit": "c", "machine": "m"}, "gs", 20)
        expected = {"loss_first_tenth": 4.0, "loss_last_half": 1.0, "miou": 25.0, "flushed_worst": 50.0, "lost_last": 25.0, "skipped": 1, "repeated": 2,
                    "log2_lowest": -3, "log2_highest": 7, "activation_bytes": 5}
        self.assertEqual({key: row[key] for key in expected}, expected)
        self.assertEqual(list(row), table3.STUDY.columns())
        # A run that diverged after its first steps.
        run.update(loss=[4.0, None, None], metrics=None, sites=[])
        row = table3.STUDY.row_of({"runs": [run], "version": "v", "commit": "c", "machine": "m"}, "gs", 20)
        self.assertEqual([row[key] for key in ("steps", "stopped", "loss_first_tenth", "loss_last_half", "miou", "flushed_worst")], [20, 3, 4.0, None, None, 0])
        self.assertEqual(table3.STUDY.values([{"method": "gs", "seed": "0", "miou": ""}, {"method": "gs", "seed": "1", "miou": "2.5"}], "gs", "miou"), {1: 2.5})


class Records(unittest.TestCase):
    def test_rows_of_several_processes_stay_sorted(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "new", "table.csv")
            self.assertEqual(records.read_rows(path), [])
            add = lambda seed: records.add_rows(path, ["seed", "score"], lambda row: int(row["seed"]), [{"seed": seed, "score": None}])
            threads = [threading.Thread(target=add, args=[seed]) for seed in (3, 10, 1, 2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(records.read_rows(path), [{"seed": str(seed), "score": ""} for seed in (1, 2, 3, 10)])


class Regimes(unittest.TestCase):
    def test_the_page_is_that_of_the_record(self):
        self.assertEqual(regimes.PAGE.read_text(), regimes.page(regimes.load()), "run scripts/regimes.py --page")

    def test_what_is_missing_is_named(self):
        text = regimes.page({"regimes": {}, "figures": {}, "windows": {}})
        for name in [*regimes.REGIMES, "segnet-basic after 30 steps"]:
            self.assertRegex(text, f"Not recorded yet: .*{name}")
        self.assertRegex(text, "## scale-by-size\n\nNot recorded yet")
        self.assertIn("| 96×128 ×4 sum | 2^5 | 11 | 27 | overflows |", text)
        # PyTorch's own runs stand there without ours.
        self.assertRegex(text, r"Beside it, PyTorch's own .* torch.amp float16, defaults \d")
        self.assertRegex(text, r"\| 4000 \| not recorded yet \| \d+ % \| 100 % \|")

    def test_a_row_of_each_method(self):
        row = lambda method, seed, score, scale: {"method": method, "seed": seed, "steps": 9, "score": score, "skipped": seed, "finite_skipped": 0, "repeated": 0, "scale": scale}
        about = {"version": "1", "commit": "c", "machine": "m", "data": "d", "name": "x", "about": "made up", "score": "points", "higher_is_better": True}
        rows = [row("torch", 1, 2.0, -9), row("fp32", 0, 3.25, None), row("torch", 0, 1.0, -8), row("fp32", 1, None, None)]
        text = regimes.page({"regimes": {"rare-reward": {**about, "rows": rows}}, "figures": {"one-in-n": {"about": "x", "text": "y", "rows": [{"one_in": 50, "simulated": 0.04, "law": 0.025}], **about}}, "windows": {}})
        self.assertIn("| torch | 1.0 2.0 | 2^-8 2^-9 | 0 1 | 0 0 | 0 0 |", text)
        self.assertIn("| fp32 | 3.2 none | – | 0 1 | 0 0 | 0 0 |", text)
        self.assertRegex(text, r"\| 50 \| 4 % \| \d+ % \| 2 % \|")


class Predicted(unittest.TestCase):
    def test_the_figure_is_that_of_the_record(self):
        self.assertEqual(predicted.FIGURE.read_text(), predicted.draw(predicted.read_rows()), "run scripts/predicted.py")

    def test_the_scales_of_layers_are_those_of_the_records(self):
        for figure in layer_scales.FIGURES:
            self.assertEqual(figure.drawing.read_text(), layer_scales.draw(figure, figure.read_rows()), "run scripts/layer_scales.py")
        rows = layer_scales.SSD.read_rows()
        # Eight branches: classes and boxes at four sizes.
        self.assertEqual(sum(layer_scales.predicts(row["site"]) for row in rows), 8)
        self.assertEqual(sum(row["site"] == layer_scales.CAST for row in layer_scales.SEGNET.read_rows()), 1)
        self.assertIn(">32</tspan>", layer_scales.draw(layer_scales.SSD, rows + [{"site": "x", "log2_scale": "33"}]))

    def test_theorems_of_sites(self):
        expected = {"cross_entropy/cast": 2, "cross_entropy2/cast": 2, "ctc_loss/cast": 2, "decoder.layers.0.self_attn.softmax/dgrad": 2,
                    "seq2seq.attention.weights/dgrad": 2, "biglstm.softmax/dgrad": 1, "net.conv1/dgrad": 1, "decoder.layers.1.self_attn.mix/dgrad.1": 1}
        self.assertEqual({site: predicted.theorem_of(site) for site in expected}, expected)

    def test_a_summary(self):
        of = lambda predicted, measured, values=10**6: {"site": "a/dgrad", "predicted": str(predicted), "measured": str(measured), "values": str(values), "steps": "10"}
        rows = [of(1e-3, 5e-4), of(1e-3, 1e-4), of(1e-3, 2e-3), of(1e-3, 1e-3)]
        # Nine values are too few to be missed.
        found = predicted.summary(rows + [of(1e-3, 0, 900)], 1)
        self.assertEqual((found["sites"], found["ratio"], found["near"], found["above"]), (4, 0.75, 0.5, 0.25))
        self.assertIsNone(predicted.summary(rows, 2))


# This check needs nothing to be fetched.
if __name__ == "__main__" and "--fetch" not in sys.argv:
    unittest.main()
