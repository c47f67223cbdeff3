"""Attached models under ``torch.compile``.

The compiler traces the forward pass and, with it, a backward pass for plain gradients. Here that backward pass is
traced with scaled gradients instead. They pass through the same operators and the same graph as in eager mode, so
names, roundings and exponents are the same. The compiled graph contains torch's operators in f32, and two of ours,
which call the training that the model belongs to: ``begin``, where a gradient enters, and ``site``, where it becomes
half. Exponents are tensors there, so new ones need no compilation.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref

import torch
from torch import Tensor
from torch._subclasses.functional_tensor import FunctionalTensor

from . import fused, graph, ops
from .scaled import Enter as EagerEnter
from .scaled import ScaledTensor
from .stores import Device, Host

#: Attached models by number, for operators. As text: a number might become one of the things that differ from run to run.
_MODELS = weakref.WeakValueDictionary()
_NUMBERS = itertools.count()


def register(model):
    """Stores an attached model and returns the number by which compiled graphs know it."""
    # Here and not above: it imports the compiler, which takes a second, and which every optimizer imports.
    torch.compiler.allow_in_graph(Enter)
    number = str(next(_NUMBERS))
    _MODELS[number] = model
    return number


def _attached(number):
    """Returns an attached model by its number."""
    model = _MODELS.get(number)
    if model is None:
        raise RuntimeError("the model of this compiled graph was garbage-collected: keep a reference to it until backward() has run")
    return model


def in_one_graph():
    """Has the compiler end with an error where it would break the graph, if this version of it can."""
    known = getattr(torch._dynamo, "error_on_graph_break", None)
    return known(True) if known else contextlib.nullcontext()


def allow_recurrent():
    """Makes the compiler include recurrent layers, which it leaves out of its graphs by default."""
    torch._dynamo.config.allow_rnn = True


def leaves(model, arguments):
    """Returns the tensors for which the graph of a whole model computes gradients: its parameters, and its inputs."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    return parameters + [x for x in arguments if isinstance(x, Tensor) and x.requires_grad]


def labels(number):
    """Returns the names of an attached model's trainable parameters, by the model's number."""
    model = _attached(number)
    return [model.scaling._label(p) for p in model.module.parameters() if p.requires_grad]


class Enter(torch.autograd.Function):
    """Identity in ``x`` for autograd, whose backward pass scales gradients. The other arguments are the leaves
    of the graph. They are identified by their order only, because other tensors replace them while the graph is
    traced."""

    @staticmethod
    def forward(ctx, x, number, dtype, *leaves):
        ctx.number, ctx.leaves = number, leaves
        return x.to(dtype, copy=True)

    @staticmethod
    def backward(ctx, gradient):
        if not isinstance(gradient._data if isinstance(gradient, ScaledTensor) else gradient, FunctionalTensor):
            # A backend that compiles no backward pass.
            ctx.scaling = _attached(ctx.number).scaling
            return EagerEnter.backward(ctx, gradient)[0], *[None] * (2 + len(ctx.leaves))
        if _attached(ctx.number).scaling._uses_operands:
            raise RuntimeError(
                f"{_attached(ctx.number).scaling.method} decides from the operands of each product inside of a step, which a"
                " compiled backward pass does not expose: do not compile the model, or train with the method gs"
            )
        trace = _trace(ctx.number)
        node = torch._C._current_autograd_node()
        trace.enter(node)
        if not isinstance(gradient, ScaledTensor) or gradient._scaling is not trace:
            plain = gradient.unscaled() if isinstance(gradient, ScaledTensor) else gradient
            gradient = ScaledTensor(torch.ops.gradscale.begin(plain, ctx.number), 0, trace, gradient.dtype)
        return gradient, *[None] * (2 + len(ctx.leaves))


class Trace:
    """Takes the place of a training while the backward pass of a graph is traced."""

    _epoch = 0
    _uses_operands = False
    #: The methods with products in FP8 store activations or weights in 8 bits, which does not compile.
    _multiplies_fp8 = False

    def __init__(self, number):
        self.number = number
        self.task = torch._C._current_graph_task_id()
        self._leaves, self._leaf_names, self._hooked = {}, {}, set()
        self._names = graph.Names(self._label, self._track, self._leaf)
        self._stores = Stores

    def enter(self, root):
        """Registers the leaves of all attached models that `root`, where a gradient enters, depends on."""
        seen, stack = set(), [root]
        while stack:
            node = stack.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            stack.extend(edge for edge, _ in node.next_functions)
            if isinstance(getattr(node, "leaves", None), tuple):
                for leaf, name in itertools.zip_longest(node.leaves, labels(node.number)):
                    self._leaves[torch.autograd.graph.get_gradient_edge(leaf).node] = leaf
                    self._leaf_names[id(leaf)] = name
        self._names.look(root)

    def _label(self, leaf):
        return self._leaf_names[id(leaf)] or "input"

    def _track(self, leaf):
        if id(leaf) in self._hooked:
            return
        if leaf.dtype != torch.float32:
            name = self._leaf_names[id(leaf)] or "an input that wants a gradient"
            raise TypeError(f"{name} is {leaf.dtype}, but a compiled model returns gradients in float32 only: pass a float32 tensor")
        self._hooked.add(id(leaf))
        leaf.register_hook(lambda g: g.unscaled() if isinstance(g, ScaledTensor) else g)

    def _leaf(self, node):
        """Returns the leaf that a node ends at: while a graph is traced, its leaves have a node of their own before
        them."""
        leaf = self._leaves.get(node)
        if leaf is None and (hasattr(node, "variable") or node.name() == "torch::autograd::Error"):
            raise RuntimeError(
                "a compiled graph contains only a part of an attached model, so a gradient would leave it without its exponent:"
                " compile the whole model, with torch._dynamo.config.optimize_ddp=False under DistributedDataParallel"
            )
        return leaf

    def _added_plain(self):
        """Does nothing, because a graph is traced without values."""

    def _call_fused(self, function, args, kwargs, places, starts, name, calls):
        """Calls a fused operator on halves in a compiled graph; a training decides its exponent when the graph runs."""
        operator = _FUSED.get(function)
        if operator is None:
            raise RuntimeError(f"{function} in half cannot be compiled: attach the model first, which runs it in f32")
        starts = [Stores.tensor(start, args[place]) for place, start in zip(places, starts)]
        *out, exponent = operator(self.number, name, calls, places, starts, *args, **kwargs)
        return tuple(out), exponent

    def _store(self, name, calls, x, start, origin=None):
        """Adds a store to a compiled graph; a training decides its exponent when the graph runs."""
        start = None if isinstance(start, int) and start == 0 else Stores.tensor(start, x)
        return torch.ops.gradscale.site(x, start, self.number, name, calls)


