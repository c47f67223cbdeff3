"""Rules for ⟨α, gradient⟩ at each operator of a backward pass.

Four kinds of operators are known. Operators that move values keep halves and exponent. Operators that are linear in the
gradient, as derivatives are, compute in f32 from halves; their result is rounded where the next operator reads it. Sums
bring their terms to the smallest of their exponents. Operators that write into a gradient write into the memory that
all its views share. Every other operator gets the unscaled gradient in f32. So an unknown function is slower or less
precise in the last bits, but never wrong by a factor. Operators for which none of these ways is right are refused by
name.
"""

from __future__ import annotations

import torch

from . import activations, fp8, fused, gpu, graph, operands, scaled

HALF = torch.float16
#: Types that are converted to f32 here.
_CONVERTED_DTYPES = (torch.float16, torch.bfloat16, torch.float64)
_CONVERTED_COMPLEX = (torch.complex32, torch.complex128)

#: Values move; none is computed.
MOVES = frozenset(
    "view _unsafe_view t transpose permute expand unsqueeze squeeze slice select alias detach clone as_strided unbind"
    " split split_with_sizes unsafe_split unsafe_split_with_sizes flip roll diagonal unfold _reshape_alias contiguous lift_fresh"
    " view_as_real view_as_complex movedim _conj _neg_view resolve_conj".split()
)
#: Moves whose results share memory with the gradient, though their schemas declare no alias.
_UNDECLARED_VIEWS = frozenset("_unsafe_view unsafe_split unsafe_split_with_sizes".split())
#: Results are values of the gradient or 0.
SELECTS = frozenset("threshold_backward masked_fill".split())
#: Terms that are all gradients.
SUMS = frozenset("add sub cat stack where index_add scatter_add index_put scatter slice_scatter select_scatter".split())
#: Operators that are linear in the gradient, at any position.
LINEAR = frozenset(
    "mm bmm matmul mv dot mul sum mean neg cumsum select_backward slice_backward constant_pad_nd index_select gather"
    " index tril triu trace diagonal_backward _adaptive_avg_pool2d_backward repeat avg_pool2d_backward"
    " _softmax_backward_data _log_softmax_backward_data fold im2col col2im unfold_backward as_strided_scatter"
    " new_zeros zeros_like new_empty empty_like new_empty_strided pixel_shuffle pixel_unshuffle convolution"
    " _sparse_mm _fft_c2c _fft_r2c _fft_c2r _thnn_fused_lstm_cell_backward_impl".split()
)
#: Products of two matrices, which a GPU computes from halves, or in FP8 if the method says so.
_PRODUCTS = frozenset("mm bmm".split())
#: Sums that are written in place, into gradients. Others that write do so by a copy: see `_write`.
INTO = frozenset("add_ sub_ index_add_ index_put_ _index_put_impl_ scatter_add_ scatter_ copy_ masked_scatter_".split())


def _native_batch_norm(args):
    """Returns the arguments of ``native_batch_norm_backward`` from those of cuDNN's and MIOpen's, which come in another
    order."""
    x, gradient, weight, running_mean, running_var, mean, invstd, eps = args[:8]
    return [gradient, x, weight, running_mean, running_var, mean, invstd, True, eps, [True, True, True]]


#: Operators that are replaced by others of the same meaning. Their own kernels take tensors that the forward pass has
#: saved in half, while gradients and inputs are f32 here.
_INSTEAD = {
    "cudnn_batch_norm_backward": (torch.ops.aten.native_batch_norm_backward.default, _native_batch_norm),
    "miopen_batch_norm_backward": (torch.ops.aten.native_batch_norm_backward.default, _native_batch_norm),
    "batch_norm_backward": (torch.ops.aten.native_batch_norm_backward.default, lambda args: args[:10]),
}


#: Operators whose fifth argument is a bias of attention.
_BIASED = frozenset("_scaled_dot_product_efficient_attention_backward _efficient_attention_backward".split())

#: Nothing that is computed from values, but their memory or the bits of another type: a copy of a gradient has neither.
_REFUSED = frozenset("set_ resize_ resize_as_ swap_ _resize_output_ _cudnn_rnn_flatten_weight share_memory_".split())


