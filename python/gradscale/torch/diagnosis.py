"""Diagnosis of FP16 training for a model that trains in any precision.

One call runs the model three times on copies of its weights, and changes neither the model nor its training:

    in f32                forward and backward pass; what casts to FP16, E5M2 and E4M3 would lose of each gradient is counted
    in half               forward pass under autocast to float16; the first layer whose results are not finite is named
    `measure_window`      the window of a single loss scale

In the first run a dispatch mode computes every operator on halves and bfloat16 in f32 instead. So autocast and parameters in
bfloat16 do not round what is measured. A layer's gradient is that of its output. Gradients of parameters are counted
separately, because torch.amp stores those of weights in half, too.

Casts are those of the core of gradscale, to nearest even. A value is flushed if it is not zero and becomes zero. It
overflows if it is finite and rounds beyond the largest number: 65504, 57344 and 448. Beyond 464 E4M3 is NaN by the
standard of OCP, and 448 where casts saturate, as those of newer PyTorch do. Both lose the value, so both count.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import math
import os
import random
import sys
import textwrap
import weakref
from typing import Any, Callable

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .. import _arrays, _gradscale
from . import diagnosis_page, rules
from .attach import Scaled, _mapped
from .windows import Window, _binades, _in_half, measure_window

#: Formats to which casts are counted, with their names for people.
FORMATS = {"fp16": "FP16", "e5m2": "E5M2", "e4m3": "E4M3"}
#: Loss scale at which torch.amp.GradScaler starts.
TORCH_SCALE = 2.0**16
#: Binades that a window should have on either side of a loss scale: gradients often change by a factor of 16 in training.
MARGIN = 4
#: Rows of each table in the text, so that the report of a deep network fits on two screens. `save` writes all of them.
TEXT_ROWS = 12
#: Width of the text: that of a terminal.
TEXT_WIDTH = 80
HALF_DTYPES = (torch.float16, torch.bfloat16)


@dataclasses.dataclass(frozen=True)
class CastCounts:
    """Number of values that a cast would lose: `flushed` to zero, and `overflowed`."""

    flushed: int
    overflowed: int


@dataclasses.dataclass(frozen=True)
class Values:
    """Counts of the values of one gradient, in all calls of its layer.

    `nonzero` counts finite values that are not zero, `non_finite` infinities and NaN, and `amax` is the largest finite
    magnitude. `casts` has the :class:`CastCounts` for each format and loss scale: ``casts["fp16"]["2^16"].flushed``.
    """

    count: int
    nonzero: int
    non_finite: int
    amax: float
    casts: dict[str, dict[str, CastCounts]]

    def share(self, format: str, scale: str, kind: str = "flushed") -> float:
        """Returns the share of the non-zero values that is flushed, or that overflows (``"overflowed"``)."""
        return getattr(self.casts[format][scale], kind) / self.nonzero if self.nonzero else 0.0

    def worst(self) -> float:
        """Returns the largest share that FP16 loses at one of the loss scales."""
        return max(self.share("fp16", scale) + self.share("fp16", scale, "overflowed") for scale in self.casts["fp16"])


@dataclasses.dataclass(frozen=True)
class Layer:
    """Layer of a diagnosis: a module whose output no module inside of it has returned.

    `output_amax` is the largest finite magnitude of its output in f32. `output_non_finite` counts infinities and NaN in it.
    `gradient` has the :class:`Values` of the gradient of its output, or is None if none arrived.
    """

    name: str
    kind: str
    calls: int
    output_amax: float
    output_non_finite: int
    gradient: Values | None


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """Result of :func:`diagnose`, as text by ``print`` and as a page by :meth:`save`.

    `layers` are in the order of the forward pass. `parameters` has the :class:`Values` of each parameter's gradient by its
    name. `scales` has the loss scales by name: ``"1"``, ``"2^16"``, and ``"running"`` if it was passed. `window` is that of
    :func:`measure_window`, or None; `window_error` then says why. `overflows_forward` names the first layer that has more
    results that are not finite in half than in f32. If the forward pass in half failed, `forward_error` says why.
    """

    loss: float
    layers: tuple[Layer, ...]
    parameters: dict[str, Values]
    scales: dict[str, float]
    window: Window | None
    window_error: str | None
    overflows_forward: str | None
    forward_error: str | None
    recommendation: str

    def total(self, format: str, scale: str, parameters: bool = False) -> tuple[CastCounts, int]:
        """Returns the :class:`CastCounts` of all gradients of layers' outputs, or of parameters, and their non-zero values."""
        values = self.parameters.values() if parameters else [layer.gradient for layer in self.layers if layer.gradient]
        counts = [each.casts[format][scale] for each in values]
        total = CastCounts(sum(one.flushed for one in counts), sum(one.overflowed for one in counts))
        return total, sum(each.nonzero for each in values)

    def __str__(self):
        return "\n".join(self._lines())

    def _lines(self):
        yield f"FP16 diagnosis: {len(self.layers)} layers, {len(self.parameters)} parameters, loss {self.loss:.4g} in float32"
        yield ""
        yield from textwrap.wrap(self.recommendation, TEXT_WIDTH, break_on_hyphens=False)
        yield ""
        yield from _wrapped(f"forward in half: {self.forward()}")
        yield from _wrapped(f"one loss scale: {self.window.half if self.window else f'not measured: {self.window_error}'}")
        for heading, parameters in (("gradients of outputs", False), ("gradients of parameters", True)):
            yield ""
            yield from self._heading(f"all {heading}", "")
            for format, label in FORMATS.items():
                cells = [self.total(format, scale, parameters) for scale in self.scales]
                yield self._row(label, "", [loss for loss, _ in cells], cells[0][1])
        tables = (
            ("output of layer, in FP16", [(layer.name, layer.gradient) for layer in self.layers if layer.gradient]),
            ("parameter, in FP16", list(self.parameters.items())),
        )
        for heading, rows in tables:
            worst = sorted(range(len(rows)), key=lambda i: -rows[i][1].worst())[:TEXT_ROWS]
            yield ""
            yield from self._heading(heading, "largest")
            for i in sorted(worst):
                name, values = rows[i]
                yield self._row(name, power(values.amax), values.casts["fp16"].values(), values.nonzero)
            if len(rows) > len(worst):
                yield f"and {len(rows) - len(worst)} that lose less: save(path) writes all"
        yield ""
        yield "zero: non-zero values that become zero at this loss scale; over: that overflow"
        if "running" in self.scales:
            yield f"run: the running loss scale, {power(self.scales['running'])}"

    def forward(self) -> str:
        """Returns a sentence about the forward pass in half."""
        largest = max(self.layers, key=lambda layer: layer.output_amax, default=None)
        size = f"the largest value in float32 is {power(largest.output_amax)}, at {largest.name}" if largest else "no layer has an output"
        if self.overflows_forward is not None:
            return f"{self.overflows_forward} overflows first; {size}"
        if self.forward_error is not None:
            return f"not measured: {self.forward_error}; {size}"
        return f"nothing overflows; {size}"

    def _heading(self, name, largest):
        short = [f"{'run' if scale == 'running' else scale:>{COLUMN_WIDTH}}" for scale in self.scales]
        width, columns = self._name_width(), COLUMN_WIDTH * len(short)
        yield f"{'':{width + 8}}{'zero at':>{columns}}{'over at':>{columns}}"
        yield f"{name:{width}}{largest:>8}" + "".join(short + short)

    def _row(self, name, largest, casts, whole):
        width = self._name_width()
        name = name if len(name) < width else "…" + name[-(width - 2) :]
        shares = [share(one.flushed, whole) for one in casts] + [share(one.overflowed, whole) for one in casts]
        return f"{name:{width}}{largest:>8}" + "".join(f"{cell:>{COLUMN_WIDTH}}" for cell in shares)

    def _name_width(self):
        return TEXT_WIDTH - 8 - 2 * COLUMN_WIDTH * len(self.scales)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a page with all layers: one HTML file without scripts, which loads nothing. A file that is there already is
        replaced only if it is such a page, else this raises FileExistsError."""
        diagnosis_page.save(self, path)


#: Width of a column: "<0.01%" with a space before it.
COLUMN_WIDTH = 7


def power(x):
    """Returns a magnitude as a power of two, for people."""
    if x == 0 or not math.isfinite(x):
        return "0" if x == 0 else "-"
    return f"2^{math.log2(x):.1f}".removesuffix(".0")


def share(part, whole):
    """Returns a share in percent, with few digits; "-" for none, so that other cells are seen."""
    if part == 0:
        return "-"
    percent = 100 * part / whole
    return "<0.01%" if percent < 0.01 else f"{percent:.2f}%" if percent < 10 else f"{percent:.1f}%"


def _wrapped(text):
    return textwrap.wrap(text, TEXT_WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def diagnose(
    model: torch.nn.Module, loss_fn: Callable[[Any, Any], torch.Tensor], batch: Any, *,
    scale: float | torch.amp.GradScaler | None = None, window: bool = True,
) -> Diagnosis:
    """Diagnoses what FP16 (and E5M2, E4M3) would lose of the gradients of a batch, and what to do about it.

    `model` may train in float32, in bfloat16, under autocast, or attached. `loss_fn(model, batch)` computes the loss, which
    has one element, and must use the model that it is given. `scale` is the running loss scale: a number, or the
    ``GradScaler``. Takes about fifty backward passes, or one with ``window=False``, and one more copy of the weights.
    Weights, gradients, buffers, random numbers, hooks, modes and batch are as before afterwards; no optimizer is involved.
    Attributes that ``forward`` itself sets, and states of other ``torch.Generator`` objects, are not restored.

    A model wrapped by ``torch.compile``, ``DataParallel`` or ``DistributedDataParallel`` is measured without its wrapper:
    eagerly, on this process's batch.

    >>> import torch
    >>> from gradscale.torch import diagnose
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> found = diagnose(model, lambda model, batch: 1e-8 * model(batch).square().mean(), torch.randn(16, 4))
    >>> [layer.name for layer in found.layers]
    ['0', '1', '2']
    >>> at = found.layers[0].gradient.casts["fp16"]
    >>> at["1"].flushed > 40, at["2^16"].flushed < 5, found.overflows_forward
    (True, True, None)
    """
    model = _unwrapped(model)
    scales = {"1": 1.0, "2^16": TORCH_SCALE}
    if scale is not None:
        scales["running"] = _positive(scale)
    # Tensors of an inference mode have no gradients.
    with torch.inference_mode(False):
        return _on_copies(model, lambda parameters: _diagnosed(model, loss_fn, batch, parameters, scales, window))


def _diagnosed(model, loss_fn, batch, parameters, scales, with_window):
    """Returns the diagnosis of a model whose parameters are copies."""
    trained = {name: p for name, p in parameters if p.requires_grad}
    if not trained:
        raise ValueError("no parameter of the model requires a gradient: call model.requires_grad_() on the part that trains")
    non_finite = {}
    with _rng_kept(model):
        loss, layers, gradients = _in_float32(model, loss_fn, _own_batch(batch), list(trained.values()), scales, non_finite)
    window = overflows = forward_error = None
    error = None if with_window else "window=False was passed"
    # The half run fails where the loss is not finite, or an operator has no half; the rest is measured nevertheless.
    try:
        with _rng_kept(model):
            overflows = _overflowing_layer(model, loss_fn, _own_batch(batch), non_finite)
    except Exception as problem:
        forward_error = error = _sentence(problem)
    if with_window and forward_error is None:
        try:
            with _rng_kept(model):
                window = measure_window(model, loss_fn, _own_batch(batch), scale=scales.get("running"))
        except Exception as problem:
            error = _sentence(problem)
    counted = {name: g.values() for name, g in zip(trained, gradients) if g is not None}
    found = Diagnosis(loss, layers, counted, scales, window, error, overflows, forward_error, "")
    return dataclasses.replace(found, recommendation=_recommended(found))


def _sentence(problem):
    """Returns the text of an error; an assertion may have none."""
    return str(problem) or type(problem).__name__


def _positive(scale):
    """Returns a running loss scale as a number."""
    number = scale.get_scale() if hasattr(scale, "get_scale") else scale
    try:
        number = float(number)
    except (TypeError, ValueError):
        raise TypeError(f"scale must be a number or a GradScaler, not {type(scale).__name__}: pass scaler.get_scale()") from None
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"scale must be positive and finite, not {number}: pass scaler.get_scale(), or leave it out")
    return number


def _unwrapped(model):
    """Returns the module inside of wrappers that would compile it, copy it or communicate."""
    while True:
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
            model = model.module
        else:
            break
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}: pass the module that has the parameters")
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError("a TorchScript model hides its layers: pass the module from which it was scripted")
    for name, p in model.named_parameters():
        if torch.nn.parameter.is_lazy(p):
            raise ValueError(f"{name} has no shape yet: run the model once on a batch before")
        if hasattr(p, "device_mesh") or getattr(p, "_is_flat_param", False):
            raise TypeError(f"{name} is divided between ranks: call diagnose before fully_shard, on a smaller model if needed")
    return model


def _own_batch(batch):
    """Returns a copy of a batch for one run, because a loss may take entries out of it, or write into its tensors."""
    # Batches of tokenizers are dictionaries of this kind, which PyTorch does not know the parts of.
    if isinstance(batch, collections.UserDict):
        twin = copy.copy(batch)
        twin.data = _mapped(_own, batch.data, {})
        return twin
    return _mapped(_own, batch, {})


def _own(x):
    """Returns a copy of a tensor, in f32 if it is in half or bfloat16. One with a gradient is unchanged."""
    if x.requires_grad:
        return x
    return x.float() if x.dtype in HALF_DTYPES else x.clone()


def _on_copies(model, measure):
    """Returns ``measure(parameters)``, which is called while f32 copies are in the place of all parameters and buffers of a
    model. Everything that a run writes or accumulates goes to these copies. Replacements of ``forward`` by an attached
    training are undone meanwhile."""
    attached = [module.__dict__["forward"] for module in model.modules() if isinstance(module.__dict__.get("forward"), Scaled)]
    # Lists of weights that recurrent layers keep besides their parameters.
    recurrent = [
        (module, {key: module.__dict__[key] for key in ("_flat_weights", "_flat_weight_refs") if key in module.__dict__})
        for module in model.modules()
        if isinstance(module, torch.nn.RNNBase)
    ]
    with torch.no_grad():
        copies = {f"model.{name}": torch.nn.Parameter(_copy(p), p.requires_grad) for name, p in model.named_parameters()}
        copies.update((f"model.{name}", _copy(buffer)) for name, buffer in model.named_buffers())
    for forward in attached:
        forward._undo()
    try:
        with _eager():
            return torch.func.functional_call(_Measured(model, measure), copies, ())
    finally:
        for forward in reversed(attached):
            forward.put()
        for module, lists in recurrent:
            module.__dict__.update(lists)


def _eager():
    """Returns a context in which compiled parts run eagerly."""
    # Nothing is compiled before the compiler is imported, which takes seconds.
    if "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):
        return torch.compiler.set_stance("force_eager")
    return contextlib.nullcontext()


class _Measured(torch.nn.Module):
    """Module that has the model as its only part, and whose call is the measurement."""

    def __init__(self, model, measure):
        super().__init__()
        self.model, self.measure = model, measure

    def forward(self):
        return self.measure(list(self.model.named_parameters()))


def _copy(x):
    x = x.detach()
    return x.float() if x.dtype in HALF_DTYPES else x.clone()


@contextlib.contextmanager
def _rng_kept(model):
    """Restores the states of all random number generators, also Python's and numpy's, which data augmentation uses."""
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=list(devices)), torch.enable_grad():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


class _InFloat32(TorchDispatchMode):
    """Dispatch mode that computes in f32 what would be computed in half or bfloat16, below autocast and autograd."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not isinstance(function, torch._ops.OpOverload):
            return function(*args, **kwargs)
        operator = rules.described(function)
        if operator.views:
            return function(*args, **kwargs)

        def widen(x):
            if isinstance(x, torch.Tensor):
                return x.float() if x.dtype in HALF_DTYPES else x
            return torch.float32 if isinstance(x, torch.dtype) and x in HALF_DTYPES else x

        def mapped(keys, values):
            return [x if key in operator.writes else y for key, x, y in zip(keys, values, rules.each(widen, values))]

        args = mapped(range(len(args)), args)
        return function(*args, **dict(zip(kwargs, mapped(kwargs, list(kwargs.values())))))