class Stores:
    """Arithmetic of exponents in a compiled graph, where they are tensors."""

    least = staticmethod(Device.least)
    #: A compiler joins changes of exponents with the operators around them.
    has_kernels = False

    @staticmethod
    def tensor(exponent, x):
        """Returns an exponent as a tensor on the device of `x`."""
        return torch.full((), exponent, dtype=torch.int32, device=x.device) if isinstance(exponent, int) else exponent

    @staticmethod
    def scaled(x, start, end):
        """Returns `x` times 2^(end − start)."""
        if start is end or isinstance(start, int) and isinstance(end, int) and start == end:
            return x
        start, end = Stores.tensor(start, x), Stores.tensor(end, x)
        return torch.ops.gradscale.scaled(x, start, end) if x.device.type == "cpu" else ops.scaled(x, end, start)


#: The trace in progress.
_current = None


def _trace(number):
    """Returns the trace of the backward pass in progress, one for all gradients that enter it."""
    global _current
    if _current is None or (_current.number, _current.task) != (number, torch._C._current_graph_task_id()):
        _current = Trace(number)
        torch.autograd.Variable._execution_engine.queue_callback(_forget)
    return _current


def _forget():
    global _current
    _current = None


# Implementations of the operators, for tracing a graph and for running it.

_LIBRARY = torch.library.Library("gradscale", "FRAGMENT")
# These operators may decide, which a recorded graph of a device cannot.
_TAGS = [tag for tag in (getattr(torch.Tag, "cudagraph_unsafe", None),) if tag is not None]
_LIBRARY.define("begin(Tensor gradient, str model) -> Tensor", tags=_TAGS)
_LIBRARY.define("site(Tensor x, Tensor? start, str model, str name, int calls) -> (Tensor, Tensor)", tags=_TAGS)
_LIBRARY.define("scaled(Tensor x, Tensor start, Tensor end) -> Tensor")


def _begin(gradient, model):
    _attached(model).scaling._begin_compiled(gradient)
    return gradient.to(torch.float32, copy=True)


def _site(x, start, model, name, calls):
    return _attached(model).scaling._store_compiled(name, calls, x, start)


def _scaled(x, start, end):
    y = Host.scaled(x, int(start), int(end))
    return x.clone() if y is x else y


@torch.library.register_fake("gradscale::begin")
def _(gradient, model):
    return torch.empty_like(gradient, dtype=torch.float32)


@torch.library.register_fake("gradscale::site")
def _(x, start, model, name, calls):
    x = x if torch.ops.aten.is_non_overlapping_and_dense(x) else torch.empty_like(x, memory_format=torch.contiguous_format)
    y = torch.empty_strided(x.size(), x.stride(), dtype=torch.float16, device=x.device)
    return y, torch.empty((), dtype=torch.int32, device=x.device)


@torch.library.register_fake("gradscale::scaled")
def _(x, start, end):
    return torch.empty_like(x, dtype=torch.float32)


def _define_fused(function):
    """Defines an operator for a kernel that computes in halves only. It has additional arguments before those of the
    kernel, and its gradients are f32."""
    schema = function._schema
    name = f"fused{schema.name.partition('::')[2]}"
    arguments = str(schema).partition("(")[2].rpartition(" -> ")[0]
    returns = ", ".join(["Tensor"] * (len(schema.returns) + 1))
    own = "str model, str site, int calls, int[] places, Tensor[] starts"
    _LIBRARY.define(f"{name}({own}, {arguments} -> ({returns})", tags=_TAGS)

    def run(model, site, calls, places, starts, *args, **kwargs):
        scaling = _attached(model).scaling
        out, exponent = scaling._fused_compiled(function, args, kwargs, places, starts, site, calls)
        return *out, exponent

    def describe(model, site, calls, places, starts, *args, **kwargs):
        args = [x.half() if place in places else x for place, x in enumerate(args)]
        out = fused.widened(function(*args, **kwargs))
        return *out, torch.empty((), dtype=torch.int32, device=out[0].device)

    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"gradscale::{name}", describe)
    return getattr(torch.ops.gradscale, name).default


def _define_all_fused():
    """Returns the operators for those kernels that this version of torch has, and whose results a compiler can
    describe."""
    found = {}
    for name in sorted(fused.HALF_ONLY):
        function = getattr(torch.ops.aten, name, None)
        if function is not None and all(str(one.type) == "Tensor" for one in function.default._schema.returns):
            found[function.default] = _define_fused(function.default)
    return found


_FUSED = _define_all_fused()
_LIBRARY.impl("begin", _begin, "CompositeExplicitAutograd")
_LIBRARY.impl("site", _site, "CompositeExplicitAutograd")
_LIBRARY.impl("scaled", _scaled, "CPU")
