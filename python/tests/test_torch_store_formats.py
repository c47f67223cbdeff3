"""Trainings whose stores are in formats of 8 bits, against PyTorch's own casts."""

import contextlib
import copy
import json

import gradscale
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from gradscale.torch import GradScaler, GradientScaling, attach, stores  # noqa: E402
from test_torch_modules import LAYERS, compare  # noqa: E402
from torch_models import (  # noqa: E402
    KernelStandIns,
    NoReads,
    batches,
    cross_entropy,
    error,
    network,
    on_kernels,
    train_on_small_losses,
    trained_late,
)

torch.set_num_threads(1)
TYPES = {"e5m2": torch.float8_e5m2, "e4m3": torch.float8_e4m3fn}
#: Largest number, smallest normal number.
BOUNDS = {"e5m2": (57344.0, 2.0**-14), "e4m3": (448.0, 2.0**-6)}


def in_format(u, name):
    """Returns f32 values rounded to a format by PyTorch; NaN where they are too large for it, because PyTorch clips some."""
    top, _ = BOUNDS[name]
    y = u.to(TYPES[name]).float()
    return torch.where((u.abs() > top * (1 + 2.0 ** -(3 if name == "e5m2" else 5))) & (y.abs() <= top), torch.nan, y)


@contextlib.contextmanager
def watched(gs):
    """Context in which the stores of a training are collected: name of the site, values at its exponent, halves."""
    seen, store = [], stores.Host.store

    def recorded(self, x, start, slot, kept=None):
        halves = store(self, x, start, slot, kept)
        seen.append((gs.sites.names[slot], stores.Host.scaled(x, start, self.exponent(slot)).clone(), halves.clone()))
        return halves

    stores.Host.store = recorded
    try:
        yield seen
    finally:
        stores.Host.store = store


def trained(name, method, steps=60, rate=0.1, of=4, factor=lambda step: 1.0, deferred=None):
    """Trains on some batches again and again, with step(). Returns the model, its scaling and the losses."""
    model = network(name)
    gs = attach(model, method, deferred=deferred) if method else None
    optimizer, data, losses = torch.optim.SGD(model.parameters(), rate), list(batches(name, of)), []
    for step in range(steps):
        x, y = data[step % of]

        def closure():
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            (loss * factor(step)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            return loss

        if gs is None:
            losses.append(closure().item())
            optimizer.step()
        else:
            losses.append(gs.step(closure, optimizer).item())
    return model, gs, losses


@pytest.mark.parametrize("name", LAYERS)
def test_every_module_in_eight_bits(name):
    # Of values that E4M3 makes equal, overlapping windows choose another one.
    within = 0.6 if name == "MaxPool2d, overlapping" else 0.16
    compare(name, 2, -24, 0, method="gs:grad=e5m2,act=e4m3,weight=e4m3", within=within)


@pytest.mark.parametrize("name", ["mlp", "conv", "transformer"])
@pytest.mark.parametrize("method", ["gs:grad=e5m2,act=e4m3,weight=e4m3", "gs:format=e5m2", "amax:margin=1,grad=e4m3"])
def test_stored_values_are_those_of_torchs_casts_and_so_are_the_counts(name, method):
    model = network(name)
    gs = attach(model, method)
    data = list(batches(name, 3))
    for x, y in data[:2]:
        cross_entropy(model(x), y).backward()
        gs.update()
    with watched(gs) as seen:
        cross_entropy(model(data[2][0]), data[2][1]).backward()
    formats = dict(zip(gs.sites.names, gs.sites.formats))
    gs.update()
    kinds = {kind: {site["name"] for site in gs.sites.report(kind)} for kind in ("site", "forward", "weight")}
    options = dict(part.split("=") for part in method.partition(":")[2].split(","))
    for kind, option in (("site", "grad"), ("forward", "act"), ("weight", "weight")):
        expected = options.get(option, options.get("format", "fp16"))
        assert {formats[name] for name in kinds[kind]} <= {expected} and (kinds[kind] or expected == "fp16")
    totals = {}
    for site, u, halves in seen:
        if formats[site] == "fp16":
            assert torch.equal(halves, u.half())
            continue
        expected = in_format(u, formats[site])
        assert halves.dtype == torch.float16 and torch.equal(halves.float().nan_to_num(1e9), expected.nan_to_num(1e9))
        total, size = totals.setdefault(site, [0] * 4), halves.float().abs()
        nonzero = u != 0
        for i, part in enumerate((nonzero, nonzero & (size == 0), (size > 0) & (size < BOUNDS[formats[site]][1]), ~size.isfinite())):
            total[i] += int(part.sum())
    assert len(totals) >= 4
    for site, (nonzero, flushed, subnormal, overflowed) in totals.items():
        row = gs.sites.row(gs.sites.index(site))
        assert row.format == formats[site]
        assert (row.nonzero, row.flushed, row.subnormal, row.overflowed) == (nonzero, flushed, subnormal, overflowed), site


@pytest.mark.parametrize(
    ("name", "method"),
    [("conv", "gs:format=e5m2")]
    + [("mlp", method) for method in ("gs:format=e5m2", "gs:format=e4m3", "gs:grad=e5m2,act=e4m3", "amax:margin=1,format=e5m2")],
)
def test_networks_learn(name, method):
    """As far as in f32, within what 3 or 4 significant bits change."""
    _, _, true = trained(name, None)
    model, gs, losses = trained(name, method)
    assert gs.steps == 60 and gs.skipped == 0
    assert np.mean(true[-4:]) < np.mean(true[:4]) - 0.05
    assert abs(np.mean(losses[-4:]) - np.mean(true[-4:])) < 0.04
    # They do not compute the same: the formats are in force.
    assert max(abs(a - b) for a, b in zip(losses, true)) > 1e-4
    assert all(p.dtype == torch.float32 and p.isfinite().all() for p in model.parameters())


def test_fp16_is_the_default_bit_for_bit():
    (one, _, a), (other, _, b) = trained("conv", "gs", 8), trained("conv", "gs:format=fp16", 8)
    assert a == b and all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))


