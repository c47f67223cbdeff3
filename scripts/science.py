#!/usr/bin/env python3
"""SegNet on CamVid by all methods, over three seeds, at two sizes; writes docs/science.md and its drawings.

usage: scripts/science.py --data DIRECTORY --results DIRECTORY [--steps 600]

DIRECTORY of data holds camvid-90x120 and camvid-180x240. Each training is kept in the directory of results, and what is
there is not trained again: an hour at the smaller size on two cores, four at the larger. What is missing is said on
the page. Needs matplotlib. The data are for non-commercial research; nothing of them gets into the page.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = ["90x120", "180x240"]
SEEDS = [0, 1, 2]
METHODS = ["fp32", "fp16", "fixed:128", "dynamic", "dynamic:10", "logmax", "gs:paper-literal", "gs:paper", "gs:authors", "gs"]
# Zhao et al. 2020, Table 3: mIoU, class and global accuracy after 16 000 steps at 360 × 480.
PAPER = {"fp32": (51.1, 68.3, 83.9), "fp16": None, "dynamic:10": (48.3, 64.1, 82.4), "gs:authors": (49.6, 64.6, 83.4)}


def trained(program, data, results, size, seed, method, steps):
    """One training's results: from its directory, or trained now; None if the data are not there."""
    if not (data / f"camvid-{size}").is_dir():
        return None
    name = f"{size}-{seed}-{method.replace(':', '-')}-{steps}"
    found = results / name / "results.json"
    if not found.exists():
        command = [program, "compare", "--data", data / f"camvid-{size}", "--out", results / name]
        command += ["--width", "16", "--batch", "12", "--iters", str(steps), "--eval-every", str(max(1, steps // 12))]
        subprocess.run([*command, "--seed", str(seed), "--methods", method], check=True)
    return json.loads(found.read_text())


def spread(values, digits=1):
    """Mean ± standard deviation."""
    if len(values) < 2:
        return "".join(f"{value:.{digits}f}" for value in values) or "–"
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def table(runs):
    """Scores of the test set, by method."""
    lines = ["| method | mIoU % | class accuracy % | global accuracy % | flushed at worst % | skipped | repeated | the paper: mIoU, class, global |"]
    lines.append("|---" * 8 + "|")
    for method in METHODS:
        of = [run for run in runs if run["method"] == method]
        scored = [run["metrics"] for run in of if run["metrics"]]
        scores = [spread([100 * one[key] for one in scored]) for key in ("miou", "class_accuracy", "global_accuracy")]
        worst = [100 * max(site["worst"] for site in run["sites"]) for run in of if run["sites"]]
        counts = [spread([run[key] for run in of], 0) for key in ("skipped_steps", "repeats")]
        printed = PAPER.get(method, ())
        printed = "diverged" if printed is None else ", ".join(map(str, printed)) or "–"
        lines.append("| " + " | ".join([method, *scores, spread(worst, 3), *counts, printed]) + " |")
    return "\n".join(lines)


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
    axes.legend(fontsize=7)
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


def page(plt, results, steps):
    """All of it."""
    folder = ROOT / "docs/science"
    folder.mkdir(exist_ok=True)
    text = f"""# SegNet on CamVid

Written by `scripts/science.py`. SegNetBasic of 16 channels, {steps} steps of 12 images, the loss divided by 2073600 pixels, those of twelve images of 360 × 480, as in the paper; mean ± standard deviation over seeds. Scores are of the 233 test images after the last step, curves of the 101 validation images. Beside them are the figures that the paper gives (Zhao et al. 2020, Table 3), for 16 000 steps of a wider network at 360 × 480: levels do not compare, orders do. Its loss scale is `dynamic:10`, its gradient scaling `gs:authors`.
"""
    for size, found in results.items():
        text += f"\n## {size.replace('x', ' × ')}\n\n"
        if not found:
            text += "Nothing was trained at this size.\n"
            continue
        runs = [run for one in found for run in one["runs"]]
        commits = sorted({f"gradscale {one['version']} ({one['commit']}) on {one['machine']}" for one in found})
        missing = len(METHODS) * len(SEEDS) - len(runs)
        curves(plt, runs, folder / f"curves-{size}.svg")
        scales(plt, runs, folder / f"scales-{size}.svg")
        text += f"{table(runs)}\n\n{'; '.join(commits)}."
        text += f" {missing} of {len(METHODS) * len(SEEDS)} trainings are missing." if missing else ""
        text += f"\n\n![mIoU over training](science/curves-{size}.svg)\n\n![Scales of all layers](science/scales-{size}.svg)\n"
    (ROOT / "docs/science.md").write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=600)
    asked = parser.parse_args()
    try:
        import matplotlib

        matplotlib.use("svg")
        matplotlib.rcParams["svg.hashsalt"] = "gradscale"
        from matplotlib import pyplot
    except ImportError:
        sys.exit("scripts/science.py needs matplotlib: pip install matplotlib")
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "gradscale-cli"], cwd=ROOT, check=True)
    program = ROOT / "target/release/gradscale"
    results = {size: [] for size in SIZES}
    for size in SIZES:
        for seed in SEEDS:
            for method in METHODS:
                one = trained(program, asked.data, asked.results, size, seed, method, asked.steps)
                results[size] += [one] if one else []
                # After each, so that what there is can be looked at.
                page(pyplot, results, asked.steps)
                pyplot.close("all")


main()