class _Counter:
    """Counter of the values of one gradient."""

    def __init__(self, scales):
        self.scales = scales
        self.count = self.nonzero = self.non_finite = 0
        self.amax = 0.0
        self.lost = {format: {name: [0, 0] for name in scales} for format in FORMATS}

    def add(self, gradient):
        """Counts the values of a tensor: those stored, if it is sparse."""
        gradient = gradient.detach()
        if gradient.layout != torch.strided:
            gradient = gradient.coalesce().values() if gradient.layout == torch.sparse_coo else gradient.values()
        if gradient.is_complex():
            gradient = torch.view_as_real(gradient.resolve_conj())
        x = gradient.cpu().numpy()
        finite = np.isfinite(x)
        self.count += x.size
        self.non_finite += x.size - int(finite.sum())
        if not finite.all():
            x = x[finite]
        self.nonzero += int(np.count_nonzero(x))
        self.amax = max(self.amax, float(np.abs(x).max(initial=0.0)))
        for name, scale in self.scales.items():
            mantissa, exponent = math.frexp(scale)
            # Another number than a power of two is multiplied in f64, so that the cast rounds once.
            scaled, exponent = (x, exponent - 1) if mantissa == 0.5 else (x.astype(np.float64) * scale, 0)
            for format, lost in self.lost.items():
                _, counts = _arrays.cast(scaled, format, exponent=exponent, as_bits=True, return_counts=True)
                lost[name][0] += counts["underflow"]
                lost[name][1] += counts["overflow"]

    def values(self):
        """Returns what was counted."""
        casts = {format: {name: CastCounts(*pair) for name, pair in lost.items()} for format, lost in self.lost.items()}
        return Values(self.count, self.nonzero, self.non_finite, self.amax, casts)


