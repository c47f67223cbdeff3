#!/usr/bin/env python3
"""Predicted against measured shares of flushed gradients: Theorems 1 and 2 of Zhao et al. 2020, at all sites of all networks.

usage: scripts/predicted.py [--data DIRECTORY --results DIRECTORY [--program FILE] [--only NETWORK ...]]

With --data, trains each network on made-up data, VGG-16 on cifar10-10k of that directory, for a few steps by the paper's
rule, which decides at each step from the statistics of that step's operands, and records for each site the share that the
rule predicted and the share that was flushed. Networks on record are not trained again. Then draws docs/science/predicted.svg from docs/science/predicted.csv.
"""
import argparse
import csv
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD, FIGURE = ROOT / "docs/science/predicted.csv", ROOT / "docs/science/predicted.svg"
# Thresholds of the rule: the usual one, and one that many values exceed, so that predictions differ.
GAMMAS = ["0.001", "0.05"]
STEPS = 10
NETWORKS = ["alexnet", "vgg-16", "googlenet", "inception-v2", "inception-v3", "resnet-18", "resnet-50", "ssd-300", "ssd-512",
            "faster-rcnn", "segnet-basic", "segnet", "deep-speech-2", "seq2seq-1", "biglstm", "decoder", "dcgan"]
# VGG-16 halves its input five times, so made-up digits of 28 × 28 are too small for it.
DATA = {"vgg-16": "cifar10-10k"}
COLUMNS = ["network", "site", "threshold", "predicted", "measured", "values", "steps", "commit"]
# Left and lower edge of the figure.
LEAST_SHOWN = 1e-6
# Minimum number of values that a prediction lets flush, because fewer may be absent by chance.
MIN_EXPECTED = 10
# Sites of the softmaxes inside of attention; those of losses are casts. A layer that is called softmax is a product.
ATTENTION = re.compile(r"(self_attn\.softmax|attention\.weights)/dgrad$")


def read_rows(record=RECORD):
    if not record.exists():
        return []
    with record.open(newline="") as file:
        return list(csv.DictReader(file))


def theorem_of(site):
    """Returns the theorem of a site: 2 for the cast after a softmax, 1 for products. Other sites have no prediction."""
    return 2 if site.endswith("/cast") or re.search(r"/cast\.\d+$", site) or ATTENTION.search(site) else 1


def rows_of(network, threshold, results):
    """Means of each site over the steps in which the rule predicted something and values were stored."""
    (run,) = results["runs"]
    rows = []
    for site in run["sites"]:
        pairs = [(predicted, measured) for predicted, measured in zip(site["gamma_predicted"], site["gamma_measured"])
                 if predicted is not None and measured is not None]
        if pairs:
            predicted, measured = (statistics.mean(values) for values in zip(*pairs))
            values = sum(site["histogram"]["counts"]) if site["histogram"] else 0
            rows.append({"network": network, "site": site["name"], "threshold": threshold, "predicted": f"{predicted:.6g}",
                         "measured": f"{measured:.6g}", "values": values, "steps": len(pairs), "commit": results["commit"]})
    return rows


def train(network, threshold, data, results, program):
    out = results / f"{network}-{threshold}"
    if not (out / "results.json").exists():
        command = [program, "compare", "--network", network, "--iters", STEPS, "--threads", 1, "--out", out]
        command += ["--data", data / DATA[network]] if network in DATA else []
        command += ["--methods", f"gs:paper,interval=1,gamma={threshold}"]
        subprocess.run(list(map(str, command)), check=True)
    found = json.loads((out / "results.json").read_text())
    if found["runs"][0]["failure"]:
        sys.exit(f"{network}: {found['runs'][0]['failure']}; remove {out} to train again")
    return rows_of(network, threshold, found)


def is_compared(row):
    """Returns whether a site has stored enough values to test its prediction."""
    return float(row["predicted"]) * int(row["values"]) * int(row["steps"]) >= MIN_EXPECTED


