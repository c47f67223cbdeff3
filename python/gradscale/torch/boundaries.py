"""Functions of other people's, whose backward gets plain tensors.

The backward of an ``autograd.Function`` may do anything: write in place, fill buffers, ask for addresses, leave PyTorch. So it is
a boundary. Its gradients are handed out as plain f32 tensors, which are the gradients themselves, and its results are taken
back as scaled gradients. While it runs, halves become f32, because a half has no room for a gradient without an exponent:

    in the forward pass           in the backward, under the boundary
    ctx.save_for_backward(half)   ctx.saved_tensors gives f32
    torch.empty_like(half)        f32
    g.to(torch.float16)           f32
    half @ g                      the half is read as f32
    half.copy_(g)                 goes to an f32 copy of that memory, from which later reads are served

A kernel that knows halves alone cannot run there. `half_backward` marks its Function: gradients are then handed out as halves at
one exponent, as a loss scale would hand them out, which is right where the backward is linear in them. Nodes in C++ are handled
so, too, since their results cannot be taken back before autograd has rounded them.
"""

from __future__ import annotations

import functools
from typing import TypeVar

import torch
from torch.autograd.function import BackwardCFunction
from torch.utils._python_dispatch import TorchDispatchMode

from . import operands, rules, scaled

HALF = torch.float16
_AnyFunction = TypeVar("_AnyFunction", bound="type[torch.autograd.Function]")

#: Functions that hand gradients on as they are, or run autograd on them; they know nothing of their types.
_TRANSPARENT = frozenset(
    {
        "torch.utils.checkpoint.CheckpointFunction",
        "torch.utils.checkpoint._NoopSaveInputs",
        "torch.nn.modules._functions.BackwardHookFunction",
        "torch.nn.parallel.distributed._DDPSink",
        "torch.distributed.fsdp._fully_shard._fsdp_param_group.RegisterPostBackwardFunction",
        "torch.distributed._composable.fsdp._fsdp_param_group.RegisterPostBackwardFunction",
    }
)
#: Nodes of PyTorch that write gradients into plain tensors.
_PLAIN_BUFFERS = frozenset("PackPaddedSequenceBackward0".split())
#: Operators whose results have the type of an argument that they do not read.
_LIKE = frozenset(
    "empty_like zeros_like ones_like full_like rand_like randn_like randint_like new_empty new_zeros new_ones new_full"
    " new_empty_strided".split()
)


def half_backward(function: _AnyFunction) -> _AnyFunction:
    """Marks an ``autograd.Function`` whose kernels support only halves, and whose backward is linear in its
    gradients. Its gradients are passed as halves at one exponent, and its results are taken at that exponent. Usable
    as a decorator."""
    function._gradscale_halves = True
    return function


#: Kinds of nodes that are PyTorch's own, so that a look at the others is all that it takes.
ORDINARY = set()


def enclose(node):
    """Makes a node of autograd's graph a boundary, if it runs code that is not PyTorch's own."""
    kind = type(node)
    if issubclass(kind, BackwardCFunction):
        enclosed = kind.__dict__.get("_gradscale_boundary")
        if enclosed is None:
            enclosed = kind._gradscale_boundary = _enclosed(kind)
        if enclosed is not kind:
            node.__class__ = enclosed
    elif kind.__name__ != "CppFunction" and kind.__name__ not in _PLAIN_BUFFERS:
        ORDINARY.add(kind)
    elif "gradscale" not in node.metadata:
        node.metadata["gradscale"] = True
        _hook(node)


