"""What becomes of ⟨α, gradient⟩ at each operator of a backward pass.

Three kinds of operators are known. Those that move values carry halves and exponent on. Those that are linear in the
gradient, which is what a derivative is, compute in f32 from halves, and what they give is rounded where the next operator
reads it. Sums bring their terms to the least of their exponents. Everything else gets the gradient itself, in f32, so a
function that nobody thought of is slower or less precise in the last bits, but never wrong by a factor.
"""

from __future__ import annotations

import torch

from . import fused, graph, operands, scaled

HALF = torch.float16
#: What is computed in f32 here.
_OTHERS = (torch.float16, torch.bfloat16, torch.float64)

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
    "mm bmm matmul mv dot mul sum mean neg cumsum select_backward slice_backward constant_pad_nd index_select gather"
    " index tril triu trace diagonal_backward _adaptive_avg_pool2d_backward repeat avg_pool2d_backward"
    " _softmax_backward_data _log_softmax_backward_data fold im2col col2im unfold_backward as_strided_scatter"
    " new_zeros zeros_like new_empty empty_like new_empty_strided zero_ pixel_shuffle pixel_unshuffle convolution"
    " _sparse_mm _thnn_fused_lstm_cell_backward_impl".split()
)
#: Written in place, into gradients.
INTO = frozenset("add_ sub_ index_add_ index_put_ _index_put_impl_ scatter_add_ scatter_ copy_ masked_scatter_".split())


def _native_batch_norm(args):
    """Arguments of ``native_batch_norm_backward`` from those of cuDNN's and MIOpen's, which come in another order."""
    x, gradient, weight, running_mean, running_var, mean, invstd, eps = args[:8]
    return [gradient, x, weight, running_mean, running_var, mean, invstd, True, eps, [True, True, True]]


#: Operators for which another one is called, of the same meaning: their own kernels take what the forward pass has left for them
#: in half, while gradients and inputs are f32 here.
_INSTEAD = {
    "cudnn_batch_norm_backward": (torch.ops.aten.native_batch_norm_backward.default, _native_batch_norm),
    "miopen_batch_norm_backward": (torch.ops.aten.native_batch_norm_backward.default, _native_batch_norm),
    "batch_norm_backward": (torch.ops.aten.native_batch_norm_backward.default, lambda args: args[:10]),
}


#: Operators whose fifth argument is a bias of attention.
_BIASED = frozenset("_scaled_dot_product_efficient_attention_backward _efficient_attention_backward".split())

#: Operators by name, which is slow to ask for.
_NAMES = {}


def dispatch(function, args, kwargs):
    """Runs an operator on scaled gradients."""
    name = _NAMES.get(function)
    if name is None:
        name = _NAMES[function] = function.overloadpacket.__name__
    if name in _INSTEAD:
        function, order = _INSTEAD[name]
        args = order(args)
    elif name in _BIASED:
        args = [*args[:4], _strided_like(args[4]), *args[5:]]
    gradients = _gradients(args)
    if kwargs:
        gradients += _gradients(kwargs.values())
    first = gradients[0]
    scaling = first.scaling
    node = torch._C._current_autograd_node()
    if node is not None:
        scaling.names.look(node)
    kind = node.name() if node is not None else None

    if name == "_to_copy":
        return _copy(first, kwargs, scaling, node, kind)
    half = fused.saved_type(name, args)
    if half is not None and node is not None:
        return _fused(function, args, kwargs, scaling, node, half)
    # Rounded where it is read for the first time, by a node that does more than hand on; not what that node itself computed,
    # and not in sums, in whose name autograd adds gradients of several consumers.
    if kind is not None and kind not in graph.HANDS_ON and name not in SUMS:
        for gradient in gradients:
            _settle(gradient, node, scaling)

    if name in MOVES or name in SELECTS and first.settled and args[0] is first and (name != "masked_fill" or args[2] == 0):
        out = function(*_each(_data, args), **kwargs)
        return _from(first.origin, _wrapped(out, first.exponent, scaling, first.dtype, first.settled))
    if name in INTO:
        return _into(function, args, kwargs, scaling)

    dtype = HALF if all(gradient.dtype == HALF for gradient in gradients) else torch.float32
    sums, origin = name in SUMS, None
    if scaling.operands:
        origin = operands.parts(name, gradients, scaling.names) if sums else operands.of(name, args, gradients)
    if sums:
        exponent = _least(scaling, [_exponent(x) for x in _tensors(args) if x.is_floating_point()])
        # Filled with a number other than zero, values are no gradient any more.
        if name == "where" and any(isinstance(x, (int, float)) and x != 0 for x in args):
            exponent = 0
    elif _linear(name, args, gradients):
        exponent = _least(scaling, [gradient.exponent for gradient in gradients])
    else:
        exponent = 0

    def plain(x):
        return _plain(x, sums, exponent, scaling)

    out = function(*_each(plain, args), **{key: plain(x) for key, x in kwargs.items()})
    return _from(origin, _wrapped(out, exponent, scaling, dtype, False))


def _from(origin, out):
    """Gradients that remember their origin."""
    if origin is not None:
        for x in out if isinstance(out, (list, tuple)) else (out,):
            if isinstance(x, scaled.ScaledTensor):
                x.origin = origin
    return out


