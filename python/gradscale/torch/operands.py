"""Operands of the rules of the paper and of its authors, which decide from the operator of a gradient and not only from
its values.

These rules decide inside a step, so each gradient keeps a reference to its origin until it is rounded. With the rule
``gs`` no origin is kept.
"""

from __future__ import annotations

import torch

from .. import _gradscale

#: Products, and the positions of their gradient among the arguments.
_PRODUCTS = frozenset("mm bmm mv matmul".split())
_SOFTMAX = frozenset("_softmax_backward_data _log_softmax_backward_data".split())


def wide_dtype(dtype):
    """Returns the type in which gradients of a type are computed here: single precision."""
    return torch.complex64 if dtype.is_complex else torch.float32


class Cast:
    """Origin of a gradient from any operator without a special rule; chooses the exponent from its row."""

    def choose(self, rule, row, look):
        """Returns the choice of an exponent, and the exponent that it is relative to."""
        return rule.decide(row), row.exponent


class Softmax(Cast):
    """Origin of a gradient that is rounded after a softmax's backward pass; chooses the exponent by the rule for
    softmax."""

    def choose(self, rule, row, look):
        return rule.decide_softmax_cast(row), row.exponent


class Product(Cast):
    """Origin of a gradient that a matrix product or convolution computes; chooses the exponent from both operands."""

    def __init__(self, gradient, other, terms):
        self.gradient, self.other, self.terms = gradient, other, terms

    def choose(self, rule, row, look):
        dy, w = look(self.gradient._data, self.gradient.exponent), look(self.other, 0)
        return rule.decide_matmul(dy, w, self.terms, dy.exponent), dy.exponent


class Parts(Cast):
    """Gradients that were added, or that a split has concatenated. Each has been rounded by itself."""

    def __init__(self, parts, split):
        self.parts, self.split = parts, split

    def choose(self, rule, row, look):
        rows = [look(part._data, part.exponent) for part in self.parts]
        parts = [(part.amax, part.exponent) for part in rows]
        return (rule.decide_concat if self.split else rule.decide_sum)(parts, row), row.exponent

    def incoming(self, number):
        """Returns the largest exponent of the parts."""
        return max(number(part.exponent) for part in self.parts)


def entering(gradient):
    """Returns the origin of a plain gradient, whose operator is out of sight: a softmax, if the loss does not change
    where all its inputs change by the same number, so that gradients add up to nothing."""
    for dim in {1, gradient.dim() - 1} if gradient.dim() > 1 else ():
        if bool(gradient.sum(dim).abs().max() <= 1e-3 * gradient.abs().sum(dim).max()):
            return Softmax()
    return Cast()


def operands_of(name, args, gradients):
    """Returns the origin of the gradient that an operator computes from these arguments."""
    if name in _SOFTMAX:
        return Softmax()
    if name in _PRODUCTS and len(gradients) == 1:
        first, second = args[0], args[1]
        size = first.shape[-1]
        return Product(gradients[0], second if first is gradients[0] else first, (size, size))
    if name == "convolution_backward" and args[0] is gradients[0]:
        weight, stride, dilation, transposed, groups = args[2], args[4], args[6], args[7], args[9]
        outputs = weight.shape[1] * groups if transposed else weight.shape[0]
        kernel = list(weight.shape[2:])
        stride, dilation = ([*one] * (len(kernel) if len(one) == 1 else 1) for one in (stride, dilation))
        terms = _gradscale.conv_terms(outputs, kernel, list(stride), list(dilation), groups, transposed)
        return Product(gradients[0], weight, terms)
    return Cast()


def parts(name, gradients, names):
    """Returns the operands of each term of a sum or of concatenated gradients.

    A term that is still f32 is rounded at the site that made it.
    """
    if name not in ("add", "cat", "stack"):
        return Cast()
    found = []
    for gradient in gradients:
        if not gradient._is_rounded and isinstance(gradient._origin, Parts) and name == "add":
            found += gradient._origin.parts
            continue
        if not gradient._is_rounded:
            gradient._round_to_half(*names.part(gradient._producer))
        found.append(gradient)
    return Parts(found, name != "add")
