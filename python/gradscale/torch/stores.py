"""Stores, which round gradients: exponents and statistics rows, on the CPU and on other devices.

On the CPU a store is one call of the Rust kernel, and exponents are numbers. On other devices exponents are in one
tensor and rows in another, so that no store waits: the host reads all rows together, between steps.
"""

from __future__ import annotations

import numpy as np
import torch

from .. import _gradscale
from . import ops
from .store_formats import FP16

#: Details of a row: nothing, counts, histogram, sums.
NONE, COUNTS, FULL, MOMENTS = 0, 1, 2, 3
#: Offsets of the largest finite magnitude and of the exponent in a row.
AMAX, EXPONENT = 14, 280


def factors(k: int):
    """Returns 2^k as factors that f32 can represent. k is clamped to the range that maps any f32 to any other."""
    k = max(-378, min(378, k))
    parts = -(-abs(k) // 126)
    whole, rest = divmod(abs(k), parts or 1)
    sign = 1 if k > 0 else -1
    return [2.0 ** (sign * (whole + (i < rest))) for i in range(parts)]


def dense(x):
    """Returns `x`, contiguous if it has gaps or shares elements. Compiled graphs rely on these strides of a store."""
    return x if x.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(x) else x.contiguous()


def is_capturing(device):
    """Returns True while the operators of a device are recorded into a CUDA graph and not run."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def refuse_capture(device):
    """Raises an error while a CUDA graph is recorded: its replays would count and decide nothing."""
    if is_capturing(device):
        raise RuntimeError(
            "a CUDA graph is being captured, but its replays cannot decide exponents: capture the forward pass alone, or use"
            " torch.compile(model)"
        )


def _flat(x):
    """Returns `x` in the order of memory, as one dimension, and halves with the same strides, for the result."""
    x = dense(x)
    y = torch.empty_strided(x.size(), x.stride(), dtype=torch.float16)
    return x.as_strided((x.numel(),), (1,)), y, y.as_strided((y.numel(),), (1,))


def copy_to_host(x):
    """Starts to copy a tensor to the host. Returns the copy and an event, after which it is complete; None: it is already."""
    if x.device.type != "cuda":
        return x.cpu(), None
    copy = torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)
    event = torch.cuda.Event()
    # The stream of that device, which need not be the current device.
    event.record(torch.cuda.current_stream(x.device))
    return copy, event


class Host:
    """Stores for gradients on the CPU, with rows in host memory."""

    late = False
    #: True if `scaled` takes halves, and `added` computes a sum, in one launch.
    has_kernels = False

    def __init__(self, device):
        self._rows = np.zeros((16, _gradscale.ROW_WORDS), np.uint32)
        self._threads = None

    def begin(self):
        """Starts as many threads as PyTorch has."""
        threads = torch.get_num_threads()
        if threads != self._threads:
            self._threads = threads
            _gradscale.set_num_threads(threads)

    def upload(self, exponents, details, formats):
        """Takes the exponents, details and formats of all sites in the coming step."""
        self._exponents, self._details, self._formats = exponents.tolist(), details.tolist(), formats
        if len(exponents) > len(self._rows):
            more = np.zeros((2 * len(exponents) - len(self._rows), self._rows.shape[1]), np.uint32)
            self._rows = np.concatenate([self._rows, more])

    def decided(self, slot, exponent):
        """Stores the exponent that a site decided within the step."""
        self._exponents[slot] = exponent

    def exponent(self, slot):
        """Returns the exponent of a site, in a form that only the stores interpret."""
        return self._exponents[slot]

    @staticmethod
    def number(exponent):
        """Returns an exponent as a number."""
        return exponent

    @staticmethod
    def least(a, b):
        """Returns the less of two exponents."""
        return min(a, b)

    @staticmethod
    def scaled(x, start, end):
        """Returns `x` times 2^(end − start)."""
        for factor in factors(end - start):
            x = x * factor
        return x

    def look(self, x, start, format=FP16):
        """Returns the statistics that a store of `x` at its own exponent would collect."""
        return Host.observe(x, start, FULL, format)

    @staticmethod
    def observe(x, exponent, detail, format=FP16):
        """Returns a row of the values of `x`, which is at that exponent. It is computed on the host, wherever `x`
        is."""
        row = np.zeros(_gradscale.ROW_WORDS, np.uint32)
        _gradscale.store(_flat(x.detach().cpu())[0].numpy(), exponent, None, exponent, detail, row, format.code)
        return _gradscale.Stats._from_words(row)

    def store(self, x, start, slot, kept=None):
        """Stores `x`, which is at the exponent `start`, as halves at the exponent of a site, in its format. The row of the site
        observes it."""
        x, y, flat = _flat(x)
        row, exponent = self._rows[slot], self._exponents[slot]
        if row[0] and int(row[EXPONENT].view(np.int32)) != exponent:
            row[:] = 0  # A call before, all of zeros, decided nothing.
        _gradscale.store(x.numpy(), start, flat.numpy(), exponent, self._details[slot], row, self._formats[slot].code)
        return y

    def observe_stored(self, x, slot):
        """Adds values at the exponent of a site, which another kernel has rounded, to the site's row."""
        exponent, row = self._exponents[slot], self._rows[slot]
        _gradscale.store(_flat(x)[0].numpy(), exponent, None, exponent, self._details[slot], row, self._formats[slot].code)

    def take(self, count):
        """Returns the rows of a step as a tensor, and begins those of the next step."""
        return torch.from_numpy(self.collect(count, None)[0].view(np.int32))

    def collect(self, count, found):
        """Returns the rows of a step and whether a gradient was not finite, for `read`, and begins those of the next
        step."""
        rows = self._rows[:count].copy()
        self._rows[:count] = 0
        return rows, found

    @staticmethod
    def read(seen):
        """Returns what `collect` collected: rows in words, and the flag."""
        rows, found = seen
        return rows, bool(found) if found is not None else None


class Device:
    """Stores in the memory of a device, from which the host reads once a step, one step late.

    Where Triton compiles, a store, a change of the exponent and a sum are one launch each. The host hands on exponents as
    elements of the tensor `control`, without reading or copying them. An element changes between steps, when no gradient
    refers to it any more; see `decided` for the exception.
    """

    late = True

    def __init__(self, device):
        self._device = device
        self._kernels = ops.kernels_on(device)
        self.has_kernels = self._kernels is not None
        #: Sites whose exponents gradients have in this step.
        self._handed = set()
        self._grow(16)

    def _grow(self, size):
        # The first column is no site: it has the exponent of the incoming values.
        rows, self._rows = getattr(self, "_rows", None), ops.new_rows(1 + size, self._device)
        self._control = torch.zeros(2, 1 + size, dtype=torch.int32, device=self._device)
        self._exponents = {}
        if rows is not None:
            self._rows[: len(rows)] = rows

    def begin(self):
        """Refuses to begin a step while a CUDA graph is captured, which cannot be stored."""
        refuse_capture(self._device)

    def upload(self, exponents, details, formats):
        """Uploads the exponents and details of all sites, without waiting for the device. Formats stay on the host."""
        self._formats = formats
        if len(exponents) >= len(self._rows):
            self._grow(2 * len(exponents))
        control = torch.from_numpy(np.stack([exponents, details]))
        if self._device.type == "cuda":
            control = control.pin_memory()
        self._control[:, 1 : 1 + len(exponents)].copy_(control, non_blocking=True)

    def decided(self, slot, exponent):
        """Stores the exponent that a site decided within the step on the device."""
        if slot in self._handed:
            # Values that this site has stored in this step, and that decided nothing, keep the exponent that they have.
            self._control, self._exponents = self._control.clone(), {}
        self._control[0, 1 + slot] = exponent

    def exponent(self, slot):
        """Returns a site's current exponent as an element of a tensor."""
        self._handed.add(slot)
        exponent = self._exponents.get(slot)
        if exponent is None:
            exponent = self._exponents[slot] = self._control[0, 1 + slot]
        return exponent

    @staticmethod
    def number(exponent):
        """Returns an exponent as a number, for which it waits for the device."""
        return int(exponent)

    @staticmethod
    def least(a, b):
        """Returns the less of two exponents, each a number or a tensor."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        if isinstance(a, int) or isinstance(b, int):
            return a.clamp(max=b) if isinstance(b, int) else b.clamp(max=a)
        return a if a is b else torch.minimum(a, b)

    def scaled(self, x, start, end):
        """Returns `x` times 2^(end − start) in f32, with exponents that are numbers or tensors."""
        if self._kernels is not None and x.layout == torch.strided and x.dtype in (torch.float16, torch.float32):
            x = dense(x)
            y = torch.empty_like(x, dtype=torch.float32)
            self._kernels.scale_values(x, y, start, end)
            return y
        if isinstance(start, int) and isinstance(end, int):
            return Host.scaled(x, start, end)
        start, end = (torch.full((), e, dtype=torch.int32, device=x.device) if isinstance(e, int) else e for e in (start, end))
        return x if start is end else ops.scaled(x, end, start)

    def added(self, x, a, y, b):
        """Returns the sum of `x`, which is at the exponent `a`, and `y`, at `b`, in f32, and the lesser of these exponents."""
        x = dense(x)
        if y.stride() != x.stride():
            y = torch.empty_like(x, dtype=y.dtype).copy_(y)
        out, least = torch.empty_like(x, dtype=torch.float32), torch.empty((), dtype=torch.int32, device=x.device)
        self._kernels.add_values(x, y, out, a, b, least)
        return out, least

    def look(self, x, start, format=FP16):
        """Returns the statistics that a store of `x` would collect; waits for the device."""
        self._control[0, 0] = start
        self._control[1, 0] = FULL
        ops.observe(x, self._rows, self._control, 0, 0, format.name)
        row = _gradscale.Stats._from_words(self._rows[0].cpu().numpy().view(np.uint32))
        self._rows[0] = 0
        return row

    def store(self, x, start, slot, kept=None):
        """Stores `x` as halves at the exponent of a slot, with statistics on the device. `kept`, a tensor of one element, gets
        a copy of the exponent."""
        # Parts of a backward pass are captured, too.
        refuse_capture(self._device)
        x = dense(x)
        if self._kernels is not None:
            y = torch.empty_like(x, dtype=torch.float16)
            self._kernels.store_values(x, y, self._rows, self._control, start, 1 + slot, kept, self._formats[slot])
            return y
        self._control[0, 0] = start
        if kept is not None:
            kept.copy_(self._control[0, 1 + slot])
        return ops.store(x, self._rows, self._control, 0, 1 + slot, self._formats[slot].name)

    def observe_stored(self, x, slot):
        """Updates a slot's statistics on the device from a tensor that is stored already."""
        ops.observe(x, self._rows, self._control, 1 + slot, 1 + slot, self._formats[slot].name)

    def take(self, count):
        """Returns the rows of a step on the device, and begins those of the next step."""
        rows = self._rows[1 : 1 + count].clone()
        self._rows.zero_()
        self._handed.clear()
        return rows

    def collect(self, count, found):
        """Starts to copy the rows of a step to the host, and begins those of the next; `read`, a step later, waits for
        the copy."""
        if found is not None and found.device.type == "cuda":
            found = torch.empty((), pin_memory=True).copy_(found, non_blocking=True)
        rows, event = copy_to_host(self.take(count))
        return rows, found, event

    @staticmethod
    def read(seen):
        """Returns what `collect` collected: rows in words, and the flag."""
        if len(seen) == 2:  # from a checkpoint
            return seen
        rows, found, event = seen
        if event is not None:
            event.synchronize()
        return rows.numpy().view(np.uint32), bool(found) if found is not None else None
