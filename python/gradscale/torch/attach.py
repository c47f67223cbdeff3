"""Models whose ``forward`` runs under autocast and whose backward pass is scaled."""

from __future__ import annotations

import functools

import torch
from torch.utils._pytree import tree_map

from .scaling import GradientScaling


def attach(model, method="gs", *, dtype=torch.float16, **options):
    """Trains `model` in half: its forward pass runs under autocast, gradients of its activations are halves with an
    exponent for each, gradients of its weights are f32 and unscaled. Call ``loss.backward()`` as always, and
    ``update()`` of what is returned after each step of the optimizer. Results of the model are f32.

    Parameters may be frozen, thawed or added at any time. ``detach()`` gives the model back as it was.
    """
    scaling = GradientScaling(method, **options)
    scaling.attach(model, dtype=dtype)
    return scaling


def _wrap(module, forward):
    """Replaces a module's ``forward``, on this object alone; returns what takes that back."""
    before = module.__dict__.get("forward")
    module.forward = forward

    def undo():
        if module.__dict__.get("forward") is forward:
            del module.forward
            if before is not None:
                module.forward = before

    return undo


def under_autocast(module, scaling, dtype):
    """``forward`` under autocast, its results in f32, their gradients scaled."""
    forward = module.forward

    def result(x):
        if isinstance(x, torch.Tensor) and x.is_floating_point() and x.requires_grad:
            return scaling.scale(x, torch.float32 if x.dtype == dtype else x.dtype)
        return x.float() if isinstance(x, torch.Tensor) and x.dtype == dtype else x

    @functools.wraps(forward)
    def scaled_forward(*args, **kwargs):
        device = next((p.device.type for p in module.parameters()), "cpu")
        with torch.autocast(device, dtype=dtype):
            out = forward(*args, **kwargs)
        return tree_map(result, out)

    return _wrap(module, scaled_forward)


def in_f32(module):
    """``forward`` in f32: PyTorch's recurrent layers know no half on the CPU."""
    forward = module.forward

    def wide(x):
        return x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    @functools.wraps(forward)
    def wide_forward(*args, **kwargs):
        if next(module.parameters()).device.type != "cpu":
            return forward(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            return forward(*tree_map(wide, args), **tree_map(wide, kwargs))

    return _wrap(module, wide_forward)
