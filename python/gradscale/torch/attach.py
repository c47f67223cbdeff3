"""Models whose ``forward`` runs under autocast and whose backward pass is scaled."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import types
import weakref
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from . import compiled
from .scaling import GradientScaling


def attach(model: torch.nn.Module, method: str = "gs", *, dtype: torch.dtype = torch.float16, **options: Any) -> GradientScaling:
    """Trains `model` in half. Its forward pass runs under autocast, gradients of its activations are halves with an
    exponent for each, and gradients of its weights are f32 and unscaled. Call ``loss.backward()`` as usual, and
    ``update()`` of the returned object after each step of the optimizer. Results of the model are f32.

    Parameters may be frozen, thawed or added at any time. ``detach()`` restores the model. A deep copy of the model is
    attached to the same scales, and shares the sites of the model. A pickled model is not attached. A copy that trains
    with losses of another size needs its own scales: create it before, and attach it as well.
    """
    scaling = GradientScaling(method, **options)
    scaling.attach(model, dtype=dtype)
    return scaling


#: Attributes in an attached module's own dictionary.
_OWN = ("forward", "__getstate__", "__deepcopy__", "_replicate_for_data_parallel")


class Forward:
    """Replacement of the ``forward`` of one module object."""

    def __init__(self, module):
        # Weak references, so that a model is freed as soon as nothing else refers to it: its `forward` has no reference
        # to it.
        self._module = weakref.ref(module)
        self.before = module.__dict__.get("forward")
        #: True after detach(), even if a wrapper of another library still calls it.
        self.ended = False
        # Name and arguments of the original, because other libraries inspect them.
        functools.update_wrapper(self, self.original(), updated=())
        del self.__wrapped__
        with contextlib.suppress(TypeError, ValueError):
            self.__signature__ = inspect.signature(self.original())

    @property
    def module(self):
        """Returns the module whose ``forward`` this object replaces."""
        module = self._module()
        if module is None:
            raise RuntimeError("the model of this forward was garbage-collected: keep a reference to the model")
        return module

    def original(self):
        """Returns the module's ``forward`` before it was replaced."""
        return self.before or types.MethodType(type(self.module).forward, self.module)

    def run(self, *args, **kwargs):
        """Calls the original ``forward``, in code that torch.compile can trace."""
        if self.before is not None:
            return self.before(*args, **kwargs)
        return type(self.module).forward(self.module, *args, **kwargs)

    def put(self):
        """Replaces ``forward``, and returns a function that restores it. A pickled module has its original
        ``forward``; a deep copy has a replaced one too."""
        own = self, self._state, self._copy, self._replicate
        attributes = self.module.__dict__
        # A recurrent layer that is itself the model has two replacements: the outer one restores those of the inner one.
        self._replaced = {name: attributes[name] for name in _OWN if name in attributes}
        attributes.update(zip(_OWN, own))
        self.ended = False
        return self._undo

    def _undo(self):
        self.ended = True
        module = self._module()
        if module is not None and module.__dict__.get("forward") is self:
            for name in _OWN:
                del module.__dict__[name]
            module.__dict__.update(self._replaced)

    def _state(self):
        written = getattr(type(self.module), "__getstate__", None)
        plain = written is None or written is getattr(object, "__getstate__", None)
        state = self.module.__dict__ if plain else written(self.module)
        if not isinstance(state, dict) or state.get("forward") is not self:
            return state
        state = {name: value for name, value in state.items() if name not in _OWN}
        before = self.before
        while isinstance(before, Forward):
            before = before.before
        return state if before is None else {**state, "forward": before}

    def _replicate(self):
        """Creates a replica for ``DataParallel``: an object of its own, whose ``forward`` is replaced likewise."""
        replica = type(self.module)._replicate_for_data_parallel(self.module)
        for name in _OWN:
            del replica.__dict__[name]
        if isinstance(self.before, Forward):
            self.before.on(replica).put()
        elif self.before is not None:
            replica.forward = self.before
        twin = self.on(replica)
        twin.device = self.device_type()
        twin.put()
        return replica

    def device_type(self):
        """Returns the type of the device of the module's parameters; replicas have none."""
        return next((p.device.type for p in self.module.parameters()), getattr(self, "device", "cpu"))

    def __getattr__(self, name):
        # Attributes that exporters and TorchScript read from a function.
        if name in ("__code__", "__globals__"):
            raise AttributeError("an attached model cannot be exported or scripted: call detach() first, and attach() again afterwards")
        raise AttributeError(name)

    def _copy(self, memo):
        self._undo()
        try:
            twin = copy.deepcopy(self.module, memo)
        finally:
            self.put()
        self.on(twin).put()
        return twin


