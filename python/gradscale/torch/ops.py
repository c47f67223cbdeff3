"""Stores with statistics as operators of PyTorch: ``torch.ops.gradscale``.

A *site* is a place where gradients become half. Two tensors on the device of the gradients contain the state of a step:

- ``control``, int32 of shape (2, sites): the exponents in force, and the levels of detail of rows (``Sites.exponents``
and ``Sites.details``);
- ``rows``, int32 of shape (sites, ROW_WORDS): the statistics of a step's stores. They are zeros at the beginning of a
step, and several calls of one site are merged.

The format of a site's stores (``Sites.formats``) is an argument, because it does not change.

The operators are for gradients, and are not differentiable themselves. Exponents are data, not constants, so
``torch.compile`` compiles once, and the bits are those of eager execution. No operator waits for its device.
"""

from __future__ import annotations

import functools
import importlib.util

import torch
from torch import Tensor

from .. import _gradscale
from .store_formats import FORMATS, FP16, StoreFormat, find, rounded

ROW_WORDS = _gradscale.ROW_WORDS

_LIBRARY = torch.library.Library("gradscale", "DEF")
_LIBRARY.define("store(Tensor x, Tensor(a!) rows, Tensor control, int source, int site, int format=0) -> Tensor")
_LIBRARY.define("observe(Tensor x, Tensor(a!) rows, Tensor control, int source, int site, int format=0) -> ()")
_LIBRARY.define("unscale(Tensor x, Tensor control, int source) -> Tensor")

_FLOATS = (torch.float32, torch.float16)


def store(x: Tensor, rows: Tensor, control: Tensor, source: int, site: int, format: str = "fp16") -> Tensor:
    """Returns ``x`` as half at the exponent of ``site``, rounded once to nearest even; its statistics go to
    ``rows[site]``.

    ``x``: float32 or float16 at the exponent of the site ``source``, or unscaled where that is -1. The result has the
    shape and the strides of ``torch.empty_like(x)``. ``format``: ``"fp16"``, or ``"e5m2"`` or ``"e4m3"``, whose values are
    halves, too.
    """
    return torch.ops.gradscale.store(x.detach(), rows, control, source, site, find(format).code)


def observe(x: Tensor, rows: Tensor, control: Tensor, source: int, site: int, format: str = "fp16") -> None:
    """Writes the statistics that ``store`` would collect to ``rows[site]``, for a decision before the store."""
    torch.ops.gradscale.observe(x.detach(), rows, control, source, site, find(format).code)


def unscale(x: Tensor, control: Tensor, source: int) -> Tensor:
    """Returns ``x``, which is stored at the exponent of ``source``, as unscaled float32."""
    return torch.ops.gradscale.unscale(x.detach(), control, source)


def new_rows(sites: int, device=None) -> Tensor:
    """Returns empty statistics rows for all sites of a step."""
    return torch.zeros((sites, ROW_WORDS), dtype=torch.int32, device=device)


def control_of(sites: _gradscale.Sites) -> Tensor:
    """Returns the exponents and details of the coming step, on the CPU: to be copied into the device's ``control``."""
    return torch.stack([torch.from_numpy(sites.exponents), torch.from_numpy(sites.details)])


def _checked(x: Tensor) -> None:
    if x.dtype not in _FLOATS:
        raise TypeError(f"gradscale stores float32 and float16, not {x.dtype}")


def _flat(x: Tensor) -> Tensor:
    """Returns the elements in the order of memory, for a tensor that ``empty_like`` has created or that has such
    strides."""
    return x.as_strided((x.numel(),), (1,))


def _like(x: Tensor, y: Tensor) -> Tensor:
    """Returns ``x`` with the strides of ``y``, which ``empty_like`` made: without a copy where it has them already."""
    return x if x.stride() == y.stride() else torch.empty_like(y, dtype=x.dtype).copy_(x)


@torch.library.register_fake("gradscale::store")
def _(x, rows, control, source, site, format=0):
    _checked(x)
    return torch.empty_like(x, dtype=torch.float16)


@torch.library.register_fake("gradscale::observe")
def _(x, rows, control, source, site, format=0):
    _checked(x)


@torch.library.register_fake("gradscale::unscale")
def _(x, control, source):
    return torch.empty_like(x, dtype=torch.float32)


def _store_cpu(x, rows, control, source, site, format=0):
    _checked(x)
    x, y = x.detach(), torch.empty_like(x, dtype=torch.float16)
    words = rows.numpy().view("uint32")
    _gradscale.store_site(_flat(_like(x, y)).numpy(), _flat(y).numpy(), words, control.numpy(), source, site, format)
    return y


def _observe_cpu(x, rows, control, source, site, format=0):
    _checked(x)
    x = x.detach()
    x = _like(x, torch.empty_like(x))
    _gradscale.store_site(_flat(x).numpy(), None, rows.numpy().view("uint32"), control.numpy(), source, site, format)


_LIBRARY.impl("store", _store_cpu, "CPU")
_LIBRARY.impl("observe", _observe_cpu, "CPU")


# Implementation for devices without a kernel, by torch's own operators, which every device has. Nothing is read back.

_INFINITY = 0x7F800000
# Offsets in the words of a row: amax, detail, the histogram, the exponent, the format.
_AMAX, _DETAIL, _BINS, _EXPONENT, _FORMAT = 14, 15, 24, 280, 281


