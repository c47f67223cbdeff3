"""Exponents of activations: overflows of the forward pass that are cured, and everything that must not change by them."""

import copy
import json
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import gradscale  # noqa: E402
from gradscale.torch import attach, forward_exponents, ranks  # noqa: E402
from test_torch_modules import LAYERS, compare  # noqa: E402
from torch_models import KernelStandIns, batches, cross_entropy, error, network, on_kernels, run_ranks  # noqa: E402

torch.set_num_threads(1)

#: At this factor of its weights, activations of `Net` reach 2^17 and more.
LARGE = 64.0


class FeedForward(nn.Module):
    """T5's gated feed-forward block, whose results overflow in public checkpoints."""

    def __init__(self, width, large):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.gate = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)
        with torch.no_grad():
            for layer in (self.up, self.gate, self.down):
                layer.weight *= large

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(torch.relu(self.up(y)) * self.gate(y))


class Net(nn.Module):
    def __init__(self, large=LARGE, width=32):
        super().__init__()
        self.first = nn.Linear(8, width)
        self.blocks = nn.ModuleList([FeedForward(width, large) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 4)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def net(large=LARGE, make=Net):
    torch.manual_seed(0)
    return make(large)


def data(steps, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(16, 8, generator=generator), torch.randint(4, (16,), generator=generator)) for _ in range(steps)]


