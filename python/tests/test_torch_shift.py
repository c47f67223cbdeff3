"""Shift invariance, and a requirement on every node: the f32 gradient up to the rounding of a half."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from gradscale.torch import GradientScaling, attach  # noqa: E402
from torch_models import NETWORKS, batches, cross_entropy, error, exact, network  # noqa: E402

torch.set_num_threads(1)


def train(name, shift, steps=20, momentum=0.0):
    """Weights, exponents and losses with loss and decay times 2^shift, and the rate divided by as much."""
    model = network(name)
    gs = attach(model)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1 * 2.0**-shift, momentum=momentum, weight_decay=2.0**-7 * 2.0**shift, nesterov=momentum > 0
    )
    gs.guard(optimizer)
    for x, y in batches(name, steps):
        optimizer.zero_grad()
        (cross_entropy(model(x), y) * 2.0**shift).backward()
        optimizer.step()
        assert gs.update().stepped
    return [p.detach().clone() for p in model.parameters()], gs.sites.exponents.tolist()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_loss_times_a_power_of_two_changes_no_bit_of_the_weights(name):
    momentum = 0.9 if name == "mlp" else 0.0
    weights, exponents = train(name, 0, momentum=momentum)
    shifted, higher = train(name, -30, momentum=momentum)
    before = [p.detach() for p in network(name).parameters()]
    assert all(torch.equal(a, b) for a, b in zip(weights, shifted))
    assert [e + 30 for e in exponents] == higher
    assert not any(torch.equal(a, b) for a, b in zip(weights, before))


@pytest.mark.parametrize(("shift", "least"), [(-30, 0.02), (-42, 0.9)])
def test_what_one_scale_does_there(shift, least):
    """PyTorch's begins at 2^16: at 2^-30 a gradient is some per cent off, further down all of it flushes to zero."""

    def gradients(shift):
        model = network("mlp")
        scaler = torch.amp.GradScaler("cpu")
        x, y = next(batches("mlp", 1))
        with torch.autocast("cpu", torch.float16):
            out = model(x)
        scaler.scale(cross_entropy(out.float(), y) * 2.0**shift).backward()
        return [p.grad / 65536 for p in model.parameters()]

    assert error(gradients(shift), [g * 2.0**shift for g in gradients(0)]) > least


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("shift", [0, -40, 40])
def test_gradients_at_any_loss_are_those_of_f64(name, shift):
    model = network(name)
    x, y = next(batches(name, 1))
    wide = x.double() if x.is_floating_point() else x
    true = exact(model, lambda m: cross_entropy(m(wide), y) * 2.0**shift)
    gs = attach(model)
    (cross_entropy(model(x), y) * 2.0**shift).backward()
    assert all(type(p.grad) is torch.Tensor and p.grad.dtype == torch.float32 for p in model.parameters())
    assert error([p.grad for p in model.parameters()], true) < 3e-3
    assert gs.update().stepped


class Towers(nn.Module):
    """Two towers whose gradients differ by 2^46, and are added in one trunk."""

    def __init__(self):
        super().__init__()
        self.trunk, self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        h = torch.tanh(self.trunk(x))
        return self.a(h).float().square().mean() * 2.0**23 + self.b(h).float().square().mean() * 2.0**-23


def test_towers_far_apart_are_both_trained():
    torch.manual_seed(0)
    model, x = Towers(), torch.randn(32, 8)
    true = exact(model, lambda m: m(x.double()))
    attach(model)
    model(x).backward()
    for p, q in zip(model.parameters(), true):
        assert error([p.grad], [q]) < 3e-3


class Branch(nn.Module):
    """One tensor read four times, at gradients of unlike size."""

    def __init__(self):
        super().__init__()
        self.stem, self.left, self.right = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        h = self.stem(x)
        return h + 2.0**-12 * self.left(h) + self.right(torch.relu(h)) + h.sin()


def test_a_branch_is_a_sum_of_gradients():
    torch.manual_seed(1)
    model, x = Branch(), torch.randn(32, 6)
    true = exact(model, lambda m: m(x.double()).square().mean() * 2.0**-20)
    gs = attach(model)
    (model(x).square().mean() * 2.0**-20).backward()
    for p, q in zip(model.parameters(), true):
        assert error([p.grad], [q]) < 3e-3
    assert gs.sites.names.count("stem") == 1


