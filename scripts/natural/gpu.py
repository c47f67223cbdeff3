#!/usr/bin/env python3
"""Runs a natural experiment on a GPU, by PyTorch's own autocast and GradScaler and by attach, and prints a table.

usage: scripts/natural/gpu.py EXPERIMENT [--data DIRECTORY] [--device cuda] [--seeds SEED ...] [--seconds S] [--small]

A phase of the GPU bundle (scripts/gpu_bundle/phases.tsv). The loops, settings and seeds are those of record.py, on another
device. Each row is printed when its run has ended, seed by seed. No run begins after S seconds. --small ends each run after
its first steps, to see that all of it runs.
"""
import argparse
import importlib
import pathlib
import sys
import time

FOLDER = pathlib.Path(__file__).resolve().parent
# In a bundle the example is beside this file.
sys.path[:0] = [str(FOLDER), str(FOLDER / "python/examples")]
# Length of a rehearsed run, by the parameter of `train` that names it.
REHEARSED_LENGTHS = {"bad_image": {"epochs": 1}, "short_recordings": {"steps": 2}, "rare_reward": {"updates": 3}}
METHODS = ["f32", "torch.amp", "attach"]


def cell(value, digits):
    return "–" if value is None else f"{value:.{digits}f}"


def row(method, seed, last, seconds):
    """A row of the table from the last row of a run."""
    cells = [f"{method}, seed {seed}", str(last["step"]), cell(last["score"], 1), cell(last["log2_scale"], 0)]
    return "| " + " | ".join([*cells, str(last["skipped"]), str(last["events"]), f"{seconds:.0f} s"]) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=list(REHEARSED_LENGTHS))
    parser.add_argument("--data", type=pathlib.Path, default=FOLDER / "data")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("not here: PyTorch sees no GPU")
    experiment = importlib.import_module(options.experiment)
    wanted = getattr(experiment, "DATA", None)
    if wanted and not (options.data / wanted).is_dir():
        sys.exit(f"not here: no data {wanted}")
    loaded = experiment.load(options.data)
    print("| what | step | score | log2 of the scale | batches skipped | bad or rewarded batches | time |\n|" + "---|" * 7, flush=True)
    start = time.monotonic()
    for seed in options.seeds[: 1 if options.small else None]:
        for method in METHODS:
            begun = time.monotonic()
            if begun - start > options.seconds:
                print(f"not run for lack of time: {method}, seed {seed}")
                continue
            more = REHEARSED_LENGTHS[options.experiment] if options.small else {}
            last = list(experiment.train(method, seed, loaded, options.device, **more))[-1]
            print(row(method, seed, last, time.monotonic() - begun), flush=True)


if __name__ == "__main__":
    main()
