"""Formats to which sites round: FP16, and formats of 8 bits, which are simulated. Every value of each is a half.

A store in such a format rounds f32 once to it, and the result is kept as a half. So memory, operators and exponents are those
of FP16. Only the values are fewer, and the statistics count by the thresholds of the format.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from .. import _gradscale

_INFINITY, _NAN, _MAGNITUDE, _SIGN = 0x7F800000, 0x7FC00000, 0x7FFFFFFF, -0x80000000


class StoreFormat(NamedTuple):
    """Format of stores: its number, its name, and what a store needs to know."""

    code: int
    name: str
    #: Least magnitudes, as bits of f32, that do not flush, that are normal, and that overflow.
    flush: int
    subnormal: int
    overflow: int
    mantissa_bits: int
    #: Bits of f32 of the smallest normal number.
    normal: int
    #: Bits of f32 of what a magnitude becomes that is too large: ∞, or NaN where the format has no ∞.
    too_large: int

    @property
    def min_exponent(self) -> int:
        """Returns the exponent of the smallest normal number."""
        return (self.normal >> 23) - 127

    @property
    def max_exponent(self) -> int:
        """Returns the exponent of the largest number."""
        return (self.overflow >> 23) - 127

    @property
    def has_infinity(self) -> bool:
        """Returns True if the format has ±∞."""
        return self.too_large == _INFINITY

    @property
    def grid(self) -> int:
        """Returns what is added to the bits of a power of two, for a number whose last place is the format's there."""
        return (23 - self.mantissa_bits) << 23


def _described(code, name, ends, mantissa_bits, min_exponent, has_infinity):
    return StoreFormat(code, name, *ends, mantissa_bits, (min_exponent + 127) << 23, _INFINITY if has_infinity else _NAN)


#: Formats by number.
FORMATS = [_described(code, *described) for code, described in enumerate(_gradscale.store_formats())]
FP16 = FORMATS[0]
_BY_NAME = {one.name: one for one in FORMATS}


def find(name: str) -> StoreFormat:
    """Returns the format of that name."""
    found = _BY_NAME.get(name)
    if found is None:
        raise ValueError(f"{name!r} is not a format of stores: choose {', '.join(_BY_NAME)}")
    return found


def rounded(u: torch.Tensor, format: StoreFormat) -> torch.Tensor:
    """Returns f32 values as halves, rounded once to a format, by operators that every device has."""
    if format is FP16:
        return u.half()
    bits = u.view(torch.int32)
    size = bits & _MAGNITUDE
    finite = size.clamp(max=format.overflow)
    # A number whose last place is the format's at this magnitude. A sum with it is rounded there, to nearest even.
    grid = ((finite.clamp(min=format.normal) & _INFINITY) + format.grid).view(torch.float32)
    number = ((finite.view(torch.float32) + grid) - grid).view(torch.int32)
    special = torch.where(size > _INFINITY, size, format.too_large)
    return (torch.where(size >= format.overflow, special, number) | bits & _SIGN).view(torch.float32).half()
