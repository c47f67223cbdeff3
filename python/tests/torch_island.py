"""A function between two half layers, whose gradients are compared with those of f64."""

import copy

import torch
from torch import nn

from gradscale.torch import attach
from torch_models import error


class Island(nn.Module):
    """Linear, the function, Linear: inputs and outputs of the function are between halves."""

    def __init__(self, function, width=8, out=8):
        super().__init__()
        self.first, self.last = nn.Linear(6, width), nn.Linear(out, 3)
        self.function = function

    def forward(self, x):
        return self.last(self.function(self.first(x)))


def trained(function, x, shift, reference=None, prepare=None, **sizes):
    """Relative errors of the gradients of both layers in the second step, and the training."""
    torch.manual_seed(3)
    model = Island(function, **sizes)
    twin = copy.deepcopy(model).double()
    twin.function = reference or function
    gs = attach(model)
    for one in (model, twin):
        if prepare:
            prepare(one)
    for _ in range(2):
        model.zero_grad()
        (model(x).square().mean() * 2.0**shift).backward()
        gs.update()
    (twin(x.double()).square().mean() * 2.0**shift).backward()
    pairs = [(p.grad, q.grad) for p, q in zip(model.parameters(), twin.parameters())]
    return max(error([a], [b]) for a, b in pairs if b.abs().max() > 0), gs, pairs
