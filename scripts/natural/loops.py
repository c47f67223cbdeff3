"""Training loops that the experiments share: PyTorch's own as its documentation has it, and gradscale's.

Methods, by the names of the record:

- `f32`: no autocast. The scaler stays, because it skips steps that are not finite; powers of two change nothing in f32.
- `torch.amp`: autocast to float16 and `torch.amp.GradScaler` with its defaults.
- `floor:1`: the same; the scale is set back to 1 when it falls below.
- `fixed:128`: the same; the scale is set back to 128 after each step, so only the skip of steps that are not finite remains.
- `attach`: `gradscale.torch.attach`, with `scaling.step`, which repeats a batch that overflows.
"""
import math

import torch

METHODS = ["f32", "torch.amp", "floor:1", "fixed:128", "attach"]


def keep_scale(method):
    """Returns the change of a GradScaler after its update, by public calls; `None` for its defaults."""
    name, _, value = method.partition(":")
    if name == "floor":
        return lambda scaler: scaler.update(float(value)) if scaler.get_scale() < float(value) else None
    if name == "fixed":
        return lambda scaler: scaler.update(float(value))
    return None


class Loop:
    """A model with its optimizer, trained by a method on the device of the model."""

    def __init__(self, method, model, optimizer, clip=None):
        if method not in METHODS:
            raise ValueError(f"method {method}: one of {', '.join(METHODS)}")
        self.method, self.model, self.optimizer, self.clip = method, model, optimizer, clip
        self.skipped = 0
        self.device = next(model.parameters()).device
        self.scaling = self.scaler = None
        if method == "attach":
            from gradscale.torch import attach

            self.scaling = attach(model)
        else:
            # A fixed scale starts where it stays.
            start = float(method.partition(":")[2]) if method.startswith("fixed") else 2.0**16
            self.scaler, self.keep = torch.amp.GradScaler(self.device.type, init_scale=start), keep_scale(method)

    def forward(self, *inputs):
        """Results of the model in f32. Inputs are moved to its device."""
        inputs = [one.to(self.device) for one in inputs]
        with torch.autocast(self.device.type, torch.float16, enabled=self.method not in ("f32", "attach")):
            out = self.model(*inputs)
        return out.float()

    def step(self, loss_of):
        """Computes a loss, its gradients, and updates the weights; returns whether it did, and the loss."""
        if self.scaling is not None:
            before = self.scaling.skipped
            loss = self.scaling.step(lambda: self._backward(loss_of), self.optimizer)
            stepped = self.scaling.skipped == before
        else:
            self.optimizer.zero_grad()
            loss, before = loss_of(), self.scaler.get_scale()
            self.scaler.scale(loss).backward()
            if self.clip:
                self.scaler.unscale_(self.optimizer)
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            stepped = self.scaler.get_scale() >= before
            if self.keep:
                self.keep(self.scaler)
        self.skipped += not stepped
        return stepped, loss.item()

    def _backward(self, loss_of):
        self.optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        return loss

    @property
    def log2_scale(self):
        """The loss scale as a power of two; `None` where there is none."""
        return None if self.scaler is None else math.log2(self.scaler.get_scale())
