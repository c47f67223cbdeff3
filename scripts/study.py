"""A comparison of methods over seeds, recorded run by run and written into a page as paired differences.

`scripts/table3.py` and `scripts/master_weights.py` each define one, `scripts/workloads.py` one for each network. Methods of
a seed share weights, order and noise.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
from typing import NamedTuple

import paired
import records

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Columns of each run, without its scores.
# `stopped` is the number of steps after which the program gave a training up, empty if it went through.
COLUMNS_BEFORE_SCORES = ["method", "seed", "steps", "stopped", "loss_first_tenth", "loss_last_half"]
COLUMNS_AFTER_SCORES = ["flushed_worst", "lost_last", "flushed_last", "zero_last", "log2_lowest", "log2_highest", "activation_bytes", "skipped", "repeated",
                        "version", "commit", "machine"]
# Seeds of methods that are beside the question.
SEEDS_OF_FEW = 3


class Score(NamedTuple):
    """Score of a finished training: its key in results, its name, and whether it is a share, shown in percent."""

    key: str
    name: str
    percent: bool = True

    def head(self):
        return f"{self.name} %" if self.percent else self.name

    def value(self, metrics):
        if metrics.get(self.key) is None:
            return None
        return 100 * metrics[self.key] if self.percent else metrics[self.key]


class Study:
    """Study: methods, training settings, compared measures, and its section of a page.

    A record may have runs of several lengths. Pages show those of the longest that has two seeds of the first method.
    """

    def __init__(self, name, page, data, options, steps, methods, differences, scores, few=(), seeds=10):
        """`few` are those of the methods that get only the first seeds."""
        self.name, self.page, self.data, self.options, self.steps = name, ROOT / page, data, options, steps
        self.methods, self.differences, self.few, self.seeds = methods, differences, few, seeds
        self.scores = [Score(*one) for one in scores]
        self.record = ROOT / f"docs/science/{name}.csv"
        self.marks = f"<!-- {name}: written by scripts/{name}.py -->", f"<!-- end of {name} -->"
        # Key of the record, its words, digits of its table, margin within which it counts as equal.
        self.measures = [
            ("loss_last_half", "training loss, last half", 4, lambda mean: paired.LOSS_MARGIN * abs(mean)),
            ("loss_first_tenth", "training loss, first tenth", 4, lambda mean: paired.LOSS_MARGIN * abs(mean)),
            (self.scores[0].key, f"{self.scores[0].name}, points", 2, lambda _: paired.SCORE_MARGIN),
        ]

    def columns(self):
        return COLUMNS_BEFORE_SCORES + [score.key for score in self.scores] + COLUMNS_AFTER_SCORES

    def read_rows(self):
        return records.read_rows(self.record)

    def shown_rows(self):
        """The rows that pages show."""
        rows = self.read_rows()
        seeds = {}
        for row in rows:
            if row["method"] == self.methods[0]:
                seeds.setdefault(int(row["steps"]), set()).add(row["seed"])
        lengths = [steps for steps, some in seeds.items() if len(some) > 1]
        return [row for row in rows if int(row["steps"]) == max(lengths)] if lengths else []

    def row_of(self, results, method, steps):
        """Returns the columns that the record keeps of a training that should have had so many steps."""
        (run,) = results["runs"]
        losses, sites = run["loss"], run["sites"]
        # A run that diverged has no finite losses, and perhaps no scores; missing values stay empty.
        finite = lambda part: [loss for loss in part if loss is not None]
        mean = lambda part: statistics.mean(finite(part)) if finite(part) else None
        metrics = run["metrics"] or {}
        lost = [share for site in sites if (share := site["lost"][-1]) is not None]
        flushed, zeros = last_shares(sites)
        exponents = [site["alpha"][-1] for site in sites]
        return {
            "method": method, "seed": run["seed"], "steps": steps, "stopped": len(losses) if len(losses) < steps else None, "loss_first_tenth": mean(losses[: max(1, len(losses) // 10)]),
            "loss_last_half": mean(losses[len(losses) // 2 :]), **{score.key: score.value(metrics) for score in self.scores},
            "flushed_worst": 100 * max((site["worst"] for site in sites), default=0), "lost_last": 100 * max(lost, default=0),
            "flushed_last": flushed, "zero_last": zeros, "log2_lowest": min(exponents, default=None), "log2_highest": max(exponents, default=None),
            "activation_bytes": run["activation_bytes"],
            "skipped": run["skipped_steps"], "repeated": run["repeats"], "version": results["version"], "commit": results["commit"],
            "machine": results["machine"],
        }

    def train(self, data, results, program, method, seed, steps):
        """Trains, unless it was done before, and adds the row to the record."""
        out = results / f"{self.name}-{method.replace(':', '-')}-{seed}-{steps}"
        if not (out / "results.json").exists():
            command = [program, "compare", "--data", data / self.data, "--out", out, *self.options, "--iters", steps]
            command += ["--seed", seed, "--threads", 1, "--methods", method]
            subprocess.run(list(map(str, command)), check=True)
        row = self.row_of(json.loads((out / "results.json").read_text()), method, steps)
        position = lambda row: (int(row["steps"]), self.methods.index(row["method"]), int(row["seed"]))
        records.add_rows(self.record, self.columns(), position, [row])

    @staticmethod
    def values(rows, method, key):
        """A measure by seed, of runs that went through and have it."""
        return {int(row["seed"]): float(row[key]) for row in rows if row["method"] == method and row[key] and not row.get("stopped")}

    @staticmethod
    def stops(rows, method):
        """Number of steps of each run of a method that was given up."""
        return [int(row["stopped"]) for row in rows if row["method"] == method and row.get("stopped")]

    @classmethod
    def pairs_of(cls, rows, method, baseline, key):
        """Differences over the seeds that both have, and the baseline's mean; `None` with fewer than two."""
        ours, theirs = cls.values(rows, method, key), cls.values(rows, baseline, key)
        seeds = sorted(ours.keys() & theirs.keys())
        if len(seeds) < 2:
            return None
        return paired.Paired(ours[seed] - theirs[seed] for seed in seeds), statistics.mean(theirs[seed] for seed in seeds)

    def levels(self, rows):
        """Each method by itself."""
        heads = ["method", "seeds", "training loss, last half", *(score.head() for score in self.scores), "flushed at worst %", "lost at the end %",
                 "scales at the end", "skipped", "repeated", "activations MB"]
        lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        digits = [("loss_last_half", 4), *((score.key, 1 if score.percent else 2) for score in self.scores), ("flushed_worst", 3), ("lost_last", 6)]
        for method in self.methods:
            of = [row for row in rows if row["method"] == method]
            ended = self.stops(rows, method)
            count = f"{len(of)}, {len(ended)} stopped" if ended else len(of)
            through = [row for row in of if not row.get("stopped")]
            cells = [spread((float(row[key]) for row in through if row[key]), places) for key, places in digits]
            counts = [spread((int(row[key]) for row in of), 0) for key in ("skipped", "repeated")]
            ends = [int(row[key]) for row in of for key in ("log2_lowest", "log2_highest") if row[key]]
            scales = f"2^{min(ends)} … 2^{max(ends)}" if ends else "–"
            size = spread((float(row["activation_bytes"]) / 1e6 for row in of[:1]), 1)
            if of:
                lines.append(f"| {method} | {count} | {' | '.join([*cells, scales, *counts, size])} |")
        return "\n".join(lines)

    def difference_table(self, rows):
        """Each difference with its interval, p of no difference and of inequality, and the smallest that could be detected."""
        lines = ["| difference | measure | mean, 95 % interval | p of no difference | p of TOST, margin | detectable difference | verdict |", "|---" * 7 + "|"]
        for method, baseline in self.differences:
            if ended := self.stops(rows, method):
                of = sum(row["method"] == method for row in rows)
                when = f"after {min(ended)} to {max(ended)}" if min(ended) < max(ended) else f"after {ended[0]}"
                lines.append(f"| {method} − {baseline} | runs that went through | {of - len(ended)} of {of}; stopped {when} steps | | | | diverges |")
            for key, name, digits, margin_of in self.measures:
                found = self.pairs_of(rows, method, baseline, key)
                if found is None:
                    continue
                pairs, mean = found
                margin = margin_of(mean)
                equal = f"{pairs.equivalence_p(margin):.3f}, {margin:.{digits}f}"
                cells = [f"{method} − {baseline}", name, pairs.text(digits), f"{pairs.p:.3f}", equal, f"{pairs.detectable:.{digits}f}", pairs.verdict(margin)]
                lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)

    def section(self, rows, before, after):
        """The part of the page: both tables between two texts."""
        if not rows:
            return "Nothing is on record."
        by = "; ".join(sorted({f"gradscale {row['version']} ({row['commit']}) on {row['machine']}" for row in rows}))
        script = self.name.partition("/")[0]
        origin = f"<sub>`scripts/{script}.py`, from [science/{self.name}.csv](science/{self.name}.csv); {by}.</sub>"
        before = f"{rows[0]['steps']} steps. {before}{self.plan(rows)}"
        return "\n\n".join([before, self.levels(rows), self.difference_table(rows), *([after] if after else []), origin])

    def plan(self, rows):
        """What is planned and not run yet, as a sentence after a space; nothing if all is there."""
        missing = {method: (SEEDS_OF_FEW if method in self.few else self.seeds) - sum(row["method"] == method for row in rows) for method in self.methods}
        parts = [f"{count} of {method}" for method, count in missing.items() if count > 0]
        return f" Planned and not run yet, seeds: {', '.join(parts)}." if parts else ""

    def train_missing(self, data, results, program, methods, seeds, steps):
        """Trains what the record lacks: each seed by all methods, so that an interrupted run leaves pairs."""
        for seed in range(seeds):
            for method in methods:
                key = method, str(seed), str(steps)
                if seed >= SEEDS_OF_FEW and method in self.few or any((row["method"], row["seed"], row["steps"]) == key for row in self.read_rows()):
                    continue
                self.train(data, results, program, method, seed, steps)

    def between_marks(self, text, part):
        """The page with the section between its marks."""
        before, _, rest = text.partition(self.marks[0])
        _, _, after = rest.partition(self.marks[1])
        return f"{before}{self.marks[0]}\n{part}\n{self.marks[1]}{after}"

    def main(self, description, section):
        """Runs the trainings that the record lacks, if data are given, and writes the section."""
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--data", type=pathlib.Path)
        parser.add_argument("--results", type=pathlib.Path)
        parser.add_argument("--seeds", type=int, default=self.seeds)
        parser.add_argument("--methods", nargs="*", choices=self.methods, default=self.methods)
        parser.add_argument("--steps", type=int, default=self.steps)
        parser.add_argument("--program", type=pathlib.Path, default=ROOT / "target/release/gradscale")
        options = parser.parse_args()
        if options.data:
            if options.results is None:
                parser.error("--results says where the program writes")
            self.train_missing(options.data, options.results, options.program.resolve(), options.methods, options.seeds, options.steps)
        self.page.write_text(self.between_marks(self.page.read_text(), section(self.shown_rows())))


def last_shares(sites):
    """Returns, over all gradients of each site's last histogram, the shares that became zero of those that were not, and that
    were zero of all, both in percent. A site that had only zeros has no histogram."""
    nonzero = zeros = lost = 0
    for site in sites:
        histogram = site["histogram"]
        if not histogram:
            continue
        at = site["iteration"].index(histogram["iteration"])
        count, share = sum(histogram["counts"]), site["zeros"][at]
        nonzero += count
        zeros += count * share / (1 - share)
        lost += count * site["gamma_measured"][at]
    return (100 * lost / nonzero, 100 * zeros / (nonzero + zeros)) if nonzero else (None, None)


def spread(values, digits=1):
    """Mean ± standard deviation."""
    values = list(values)
    if len(values) < 2:
        return "".join(f"{value:.{digits}f}" for value in values) or "–"
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"
