"""Speed of a store with statistics, compared with plain casts that count nothing, in one run.

    python stores.py        needs numpy; torch is measured too if it is installed

Gigabytes of float32 read per second of processor time (all threads), the best of several runs, because other programs
hardly influence that. Wall-clock times need a quiet machine.
"""

import time

import gradscale as gs
import numpy as np


def best(work, size):
    """GB per second of the processors, and of the wall clock."""
    calls = max(1, (1 << 24) // size)
    work()
    processors, wall = [], []
    for _ in range(7):
        start = time.process_time(), time.perf_counter()
        for _ in range(calls):
            work()
        processors.append(time.process_time() - start[0])
        wall.append(time.perf_counter() - start[1])
    return [4e-9 * size * calls / min(times) for times in (processors, wall)]


def main():
    try:
        import torch
    except ImportError:
        torch = None
    print("| values | what | GB/s of processor time | of wall time |\n|---|---|---|---|")
    for size in (1 << 10, 1 << 16, 1 << 22):
        x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
        y, row = np.empty(size, np.float16), np.zeros(gs.ROW_WORDS, np.uint32)

        def store(detail):
            row[:] = 0
            gs.store(x, 3, out=y, row=row, detail=detail)

        works = {
            "numpy astype(float16)": lambda: np.copyto(y, x, casting="unsafe"),
            "numpy astype, and counts of zeros, flushed, infinite": lambda: [
                np.copyto(y, x, casting="unsafe"),
                np.count_nonzero(x == 0),
                np.count_nonzero((y == 0) & (x != 0)),
                np.count_nonzero(np.isinf(y)),
            ],
            "store with counts": lambda: store("counts"),
            "store with counts and histogram": lambda: store("histogram"),
        }
        if torch is not None:
            torch.set_num_threads(1)
            a, b = torch.from_numpy(x), torch.from_numpy(y)
            works["torch copy_ to half"] = lambda: b.copy_(a)
        for what, work in works.items():
            processors, wall = best(work, size)
            print(f"| {size} | {what} | {processors:.2f} | {wall:.2f} |", flush=True)


main()
