"""Gradients as ⟨α, half⟩: a tensor that autograd carries from operator to operator, whose values are ``data · 2^-α``."""

from __future__ import annotations

from typing import Any

import torch

from . import operands, rules

#: Views that PyTorch computes when they are read. A gradient holds their values, so it shares no memory with them.
CONJUGATED = frozenset({torch.ops.aten._conj.default, torch.ops.aten._neg_view.default})


class ScaledTensor(torch.Tensor):
    """Gradient tensor with its own exponent.

    To autograd it has the type that it expects, for example ``float16``. It contains either the f32 results of the
    operator that computed it, not rounded yet, or halves, rounded once at a cast site. If a gradient has several
    consumers, their f32 results are added before that, so a sum is rounded once, too.
    """

    _data: torch.Tensor
    exponent: object
    _scaling: object
    _is_rounded: bool
    #: The node of autograd's graph that computed it.
    _producer: object
    #: Operands for the paper's rules, if one of them is in force.
    _origin: object = None
    #: The gradient of which this is a view, and the operator that takes it from there; none if it has its own values.
    _parent: object = None
    _recipe: object = None
    #: Writes into these values, by this tensor or a view of it, and how many of them this view has read.
    _writes = _seen_writes = 0

    @staticmethod
    def __new__(cls, data, exponent, scaling, dtype, settled=False):
        return torch.Tensor._make_wrapper_subclass(
            cls, data.shape, strides=data.stride(), dtype=dtype, device=data.device, requires_grad=False
        )

    def __init__(self, data, exponent, scaling, dtype, settled=False):
        self._data = data
        self.exponent = exponent
        self._scaling = scaling
        self._is_rounded = settled
        self._float32 = None if data.dtype != torch.float32 else data
        self._epoch = scaling._epoch
        self._producer = torch._C._current_autograd_node()
        # It has no memory of its own, so code that asks for its address gets an error and not a null pointer.
        torch._C._set_throw_on_mutable_data_ptr(self)

    def _check_current(self):
        """Raises an error if the step of this gradient is over, and reads writes into the base of a view."""
        if self._epoch != self._scaling._epoch:
            raise RuntimeError("this gradient is of a step that is over: call g.unscaled() before update()")
        if self._parent is not None:
            self._refresh()

    def _as_float32(self) -> torch.Tensor:
        """Returns the data in f32, still multiplied by the scale."""
        self._check_current()
        if self._float32 is None:
            self._float32 = self._data.to(operands.wide_dtype(self._data.dtype))
        return self._float32

    def _shifted(self, end) -> torch.Tensor:
        """Returns the data in f32 at another exponent."""
        if self._scaling._stores.has_kernels:
            self._check_current()
            if self._float32 is None and self._data.dtype == torch.float16 and self.exponent is not end:
                return self._scaling._stores.scaled(self._data, self.exponent, end)
        return shift(self._scaling, self._as_float32(), self.exponent, end)

    # Views

    def _root(self):
        """Returns the gradient that owns the values of this view."""
        one = self
        while one._parent is not None:
            one = one._parent
        return one

    def _apply_to(self, values):
        """Returns this view, applied to other values of its root."""
        return values if self._parent is None else self._taken(self._parent._apply_to(values))

    def _taken(self, data):
        function, args, kwargs, part = self._recipe
        out = function(data, *args[1:], **kwargs)
        return out if part is None else out[part]

    def _shares_memory(self):
        """Returns False for a conjugated view, whose own values are a copy, and for views of one."""
        one = self
        while one._parent is not None:
            if one._recipe[0] in CONJUGATED:
                return False
            one = one._parent
        return True

    def _refresh(self):
        """Reads the values of a view again, if its base was written to."""
        root = self._root()
        if self._seen_writes == root._writes or self._parent is None:
            return
        self._parent._refresh()
        self._data = self._taken(self._parent._data).resolve_conj().resolve_neg()
        self._float32 = None if root._is_rounded else self._data
        self.exponent, self._is_rounded, self._origin, self._seen_writes = root.exponent, root._is_rounded, None, root._writes

    def _open_for_write(self) -> torch.Tensor:
        """Returns the values in f32, at their exponent, for a write that every view of the same memory is to see."""
        root = self._root()
        wide = root._as_float32()
        if root._writes == 0 or root._is_rounded:
            wide = wide.clone()
        root._data = root._float32 = wide
        root._is_rounded, root._origin = False, None
        root._writes += 1
        self._refresh()
        return self._data

    def unscaled(self) -> torch.Tensor:
        """Returns the true gradient in f32, with the scale removed."""
        return self._shifted(0)

    def _round_to_half(self, name: str, calls: int) -> None:
        """Rounds to half at the site of that name, unless that has been done."""
        if not self._is_rounded:
            self._data, self.exponent = self._scaling._store(name, calls, self._as_float32(), self.exponent, self._origin)
            # If a training rounds nothing, the values are still f32.
            self._is_rounded, self._float32, self._origin = self._data.dtype == torch.float16, None, None
            if self._parent is not None:  # These values are its own now.
                self._writes = self._seen_writes
                self._parent = self._recipe = None

    def __repr__(self, *, tensor_contents=None):
        return f"ScaledTensor({self.unscaled()!r}, exponent={self.exponent})"

    # Everything that leaves PyTorch's operators is the gradient itself, in f32.

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the true gradient as a NumPy array in f32."""
        return self.unscaled().numpy(*args, **kwargs)

    def tolist(self) -> Any:
        """Returns the true gradient as nested lists of numbers."""
        return self.unscaled().tolist()

    def __dlpack__(self, *args, **kwargs):
        return self.unscaled().__dlpack__(*args, **kwargs)

    def __dlpack_device__(self):
        return self._data.__dlpack_device__()

    def __deepcopy__(self, memo):
        return memo.setdefault(id(self), self.unscaled().clone())

    def __reduce_ex__(self, protocol):
        return self.unscaled().__reduce_ex__(protocol)

    def data_ptr(self) -> int:
        """Raises an error, because a scaled gradient has no memory of its own."""
        raise RuntimeError("a scaled gradient has no memory that can be addressed: use g.unscaled(), a float32 tensor")

    def untyped_storage(self) -> Any:
        """Raises an error, because a scaled gradient has no memory of its own."""
        self.data_ptr()

    def __coerce_same_metadata_as_tangent__(self, expected_metadata, expected_type=None):
        raise RuntimeError(
            "a compiled backward pass needs plain gradients, but this one has an exponent: call first attach(model), then"
            " torch.compile(model) on the whole model, so that the compiled graph contains the scales"
        )

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return rules.dispatch(function, args, kwargs or {})


def shift(scaling, x, start, end):
    """Returns `x`, real or complex, times 2^(end − start)."""
    if start is end or type(start) is int and type(end) is int and start == end:
        return x
    if x.is_complex():
        return torch.view_as_complex(scaling._stores.scaled(torch.view_as_real(x.resolve_conj()), start, end).contiguous())
    return scaling._stores.scaled(x, start, end)


def wrap(x, scaling):
    """Returns a plain gradient as a scaled one, at exponent 0."""
    return ScaledTensor(x.to(operands.wide_dtype(x.dtype)), 0, scaling, x.dtype)


class Enter(torch.autograd.Function):
    """Identity function of autograd, whose backward pass converts gradients to scaled tensors."""

    @staticmethod
    def forward(ctx, x, scaling, dtype):
        ctx.scaling = scaling
        # A copy, because callers may continue in place, which autograd forbids for an input that a function returns.
        return x.to(dtype, copy=True)

    @staticmethod
    def backward(ctx, gradient):
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph=True: scaled gradients cannot be differentiated; detach() the model, compute the penalty with"
                " plain autograd, and call backward(loss) of a GradientScaling"
            )
        if torch._C._functorch.is_batchedtensor(gradient) or torch._C._functorch.is_legacy_batchedtensor(gradient):
            raise RuntimeError(
                "is_grads_batched=True computes several gradients as one tensor, but each needs its own exponents: compute them one"
                " by one, or call detach() first"
            )
        ctx.scaling._begin_here(gradient)
        if not isinstance(gradient, ScaledTensor):
            # The values are still themselves: at exponent 0, in whatever type they came.
            gradient = wrap(gradient, ctx.scaling)
            if ctx.scaling._uses_operands:
                gradient._origin = operands.entering(gradient._data)
        elif gradient._scaling is not ctx.scaling:
            gradient = ScaledTensor(gradient.unscaled(), 0, ctx.scaling, gradient.dtype)
        return gradient, None, None
