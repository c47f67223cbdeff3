"""Attached models under ``torch.compile``: the bits of eager training, from a backward pass that is compiled once."""

import copy
import os
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402

from gradscale.torch import GradScaler, attach  # noqa: E402
from test_torch_modules import LAYERS, compare  # noqa: E402
from torch_models import batches, cross_entropy, error, exact, network  # noqa: E402

torch.set_num_threads(1)
#: Everything: takes minutes.
ALL = os.environ.get("GRADSCALE_ALL")


@pytest.fixture(autouse=True)
def afresh():
    torch._dynamo.reset()


def train(name, compiled, late=False):
    """Seven steps, one of which overflows and one has a NaN: weights, exponents, rows, counts."""
    model = network(name)
    gs = attach(model, "gs:interval=2", deferred=late)
    forward = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for step, (x, y) in enumerate(batches(name, 7)):
        runs = []

        def closure():
            runs.append(0)
            optimizer.zero_grad()
            loss = cross_entropy(forward(x), y) * [2.0**-30, 2.0**10, float("nan")][(step == 3) + 2 * (step == 5)]
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            return loss

        # Values that change from step to step are data, so nothing is compiled again.
        with torch._dynamo.config.patch(error_on_recompile=step > 0):
            gs.step(closure, optimizer)
        assert len(runs) == 1 + (step == 3)
    rows = {name: gs.sites.row(i) for i, name in enumerate(gs.sites.names)}
    exponents = dict(zip(gs.sites.names, gs.sites.exponents.tolist()))
    return [p.detach() for p in model.state_dict().values()], exponents, rows, (gs.steps, gs.repeats, gs.skipped)


@pytest.mark.parametrize("name", ["mlp", "conv", "transformer"] if ALL else ["conv"])
def test_compiled_once_and_the_same_bits(name):
    eager, compiled = train(name, False), train(name, True)
    assert eager[3] == compiled[3] == (6, 1, 1)
    assert eager[1] == compiled[1] and eager[2] == compiled[2]
    assert all(torch.equal(a, b) for a, b in zip(eager[0], compiled[0]))


def test_rows_that_come_late():
    eager, compiled = train("mlp", False, True), train("mlp", True, True)
    assert eager[1:] == compiled[1:] and all(torch.equal(a, b) for a, b in zip(eager[0], compiled[0]))


@pytest.mark.parametrize("name", LAYERS if ALL else ["MultiheadAttention"])
def test_modules_compiled(name):
    """Against f64, and bit for bit against the eager model, except for recurrent layers, whose sums a compiler
    writes out."""
    with torch._dynamo.config.patch(allow_rnn=True):
        eager, compiled = compare(name, 2, -24, 0), compare(name, 2, -24, 0, compiled=True)
    if name[:3] in ("RNN", "LST", "GRU"):
        assert error(compiled, eager) < 1e-3
    else:
        assert all(torch.equal(a, b) for a, b in zip(eager, compiled))


@pytest.mark.skipif(not ALL, reason="takes a minute: python/test.sh --all")
@pytest.mark.parametrize("name", ["mlp", "conv", "transformer"])
def test_inductor(name):
    """Inductor's kernels add in another order."""
    model = network(name)
    x, y = next(batches(name, 1))
    wide = x.double() if x.is_floating_point() else x
    true = exact(model, lambda m: cross_entropy(m(wide), y) * 2.0**-30)
    gs = attach(model)
    forward = torch.compile(model, fullgraph=True)
    for step in range(3):
        model.zero_grad()
        with torch._dynamo.config.patch(error_on_recompile=step > 0):
            (cross_entropy(forward(x), y) * 2.0**-30).backward()
        if name != "conv" or step == 0:
            assert error([p.grad for p in model.parameters()], true) < 3e-3
        assert gs.update().stepped


def test_a_loss_inside_of_the_graph():
    """The whole of a step's forward pass as one function; and a layer that is called in two graphs of one pass."""

    def gradients(compile):
        model = network("mlp")
        gs = attach(model)
        loss_of = compile(lambda x, y: cross_entropy(model(x), y) * 2.0**-30)
        for (x, y), (u, v) in zip(batches("mlp", 2), batches("mlp", 2, seed=1)):
            model.zero_grad()
            (loss_of(x, y) + loss_of(u, v)).backward()
            assert gs.update().stepped
        return [p.grad for p in model.parameters()], gs.sites.names

    eager = gradients(lambda f: f)
    compiled = gradients(lambda f: torch.compile(f, backend="aot_eager", fullgraph=True))
    assert eager[1] == compiled[1] and all(torch.equal(a, b) for a, b in zip(eager[0], compiled[0]))
    # A backend that compiles no backward pass.
    forward_alone = gradients(lambda f: torch.compile(f, backend="eager"))
    assert eager[1] == forward_alone[1] and all(torch.equal(a, b) for a, b in zip(eager[0], forward_alone[0]))