class Operator:
    """Description of a PyTorch operator for scaled gradients: properties of its arguments, from its schema."""

    def __init__(self, function):
        schema = getattr(function, "_schema", None)
        if schema is None:
            raise RuntimeError(
                f"{function} does not accept scaled gradients: pass g.unscaled(), a float32 tensor, or call it in the backward of an"
                " autograd.Function, which receives such tensors"
            )
        self.name = function.overloadpacket.__name__
        self.namespace = function.namespace
        arguments = schema.arguments
        aliases = [argument.alias_info is not None and argument.alias_info.is_write for argument in arguments]
        #: Positions and keyword names of the arguments that are written to.
        self.writes = [a.name if a.kwarg_only else i for i, a in enumerate(arguments) if aliases[i]]
        declared = not self.writes and any(r.alias_info is not None for r in schema.returns)
        self.views = declared or self.name in _UNDECLARED_VIEWS
        #: Where a number is a term of a sum, and no dimension, index or factor.
        self.terms = [i for i, a in enumerate(arguments) if not a.kwarg_only and str(a.type) in ("number", "Tensor") and i]
        if self.name == "view" and function._overloadname == "dtype":
            self.name = "view.dtype"

    def adds_number(self, args):
        """Returns True if a term of a sum is a non-zero number."""
        return any(i < len(args) and isinstance(args[i], (int, float, complex)) and args[i] != 0 for i in self.terms)


#: Operators by function, because a schema is slow to read.
_OPERATORS = {}


def described(function):
    """Returns the cached description of a PyTorch operator for scaled gradients."""
    operator = _OPERATORS.get(function)
    if operator is None:
        operator = _OPERATORS[function] = Operator(function)
    return operator


def dispatch(function, args, kwargs):
    """Runs a PyTorch operator on scaled gradients, by the rule that its description names."""
    operator = _OPERATORS.get(function)
    if operator is None:
        operator = described(function)
    name = operator.name
    if name in _INSTEAD:
        function, order = _INSTEAD[name]
        args = order(args)
    elif name == "threshold_backward" and args[2] == 0:
        # Which values are above 0 is the same at any exponent.
        args = [args[0], activations.to_halves(args[1]), *args[2:]]
    elif name in _BIASED:
        args = [*args[:4], _strided_like(args[4]), *args[5:]]
    gradients = _gradients(args)
    if kwargs:
        gradients += _gradients(kwargs.values())
    first = gradients[0]
    scaling = first._scaling
    node = torch._C._current_autograd_node()
    if node is not None:
        scaling._names.look(node)
    kind = node.name() if node is not None else None

    for gradient in gradients:
        if gradient._parent is not None:
            gradient._refresh()
    if name == "_to_copy" and _carries(kwargs.get("dtype", HALF)):
        return _copy(first, kwargs, scaling, node, kind)
    half = fused.saved_type(name, args)
    if half is not None and node is not None:
        return _fused(function, args, kwargs, scaling, node, half)
    # Rounded where it is first read by a node that does more than pass it on. Results of that node itself are not
    # rounded here, nor the terms of sums, under whose name autograd adds gradients of several consumers.
    if kind is not None and kind not in graph.HANDS_ON and name not in SUMS:
        for gradient in gradients:
            settle(gradient, node, scaling)

    if operator.writes:
        return _write(function, operator, args, kwargs, gradients, scaling)
    if name in MOVES or name in SELECTS and first._is_rounded and args[0] is first and (name != "masked_fill" or args[2] == 0):
        out = function(*each(_data, args), **kwargs)
        if function in scaled.CONJUGATED:
            # A wrapper has no conjugation bit, so its values must not be conjugated lazily.
            out = out.resolve_conj().resolve_neg()
        out = _from(first._origin, _wrapped(out, first.exponent, scaling, first.dtype, first._is_rounded))
        if operator.views:
            _views(out, first, function, args, kwargs)
        return out
    if name in _PRODUCTS and len(gradients) == 1:
        out = None
        if scaling._multiplies_fp8:
            out, reason = fp8.multiply(function, *args)
            scaling._fp8_gradients[reason] += 1
        if out is None and first.device.type in gpu.DEVICE_TYPES:
            out = gpu.multiply(function, args)
        if out is not None:
            origin = operands.operands_of(name, args, gradients) if scaling._uses_operands else None
            exponent = first.exponent
            for other in filter(activations.is_activation, args):
                exponent = exponent + other.exponent
            return _from(origin, scaled.ScaledTensor(out, exponent, scaling, _dtype_of(gradients)))
    if name == "sum" and first.device.type in gpu.DEVICE_TYPES and first._data.dtype == HALF and function is gpu.SUM and not kwargs:
        origin = operands.Cast() if scaling._uses_operands else None
        out = function(first._data, *args[1:], dtype=torch.float32)
        return _from(origin, scaled.ScaledTensor(out, first.exponent, scaling, first.dtype))
    if name == "view.dtype":
        raise RuntimeError(_sentence(operator, "reads the bits of a gradient as another type"))

    dtype = _dtype_of(gradients)
    sums, origin = name in SUMS and "reduce" not in kwargs, None
    if scaling._uses_operands:
        origin = operands.parts(name, gradients, scaling._names) if sums else operands.operands_of(name, args, gradients)
    if sums:
        terms = [x for x in _tensors(args) if _carries(x.dtype)]
        if name == "add" and any(x.dtype == HALF and not isinstance(x, scaled.ScaledTensor) for x in terms):
            scaling._added_plain()
        if name == "add" and scaling._stores.has_kernels:
            added = gpu.add(args, kwargs, scaling._stores)
            if added is not None:
                return _from(origin, scaled.ScaledTensor(*added, scaling, dtype))
        # If a term is a number, the values are no longer a gradient.
        exponent = 0 if operator.adds_number(args) else least(scaling, [_exponent(x) for x in terms])
    elif _linear(name, args, gradients, kwargs):
        exponent = least(scaling, [gradient.exponent for gradient in gradients])
    else:
        exponent = 0

    def plain(x):
        return _plain(x, sums, exponent, scaling)

    if name == "convolution_backward" and first.device.type in gpu.DEVICE_TYPES:
        function = gpu.in_tf32(function, args)
    out = function(*each(plain, args), **dict(zip(kwargs, each(plain, kwargs.values()))) if kwargs else kwargs)
    return _from(origin, _wrapped(out, exponent, scaling, dtype, False))


