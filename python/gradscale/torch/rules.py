"""What becomes of ⟨α, gradient⟩ at each operator of a backward pass.

Three kinds of operators are known. Those that move values carry halves and exponent on. Those that are linear in the
gradient, which is what a derivative is, compute in f32 from halves, and what they give is rounded where the next operator
reads it. Sums bring their terms to the least of their exponents. Everything else gets the gradient itself, in f32, so a
function that nobody thought of is slower or less precise in the last bits, but never wrong by a factor.
"""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from . import graph, scaled

HALF = torch.float16
_NARROW = (torch.float16, torch.bfloat16)

#: Values move; none is computed.
MOVES = frozenset(
    "view _unsafe_view t transpose permute expand unsqueeze squeeze slice select alias detach clone as_strided unbind"
    " split split_with_sizes flip roll diagonal unfold _reshape_alias contiguous lift_fresh view_as_real movedim"
    " _conj resolve_conj".split()
)
#: Results are values of the gradient or 0.
SELECTS = frozenset("threshold_backward masked_fill".split())
#: Terms that are all gradients.
SUMS = frozenset("add sub cat stack where index_add scatter_add index_put scatter slice_scatter select_scatter".split())
#: Linear in the gradient, wherever it stands.
LINEAR = frozenset(
    "mm bmm addmm matmul mv dot mul sum mean neg cumsum select_backward slice_backward constant_pad_nd index_select gather"
    " index tril triu trace diagonal_backward _adaptive_avg_pool2d_backward repeat avg_pool2d_backward"
    " _softmax_backward_data _log_softmax_backward_data fold im2col col2im unfold_backward as_strided_scatter"
    " new_zeros zeros_like new_empty empty_like new_empty_strided zero_ pixel_shuffle pixel_unshuffle convolution"
    " _sparse_mm baddbmm".split()
)
#: Written in place, into gradients.
INTO = frozenset("add_ sub_ index_add_ index_put_ _index_put_impl_ scatter_add_ scatter_ copy_ masked_scatter_".split())
#: Kernels of CUDA that have halves alone; they compute in f32 inside.
HALF_ONLY = frozenset("_scaled_dot_product_flash_attention_backward _scaled_dot_product_cudnn_attention_backward".split())


def _terms(name, leaves, at):
    """Which of the leaves are gradients, scaled or not: in a sum, all of type float."""
    return [i for i in at if leaves[i].is_floating_point()]


def dispatch(function, args, kwargs):
    """Runs an operator on scaled gradients."""
    name = function.overloadpacket.__name__
    leaves, spec = tree_flatten((args, kwargs))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, scaled.ScaledTensor)]
    first = leaves[at[0]]
    scaling = first.scaling
    node = torch._C._current_autograd_node()
    kind = node.name() if node is not None else None
    if node is not None:
        scaling.names.look(node)

    if name == "_to_copy":
        return _copy(first, kwargs, scaling, node, kind)
    # Rounded where it is read for the first time, by a node that does more than hand on; not what that node itself computed,
    # and not in sums, in whose name autograd adds gradients of several consumers.
    if kind is not None and kind not in graph.HANDS_ON and name not in SUMS:
        for i in at:
            _settle(leaves[i], node, scaling)

    if name in MOVES:
        out = function(*tree_unflatten([_data(leaf) for leaf in leaves], spec)[0], **kwargs)
        return _wrapped(out, first.exponent, scaling, first.dtype, first.settled)
    if name in SELECTS and first.settled and leaves[0] is first and not (name == "masked_fill" and leaves[2] != 0):
        out = function(*tree_unflatten([_data(leaf) for leaf in leaves], spec)[0], **kwargs)
        return _wrapped(out, first.exponent, scaling, first.dtype, True)
    if name in INTO:
        return _into(function, leaves, spec, at, scaling)

    dtype = HALF if all(leaves[i].dtype == HALF for i in at) else torch.float32
    if name in SUMS:
        at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
        # Filled with something other than zero, values are no gradient any more.
        exact = name != "where" or len(at) == len([x for x in leaves[1:] if isinstance(x, torch.Tensor)])
        exponent = _least(scaling, [_exponent(leaves[i]) for i in at]) if exact else 0
    elif _linear(name, function, leaves, at):
        exponent = _least(scaling, [leaves[i].exponent for i in at])
    else:
        exponent = 0
    if name in HALF_ONLY:
        exponent = first.exponent
        plain = [_data(leaf) for leaf in leaves]
    else:
        plain = [_plain(leaf, i in at, exponent, scaling) for i, leaf in enumerate(leaves)]
    a, k = tree_unflatten(plain, spec)
    return _wrapped(function(*a, **k), exponent, scaling, dtype, False)