def _enclosed(kind):
    """Returns the class of nodes whose backward is a boundary, or the class itself, where it is none."""
    function = kind._forward_cls
    name = f"{function.__module__}.{function.__qualname__}"
    compiled = function.__name__ == "CompiledFunction" and function.__module__.startswith("torch.")
    if name in _TRANSPARENT or compiled or function.__module__.startswith("gradscale.torch."):
        return kind

    class Boundary(kind):
        """Class of autograd nodes whose backward receives plain gradients."""

        def apply(self, *gradients):
            ours = [g for g in gradients if isinstance(g, scaled.ScaledTensor)]
            if not ours:
                return kind.apply(self, *gradients)
            scaling = ours[0]._scaling
            for gradient in ours:
                rules.settle(gradient, self, scaling)
            if getattr(function, "_gradscale_halves", False):
                plain, exponent = _halves(gradients, scaling)
                results = kind.apply(self, *plain)
                return _each(functools.partial(_taken, scaling=scaling, exponent=exponent), results)
            plain = [_plain(g, scaling) for g in gradients]
            with Widening(scaling) as widening:
                self.__dict__["_gradscale_widening"] = widening
                try:
                    results = kind.apply(self, *plain)
                finally:
                    del self.__dict__["_gradscale_widening"]
            # After the mode, in which what is written into halves would be written into their copies.
            results = _each(widening.result, results)
            widening.end()
            return _each(functools.partial(_taken, scaling=scaling, exponent=0), results)

        @property
        def saved_tensors(self):
            saved, widening = super().saved_tensors, self.__dict__.get("_gradscale_widening")
            return saved if widening is None else widening.saved(saved)

    Boundary.__name__, Boundary.__qualname__, Boundary.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    Boundary._gradscale_boundary = Boundary
    return Boundary


def _each(f, results):
    return type(results)(map(f, results)) if type(results) in (tuple, list) else f(results)


def _ordinary(x):
    """Returns True for an ordinary tensor, which has memory of its own and its declared type."""
    return isinstance(x, torch.Tensor) and type(x).__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def _plain(gradient, scaling):
    """Returns the true gradient in memory that its reader may overwrite."""
    if isinstance(gradient, scaled.ScaledTensor):
        return rules.shifted_copy(gradient, scaling)
    return gradient.float() if isinstance(gradient, torch.Tensor) and gradient.dtype == HALF else gradient


def _halves(gradients, scaling):
    """Returns gradients in their own types at one exponent, which they have in common."""
    ours = [g for g in gradients if isinstance(g, scaled.ScaledTensor)]
    exponent = rules.least(scaling, [g.exponent for g in ours])

    def plain(g):
        if not isinstance(g, scaled.ScaledTensor):
            return g
        if g._is_rounded and g.exponent is exponent:
            return g._data.clone()
        return scaled.shift(scaling, g._as_float32(), g.exponent, exponent).to(g.dtype, copy=True)

    return [plain(g) for g in gradients], exponent


def _taken(x, scaling, exponent):
    """Returns a result of a boundary as a scaled gradient."""
    if not isinstance(x, torch.Tensor) or isinstance(x, scaled.ScaledTensor) or not (x.is_floating_point() or x.is_complex()):
        return x
    if x.layout != torch.strided:
        return scaling._stores.scaled(x, exponent, 0)
    if hasattr(x, "device_mesh"):  # a part of a gradient, which its weight gets as it is
        return x
    return scaled.ScaledTensor(x.to(operands.wide_dtype(x.dtype)), exponent, scaling, x.dtype)


def _hook(node):
    """Turns a node of the autograd graph in C++ into a boundary, which reads and returns plain gradients."""
    left = []

    def before(gradients):
        ours = [g for g in gradients if isinstance(g, scaled.ScaledTensor)]
        if not ours:
            return None
        scaling = ours[0]._scaling
        for gradient in ours:
            rules.settle(gradient, torch._C._current_autograd_node() or node, scaling)
        wide = all(g.dtype != HALF for g in ours) and all(
            m.dtype != HALF for edge, i in node.next_functions if edge is not None for m in edge._input_metadata[i : i + 1]
        )
        if wide:
            left.append((scaling, 0))
            return tuple(_plain(g, scaling) for g in gradients)
        plain, exponent = _halves(gradients, scaling)
        left.append((scaling, exponent))
        return tuple(plain)

    def after(results, gradients):
        if not left:
            return None
        scaling, exponent = left.pop()
        return tuple(_taken(x, scaling, exponent) for x in results)

    node.register_prehook(before)
    node.register_hook(after)


