#!/usr/bin/env python3
"""SegNet on CamVid by all methods, over three seeds, at two sizes: docs/science.md and its drawings.

usage: scripts/camvid.py --data DIRECTORY --results DIRECTORY [--until first|90x120|180x240]

DIRECTORY of data holds camvid-90x120 and camvid-180x240. Each training is kept in the directory of results, and
existing ones are not trained again: 45 minutes for the first methods on two cores, an hour and a quarter for each size.
Missing trainings are reported. Needs matplotlib. The data are for non-commercial research, so they are not published.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts/natural")]
import master_weights  # noqa: E402
import page as natural  # noqa: E402
import paired  # noqa: E402
import record as natural_record  # noqa: E402
import table3  # noqa: E402

# Steps of each size.
SIZES = {"90x120": 600, "180x240": 160}
SMALL_SIZE, LARGE_SIZE = SIZES
SEEDS = [0, 1, 2]
# Divisor of the sum over pixels (`--pixels`): the number of the paper, or that of a batch.
PAPERS, OWN = "2073600", "batch"
# Methods that are trained first, by divisor; of its own pixels only these.
FIRST_METHODS = {PAPERS: ["fp32", "fp16", "fixed:128", "dynamic", "gs"], OWN: ["fp32", "fp16", "gs"]}
METHODS = ["fp32", "fp16", "fixed:128", "dynamic", "dynamic:10", "logmax", "gs:paper-literal", "gs:paper", "gs:authors", "gs"]
# Baselines as libraries and the paper have them, per-tensor scales of FP8 libraries, and f32 from weights that differ by 2^-20.
METHODS += ["torch-20th", "zhao", "amax:history=16", "chaos"]
# Zhao et al. 2020, Table 3: mIoU, class and global accuracy after 16 000 steps at 360 × 480.
PAPER = {"fp32": (51.1, 68.3, 83.9), "fp16": None, "zhao": (48.3, 64.1, 82.4), "gs:authors": (49.6, 64.6, 83.4)}


class Trainings:
    """Finished trainings, each in its own directory."""

    def __init__(self, asked):
        self.data, self.results = asked.data, asked.results
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "gradscale-cli"], cwd=ROOT, check=True)
        # A copy, so that all are of one commit whatever is built meanwhile.
        target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
        self.results.mkdir(parents=True, exist_ok=True)
        self.program = pathlib.Path(shutil.copy(pathlib.Path(target, "release", "gradscale"), self.results)).resolve()

    def directory(self, size, pixels, seed, method):
        return self.results / f"{size}-{pixels}-{seed}-{method.replace(':', '-')}-{SIZES[size]}"

    def train(self, size, pixels, seed, method):
        """Trains, if that was not done before and the data are there."""
        data, out = self.data / f"camvid-{size}", self.directory(size, pixels, seed, method)
        if not data.is_dir() or (out / "results.json").exists():
            return
        command = [self.program, "compare", "--data", data, "--out", out, "--pixels", pixels]
        command += ["--width", "16", "--batch", "12", "--iters", str(SIZES[size]), "--seed", str(seed)]
        subprocess.run([*command, "--eval-every", str(SIZES[size] // 12), "--methods", method], check=True)

    def found(self, size, pixels, methods):
        """The results of each training that there is."""
        paths = [self.directory(size, pixels, seed, method) / "results.json" for method in methods for seed in SEEDS]
        return [json.loads(path.read_text()) for path in paths if path.exists()]


def spread(values, digits=1):
    """Mean ± standard deviation."""
    if len(values) < 2:
        return "".join(f"{value:.{digits}f}" for value in values) or "–"
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def table(found, methods, compared):
    """Scores of the test set by method, with the training settings, and the paper's scores where they are compared."""
    runs = [run for one in found for run in one["runs"]]
    head = ["method", "mIoU %", "class accuracy %", "global accuracy %", "flushed at worst %", "skipped", "repeated", "activations MB"]
    head += ["the paper: mIoU, class, global"] if compared else []
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for method in methods:
        of = [run for run in runs if run["method"] == method]
        scored = [run["metrics"] for run in of if run["metrics"]]
        scores = [spread([100 * one[key] for one in scored]) for key in ("miou", "class_accuracy", "global_accuracy")]
        worst = [100 * max(site["worst"] for site in run["sites"]) for run in of if run["sites"]]
        counts = [spread([run[key] for run in of], 0) for key in ("skipped_steps", "repeats")]
        size = spread([max(run["activation_bytes"] for run in of) / 1e6] if of else [])
        printed = PAPER.get(method, ())
        printed = ["diverged" if printed is None else ", ".join(map(str, printed)) or "–"] if compared else []
        lines.append("| " + " | ".join([method, *scores, spread(worst, 3), *counts, size, *printed]) + " |")
    by = sorted({f"gradscale {one['version']} ({one['commit']}) on {one['machine']}" for one in found})
    missing = len(methods) * len(SEEDS) - len(runs)
    said = f" {missing} of {len(methods) * len(SEEDS)} trainings are missing." if missing else ""
    return "\n".join(lines) + f"\n\n{'; '.join(by)}.{said}\n"


