"""Activations as ⟨α, half⟩: tensors of the forward pass in float16 whose values are ``data · 2^-α``.

They are made by a :class:`.forward_mode.ForwardMode`. What autograd keeps of them for the backward pass are the halves, so
memory does not grow. There and in other code, operators read true values in f32; views, ReLU and selections are exact, so
halves and exponent pass on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from . import fused, rules, scaled
from .store_formats import rounded

HALF = torch.float16

#: Operators whose results are values of their first argument, or 0, or their negatives. They are exact at its exponent, as
#: `rules.MOVES` are.
_EXACT = frozenset(
    "relu neg abs index_select index gather take_along_dim repeat max_pool2d_with_indices max_pool3d_with_indices"
    " adaptive_max_pool2d replication_pad1d replication_pad2d replication_pad3d reflection_pad1d reflection_pad2d"
    " reflection_pad3d pixel_shuffle pixel_unshuffle channel_shuffle tril triu masked_select sort topk amax amin"
    " zero_ relu_ neg_ abs_".split()
)
#: Operators that read the type and shape of their first argument only.
READS_NO_VALUES = frozenset(
    "empty_like zeros_like ones_like full_like rand_like randn_like randint_like new_empty new_zeros new_ones new_full"
    " new_empty_strided sym_size sym_stride sym_numel is_same_size".split()
)
#: Operators that change the type of their first argument.
CONVERTS = frozenset("to _to_copy view.dtype".split())


class _Memory:
    """Halves, exponent and format that an activation and all views of it share. It refers to no tensor with a graph: a saved view of a
    result would otherwise keep its own graph alive."""

    __slots__ = ("data", "exponent", "format", "writes")

    def __init__(self, data, exponent, format):
        self.data, self.exponent, self.format, self.writes = data, exponent, format, 0

    def write(self, data, exponent, format):
        self.data, self.exponent, self.format = data, exponent, format
        self.writes += 1


class ScaledActivation(torch.Tensor):
    """Activation in half with its own exponent. To autograd it is a tensor in float16; operators read its true values."""

    _data: torch.Tensor
    #: The operators that take this view from the memory, in their order, each with its other arguments.
    _views: tuple[Any, ...] = ()

    @staticmethod
    def __new__(cls, data, exponent, format, scaling, memory=None, views=()):
        return torch.Tensor._make_wrapper_subclass(
            cls, data.shape, strides=data.stride(), dtype=HALF, device=data.device, requires_grad=False
        )

    def __init__(self, data, exponent, format, scaling, memory=None, views=()):
        self._data, self._scaling, self._views = data, scaling, views
        self._memory = memory or _Memory(data, exponent, format)
        self._seen_writes = self._memory.writes
        torch._C._set_throw_on_mutable_data_ptr(self)

    @property
    def exponent(self):
        """Returns the exponent α: the values are the halves times 2^-α."""
        return self._memory.exponent

    @property
    def format(self):
        """Returns the format to which the values were rounded."""
        return self._memory.format

    def _seen_in(self, values):
        """Returns this view of other values of its memory."""
        for function, args, kwargs, part in self._views:
            values = function(values, *args, **kwargs)
            values = values if part is None else values[part]
        return values

    def halves(self) -> torch.Tensor:
        """Returns the halves as they are stored."""
        if self._seen_writes != self._memory.writes:
            self._data, self._seen_writes = self._seen_in(self._memory.data), self._memory.writes
        return self._data

    def to_float32(self) -> torch.Tensor:
        """Returns the true values in f32."""
        halves, exponent = self.halves(), self.exponent
        if isinstance(exponent, int) and exponent == 0:
            return halves.float()
        stores = self._scaling._stores
        return stores.scaled(halves if stores.has_kernels else halves.float(), exponent, 0)

    def __repr__(self, *, tensor_contents=None):
        return f"ScaledActivation({self.to_float32()!r}, exponent={self.exponent})"

    def __deepcopy__(self, memo):
        return memo.setdefault(id(self), self.to_float32())

    def __reduce_ex__(self, protocol):
        return self.to_float32().__reduce_ex__(protocol)

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if any(issubclass(kind, scaled.ScaledTensor) for kind in types):
            # Its rules read activations, too.
            return NotImplemented
        return run_on_true_values(function, args, kwargs or {})


def is_activation(x):
    """Returns True for an activation with an exponent."""
    return isinstance(x, ScaledActivation)


def to_halves(x):
    """Returns the halves of an activation, as they are stored, and any other argument itself."""
    return x.halves() if is_activation(x) else x


def to_float32(x):
    """Returns the true values of an activation in f32, and any other argument itself."""
    return x.to_float32() if is_activation(x) else x


def narrow(x):
    """Returns the true values of an activation in half, where they need not fit, and any other argument itself."""
    return x.to_float32().half() if is_activation(x) else x


def widen(x):
    """Returns floating-point tensors of 16 bits in f32, with their true values, and any other argument itself."""
    if is_activation(x):
        return x.to_float32()
    return x.float() if isinstance(x, torch.Tensor) and x.dtype == HALF else x


def find_tensors(*args):
    """Returns all tensors in arguments."""
    return [x for x in tree_leaves(args) if isinstance(x, torch.Tensor)]


def move_values(function, operator, args, kwargs):
    """Calls an operator that is exact on halves, and returns its results at the exponent of the first argument."""
    first = args[0]
    out = function(*tree_map(to_halves, args), **kwargs)

    def wrapped(x, part):
        if not isinstance(x, torch.Tensor) or x.dtype != HALF:
            return x
        if not operator.views:
            return ScaledActivation(x, first.exponent, first.format, first._scaling)
        views = (*first._views, (function, args[1:], kwargs, part))
        return ScaledActivation(x, first.exponent, first.format, first._scaling, first._memory, views)

    if isinstance(out, (list, tuple)):
        return type(out)([wrapped(x, i) for i, x in enumerate(out)])
    return wrapped(out, None)


def is_exact(operator, args):
    """Returns True if halves and exponent of the first argument pass on unchanged."""
    if not args or not is_activation(args[0]) or operator.name in CONVERTS:
        return False
    if any(map(is_activation, find_tensors(args[1:]))):
        return False
    return operator.views or operator.name in rules.MOVES or operator.name in _EXACT


def convert(function, args, kwargs):
    """Changes the type, device or layout of an activation. In another type than half it has its true values."""
    x = args[0]
    dtypes = [y for y in (*args[1:], *kwargs.values()) if isinstance(y, torch.dtype)]
    if any(dtype != HALF for dtype in dtypes) or any(isinstance(y, torch.Tensor) and y.dtype != HALF for y in args[1:]):
        return function(x.to_float32(), *args[1:], **kwargs)
    return ScaledActivation(function(to_halves(x), *args[1:], **kwargs), x.exponent, x.format, x._scaling)


def run_on_true_values(function, args, kwargs):
    """Runs an operator on activations outside of a forward mode, as in a backward pass: on their true values in f32."""
    operator = rules.described(function)
    if operator.name in READS_NO_VALUES:
        return function(*tree_map(to_halves, args), **kwargs)
    if is_exact(operator, args) and not operator.writes:
        return move_values(function, operator, args, kwargs)
    if operator.name in CONVERTS:
        return convert(function, args, kwargs)
    if operator.writes and any(map(is_activation, find_written(operator, args, kwargs))):
        return run_write(function, operator, args, kwargs, _at_its_exponent)
    if operator.name in fused.HALF_ONLY:
        # Most of these exist only for halves.
        try:
            return function(*tree_map(widen, args), **tree_map(widen, kwargs))
        except RuntimeError:
            return function(*tree_map(narrow, args), **tree_map(narrow, kwargs))
    mixed = not operator.writes and any(x.dtype == HALF and not is_activation(x) for x in find_tensors(args, kwargs))
    convert_one = widen if mixed else to_float32
    return function(*tree_map(convert_one, args), **tree_map(convert_one, kwargs))


def _at_its_exponent(_, one, values):
    """Rounds new values of an activation to its format at the exponent that it has."""
    scaling = one._scaling
    return rounded(scaling._stores.scaled(values, 0, one.exponent), scaling._activation_format), one.exponent


def find_written(operator, args, kwargs):
    """Returns the arguments that an operator writes into."""
    given = [kwargs.get(key) if isinstance(key, str) else args[key] if key < len(args) else None for key in operator.writes]
    return [x for x in tree_leaves(given) if x is not None]


def run_write(function, operator, args, kwargs, store):
    """Calls an operator that writes into activations. It computes in f32; ``store(operator, one, values)`` returns the
    halves and the exponent of memory whose values have changed, which is that of an activation `one`."""
    targets = [x for x in find_written(operator, args, kwargs) if is_activation(x)]
    first = targets[0]
    if len(targets) == 1 and first is args[0] and not first._views and is_exact(operator, args):
        function(first.halves(), *args[1:], **kwargs)
        first._memory.write(first._data, first.exponent, first.format)
        return first
    changed, copies = {}, {}
    for x in targets:
        if id(x._memory) not in changed:
            whole = ScaledActivation(x._memory.data, x.exponent, x.format, x._scaling, x._memory)
            changed[id(x._memory)] = whole, whole.to_float32()
        copies[id(x)] = x, x._seen_in(changed[id(x._memory)][1])

    def plain(x):
        return copies[id(x)][1] if id(x) in copies else widen(x)

    out = function(*tree_map(plain, args), **tree_map(plain, kwargs))
    for whole, values in changed.values():
        whole._memory.write(*store(operator, whole, values), whole._scaling._activation_format)
    by_copy = {id(copy): x for x, copy in copies.values()}
    return tree_map(lambda y: by_copy.get(id(y), y), out)