def test_detached_and_attached_again():
    model = network("mlp")
    (x, y), = batches("mlp", 1)
    plain = copy.deepcopy(model)
    cross_entropy(plain(x), y).backward()
    gs = attach(model)
    compiled = torch.compile(model, backend="aot_eager")
    cross_entropy(compiled(x), y).backward()
    gs.update()
    gs.detach()
    model.zero_grad()
    cross_entropy(compiled(x), y).backward()
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), plain.parameters()))


class Breaks(nn.Module):
    """A model whose graph the compiler breaks in the middle, each way for another reason."""

    def __init__(self, kind):
        super().__init__()
        self.a, self.b, self.kind = nn.Linear(12, 8), nn.Linear(8, 5), kind

    def forward(self, x):
        x = self.a(x)
        if self.kind == "a print":
            print("in the model")
        elif self.kind == "a branch":
            if x.sum() > 0:
                x = 2 * x
        elif self.kind == "a number":
            x = x * x.sum().item()
        elif self.kind == "an unsupported call":
            x = x + len(os.listdir("."))
        elif self.kind == "a disabled function":
            x = eager_only(x)
        return self.b(x)


@torch.compiler.disable
def eager_only(x):
    return 2 * x


#: Breaks of a graph, and the line at which the error is to point.
BREAKS = {
    "a print": r"print\(",
    "a branch": r"if x\.sum\(\) > 0:",
    "a number": r"x \* x\.sum\(\)\.item\(\)",
    "an unsupported call": r"len\(os\.listdir",
    "a disabled function": r"eager_only\(x\)",
}


@pytest.mark.parametrize("kind", BREAKS if ALL else list(BREAKS)[:2] + ["an unsupported call"])
def test_graph_breaks_are_refused_with_their_line(kind):
    """Nothing has run when the error appears, so no gradient is unscaled; without torch.compile the same model
    trains."""
    (x, y), = batches("mlp", 1)
    model = Breaks(kind)
    gs = attach(model)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=rf"(?s)test_torch_compile\.py\", line \d+, in forward\n +[^\n]*{BREAKS[kind]}"):
        torch.compile(model, backend="aot_eager")(x)
    assert gs.update() is None and all(p.grad is None for p in model.parameters())
    cross_entropy(model(x), y).backward()
    assert gs.update().stepped and all(p.grad.abs().max() > 0 for p in model.parameters())


def test_a_graph_may_break_outside_of_the_model():
    """A step that is compiled whole and prints its loss: the model is in one graph, so its gradients are scaled."""
    (x, y), = batches("mlp", 1)
    model = network("mlp")
    (cross_entropy(model(x), y) * 2.0**-36).backward()
    true = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    gs = attach(model)

    @torch.compile(backend="aot_eager")
    def loss_of(x, y):
        print("before")
        out = model(x)
        print("after")
        return cross_entropy(out, y) * 2.0**-36

    loss_of(x, y).backward()
    assert error([p.grad for p in model.parameters()], true) < 3e-3 and gs.update().stepped


@pytest.mark.parametrize("capability", ["AVX2", "AVX512"])
def test_a_compiled_model_that_never_steps(monkeypatch, capability):
    """A known error of Inductor is named; not every machine has shown it."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    model, (x, y) = network("mlp"), next(batches("mlp", 1))
    gs = attach(model)
    (cross_entropy(torch.compile(model, backend="aot_eager")(x), y) * float("nan")).backward()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gs.update()
    assert any("ATEN_CPU_CAPABILITY=avx2" in str(w.message) for w in caught) == (capability == "AVX512")


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM] if ALL else [nn.GRU])
def test_recurrent_layers_compile(kind):
    """Without an option for the compiler."""

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = kind(12, 6, batch_first=True), nn.Linear(6, 3)

        def forward(self, x):
            return self.b(self.a(x)[0])

    torch.manual_seed(0)
    model, x = Recurrent(), torch.randn(2, 3, 12)
    (model(x).square().mean() * 2.0**-30).backward()
    true = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    gs = attach(model)
    (torch.compile(model, backend="aot_eager")(x).square().mean() * 2.0**-30).backward()
    assert error([p.grad for p in model.parameters()], true) < 3e-3 and gs.update().stepped


def test_what_cannot_be_compiled_is_refused_in_words():
    (x, y), = batches("mlp", 1)
    model = network("mlp")
    attach(model)
    with pytest.raises(RuntimeError, match="input that wants a gradient is torch.float16"):
        torch.compile(model, backend="aot_eager")(x.half().requires_grad_())
    # Compiled before: its backward pass knows of no exponents.
    compiled, scaler = torch.compile(network("mlp"), backend="aot_eager"), GradScaler("cpu")
    with torch.autocast("cpu", torch.float16):
        loss = cross_entropy(compiled(x), y)
    with pytest.raises(RuntimeError, match=r"first attach\(model\), then torch.compile"):
        scaler.scale(loss).backward()
    model = network("mlp")
    attach(model, "gs:paper")
    with pytest.raises(RuntimeError, match="gs:paper decides from the operands"):
        torch.compile(model, backend="aot_eager")(x)
