"""A store in PyTorch's own operators, for devices without a kernel of ours; nothing in it waits.

Its rows count what the kernel's count, bit for bit: ``tests/test_torch_stores.py`` compares them.
"""

from __future__ import annotations

import numpy as np
import torch

NONE, COUNTS, FULL = 0, 1, 2
#: Seven counters, the bits of the largest magnitude, 256 bins.
ROW = 8 + 256


def factors(k: int):
    """2^k as factors that f32 has, clamped to what takes any f32 to any other."""
    k = max(-378, min(378, k))
    if k == 0:
        return []
    parts = 1 if abs(k) <= 126 else 2 if abs(k) <= 252 else 3
    whole, rest = divmod(abs(k), parts)
    sign = 1 if k > 0 else -1
    return [2.0 ** (sign * (whole + (i < rest))) for i in range(parts)]


def scale(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """`x` times 2^k, where k is a number on the device."""
    k = k.clamp(-378, 378)
    first = torch.div(k, 3, rounding_mode="trunc")
    second = torch.div(k - first, 2, rounding_mode="trunc")
    for part in (first, second, k - first - second):
        x = x * ((part + 127) << 23).view(torch.float32)
    return x


def observe(u: torch.Tensor, y: torch.Tensor, row: torch.Tensor, detail: int) -> None:
    """Adds to a row what a store of the f32 `u` as the half `y` saw."""
    if detail == NONE:
        return
    magnitude = u.abs()
    finite, wide = torch.isfinite(u), y.float().abs()
    nonzero = u != 0
    known = torch.where(finite, magnitude, 0.0)
    counts = torch.stack([
        (u == 0).sum(), torch.isinf(u).sum(), torch.isnan(u).sum(), (nonzero & (wide == 0)).sum(),
        (finite & ~torch.isfinite(wide)).sum(), ((wide != 0) & (wide < 2.0**-14)).sum(),
    ])
    row[0] += u.numel()
    row[1:7] += counts
    if u.numel():
        row[7] = torch.maximum(row[7], known.max().view(torch.int32).to(torch.int64))
    if detail >= FULL:
        key = (known.reshape(-1).view(torch.int32) + 0x7FFFFF) >> 23
        # Zeros, and what is not finite, have key 0, as nothing else has.
        bins = row.new_zeros(256).scatter_add_(0, key.to(torch.int64), torch.ones_like(key, dtype=torch.int64))
        bins[0] = 0
        row[8:] += bins


def words(rows: np.ndarray, exponents, details) -> np.ndarray:
    """Rows of a device as the words that core reads: counters in two words each, the exponent last."""
    out = np.zeros((len(rows), 281), np.uint32)
    counts = rows[:, :7].astype(np.uint64)
    out[:, 0:14:2] = counts & np.uint64(0xFFFFFFFF)
    out[:, 1:14:2] = counts >> np.uint64(32)
    out[:, 14] = rows[:, 7]
    out[:, 15] = np.where(rows[:, 0] > 0, details, 0)
    out[:, 24:280] = np.minimum(rows[:, 8:], 0xFFFFFFFF)
    out[:, 280] = np.asarray(exponents, np.int32).view(np.uint32)
    out[out[:, 15] == 0, :280] = 0
    return out
