"""The window of a single loss scale: the powers of two at which one number serves every gradient of a batch.

A loss scale must be large enough that no gradient flushes to zero, and small enough that none overflows. The window is
the range between both limits. It depends on the model, its weights and the batch:

    reference  = gradients of the parameters: forward pass in half, every gradient of the backward pass in f32
    per tensor = the same with half gradients, each scaled by its own largest magnitude
    scale 2^S  = the same with half gradients, all scaled by 2^S
    window     = [smallest S at which the error of every parameter is at most max(2 · its error per tensor, 2 %),
                  first S at which a finite value overflows)

The error of a parameter is the norm of the difference from the reference, divided by the norm of the reference.
Rounding the forward pass to half costs 2 % on ordinary networks, so a smaller error cannot matter. All backward passes
share one forward pass, so the window shows only the cost of storing gradients.

Parameters whose error per tensor is at least half of the gradient are excluded: their gradient is zero except for
rounding, as for a bias before batch norm. Weight gradients are measured twice, because libraries differ: in f32, as
Megatron accumulates them, and in half, as torch.amp stores those of weights that autocast has cast. Definitions are
those of `gradscale::window`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Any, Callable

import torch

from .attach import Forward, InF32, Scaled, _mapped
from .scaling import GradientScaling

#: Largest error that is accepted whatever per-tensor scales reach: see above.
TOLERATED_ERROR = 0.02
#: Error per tensor from which on a parameter is left out: its true gradient is smaller than the rounding.
ROUNDING_ERROR = 0.5
#: Exponents of the smallest and the largest loss scale that is tried: those of f32's normal numbers, and as far down.
MIN_EXPONENT, MAX_EXPONENT = -126, 126
#: Loss scales at which libraries start, or which they always have.
LIBRARY_SCALES = {"tiny-cuda-nn": 128.0, "torch.amp": 2.0**16, "DeepSpeed": 2.0**32}


def _binades(count):
    return f"{count} binade" if count == 1 else f"{count} binades"


@dataclasses.dataclass(frozen=True)
class Place:
    """Place of a loss scale in a window, in binades: down to the smallest scale inside and up to the largest. Negative
    numbers are those by which the scale is too small or too large."""

    below: int
    above: int

    @property
    def is_inside(self) -> bool:
        """Returns True if this scale keeps all gradients."""
        return self.below >= 0 and self.above >= 0

    def __str__(self):
        if self.below < 0:
            return f"{_binades(-self.below)} too small"
        if self.above < 0:
            return f"{_binades(-self.above)} too large"
        return f"inside, with {_binades(self.below)} below and {self.above} above"


@dataclasses.dataclass(frozen=True)
class ScaleWindow:
    """Powers of two that serve as a loss scale: 2^low up to, but without, 2^high. `low` is None if no scale serves.

    One power of two below, `lost` is the parameter whose error exceeds the accepted error most. At 2^high, `overflowed`
    is the site or parameter that overflows. Both are None if that limit was not reached.
    """

    low: int | None
    high: int
    lost: str | None
    overflowed: str | None

    @property
    def bits(self) -> int:
        """Returns the width of the window of loss scales in binades."""
        return 0 if self.low is None else self.high - self.low

    def place(self, scale: float) -> Place | None:
        """Returns the :class:`Place` of a loss scale, or None where no scale serves."""
        if self.low is None:
            return None
        exponent = math.floor(math.log2(scale))
        return Place(exponent - self.low, self.high - 1 - exponent)

    def __str__(self):
        high = f"2^{self.high} overflows at {self.overflowed}" if self.overflowed else "nothing overflows"
        if self.low is None:
            return f"no scale works: at the largest one without overflow, {self.lost} is lost; {high}" if self.lost else f"no scale works: {high}"
        low = f"{self.lost} is lost below" if self.lost else "nothing is lost below"
        return f"2^{self.low} to 2^{self.high - 1}, {_binades(self.bits)}; {low}, {high}"


@dataclasses.dataclass(frozen=True)
class Window:
    """Windows of a single loss scale for a model, its weights and a batch: see :func:`measure_window`.

    `half` is that of weight gradients in half, `f32` that of weight gradients in f32. `errors` has the error of each
    parameter with per-tensor scales, `left_out` the parameters whose gradient is zero except for rounding. `scale` is
    the running loss scale that was passed. `low`, `high`, `bits` and `places` are those of `half`, which is how
    torch.amp trains.
    """

    half: ScaleWindow
    f32: ScaleWindow
    errors: dict[str, float]
    left_out: tuple[str, ...]
    scale: float | None = None

    @property
    def low(self) -> int | None:
        """Returns the exponent of the smallest scale in the window, or None."""
        return self.half.low

    @property
    def high(self) -> int:
        """Returns the exponent of the first scale that overflows."""
        return self.half.high

    @property
    def bits(self) -> int:
        """Returns the width of the window of loss scales in binades."""
        return self.half.bits

    @property
    def places(self) -> dict[str, Place | None]:
        """Returns the places of the loss scales of libraries, and of the running one."""
        return {name: self.half.place(scale) for name, scale in self._scales().items()}

    def _scales(self):
        return LIBRARY_SCALES if self.scale is None else {**LIBRARY_SCALES, "running": float(self.scale)}

    def __str__(self):
        errors = sorted(self.errors.values())
        worst = max(self.errors, key=self.errors.get)
        lines = [
            f"window of a single loss scale: {len(errors)} parameters, {len(self.left_out)} skipped",
            f"error with per-tensor scales: median {errors[len(errors) // 2]:.1e}, largest {errors[-1]:.1e} at {worst}",
            f"weight gradients in half: {self.half}",
            f"weight gradients in f32:  {self.f32}",
        ]
        for name, scale in self._scales().items():
            places = [str(one.place(scale) or "no scale works") for one in (self.half, self.f32)]
            lines.append(f"{name}, 2^{math.log2(scale):g}: {places[0]}" + (f"; in f32 {places[1]}" if places[0] != places[1] else ""))
        return "\n".join(lines)


def measure_window(
    model: torch.nn.Module, loss_fn: Callable[[Any, Any], torch.Tensor], batch: Any, *, scale: float | None = None
) -> Window:
    """Measures at which loss scales every parameter gradient of a batch is as accurate as with per-tensor scales.

    `loss_fn(model, batch)` computes the loss, which has one element. `scale` is a running loss scale to be placed, for example
    ``scaler.get_scale()``. Runs one forward pass and some fifty backward passes. Weights, gradients, running statistics, random
    numbers and an attached training are as before afterwards.

    >>> import torch
    >>> from gradscale.torch import measure_window
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> found = measure_window(model, lambda model, batch: model(batch).square().mean(), torch.randn(16, 4))
    >>> found.places["torch.amp"].is_inside, found.bits > 10
    (True, True)
    """
    names = {id(p): name for name, p in model.named_parameters()}
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("no parameter of the model requires a gradient")
    with _in_half(model):
        loss = loss_fn(model, batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise TypeError("loss_fn(model, batch) must return the loss, a tensor of one element that has a gradient")
        if not loss.isfinite().all():
            raise ValueError(f"the loss is {loss.item()}: find_non_finite_layer(model, x) names the first layer whose results are not finite")
        return _Measurement(model, loss, names, parameters).measure(scale)


@contextlib.contextmanager
def _in_half(model):
    """Runs the model's forward pass in half with plain gradients, whether it is attached or not."""
    attached = [module for module in model.modules() if isinstance(module.__dict__.get("forward"), Scaled)]
    scaled = [module.__dict__["forward"] for module in attached]
    undo = []
    for forward in scaled:
        forward._undo()
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        for module in model.modules():
            if isinstance(module, torch.nn.RNNBase) and not isinstance(module.__dict__.get("forward"), InF32):
                undo.append(InF32(module).put())
        for module in attached or [model]:
            undo.append(_Half(module).put())
        with torch.random.fork_rng(), torch.enable_grad():
            yield
    finally:
        for end in reversed(undo):
            end()
        for forward in scaled:
            forward.put()
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


