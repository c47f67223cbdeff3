"""The window of a single loss scale, against all scales tried one by one by other code."""

import copy
import math

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from gradscale.torch import attach, measure_window  # noqa: E402
from torch_models import batches, cross_entropy, network  # noqa: E402

torch.set_num_threads(1)


def half(x):
    return x.half().float()


class Store(torch.autograd.Function):
    """A value that is half in the forward pass, and whose gradient is stored as half by a rule."""

    @staticmethod
    def forward(ctx, x, rule):
        ctx.rule = rule
        return half(x)

    @staticmethod
    def backward(ctx, g):
        return ctx.rule(g), None


class Exact:
    """Stores in f32."""

    overflowed = False

    def __call__(self, g):
        return g


class PerTensor(Exact):
    """Stores each tensor at the largest power of two at which it does not overflow."""

    def __call__(self, g):
        k = next(k for k in range(140, -140, -1) if (g.double() * 2.0**k).half().isfinite().all())
        return ((g.double() * 2.0**k).half().double() * 2.0**-k).float()


class OneScale(Exact):
    """Stores at 2^k."""

    def __init__(self, k):
        self.k = k

    def __call__(self, g):
        stored = (g.double() * 2.0**self.k).half()
        self.overflowed |= not bool(stored.isfinite().all())
        return (stored.double() * 2.0**-self.k).float()