class Thrice(nn.Module):
    def __init__(self, times=3):
        super().__init__()
        self.cell, self.times = nn.Linear(8, 8), times

    def forward(self, x):
        for _ in range(self.times):
            x = torch.tanh(self.cell(x))
        return x


def test_a_layer_called_three_times_has_one_site():
    torch.manual_seed(2)
    model, x = Thrice(), torch.randn(16, 8)
    true = exact(model, lambda m: m(x.double()).pow(3).mean() * 2.0**-25)
    gs = attach(model)
    for _ in range(3):
        model.zero_grad()
        (model(x).pow(3).mean() * 2.0**-25).backward()
        assert error([p.grad for p in model.parameters()], true) < 3e-3
        assert gs.update().stepped
    assert gs.sites.names == ["cell>tanh", "cell"] or sorted(gs.sites.names) == ["cell", "cell>tanh"]
    assert gs.sites.row(gs.sites.index("cell")).count == 3 * 16 * 8


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_changes_no_bit(reentrant):
    def gradients(use):
        torch.manual_seed(3)
        model = Checkpointed(use, reentrant)
        attach(model)
        x = torch.randn(16, 12, requires_grad=True)
        (model(x).square().mean() * 2.0**-30).backward()
        return [p.grad for p in model.parameters()]

    plain, used = gradients(False), gradients(True)
    assert all(torch.equal(a, b) for a, b in zip(plain, used))


class Checkpointed(nn.Module):
    def __init__(self, use, reentrant):
        super().__init__()
        self.a, self.b, self.use, self.reentrant = nn.Linear(12, 32), nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32)), use, reentrant

    def forward(self, x):
        x = torch.relu(self.a(x))
        return checkpoint(self.b, x, use_reentrant=self.reentrant) if self.use else self.b(x)


def test_frozen_and_later_parameters():
    model = network("mlp")
    gs = attach(model)
    x, y = next(batches("mlp", 1))
    model[0].weight.requires_grad_(False)
    cross_entropy(model(x), y).backward()
    gs.update()
    assert model[0].weight.grad is None and model[0].bias.grad is not None
    model[0].weight.requires_grad_(True)
    model.append(nn.Linear(5, 5))
    model.zero_grad()
    true = exact_of(model, x, y)
    cross_entropy(model(x), y).backward()
    gs.update()
    assert error([p.grad for p in model.parameters()], true) < 3e-3
    assert "5" in gs.sites.names


def exact_of(model, x, y):
    """f64 gradients of a model whose forward is wrapped: by its layers."""
    import copy

    twin = copy.deepcopy(nn.Sequential(*model.children())).double()
    cross_entropy(twin(x.double()), y).backward()
    return [p.grad for p in twin.parameters()]


def test_a_model_that_is_not_touched():
    model, gs = network("transformer"), GradientScaling()
    x, y = next(batches("transformer", 1))
    true = exact(model, lambda m: cross_entropy(m(x), y) * 2.0**-30)
    with torch.autocast("cpu", torch.float16):
        loss = cross_entropy(model(x), y) * 2.0**-30
    gs.backward(loss)
    assert error([p.grad for p in model.parameters()], true) < 3e-3
    gs.update()


def test_detach_gives_the_model_back():
    model = network("conv")
    model.eval()
    before = dict(model.__dict__)
    x, y = next(batches("conv", 1))
    out = model(x)
    gs = attach(model)
    cross_entropy(model(x), y).backward()
    gs.detach()
    assert dict(model.__dict__) == before and torch.equal(model(x), out)
    assert not any(p._backward_hooks for p in model.parameters())
    model.zero_grad()
    model(x).sum().backward()
    assert type(model[0].weight.grad) is torch.Tensor


def test_half_parameters_are_refused_by_name():
    model = network("mlp").half()
    attach(model)
    with pytest.raises(TypeError, match=r"(4|0)\.(weight|bias) is torch.float16"):
        model(torch.randn(4, 12)).sum().backward()