def train(model, batches, gs=None, by_step=True, optimizer=None):
    """Trains with a closure or with update(), or without scales. Returns the losses."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 1e-3)
    if gs is not None and not by_step:
        gs.guard(optimizer)
    losses = []
    for x, y in batches:

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        if gs is not None and by_step:
            losses.append(gs.step(closure, optimizer).item())
        else:
            losses.append(closure().item())
            optimizer.step()
            if gs is not None:
                gs.update()
    return np.array(losses)


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def assert_same_bits(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a.view(torch.int32), b.view(torch.int32))


def test_an_overflow_of_an_activation_is_cured():
    true = train(net(), data(10))
    model = net()
    gs = attach(model)
    losses = train(model, data(10), gs)
    assert np.abs(losses - true).max() < 5e-3
    assert (gs.steps, gs.repeats, gs.skipped) == (10, 1, 0)
    found = {site["name"]: site["exponent"] for site in gs.report().activations}
    assert found["blocks.0.down/forward"] < 0 and found["head/forward"] == 0
    assert "activations: with exponents, since one has overflowed:" in str(gs.report())
    # In the loop of most people, one batch is lost.
    model = net()
    gs = attach(model)
    losses = train(model, data(10), gs, by_step=False)
    assert np.isnan(losses[0]) and np.abs(losses[1:] - true[1:]).max() < 5e-3
    assert (gs.steps, gs.repeats, gs.skipped) == (9, 0, 1)


def test_without_exponents_no_batch_is_trained():
    model = net()
    gs = attach(model, forward="off")
    assert np.isnan(train(model, data(3), gs)).all() and gs.skipped == 3
    # Nor by PyTorch's own scaler.
    model, scaler = net(), torch.amp.GradScaler("cpu")
    optimizer, before = torch.optim.SGD(model.parameters(), 1e-3), weights(model)
    for x, y in data(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert_same_bits(weights(model), before)


@pytest.mark.parametrize("name", ["mlp", "conv", "transformer"])
def test_without_an_overflow_no_bit_changes(name):
    ends = []
    for forward in ("off", "repeat"):
        model = network(name)
        gs = attach(model, forward=forward)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for x, y in batches(name, 3):
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
            gs.update()
        assert "forward" not in gs.state_dict() and gs.report().activations == []
        ends.append((weights(model), gs.sites.names))
    assert_same_bits(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


@pytest.mark.parametrize("name", LAYERS)
def test_every_module_with_exponents(name):
    compare(name, 2, -24, 0, method="gs:forward=on")


def test_a_power_of_two_between_layers_changes_no_bit():
    ends = []
    for k in (0, 8):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.ReLU(), nn.MaxPool1d(2), nn.Linear(8, 4, bias=False))
        with torch.no_grad():
            # Multiples of 1/16, so that both are normal halves at either size.
            model[0].weight.mul_(16).round_().mul_(2.0 ** (k - 4))
            model[3].weight.mul_(16).round_().mul_(2.0 ** (-k - 4))
        gs = attach(model, forward="on")
        x, y = data(1)[0]
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        gs.update()
        ends.append((loss.item(), [model[0].weight.grad * 2.0**k, model[3].weight.grad * 2.0**-k], gs))
    assert ends[0][0] == ends[1][0]
    assert_same_bits(ends[0][1], ends[1][1])
    at = [end[2].sites.exponents[end[2].sites.index("0/forward")] for end in ends]
    assert at[0] - at[1] == 8


class Checkpointed(Net):
    reentrant: bool

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(self.norm(x))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_changes_no_bit(reentrant):
    ends = []
    for make in (Net, Checkpointed):
        model = net(make=make)
        model.reentrant = reentrant
        gs = attach(model)
        train(model, data(4), gs)
        assert (gs.steps, gs.repeats) == (4, 1)
        ends.append(weights(model))
    assert_same_bits(*ends)


class InPlace(nn.Module):
    """Writes into activations, into views of them, and reads views that were taken before."""

    def __init__(self, large):
        super().__init__()
        self.first, self.second = nn.Linear(8, 12), nn.Linear(12, 4)
        self.large = large

    def forward(self, x):
        x = self.first(x) * self.large
        x = F.relu(x, inplace=True)
        left, right = x.view(-1, 3, 4).split([1, 2], 1)
        x = x * 1.0
        part = x[:, 2:5]
        x[:, :3] += right.flatten(1)[:, :3]
        part.mul_(0.5)
        x[:, 6:] = left.flatten(1)[:, :1]
        y = torch.cat([x[:, :6], part.sum(1, keepdim=True).expand(-1, 6)], 1)
        return self.second(y / self.large)


@pytest.mark.parametrize("forward", ["on", "repeat"])
def test_writes_into_activations(forward):
    model = net(2.0**18, InPlace)
    twin = copy.deepcopy(model).double()
    x, y = data(1)[0]
    F.cross_entropy(twin(x.double()), y).backward()
    gs = attach(model, forward=forward)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    train(model, [(x, y)], gs, optimizer=optimizer)
    assert gs.steps == 1
    assert error([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()]) < 3e-3


def test_values_that_no_exponent_cures_end_the_exponents():
    model = net(1.0)
    gs = attach(model)
    (x, y), *rest = data(4)
    before = weights(model)
    train(model, [(torch.full_like(x, torch.nan), y)], gs)
    assert_same_bits(weights(model), before)
    assert (gs.skipped, gs.repeats) == (1, 1)
    plain = net(1.0)
    train(model, rest, gs)
    train(plain, rest, attach(plain, forward="off"))
    assert_same_bits(weights(model), weights(plain))


def test_exponents_end_when_no_activation_needs_one(monkeypatch):
    monkeypatch.setattr(forward_exponents, "PLAIN_AFTER_STEPS", 3)
    model = net()
    gs = attach(model)
    train(model, data(2), gs)
    with torch.no_grad():
        for block in model.blocks:
            for layer in (block.up, block.gate, block.down):
                layer.weight /= LARGE
    train(model, data(4), gs)
    twin = copy.deepcopy(model)
    train(model, data(2), gs)
    # Deep copies share the scales; this one is to have its own.
    twin.__dict__.pop("forward")
    other = attach(twin, forward="off")
    for x, y in data(1):
        with torch.no_grad():
            loss = F.cross_entropy(twin(x), y)
    assert other.report().activations == [] and torch.isfinite(loss)
    assert "without exponents at present" in str(gs.report())


@pytest.mark.parametrize("late", [False, True])
def test_a_state_goes_on_with_the_same_bits(late):
    whole, model = net(), net()
    train(whole, data(6), attach(whole, deferred=late), by_step=False)
    gs = attach(model, deferred=late)
    train(model, data(6)[:3], gs, by_step=False)
    state = copy.deepcopy(gs.state_dict())
    gs.detach()
    again = attach(model, deferred=late)
    again.load_state_dict(state)
    train(model, data(6)[3:], again, by_step=False)
    assert_same_bits(weights(model), weights(whole))


def test_evaluation_has_the_exponents_and_counts_nothing():
    ends = []
    for evaluates in (False, True):
        model = net()
        gs = attach(model, "gs:interval=1")
        train(model, data(3), gs)
        if evaluates:
            state, x = gs.state_dict(), data(1, seed=9)[0][0]
            twin = Net()
            twin.load_state_dict(model.state_dict())
            model.eval()
            with torch.no_grad():
                found = model(x)
                assert found.isfinite().all() and error([found], [twin(x)]) < 1e-2
                model(x * 64)
            assert gs.state_dict() == state
            model.train()
        train(model, data(2, seed=2), gs)
        ends.append((weights(model), [gs.sites.row(i).count for i in range(len(gs.sites))], gs.sites.exponents.tolist()))
    assert_same_bits(ends[0][0], ends[1][0])
    assert ends[0][1:] == ends[1][1:]


def test_kernels_have_the_bits_of_operators():
    ends = []
    for kernels in (None, KernelStandIns()):
        with on_kernels(kernels):
            model = net()
            gs = attach(model, deferred=True)
            train(model, data(4), gs)
            ends.append((weights(model), gs.sites.exponents.tolist()))
            assert gs.steps + gs.skipped == 4
    assert ends[0][1] == ends[1][1]
    assert_same_bits(ends[0][0], ends[1][0])


@pytest.mark.parametrize(
    "method, forward, says",
    [
        ("gs", "sometimes", "choose 'off', 'repeat' or 'on'"),
        ("gs:forward=on", "repeat", "contains forward= already"),
        ("dynamic", "repeat", "forward"),
        ("gs:paper,interval=1", "repeat", "forward"),
        ("gs:forward=maybe", None, "forward"),
    ],
)
def test_wrong_settings(method, forward, says):
    with pytest.raises(ValueError, match=says):
        attach(net(), method, forward=forward)


def test_a_trace_names_the_activation_and_can_be_replayed(tmp_path):
    model = net()
    gs = attach(model)
    end = gs.start_trace(tmp_path / "run.jsonl")
    train(model, data(2), gs)
    x, y = data(1, seed=4)[0]
    with torch.no_grad():
        model.blocks[0].down.weight.mul_(1024)
    train(model, [(x, y)], gs)
    end()
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    failed = [line["activation"] for line in lines if "activation" in line]
    assert [one["site"] for one in failed] == ["(forward pass)", "blocks.0.down/forward"]
    # In a plain loop the step is skipped, and its line names the activation, too.
    gs.detach()
    gs.attach(model)
    end = gs.start_trace(tmp_path / "loop.jsonl")
    with torch.no_grad():
        model.blocks[1].down.weight.mul_(512)
    train(model, [(x, y)], gs, by_step=False)
    end()
    (line,) = map(json.loads, (tmp_path / "loop.jsonl").read_text().splitlines())
    assert line["skipped"] and line["activation"]["site"] == "blocks.1.down/forward"
    assert all("/forward" not in site["name"] for line in lines for site in line["sites"])
    assert gradscale.replay(tmp_path / "run.jsonl")["repeats"] == 2


def only_halves(x):
    if x.dtype == torch.float32:
        raise RuntimeError("only halves")
    return x * 1


_LIBRARY = torch.library.Library("gradscale_test", "FRAGMENT")
_LIBRARY.define("only_halves(Tensor x) -> Tensor")
_LIBRARY.impl("only_halves", only_halves, "CPU")
_LIBRARY.impl("only_halves", lambda x: torch.empty_like(x), "Meta")


class HalfKernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.ops.gradscale_test.only_halves(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Address(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        assert x.untyped_storage().data_ptr()
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class WithFunction(Net):
    function = HalfKernel

    def forward(self, x):
        x = self.first(x)
        x = self.function.apply(x.half())
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def test_kernels_for_halves_alone_have_no_exponent():
    model = net(make=WithFunction)
    gs = attach(model)
    train(model, data(3), gs)
    assert gs.steps == 3 and "only_halves" in gs.report().without_exponents
    assert "exist only in half: only_halves" in str(gs.report())


def test_a_model_that_reads_addresses_trains_as_before():
    model = net(1.0, WithFunction)
    model.function = Address
    gs = attach(model)
    x, y = data(1)[0]
    with pytest.warns(UserWarning, match="cannot run with exponents of activations"):
        train(model, [(x * torch.inf, y)], gs)
    train(model, data(2), gs)
    assert (gs.steps, gs.skipped) == (2, 1)


def rank_overflows(rank, port):
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    model = net(1.0)
    gs = attach(model)
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for i, (x, y) in enumerate(data(3, seed=rank)):

        def closure(x=x * (2.0**17 if rank and i == 1 else 1.0), y=y):
            optimizer.zero_grad()
            loss = F.cross_entropy(parallel(x), y)
            loss.backward()
            return loss

        gs.step(closure, optimizer)
    assert (gs.steps, gs.repeats, gs.skipped) == (3, 1, 0), (rank, gs)
    # Weights' gradients are infinite on both ranks; only one finds an activation that needs an exponent.
    assert any(site["exponent"] < 0 for site in gs.report().activations) == bool(rank)
    ours = torch.cat([w.flatten() for w in weights(model)])
    both = ranks.all_gather(ours)
    assert torch.equal(both[0], both[1])
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available() or not torch.distributed.is_gloo_available(), reason="needs gloo")
def test_all_ranks_repeat_an_overflow_of_one():
    run_ranks(rank_overflows, 31500 + os.getpid() % 400)
