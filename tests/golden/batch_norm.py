#!/usr/bin/env python3
"""Golden values of batch norm over a whole batch, by PyTorch: writes batch_norm.txt beside this file.

    pip install torch
    python3 batch_norm.py            write batch_norm.txt
    python3 batch_norm.py --check    compute again, exit 1 if a value differs by more than an f32 rounding

Computed in f64, from f32 inputs with few digits. Lines as in engine.py: case, key, shape, values, separated by tabs;
channels last. Images have different means, so that parts of the batch have other statistics than the whole.

  pixels        x [n, h, w, c] and t as it; weight, bias; loss = Σ y·t; dx, dweight, dbias; running_mean and running_var after
                one step from 0 and 1 with momentum 0.1
  frames        x and t [n, t, w, c], of which the first of each sequence count, by lengths; t and dx are 0
                behind the ends
"""

import torch
from torch import nn

from shared.rows import draw, finish, write


def of_rows(case, x, t, rows):
    """Batch norm of these rows of x, as one batch."""
    channels = x.shape[-1]
    norm = nn.BatchNorm1d(channels)
    with torch.no_grad():
        norm.weight.copy_(draw(channels) + 1.5)
        norm.bias.copy_(draw(channels))
    for key, tensor in [("x", x), ("t", t), ("weight", norm.weight), ("bias", norm.bias)]:
        write(case, key, tensor)
    x.requires_grad_()
    loss = (norm(x[rows]) * t[rows]).sum()
    loss.backward()
    write(case, "loss", loss.reshape(1))
    for key, tensor in [("dx", x.grad), ("dweight", norm.weight.grad), ("dbias", norm.bias.grad)]:
        write(case, key, tensor)
    write(case, "running_mean", norm.running_mean)
    write(case, "running_var", norm.running_var)


def batch(*shape):
    x = draw(*shape, spread=2.0) + draw(shape[0], 1, 1, shape[-1], spread=4.0)
    return x, draw(*shape)


def pixels():
    torch.manual_seed(1)
    x, t = batch(7, 2, 3, 3)
    of_rows("pixels", x, t, torch.ones(x.shape[:-1], dtype=torch.bool))


def frames():
    torch.manual_seed(2)
    x, t = batch(7, 4, 2, 3)
    lengths = torch.tensor([4, 1, 3, 2, 4, 2, 3])
    write("frames", "lengths", lengths)
    rows = (torch.arange(4) < lengths[:, None])[:, :, None].expand(7, 4, 2)
    of_rows("frames", x, t * rows[..., None], rows)


finish(__file__, [pixels, frames])