def _dtype_of(gradients):
    """Returns the type of a result of these gradients, to autograd."""
    return HALF if all(gradient.dtype == HALF for gradient in gradients) else torch.float32


def _carries(dtype):
    """Returns True if gradients can have this type."""
    return dtype is None or dtype.is_floating_point or dtype.is_complex


def _sentence(operator, why):
    return (
        f"{operator.namespace}::{operator.name} {why}: pass g.unscaled(), a float32 tensor, or call it in the backward of an"
        " autograd.Function, which receives such tensors"
    )


def _views(out, first, function, args, kwargs):
    """Records how views are taken, for writes into them or into their base."""
    seen = first._writes if first._parent is None else first._seen_writes
    if isinstance(out, scaled.ScaledTensor):
        out._parent, out._seen_writes, out._recipe = first, seen, (function, args, kwargs, None)
    elif isinstance(out, (list, tuple)):
        for i, one in enumerate(out):
            one._parent, one._seen_writes, one._recipe = first, seen, (function, args, kwargs, i)


def _from(origin, out):
    """Sets the origin of all scaled tensors among an operator's results, and returns these results."""
    if origin is not None:
        for x in out if isinstance(out, (list, tuple)) else (out,):
            if isinstance(x, scaled.ScaledTensor):
                x._origin = origin
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


def each(f, args):
    """Applies `f` to each argument, and to each in lists of tensors."""
    return [type(x)(map(f, x)) if isinstance(x, (list, tuple)) and any(isinstance(y, torch.Tensor) for y in x) else f(x) for x in args]


