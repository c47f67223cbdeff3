"""Stores with statistics as operators of PyTorch: ``torch.ops.gradscale``.

A *site* is a place where gradients become half. Two tensors on the device of the gradients say all that a step needs:

- ``control``, int32 of shape (2, sites): the exponents in force, and what rows are to observe (``Sites.exponents`` and
  ``Sites.details``);
- ``rows``, int32 of shape (sites, ROW_WORDS): what the stores of a step saw. Zeros at the beginning of a step; calls of
  one site merge.

Exponents are data, not constants: ``torch.compile`` compiles once, and the bits are those of eager execution. No operator
waits for its device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _gradscale

ROW_WORDS = _gradscale.ROW_WORDS

_LIBRARY = torch.library.Library("gradscale", "DEF")
_LIBRARY.define("store(Tensor x, Tensor(a!) rows, Tensor control, int source, int site) -> Tensor")
_LIBRARY.define("observe(Tensor x, Tensor(a!) rows, Tensor control, int source, int site) -> ()")
_LIBRARY.define("unscale(Tensor x, Tensor control, int source) -> Tensor")

_FLOATS = (torch.float32, torch.float16)


def store(x: Tensor, rows: Tensor, control: Tensor, source: int, site: int) -> Tensor:
    """``x`` as half at the exponent of ``site``, rounded once to nearest even; its statistics go to ``rows[site]``.

    ``x``: float32 or float16 at the exponent of the site ``source``, or unscaled where that is -1. The result has the
    shape and the strides of ``torch.empty_like(x)``.
    """
    return torch.ops.gradscale.store(x, rows, control, source, site)


def observe(x: Tensor, rows: Tensor, control: Tensor, source: int, site: int) -> None:
    """What ``store`` would see goes to ``rows[site]``; nothing is stored. For a decision before the store."""
    torch.ops.gradscale.observe(x, rows, control, source, site)


def unscale(x: Tensor, control: Tensor, source: int) -> Tensor:
    """``x``, which stands at the exponent of ``source``, as unscaled float32."""
    return torch.ops.gradscale.unscale(x, control, source)


def new_rows(sites: int, device=None) -> Tensor:
    """Rows of a step in which nothing was stored yet."""
    return torch.zeros((sites, ROW_WORDS), dtype=torch.int32, device=device)


def control_of(sites: _gradscale.Sites) -> Tensor:
    """Exponents and details of the coming step, on the CPU: to be copied into the device's ``control``."""
    return torch.stack([torch.from_numpy(sites.exponents), torch.from_numpy(sites.details)])


def _checked(x: Tensor) -> None:
    if x.dtype not in _FLOATS:
        raise TypeError(f"gradscale stores float32 and float16, not {x.dtype}")


def _flat(x: Tensor) -> Tensor:
    """The elements in the order of memory, of a tensor that ``empty_like`` has made or that lies like one."""
    return x.as_strided((x.numel(),), (1,))


def _like(x: Tensor, y: Tensor) -> Tensor:
    """``x`` with the strides of ``y``, which ``empty_like`` made: without a copy where it lies so already."""
    return x if x.stride() == y.stride() else torch.empty_like(y, dtype=x.dtype).copy_(x)


@torch.library.register_fake("gradscale::store")
def _(x, rows, control, source, site):
    _checked(x)
    return torch.empty_like(x, dtype=torch.float16)


@torch.library.register_fake("gradscale::observe")
def _(x, rows, control, source, site):
    _checked(x)


@torch.library.register_fake("gradscale::unscale")
def _(x, control, source):
    return torch.empty_like(x, dtype=torch.float32)


def _store_cpu(x, rows, control, source, site):
    _checked(x)
    x, y = x.detach(), torch.empty_like(x, dtype=torch.float16)
    words = rows.numpy().view("uint32")
    _gradscale.store_site(_flat(_like(x, y)).numpy(), _flat(y).numpy(), words, control.numpy(), source, site)
    return y


def _observe_cpu(x, rows, control, source, site):
    _checked(x)
    x = x.detach()
    x = _like(x, torch.empty_like(x))
    _gradscale.store_site(_flat(x).numpy(), None, rows.numpy().view("uint32"), control.numpy(), source, site)


_LIBRARY.impl("store", _store_cpu, "CPU")
_LIBRARY.impl("observe", _observe_cpu, "CPU")


def _unscale(x, control, source):
    return scaled(x.detach(), torch.zeros_like(control[0, source]), control[0, source])


def scaled(x: Tensor, to: Tensor, start: Tensor) -> Tensor:
    """``x`` times 2^(to − start) as float32, in up to three factors, as core forms them: it rounds once."""
    k = (to.to(torch.int64) - start.to(torch.int64)).clamp(-378, 378).to(torch.int32)
    n = 1 + (k.abs() > 126).to(torch.int32) + (k.abs() > 252).to(torch.int32)
    first = torch.div(k, n, rounding_mode="trunc")
    second = torch.where(n > 1, torch.div(k - first, (n - 1).clamp(min=1), rounding_mode="trunc"), 0)
    y = x.to(torch.float32)
    for part in (first, second, k - first - second):
        y = y * ((part + 127) << 23).view(torch.float32)
    return y


_LIBRARY.impl("unscale", _unscale, "CompositeExplicitAutograd")