@pytest.mark.parametrize("method", ["gs:grad=e4m3", "gs:grad=e5m2,act=e4m3"])
def test_what_saturates_is_repeated(method):
    """A loss 2^30 times the others in one step; nothing is clipped, and no batch is lost."""
    _, gs, losses = trained("mlp", method, 12, factor=lambda step: 2.0**30 if step == 7 else 1.0)
    assert (gs.steps, gs.skipped) == (12, 0) and gs.repeats >= 1 and all(np.isfinite(losses))
    blamed = gs.report().non_finite
    assert sum(kinds["overflow"] for kinds in blamed.values()) == gs.repeats and not any(kinds["nan"] for kinds in blamed.values())
    true = trained("mlp", None, 12)[2]
    assert abs(losses[-1] - true[-1]) < 0.04


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("method", ["gs:grad=e5m2", "amax:history=16,grad=e4m3"])
def test_what_saturates_is_skipped_without_a_closure(method, late):
    model = network("mlp")
    gs = attach(model, method, deferred=late)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    gs.guard(optimizer)
    for step, (x, y) in enumerate(batches("mlp", 8)):
        before = [p.clone() for p in model.parameters()]
        optimizer.zero_grad()
        (cross_entropy(model(x), y) * (2.0**30 if step == 4 else 1.0)).backward()
        optimizer.step()
        gs.update()
        if step == 4:
            assert all(map(torch.equal, before, model.parameters()))
    assert gs.skipped >= 1 and all(p.isfinite().all() for p in model.parameters())


def test_activations_that_saturate_are_repeated():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    gs = attach(model, "gs:format=e4m3")
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x, y = torch.randn(16, 8), torch.arange(16) % 4
    for step in range(4):

        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x * (2.0**12 if step == 2 else 1.0)), y)
            loss.backward()
            return loss

        loss = gs.step(closure, optimizer)
        assert loss.isfinite()
    assert (gs.steps, gs.skipped) == (4, 0) and gs.repeats >= 1
    assert gs.report().non_finite["0/input/forward"]["overflow"] >= 1
    # An evaluation cannot repeat a batch, so its stores lower their exponents themselves.
    model.eval()
    with torch.no_grad():
        small, large = model(x), model(x * 2.0**20)
    assert large.isfinite().all() and float((large / 2.0**20).norm() / small.norm()) > 0.5
    assert gs.steps == 4


