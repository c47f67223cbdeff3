#!/usr/bin/env python3
"""Runs the natural experiments with PyTorch's own autocast and GradScaler and with attach, and adds rows to the record.

usage: scripts/natural/record.py --data DIRECTORY [--only EXPERIMENT ...] [--methods METHOD ...] [--seeds SEED ...] [--record FILE]

Experiments are `bad_image`, `short_recordings` and `rare_reward`. DIRECTORY holds cifar10-10k and fsdd. Runs that are in the
record are not run again; delete their rows to run them. Needs torch and gradscale. One thread, so that bits repeat.
"""
import argparse
import importlib
import os
import pathlib
import subprocess
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
sys.path[:0] = [str(FOLDER), str(ROOT / "scripts")]
import records  # noqa: E402

RECORD = ROOT / "docs/science/natural.csv"
# Seeds of each method; cures that need no gradient scaling have fewer.
PLAN = {
    "bad_image": {"f32": 5, "torch.amp": 5, "attach": 5, "floor:1": 3, "fixed:128": 3},
    "short_recordings": {"f32": 3, "torch.amp": 3, "attach": 3, "floor:1": 1, "fixed:128": 1, "zero_infinity": 1},
    "rare_reward": {"f32": 3, "torch.amp": 3, "attach": 3, "fixed:128": 3},
}
METHODS = ["f32", "torch.amp", "attach", "floor:1", "fixed:128", "zero_infinity"]
COLUMNS = ["experiment", "method", "seed", "step", "score", "loss", "log2_scale", "skipped", "events", "commit", "torch", "gradscale", "processor"]


def read_rows(record=RECORD):
    return records.read_rows(record)


def formatted(row):
    """A row as text: floats with all of their digits, so that a test can compare bits."""
    return {key: "" if value is None else repr(value) if isinstance(value, float) else str(value) for key, value in row.items()}


def versions():
    """Commit, PyTorch, this package, and the instruction set of PyTorch's kernels, on which bits depend."""
    import gradscale
    import torch

    # Recorded before the commit that adds the rows: the code is that commit's.
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    return {"commit": commit, "torch": torch.__version__, "gradscale": gradscale.__version__, "processor": torch.backends.cpu.get_cpu_capability()}


def position(row):
    """Place of a row in the record."""
    return list(PLAN).index(row["experiment"]), METHODS.index(row["method"]), int(row["seed"]), int(row["step"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--only", nargs="*", choices=list(PLAN), default=list(PLAN))
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--seeds", nargs="*", type=int)
    parser.add_argument("--record", type=pathlib.Path, default=RECORD)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    common = versions()
    for name in options.only:
        experiment = importlib.import_module(name)
        todo = [(seed, method) for method, seeds in PLAN[name].items() for seed in range(seeds)
                if (not options.methods or method in options.methods) and (options.seeds is None or seed in options.seeds)]
        loaded = experiment.load(options.data)
        # Seed by seed, so that an interrupted record has pairs.
        for seed, method in sorted(todo, key=lambda one: one[0]):
            if any((row["experiment"], row["method"], row["seed"]) == (name, method, str(seed)) for row in read_rows(options.record)):
                continue
            rows = []
            for row in experiment.train(method, seed, loaded):
                rows.append(formatted({"experiment": name, "method": method, "seed": seed, **row, **common}))
                print(name, method, seed, {key: rows[-1][key] for key in ("step", "score", "loss", "log2_scale", "skipped", "events")}, flush=True)
            records.add_rows(options.record, COLUMNS, position, rows)


if __name__ == "__main__":
    main()