class Deep(nn.Module):
    """Two linear layers around a tanh, written so that every half has a name."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(12, 8), nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))

    def emulated(self, x, rule):
        """The same in f32, with roundings where autocast has them."""
        h = half(x)
        for i, layer in enumerate((self.a, self.b, self.c)):
            weight, bias = (p + (half(p) - p).detach() for p in (layer.weight, layer.bias))
            h = Store.apply(F.linear(h, weight, bias), rule)
            if i < 2:
                h = Store.apply(torch.tanh(h), rule)
        return h


def gradients(model, loss_of, rule, weights_in_half):
    model.zero_grad()
    loss_of(model.emulated, rule).backward()
    found = {name: p.grad for name, p in model.named_parameters()}
    return {name: rule(g) for name, g in found.items()} if weights_in_half else found


def error(found, exact):
    e = float((found.double() - exact.double()).norm() / exact.double().norm())
    return e if math.isfinite(e) else math.inf


@pytest.mark.parametrize("factor", [1.0, 2.0**-20])
def test_all_scales_one_by_one(factor):
    (x, y), = batches("mlp", 1)
    torch.manual_seed(0)
    model = Deep()
    with torch.no_grad():
        model.b.weight.mul_(2.0**-9)  # Gradients before that layer are small, and the window has another end.

    def loss_of(forward, rule):
        return cross_entropy(forward(x, rule), y) * factor

    found = measure_window(model, lambda model, batch: cross_entropy(model(batch[0]), batch[1]) * factor, (x, y), scale=2.0**20)
    exact, tensors = gradients(model, loss_of, Exact(), False), gradients(model, loss_of, PerTensor(), False)
    errors = {name: error(tensors[name], g) for name, g in exact.items()}
    assert set(found.errors) == set(exact) and not found.left_out
    for name, e in errors.items():
        assert abs(found.errors[name] - e) < 0.3 * e + 1e-5, name
    for weights_in_half, ours in ((False, found.f32), (True, found.half)):
        serves, overflows = [], []
        for k in range(-126, 127):
            rule = OneScale(k)
            g = gradients(model, loss_of, rule, weights_in_half)
            if rule.overflowed:
                overflows.append(k)
            elif all(error(g[name], exact[name]) <= max(2 * errors[name], 0.02) for name in exact):
                serves.append(k)
        assert (ours.low, ours.high) == (min(serves), min(overflows)), (weights_in_half, ours)
        assert ours.bits == len(serves) and ours.lost is not None and ours.overflowed is not None
    assert (found.low, found.high, found.bits) == (found.half.low, found.half.high, found.half.bits)
    assert found.places["running"].below == 20 - found.low and found.places["running"].above == found.high - 21
    assert found.places["torch.amp"].is_inside == (found.low <= 16 < found.high)


def test_the_example_of_its_documentation():
    import doctest

    from gradscale.torch import windows

    found = doctest.testmod(windows)
    assert found.attempted >= 4 and found.failed == 0


def test_what_is_printed():
    model, (x, y) = network("conv"), next(batches("conv", 1))
    text = str(measure_window(model, lambda model, batch: cross_entropy(model(batch[0]), batch[1]), (x, y), scale=1024.0))
    for words in ("window of a single loss scale: ", "error with per-tensor scales: median ", "weight gradients in half: 2^", " binades; ",
                  "tiny-cuda-nn, 2^7: inside, with ", "torch.amp, 2^16: ", "DeepSpeed, 2^32: ", " binades too large", "running, 2^10: inside"):
        assert words in text, (words, text)
    # A bias before batch norm has a gradient of rounding alone.
    assert "1 skipped" in text


def test_everything_is_as_before():
    """An attached model in the middle of its training: the next steps have the same bits."""
    (x, y), *more = batches("conv", 3)
    found = []

    def train(measured):
        model = network("conv")
        gs = attach(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for i, (inputs, classes) in enumerate(more * 2):
            optimizer.zero_grad()
            cross_entropy(model(inputs), classes).backward()
            if measured and i == 1:
                before = torch.get_rng_state(), copy.deepcopy(model.state_dict()), [p.grad.clone() for p in model.parameters()]
                found.append(measure_window(model, lambda model, batch: cross_entropy(model(batch[0]), batch[1]), (x, y)))
                assert torch.equal(before[0], torch.get_rng_state())
                assert all(torch.equal(a, b) for a, b in zip(before[1].values(), model.state_dict().values()))
                assert all(torch.equal(g, p.grad) for g, p in zip(before[2], model.parameters()))
            optimizer.step()
            assert gs.update().stepped
        return [p.detach().clone() for p in model.parameters()], gs.state_dict()

    plain, measured = train(False), train(True)
    assert all(map(torch.equal, plain[0], measured[0])) and plain[1] == measured[1]
    # The scales of that training have not influenced the measurement.
    model = network("conv")
    again = measure_window(model, lambda model, batch: cross_entropy(model(batch[0]), batch[1]), (x, y))
    assert again.bits > 5 and found[0].bits > 5


def test_recurrent_and_shared_layers():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.a, self.b = nn.GRU(12, 8), nn.Linear(8, 8), nn.Linear(8, 5)

        def forward(self, x):
            h = self.rnn(x)[0]
            # The second call has gradients 2^12 times as large.
            return self.b(self.a(h)) + self.b(2.0**12 * self.a(h))

    (x, y), = batches("mlp", 1)
    torch.manual_seed(0)
    found = measure_window(Twice(), lambda model, batch: cross_entropy(model(batch), y), x)
    assert not found.left_out and max(found.errors.values()) < 0.01 and found.bits > 3


def test_what_cannot_be_measured():
    model, (x, y) = network("mlp"), next(batches("mlp", 1))
    with pytest.raises(TypeError, match="must return the loss"):
        measure_window(model, lambda model, batch: model(batch), x)
    with pytest.raises(ValueError, match="the loss is nan"):
        measure_window(model, lambda model, batch: model(batch).sum() * float("nan"), x)
    with pytest.raises(ValueError, match="zero up to rounding errors"):
        measure_window(model, lambda model, batch: model(batch).sum() * 0.0, x)
    with pytest.raises(ValueError, match="the gradient of 0.weight is not finite"):
        # The derivative of a root at zero.
        measure_window(model, lambda model, batch: (model(batch) * 0.0).square().sum().sqrt(), x)
    # The measurement leaves no changes.
    assert "forward" not in model.__dict__
    for p in model.parameters():
        p.requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter of the model requires a gradient"):
        measure_window(model, lambda model, batch: model(batch).sum(), x)