def test_an_evaluation_before_any_training():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    x = torch.randn(16, 8) * 1e-3
    with torch.no_grad():
        true = model(x)
        gs = attach(model.eval(), "gs:format=e4m3")
        out = model(x)
    assert 0 < error([out], [true]) < 0.1 and len(gs.sites) == 0


@pytest.mark.parametrize("minus", [-torch.inf, -1e4])
def test_masks(minus):
    """±∞ of a mask is kept in E4M3, which has none."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.v = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            scores = self.q(x) @ x.transpose(-1, -2)
            hidden = ~torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            return scores.masked_fill(hidden, minus).softmax(-1) @ self.v(x)

    torch.manual_seed(0)
    model, x = Masked(), torch.randn(2, 5, 8)
    true = copy.deepcopy(model)(x)
    gs = attach(model, "gs:grad=e5m2,act=e4m3")
    for _ in range(3):
        out = model(x)
        out.square().mean().backward()
        assert gs.update().stepped
    assert out.isfinite().all() and error([out.detach()], [true.detach()]) < (0.1 if minus == -torch.inf else 1.0)


@pytest.mark.parametrize("late", [False, True])
def test_a_state_goes_on_with_the_same_bits(late):
    def begin(method="gs:interval=2,format=e5m2"):
        model = network("conv")
        gs = attach(model, method, deferred=late)
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        gs.guard(optimizer)
        return model, gs, optimizer

    data = list(batches("conv", 8))
    one = begin()
    train_on_small_losses(*one, data[:5])
    saved = copy.deepcopy([part.state_dict() for part in one])
    train_on_small_losses(*one, data[5:])
    two = begin()
    for part, state in zip(two, copy.deepcopy(saved)):
        part.load_state_dict(state)
    train_on_small_losses(*two, data[5:])
    assert all(map(torch.equal, one[0].state_dict().values(), two[0].state_dict().values()))
    assert one[1].state_dict() == two[1].state_dict()
    assert set(two[1].sites.formats) == {"e5m2"}
    # The formats are those of the state, as all of the method is.
    three = begin("gs:interval=2")
    for part, state in zip(three, saved):
        part.load_state_dict(state)
    train_on_small_losses(*three, data[5:])
    assert all(map(torch.equal, one[0].state_dict().values(), three[0].state_dict().values()))


def test_a_state_in_other_formats_is_loaded_in_the_middle():
    def step(model, gs, batch):
        model.zero_grad()
        cross_entropy(model(batch[0]), batch[1]).backward()
        assert gs.update().stepped

    saved = []
    for method in ("gs:grad=e5m2,forward=off", "gs:forward=off"):
        model = network("mlp")
        gs = attach(model, method)
        data = list(batches("mlp", 3))
        step(model, gs, data[0])
        saved.append((gs.state_dict(), model, gs))
    (state, _, _), (_, model, gs) = saved
    gs.load_state_dict(state)
    for batch in data[1:]:
        step(model, gs, batch)
    assert {gs.sites.row(i).format for i in range(len(gs.sites))} == {"e5m2"}


def test_each_forward_pass_stores_its_weights():
    """Also under an autocast of the caller's, whose cache would keep the copies of weights."""
    model = network("mlp")
    gs = attach(model, "gs:weight=e4m3")
    with torch.autocast("cpu", torch.float16):
        for x, y in batches("mlp", 2):
            cross_entropy(model(x), y).backward()
        gs.update()
    row = gs.sites.row(gs.sites.index("0.weight/forward"))
    assert row.count == 2 * model[0].weight.numel() and row.format == "e4m3"
    assert {site["format"] for site in gs.report().activations} == {"fp16"}


