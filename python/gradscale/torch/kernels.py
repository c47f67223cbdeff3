"""The store with its row in Triton: one pass over the values, for GPUs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .. import _gradscale

BLOCK = 2048
# More programs than that would only add more often to the same counters.
PROGRAMS = 528


@triton.jit
def _power(k):
    """Computes 2^k for -126 <= k <= 127."""
    return ((k + 127) << 23).to(tl.float32, bitcast=True)


# One kernel for all sites: their numbers are no constants.
@triton.jit(do_not_specialize=["sites", "source", "site"])
def _store(
    x, y, rows, control, elements, sites, source, site, ROW: tl.constexpr, STORES: tl.constexpr, BLOCK: tl.constexpr
):
    exponent = tl.load(control + site)
    detail = tl.load(control + sites + site)
    start = tl.load(control + tl.maximum(source, 0))
    start = tl.where(source >= 0, start, 0)
    # 2^(exponent - start) in up to three factors, as gradscale.torch.ops.scaled forms them: it rounds once.
    k = tl.minimum(tl.maximum(exponent.to(tl.int64) - start.to(tl.int64), -378), 378).to(tl.int32)
    first = tl.where(k > 252, 126, tl.where(k < -252, -126, 0))
    rest = k - first
    second = tl.where((rest > 126) | (rest < -126), rest >> 1, 0)
    third = rest - second

    lanes = tl.arange(0, BLOCK).to(tl.int64)
    keys = tl.arange(0, 256)
    bins = tl.zeros([256], tl.int32)
    count = tl.zeros([BLOCK], tl.int32)
    zeros = tl.zeros([BLOCK], tl.int32)
    small = tl.zeros([BLOCK], tl.int32)
    low = tl.zeros([BLOCK], tl.int32)
    large = tl.zeros([BLOCK], tl.int32)
    infinite = tl.zeros([BLOCK], tl.int32)
    nan = tl.zeros([BLOCK], tl.int32)
    amax = tl.zeros([BLOCK], tl.int32)
    blocks = tl.cdiv(elements, BLOCK)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        # Computed in 64 bits, for tensors with more than 2^31 elements.
        at = (lanes * 0 + block) * BLOCK + lanes
        inside = at < elements
        u = tl.load(x + at, mask=inside, other=0).to(tl.float32)
        u = u * _power(first) * _power(second) * _power(third)
        if STORES:
            tl.store(y + at, u.to(y.dtype.element_ty), mask=inside)
        size = u.to(tl.int32, bitcast=True) & 0x7FFFFFFF
        count += inside.to(tl.int32)
        zeros += (inside & (size == 0)).to(tl.int32)
        small += (inside & (size < 0x33000001)).to(tl.int32)
        low += (inside & (size < 0x387FE000)).to(tl.int32)
        large += (inside & (size >= 0x477FF000)).to(tl.int32)
        infinite += (inside & (size == 0x7F800000)).to(tl.int32)
        nan += (inside & (size > 0x7F800000)).to(tl.int32)
        finite = tl.where(inside & (size < 0x7F800000), size, 0)
        amax = tl.maximum(amax, finite)
        if detail >= 2:
            # Values that do not count have key 0, which otherwise only zero has.
            bins += tl.histogram((finite + 0x7FFFFF) >> 23, 256)

    row = rows + site * ROW
    if detail >= 1:
        counters = row.to(tl.pointer_type(tl.int64))
        all_zeros = tl.sum(zeros).to(tl.int64)
        all_small = tl.sum(small).to(tl.int64)
        all_low = tl.sum(low).to(tl.int64)
        all_infinite = tl.sum(infinite).to(tl.int64)
        all_nan = tl.sum(nan).to(tl.int64)
        tl.atomic_add(counters, tl.sum(count).to(tl.int64))
        tl.atomic_add(counters + 1, all_zeros)
        tl.atomic_add(counters + 2, all_infinite)
        tl.atomic_add(counters + 3, all_nan)
        tl.atomic_add(counters + 4, all_small - all_zeros)
        tl.atomic_add(counters + 5, tl.sum(large).to(tl.int64) - all_infinite - all_nan)
        tl.atomic_add(counters + 6, all_low - all_small)
        tl.atomic_max(row + 14, tl.max(amax, 0))
        tl.atomic_max(row + 15, tl.minimum(detail, 2))
        tl.store(row + 280, exponent)
        if detail >= 2:
            tl.atomic_add(row + 24 + keys, bins, mask=keys > 0)


def launch(x, y, rows, control, source, site):
    """Stores flat ``x`` into flat ``y`` (None: only observes it), and adds the statistics to ``rows[site]``."""
    sites = control.shape[1]
    if not (0 <= site < min(sites, rows.shape[0]) and -1 <= source < sites):
        raise IndexError(f"site {site} or its source {source} does not exist")
    programs = max(1, min(triton.cdiv(x.numel(), BLOCK), PROGRAMS))
    stored = x if y is None else y
    # Triton launches on the current device, which need not be that of the tensors.
    with torch.cuda.device_of(x):
        _store[(programs,)](
            x, stored, rows, control, x.numel(), sites, source, site, _gradscale.ROW_WORDS, y is not None, BLOCK
        )