def summary(rows, theorem):
    """Summarises the comparable sites of a theorem: their number, the median of measured by predicted, and the
    shares that flush between a quarter of the prediction and all of it, and more."""
    ratios = [float(row["measured"]) / float(row["predicted"]) for row in rows if theorem_of(row["site"]) == theorem and is_compared(row)]
    if not ratios:
        return None
    share = lambda kept: sum(map(kept, ratios)) / len(ratios)
    return {"sites": len(ratios), "ratio": statistics.median(ratios), "near": share(lambda ratio: .25 <= ratio <= 1), "above": share(lambda ratio: ratio > 1)}


# Size of the drawing: pixels, and decades from 10^-6 to 1.
SIZE, MARGIN, DECADES = 520, 60, 6
COLOURS = {1: "#1f6fb4", 2: "#d1495b"}


def place(share):
    """Returns the position of a share: 0 for 10^-6 and less, 1 for 1."""
    return (math.log10(max(share, LEAST_SHOWN)) + DECADES) / DECADES


def draw(rows):
    """The figure: a point for each site, on logarithmic axes, with the diagonal."""
    inner = SIZE - 2 * MARGIN
    x = lambda share: MARGIN + inner * place(share)
    y = lambda share: SIZE - MARGIN - inner * place(share)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}" font-family="sans-serif" font-size="12">',
             "<title>Share of gradients flushed at each site, predicted and measured</title>",
             f'<rect width="{SIZE}" height="{SIZE}" fill="#ffffff"/>']
    for decade in range(-DECADES, 1):
        share, label = 10.0**decade, f"10<tspan dy=\"-5\" font-size=\"9\">{decade}</tspan>" if decade else "1"
        parts.append(f'<path d="M{x(share):.1f} {MARGIN}V{SIZE - MARGIN}M{MARGIN} {y(share):.1f}H{SIZE - MARGIN}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x(share):.1f}" y="{SIZE - MARGIN + 18}" text-anchor="middle">{label}</text>')
        parts.append(f'<text x="{MARGIN - 8}" y="{y(share) + 4:.1f}" text-anchor="end">{label}</text>')
    parts.append(f'<path d="M{x(LEAST_SHOWN):.1f} {y(LEAST_SHOWN):.1f}L{x(1):.1f} {y(1):.1f}" stroke="#222222"/>')
    for row in filter(is_compared, rows):
        predicted, measured = float(row["predicted"]), float(row["measured"])
        tip = f"{row['network']}: {row['site']}: predicted {predicted:.2g}, measured {measured:.2g}"
        parts.append(f'<circle cx="{x(predicted):.1f}" cy="{y(measured):.1f}" r="3" fill="{COLOURS[theorem_of(row["site"])]}" fill-opacity="0.5"><title>{tip}</title></circle>')
    for at, (theorem, name) in enumerate([(1, "Theorem 1: products"), (2, "Theorem 2: behind a softmax")]):
        parts.append(f'<circle cx="{MARGIN + 14}" cy="{MARGIN + 14 + 18 * at}" r="4" fill="{COLOURS[theorem]}"/><text x="{MARGIN + 24}" y="{MARGIN + 18 + 18 * at}">{name}</text>')
    parts.append(f'<text x="{SIZE / 2:.0f}" y="{SIZE - 14}" text-anchor="middle">share that the rule predicted (10⁻⁶ and less at the left)</text>')
    parts.append(f'<text transform="translate(16 {SIZE / 2:.0f}) rotate(-90)" text-anchor="middle">share that was flushed</text></svg>')
    return "\n".join(parts) + "\n"


def write_rows(rows):
    rows.sort(key=lambda row: (NETWORKS.index(row["network"]), row["threshold"]))
    with RECORD.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "target/release/gradscale")
    parser.add_argument("--only", nargs="*", choices=NETWORKS, default=NETWORKS)
    options = parser.parse_args()
    if options.data:
        if options.results is None:
            parser.error("--results says where the program writes")
        for network in options.only:
            for threshold in GAMMAS:
                known = read_rows()
                if not any((row["network"], row["threshold"]) == (network, threshold) for row in known):
                    write_rows(known + train(network, threshold, options.data, options.results, options.program.resolve()))
    FIGURE.write_text(draw(read_rows()))


if __name__ == "__main__":
    main()
