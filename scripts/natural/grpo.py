#!/usr/bin/env python3
"""Runs GRPO on additions (python/examples/grpo_arithmetic.py) and adds rows to docs/science/grpo.csv.

usage: OMP_NUM_THREADS=1 scripts/natural/grpo.py [--seeds SEED ...] [--methods METHOD ...] [--record FILE]

Runs that are in the record are not run again; delete their rows to run them. Needs torch and gradscale, no data. `section`
writes the part of docs/natural.md; scripts/natural/page.py calls it. Settings were chosen by runs in f32 alone, then fixed.
"""
import argparse
import ast
import os
import pathlib
import statistics
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
sys.path[:0] = [str(FOLDER), str(ROOT / "scripts"), str(ROOT / "python/examples")]
import paired  # noqa: E402
from records import add_rows, read_rows  # noqa: E402

RECORD = ROOT / "docs/science/grpo.csv"
EXAMPLE = ROOT / "python/examples/grpo_arithmetic.py"
METHODS, SEEDS = ["f32", "torch.amp", "growth:400", "attach", "attach:step"], 3
NAMES = {
    "f32": "f32", "torch.amp": "torch.amp float16, defaults (TRL 1.16.0)", "growth:400": "torch.amp, `growth_interval=400` (verl since November 2025)",
    "attach": "`gradscale.torch.attach`, guarded optimizer", "attach:step": "`gradscale.torch.attach`, `scaling.step`",
}
COLUMNS = [
    "method", "seed", "update", "return", "likeliest", "dropped", "log2_scale", "skipped", "empty", "commit", "torch", "gradscale", "processor",
]


def position(row):
    """Place of a row in the record."""
    return METHODS.index(row["method"]), int(row["seed"]), int(row["update"])


def last_rows(rows, method):
    """The last row of each seed."""
    return {int(row["seed"]): row for row in rows if row["method"] == method}


def missing_text(rows):
    """A sentence about planned runs that are not in the record; empty if all are."""
    lacking = {method: SEEDS - len(last_rows(rows, method)) for method in METHODS}
    text = "; ".join(f"{NAMES[method]}: {count}" for method, count in lacking.items() if count)
    return f" Planned and not run yet, seeds: {text}." if text else ""


def difference(rows, method, key, margin):
    """Paired with f32, by seed: mean and interval, smallest detectable difference, verdict."""
    ours, theirs = last_rows(rows, method), last_rows(rows, "f32")
    pairs = [float(ours[seed][key]) - float(theirs[seed][key]) for seed in sorted(ours.keys() & theirs.keys())]
    if method == "f32" or len(pairs) < 2:
        return "–", "–", "–"
    one = paired.Paired(pairs)
    return one.text(1), f"{one.detectable:.1f}", one.verdict(margin)


def table(rows):
    lines = [
        "| method | return % | likeliest answers right % | dropped reward mass % | scale at the end | steps skipped | return − f32, points | detectable difference | verdict |",
        "|" + "---|" * 9,
    ]
    for method in METHODS:
        runs = [row for _, row in sorted(last_rows(rows, method).items())]
        if not runs:
            continue
        cells = [" ".join(f"{float(row[key]):.{digits}f}" for row in runs) for key, digits in (("return", 1), ("likeliest", 1), ("dropped", 2))]
        scales = " ".join(f"2^{float(row['log2_scale']):.0f}" for row in runs if row["log2_scale"]) or "–"
        skipped = " ".join(row["skipped"] for row in runs)
        lines.append("| " + " | ".join([NAMES[method], *cells, scales, skipped, *difference(rows, method, "return", paired.SCORE_MARGIN)]) + " |")
    return "\n".join(lines)


def result_text(rows):
    """A sentence about the dropped mass and the return of each method, by the numbers of the table."""
    parts = []
    for method in METHODS[1:]:
        runs = last_rows(rows, method).values()
        if runs:
            dropped = statistics.mean(float(row["dropped"]) for row in runs)
            _, _, verdict = difference(rows, method, "return", paired.SCORE_MARGIN)
            parts.append(f"{NAMES[method]} drops {dropped:.2f} % of the reward mass on average" + (f", and its return against f32: {verdict}" if verdict != "–" else ""))
    return "; ".join(parts) + "." if parts else "No run of a half method is on record."


def read_settings():
    """Numbers that the example names, read from its source because importing it needs PyTorch."""
    found = {}
    for node in ast.parse(EXAMPLE.read_text()).body:
        if isinstance(node, ast.Assign):
            names = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
            values = node.value.elts if isinstance(node.targets[0], ast.Tuple) else [node.value]
            found.update({name.id: value.value for name, value in zip(names, values) if isinstance(value, ast.Constant)})
    return found


def section(rows):
    """The part of docs/natural.md."""
    number = read_settings()
    runs = last_rows(rows, "f32").values()
    empty = f" In f32, {statistics.mean(100 * int(row['empty']) / int(row['update']) for row in runs):.0f} % of the batches have no advantage at all." if runs else ""
    origin = "; ".join(
        f"commit {commit}, PyTorch {torch}, gradscale {version}, one thread of a CPU with {cpu}"
        for commit, torch, version, cpu in sorted({(row["commit"], row["torch"], row["gradscale"], row["processor"]) for row in rows})
    )
    return f"""## GRPO on additions

A small decoder (two blocks of width 64) learns two-digit additions by GRPO: {number['PROBLEMS']} problems and {number['GROUP']} answers to each in a batch, advantages relative to the group, ratio clipped at {number['CLIP']}, {number['EPOCHS']} steps of AdamW for each batch, {number['UPDATES']} batches. A warm start of {number['WARM_STEPS']} supervised steps in f32 is the same for all methods. The reward is 1 for a right answer, else 0, so groups without a right answer have zero advantages.{empty} The return is the share of right answers among all that were drawn. The dropped reward mass is the sum of |advantage| of skipped steps, divided by that of all. {result_text(rows)} The settings were chosen by three runs in f32 with seed 0, before any other method ran. They are short: a scale that doubles every 2000 steps does so once. `scaling.step`, which repeats a batch that overflows, was added after the first run with a guarded optimizer had skipped a step.{missing_text(rows)}

{table(rows)}

<sub>`scripts/natural/grpo.py`, rows in [science/grpo.csv](science/grpo.csv); {origin or "no rows yet"}.</sub>"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="*", type=int, default=list(range(SEEDS)))
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--record", type=pathlib.Path, default=RECORD)
    options = parser.parse_args()
    import torch

    import grpo_arithmetic
    import record

    torch.set_num_threads(1)
    common = record.versions()
    # Seed by seed, so that an interrupted record has pairs.
    for seed in options.seeds:
        for method in options.methods:
            if seed in last_rows(read_rows(options.record), method):
                continue
            rows = []
            for row in grpo_arithmetic.train(method, seed):
                rows.append(record.formatted({"method": method, "seed": seed, **row, **common}))
                print({key: rows[-1][key] for key in COLUMNS[:9]}, flush=True)
            add_rows(options.record, COLUMNS, position, rows)


if __name__ == "__main__":
    main()