def test_writes_into_an_activation_stay_in_its_format():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def forward(self, x):
            self.kept = self.layer(x).detach()
            return self.layer(x)

    torch.manual_seed(0)
    model = Keeps()
    gs = attach(model, "gs:act=e4m3")
    model(torch.randn(16, 8)).sum().backward()
    model.kept.mul_(1.1)
    halves = model.kept.halves()
    assert halves.dtype == torch.float16 and torch.equal(halves.float(), in_format(halves.float(), "e4m3"))
    gs.update()


@pytest.mark.parametrize("forward", ["", ",act=e4m3,weight=e4m3"])
def test_devices_have_the_same_bits(forward):
    """Stores by PyTorch's operators, and by stand-ins for the kernels of a GPU."""
    method = f"gs:interval=1,grad=e5m2{forward}"
    expected = trained_late("transformer", 3, method)
    launched = KernelStandIns()
    with on_kernels(launched):
        weights, *rest = trained_late("transformer", 3, method)
    assert launched.counts["store_values"] > 20
    assert rest == list(expected[1:]) and all(map(torch.equal, weights, expected[0]))
    assert {row[281] for row in rest[0].values()} == ({1, 2} if forward else {1})


def test_compiled_with_the_same_bits():
    def train(compiled):
        torch._dynamo.reset()
        model = network("mlp")
        gs = attach(model, "gs:interval=2,grad=e4m3")
        forward = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for x, y in batches("mlp", 4):
            optimizer.zero_grad()
            cross_entropy(forward(x), y).backward()
            optimizer.step()
            assert gs.update().stepped
        return [p.detach() for p in model.parameters()], {name: gs.sites.row(i) for i, name in enumerate(gs.sites.names)}

    (a, rows), (b, others) = train(True), train(False)
    assert rows == others and {row.format for row in rows.values()} == {"e4m3"} and all(map(torch.equal, a, b))
    model = network("mlp")
    attach(model, "gs:format=e4m3")
    with pytest.raises(Exception, match="a compiled model stores activations and weights as plain halves"):
        torch.compile(model, backend="aot_eager", fullgraph=True)(torch.randn(4, 12))


def test_no_step_waits_for_the_device():
    model = network("mlp")
    gs = attach(model, "gs:format=e4m3", deferred=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, fused=True)
    gs.guard(optimizer)
    for step, (x, y) in enumerate(batches("mlp", 5)):
        optimizer.zero_grad()
        # Sites decide in the first step, and read their values for it.
        with NoReads() if step > 1 else contextlib.nullcontext():
            cross_entropy(model(x), y).backward()
            optimizer.step()
        gs.update()
    assert gs.steps == 4


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_changes_no_bit(reentrant):
    from torch.utils.checkpoint import checkpoint

    class Twice(nn.Module):
        def __init__(self, again):
            super().__init__()
            self.again, self.first, self.second = again, network("mlp")[:4], nn.Linear(32, 5)

        def forward(self, x):
            return self.second(checkpoint(self.first, x, use_reentrant=reentrant) if self.again else self.first(x))

    results = []
    for again in (False, True):
        torch.manual_seed(0)
        model = Twice(again)
        gs = attach(model, "gs:grad=e5m2,act=e4m3,weight=e4m3")
        for x, y in batches("mlp", 3):
            model.zero_grad()
            F.cross_entropy(model(x.requires_grad_()), y).backward()
            assert gs.update().stepped
        results.append([p.grad for p in model.parameters()])
    assert all(map(torch.equal, *results))