def _settle(x, node, scaling):
    if x.dtype == HALF and not x.settled and x.born is not node:
        x.settle(*scaling.names.site(node))


def _linear(name, function, leaves, at):
    if name == "div":
        return at == [0]
    if name in ("mul", "mm", "bmm", "mv", "dot", "matmul") and len(at) != 1:
        return False
    if name == "masked_fill":
        return leaves[2] == 0
    if name == "constant_pad_nd":
        return len(leaves) < 3 or not leaves[-1]
    if name in ("addmm", "baddbmm"):
        return False
    return name in LINEAR or name.endswith("_backward")


def _copy(x, kwargs, scaling, node, kind):
    """A change of type: for the gradient of a cast, from half to float, it is read; on its way to a weight it is not."""
    dtype = kwargs.get("dtype", x.dtype)
    if kind is not None and dtype != HALF and not scaling.names.feeds_leaf(node):
        _settle(x, node, scaling)
    rest = {key: value for key, value in kwargs.items() if key != "dtype"}
    rest.pop("layout", None)
    data = torch.ops.aten._to_copy.default(x.data_, **rest) if any(v is not None for v in rest.values()) else x.data_
    return scaled.ScaledTensor(data, x.exponent, scaling, dtype, x.settled)


def _into(function, leaves, spec, at, scaling):
    """An operator that writes: into a gradient at its exponent, into a plain tensor as it is."""
    target = leaves[0]
    if isinstance(target, scaled.ScaledTensor):
        exponent, wide = target.exponent, target.wide()
        out = wide
        if target.settled:
            target.data_, target.settled = wide, False
    else:
        exponent, out = 0, target
    plain = [
        out if i == 0 else _plain(leaf, isinstance(leaf, torch.Tensor) and leaf.is_floating_point(), exponent, scaling)
        for i, leaf in enumerate(leaves)
    ]
    if not isinstance(target, scaled.ScaledTensor):
        plain = [x.to(out.dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in plain]
    a, k = tree_unflatten(plain, spec)
    function(*a, **k)
    return target


def _exponent(leaf):
    return leaf.exponent if isinstance(leaf, scaled.ScaledTensor) else 0


def _least(scaling, exponents):
    least = exponents[0]
    for exponent in exponents[1:]:
        least = scaling.stores.least(least, exponent)
    return least


def _data(leaf):
    return leaf.data_ if isinstance(leaf, scaled.ScaledTensor) else leaf


def _plain(leaf, gradient, exponent, scaling):
    """What a kernel gets for an argument: gradients in f32 at `exponent`, saved halves in f32, types in f32."""
    if isinstance(leaf, scaled.ScaledTensor):
        return scaling.stores.scaled(leaf.wide(), leaf.exponent, exponent)
    if isinstance(leaf, torch.Tensor):
        leaf = leaf.float() if leaf.dtype in _NARROW else leaf
        return scaling.stores.scaled(leaf, 0, exponent) if gradient else leaf
    return torch.float32 if isinstance(leaf, torch.dtype) and leaf in _NARROW else leaf


def _wrapped(out, exponent, scaling, dtype, settled):
    def wrap(x):
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        return scaled.ScaledTensor(x, exponent, scaling, dtype, settled)

    return tree_map(wrap, out)
