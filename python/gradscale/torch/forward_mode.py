"""Forward passes whose activations have exponents.

Until an activation overflows, a model runs under plain autocast, and nothing here is used. Then its forward pass runs in a
:class:`ForwardMode`. Each operator that would return halves under autocast computes in f32, and its results are rounded
once, at a site with an exponent.

    exact operators        views, ReLU, negation, selection: halves and exponent pass on
    matrix products        a GPU multiplies the halves; the exponents of the operands are added; in FP8 if the method says so
    attention              computed from its products and softmax, in f32
    all others             read true values in f32
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves, tree_map

from . import activations, fp8, gpu, graph, rules, scaled
from .store_formats import FP16

HALF = torch.float16

#: Matrix products whose operands are multiplied as they are stored, where that is possible.
_MATRIX_PRODUCTS = frozenset({torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.addmm.default})
#: Operators whose results, in the sites' names, are the layer's own.
_LAYERS_OWN = frozenset("mm addmm bmm baddbmm convolution linear".split())

#: Types of an operator's results, by the operator and the types of its arguments.
_RESULT_TYPES: dict[Any, list[torch.dtype | None]] = {}


def _result_types(function, args, kwargs):
    """Returns the types that the results of an operator have under plain autocast."""
    leaves = tree_leaves((args, kwargs))
    key = function, *((x.dtype, x.dim() == 0) if isinstance(x, torch.Tensor) else x if isinstance(x, torch.dtype) else type(x) for x in leaves)
    known = _RESULT_TYPES.get(key)
    if known is None:

        def meta(x):
            if isinstance(x, torch.Tensor):
                return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
            return torch.device("meta") if isinstance(x, torch.device) else x

        try:
            out = function(*tree_map(meta, args), **tree_map(meta, kwargs))
            known = [x.dtype if isinstance(x, torch.Tensor) else None for x in tree_leaves(out)]
        except (NotImplementedError, RuntimeError):
            # The number or shape of its results depends on values. Floating-point results then have the widest type.
            floats = [x.dtype for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]
            known = [HALF if all(dtype == HALF for dtype in floats) else torch.float32] * 64
        _RESULT_TYPES[key] = known
    return known


class ForwardMode(TorchDispatchMode):
    """Dispatch mode in which the operators of one call of a model store halves with exponents.

    `training`: rows are collected and exponents decided. Otherwise stores use the exponents that the training has.
    """

    def __init__(self, scaling, paths, training):
        super().__init__()
        self._scaling, self._paths, self._training = scaling, paths, training
        #: Paths of the modules whose forward functions run, and how often each operator has stored in each of them.
        self._running = [("", {})]

    def __enter__(self):
        self._handles = [
            register_module_forward_pre_hook(self._entered),
            register_module_forward_hook(self._left, always_call=True),
        ]
        self._attention = sdpa_kernel(SDPBackend.MATH)
        self._attention.__enter__()
        # A copy of a weight in autocast's cache would keep its exponent, or have none.
        self._cache = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(self._cache and self._scaling._weight_format is FP16)
        return super().__enter__()

    def __exit__(self, *error):
        for handle in self._handles:
            handle.remove()
        self._attention.__exit__(*error)
        torch.set_autocast_cache_enabled(self._cache)
        return super().__exit__(*error)

    def _entered(self, module, _):
        if self in _get_current_dispatch_mode_stack():
            self._running.append((self._paths.get(id(module), type(module).__name__), {}))

    def _left(self, *_):
        if self in _get_current_dispatch_mode_stack() and len(self._running) > 1:
            self._running.pop()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not isinstance(function, torch._ops.OpOverload) or any(issubclass(kind, scaled.ScaledTensor) for kind in types):
            return function(*args, **kwargs)
        if torch._C._current_graph_task_id() != -1 and not torch.is_grad_enabled():
            # A backward pass, and not the second forward pass of a checkpointed part.
            return function(*args, **kwargs)
        operator = rules.described(function)
        tensors = activations.find_tensors(args, kwargs)
        if operator.name in activations.READS_NO_VALUES:
            return function(*tree_map(activations.to_halves, args), **kwargs)
        if operator.name in activations.CONVERTS:
            return self._converted(function, args, kwargs)
        if activations.is_exact(operator, args) and not operator.writes:
            return activations.move_values(function, operator, args, kwargs)
        if operator.writes:
            return self._write(function, operator, args, kwargs)
        if operator.views or not any(x.dtype == HALF for x in tensors):
            return function(*args, **kwargs)
        types_ = _result_types(function, args, kwargs)
        if HALF not in types_:
            return function(*tree_map(activations.widen, args), **tree_map(activations.widen, kwargs))
        return self._computed(function, operator, args, kwargs, types_)

    def _computed(self, function, operator, args, kwargs, types):
        """Computes in f32, and stores each result that is half under plain autocast."""
        if operator.name in ("_softmax", "_log_softmax"):
            args = (*args[:2], False)
        start, out = self._multiplied(function, args, kwargs)
        if out is None:
            narrow = {HALF: torch.float32}

            def wide(x):
                return narrow.get(x, x) if isinstance(x, torch.dtype) else activations.widen(x)

            convolves = operator.name == "convolution" and args[0].device.type in gpu.DEVICE_TYPES
            # Halves and powers of two are exact in TF32.
            with gpu.tf32_convolutions() if convolves else contextlib.nullcontext():
                try:
                    out = function(*tree_map(wide, args), **tree_map(wide, kwargs))
                except (RuntimeError, NotImplementedError):
                    # A kernel for halves alone; or an error of the caller's, which comes again.
                    out = function(*tree_map(activations.narrow, args), **tree_map(activations.narrow, kwargs))
                    self._scaling._without_exponents.add(operator.name)
                    return out
        types = iter(types)

        def stored(x):
            dtype = next(types, None)
            return self._store(operator.name, x, start) if isinstance(x, torch.Tensor) and dtype == HALF else x

        return tree_map(stored, out)

    def _multiplied(self, function, args, kwargs):
        """Returns the exponent and the f32 values of a matrix product of stored operands; 0 and None if the general way has
        to compute it."""
        if function not in _MATRIX_PRODUCTS:
            return 0, None
        *bias, left, right = args
        out, multiplies_fp8 = None, self._scaling._multiplies_fp8
        if multiplies_fp8:
            out, reason = fp8.multiply(function, left, right) if not kwargs else (None, "a sum with factors")
            if self._training:
                self._scaling._fp8_products[self._product_name(function)] = reason
        if kwargs:
            return 0, None
        if out is None and left.device.type in gpu.DEVICE_TYPES:
            multiply = torch.ops.aten.mm.default if bias else function
            out = gpu.multiply_halves(multiply, activations.to_halves(left), activations.to_halves(right))
        if out is None:
            return 0, None
        exponent = sum(x.exponent for x in (left, right) if activations.is_activation(x))
        return (0, scaled.shift(self._scaling, out, exponent, 0) + activations.widen(*bias)) if bias else (exponent, out)

    def _product_name(self, function):
        """Returns the name of the next product: that of its layer, numbered if the layer has several."""
        path, counts = self._running[-1]
        # Stores are counted by their names.
        count = counts["product", path] = counts.get(("product", path), -1) + 1
        return (path or function.overloadpacket.__name__) + (f"[{count}]" if count else "")

    def _store(self, op, x, start):
        """Rounds f32 values at the site of the operator that computed them."""
        if x.dtype != torch.float32 or x.layout != torch.strided:
            return x
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            self._scaling._may_run_again = True
        path, counts = self._running[-1]
        op = graph.common_name(op)
        base = path if op in _LAYERS_OWN and path else f"{path}/{op}" if path else op
        # By name, because several operators may have that of their layer.
        count = counts[base] = counts.get(base, -1) + 1
        name = f"{base}/forward" + (f"[{count}]" if count else "")
        scaling = self._scaling
        stored = scaling._store_forward(name, x, start, self._training)
        return activations.ScaledActivation(*stored, scaling._activation_format, scaling)

    def _converted(self, function, args, kwargs):
        """Changes the type, device or layout of a tensor."""
        x, dtype = args[0], kwargs.get("dtype")
        if activations.is_activation(x):
            return activations.convert(function, args, kwargs)
        enters = function is torch.ops.aten._to_copy.default and dtype == HALF and x.is_floating_point() and x.dtype != HALF
        if not enters or x.layout != torch.strided:
            return function(*args, **kwargs)
        wide = {**kwargs, "dtype": torch.float32}
        if not isinstance(x, torch.nn.Parameter):
            return self._store("input", function(x, **wide), 0)
        scaling = self._scaling
        # Autocast casts weights themselves. They have an exponent only in formats of 8 bits; biases stay halves.
        if scaling._weight_format is FP16 or x.dim() < 2 or x.dtype != torch.float32:
            return function(*args, **kwargs)
        stored = scaling._store_forward(f"{scaling._label(x)}/forward", function(x, **wide), 0, self._training, kind="weight")
        return activations.ScaledActivation(*stored, scaling._weight_format, scaling)

    def _write(self, function, operator, args, kwargs):
        """Calls an operator that writes: results in activations are stored again, other tensors get true values."""
        targets = activations.find_written(operator, args, kwargs)
        if any(map(activations.is_activation, targets)):
            return activations.run_write(function, operator, args, kwargs, self._stored_again)
        if all(x.dtype != HALF for x in targets):
            # Running statistics, for example, beside results that are stored.
            types = _result_types(function, args, kwargs)
            if HALF in types:
                return self._computed(function, operator, args, kwargs, types)
        return function(*tree_map(activations.to_float32, args), **tree_map(activations.to_float32, kwargs))

    def _stored_again(self, operator, _, values):
        stored = self._store(operator.name.rstrip("_"), values, 0)
        return stored.halves(), stored.exponent


def is_running(scaling):
    """Returns True if a forward pass of this training stores activations with exponents already."""
    return any(isinstance(mode, ForwardMode) and mode._scaling is scaling for mode in _get_current_dispatch_mode_stack())


def recompute_with_exponents(node, scaling, paths):
    """Lets a node of autograd's graph, which may run a part of the forward pass again, do so in a :class:`ForwardMode`."""
    if node.metadata.get("gradscale forward"):
        return
    node.metadata["gradscale forward"] = True
    modes = []

    def before(_):
        # Unless the node runs inside of such a part.
        if not is_running(scaling):
            modes.append(ForwardMode(scaling, paths, training=True).__enter__())

    def after(*_):
        if modes:
            modes.pop().__exit__(None, None, None)

    node.register_prehook(before)
    node.register_hook(after)