class Scaled(Forward):
    """Replacement of ``forward`` that runs under autocast, with results in f32 and scaled gradients."""

    def __init__(self, module, scaling, dtype):
        super().__init__(module)
        self.scaling, self.dtype = scaling, dtype
        self.number = compiled.register(self)

    def on(self, module):
        """Returns the same replacement of ``forward`` for another module, a copy of this one."""
        return Scaled(module, self.scaling, self.dtype)

    def _copy(self, memo):
        twin = super()._copy(memo)
        self.scaling._name_copy(self.module, twin)
        return twin

    def __call__(self, *args, **kwargs):
        if self.ended:
            return self.run(*args, **kwargs)
        compiling = torch.compiler.is_compiling()
        if not compiling:
            self._check()
        elif not self.scaling._stores_forward_in_half:
            raise RuntimeError(
                "a compiled model stores activations and weights as plain halves, and not in 8 bits: use grad= alone, which"
                " stores gradients in 8 bits, or do not compile the model"
            )
        if compiling:
            # A graph break would leave gradients without exponents. With this setting the compiler reports the line of
            # the break.
            with torch.autocast(self.device_type(), dtype=self.dtype), compiled.in_one_graph():
                out = self.run(*args, **kwargs)
        else:
            with torch.autocast(self.device_type(), dtype=self.dtype):
                out = self.scaling._run_forward(self.module, self.run, *args, **kwargs)
        if compiling:
            leaves = compiled.leaves(self.module, tree_leaves((args, kwargs)))
            return tree_map(lambda x: self._result(x, leaves), out)
        return _mapped(lambda x: self._result(x, None), out, {})

    def _check(self):
        if torch.jit.is_tracing():
            raise RuntimeError("an attached model cannot be traced by torch.jit: call detach() first, and attach() again afterwards")
        if torch.is_grad_enabled():
            self.scaling._ran = True

    def _result(self, x, leaves):
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        dtype = torch.float32 if x.dtype == self.dtype else x.dtype
        if not x.requires_grad:
            return x.to(dtype)
        if leaves is not None:
            return compiled.Enter.apply(x, self.number, dtype, *leaves)
        if x.is_nested:
            raise RuntimeError("a nested tensor has no scaled gradient: have the model return x.to_padded_tensor(0.0)")
        if torch._C._are_functorch_transforms_active():
            raise RuntimeError(
                "torch.func differentiates without autograd's graph, in which gradients are scaled: call detach() first, and"
                " attach() again afterwards"
            )
        return self.scaling._enter(x, dtype)


#: Classes whose attributes are taken as results, besides dataclasses.
_WITH_PARTS = torch.distributions.Distribution, torch.distributions.transforms.Transform


def _mapped(f, out, memo):
    """Applies `f` to all tensors in the results of a model, also in dataclasses, distributions, and lists of custom
    classes."""
    if isinstance(out, torch.Tensor):
        if id(out) not in memo:
            memo[id(out)] = f(out), out
        return memo[id(out)][0]
    if isinstance(out, (list, dict)) or (dataclasses.is_dataclass(out) or isinstance(out, _WITH_PARTS)) and not isinstance(out, type):
        if id(out) in memo:
            return memo[id(out)][0]
        if type(out) in (list, dict):
            twin = type(out)()
        else:
            twin = copy.copy(out)
        memo[id(out)] = twin, out
        if isinstance(out, list):
            twin[:] = [_mapped(f, x, memo) for x in out]
        elif isinstance(out, dict):
            for key, x in out.items():
                twin[key] = _mapped(f, x, memo)
        if hasattr(out, "__dict__"):
            for name, x in vars(out).items():
                # A transform refers to its inverse weakly, and makes it anew where there is none.
                object.__setattr__(twin, name, None if isinstance(x, weakref.ref) else _mapped(f, x, memo))
        elif dataclasses.is_dataclass(out):
            for field in dataclasses.fields(out):
                object.__setattr__(twin, field.name, _mapped(f, getattr(out, field.name), memo))
        return twin
    if isinstance(out, tuple):
        parts = [_mapped(f, x, memo) for x in out]
        return type(out)(*parts) if hasattr(out, "_fields") else type(out)(parts)
    # Whatever else PyTorch knows the parts of.
    return tree_map(lambda x: _mapped(f, x, memo) if x is not out else x, out)


class InF32(Forward):
    """``forward`` in f32: PyTorch's recurrent layers know no half on the CPU, and cuDNN's keep halves for a backward pass in
    half, which would round gradients where no site sees it."""

    def on(self, module):
        """Returns the same replacement of ``forward`` for another module, a copy of this one."""
        return InF32(module)

    def __call__(self, *args, **kwargs):
        if self.ended:
            return self.run(*args, **kwargs)
        with torch.autocast(self.device_type(), enabled=False):
            return self.run(*tree_map(_wide, args), **tree_map(_wide, kwargs))


def _wide(x):
    return x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
