#!/usr/bin/env python3
"""Golden values of update rules, by PyTorch: writes optimizers.txt beside this file.

    pip install torch
    python3 optimizers.py            write optimizers.txt
    python3 optimizers.py --check    compute again, exit 1 if a value differs by more than an f32 rounding

Computed in f64, from f32 weights and gradients with few digits. Lines as in engine.py. `given` has the weight before the
first step and the gradient of each step; every other case is a rule, `weight` has the weight after each step.
"""

import torch

from shared.rows import draw, finish, write

STEPS, SIZE = 6, 8

# The settings are numbers that f32 has exactly, so that the engine has the same ones.
RULES = {
    "RMSprop": (torch.optim.RMSprop, dict(lr=0.0625, alpha=0.75, eps=2**-10)),
    "RMSprop momentum": (torch.optim.RMSprop, dict(lr=0.0625, alpha=0.75, eps=2**-10, momentum=0.5, weight_decay=0.125)),
    "RMSprop centered": (torch.optim.RMSprop, dict(lr=0.0625, alpha=0.75, eps=2**-10, centered=True)),
    "RMSprop centered momentum": (
        torch.optim.RMSprop,
        dict(lr=0.0625, alpha=0.75, eps=2**-10, centered=True, momentum=0.5),
    ),
    "Adafactor": (torch.optim.Adafactor, dict(lr=0.25, eps=(2**-20, 2**-10), weight_decay=0.125)),
    # Both eps act, the first one as a square for some mean squares; a rate that 1/sqrt(t) limits, which decay does not heed.
    "Adafactor eps": (torch.optim.Adafactor, dict(lr=0.4375, eps=(2**-4, 4.0), weight_decay=0.125)),
    "Adagrad": (torch.optim.Adagrad, dict(lr=0.125, eps=2**-20)),
    "Adagrad eps": (torch.optim.Adagrad, dict(lr=0.125, eps=2**-4)),
    "Adagrad initial": (torch.optim.Adagrad, dict(lr=0.125, eps=2**-20, initial_accumulator_value=0.5, weight_decay=0.25)),
}

# Factor of the gradients of cases with eps.
SMALL = 2**-4


def rules():
    torch.manual_seed(1)
    first, gradients = draw(SIZE, spread=2.0), draw(STEPS, SIZE, spread=4.0)
    # A weight that gets no gradient at first, and one that gets none at all.
    gradients[:2, 0] = 0.0
    gradients[:, 1] = 0.0
    write("given", "weight", first)
    write("given", "gradients", gradients)
    for name, (rule, settings) in RULES.items():
        weight = torch.nn.Parameter(first.clone())
        optimizer, after = rule([weight], **settings), []
        for gradient in gradients:
            weight.grad = gradient * (SMALL if name.endswith(" eps") else 1.0)
            optimizer.step()
            after.append(weight.detach().clone())
        write(name, "weight", torch.stack(after))


def factored():
    """Matrices, of which Adafactor keeps mean squares of rows and columns; a rate that 1/sqrt(t) limits later."""
    torch.manual_seed(2)
    rows, columns = 3, 4
    first, gradients = draw(rows, columns, spread=2.0), draw(STEPS, rows, columns, spread=4.0)
    # A row and a column that get no gradient at first.
    gradients[:2, 0] = 0.0
    gradients[:3, :, 1] = 0.0
    write("given matrix", "weight", first)
    write("given matrix", "gradients", gradients)
    for name, settings in {
        "Adafactor matrix": dict(lr=0.4375),
        "Adafactor matrix decay": dict(lr=0.0625, beta2_decay=-0.5, d=1.25, weight_decay=0.25),
        # The mean of the rows' mean squares is below the first eps, and above its square.
        "Adafactor matrix eps": dict(lr=0.4375, eps=(2**-4, 4.0), weight_decay=0.125),
    }.items():
        weight = torch.nn.Parameter(first.clone())
        optimizer, after = torch.optim.Adafactor([weight], **{"eps": (2**-20, 2**-10), **settings}), []
        for gradient in gradients:
            weight.grad = gradient * (SMALL if name.endswith(" eps") else 1.0)
            optimizer.step()
            after.append(weight.detach().clone())
        write(name, "weight", torch.stack(after))


finish(__file__, [rules, factored])
