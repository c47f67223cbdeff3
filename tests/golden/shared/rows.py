"""Tables of golden values: a row for each tensor, separated by tabs: case, key, shape, values."""

import os
import sys

import torch

LINES = []


def write(case, key, tensor, digits=8):
    """Formats a row: f32 with this number of digits, or integers."""
    shape = " ".join(str(size) for size in tensor.shape)
    if tensor.dtype == torch.int64:
        values = " ".join(str(x) for x in tensor.flatten().tolist())
    else:
        values = " ".join(f"{x:.{digits}g}" for x in tensor.detach().to(torch.float32).flatten().tolist())
    LINES.append(f"{case}\t{key}\t{shape}\t{values}")


def draw(*shape, spread=1.0):
    """Few digits, so that all are f32 and the file is small."""
    return torch.randint(-32, 33, shape) / 32.0 * spread


def same(one, two, exact, least):
    """Returns whether two tables have the same numbers, up to an f32 rounding or a difference below `least`."""
    if len(one) != len(two):
        return False
    for a, b in zip(one, two):
        if a.startswith(exact):
            if a != b:
                return False
            continue
        (*names, a), (*others, b) = a.split("\t"), b.split("\t")
        if names != others or len(a.split()) != len(b.split()):
            return False
        for x, y in zip(a.split(), b.split()):
            if x != y and abs(float(x) - float(y)) > 2**-22 * abs(float(x)) + least:
                return False
    return True


def finish(script, parts, *libraries, exact=(), least=1e-12):
    """Runs all parts in f64, and writes the table to the folder of the script, or with --check compares it. Rows
    whose keys begin with an entry of `exact` contain texts."""
    torch.set_default_dtype(torch.float64)
    for part in parts:
        part()
    target = os.path.splitext(os.path.abspath(script))[0] + ".txt"
    name = os.path.basename(script)
    if "--check" in sys.argv:
        with open(target, encoding="utf-8") as file:
            stored = file.read().splitlines()[1:]
        if not same(stored, LINES, tuple(exact), least):
            sys.exit(f"{os.path.basename(target)} is not what {name} computes")
        print(f"{len(LINES)} rows agree")
        return
    made = ", ".join(f"{library.__name__} {library.__version__}" for library in (torch, *libraries))
    with open(target, "w", encoding="utf-8") as file:
        file.write(f"# written by {name}, {made}\n" + "\n".join(LINES) + "\n")
    print(f"{len(LINES)} rows, {os.path.getsize(target)} bytes")
