"""Gradient scaling of one training: its sites, and the outcome of its steps."""

from __future__ import annotations

import itertools
import os
import warnings
import weakref
from typing import Any, Callable

import numpy as np
import torch

from .. import _gradscale
from . import compiled, fp8, fused, graph, ranks
from .forward_exponents import ForwardExponents, method_with
from .operands import Cast, Parts
from .scaled import Enter, ScaledTensor
from .report import Report
from .store_formats import find
from .steps import Steps
from .stores import FULL, MOMENTS, Device, Host, refuse_capture
from .trace import Trace


#: Maximum number of losses of one graph in one step whose sites are separate: more than the tasks that share one trunk.
MAX_PASSES = 8
#: Number of backward passes without an update that causes a warning: more than the micro-batches of any known
#: accumulation.
MAX_PASSES_WITHOUT_UPDATE = 1000


def _entry(entries, parameter):
    """Returns the entry of a parameter by id. An entry of another parameter that had this id before does not count."""
    entry = entries.get(id(parameter))
    return entry if entry is not None and entry[0]() is parameter else None


def _prune(entries):
    """Removes the entries of parameters that no longer exist."""
    for key in [key for key, (reference, _) in entries.items() if reference() is None]:
        del entries[key]


#: The backward pass of autograd that runs, and the ids of weights whose gradients a training has unscaled in it.
_unscaled = None, set()


def _note_unscaled(key):
    """Notes that the gradient of a weight has been unscaled in this backward pass, for hooks of other trainings."""
    global _unscaled
    task = torch._C._current_graph_task_id()
    if _unscaled[0] != task:
        _unscaled = task, set()
    _unscaled[1].add(key)


def _was_unscaled(key):
    """Returns True if another training, which has a hook at the same weight, has unscaled its gradient in this pass."""
    return _unscaled[0] == torch._C._current_graph_task_id() and key in _unscaled[1]


