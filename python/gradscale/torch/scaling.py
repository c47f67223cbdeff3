"""Gradient scaling of one training: its sites, and what becomes of its steps."""

from __future__ import annotations

import numpy as np
import torch

from .. import _gradscale
from . import fused, graph, ranks
from .operands import Cast, Parts
from .scaled import Enter, ScaledTensor
from .report import Report
from .steps import Steps
from .stores import FULL, MOMENTS, Device, Host, refuse_capture
from .trace import Trace


class GradientScaling(Steps):
    """Scales of all gradients of a training, decided by the rules of gradscale.

    `method` is a method's text: ``"gs"``, or for example ``"gs:exact,gamma=1e-4"``. With `late`, rows are read a step
    after they were made, so that the host never waits for the device: the default on all devices but the CPU.
    After `skips` steps in a row that were skipped, training stops with an error; 0 never stops.
    """

    def __init__(self, method="gs", *, late=None, skips=50):
        #: Whether decisions need what made a gradient, beside its values.
        self.operands = self._check(method, late)
        self._rule = _gradscale.Rule(method) if self.operands else None
        self.method = method
        self.epoch = 0
        self.stores = None
        self.names = graph.Names(self._label, self._track)
        self.outcome = None
        self.steps = self.repeats = self.skipped = 0
        self._late, self._limit, self._in_a_row = late, skips, 0
        self._sites = None
        self._slots, self._shared = {}, set()
        self._order, self._stored = [], set()
        self._micro, self._task, self._failed = 0, None, 0
        self._called, self._compiled = set(), False
        # In an attempt of `step`: whether what came in was not finite, on the device.
        self._born = None
        self._blamed = {}
        self._labels, self._hooks, self._unnamed = {}, {}, 0
        self._modules, self._optimizers, self._undo = [], [], []
        self._found, self._flight = None, None
        self._loaded = self._trace = None

    @staticmethod
    def _check(method, late):
        """A method is refused when it is named, not at the first gradient. Whether it decides inside steps."""
        _gradscale.Sites(method)
        try:
            _gradscale.Sites(method, late=True)
        except ValueError:
            if late:
                raise
            return True
        return False

    # Sites

    @property
    def sites(self):
        """The sites: names, exponents, rows and decisions (``gradscale.Sites``); none before the first gradient."""
        return _gradscale.Sites(self.method) if self._sites is None else self._sites

    def _open(self, device):
        # What is made now has to outlive a graph.
        refuse_capture(device)
        self._device = device
        self.stores = (Host if device.type == "cpu" and not self._late else Device)(device)
        self._late = self.stores.late and not self.operands
        self._sites = _gradscale.Sites(self.method, late=self._late)
        self._refresh()

    def _refresh(self):
        """What the coming step does at each site."""
        self._details = self._sites.details
        if self._trace is not None:
            self._details = np.full_like(self._details, FULL)
        self.stores.upload(self._sites.exponents, self._details)
        self._at_once = self._sites.at_once.tolist()

    def _slot(self, name, calls):
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = self._sites.add(name, shared=calls > 1)
            # What the others observe in this step stays.
            self._details = np.append(self._details, self._sites.details[slot] if self._trace is None else FULL)
            self._at_once.append(bool(self._sites.at_once[slot]))
            self.stores.upload(self._sites.exponents, self._details)
            if calls > 1:
                self._shared.add(slot)
        elif calls > 1 and slot not in self._shared:
            self._sites.share(slot)
            self._shared.add(slot)
        return slot

    def store(self, name, calls, x, start, origin=None):
        """Rounds the f32 `x`, which stands at the exponent `start`, at the site of that name; halves and their exponent."""
        self.open(x.device)
        slot = self._slot(name, calls)
        if self._at_once[slot]:
            self._decided(slot, self._decide(slot, x, start, origin))
        self._note(slot)
        return self.stores.store(x, start, slot), self.stores.exponent(slot)

    def _note(self, slot):
        """Remembers that a site stores in this step, and in which order."""
        if slot not in self._stored:
            self._stored.add(slot)
            self._order.append(slot)

    def _decide(self, slot, x, start, origin):
        """The exponent of a site that decides before it stores."""
        number = self.stores.number
        if not self.operands:
            return self._sites.decide(slot, self.stores.look(x, start), number(start))
        incoming = number(start)
        if isinstance(origin, Parts):
            incoming = origin.incoming(number)
            x = self.stores.scaled(x, start, incoming)
        try:
            row = Host.observe(x, incoming, MOMENTS)
            choice, at = (origin or Cast()).choose(self._rule, row, lambda x, e: Host.observe(x, number(e), MOMENTS))
        except _gradscale.NoDecision:
            choice = at = None
        return self._sites.decide(slot, choice, incoming, measured_at=at)

    def _look(self, x, start):
        """A row of `x`, which stands at the exponent `start`, from which a site can decide."""
        return Host.observe(x, self.stores.number(start), MOMENTS) if self.operands else self.stores.look(x, start)

    def _decide_at_once(self, slot, row, exponent):
        """A site decides from a row of values that stand at that exponent."""
        if not self.operands:
            self._decided(slot, self._sites.decide(slot, row, exponent))
            return
        try:
            choice, at = self._rule.decide(row), exponent
        except _gradscale.NoDecision:
            choice = at = None
        self._decided(slot, self._sites.decide(slot, choice, exponent, measured_at=at))

    def _decided(self, slot, exponent):
        self._at_once[slot] = bool(self._sites.at_once[slot])
        self.stores.decided(slot, exponent)

    def call_fused(self, function, args, kwargs, places, starts, name, calls):
        """Calls a kernel that has halves alone: see :func:`.fused.call`."""
        return fused.call(self, function, args, kwargs, places, starts, name, calls)

    # What compiled graphs call

    def begin_compiled(self, gradient):
        """The backward pass of a compiled graph begins here, whose names are known."""
        self._compiled = True
        self._begin(gradient)

    def store_compiled(self, name, calls, x, start):
        """As `store`; exponents are tensors."""
        # Of several graphs in one pass, each knows its own calls alone.
        calls += name in self._called
        self._called.add(name)
        halves, exponent = self.store(name, calls, x, self._number(start))
        return halves, exponent if isinstance(exponent, torch.Tensor) else torch.tensor(exponent, dtype=torch.int32)

    def fused_compiled(self, function, args, kwargs, places, starts, name, calls):
        """As `call_fused`; exponents are tensors."""
        calls += name in self._called
        self._called.add(name)
        starts = [self._number(start) for start in starts]
        out, exponent = self.call_fused(function, args, kwargs, places, starts, name, calls)
        return out, exponent if isinstance(exponent, torch.Tensor) else torch.tensor(exponent, dtype=torch.int32)

    def _number(self, start):
        """An exponent of a compiled graph as stores here want it."""
        return 0 if start is None else start if isinstance(self.stores, Device) else int(start)

    # Passes

    def backward(self, loss, **arguments):
        """``loss.backward()`` with scaled gradients, for any model that ran under ``torch.autocast(…, torch.float16)``."""
        self.scale(loss).backward(**arguments)

    def scale(self, x, dtype=None):
        """A copy of `x`, in another type if one is given, whose gradient is scaled from here on."""
        if self._born is not None and x.dim() == 0:
            self._born.append(x.detach().isnan())
        return Enter.apply(x, self, dtype or x.dtype)

    def begin(self, gradient):
        """A backward pass begins here, or one of its parts."""
        self._begin(gradient)
        self.names.look(torch._C._current_autograd_node())

    def _begin(self, gradient):
        self.open(gradient.device)
        if self._born is not None and not isinstance(gradient, ScaledTensor):
            self._born.append(~gradient.isfinite().all())
        task = torch._C._current_graph_task_id()
        if task != self._task:
            self._task = task
            self._micro += 1
            self._called = set()
            self.stores.begin()
            self.names.clear()
            torch.autograd.Variable._execution_engine.queue_callback(self.names.clear)

    def open(self, device):
        """Where gradients are: on one device, for all of a training."""
        if self.stores is not None and device != self._device:
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

    def name_parameters(self, module, prefix=""):
        """Takes the names of sites from a module's parameters."""
        for name, parameter in (*module.named_parameters(prefix=prefix), *ranks.gathered(module)):
            self._labels.setdefault(id(parameter), name)

    def _label(self, parameter):
        for module in self._modules:
            if id(parameter) not in self._labels:
                self.name_parameters(module)
        label = self._labels.get(id(parameter))
        if label is None:
            shape = "×".join(map(str, parameter.shape))
            label = self._labels[id(parameter)] = f"parameter{self._unnamed}({shape})"
            self._unnamed += 1
        return label

    def _track(self, parameter):
        """Gradients of parameters leave as what they are: f32, at exponent 0."""
        if id(parameter) in self._hooks:
            return
        weight = isinstance(parameter, torch.nn.Parameter)
        if getattr(parameter, "_is_flat_param", False):
            raise TypeError(
                "FullyShardedDataParallel makes one parameter of many, in which a rank cannot tell whether another found what is"
                " not finite: use torch.distributed.fsdp.fully_shard, whose gradients say that they are parts"
            )
        if not weight and torch._C._current_graph_task_id() != self._task:
            # The input of a checkpointed part, whose gradient goes on to the part before.
            return
        if weight and parameter.dtype != torch.float32:
            raise TypeError(
                f"{self._label(parameter)} is {parameter.dtype}: weights and their gradients are kept in f32 here, and"
                " autocast makes halves of them; call .float() on the model"
            )

        dtype = parameter.dtype

        def unscale(gradient):
            return gradient.unscaled().to(dtype) if isinstance(gradient, ScaledTensor) else gradient

        if weight:
            self._hooks[id(parameter)] = (parameter.register_hook(unscale), parameter)
        elif not hasattr(parameter, "_gradscale"):
            # An input, which nobody here is to keep.
            parameter._gradscale = parameter.register_hook(unscale)

    # Models

    def attach(self, model, *, dtype=torch.float16):
        """Lets a model train in half: see :func:`gradscale.torch.attach`. Several models may share their scales' rule."""
        from .attach import InF32, Scaled

        if isinstance(model.__dict__.get("forward"), Scaled):
            raise ValueError("this model is attached already; detach() it first")
        for module in model.modules():
            if isinstance(module, torch.nn.RNNBase):
                self._undo.append(InF32(module).put())
        self._modules.append(model)
        self.name_parameters(model, prefix="" if len(self._modules) == 1 else f"model{len(self._modules)}")
        self._undo.append(Scaled(model, self, dtype).put())

    def detach(self):
        """Gives models and optimizers back as they were. Gradients that are there stay."""
        for undo in reversed(self._undo):
            undo()
        for handle, _ in self._hooks.values():
            handle.remove()
        self._undo, self._modules, self._hooks, self._labels = [], [], {}, {}

    # What is known

    def report(self):
        """What is known of all sites and steps: to be printed, or as pandas or TensorBoard want it."""
        return Report(self)

    def trace(self, path):
        """Writes what every site sees in every step from here on into a new file, as JSON lines: what ``gradscale train
        --trace`` writes. ``gradscale report`` makes a page of it, ``gradscale.replay`` and ``gradscale replay`` play it by
        another method. Takes about half a kilobyte for a site and step. Returns a function that ends it; so does ``detach()``."""
        if self._trace is not None:
            raise ValueError("a trace is being written already: end that first")
        trace = self._trace = Trace(path, self.method, (self._flight is not None) + (self._micro > 0))

        def end():
            trace.close()
            if self._trace is trace:
                self._trace = None

        self._undo.append(end)
        if self._sites is not None:
            self._refresh()
        return end

    def __repr__(self):
        count = 0 if self._sites is None else len(self._sites)
        return f"<GradientScaling by {self.method}: {count} sites, {self.steps} steps, {self.repeats} repeats, {self.skipped} skipped>"