class Widening(TorchDispatchMode):
    """Dispatch mode in which operators compute in f32 where they would compute in halves."""

    supports_higher_order_operators = True

    def __init__(self, scaling):
        super().__init__()
        self._scaling, self._task = scaling, torch._C._current_graph_task_id()
        #: Of memory of halves that was written into: the same in f32, and the halves.
        self._memory = {}
        self._saved = None

    def __enter__(self):
        # A weight that is cast meanwhile becomes f32, and must not stay in autocast's cache for other code.
        self._cache = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        return super().__enter__()

    def __exit__(self, *error):
        torch.set_autocast_cache_enabled(self._cache)
        return super().__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not isinstance(function, torch._ops.OpOverload):
            return function(*args, **kwargs)
        operator = rules.described(function)
        if operator.views or operator.name == "record_stream" or scaled.ScaledTensor in types:
            return function(*args, **kwargs)
        if operator.name == "_to_copy" and kwargs.get("dtype") == HALF and self._task != torch._C._current_graph_task_id():
            # A backward pass inside of this one, whose nodes insist on their types.
            wide = function(self.wide(args[0]) if args[0].dtype == HALF else args[0], **{**kwargs, "dtype": torch.float32})
            return scaled.ScaledTensor(wide, 0, self._scaling, HALF)
        if operator.name in _LIKE and args[0].dtype == HALF and kwargs.get("dtype") in (None, HALF):
            return function(*args, **{**kwargs, "dtype": torch.float32})
        if operator.writes:
            for key in operator.writes:
                given = kwargs.get(key) if isinstance(key, str) else args[key] if key < len(args) else None
                for x in given if isinstance(given, (list, tuple)) else (given,):
                    if isinstance(x, torch.Tensor) and x.dtype == HALF:
                        self._remember(x)
        if operator.name in ("_softmax", "_log_softmax") and args[2]:
            args = (*args[:2], False, *args[3:])
        found = []

        def wide(x):
            if isinstance(x, torch.Tensor):
                if x.dtype != HALF:
                    return x
                found.append((self.wide(x), x))
                return found[-1][0]
            return torch.float32 if x is HALF else x

        out = function(*rules.each(wide, args), **dict(zip(kwargs, rules.each(wide, kwargs.values()))))
        if operator.writes and found:
            # An in-place function returns the caller's tensor.
            out = _each(lambda y: next((x for copy, x in found if copy is y), y), out)
        return out

    @staticmethod
    def _key(x):
        return x.untyped_storage()._cdata

    def _remember(self, x):
        """Marks the memory of the f16 tensor `x` as f32 from now on."""
        if _ordinary(x) and self._key(x) not in self._memory:
            flat = torch.empty(0, dtype=HALF, device=x.device).set_(x.untyped_storage())
            self._memory[self._key(x)] = flat.float(), flat

    def wide(self, x):
        """Returns a tensor of halves in f32; views of the same memory share one copy."""
        known = self._memory.get(self._key(x)) if self._memory and _ordinary(x) else None
        return x.float() if known is None else known[0].as_strided(x.size(), x.stride(), x.storage_offset())

    def saved(self, tensors):
        """Returns saved tensors in f32, the same objects at every call."""
        if self._saved is None:
            pairs = [
                (self.wide(x).requires_grad_(x.requires_grad), x) if isinstance(x, torch.Tensor) and x.dtype == HALF else (x, None)
                for x in tensors
            ]
            self._saved = [(wide, x, wide._version if x is not None else 0) for wide, x in pairs]
        return tuple(wide for wide, _, _ in self._saved)

    def result(self, x):
        """Returns a result in f32 if it is a tensor of halves, else unchanged."""
        return self.wide(x) if isinstance(x, torch.Tensor) and x.dtype == HALF and x.layout == torch.strided else x

    def end(self):
        """Writes changes of the copies back to the memory of the halves."""
        for flat, halves in self._memory.values():
            halves.copy_(flat)
        for wide, x, version in self._saved or ():
            if x is not None and wide._version != version:
                x.copy_(wide)
