"""Matrix products in FP8 by ``torch._scaled_mm``, for methods with ``products=fp8``.

The operands are halves that hold values of E4M3 or E5M2 alone, at the exponents of their sites. Casting them to 8 bits is
exact, so a product differs from that of halves only by the roundings of its sums:

1. Each operand is packed into bytes with the terms of a sum side by side, as units for 8 bits read them. Sizes that
   `_scaled_mm` wants as multiples of 16 are filled up with zeros.
2. Both scales of `_scaled_mm` are 1. The result is f32 at the sum of the operands' exponents, as in :mod:`.gpu`, so no
   exponent is read from the device.
3. With ``use_fast_accum=False`` cuBLAS adds partial sums in f32. Hopper's tensor cores alone keep about 14 bits of a sum.

`_scaled_mm` has no batches of matrices and no product of two operands in E5M2. These products, and those with an operand
in FP16 or f32, are computed as without ``products=fp8``.
"""

from __future__ import annotations

import functools

import torch
from torch.utils._python_dispatch import _disable_current_modes

from . import activations, scaled
from .store_formats import FP16, find

#: Operators of two matrices, which may be computed in FP8.
OPERATORS = frozenset({torch.ops.aten.mm.default, torch.ops.aten.addmm.default})
E5M2 = find("e5m2")
#: Types of 8 bits by the names of formats; empty before torch 2.1.
TYPES = {"e5m2": torch.float8_e5m2, "e4m3": torch.float8_e4m3fn} if hasattr(torch, "float8_e4m3fn") else {}
#: Multiples that `_scaled_mm` wants of the terms of a sum and of the columns of a result: 16 bytes are a vector of cuBLAS.
MULTIPLE = 16
#: Compute capability from which NVIDIA GPUs have units for 8 bits.
LEAST_CAPABILITY = 8, 9


class UnsupportedDeviceError(RuntimeError):
    """PyTorch cannot multiply in FP8 on a device."""


def check_formats(method, formats):
    """Raises an error if `formats`, those of gradients, activations and weights, leave a linear layer a product of two
    operands in E5M2."""
    if sum(name == E5M2.name for name in formats) > 1:
        raise ValueError(
            f"{method}: cuBLAS has no FP8 product of two operands in E5M2: use E4M3 for two of grad, act and weight, or leave"
            " products=fp8 out"
        )


def check_device(device):
    """Raises an error if PyTorch cannot multiply in FP8 on a device."""
    obstacle = _find_obstacle(device)
    if obstacle is not None:
        raise UnsupportedDeviceError(f"{obstacle}; leave products=fp8 out")


@functools.cache
def _find_obstacle(device):
    """Returns a sentence about what prevents products in FP8 on a device; None if nothing does."""
    if not TYPES or not hasattr(torch, "_scaled_mm"):
        return f"products=fp8 needs torch._scaled_mm and PyTorch {torch.__version__} has none: install a newer PyTorch"
    if device.type == "cuda" and torch.version.hip is None:
        capability = torch.cuda.get_device_capability(device)
        if capability >= LEAST_CAPABILITY:
            return None
        return "products=fp8 needs compute capability {}.{} and {} has {}.{}".format(*LEAST_CAPABILITY, device, *capability)
    # No other device names what it has, so a small product is tried.
    with _disable_current_modes(), torch.no_grad():
        try:
            ones = torch.ones(2 * [MULTIPLE], dtype=torch.float16, device=device)
            product = _multiply(ones, find("e4m3"), ones, E5M2)
        except (RuntimeError, TypeError, ValueError):
            product = None
    works = product is not None and bool((product == MULTIPLE).all())
    return None if works else f"PyTorch {torch.__version__} has no FP8 products on {device}"


def multiply(function, left, right):
    """Returns the product of two matrices in f32, at the sum of their exponents, and None; or None and the reason why it cannot
    be computed in FP8."""
    if function not in OPERATORS:
        return None, "a batch of matrices"
    (a, format), (b, other) = _operand(left), _operand(right)
    if FP16 in (format, other):
        return None, "an operand in FP16 or f32"
    if format is other is E5M2:
        return None, "two operands in E5M2"
    if not a.numel() or not b.numel():
        return None, "an operand without values"
    check_device(a.device)
    return _multiply(a, format, b, other), None


def _operand(x):
    """Returns the values of an operand as they are stored, and the format to which they were rounded."""
    if activations.is_activation(x):
        return x.halves(), x.format
    if isinstance(x, scaled.ScaledTensor) and x._is_rounded and x._data.dtype == torch.float16:
        return x._data, x._scaling._gradient_format
    return x, FP16


def _multiply(a, format, b, other):
    """Returns the product of two matrices of halves, which hold values of two formats, in f32."""
    one, columns = torch.ones((), device=a.device), b.shape[1]
    left, right = _packed(a, format, 1), _packed(b.t(), other, MULTIPLE).t()
    y = torch._scaled_mm(left, right, one, one, out_dtype=torch.float32, use_fast_accum=False)
    return y if y.shape[1] == columns else y[:, :columns].contiguous()


def _packed(x, format, multiple):
    """Returns a matrix in 8 bits, row after row. Its rows are filled up to a multiple of `multiple`, its columns to that of
    `_scaled_mm`."""
    if not format.has_infinity:
        # A mask may contain ±∞, which PyTorch's cast would clip to the largest number. ∞ + 0·∞ is NaN; other values stay.
        x = torch.add(x, x, alpha=0)
    rows, columns = x.shape
    shape = [-(-rows // multiple) * multiple, -(-columns // MULTIPLE) * MULTIPLE]
    create = torch.empty if shape == [rows, columns] else torch.zeros
    y = create(shape, dtype=TYPES[format.name], device=x.device)
    y[:rows, :columns].copy_(x)
    return y