def test_reports_and_traces_name_the_format(tmp_path):
    model = network("mlp")
    gs = attach(model, "gs:interval=1,grad=e5m2,act=e4m3")
    end = gs.start_trace(tmp_path / "trace.jsonl")
    for x, y in batches("mlp", 3):
        cross_entropy(model(x), y).backward()
        gs.update()
    end()
    report = gs.report()
    assert {site["format"] for site in report.sites} == {"e5m2"} and {site["format"] for site in report.activations} == {"e4m3"}
    assert report.weights == [] and "site (e5m2) " in str(report) and "activation (e4m3) " in str(report)
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert "grad=e5m2" in lines[0]["method"] and {site["format"] for line in lines for site in line["sites"]} == {"e5m2"}
    # A replay by the same method decides the same, and by another one counts in its format.
    names = [site["name"] for site in lines[0]["sites"]]
    same, half, four = (gradscale.replay(tmp_path / "trace.jsonl", method) for method in (None, "gs:interval=1", "gs:interval=1,grad=e4m3"))
    for line, step in zip(lines, same["steps"], strict=True):
        assert [(site["exponent"], site["next"]) for site in step["sites"]] == [(site["exponent"], site["next"]) for site in line["sites"]]
    for index, name in enumerate(names):
        row = gs.sites.row(gs.sites.index(name))
        assert same["steps"][-1]["sites"][index]["flushed"] == row.flushed / row.nonzero
        assert same["steps"][-1]["sites"][index]["subnormal"] == row.subnormal / row.nonzero
        assert half["sites"][name]["flushed_worst"] == 0.0
    assert max(site["subnormal"] for site in four["sites"].values()) > max(site["subnormal"] for site in half["sites"].values())
    plain = attach(network("mlp")).report()
    assert "(" not in str(plain).splitlines()[1]


def test_biases_and_f32_layers_stay_as_they_are():
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.norm, self.head = nn.Embedding(7, 8), nn.LayerNorm(8), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.norm(self.words(x)))

    model = Layers()
    gs = attach(model, "gs:format=e4m3")
    model(torch.arange(7)).sum().backward()
    gs.update()
    assert [site["name"] for site in gs.report().weights] == ["head.weight/forward"]
    assert "weight (e4m3) " in str(gs.report())


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("gs:format=e3m4", "format must be fp16, e5m2 or e4m3, not e3m4"),
        ("dynamic:format=e5m2", "needs a scale for each store"),
        ("gs:paper,format=e5m2", "does not go with gs:paper"),
        ("gs:act=e4m3,forward=off", "leave forward out"),
        ("gs:history=least,act=e4m3", "history=ring"),
        ("amax:margin=16,format=e4m3", "margin"),
    ],
)
def test_methods_that_cannot_have_one_say_so(method, says):
    for make in (gradscale.Sites, GradientScaling):
        with pytest.raises(ValueError, match=says) as caught:
            make(method)
        assert "\n" not in str(caught.value)


def test_other_ways_without_8_bits_say_so():
    from gradscale.torch import ddp

    with pytest.raises(ValueError, match="this communication hook sends halves"):
        ddp.ScaledFp16State("gs:format=e5m2")
    model = nn.Linear(3, 2)
    for scaling in (GradientScaling("gs:format=e5m2"), GradScaler("cpu", method="gs:act=e4m3").scaling):
        with torch.autocast("cpu", torch.float16), pytest.raises(ValueError, match=r"call attach\(model\), or use grad= alone"):
            scaling.scale(model(torch.ones(1, 3)).sum())
    gs = GradScaler("cpu", method="gs:grad=e5m2")
    with torch.autocast("cpu", torch.float16):
        loss = model(torch.ones(1, 3)).sum()
    gs.scale(loss).backward()
    assert gs.scaling.sites.formats == ["e5m2"]

    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            y = self.layer(x)
            y.data_ptr()
            return y

    model = Reads()
    attach(model, "gs:format=e4m3")
    with pytest.raises(RuntimeError, match="this model cannot store activations or weights in 8 bits .*: use grad= alone"):
        model(torch.ones(1, 3))
    # A row that was counted in another format is refused by name.
    sites = gradscale.Sites("gs:grad=e5m2", ["layer"])
    assert sites.formats == ["e5m2"]
    with pytest.raises(ValueError, match='layer stores in e5m2, but its row was counted in fp16; pass format="e5m2"'):
        sites.decide(0, gradscale.observe([1.0]))
    sites.decide(0, gradscale.observe([1.0], format="e5m2"))
    _, row = gradscale.store([1.0], sites.exponents[0], format="e4m3")
    with pytest.raises(ValueError, match="its row was counted in e4m3"):
        sites.finish(row.to_words()[None], found_inf=False)
    _, row = gradscale.store([1.0], sites.exponents[0], format="e5m2")
    assert sites.finish(row.to_words()[None], found_inf=False).stepped and sites.row(0).format == "e5m2"
