"""Models whose ``forward`` runs under autocast and whose backward pass is scaled."""

from __future__ import annotations

import copy
import functools
import types

import torch
from torch.utils._pytree import tree_leaves, tree_map

from . import compiled
from .scaling import GradientScaling


def attach(model, method="gs", *, dtype=torch.float16, **options):
    """Trains `model` in half: its forward pass runs under autocast, gradients of its activations are halves with an
    exponent for each, gradients of its weights are f32 and unscaled. Call ``loss.backward()`` as always, and
    ``update()`` of what is returned after each step of the optimizer. Results of the model are f32.

    Parameters may be frozen, thawed or added at any time. ``detach()`` gives the model back as it was. A deep copy of the
    model is attached to the same scales; what is pickled is a model that never was attached.
    """
    scaling = GradientScaling(method, **options)
    scaling.attach(model, dtype=dtype)
    return scaling


class Forward:
    """A module's ``forward``, on one object alone."""

    def __init__(self, module):
        self.module = module
        self.before = module.__dict__.get("forward")
        # Its name and arguments, at which others look.
        functools.update_wrapper(self, self.original(), updated=())

    def original(self):
        """The module's ``forward`` before."""
        return self.before or types.MethodType(type(self.module).forward, self.module)

    def run(self, *args, **kwargs):
        """Calls it: in words that a compiler reads."""
        if self.before is not None:
            return self.before(*args, **kwargs)
        return type(self.module).forward(self.module, *args, **kwargs)

    def put(self):
        """Replaces ``forward``; returns what takes that back. Who pickles the module finds it as it was, who copies it
        deeply has one whose ``forward`` is replaced likewise."""
        own = {"forward": self, "__getstate__": self._state, "__deepcopy__": self._copy}
        self.module.__dict__.update(own)

        def undo():
            if self.module.__dict__.get("forward") is self:
                for name in own:
                    del self.module.__dict__[name]
                if self.before is not None:
                    self.module.forward = self.before

        self._undo = undo
        return undo

    def _state(self):
        written = getattr(type(self.module), "__getstate__", None)
        plain = written is None or written is getattr(object, "__getstate__", None)
        state = self.module.__dict__ if plain else written(self.module)
        if not isinstance(state, dict) or state.get("forward") is not self:
            return state
        state = {name: value for name, value in state.items() if name not in ("forward", "__getstate__", "__deepcopy__")}
        return state if self.before is None else {**state, "forward": self.before}

    def _copy(self, memo):
        self._undo()
        try:
            twin = copy.deepcopy(self.module, memo)
        finally:
            self.put()
        self.on(twin).put()
        return twin


class Scaled(Forward):
    """``forward`` under autocast, its results in f32, their gradients scaled."""

    def __init__(self, module, scaling, dtype):
        super().__init__(module)
        self.scaling, self.dtype = scaling, dtype
        self.number = compiled.register(self)

    def on(self, module):
        """The same of another module."""
        return Scaled(module, self.scaling, self.dtype)

    def __call__(self, *args, **kwargs):
        device = next((p.device.type for p in self.module.parameters()), "cpu")
        with torch.autocast(device, dtype=self.dtype):
            out = self.run(*args, **kwargs)
        leaves = compiled.leaves(self.module, tree_leaves((args, kwargs))) if torch.compiler.is_compiling() else None
        return tree_map(lambda x: self._result(x, leaves), out)

    def _result(self, x, leaves):
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        dtype = torch.float32 if x.dtype == self.dtype else x.dtype
        if not x.requires_grad:
            return x.to(dtype)
        return self.scaling.scale(x, dtype) if leaves is None else compiled.Enter.apply(x, self.number, dtype, *leaves)


class InF32(Forward):
    """``forward`` in f32: PyTorch's recurrent layers know no half on the CPU, and cuDNN's keep halves for a backward pass in
    half, which would round gradients where no site sees it."""

    def on(self, module):
        """The same of another module."""
        return InF32(module)

    def __call__(self, *args, **kwargs):
        with torch.autocast(next(self.module.parameters()).device.type, enabled=False):
            return self.run(*tree_map(_wide, args), **tree_map(_wide, kwargs))


def _wide(x):
    return x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
