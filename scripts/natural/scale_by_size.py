#!/usr/bin/env python3
"""Loss scales that fit, by image size, batch and reduction, found by PyTorch's own GradScaler: docs/science/scale_by_size.csv.

usage: scripts/natural/scale_by_size.py

For each setting a GradScaler starts at 2^32, as DeepSpeed does, and the same batch is stepped until a step is applied. Weights
stay as they are (learning rate 0), so each dropped step takes one bit. The scale at which the step is applied is the largest
that fits. Then 2^7, the constant of tiny-cuda-nn, is compared with it: the largest error of a parameter's gradient, relative to
the gradient two binades below the largest scale. `gradscale regimes --only scale-by-size` measures windows of SegNetBasic by
this project's code; the network here is smaller, because PyTorch's half convolutions are slow on a CPU.
"""
import csv
import math
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECORD = ROOT / "docs/science/scale_by_size.csv"
COLUMNS = ["height", "width", "batch", "reduction", "fits", "error_at_128", "torch"]
# Sizes and batches of cli/src/commands/regimes/scale_by_size.rs.
SIZES, BATCHES, REDUCTIONS = [(24, 32), (48, 64), (96, 128)], [1, 4], ["mean", "sum"]
CHANNELS, CLASSES, INITIAL = 16, 11, 2.0**32
# DeepSpeed's start, torch.amp's, and tiny-cuda-nn's constant, as powers of two.
START_OF_DEEPSPEED, START_OF_TORCH, CONSTANT_OF_TINY_CUDA_NN = 32, 16, 7


def problem(height, width, batch):
    """A network of 3 × 3 patches that classifies pixels, images and labels; all made up and the same each time."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(27, CHANNELS), nn.ReLU(), nn.Linear(CHANNELS, CLASSES))
    images, labels = torch.randn(batch, 3, height, width), torch.randint(CLASSES, (batch * height * width,))
    return model, nn.functional.unfold(images, 3, padding=1).transpose(1, 2).flatten(0, 1), labels


def gradients(model, x, labels, reduction, scale):
    """Unscaled gradients of a backward pass by autocast at a loss scale, in one list for each parameter."""
    import torch

    model.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), labels, reduction=reduction)
    (loss * scale).backward()
    return [parameter.grad.double() / scale for parameter in model.parameters()]


def measure(height, width, batch, reduction):
    """The exponent of the largest scale that a GradScaler applies, and the error at 2^7; None where that overflows."""
    import torch

    model, x, labels = problem(height, width, batch)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.0), torch.amp.GradScaler("cpu", init_scale=INITIAL)
    before = math.inf
    while scaler.get_scale() < before:
        before = scaler.get_scale()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), labels, reduction=reduction)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    fits = round(math.log2(scaler.get_scale()))
    best = gradients(model, x, labels, reduction, 2.0 ** (fits - 2))
    fixed = gradients(model, x, labels, reduction, 2.0**CONSTANT_OF_TINY_CUDA_NN)
    errors = [((one - other).norm() / one.norm()).item() for one, other in zip(best, fixed)]
    return fits, max(errors) if all(map(math.isfinite, errors)) else None


def settings():
    return [(*size, batch, reduction) for reduction in REDUCTIONS for size in SIZES for batch in BATCHES]


def row_of(setting):
    import torch

    fits, error = measure(*setting)
    return dict(zip(COLUMNS, [*map(str, setting), str(fits), "" if error is None else repr(error), torch.__version__]))


def read_rows(record=RECORD):
    if not record.exists():
        return []
    with record.open(newline="") as file:
        return list(csv.DictReader(file))


def table(rows):
    """Lines of the table of docs/regimes.md."""
    lines = ["| images, batch, loss | largest scale that fits | steps dropped from 2^16 | from 2^32 | error of the worst gradient at 2^7 |", "|---|---|---|---|---|"]
    for row in rows:
        fits = int(row["fits"])
        dropped = [str(max(0, start - fits)) for start in (START_OF_TORCH, START_OF_DEEPSPEED)]
        error = f"{100 * float(row['error_at_128']):.2f} %" if row["error_at_128"] else "overflows"
        lines.append(f"| {row['height']}×{row['width']} ×{row['batch']} {row['reduction']} | 2^{fits} | {' | '.join(dropped)} | {error} |")
    return lines


def main():
    import torch

    torch.set_num_threads(1)
    rows = []
    for setting in settings():
        rows.append(row_of(setting))
        print(rows[-1], flush=True)
    with RECORD.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