def _gradients(args):
    found = []
    for x in args:
        if isinstance(x, scaled.ScaledTensor):
            found.append(x)
        elif isinstance(x, (list, tuple)):
            found += [y for y in x if isinstance(y, scaled.ScaledTensor)]
    return found


def _tensors(args):
    for x in args:
        if isinstance(x, torch.Tensor):
            yield x
        elif isinstance(x, (list, tuple)):
            yield from (y for y in x if isinstance(y, torch.Tensor))


def _each(f, args):
    """Arguments, and those in lists, one by one."""
    return [type(x)(map(f, x)) if isinstance(x, (list, tuple)) and any(isinstance(y, torch.Tensor) for y in x) else f(x) for x in args]


def _fused(function, args, kwargs, scaling, node, half):
    """A kernel that takes and returns gradients in half, all at one exponent."""
    places = [place for place, x in enumerate(args) if isinstance(x, scaled.ScaledTensor)]
    gradients = [args[place] for place in places]
    plain = list(args)
    if half == HALF:
        for place in places:
            plain[place] = args[place].wide()
        starts = [gradient.exponent for gradient in gradients]
        out, exponent = scaling.call_fused(function, plain, kwargs, places, starts, *scaling.names.site(node))
    else:  # bfloat16 has f32's exponents
        exponent = _least(scaling, [gradient.exponent for gradient in gradients])
        for place in places:
            plain[place] = _plain(args[place], False, exponent, scaling).to(half)
        out = fused.widened(function(*plain, **kwargs))
    origin = operands.Cast() if scaling.operands else None
    return _from(origin, _wrapped(out, exponent, scaling, half, False))


def _settle(x, node, scaling):
    if x.dtype == HALF and not x.settled and x.born is not node:
        x.settle(*scaling.names.site(node))


def _linear(name, args, gradients):
    if name == "div":
        return len(gradients) == 1 and args[0] is gradients[0]
    if name in ("mul", "mm", "bmm", "mv", "dot", "matmul"):
        return len(gradients) == 1
    if name == "masked_fill":
        return args[2] == 0
    if name == "constant_pad_nd":
        return len(args) < 3 or not args[2]
    return name in LINEAR or name.endswith("_backward")


def _copy(x, kwargs, scaling, node, kind):
    """A change of type: for the gradient of a cast, from half to float, it is read; on its way to a weight it is not."""
    dtype = kwargs.get("dtype", x.dtype)
    if kind is not None and dtype != HALF and not scaling.names.feeds_leaf(node):
        _settle(x, node, scaling)
    rest = {key: value for key, value in kwargs.items() if key != "dtype"}
    rest.pop("layout", None)
    data = torch.ops.aten._to_copy.default(x.data_, **rest) if any(v is not None for v in rest.values()) else x.data_
    return _from(x.origin, scaled.ScaledTensor(data, x.exponent, scaling, dtype, x.settled))


def _into(function, args, kwargs, scaling):
    """An operator that writes: into a gradient at its exponent, into a plain tensor as it is."""
    target = args[0]
    ours = isinstance(target, scaled.ScaledTensor)
    if ours:
        exponent, out = target.exponent, target.wide()
        target.data_, target.settled, target.origin = out, False, None
    else:
        exponent, out = 0, target

    def plain(x):
        x = _plain(x, True, exponent, scaling)
        return x.to(out.dtype) if not ours and isinstance(x, torch.Tensor) and x.is_floating_point() else x

    function(out, *_each(plain, args[1:]), **{key: plain(x) for key, x in kwargs.items()})
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


def _strided_like(bias):
    """A bias in f32 with the strides that it has in half: its rows are padded, as their kernel wants them aligned."""
    if not isinstance(bias, torch.Tensor) or bias.dtype not in _OTHERS:
        return bias
    size = [1 if stride == 0 else size for size, stride in zip(bias.shape, bias.stride())]
    y = torch.empty_strided(size, bias.stride(), dtype=torch.float32, device=bias.device)
    return y.copy_(bias.as_strided(size, bias.stride())).expand(bias.shape)


def _plain(x, sums, exponent, scaling):
    """What a kernel gets for an argument: gradients in f32 at `exponent`, saved halves in f32, types in f32. In `sums` plain
    tensors are gradients, too."""
    if isinstance(x, scaled.ScaledTensor):
        return scaling.stores.scaled(x.wide(), x.exponent, exponent)
    if isinstance(x, torch.Tensor):
        x = x.float() if x.dtype in _OTHERS else x
        return scaling.stores.scaled(x, 0, exponent) if sums and x.is_floating_point() else x
    return torch.float32 if isinstance(x, torch.dtype) and x in _OTHERS else x


def _wrapped(out, exponent, scaling, dtype, settled):
    if isinstance(out, torch.Tensor):
        if out.layout != torch.strided:  # of an embedding: on its way to its weight
            return scaling.stores.scaled(out, exponent, 0)
        return scaled.ScaledTensor(out, exponent, scaling, dtype, settled) if out.is_floating_point() else out
    if isinstance(out, (list, tuple)):
        return type(out)([_wrapped(x, exponent, scaling, dtype, settled) for x in out])
    return out