@contextlib.contextmanager
def _hooked(model, seen):
    """Calls ``seen(name, module, inputs, output)`` after each call of a module, the innermost first."""
    handles = []
    try:
        for name, module in model.named_modules():
            # The model itself, whose name is empty, is called by its class.
            label = name or type(module).__name__
            handles.append(module.register_forward_hook(lambda m, inputs, out, label=label: seen(label, m, inputs, out)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tensors(values):
    """Returns the floating-point tensors in the arguments or results of a module."""
    found = []
    _mapped(lambda x: (found.append(x), x)[1], values, {})
    return [x for x in found if (x.is_floating_point() or x.is_complex()) and x.layout == torch.strided]


class _Seen:
    """Layer while it is measured."""

    def __init__(self, kind, scales):
        self.kind, self.calls, self.amax, self.non_finite = kind, 0, 0.0, 0
        self.gradient = _Counter(scales)

    def see(self, x):
        """Notes an output in f32."""
        magnitude = x.detach().abs()
        finite = magnitude.isfinite()
        self.non_finite += int((~finite).sum())
        self.amax = max(self.amax, float(torch.where(finite, magnitude, 0.0).max())) if x.numel() else self.amax


@contextlib.contextmanager
def _uncached():
    """Keeps weights that "casts" have left in f32 out of autocast's cache, which other code reads."""
    cache = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(cache)


class _Calls:
    """Calls of modules in one run, in order: the first is ``(name, 0)``."""

    def __init__(self):
        self._counts = collections.Counter()

    def next(self, name):
        """Returns the key of a module's next call."""
        key = name, self._counts[name]
        self._counts[name] += 1
        return key


def _count_non_finite(values):
    """Returns the number of infinities and NaN in the arguments or results of a module."""
    return sum(x.numel() - int(x.isfinite().sum()) for x in _tensors(values))


def _in_float32(model, loss_fn, batch, parameters, scales, non_finite):
    """Runs forward and backward pass in f32. Returns the loss, the layers, and the counters of the parameters' gradients.
    `non_finite` gets the numbers of infinities and NaN in the arguments and results of each call that has some: those of
    a mask are meant."""
    found, known, calls = {}, {}, _Calls()
    _gradscale.set_num_threads(torch.get_num_threads())

    def is_new(x):
        """Returns True for a tensor that no inner module has returned. Writing in place makes another one of it."""
        if x.grad_fn is None:
            reference = known.get(id(x))
            known[id(x)] = weakref.ref(x)
            return reference is None or reference() is not x
        # The node is kept, so that no other has its id.
        node = x.grad_fn, x.output_nr
        if node in known:
            return False
        known[node] = None
        return True

    def see(name, module, inputs, out):
        if torch._C._current_graph_task_id() != -1:
            return  # A checkpointed part, which is run again in the backward pass.
        key, counts = calls.next(name), (_count_non_finite(inputs), _count_non_finite(out))
        if any(counts):
            non_finite[key] = counts
        new = [x for x in _tensors(out) if is_new(x)]
        if not new:
            return
        layer = found.setdefault(name, _Seen(type(module).__name__, scales))
        layer.calls += 1
        for x in new:
            layer.see(x)
            if x.grad_fn is not None:
                x.register_hook(layer.gradient.add)

    with _uncached(), _InFloat32(), _hooked(model, see):
        loss = loss_fn(model, batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise TypeError("loss_fn(model, batch) must return the loss, a tensor of one element that has a gradient")
        _refuse_reentrant(loss)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, grad_outputs=torch.ones_like(loss))
    if all(g is None for g in gradients):
        raise ValueError("the loss depends on no parameter of the model: loss_fn must use the model that it is given")
    counters = []
    for gradient in gradients:
        counter = None if gradient is None else _Counter(scales)
        if counter is not None:
            counter.add(gradient)
        counters.append(counter)
    layers = tuple(
        Layer(name, seen.kind, seen.calls, seen.amax, seen.non_finite, seen.gradient.values() if seen.gradient.count else None)
        for name, seen in found.items()
    )
    return float(loss.detach()), layers, counters


def _refuse_reentrant(loss):
    """Raises an error if a part is checkpointed in a way that gives its parameters no gradient without writing to ``.grad``."""
    seen, stack = set(), [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        if node.name() == "CheckpointFunctionBackward":
            raise ValueError("a reentrant checkpoint cannot be measured: pass use_reentrant=False to torch.utils.checkpoint")
        seen.add(node)
        stack.extend(following for following, _ in node.next_functions)


def _overflowing_layer(model, loss_fn, batch, non_finite):
    """Returns the name of the first layer that has more results in half that are not finite than in f32, although what it
    reads has not; None if there is none. `non_finite` has the numbers in f32, by call."""
    found, calls = [], _Calls()

    def see(name, module, inputs, out):
        if found:
            return
        read, written = non_finite.get(calls.next(name), (0, 0))
        if _count_non_finite(out) > written and _count_non_finite(inputs) <= read:
            found.append(name)

    with _in_half(model), _hooked(model, see):
        loss_fn(model, batch)
    return found[0] if found else None


def _recommended(found):
    """Returns the recommendation: one sentence, the most serious problem first."""
    source = next((layer.name for layer in found.layers if layer.output_non_finite), None)
    broken = next((name for name, values in found.parameters.items() if values.non_finite), None)
    # Infinities of a mask are meant, and leave loss and gradients finite.
    if source is not None and (broken is not None or not math.isfinite(found.loss)):
        return f"Repair the model or the batch first: {source} is not finite in float32 either, so no format and no scale helps."
    if not math.isfinite(found.loss):
        return f"Repair the loss or the batch first: the loss is {found.loss} in float32 too, so no format and no scale helps."
    if broken is not None:
        return f"Repair the loss or the batch first: the gradient of {broken} is not finite in float32 either, so no scale helps."
    if found.overflows_forward is not None:
        return (
            f"Use gradscale.torch.attach(model), whose scaling.step(closure) gives the results of {found.overflows_forward} an exponent, or"
            " bfloat16: they overflow FP16 in the forward pass, which no loss scale changes."
        )
    if found.window is None:
        return f"No loss scale can be recommended, because the window was not measured: {found.window_error}."
    half = found.window.half
    if half.low is None:
        return "Use gradscale.torch.attach(model) or bfloat16, because no single loss scale keeps every gradient of this batch."
    range_ = f"2^{half.low} to 2^{half.high - 1}"
    if half.bits < 2 * MARGIN:
        return (
            f"Use gradscale.torch.attach(model) or bfloat16, because a single loss scale has only {_binades(half.bits)} here ({range_}),"
            " too few while gradients change."
        )
    middle = (half.low + half.high - 1) // 2
    running = found.scales.get("running")
    name, number = ("the running scale", running) if running is not None else ("torch's default", TORCH_SCALE)
    place = half.place(number)
    if not place.is_inside:
        return (
            f"One loss scale suffices, but {name} {power(number)} is {place}: use GradScaler(init_scale=2.0**{middle}), in the middle of"
            f" {range_}."
        )
    if place.below < MARGIN and running is not None:
        return (
            f"One loss scale suffices, but {name} {power(number)} is only {_binades(place.below)} above the smallest that does: keep it"
            f" near 2^{middle}, and watch(scaler)."
        )
    return (
        f"One loss scale suffices: {name} {power(number)} is inside of {range_}, so torch.amp.GradScaler does here, and a scale for"
        " every gradient gains nothing."
    )