def _fused(function, args, kwargs, scaling, node, half):
    """Calls a kernel that takes and returns gradients in half, all at one exponent."""
    places = [place for place, x in enumerate(args) if isinstance(x, scaled.ScaledTensor)]
    gradients = [args[place] for place in places]
    plain = list(args)
    if half == HALF:
        for place in places:
            plain[place] = args[place]._as_float32()
        starts = [gradient.exponent for gradient in gradients]
        out, exponent = scaling._call_fused(function, plain, kwargs, places, starts, *scaling._names.site(node))
    else:  # bfloat16 has f32's exponents
        exponent = least(scaling, [gradient.exponent for gradient in gradients])
        for place in places:
            plain[place] = _plain(args[place], False, exponent, scaling).to(half)
        out = fused.widened(function(*plain, **kwargs))
    origin = operands.Cast() if scaling._uses_operands else None
    return _from(origin, _wrapped(out, exponent, scaling, half, False))


def settle(x, node, scaling):
    """Rounds a gradient that another node has made, where this one reads it."""
    if x.dtype == HALF and not x._is_rounded and x._producer is not node:
        x._round_to_half(*scaling._names.site(node))


def _linear(name, args, gradients, kwargs):
    if name == "div":
        return len(gradients) == 1 and args[0] is gradients[0] and not kwargs.get("rounding_mode")
    if name == "convolution" and args[2] is not None:
        return False
    if name in ("mul", "mm", "bmm", "mv", "dot", "matmul"):
        return len(gradients) == 1
    if name == "masked_fill":
        return args[2] == 0
    if name == "constant_pad_nd":
        return len(args) < 3 or not args[2]
    return name in LINEAR or name.endswith("_backward")


def _copy(x, kwargs, scaling, node, kind):
    """Changes the type of a gradient: for the gradient of a cast, from half to float, it is read; on its way to a
    weight it is not."""
    dtype = kwargs.get("dtype", x.dtype)
    if kind is not None and dtype != HALF and not scaling._names.feeds_leaf(node):
        settle(x, node, scaling)
    rest = {key: value for key, value in kwargs.items() if key != "dtype"}
    rest.pop("layout", None)
    data = x._data
    # Autograd names the device that the gradient is on already. Values are never changed, so they need no copy.
    if rest.get("device") == data.device:
        del rest["device"]
    if dtype.is_complex != data.is_complex():
        rest["dtype"] = operands.wide_dtype(dtype)
    if any(v is not None for v in rest.values()):
        data = torch.ops.aten._to_copy.default(data, **rest)
    return _from(x._origin, scaled.ScaledTensor(data, x.exponent, scaling, dtype, x._is_rounded))


def _write(function, operator, args, kwargs, gradients, scaling):
    """Calls an operator that writes: into gradients at their exponents, and into plain tensors the unscaled values."""
    if operator.name == "record_stream":
        return function(args[0]._data, *args[1:])
    if operator.name in _REFUSED:
        raise RuntimeError(_sentence(operator, "changes the memory of a gradient"))
    if "c10d" in operator.namespace:
        raise RuntimeError(_sentence(operator, "would send a copy of a gradient"))
    targets = []
    for key in operator.writes:
        given = kwargs.get(key) if isinstance(key, str) else args[key] if key < len(args) else None
        targets += given if isinstance(given, (list, tuple)) else [given]
    for target in targets:
        if isinstance(target, torch.Tensor) and not isinstance(target, scaled.ScaledTensor) and target.dtype == HALF:
            raise RuntimeError(
                f"{operator.namespace}::{operator.name} writes a scaled gradient into a plain float16 tensor, which has no"
                " exponent: create it with torch.empty_like(g) or torch.zeros_like(g) of the gradient g, or in float32"
            )
        if isinstance(target, scaled.ScaledTensor) and not target._shares_memory():
            raise RuntimeError(_sentence(operator, "writes into a conjugated view of a gradient"))
    if operator.name in INTO and "reduce" not in kwargs and not operator.adds_number(args):
        return _into(function, args, kwargs, scaling)
    # Computed from copies of the gradients themselves, of which views are views, too; then written back.
    roots, copies = {}, {}

    def plain(x):
        if isinstance(x, scaled.ScaledTensor) and any(x is target for target in targets):
            if id(x) not in copies:
                root = x._root()
                if id(root) not in roots:
                    roots[id(root)] = root, shifted_copy(root, scaling)
                copies[id(x)] = x, x._apply_to(roots[id(root)][1])
            return copies[id(x)][1]
        if isinstance(x, torch.Tensor) and any(x is target for target in targets):
            return x
        return _plain(x, False, 0, scaling)

    out = function(*each(plain, args), **dict(zip(kwargs, each(plain, kwargs.values()))))
    for x, copy in copies.values():
        if copy.shape != x.shape:
            raise RuntimeError(_sentence(operator, f"changes the shape {tuple(x.shape)} of a gradient to {tuple(copy.shape)}"))
    for root, copy in roots.values():
        root._open_for_write().copy_(scaled.shift(scaling, copy, 0, root.exponent))
    ours = {id(copy): x for x, copy in copies.values()}
    outs = [ours.get(id(x), x) for x in (out if isinstance(out, (list, tuple)) else (out,))]
    outs = [_wrapped(x, 0, scaling, torch.float32, False) if not any(x is t for t in targets) else x for x in outs]
    return outs[0] if not isinstance(out, (list, tuple)) else type(out)(outs)