class GradientScaling(Steps, ForwardExponents):
    """Scales of all gradients of a training, decided by the rules of gradscale.

    `method` is a method's text: ``"gs"``, or for example ``"gs:exact,gamma=1e-4"``. Formats of 8 bits and products in FP8
    are part of it: ``"gs:grad=e5m2,act=e4m3,weight=e4m3,products=fp8"``. With `deferred`, rows are read a step after they
    were made, so that the host never waits for the device: the default on all devices but the CPU. After `max_consecutive_skips` steps in a row that were skipped, training stops with an error; 0 never stops.

    `forward`: what happens to activations of an attached model. ``"repeat"``, the default of ``"gs"``, gives them exponents
    after the first overflow of one; ``"on"`` from the beginning, so that small ones are scaled too; ``"off"`` never.
    """

    def __init__(
        self, method: str = "gs", *, forward: str | None = None, deferred: bool | None = None, max_consecutive_skips: int = 50
    ) -> None:
        method = method_with(method, forward)
        #: True if decisions need the operands of a gradient, besides its values.
        self._uses_operands = self._check(method, deferred)
        self._rule = _gradscale.Rule(method) if self._uses_operands else None
        self.method: str = method
        self._set_forward()
        self._epoch = 0
        self._stores = None
        self._names = graph.Names(self._label, self._track)
        #: How the last step ended that was decided; None before the first.
        self.outcome: _gradscale.Outcome | None = None
        #: Numbers of steps, of batches that ran again in them, and of steps that were skipped.
        self.steps: int = 0
        self.repeats: int = 0
        self.skipped: int = 0
        self._deferred, self._limit, self._in_a_row = deferred, max_consecutive_skips, 0
        self._sites = None
        #: Formats of the sites' stores.
        self._formats = []
        self._slots, self._shared = {}, set()
        self._order, self._stored = [], set()
        self._micro, self._task, self._failed = 0, None, 0
        self._called, self._compiled = set(), False
        # In an attempt of `step`: a flag on the device, set if an incoming gradient was not finite.
        self._born = None
        # Likewise for each result of the model: a flag that is set if it was finite.
        self._results = []
        self._blamed = {}
        # By parameter id: a weak reference with the parameter's label or hook.
        self._labels, self._hooks, self._live_hooks = {}, {}, 64
        # Weak references to attached models and to their replaced forward functions, by number; undo functions of all
        # replacements.
        self._models, self._forwards, self._optimizers, self._undo = {}, [], [], []
        self._device = None
        # Nodes at which passes of this step ended, and how often.
        self._passes = {}
        # Observations since the last update, and warnings that were given.
        self._ran, self._guarded, self._warned, self._unpickled, self._updates = False, {}, set(), False, 0
        # True if a state was loaded since the last update, after a backward pass.
        self._discarded = False
        self._found, self._flight = None, None
        self._loaded = self._trace = None

    @staticmethod
    def _check(method, deferred):
        """Checks a method when it is named, not at the first gradient, and returns whether it decides inside steps."""
        _gradscale.Sites(method)
        try:
            _gradscale.Sites(method, deferred=True)
        except ValueError:
            if deferred:
                raise
            return True
        return False

    # Sites

    @property
    def sites(self) -> _gradscale.Sites:
        """Returns the sites: names, exponents, rows and decisions (``gradscale.Sites``)."""
        if self._sites is not None:
            return self._sites
        sites = _gradscale.Sites(self.method)
        if self._loaded is not None:
            sites.load_state_dict(self._loaded["sites"])
        return sites

    def _open(self, device):
        # Tensors that are allocated now must outlive a captured graph.
        refuse_capture(device)
        self._device = device
        self._stores = (Host if device.type == "cpu" and not self._deferred else Device)(device)
        self._deferred = self._stores.late and not self._uses_operands
        self._sites = _gradscale.Sites(self.method, deferred=self._deferred)
        if self._scales_forward:
            self._sites.scale_forward()
        self._refresh()

    def _refresh(self):
        """Uploads the exponents and levels of detail of the coming step."""
        self._details = self._sites.details
        if self._trace is not None:
            self._details = np.full_like(self._details, FULL)
        if len(self._formats) != len(self._sites):
            self._formats = [find(name) for name in self._sites.formats]
        self._stores.upload(self._sites.exponents, self._details, self._formats)
        self._decides_in_step = self._sites.decides_in_step.tolist()

    def _slot(self, name, calls, kind="site"):
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = self._sites.add(name, kind, shared=calls > 1)
            if kind != "site":
                self._forward_slots.append(slot)
            # Levels of detail of existing sites do not change in this step.
            self._details = np.append(self._details, self._sites.details[slot] if self._trace is None else FULL)
            self._decides_in_step.append(bool(self._sites.decides_in_step[slot]))
            self._formats.append(find(self._sites.formats[slot]))
            self._stores.upload(self._sites.exponents, self._details, self._formats)
            if calls > 1:
                self._shared.add(slot)
        elif calls > 1 and slot not in self._shared:
            self._sites.mark_shared(slot)
            self._shared.add(slot)
        return slot

    def _store(self, name, calls, x, start, origin=None, kept=None):
        """Rounds the f32 `x`, which is at the exponent `start`, at the site of that name. Returns halves and their
        exponent, which is `kept` if this tensor on a device is to get a copy of it."""
        self._open_once(x.device)
        slot = self._slot(name, calls)
        if self._decides_in_step[slot]:
            self._decided(slot, self._decide(slot, x, start, origin))
        self._note(slot)
        halves = self._stores.store(x, start, slot, kept)
        return halves, self._stores.exponent(slot) if kept is None else kept

    def _note(self, slot):
        """Records that a site stores in this step, and in which order."""
        if slot not in self._stored:
            self._stored.add(slot)
            self._order.append(slot)

    def _decide(self, slot, x, start, origin):
        """Decides the exponent of a site before it stores, and returns it."""
        number = self._stores.number
        if not self._uses_operands:
            return self._sites.decide(slot, self._stores.look(x, start, self._formats[slot]), number(start))
        incoming = number(start)
        if isinstance(origin, Parts):
            incoming = origin.incoming(number)
            x = self._stores.scaled(x, start, incoming)
        try:
            format = self._formats[slot]
            row = Host.observe(x, incoming, MOMENTS, format)
            choice, at = (origin or Cast()).choose(self._rule, row, lambda x, e: Host.observe(x, number(e), MOMENTS, format))
        except _gradscale.NoDecisionError:
            choice = at = None
        return self._sites.decide(slot, choice, incoming, measured_at=at)

    def _look(self, x, start, slot):
        """Returns a row of `x`, which is at the exponent `start`, from which a site can decide."""
        if self._uses_operands:
            return Host.observe(x, self._stores.number(start), MOMENTS, self._formats[slot])
        return self._stores.look(x, start, self._formats[slot])

    def _decide_in_step(self, slot, row, exponent):
        """Decides the exponent of a site inside the step, from a row of values at `exponent`."""
        if not self._uses_operands:
            self._decided(slot, self._sites.decide(slot, row, exponent))
            return
        try:
            choice, at = self._rule.decide(row), exponent
        except _gradscale.NoDecisionError:
            choice = at = None
        self._decided(slot, self._sites.decide(slot, choice, exponent, measured_at=at))

    def _decided(self, slot, exponent):
        self._decides_in_step[slot] = bool(self._sites.decides_in_step[slot])
        self._stores.decided(slot, exponent)

    def _call_fused(self, function, args, kwargs, places, starts, name, calls):
        """Calls a kernel that computes in halves only: see :func:`.fused.call`."""
        return fused.call(self, function, args, kwargs, places, starts, name, calls)

    # Functions that compiled graphs call

    def _begin_compiled(self, gradient):
        """Begins the backward pass of a compiled graph, whose names are known."""
        self._compiled = True
        self._begin(gradient)

    def _store_compiled(self, name, calls, x, start):
        """Stores a tensor as `_store` does, for compiled graphs, in which exponents are tensors."""
        # If one pass has several graphs, each counts only its own calls.
        calls += name in self._called
        self._called.add(name)
        self._open_once(x.device)
        # A graph may write into its tensors, so it gets exponents of its own.
        kept = torch.empty((), dtype=torch.int32, device=x.device) if self._stores.late else None
        halves, exponent = self._store(name, calls, x, self._number(start), kept=kept)
        return halves, exponent if isinstance(exponent, torch.Tensor) else torch.tensor(exponent, dtype=torch.int32)

    def _fused_compiled(self, function, args, kwargs, places, starts, name, calls):
        """Calls a fused operator as `_call_fused` does, for compiled graphs, in which exponents are tensors."""
        calls += name in self._called
        self._called.add(name)
        starts = [self._number(start) for start in starts]
        out, exponent = self._call_fused(function, args, kwargs, places, starts, name, calls)
        if self._stores.late:
            exponent = exponent.clone()
        return out, exponent if isinstance(exponent, torch.Tensor) else torch.tensor(exponent, dtype=torch.int32)

    def _number(self, start):
        """Converts an exponent of a compiled graph to the form that the stores take."""
        return 0 if start is None else start if isinstance(self._stores, Device) else int(start)

    # Passes

    def backward(self, loss: torch.Tensor, **arguments: Any) -> None:
        """Runs ``loss.backward()`` with scaled gradients.

        The model may be any that ran under ``torch.autocast(…, torch.float16)``.
        """
        self.scale(loss).backward(**arguments)

    def scale(self, x: torch.Tensor) -> torch.Tensor:
        """Returns a copy of `x`. From it on, the backward pass scales gradients."""
        if not self._models and not self._stores_forward_in_half:
            raise ValueError(
                f"{self.method} stores activations or weights in 8 bits, which only a model does that is attached: call attach(model),"
                " or use grad= alone, which stores gradients in 8 bits"
            )
        return self._enter(x, x.dtype)

    def _enter(self, x, dtype):
        """Returns `x` in another type, as the boundary at which the backward pass begins to scale gradients."""
        if self._born is not None:
            self._results.append(x.detach().isfinite().all())
            if x.dim() == 0:
                self._born.append(x.detach().isnan())
        return Enter.apply(x, self, dtype)

    def _begin_here(self, gradient):
        """Begins a backward pass, or one of its parts."""
        began = self._begin(gradient)
        self._names.look(torch._C._current_autograd_node())
        if began:
            self._follow_checkpoints()
        if began and self._names.first is not None:
            # A graph that was gone through in this step already belongs to another loss, whose gradients are of another size.
            visit = self._passes[self._names.first] = self._passes.get(self._names.first, 0) + 1
            self._names.suffix = f"#{min(visit, MAX_PASSES)}" if visit > 1 else ""

    def _begin(self, gradient):
        self._open_once(gradient.device)
        if self._born is not None and not isinstance(gradient, ScaledTensor):
            self._born.append(~gradient.isfinite().all())
        task = torch._C._current_graph_task_id()
        if task == self._task:
            return False
        self._task = task
        self._micro += 1
        if self._micro == MAX_PASSES_WITHOUT_UPDATE:
            self._warn(f"{self._micro} backward passes without update(): call update() after each step of the optimizer")
        self._called = set()
        self._stores.begin()
        self._names.clear()
        torch.autograd.Variable._execution_engine.queue_callback(self._names.clear)
        return True

    def _warn(self, text, kind=None):
        """Warns the user once for each kind of warning."""
        if (kind or text) not in self._warned:
            self._warned.add(kind or text)
            warnings.warn(f"gradscale: {text}", stacklevel=4)

    def _open_once(self, device):
        """Creates the stores on the device of the gradients, the same for a whole training."""
        if self._stores is not None and device != self._device:
            raise RuntimeError(
                f"gradients are on {self._device} and on {device}: move the model to one device, or train one process for"
                " each GPU (DistributedDataParallel)"
            )
        if self._sites is None:
            self._open(device)
            if self._loaded is not None:
                loaded, self._loaded = self._loaded, None
                self.load_state_dict(loaded)

    # Parameters

    def _name_parameters(self, module, prefix=""):
        """Takes the names of sites from the names of a module's parameters."""
        for name, parameter in (*module.named_parameters(prefix=prefix), *ranks.gathered(module)):
            if _entry(self._labels, parameter) is None:
                self._labels[id(parameter)] = weakref.ref(parameter), name

    def _name_copy(self, model, twin):
        """Names the parameters of a deep copy like those of `model`: copies that are made in each step then add no sites."""
        _prune(self._labels)
        names = {name: self._label(parameter) for name, parameter in model.named_parameters()}
        for name, parameter in twin.named_parameters():
            if name in names:
                self._labels[id(parameter)] = weakref.ref(parameter), names[name]

    def _label(self, parameter):
        entry = self._labels.get(id(parameter))
        if entry is not None and entry[0]() is parameter:
            return entry[1]
        for number, module in self._live_models():
            self._name_parameters(module, "" if number == 1 else f"model{number}")
        entry = _entry(self._labels, parameter)
        if entry is None:
            # A tensor of no model's has the first number that no living one has: where they are new in each step, all steps
            # have the same names.
            _prune(self._labels)
            taken = {label for _, label in self._labels.values()}
            shape = "×".join(map(str, parameter.shape))
            free = next(i for i in itertools.count() if f"parameter{i}({shape})" not in taken)
            entry = self._labels[id(parameter)] = weakref.ref(parameter), f"parameter{free}({shape})"
        return entry[1]

    def _live_models(self):
        """Returns the attached models that still exist, by number."""
        models = [(number, model()) for number, (model, _) in self._models.items()]
        return [(number, model) for number, model in models if model is not None]

    def _track(self, parameter):
        """Registers a hook by which the gradient of a parameter is unscaled to f32."""
        entry = self._hooks.get(id(parameter))
        if entry is not None and entry[0]() is parameter:
            return
        weight = isinstance(parameter, torch.nn.Parameter)
        if getattr(parameter, "_is_flat_param", False):
            raise TypeError(
                "FullyShardedDataParallel joins parameters into one, so a rank does not see a gradient of another rank that is not"
                " finite: use torch.distributed.fsdp.fully_shard, whose gradients are marked as parts"
            )
        if not weight and torch._C._current_graph_task_id() != self._task:
            # The input of a checkpointed part, whose gradient goes on to the part before.
            return
        if weight and parameter.dtype.is_complex:
            raise TypeError(
                f"{self._label(parameter)} is {parameter.dtype}, but gradients of complex weights cannot be scaled: keep"
                " torch.view_as_real of it as a float32 parameter, and use torch.view_as_complex in forward"
            )
        if weight and parameter.dtype != torch.float32:
            raise TypeError(
                f"{self._label(parameter)} is {parameter.dtype}, but weights must be float32, because autocast casts them to half itself:"
                " call .float() on the model"
            )

        dtype = parameter.dtype

        scaling, key = weakref.ref(self), id(parameter)

        def unscale(gradient):
            if isinstance(gradient, ScaledTensor):
                if weight:
                    _note_unscaled(key)
                return gradient.unscaled().to(dtype)
            if weight and gradient.layout == torch.strided and not _was_unscaled(key):
                scaling()._arrived_plain(label)
            return gradient

        if weight:
            label = self._label(parameter)
            if len(self._hooks) > 2 * self._live_hooks:
                _prune(self._hooks)
                self._live_hooks = max(64, len(self._hooks))
            self._hooks[id(parameter)] = weakref.ref(parameter), parameter.register_hook(unscale)
        elif not hasattr(parameter, "_gradscale"):
            # An input, which must not be kept alive here.
            parameter._gradscale = parameter.register_hook(unscale)

    def _arrived_plain(self, label):
        """Warns that the gradient of a weight came without an exponent, in a pass in which others have some."""
        if torch._C._current_graph_task_id() == self._task:
            self._warn(
                f"the gradient of {label} arrived without an exponent, so earlier layers are not scaled: a hook or an operator"
                " returned a plain tensor",
                kind="arrived",
            )

    def _added_plain(self):
        """Warns that a gradient in half that has no exponent was added to one that has."""
        self._warn(
            "a float16 gradient without an exponent was added to a scaled one, so its small values are lost: return every tensor that"
            " the loss uses from forward, also those that forward stores as attributes",
            kind="added",
        )

    # Models

    def attach(self, model: torch.nn.Module, *, dtype: torch.dtype = torch.float16) -> None:
        """Lets a model train in half: see :func:`gradscale.torch.attach`. Several models may share their scales' rule."""
        from .attach import InF32, Scaled

        if isinstance(model.__dict__.get("forward"), Scaled):
            raise ValueError("this model is attached already; detach() it first")
        if dtype != torch.float16:
            raise ValueError(f"{dtype} has no scaled gradients: only torch.float16 needs them; use torch.autocast alone")
        if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
            raise TypeError("a TorchScript model hides its operators: attach the original model")
        if self._multiplies_fp8:
            # A model that moves later is checked at its first product.
            for device in {p.device for p in model.parameters() if p.device.type != "meta"}:
                fp8.check_device(device)
        recurrent = False
        for module in model.modules():
            if isinstance(module, torch.nn.RNNBase):
                self._put(InF32(module))
                recurrent = True
        self._models = {number: refs for number, refs in self._models.items() if refs[0]() is not None}
        number = next(i for i in itertools.count(1) if i not in self._models)
        _prune(self._labels)
        forward = Scaled(model, self, dtype)
        self._models[number] = weakref.ref(model), weakref.ref(forward)
        self._name_parameters(model, prefix="" if number == 1 else f"model{number}")
        self._put(forward)
        if recurrent:
            compiled.allow_recurrent()

    def _put(self, forward):
        """Replaces a forward function. The model owns the replacement, because this training may outlive the model."""
        forward.put()
        self._forwards = [reference for reference in self._forwards if reference() is not None]
        self._forwards.append(weakref.ref(forward))

    def detach(self) -> None:
        """Gives models and optimizers back as they were. Gradients that are there stay."""
        for undo in reversed(self._undo):
            undo()
        for forward in filter(None, (reference() for reference in reversed(self._forwards))):
            forward._undo()
        for _, handle in self._hooks.values():
            handle.remove()
        self._undo, self._forwards, self._models, self._hooks, self._labels = [], [], {}, {}, {}

    # Reports

    def report(self) -> Report:
        """Returns a report of all sites and steps, which can be printed or converted for pandas or TensorBoard."""
        return Report(self)

    def start_trace(self, path: str | os.PathLike[str]) -> Callable[[], None]:
        """Records the statistics of every site in every later step in a new file, as JSON lines, in the format of
        ``gradscale train --trace``. ``gradscale report`` writes a page from it, and ``gradscale.replay`` and
        ``gradscale replay`` evaluate it under another method. Takes about half a kilobyte per site and step. Returns
        a function that ends the recording; so does ``detach()``."""
        if self._trace is not None:
            raise ValueError("a trace is being written already: end it first")
        trace = self._trace = Trace(path, self.method, (self._flight is not None) + (self._micro > 0))

        def end():
            trace.close()
            if self._trace is trace:
                self._trace = None

        self._undo.append(end)
        if self._sites is not None:
            self._refresh()
        return end

    # Copies

    def __deepcopy__(self, memo):
        # A copy of a model is attached to the same scales, whether it keeps them or not.
        return self

    def __getstate__(self):
        return {"method": self.method, "late": self._deferred, "skips": self._limit, "state": self.state_dict()}

    def __setstate__(self, state):
        self.__init__(state["method"], deferred=state["late"], max_consecutive_skips=state["skips"])
        self.load_state_dict(state["state"])
        self._unpickled = True

    def __repr__(self):
        count = 0 if self._sites is None else len(self._sites)
        return f"<GradientScaling by {self.method}: {count} sites, {self.steps} steps, {self.repeats} repeats, {self.skipped} skipped>"