def beside(found, methods):
    """Every method compared with f32 in pairs: training loss over the last half first, mIoU last."""
    runs = [run for one in found for run in one["runs"]]
    measures = [("training loss, last half", paired.training_loss, 4, lambda mean: paired.LOSS_MARGIN * abs(mean)),
                ("mIoU, points", paired.score("miou"), 2, lambda _: paired.SCORE_MARGIN)]
    lines = [f"| method − fp32 | {' | '.join(f'{name} | smallest difference seen | verdict' for name, *_ in measures)} |", "|---" * 7 + "|"]
    for method in methods:
        cells = []
        for _, measure, digits, margin in measures:
            pairs = paired.of_runs(runs, method, "fp32", measure)
            if method == "fp32" or len(pairs) < 2:
                continue
            one = paired.Paired(a - b for a, b in pairs)
            cells += [one.text(digits), f"{one.detectable:.{digits}f}", one.verdict(margin(statistics.mean(b for _, b in pairs)))]
        if cells:
            lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def curves(plt, runs, path):
    """mIoU on the validation set over training, the paper's figure 3a."""
    figure, axes = plt.subplots(figsize=(7, 4))
    for method in METHODS:
        of = [run["scores"] for run in runs if run["method"] == method and run["scores"]]
        of = [[score for score in scores if score["on"] == "validation"] for scores in of]
        if not any(of):
            continue
        steps = [score["iteration"] for score in of[0]]
        values = [[100 * scores[i]["miou"] for scores in of if len(scores) > i] for i in range(len(steps))]
        mean = [statistics.mean(value) for value in values]
        width = [statistics.stdev(value) if len(value) > 1 else 0 for value in values]
        (line,) = axes.plot(steps, mean, label=method)
        low, high = [m - w for m, w in zip(mean, width)], [m + w for m, w in zip(mean, width)]
        axes.fill_between(steps, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
    axes.set(xlabel="step", ylabel="mIoU on the validation set, %")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def scales(plt, runs, path):
    """Exponents of all layers over training, the paper's figure 3b: the first seed of gs."""
    figure, axes = plt.subplots(figsize=(7, 4))
    sites = next((run["sites"] for run in runs if run["method"] == "gs" and run["seed"] == SEEDS[0]), [])
    shades = plt.get_cmap("viridis")
    for i, site in enumerate(reversed(sites)):
        axes.plot(site["iteration"], site["alpha"], color=shades(i / max(1, len(sites) - 1)), label=site["name"])
    axes.set(xlabel="step", ylabel="scale, log2")
    axes.legend(fontsize=5, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def page(plt, trainings):
    """docs/science.md, all of it."""
    folder = ROOT / "docs/science"
    folder.mkdir(exist_ok=True)
    text = f"""# SegNet on CamVid

Written by `scripts/camvid.py`. SegNetBasic of 16 channels, {SIZES[SMALL_SIZE]} steps of 12 images at 90 × 120 and {SIZES[LARGE_SIZE]} at 180 × 240, the loss divided by {PAPERS} pixels, those of twelve images of 360 × 480, as in the paper; mean ± standard deviation over seeds. Scores are of the 233 test images after the last step, curves of the 101 validation images. Beside them are the figures that the paper gives (Zhao et al. 2020, Table 3), for 16 000 steps of a wider network at 360 × 480: levels do not compare. Its gradient scaling is `gs:authors`. Its loss scale is `zhao`, which is capped at 2^15 and has weight gradients in half; `dynamic:10` has neither. `dynamic` never grows in so few steps: it is `fixed:65536` here.
"""
    # Recorded by scripts of their own, in tables that are kept.
    begin, end = natural.MARKS
    text += f"\n{begin}\n{natural.science_section(natural.Record(natural_record.read_rows()))}\n{end}\n"
    for study, title in ((table3, "Table 3, pair by pair"), (master_weights, "Master weights")):
        begin, end = study.STUDY.marks
        text += f"\n## {title}\n\n{begin}\n{study.section(study.STUDY.shown_rows())}\n{end}\n"
    for size in SIZES:
        text += f"\n## {size.replace('x', ' × ')}\n\n"
        found = trainings.found(size, PAPERS, METHODS)
        if not found:
            text += "Nothing was trained at this size.\n"
            continue
        runs = [run for one in found for run in one["runs"]]
        curves(plt, runs, folder / f"curves-{size}.svg")
        scales(plt, runs, folder / f"scales-{size}.svg")
        text += table(found, METHODS, True)
        text += f"\nMean paired differences with 95 % intervals; *equal* within {100 * paired.LOSS_MARGIN} % of the loss or one point.\n\n{beside(found, METHODS)}"
        text += f"\n![mIoU over training](science/curves-{size}.svg)\n\n![Scales of all layers](science/scales-{size}.svg)\n"
        plt.close("all")
    methods = FIRST_METHODS[OWN]
    text += f"\n## 90 × 120, loss divided by the labelled pixels of its batch\n\n{table(trainings.found(SMALL_SIZE, OWN, methods), methods, False)}"
    (ROOT / "docs/science.md").write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--until", choices=["first", *SIZES], default=LARGE_SIZE)
    asked = parser.parse_args()
    try:
        import matplotlib

        matplotlib.use("svg")
        matplotlib.rcParams["svg.hashsalt"] = "gradscale"
        from matplotlib import pyplot
    except ImportError:
        sys.exit("scripts/camvid.py needs matplotlib: pip install matplotlib")
    trainings = Trainings(asked)
    todo = [(SMALL_SIZE, pixels, seed, method) for pixels, methods in FIRST_METHODS.items() for seed in SEEDS for method in methods]
    for size in {"first": [], SMALL_SIZE: [SMALL_SIZE], LARGE_SIZE: SIZES}[asked.until]:
        todo += [(size, PAPERS, seed, method) for seed in SEEDS for method in METHODS]
    for one in todo:
        trainings.train(*one)
    page(pyplot, trainings)


if __name__ == "__main__":
    main()
