#!/usr/bin/env python3
"""Scales of SSD-300's layers under gs, the paper's Figure 2 in small: docs/science/ssd_scales.svg.

usage: scripts/ssd_scales.py [--results DIRECTORY [--program FILE]]

With --results, trains SSD-300 of 8 channels for some steps on made-up shapes, and records the exponent of each site at the
end in docs/science/ssd_scales.csv. Then draws the figure from the record.
"""
import argparse
import csv
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD, FIGURE = ROOT / "docs/science/ssd_scales.csv", ROOT / "docs/science/ssd_scales.svg"
COLUMNS = ["site", "log2_scale", "log2_largest", "steps", "commit"]
STEPS = 21
# As in scripts/workloads.py, with random shapes, because the figure is about sites of the network. Exponents are
# decided at every tenth step, so the last step stores at those of the third decision.
OPTIONS = "--network ssd-300 --width 8 --batch 8 --optimizer adamw --lr 0.002 --threads 1 --methods gs".split()


def read_rows(record=RECORD):
    if not record.exists():
        return []
    with record.open(newline="") as file:
        return list(csv.DictReader(file))


def rows_of(results):
    """Exponent and largest magnitude of each site in the last step, from the loss to the image."""
    (run,) = results["runs"]
    number = lambda value: "" if value is None else f"{value:.3f}"
    return [{"site": site["name"], "log2_scale": site["alpha"][-1], "log2_largest": number(site["amax"][-1]), "steps": site["iteration"][-1],
             "commit": results["commit"]} for site in run["sites"]]


def predicts(site):
    """Returns whether a site belongs to a branch that predicts classes or boxes."""
    return any(word in site for word in ("head", "class", "box", "predict"))


# Pixels of a bar, of the space for names, and of a binade.
ROW, NAMES, BINADE = 14, 230, 12
COLOURS = {False: "#1f6fb4", True: "#d1495b"}


def draw(rows):
    """A bar for each site, from the least exponent of all to its own."""
    exponents = [int(row["log2_scale"]) for row in rows] or [0]
    least, most = min(0, *exponents, 0), max(exponents)
    width, height = NAMES + BINADE * (most - least) + 60, ROW * len(rows) + 60
    x = lambda exponent: NAMES + BINADE * (exponent - least)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="9">',
             "<title>Scales of the layers of SSD-300 under gs</title>", f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for exponent in range(least - least % 4, most + 1, 4):
        if exponent >= least:
            parts.append(f'<path d="M{x(exponent)} 24V{height - 30}" stroke="#dddddd"/><text x="{x(exponent)}" y="{height - 16}" text-anchor="middle">2<tspan dy="-4" font-size="7">{exponent}</tspan></text>')
    for at, row in enumerate(rows):
        y, exponent = 28 + ROW * at, int(row["log2_scale"])
        parts.append(f'<text x="{NAMES - 6}" y="{y + 8}" text-anchor="end">{row["site"]}</text>')
        parts.append(f'<rect x="{x(least)}" y="{y}" width="{max(1, x(exponent) - x(least))}" height="{ROW - 4}" fill="{COLOURS[predicts(row["site"])]}"><title>{row["site"]}: 2^{exponent}</title></rect>')
    for at, (branch, name) in enumerate([(True, "branches that predict"), (False, "the rest")]):
        parts.append(f'<rect x="{NAMES + 150 * at}" y="8" width="9" height="9" fill="{COLOURS[branch]}"/><text x="{NAMES + 14 + 150 * at}" y="16">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "target/release/gradscale")
    options = parser.parse_args()
    if options.results:
        out = options.results / "ssd_scales"
        if not (out / "results.json").exists():
            command = [options.program.resolve(), "compare", *OPTIONS, "--iters", STEPS, "--out", out]
            subprocess.run(list(map(str, command)), check=True)
        with RECORD.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows_of(json.loads((out / "results.json").read_text())))
    FIGURE.write_text(draw(read_rows()))


if __name__ == "__main__":
    main()
