"""GPU kernels that exist only for halves: flash attention, cuDNN's attention, recurrent layers under plain autocast.

Such a kernel takes and returns gradients as halves, all at one exponent, because it has no notion of exponents. So all
of them belong to one site, that of the incoming gradient:

1. The gradients that it takes are stored at the exponent of the site, whatever exponents they had before.
2. The kernel runs. It computes in f32 and rounds its results to half.
3. The row of the site observes the results as well. If a result is ±∞ or NaN although all inputs are finite, it was too
large for this exponent. It is counted as an overflow, so the step is repeated or skipped, and the exponent falls.
Values that the kernel has flushed cannot be distinguished from other zeros, but subnormal results are counted, and
raise the exponent. In a format of 8 bits the kernel's results are halves all the same, and not values of the format. So that
its row has room for them, and counts as flushed or subnormal only what is stored in it, it observes the large ones, brought
from the range of FP16 to that of the format.

A site that decides inside a step does not know the results yet. In that case the kernel runs once more before the
decision, at an exponent with spare bits.

Results are rounded twice: here, and where they are read next, at a site of their own. The second rounding changes only
values that are subnormal there, because it multiplies by a power of two. Gradients that are added are added in f32
between the two."""

from __future__ import annotations

import torch

from . import scaled
from .store_formats import FP16, rounded

#: Kernels by name. Recurrent layers are here for models under plain autocast: ``attach`` has them run in f32.
HALF_ONLY = frozenset(
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_cudnn_attention_backward _flash_attention_backward"
    " _cudnn_attention_backward _scaled_dot_product_fused_attention_overrideable_backward _cudnn_rnn_backward"
    " miopen_rnn_backward".split()
)
#: Overflow threshold: the smallest magnitude that f16 cannot hold.
_TOO_LARGE = 65536.0
#: Bits above the largest gradient that are free when results are looked at for the first time, and how many more each time
#: that they are not finite: a product of attention adds some hundred terms.
_PROBE_BITS = 10
_PROBES = 5


def saved_type(name, args):
    """Returns the type of the tensors that the forward pass has saved for such a kernel: ``float16`` or
    ``bfloat16``. None for other operators, and if it ran in f32."""
    if name not in HALF_ONLY:
        return None
    types = {x.dtype for x in args if isinstance(x, torch.Tensor) and not isinstance(x, scaled.ScaledTensor)}
    return next((dtype for dtype in (torch.float16, torch.bfloat16) if dtype in types), None)


def call(scaling, function, args, kwargs, places, starts, name, calls):
    """Runs such a kernel in half. `places` are those of the gradients in `args`, in f32, at the exponents `starts`. Returns its
    results in f32, and their exponent."""
    gradients = [args[place] for place in places]
    scaling._open_once(gradients[0].device)
    slot = scaling._slot(name, calls)
    stores = scaling._stores
    if scaling._decides_in_step[slot]:
        scaling._decide_in_step(slot, *_probed(scaling, function, args, kwargs, places, starts, slot))
    scaling._note(slot)
    halves = [stores.store(gradient, start, slot) for gradient, start in zip(gradients, starts)]
    results = function(*_replaced(args, places, halves), **kwargs)
    finite = torch.stack([half.isfinite().all() for half in halves]).all()
    wide = widened(results)
    for result in _floats(wide):
        result = torch.where(result.isfinite() | ~finite, result, _TOO_LARGE)
        stores.observe_stored(_in_range(result, scaling._formats[slot]), slot)
    return wide, stores.exponent(slot)


def _probed(scaling, function, args, kwargs, places, starts, slot):
    """Returns the row of a kernel's inputs and results, which are at one exponent, and that exponent."""
    stores, gradients = scaling._stores, [args[place] for place in places]
    looks = [scaling._look(gradient, start, slot) for gradient, start in zip(gradients, starts)]
    if any(row.infinite or row.nan for row in looks):
        return looks[0], looks[0].exponent
    above = [row.exponent + row.headroom for row in looks if row.headroom is not None]
    exponent = min(above) - _PROBE_BITS if above else min(row.exponent for row in looks)
    for _ in range(_PROBES):
        scaled_ = [stores.scaled(gradient, start, exponent) for gradient, start in zip(gradients, starts)]
        halves = [rounded(gradient, scaling._formats[slot]) for gradient in scaled_]
        # A kernel may overwrite the tensors that the forward pass has saved for it.
        copied = [x.clone() if isinstance(x, torch.Tensor) and x.dtype == torch.uint8 else x for x in args]
        results = _floats(function(*_replaced(copied, places, halves), **kwargs))
        if all(bool(result.isfinite().all()) for result in results):
            break
        exponent -= _PROBE_BITS
    ranged = [_in_range(result, scaling._formats[slot]) for result in results]
    total, *others = (scaling._look(x.float(), exponent, slot) for x in (*halves, *ranged))
    for row in others:
        total = total + row
    return total, exponent


def _in_range(result, format):
    """Returns results of a kernel as the row of a site in that format observes them."""
    if format is FP16:
        return result
    result = result.float() * 2.0 ** (format.max_exponent - FP16.max_exponent)
    return torch.where(result.abs() < 2.0**format.min_exponent, 0.0, result)


def _replaced(args, places, gradients):
    args = list(args)
    for place, gradient in zip(places, gradients):
        args[place] = gradient
    return args


def _floats(out):
    """Returns all floating-point tensors among an operator's results, nested ones too."""
    found = []
    for x in out if isinstance(out, (list, tuple)) else [out]:
        if isinstance(x, (list, tuple)):
            found += _floats(x)
        elif isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel():
            found.append(x)
    return found


def widened(out):
    """Returns an operator's results with halves converted to f32."""
    if isinstance(out, (list, tuple)):
        return type(out)([widened(x) for x in out])
    return out.float() if isinstance(out, torch.Tensor) and out.is_floating_point() else out
