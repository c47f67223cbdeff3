"""Kernels in Triton for GPUs: each is one launch and one pass over the values.

    store_values     halves at the exponent of a site, rounded to its format, with the site's statistics
    scale_values     values times a power of two, for example the unscaled gradient of a weight
    add_values       the sum of two gradients, at the lesser of their exponents

Exponents are read on the device, as elements of a tensor, so the host computes nothing from them and never waits. A power of
two is applied in up to three factors, as `gradscale.torch.ops.scaled` does: it rounds once, with the bits of the CPU.

Tensors are dense, but in any order of memory: the kernels go through memory from its beginning.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .. import _gradscale
from .store_formats import FP16

#: Values of a program in one round.
BLOCK = 2048
#: Warps of a store: with 8 values in each thread it takes 39 registers on sm_90, so six programs fit on a multiprocessor.
STORE_WARPS = 8
#: Programs of a store at most: six on each of the 132 multiprocessors of an H100. More would only add more often to the same
#: counters.
MAX_STORE_PROGRAMS = 792


@triton.jit
def _power(k):
    """Computes 2^k for -126 <= k <= 127."""
    return ((k + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _times_power(u, exponent, start):
    """Computes u times 2^(exponent - start), in up to three factors."""
    k = tl.minimum(tl.maximum(exponent.to(tl.int64) - start.to(tl.int64), -378), 378).to(tl.int32)
    first = tl.where(k > 252, 126, tl.where(k < -252, -126, 0))
    rest = k - first
    second = tl.where((rest > 126) | (rest < -126), rest >> 1, 0)
    return u * _power(first) * _power(second) * _power(rest - second)


@triton.jit
def _rounded(u, OVERFLOW: tl.constexpr, NORMAL: tl.constexpr, GRID: tl.constexpr, TOO_LARGE: tl.constexpr):
    """Rounds u to a format of 8 bits, as `store_formats.rounded` does."""
    bits = u.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    finite = tl.minimum(size, OVERFLOW)
    grid = ((tl.maximum(finite, NORMAL) & 0x7F800000) + GRID).to(tl.float32, bitcast=True)
    number = ((finite.to(tl.float32, bitcast=True) + grid) - grid).to(tl.int32, bitcast=True)
    special = tl.where(size > 0x7F800000, size, TOO_LARGE)
    return (tl.where(size >= OVERFLOW, special, number) | (bits & -0x80000000)).to(tl.float32, bitcast=True)


@triton.jit
def _exponent(at, number, IS_TENSOR: tl.constexpr):
    """Returns an exponent: a number, or that element of a tensor."""
    if IS_TENSOR:
        return tl.load(at + number)
    else:
        return number + tl.zeros([], tl.int32)


# One kernel for all sites: their numbers are no constants, and the addresses of exponents are aligned by chance.
@triton.jit(do_not_specialize=["start_at", "kept", "sites", "start", "site"])
def _store(
    x, y, rows, control, start_at, kept, elements, sites, start, site,
    ROW: tl.constexpr, FROM_TENSOR: tl.constexpr, STORES: tl.constexpr, KEEPS: tl.constexpr, BLOCK: tl.constexpr,
    FORMAT: tl.constexpr, FLUSH: tl.constexpr, SUBNORMAL: tl.constexpr, OVERFLOW: tl.constexpr, NORMAL: tl.constexpr,
    GRID: tl.constexpr, TOO_LARGE: tl.constexpr,
):  # fmt: skip
    exponent = tl.load(control + site)
    detail = tl.load(control + sites + site)
    from_ = _exponent(start_at, start, FROM_TENSOR)
    if KEEPS:
        if tl.program_id(0) == 0:
            tl.store(kept, exponent)

    # Four neighbours, 16 bytes of f32, belong to one thread. Their counts are added at once: counters for each of them took
    # 255 registers.
    fours = tl.arange(0, BLOCK // 4).to(tl.int64)
    lanes = fours[:, None] * 4 + tl.arange(0, 4)[None, :]
    keys = tl.arange(0, 256)
    bins = tl.zeros([256], tl.int32)
    zeros = tl.zeros([BLOCK // 4], tl.int32)
    small = tl.zeros([BLOCK // 4], tl.int32)
    low = tl.zeros([BLOCK // 4], tl.int32)
    large = tl.zeros([BLOCK // 4], tl.int32)
    infinite = tl.zeros([BLOCK // 4], tl.int32)
    nan = tl.zeros([BLOCK // 4], tl.int32)
    amax = tl.zeros([BLOCK // 4], tl.int32)
    blocks = tl.cdiv(elements, BLOCK)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        # Computed in 64 bits, for tensors with more than 2^31 elements.
        at = (lanes * 0 + block) * BLOCK + lanes
        inside = at < elements
        u = _times_power(tl.load(x + at, mask=inside, other=0).to(tl.float32), exponent, from_)
        if STORES:
            if FORMAT == 0:
                tl.store(y + at, u.to(y.dtype.element_ty), mask=inside)
            else:
                tl.store(y + at, _rounded(u, OVERFLOW, NORMAL, GRID, TOO_LARGE).to(y.dtype.element_ty), mask=inside)
        # Beyond the end are ones, which no counter counts.
        size = tl.where(inside, u.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 0x3F800000)
        zeros += tl.sum((size == 0).to(tl.int32), 1)
        small += tl.sum((size < FLUSH).to(tl.int32), 1)
        low += tl.sum((size < SUBNORMAL).to(tl.int32), 1)
        large += tl.sum((size >= OVERFLOW).to(tl.int32), 1)
        infinite += tl.sum((size == 0x7F800000).to(tl.int32), 1)
        nan += tl.sum((size > 0x7F800000).to(tl.int32), 1)
        finite = tl.where(inside & (size < 0x7F800000), size, 0)
        amax = tl.maximum(amax, tl.max(finite, 1))
        if detail >= 2:
            # Values that do not count have key 0, which otherwise only zero has.
            bins += tl.histogram(tl.reshape((finite + 0x7FFFFF) >> 23, [BLOCK]), 256)

    row = rows + site * ROW
    if detail >= 1:
        counters = row.to(tl.pointer_type(tl.int64))
        all_zeros = tl.sum(zeros).to(tl.int64)
        all_small = tl.sum(small).to(tl.int64)
        all_low = tl.sum(low).to(tl.int64)
        all_infinite = tl.sum(infinite).to(tl.int64)
        all_nan = tl.sum(nan).to(tl.int64)
        if tl.program_id(0) == 0:
            tl.atomic_add(counters, elements.to(tl.int64))
        tl.atomic_add(counters + 1, all_zeros)
        tl.atomic_add(counters + 2, all_infinite)
        tl.atomic_add(counters + 3, all_nan)
        tl.atomic_add(counters + 4, all_small - all_zeros)
        tl.atomic_add(counters + 5, tl.sum(large).to(tl.int64) - all_infinite - all_nan)
        tl.atomic_add(counters + 6, all_low - all_small)
        tl.atomic_max(row + 14, tl.max(amax, 0))
        tl.atomic_max(row + 15, tl.minimum(detail, 2))
        tl.store(row + 280, exponent)
        if FORMAT != 0:
            tl.store(row + 281, FORMAT)
        if detail >= 2:
            tl.atomic_add(row + 24 + keys, bins, mask=keys > 0)


@triton.jit(do_not_specialize=["start_at", "end_at", "start", "end"])
def _scale(
    x, y, start_at, end_at, elements, start, end,
    FROM_TENSOR: tl.constexpr, TO_TENSOR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < elements
    u = tl.load(x + at, mask=inside, other=0).to(tl.float32)
    u = _times_power(u, _exponent(end_at, end, TO_TENSOR), _exponent(start_at, start, FROM_TENSOR))
    tl.store(y + at, u, mask=inside)


@triton.jit(do_not_specialize=["a_at", "b_at", "kept", "a", "b"])
def _add(
    x, y, out, a_at, b_at, kept, elements, a, b,
    A_TENSOR: tl.constexpr, B_TENSOR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    one = _exponent(a_at, a, A_TENSOR)
    other = _exponent(b_at, b, B_TENSOR)
    least = tl.minimum(one, other)
    if tl.program_id(0) == 0:
        tl.store(kept, least)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < elements
    u = _times_power(tl.load(x + at, mask=inside, other=0).to(tl.float32), least, one)
    v = _times_power(tl.load(y + at, mask=inside, other=0).to(tl.float32), least, other)
    tl.store(out + at, u + v, mask=inside)


def _argument(exponent, unused):
    """Returns an exponent as arguments of a kernel: a tensor, a number to be added to its address, and True if it is a tensor."""
    return (unused, exponent, False) if isinstance(exponent, int) else (exponent, 0, True)


def _clamped(exponent):
    """Returns an exponent that is a number, in the range of 32 bits. Beyond 378 bits nothing changes."""
    return max(-(1 << 30), min(1 << 30, exponent)) if isinstance(exponent, int) else exponent


def constants(format):
    """Returns the constants by which a kernel knows a format."""
    return (format.code, format.flush, format.subnormal, format.overflow, format.normal, format.grid, format.too_large)


def store_values(x, y, rows, control, start, site, kept=None, format=FP16):
    """Stores dense `x`, which is at the exponent `start`, in `y` with the same strides (None: only observes it), rounded to
    `format`, and adds the statistics to ``rows[site]``. `start` is a number or a tensor. `kept` gets the exponent."""
    sites = control.shape[1]
    if not 0 <= site < min(sites, rows.shape[0]):
        raise IndexError(f"site {site} does not exist")
    elements = x.numel()
    start_at, start, from_tensor = _argument(_clamped(start), control)
    programs = max(1, min(triton.cdiv(elements, BLOCK), MAX_STORE_PROGRAMS))
    # Triton launches on the current device, which need not be that of the tensors.
    with torch.cuda.device_of(x):
        _store[(programs,)](
            x, x if y is None else y, rows, control, start_at, control if kept is None else kept, elements, sites, start, site,
            _gradscale.ROW_WORDS, from_tensor, y is not None, kept is not None, BLOCK, *constants(format), num_warps=STORE_WARPS,
        )  # fmt: skip


def scale_values(x, y, start, end):
    """Writes dense `x` times 2^(`end` - `start`) into f32 `y`, which has the same strides."""
    elements = x.numel()
    if elements == 0:
        return
    start_at, start, from_tensor = _argument(_clamped(start), y)
    end_at, end, to_tensor = _argument(_clamped(end), y)
    with torch.cuda.device_of(x):
        _scale[(triton.cdiv(elements, BLOCK),)](x, y, start_at, end_at, elements, start, end, from_tensor, to_tensor, BLOCK)


def add_values(x, y, out, a, b, least):
    """Writes the sum of `x`, at the exponent `a`, and of `y`, at `b`, into f32 `out`, all dense with the same strides.
    `least` gets the lesser exponent, at which it is."""
    elements = x.numel()
    a_at, a, a_tensor = _argument(_clamped(a), least)
    b_at, b, b_tensor = _argument(_clamped(b), least)
    with torch.cuda.device_of(x):
        _add[(max(1, triton.cdiv(elements, BLOCK)),)](x, y, out, a_at, b_at, least, elements, a, b, a_tensor, b_tensor, BLOCK)
