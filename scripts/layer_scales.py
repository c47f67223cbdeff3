#!/usr/bin/env python3
"""Scales of the layers under gs, the paper's Figures 2 (SSD-300) and 3b (SegNet) in small: docs/science/layer_scales-*.svg.

usage: scripts/layer_scales.py [--data DIRECTORY --results DIRECTORY [--program FILE]]

With --data, trains each network for some steps, and records the exponent of each site at the end. SSD trains on made-up
shapes; DIRECTORY of data holds camvid-90x120 for SegNet. Then draws the figures from the records.
"""
import argparse
import csv
import json
import pathlib
import subprocess

import table3

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = ["site", "log2_scale", "log2_largest", "steps", "commit"]


class Figure:
    """Figure of a network's sites, of which `marked` is drawn in another colour."""

    def __init__(self, name, title, method, options, data, steps, marked, legend):
        self.name, self.title, self.method, self.options, self.data, self.steps = name, title, method, options, data, steps
        self.marked, self.legend = marked, legend
        self.record, self.drawing = (ROOT / f"docs/science/layer_scales-{name}.{end}" for end in ("csv", "svg"))

    def read_rows(self):
        if not self.record.exists():
            return []
        with self.record.open(newline="") as file:
            return list(csv.DictReader(file))

    def train(self, data, results, program):
        out = results / f"layer_scales-{self.name}"
        if not (out / "results.json").exists():
            command = [program, "compare", *self.options, *(["--data", data / self.data] if self.data else []), "--threads", 1, "--methods", self.method]
            command += ["--iters", self.steps, "--seed", 0, "--out", out]
            subprocess.run(list(map(str, command)), check=True)
        with self.record.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows_of(json.loads((out / "results.json").read_text())))


def predicts(site):
    """Returns whether a site of SSD belongs to a branch that predicts classes or boxes."""
    return any(word in site for word in ("head", "class", "box", "predict"))


# Options as in scripts/workloads.py, with random shapes, because the figure is about sites of the network. Exponents are
# decided at every tenth step, so the last step stores at those of the third decision.
SSD = Figure("ssd", "Scales of the layers of SSD-300 under gs", "gs", "--network ssd-300 --width 8 --batch 8 --optimizer adamw --lr 0.002".split(), None, 21,
             predicts, "branches that predict")
# Trainings of scripts/table3.py, by our rule and by that of the paper's authors.
CAST = "cross_entropy/cast"
SEGNET, SEGNET_AUTHORS = (
    Figure(name, f"Scales of the layers of SegNetBasic under {method}", method, table3.STUDY.options, table3.STUDY.data, table3.STEPS,
           lambda site: site == CAST, "cast behind the softmax")
    for name, method in (("segnet", "gs"), ("segnet-authors", "gs:authors"))
)
FIGURES = [SSD, SEGNET, SEGNET_AUTHORS]


def rows_of(results):
    """Exponent and largest magnitude of each site in the last step, from the loss to the image."""
    (run,) = results["runs"]
    number = lambda value: "" if value is None else f"{value:.3f}"
    return [{"site": site["name"], "log2_scale": site["alpha"][-1], "log2_largest": number(site["amax"][-1]), "steps": site["iteration"][-1],
             "commit": results["commit"]} for site in run["sites"]]


# Pixels of a bar, of the space for names, and of a binade.
ROW, NAMES, BINADE = 14, 230, 12
COLOURS = {False: "#1f6fb4", True: "#d1495b"}


def draw(figure, rows):
    """A bar for each site, from the least exponent of all to its own."""
    exponents = [int(row["log2_scale"]) for row in rows] or [0]
    least, most = min(0, *exponents, 0), max(exponents)
    width, height = NAMES + BINADE * (most - least) + 60, ROW * len(rows) + 60
    x = lambda exponent: NAMES + BINADE * (exponent - least)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="9">',
             f"<title>{figure.title}</title>", f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for exponent in range(least - least % 4, most + 1, 4):
        if exponent >= least:
            parts.append(f'<path d="M{x(exponent)} 24V{height - 30}" stroke="#dddddd"/><text x="{x(exponent)}" y="{height - 16}" text-anchor="middle">2<tspan dy="-4" font-size="7">{exponent}</tspan></text>')
    for at, row in enumerate(rows):
        y, exponent = 28 + ROW * at, int(row["log2_scale"])
        parts.append(f'<text x="{NAMES - 6}" y="{y + 8}" text-anchor="end">{row["site"]}</text>')
        parts.append(f'<rect x="{x(least)}" y="{y}" width="{max(1, x(exponent) - x(least))}" height="{ROW - 4}" fill="{COLOURS[figure.marked(row["site"])]}"><title>{row["site"]}: 2^{exponent}</title></rect>')
    for at, (branch, name) in enumerate([(True, figure.legend), (False, "the rest")]):
        parts.append(f'<rect x="{NAMES + 150 * at}" y="8" width="9" height="9" fill="{COLOURS[branch]}"/><text x="{NAMES + 14 + 150 * at}" y="16">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "target/release/gradscale")
    options = parser.parse_args()
    if options.data and options.results is None:
        parser.error("--results says where the program writes")
    for figure in FIGURES:
        if options.data:
            figure.train(options.data, options.results, options.program.resolve())
        figure.drawing.write_text(draw(figure, figure.read_rows()))


if __name__ == "__main__":
    main()
