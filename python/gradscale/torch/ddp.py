"""A communication hook for ``DistributedDataParallel``: gradients travel as halves, with an exponent for each parameter.

    model.register_comm_hook(ddp.ScaledFp16State(), ddp.scaled_fp16_hook)

Every rank sends parts of its gradients to those that add them, in f32, and gets the sums back: two roundings for any number
of ranks, and half of the bytes. All ranks decide the same exponents, from the rows of all, and have the same bits after it.
"""

from typing import Optional

import numpy as np
import torch
import torch.distributed as dist

from .. import _gradscale
from .store_formats import FP16
from .stores import EXPONENT, FULL, Device, Host, copy_to_host

_LIGHT = 16


class ScaledFp16State:
    """State of the hook: exponents by parameter. `bytes_sent` counts the bytes that this rank has sent."""

    def __init__(self, method: str = "gs", group: Optional[dist.ProcessGroup] = None) -> None:
        if any(name != "fp16" for name in _gradscale.Sites(method, ["parameter"]).formats):
            raise ValueError(f"this communication hook sends halves, so {method} cannot store gradients of weights in 8 bits: leave out format=")
        self.method: str = method
        self.group: Optional[dist.ProcessGroup] = group
        self.bytes_sent: int = 0
        self._buckets = {}

    def _bucket(self, bucket):
        parameters = bucket.parameters()
        key = tuple(map(id, parameters))
        if key not in self._buckets:
            self._buckets = {k: b for k, b in self._buckets.items() if not set(k) & set(key)}
            self._buckets[key] = _Bucket(self, len(parameters), bucket.buffer().device)
        return self._buckets[key]


def scaled_fp16_hook(state: ScaledFp16State, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Communication hook of DDP: averages a bucket of gradients over all ranks, sent as halves."""
    buffer = bucket.buffer()
    if buffer.dtype != torch.float32:
        raise TypeError(f"this communication hook sends float32 gradients in half, but bucket {bucket.index()} is {buffer.dtype}")
    with torch.no_grad():
        state._bucket(bucket).average(buffer, bucket.gradients())
    done = torch.futures.Future()
    done.set_result(buffer)
    return done


class _Bucket:
    """Bucket of gradients with an exponent for each of its parameters."""

    def __init__(self, state, count, device):
        self.state = state
        self.ranks = dist.get_world_size(state.group)
        self.sites = _gradscale.Sites(state.method, [f"parameter {i}" for i in range(count)], deferred=True)
        self.stores = (Host if device.type == "cpu" else Device)(device)
        self.flight = None
        self.formats = [FP16] * count
        # Number of additional bits of a sum over all ranks.
        self.carry = (self.ranks - 1).bit_length()

    def average(self, buffer, gradients):
        if self.flight is not None:
            gathered, event, numbers = self.flight
            # A copy of the step before, so that the host does not wait for this one.
            if event is not None:
                event.synchronize()
            self.sites.finish(self._merged(gathered, numbers))
        parts = [gradient / self.ranks for gradient in gradients]
        if self.sites.decides_in_step.any():
            self._decide(parts)
        self.stores.upload(self.sites.exponents, self.sites.details, self.formats)
        numbers = self.sites.exponents.tolist()
        exponents = [self.stores.exponent(slot) for slot in range(len(parts))]
        chunk = -(-buffer.numel() // self.ranks)
        halves = torch.zeros(chunk * self.ranks, dtype=torch.float16, device=buffer.device)
        start = 0
        for slot, part in enumerate(parts):
            y = self.stores.store(part.reshape(-1), 0, slot)
            halves[start : start + y.numel()] = y
            start += y.numel()
        theirs = torch.empty_like(halves)
        dist.all_to_all_single(theirs, halves, group=self.state.group)
        total = (theirs.view(self.ranks, chunk).float().sum(0) * 2.0**-self.carry).half()
        dist.all_gather_into_tensor(halves, total, group=self.state.group)
        self.state.bytes_sent += 2 * 2 * chunk * (self.ranks - 1)
        start = 0
        for slot, gradient in enumerate(gradients):
            some = halves[start : start + gradient.numel()].view_as(gradient)
            some = some if self.stores.has_kernels else some.float()
            gradient.copy_(self.stores.scaled(some, exponents[slot], self.carry))
            start += gradient.numel()
        self.flight = *copy_to_host(self._gathered(self.sites.details.max())), numbers

    def _decide(self, parts):
        """Decides the exponents of the first step from the gradients of all ranks."""
        looks = [self.stores.look(part.reshape(-1), 0).to_words().view(np.int32) for part in parts]
        gathered = self._exchange(torch.from_numpy(np.stack(looks)).to(parts[0].device))
        for slot, row in enumerate(self._merged(gathered, [0] * len(parts))):
            if self.sites.decides_in_step[slot]:
                self.sites.decide(slot, _gradscale.Stats._from_words(row))

    def _gathered(self, detail):
        """Returns the statistics rows of all ranks, on the device."""
        rows = self.stores.take(len(self.sites))
        return self._exchange(rows if detail >= FULL else rows[:, :_LIGHT].contiguous())

    def _exchange(self, local):
        out = local.new_empty((self.ranks, *local.shape))
        dist.all_gather_into_tensor(out.view(-1, local.shape[-1]), local, group=self.state.group)
        self.state.bytes_sent += local.numel() * local.element_size() * (self.ranks - 1)
        return out

    def _merged(self, gathered, exponents):
        """Merges the rows of all ranks: one row for each parameter, in words."""
        words = np.zeros((*gathered.shape[:2], _gradscale.ROW_WORDS), np.uint32)
        words[:, :, : gathered.shape[2]] = gathered.cpu().numpy().view(np.uint32)
        words[:, :, EXPONENT] = np.asarray(exponents, np.int32).view(np.uint32)
        out = np.zeros(words.shape[1:], np.uint32)
        for slot in range(words.shape[1]):
            rows = [_gradscale.Stats._from_words(words[rank, slot]) for rank in range(self.ranks)]
            total = rows[0]
            for row in rows[1:]:
                total = total + row
            out[slot] = total.to_words()
        return out
