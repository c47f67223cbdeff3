"""Where gradients are rounded: exponents and rows of statistics, on the CPU and on other devices.

On the CPU a store is one call of the Rust kernel, and exponents are numbers. Elsewhere exponents lie in one tensor on the
device and rows in another, so that nothing waits: the host reads all rows at once, between steps.
"""

from __future__ import annotations

import numpy as np
import torch

from .. import _gradscale
from . import plain

WORDS = _gradscale.ROW_WORDS


def _flat(x):
    """`x` in the order of memory, as one dimension, and what has its shape and order for the result."""
    if not x.is_contiguous() and not torch.ops.aten.is_non_overlapping_and_dense(x):
        x = x.contiguous()
    y = torch.empty_strided(x.size(), x.stride(), dtype=torch.float16)
    return x.as_strided((x.numel(),), (1,)), y, y.as_strided((y.numel(),), (1,))


class Host:
    """Stores in the memory of the host."""

    late = False

    def __init__(self, device):
        self._rows = np.zeros((16, WORDS), np.uint32)
        self._threads = None

    def begin(self):
        """As many threads as PyTorch has."""
        threads = torch.get_num_threads()
        if threads != self._threads:
            self._threads = threads
            _gradscale.set_num_threads(threads)

    def grow(self, count):
        if count > len(self._rows):
            more = np.zeros((max(count, 2 * len(self._rows)) - len(self._rows), WORDS), np.uint32)
            self._rows = np.concatenate([self._rows, more])

    def upload(self, exponents):
        self._exponents = exponents.tolist()

    def exponent(self, slot):
        return self._exponents[slot]

    @staticmethod
    def number(exponent):
        return exponent

    @staticmethod
    def least(a, b):
        return min(a, b)

    @staticmethod
    def scaled(x, start, end):
        """`x` times 2^(end − start)."""
        for factor in plain.factors(end - start):
            x = x * factor
        return x

    def look(self, x, start):
        """What a store of `x` at the exponent at which it stands would see."""
        row = np.zeros(WORDS, np.uint32)
        _gradscale.store(_flat(x)[0].numpy(), start, None, start, plain.FULL, row)
        return _gradscale.Stats._from_words(row)

    def store(self, x, start, slot, exponent, detail):
        x, y, flat = _flat(x)
        row = self._rows[slot]
        if row.any() and row[-1].astype(np.int32) != exponent:
            row[:] = 0  # all zeros so far: no exponent
        _gradscale.store(x.numpy(), start, flat.numpy(), exponent, detail, row)
        return y

    def collect(self, count, found):
        """The rows of a step and whether a gradient was not finite; the next step's begin."""
        rows = self._rows[:count].copy()
        self._rows[:] = 0
        return rows, found

    @staticmethod
    def read(seen, exponents, details):
        """What `collect` took: rows in words, and the flag."""
        rows, found = seen
        return rows, bool(found) if found is not None else None


class Device:
    """Stores in the memory of a device, from which the host reads once a step, one step late."""

    late = True

    def __init__(self, device):
        self._device = device
        self._rows = torch.zeros(16, plain.ROW, dtype=torch.int64, device=device)
        self._exponents = torch.zeros(16, dtype=torch.int32, device=device)

    def begin(self):
        """Nothing is to be made ready."""

    def grow(self, count):
        if count > len(self._rows):
            rows, exponents = self._rows, self._exponents
            size = max(count, 2 * len(rows))
            self._rows = rows.new_zeros(size, plain.ROW)
            self._rows[: len(rows)] = rows
            self._exponents = exponents.new_zeros(size)
            self._exponents[: len(exponents)] = exponents

    def upload(self, exponents):
        host = torch.from_numpy(exponents)
        if self._device.type == "cuda":
            host = host.pin_memory()
        self._exponents[: len(host)].copy_(host, non_blocking=True)

    def exponent(self, slot):
        return self._exponents[slot]

    def number(self, exponent):
        return exponent if isinstance(exponent, int) else int(exponent)

    @staticmethod
    def least(a, b):
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        if a is b:
            return a
        return torch.clamp(a, max=b) if isinstance(b, int) else torch.clamp(b, max=a) if isinstance(a, int) else torch.minimum(a, b)

    @staticmethod
    def scaled(x, start, end):
        if start is end or isinstance(start, int) and isinstance(end, int):
            return Host.scaled(x, start, end) if start is not end else x
        return plain.scale(x, end - start)

    def look(self, x, start):
        row = torch.zeros(plain.ROW, dtype=torch.int64, device=x.device)
        plain.observe(x, x.half(), row, plain.FULL)
        return _gradscale.Stats._from_words(plain.words(row[None].cpu().numpy(), [self.number(start)], [plain.FULL])[0])

    def store(self, x, start, slot, exponent, detail):
        u = self.scaled(x, start, exponent)
        y = u.half()
        plain.observe(u, y, self._rows[slot], detail)
        return y

    def collect(self, count, found):
        """As on the host; what is returned is to be waited for, and that is called a step later."""
        rows = self._rows[:count].clone()
        self._rows.zero_()
        flag = torch.zeros((), device=self._device) if found is None else found.to(self._device)
        if self._device.type == "cuda":
            host = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True).copy_(rows, non_blocking=True)
            seen = torch.empty((), pin_memory=True).copy_(flag, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        else:
            host, seen, event = rows.cpu(), flag.cpu(), None
        return host, (seen if found is not None else None), event

    @staticmethod
    def read(seen, exponents, details):
        """As on the host."""
        if len(seen) == 2:  # from a checkpoint
            return seen
        rows, found, event = seen
        if event is not None:
            event.synchronize()
        return plain.words(rows.numpy(), exponents, details), bool(found) if found is not None else None
