#!/usr/bin/env python3
"""Share of large batches that torch.amp's scale drops, if one batch in n is large: docs/science/one_in_n.csv.

usage: scripts/natural/one_in_n.py [--seeds SEED ...]

The scale is moved by PyTorch's own code: `torch._amp_update_scale_`, which `torch.amp.GradScaler.update` calls, with the
GradScaler's defaults. Nothing is trained, since the scale depends on nothing but which batches fit. `gradscale regimes --only
one-in-n` simulates the same by this project's code, and scripts/regimes.py writes both into docs/regimes.md.
"""
import argparse
import csv
import pathlib
import random

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECORD = ROOT / "docs/science/one_in_n.csv"
# Name of the figure of `gradscale regimes`.
NAME = "one-in-n"
COLUMNS = ["one_in", "seed", "events", "dropped", "steps", "torch"]
# Numbers of cli/src/commands/regimes/one_in_n.rs, which says why.
RARITIES, EVENTS = [50, 200, 500, 1000, 2000, 4000], 400
LARGEST_ORDINARY, LARGEST_OF_LARGE = 2.0**16, 2.0**4
GROWTH, BACKOFF, INTERVAL, INITIAL = 2.0, 0.5, 2000, 2.0**16


class Scale:
    """Loss scale that PyTorch's own function moves."""

    def __init__(self, initial=INITIAL, interval=INTERVAL):
        import torch

        self.move = torch._amp_update_scale_
        self.scale, self.tracker = torch.tensor(initial), torch.zeros((), dtype=torch.int32)
        self.flags, self.interval = (torch.zeros(()), torch.ones(())), interval

    @property
    def value(self):
        return self.scale.item()

    def update(self, found_inf):
        self.move(self.scale, self.tracker, self.flags[found_inf], GROWTH, BACKOFF, self.interval)


def simulate(one_in, seed, events=EVENTS):
    """Large batches that are dropped, and steps."""
    draw, scale, seen, dropped, steps = random.Random(f"{one_in} {seed}"), Scale(), 0, 0, 0
    while seen < events:
        is_large = draw.randrange(one_in) == 0
        fits = scale.value <= (LARGEST_OF_LARGE if is_large else LARGEST_ORDINARY)
        scale.update(not fits)
        seen, dropped, steps = seen + is_large, dropped + (is_large and not fits), steps + 1
    return dropped, steps


def read_rows(record=RECORD):
    if not record.exists():
        return []
    with record.open(newline="") as file:
        return list(csv.DictReader(file))


def shares(rows):
    """Share of large batches that are dropped, over all seeds, by rarity."""
    found = {}
    for row in rows:
        events, dropped = found.get(int(row["one_in"]), (0, 0))
        found[int(row["one_in"])] = events + int(row["events"]), dropped + int(row["dropped"])
    return {one_in: dropped / events for one_in, (events, dropped) in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    rows = []
    for one_in in RARITIES:
        for seed in options.seeds:
            dropped, steps = simulate(one_in, seed)
            rows.append({"one_in": one_in, "seed": seed, "events": EVENTS, "dropped": dropped, "steps": steps, "torch": torch.__version__})
            print(rows[-1], flush=True)
    with RECORD.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
