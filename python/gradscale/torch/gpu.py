"""Operators of a backward pass that GPUs compute from halves directly, with the results of the general way in `rules`.

The general way widens halves to f32 and calls the operator on these. On a GPU that costs a launch for each operand, and
products in f32 run without tensor cores:

    mm, bmm        halves in, f32 out: the products are exact, and sums are f32, as in the general way
    convolution    in f32, where TF32 is allowed meanwhile: it has the significand of a half and the exponents of f32, so
                   operands that were halves stay exact
    sum            over dimensions, as for the gradient of a bias: halves in, f32 out
    add            of two gradients, in one kernel, which reads both exponents

The operands of a product are rounded gradients and tensors that autocast has saved. Both are halves already.
"""

from __future__ import annotations

import contextlib

import torch

from . import activations, scaled

HALF = torch.float16
#: Sum over dimensions, which reads halves and returns f32 by itself.
SUM = torch.ops.aten.sum.dim_IntList
#: Types of devices on which matrix products take halves and return f32, and convolutions have TF32.
DEVICE_TYPES = {"cuda"}


def _products():
    """Returns the operators that return f32 from halves; torch has them since 2.8."""
    packets = torch.ops.aten.mm, torch.ops.aten.bmm
    return {packet.default: packet.dtype for packet in packets if "dtype" in packet.overloads()}


_PRODUCTS = _products()


def multiply(function, args):
    """Returns a matrix product of halves in f32, at the sum of the exponents of its operands; None if the general way has to compute it."""
    return multiply_halves(function, *(x._data if isinstance(x, scaled.ScaledTensor) else activations.to_halves(x) for x in args))


def multiply_halves(function, left, right):
    """Returns a matrix product of plain halves in f32; None for another operator or type."""
    product = _PRODUCTS.get(function)
    if product is None or left.dtype != HALF or right.dtype != HALF:
        return None
    return product(left, right, torch.float32)


def add(args, kwargs, stores):
    """Returns the sum of two gradients and its exponent; None if the general way has to compute it."""
    if kwargs or len(args) != 2 or not all(isinstance(x, scaled.ScaledTensor) for x in args):
        return None
    x, y = args
    if x.shape != y.shape or x._data.is_complex() or y._data.is_complex():
        return None
    return stores.added(x._data, x.exponent, y._data, y.exponent)


def in_tf32(function, args):
    """Returns a convolution's backward pass that uses TF32, if its operands `args` are halves, else the function itself."""
    if any((x._data if isinstance(x, scaled.ScaledTensor) else x).dtype != HALF for x in args[:3]):
        return function

    def convolve(*args, **kwargs):
        with tf32_convolutions():
            return function(*args, **kwargs)

    return convolve


@contextlib.contextmanager
def tf32_convolutions():
    """Context in which cuDNN's convolutions in f32 use TF32, whatever the user has set for those outside."""
    get = getattr(torch._C, "_get_fp32_precision_getter", None)
    if get is None:  # before torch 2.9
        before = torch._C._get_cudnn_allow_tf32()
        change, on = torch._C._set_cudnn_allow_tf32, True
    else:
        before = get("cuda", "conv")
        change, on = lambda precision: torch._C._set_fp32_precision_setter("cuda", "conv", precision), "tf32"
    if before == on:
        yield
        return
    change(on)
    try:
        yield
    finally:
        change(before)