def shifted_copy(x, scaling):
    """Returns the true gradient in f32, in memory of its own."""
    out = x._shifted(0)
    return out.clone() if out is x._float32 else out


def _into(function, args, kwargs, scaling):
    """Writes a sum: into a gradient at its exponent, into a plain tensor as it is."""
    target = args[0]
    ours = isinstance(target, scaled.ScaledTensor)
    if ours:
        out = target._open_for_write()
        exponent = target.exponent
    else:
        exponent, out = 0, target

    def plain(x):
        x = _plain(x, True, exponent, scaling)
        return x.to(out.dtype) if not ours and isinstance(x, torch.Tensor) and x.is_floating_point() else x

    function(out, *each(plain, args[1:]), **{key: plain(x) for key, x in kwargs.items()})
    return target


def _exponent(leaf):
    return leaf.exponent if isinstance(leaf, scaled.ScaledTensor) else 0


def least(scaling, exponents):
    """Returns the least of several exponents, which may be numbers or tensors."""
    least = exponents[0]
    for exponent in exponents[1:]:
        least = scaling._stores.least(least, exponent)
    return least


def _data(leaf):
    return leaf._data if isinstance(leaf, scaled.ScaledTensor) else leaf


def _strided_like(bias):
    """Returns a bias in f32 with the strides that it has in half: its rows are padded, as their kernel wants them
    aligned."""
    if not isinstance(bias, torch.Tensor) or bias.dtype not in _CONVERTED_DTYPES:
        return bias
    size = [1 if stride == 0 else size for size, stride in zip(bias.shape, bias.stride())]
    y = torch.empty_strided(size, bias.stride(), dtype=torch.float32, device=bias.device)
    return y.copy_(bias.as_strided(size, bias.stride())).expand(bias.shape)


def _plain(x, sums, exponent, scaling):
    """Converts an argument for a kernel: gradients to f32 at `exponent`, saved f16 tensors to f32, types to f32. In `sums` plain
    tensors are gradients, too."""
    if isinstance(x, scaled.ScaledTensor):
        return x._shifted(exponent)
    if isinstance(x, torch.Tensor):
        x = x.float() if x.dtype in _CONVERTED_DTYPES else x.to(torch.complex64) if x.dtype in _CONVERTED_COMPLEX else x
        return scaled.shift(scaling, x, 0, exponent) if sums and _carries(x.dtype) else x
    if isinstance(x, torch.dtype):
        return torch.float32 if x in _CONVERTED_DTYPES else torch.complex64 if x in _CONVERTED_COMPLEX else x
    return x


def _wrapped(out, exponent, scaling, dtype, settled):
    if isinstance(out, torch.Tensor):
        if out.is_nested:
            raise RuntimeError("a nested tensor has no scaled gradient: use padded tensors inside of the model, or train without it")
        if out.layout != torch.strided:  # of an embedding: on its way to its weight
            return scaling._stores.scaled(out, exponent, 0)
        if out.is_floating_point():
            # For complex values the type of the results differs.
            return scaled.ScaledTensor(out, exponent, scaling, torch.float32 if dtype.is_complex else dtype, settled)
        return scaled.ScaledTensor(out, exponent, scaling, out.dtype, settled) if out.is_complex() else out
    if isinstance(out, (list, tuple)):
        return type(out)([_wrapped(x, exponent, scaling, dtype, settled) for x in out])
    return out
