"""Gradients as ⟨α, half⟩: a tensor that autograd carries from operator to operator, whose values are ``data · 2^-α``."""

from __future__ import annotations

import torch

from . import operands, rules


class ScaledTensor(torch.Tensor):
    """A gradient with an exponent of its own.

    To autograd it has the type that it wants, say ``float16``; inside are either the f32 results of the operator that
    made it, not rounded yet, or halves, rounded once at a cast site. Where a gradient has several consumers, their f32
    results add up before that, so a sum is rounded once, too.
    """

    data_: torch.Tensor
    exponent: object
    scaling: object
    settled: bool
    #: The node of autograd's graph that computed it.
    born: object
    #: What the paper's rules would decide from, where one of them is in force.
    origin: object

    @staticmethod
    def __new__(cls, data, exponent, scaling, dtype, settled=False):
        return torch.Tensor._make_wrapper_subclass(
            cls, data.shape, strides=data.stride(), dtype=dtype, device=data.device, requires_grad=False
        )

    def __init__(self, data, exponent, scaling, dtype, settled=False):
        self.data_ = data
        self.exponent = exponent
        self.scaling = scaling
        self.settled = settled
        self._wide = None if data.dtype != torch.float32 else data
        self._epoch = scaling.epoch
        self.born = torch._C._current_autograd_node()
        self.origin = None

    def wide(self) -> torch.Tensor:
        """The data in f32, still at its exponent."""
        if self._epoch != self.scaling.epoch:
            raise RuntimeError("a gradient of a step that is over: take g.unscaled() before gs.update()")
        if self._wide is None:
            self._wide = self.data_.float()
        return self._wide

    def unscaled(self) -> torch.Tensor:
        """The gradient itself, in f32."""
        return self.scaling.stores.scaled(self.wide(), self.exponent, 0)

    def settle(self, name: str, calls: int) -> None:
        """Rounds to half at the site of that name, unless that has been done."""
        if not self.settled:
            self.data_, self.exponent = self.scaling.store(name, calls, self.wide(), self.exponent, self.origin)
            self.settled, self._wide, self.origin = True, None, None

    def __repr__(self, *, tensor_contents=None):
        return f"ScaledTensor({self.unscaled()!r}, exponent={self.exponent})"

    def numpy(self, *args, **kwargs):
        """The gradient itself, in f32."""
        return self.unscaled().numpy(*args, **kwargs)

    def __coerce_same_metadata_as_tangent__(self, expected_metadata, expected_type=None):
        raise RuntimeError(
            "a compiled backward pass takes plain gradients, and this one has an exponent: first gs = attach(model), then"
            " torch.compile(model), all of it, so that the compiled graph knows of scales"
        )

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return rules.dispatch(function, args, kwargs or {})


class Enter(torch.autograd.Function):
    """The identity. Behind it, gradients are scaled tensors."""

    @staticmethod
    def forward(ctx, x, scaling, dtype):
        ctx.scaling = scaling
        # A copy: people go on in place, which autograd forbids with what a function hands through.
        return x.to(dtype, copy=True)

    @staticmethod
    def backward(ctx, gradient):
        if torch.is_grad_enabled():
            raise RuntimeError("create_graph=True: scaled gradients have no derivatives of their own")
        ctx.scaling.begin(gradient)
        if not isinstance(gradient, ScaledTensor):
            # The values are still themselves: at exponent 0, in whatever type they came.
            gradient = ScaledTensor(gradient.float(), 0, ctx.scaling, gradient.dtype)
            if ctx.scaling.operands:
                gradient.origin = operands.entering(gradient.data_)
        elif gradient.scaling is not ctx.scaling:
            gradient = ScaledTensor(gradient.unscaled(), 0, ctx.scaling, gradient.dtype)
        return gradient, None, None