class _Half(Forward):
    """Replacement of ``forward`` that runs under autocast, with results in f32 and plain gradients."""

    def on(self, module):
        return _Half(module)

    def __call__(self, *args, **kwargs):
        if self.ended:
            return self.run(*args, **kwargs)
        with torch.autocast(self.device_type(), dtype=torch.float16):
            out = self.run(*args, **kwargs)
        return _mapped(lambda x: x.float() if x.dtype == torch.float16 else x, out, {})


class _Probe(GradientScaling):
    """Gradient scaling with the sites of a single backward pass, for measurements."""

    def _arrived_plain(self, label):
        """Does nothing, because hooks of an attached training come first, and have unscaled the gradient already."""


class _PerTensor(_Probe):
    """Probe of a backward pass in which each call of a layer is a site of its own, so that each tensor has its own
    scale."""

    def _store(self, name, calls, x, start, origin=None):
        return super()._store(f"{name}@{len(self._order)}", 1, x, start, origin)


class _Exact(_Probe):
    """Probe of a backward pass that rounds nothing."""

    def _store(self, name, calls, x, start, origin=None):
        return x, start


def _halved(loss):
    """Returns the ids of the parameters that autocast has cast to half wherever they are read, so that torch.amp has
    half gradients of them."""
    halved, wide, seen, stack = set(), set(), set(), [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for edge, _ in node.next_functions:
            variable = getattr(edge, "variable", None)
            if variable is not None:
                (halved if node.name() == "ToCopyBackward0" else wide).add(id(variable))
            stack.append(edge)
    return halved - wide


class _Measurement:
    """Measurement of loss scales by repeated backward passes of one loss."""

    def __init__(self, model, loss, names, parameters):
        self.model, self.loss, self.names, self.parameters = model, loss, names, parameters
        self.halved = _halved(loss)
        self.tried = {}

    def gradients(self, scaling):
        """Returns the gradients of all parameters in f32, and the first site at which a finite value overflowed."""
        scaling._name_parameters(self.model)
        try:
            found = torch.autograd.grad(scaling.scale(self.loss), self.parameters, retain_graph=True, allow_unused=True)
        finally:
            scaling.detach()
        # Not by update(), which reads the rows of a GPU only in the next step.
        scaling._finish(scaling._collect(), repeatable=False)
        overflowed = next((site["name"] for site in scaling.report().sites if site["overflows"]), None)
        return [g if g is None else g.coalesce().to_dense() if g.is_sparse else g for g in found], overflowed

    def measure(self, scale):
        exact, _ = self.gradients(_Exact("gs", deferred=False, max_consecutive_skips=0))
        for p, g in zip(self.parameters, exact):
            if g is not None and not g.isfinite().all():
                raise ValueError(f"the gradient of {self.names[id(p)]} is not finite in float32 either, so no loss scale helps")
        self.exact = [g if g is None else g.double() for g in exact]
        tensors, _ = self.gradients(_PerTensor("amax", deferred=False, max_consecutive_skips=0))
        errors = [self.error(i, g) for i, g in enumerate(tensors)]
        names = [self.names[id(p)] for p in self.parameters]
        self.accepted = [None if e is None or e >= ROUNDING_ERROR else max(2 * e, TOLERATED_ERROR) for e in errors]
        compared = {name: e for name, e, accepted in zip(names, errors, self.accepted) if accepted is not None}
        left_out = tuple(name for name, accepted in zip(names, self.accepted) if accepted is None)
        if not compared:
            raise ValueError("all gradients are zero up to rounding errors: the loss must depend on the parameters")
        return Window(self.ends(True), self.ends(False), compared, left_out, scale)

    def error(self, i, gradient):
        """Returns the relative error of a gradient; None where the exact one is zero."""
        exact = self.exact[i]
        norm = 0.0 if exact is None else float(exact.norm())
        if norm == 0.0:
            return None
        error = float((gradient.double() - exact).norm()) / norm
        return error if math.isfinite(error) else math.inf

    def at(self, exponent, half):
        """Returns how the loss scale 2^exponent fails: the parameter whose gradient becomes inaccurate, and the site that
        overflows."""
        if exponent not in self.tried:
            gradients, site = self.gradients(_Probe(f"fixed:2^{exponent}", deferred=False, max_consecutive_skips=0))
            self.tried[exponent] = [self.judged(exponent, gradients, site, half) for half in (False, True)]
        return self.tried[exponent][half]

    def judged(self, exponent, gradients, site, half):
        worst, lost, overflowed = 1.0, None, site
        for i, (p, gradient) in enumerate(zip(self.parameters, gradients)):
            if gradient is None:
                continue
            if half and id(p) in self.halved:
                gradient = (gradient * 2.0**exponent).half().float() * 2.0**-exponent
            if overflowed is None and not gradient.isfinite().all():
                overflowed = self.names[id(p)]
            if self.accepted[i] is not None and self.error(i, gradient) / self.accepted[i] > worst:
                worst, lost = self.error(i, gradient) / self.accepted[i], self.names[id(p)]
        return lost, overflowed

    def ends(self, half):
        """Searches the window of scales: overflow is monotone in the scale, so its end is found by bisection; from
        there on scales are tried downwards until one loses too much."""
        fits, high, overflowed = MIN_EXPONENT - 1, MAX_EXPONENT + 1, None
        while high - fits > 1:
            middle = (fits + high) // 2
            where = self.at(middle, half)[1]
            if where is None:
                fits = middle
            else:
                high, overflowed = middle, where
        low = lost = None
        for exponent in range(high - 1, MIN_EXPONENT - 1, -1):
            lost = self.at(exponent, half)[0]
            if lost is not None:
                break
            low = exponent
        return ScaleWindow(low, high, lost, overflowed)