def scaled(x: Tensor, to: Tensor, start: Tensor) -> Tensor:
    """Returns ``x`` times 2^(to − start) as float32, in up to three factors: it rounds once."""
    k = (to.to(torch.int64) - start.to(torch.int64)).clamp(-378, 378).to(torch.int32)
    # A factor of 2^±126 where two are not enough, and the rest in halves.
    first = torch.where(k.abs() > 252, 126 * k.sign(), 0)
    rest = k - first
    second = torch.where(rest.abs() > 126, rest >> 1, 0)
    y = x.to(torch.float32)
    for part in (first, second, rest - second):
        y = y * ((part + 127) << 23).view(torch.float32)
    return y


def _merge(u: Tensor, row: Tensor, exponent: Tensor, detail: Tensor, format: StoreFormat = FP16) -> None:
    """Adds the statistics of the float32 values ``u`` to the words of a row."""
    size = u.reshape(-1).view(torch.int32) & 0x7FFFFFFF
    counted, binned = (detail >= 1).to(torch.int32), (detail >= 2).to(torch.int32)
    zeros, small, low, large, infinite, nan = (
        part.sum()
        for part in (
            size == 0, size < format.flush, size < format.subnormal, size >= format.overflow, size == _INFINITY, size > _INFINITY
        )
    )
    count = torch.full_like(zeros, size.numel())
    counts = torch.stack([count, zeros, infinite, nan, small - zeros, large - infinite - nan, low - small])
    row[:_AMAX].view(torch.int64).add_(counts * counted)
    finite = torch.where(size < _INFINITY, size, 0)
    if size.numel():
        row[_AMAX].copy_(torch.maximum(row[_AMAX], finite.max() * counted))
    # Bin 0 is for values that do not count, because only zero has that key.
    bins = torch.zeros(256, dtype=torch.int32, device=u.device)
    bins.index_add_(0, (finite + 0x7FFFFF) >> 23, torch.ones_like(size))
    row[_BINS + 1 : _BINS + 256].add_(bins[1:] * binned)
    row[_DETAIL].copy_(torch.maximum(row[_DETAIL], detail.clamp(max=2)))
    row[_EXPONENT].copy_(torch.where(detail >= 1, exponent, row[_EXPONENT]))
    if format is not FP16:
        row[_FORMAT].copy_(torch.where(detail >= 1, format.code, row[_FORMAT]))


def _arrives(x, control, source, site):
    _checked(x)
    start = control[0, source] if source >= 0 else torch.zeros_like(control[0, site])
    return scaled(x.detach(), control[0, site], start)


def store_anywhere(x, rows, control, source, site, format=0):
    """Stores `x` as halves and updates a statistics row, as ``store`` does, by PyTorch's own operators on any device.
    """
    u, kind = _arrives(x, control, source, site), FORMATS[format]
    _merge(u, rows[site], control[0, site], control[1, site], kind)
    return torch.empty_like(x, dtype=torch.float16).copy_(u if kind is FP16 else rounded(u, kind))


def observe_anywhere(x, rows, control, source, site, format=0):
    """Updates a statistics row from `x`, as ``observe`` does, by PyTorch's own operators on any device."""
    _merge(_arrives(x, control, source, site), rows[site], control[0, site], control[1, site], FORMATS[format])


def _unscale(x, control, source):
    exponent = control[0, source]
    return scaled(x.detach(), torch.zeros_like(exponent), exponent)


_LIBRARY.impl("store", store_anywhere, "CompositeExplicitAutograd")
_LIBRARY.impl("observe", observe_anywhere, "CompositeExplicitAutograd")
_LIBRARY.impl("unscale", _unscale, "CompositeExplicitAutograd")


#: Compute capability below which Triton's atomic operations do not assemble: ``.acq_rel`` is of sm_70.
LEAST_CAPABILITY = 7, 0


@functools.cache
def has_kernel(device):
    """Returns True if Triton compiles for the device. Others run torch's own operators, some thirty for a store."""
    return torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY


def _start(control, source):
    """Returns the exponent of incoming values, as the kernels take it."""
    if not -1 <= source < control.shape[1]:
        raise IndexError(f"the source {source} does not exist")
    return control[0, source] if source >= 0 else 0


def _store_cuda(x, rows, control, source, site, format=0):
    if not has_kernel(x.device):
        return store_anywhere(x, rows, control, source, site, format)
    _checked(x)
    y = torch.empty_like(x, dtype=torch.float16)
    kernels().store_values(_like(x.detach(), y), y, rows, control, _start(control, source), site, format=FORMATS[format])
    return y


def _observe_cuda(x, rows, control, source, site, format=0):
    if not has_kernel(x.device):
        observe_anywhere(x, rows, control, source, site, format)
        return
    _checked(x)
    x = x.detach()
    kernels().store_values(_like(x, torch.empty_like(x)), None, rows, control, _start(control, source), site, format=FORMATS[format])


def _unscale_cuda(x, control, source):
    if not has_kernel(x.device):
        return _unscale(x, control, source)
    y = torch.empty_like(x, dtype=torch.float32)
    kernels().scale_values(_like(x.detach(), y), y, control[0, source], 0)
    return y


def kernels():
    """Imports and returns the Triton kernels."""
    from . import kernels

    return kernels


_HAS_TRITON = importlib.util.find_spec("triton") is not None


def kernels_on(device):
    """Returns the Triton kernels for a device on which they run, else None."""
    return kernels() if device.type == "cuda" and _HAS_TRITON and has_kernel(device) else None


if _HAS_TRITON:
    _LIBRARY.impl("store", _store_cuda, "CUDA")
    _LIBRARY.impl("observe", _observe_cuda, "CUDA")
    _LIBRARY.impl("unscale", _unscale_cuda, "CUDA")
