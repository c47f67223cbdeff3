"""Diagnosis of a model that trains in any precision, against casts of PyTorch's own, and the watch over torch's loss scale."""

import collections
import copy
import dataclasses
import html.parser
import pickle
import random
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from gradscale.torch import GradScaler, LossScaleWarning, attach, diagnose, watch  # noqa: E402
from gradscale.torch.diagnosis import TEXT_WIDTH  # noqa: E402

torch.set_num_threads(1)


def lost(x, format, scale):
    """Flushed and overflowed values of `x` by casts of PyTorch's, or by the limits of the format for other scales than powers of two."""
    x = x.detach().double() * scale
    smallest, largest = {"fp16": (2.0**-25, 65520.0), "e5m2": (2.0**-17, 61440.0), "e4m3": (2.0**-10, 464.0)}[format]
    flushed = (x != 0) & (x.abs() <= smallest)
    # The middle between the two largest goes to the even one: infinity for FP16 and E5M2, 448 for E4M3.
    overflowed = x.abs() > largest if format == "e4m3" else x.abs() >= largest
    if np.log2(scale).is_integer():
        dtype = {"fp16": torch.float16, "e5m2": torch.float8_e5m2, "e4m3": torch.float8_e4m3fn}[format]
        y = x.float().to(dtype).float()
        assert torch.equal(flushed, (x != 0) & (y == 0))
        # torch's cast to E4M3 saturates, or is NaN in older ones.
        assert torch.equal(overflowed, ~y.isfinite()) or format == "e4m3"
    return int(flushed.sum()), int(overflowed.sum())


def counted(values):
    return {(format, scale): (loss.flushed, loss.overflowed) for format, losses in values.casts.items() for scale, loss in losses.items()}


def assert_counts(values, x, scales):
    x = torch.cat([part.detach().flatten() for part in x])
    assert (values.count, values.nonzero, values.non_finite) == (x.numel(), int((x != 0).sum()), 0)
    assert values.amax == float(x.abs().max())
    assert counted(values) == {(f, name): lost(x, f, scale) for f in ("fp16", "e5m2", "e4m3") for name, scale in scales.items()}


class Net(nn.Module):
    """A block that is called twice, a residual sum, an activation in place, a frozen layer, tied weights, and a layer without
    gradient."""

    def __init__(self):
        super().__init__()
        self.embed, self.frozen, self.block = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True))
        self.head, self.unused = nn.Linear(8, 9, bias=False), nn.Linear(8, 1)
        self.head.weight = self.embed.weight
        self.frozen.requires_grad_(False)

    def forward(self, x):
        h = self.embed(x)
        with torch.no_grad():
            self.unused(self.frozen(h))
        h = h + self.block(h)
        return self.head(h + 2.0**-6 * self.block(h))

    def gradients(self, x, factor):
        """The same written out, with the gradients of what each module returns."""
        embed, (linear, _) = self.embed(x), self.block
        a1 = linear(embed)
        h1 = F.relu(a1)
        h = embed + h1
        a2 = linear(h)
        h2 = F.relu(a2)
        out = F.linear(h + 2.0**-6 * h2, self.embed.weight)
        loss = factor * F.cross_entropy(out.flatten(0, 1), x.flatten())
        names = ["embed.weight", "block.0.weight", "block.0.bias"]
        tensors = [embed, a1, a2, h1, h2, out, self.embed.weight, linear.weight, linear.bias]
        g = torch.autograd.grad(loss, tensors)
        outputs = {"embed": g[:1], "block.0": g[1:3], "block.1": g[3:5], "head": g[5:6]}
        return loss, outputs, dict(zip(names, ([x] for x in g[6:])))


def net(seed=0):
    torch.manual_seed(seed)
    return Net()


def words():
    return torch.randint(0, 9, (4, 6), generator=torch.Generator().manual_seed(1))


#: A loss whose gradients have small and large values at each of the scales.
FACTOR = 2.0**-9


def loss_of(model, x):
    return FACTOR * F.cross_entropy(model(x).flatten(0, 1), x.flatten())


@pytest.mark.parametrize("running", [None, 2.0**30, 1000.0])
def test_counts_are_those_of_casts(running):
    model, x = net(), words()
    found = diagnose(model, loss_of, x, scale=running, window=False)
    scales = {"1": 1.0, "2^16": 2.0**16, **({} if running is None else {"running": running})}
    loss, outputs, parameters = model.gradients(x, FACTOR)
    assert found.scales == scales and found.loss == pytest.approx(loss.item(), rel=1e-6)
    assert {layer.name for layer in found.layers if layer.gradient} == set(outputs) and set(found.parameters) == set(parameters)
    for layer in found.layers:
        if layer.gradient:
            assert_counts(layer.gradient, outputs[layer.name], scales)
    for name, values in found.parameters.items():
        assert_counts(values, parameters[name], scales)
    names = [layer.name for layer in found.layers]
    assert names == ["embed", "frozen", "unused", "block.0", "block.1", "head"]
    by_name = {layer.name: layer for layer in found.layers}
    assert (by_name["block.0"].calls, by_name["head"].calls, by_name["frozen"].gradient) == (2, 1, None)
    assert by_name["embed"].output_amax == float(model.embed(x).detach().abs().max()) and by_name["embed"].kind == "Embedding"
    # The sum over all, and both kinds of losses occur.
    loss, whole = found.total("e5m2", "2^16")
    each = [layer.gradient for layer in found.layers if layer.gradient]
    assert (loss.flushed, whole) == (sum(v.casts["e5m2"]["2^16"].flushed for v in each), sum(v.nonzero for v in each))
    everything = [pair for v in [*each, *found.parameters.values()] for pair in counted(v).values()]
    assert any(flushed for flushed, _ in everything) and (running != 2.0**30 or any(over for _, over in everything))


class Autocast(nn.Module):
    def __init__(self, inner, dtype):
        super().__init__()
        self.inner, self.dtype = inner, dtype

    def forward(self, x):
        with torch.autocast("cpu", dtype=self.dtype):
            return self.inner(x)


def test_the_precision_in_which_a_model_trains_does_not_matter():
    x = words()
    plain = diagnose(net(), loss_of, x, window=False)
    attached, guarded = net(), net()
    attach(attached)
    with torch.no_grad():
        rounded = net()
        for p in rounded.parameters():
            p.copy_(p.bfloat16())
    cases = {
        "float16 in the loss function": (net(), lambda m, x: _cast(loss_of, torch.float16, m, x), plain),
        "bfloat16 inside": (Autocast(net(), torch.bfloat16), loss_of, plain),
        "attached": (attached, loss_of, plain),
        "compiled": (torch.compile(net(), backend=_refuse), loss_of, plain),
        "a compiled part": (_compiled_part(), loss_of, plain),
        "DataParallel": (nn.DataParallel(guarded), loss_of, plain),
        "weights in bfloat16": (rounded.bfloat16(), loss_of, diagnose(_rounded(), loss_of, x, window=False)),
    }
    for case, (model, loss, expected) in cases.items():
        found = diagnose(model, loss, x, window=False)
        assert found.loss == expected.loss, case
        assert [layer.gradient for layer in found.layers if layer.gradient] == [layer.gradient for layer in expected.layers if layer.gradient], case
        assert list(found.parameters.values()) == list(expected.parameters.values()), case
    # The attached model trains on.
    loss_of(attached, x).backward()
    assert attached.embed.weight.grad.abs().sum() > 0
    assert {p.dtype for p in rounded.parameters()} == {torch.bfloat16}


def _cast(loss, dtype, model, x):
    with torch.autocast("cpu", dtype=dtype):
        return loss(model, x)


def _refuse(graph, inputs):
    raise AssertionError("compiled")


def _compiled_part():
    model = net()
    model.block = torch.compile(model.block, backend=_refuse)
    return model


def _rounded():
    model = net()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.bfloat16())
    return model


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * x


@dataclasses.dataclass
class Out:
    hidden: torch.Tensor


class Odd(nn.Module):
    """What people have: running statistics, dropout, recurrent weights, sparse gradients, a custom function, a dataclass."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.drop = nn.Embedding(9, 6, sparse=True), nn.BatchNorm1d(6), nn.Dropout(0.3)
        self.rnn, self.head = nn.GRU(6, 5, batch_first=True), nn.utils.parametrizations.weight_norm(nn.Linear(5, 9))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        h = self.drop(self.norm(self.embed(x).transpose(1, 2)).transpose(1, 2))
        h = h + random.random() + np.random.rand() + torch.rand(())
        return Out(self.head(Square.apply(self.rnn(h)[0])))


def odd_loss(model, x):
    return F.cross_entropy(model(x).hidden.flatten(0, 1), x.flatten())


def test_everything_is_as_before():
    def train(diagnosed):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        model, x, seen = Odd(), words(), []
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        handles = [model.head.register_forward_hook(lambda *_: seen.append("forward"))]
        handles.append(model.head.bias.register_hook(lambda g: seen.append("parameter") or g * 2))
        model.norm.eval()
        for i in range(3):
            optimizer.zero_grad()
            odd_loss(model, x).backward()
            if diagnosed and i == 1:
                before = _everything(model)
                del seen[-1:]
                count = len(seen)
                found = diagnose(model, odd_loss, x)
                # Hooks of modules run with the forward pass; those of parameters see no gradient of a copy.
                assert set(seen[count:]) == {"forward"}
                seen[count:] = ["parameter"]
                _assert_same(before, _everything(model))
                assert found.window.bits > 5 and {"embed.weight", "rnn.weight_hh_l0", "head.bias"} <= set(found.parameters)
                # Sparse: rows of the words in the batch, once each.
                assert found.parameters["embed.weight"].count == 6 * len(x.unique())
                assert model.rnn._flat_weights[0] is model.rnn.weight_ih_l0
            optimizer.step()
        return _everything(model), seen, len(optimizer.state)

    (plain, *others), (measured, *after) = train(False), train(True)
    _assert_same(plain[:-1], measured[:-1])
    assert after == others


def _everything(model):
    modes = [(name, module.training, sorted(module.__dict__), len(module._forward_hooks)) for name, module in model.named_modules()]
    parameters = [(name, p.requires_grad, p.dtype) for name, p in model.named_parameters()]
    gradients = [None if p.grad is None else p.grad.clone().to_dense() for p in model.parameters()]
    state = {name: x.clone() for name, x in model.state_dict().items()}
    rng = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    cache = torch.is_autocast_cache_enabled(), torch.is_grad_enabled()
    return modes, parameters, gradients, state, rng, cache, [id(p) for p in model.parameters()]


def _assert_same(a, b):
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, (list, tuple, dict)):
        assert len(a) == len(b)
        for x, y in zip(a.items(), b.items()) if isinstance(a, dict) else zip(a, b):
            _assert_same(x, y)
    else:
        assert a == b


class Deep(nn.Module):
    """Three layers whose second has results times `factor`, and whose third has them divided again."""

    def __init__(self, factor=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c, self.factor = nn.Linear(6, 6), nn.Linear(6, 6, bias=False), nn.Linear(6, 4), factor
        with torch.no_grad():
            self.b.weight.mul_(factor)

    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))


INPUTS = torch.randn(16, 6, generator=torch.Generator().manual_seed(2))


def mean_loss(factor=1.0):
    return lambda model, x: factor * model(x).square().mean()


class Mixed(nn.Module):
    """Two parts whose gradients differ by a factor."""

    def __init__(self, factor):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.factor = nn.Linear(6, 6), nn.Linear(6, 6), factor

    def forward(self, x):
        return self.factor * self.a(x) + self.b(x.flip(0))


@pytest.mark.parametrize(
    "case, model, loss, scale, words_",
    [
        ("default inside", Deep(), mean_loss(), None, "One loss scale suffices: torch's default 2^16 is inside of 2^"),
        ("default too small", Deep(), mean_loss(2.0**-40), None, "One loss scale suffices, but torch's default 2^16 is "),
        ("running too large", Deep(), mean_loss(), 2.0**40, "One loss scale suffices, but the running scale 2^40 is "),
        ("forward", Deep(2.0**20), mean_loss(), None, "Use gradscale.torch.attach(model), whose scaling.step(closure) gives the results of b an exponent"),
        ("no window", Mixed(2.0**-45), mean_loss(), None, "Use gradscale.torch.attach(model) or bfloat16"),
        ("gradient", Deep(), lambda m, x: (0.0 * m(x)).square().sum().sqrt(), None, "Repair the loss or the batch first: the gradient of a.weight"),
        ("loss", Deep(), lambda m, x: m(x).sum() * float("inf"), None, "Repair the loss or the batch first: the loss is "),
        ("input", Deep(), lambda m, x: m(x / 0.0).sum(), None, "Repair the model or the batch first: a is not finite in float32"),
    ],
)
def test_the_recommendation(case, model, loss, scale, words_):
    found = diagnose(model, loss, INPUTS, scale=scale)
    assert found.recommendation.startswith(words_), found.recommendation
    assert found.overflows_forward == ("b" if case == "forward" else "a" if case == "input" and found.overflows_forward else None)
    assert (found.window is None) == (found.window_error is not None)
    if case == "default too small":
        # The recommended scale is inside, and the default flushes much.
        exponent = int(found.recommendation.partition("2.0**")[2].partition(")")[0])
        assert found.window.half.place(2.0**exponent).is_inside and not found.window.half.place(2.0**16).is_inside
        assert "too small" in found.recommendation and found.total("fp16", "2^16")[0].flushed > 0
    if case == "running too large":
        assert "too large" in found.recommendation and found.total("fp16", "running", True)[0].overflowed > 0
    if case == "forward":
        assert "nothing overflows" not in str(found) and "b overflows first" in str(found)


class Masked(nn.Module):
    """Attention whose layer reads a mask of infinities, and logits of which one is masked; `factor` makes scores overflow a half."""

    def __init__(self, factor=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.attend, self.head, self.limit = nn.Linear(6, 6), Attend(factor), nn.Linear(6, 4), Limit()

    def forward(self, x):
        return self.limit(self.head(self.attend(self.q(x), torch.full((16, 16), -torch.inf).triu(1))))


class Attend(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, q, mask):
        q = self.factor * q
        return (q @ q.T + mask).softmax(-1) @ q / self.factor


class Limit(nn.Module):
    def forward(self, x):
        return x.masked_fill(torch.arange(4) == 3, -torch.inf)


class Float(nn.Module):
    """A layer that insists on f32."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 4)

    def forward(self, x):
        x = self.a(x)
        if x.dtype != torch.float32:
            raise AssertionError
        return x


@pytest.mark.parametrize(
    "model, overflows, forward, words_",
    [
        (Masked(), None, "nothing overflows; ", "One loss scale suffices"),
        (Masked(2.0**8), "attend", "attend overflows first; ", "Use gradscale.torch.attach(model), whose scaling.step"),
        (Float(), None, "not measured: AssertionError; ", "No loss scale can be recommended, because the window was not measured: AssertionError"),
    ],
)
def test_infinities_that_are_meant_and_failures_in_half(model, overflows, forward, words_):
    found = diagnose(model, lambda model, x: F.cross_entropy(model(x), torch.zeros(len(x), dtype=torch.int64)), INPUTS)
    assert found.overflows_forward == overflows and found.forward().startswith(forward)
    assert found.recommendation.startswith(words_), found.recommendation


@pytest.mark.parametrize("kind", [dict, collections.UserDict])
def test_a_loss_may_take_its_batch_apart(kind):
    def loss(model, batch):
        x = batch.pop("x").mul_(2.0)
        return model(x).square().mean()

    batch = kind(x=INPUTS.clone())
    with torch.inference_mode():
        found = diagnose(Deep(), loss, batch)
    assert found.window is not None and found.loss == diagnose(Deep(), mean_loss(), 2.0 * INPUTS, window=False).loss
    assert torch.equal(batch["x"], INPUTS)


class _Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attributes]

    def handle_data(self, data):
        self.text.append(data)


def test_text_and_page(tmp_path):
    model = nn.ModuleDict({f"<b>{i}&": nn.Linear(6, 6) for i in range(14)})
    model["a name that is longer than the column of its table " * 2] = nn.Linear(6, 6)

    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, x):
            for part in self.parts.values():
                x = part(x)
            return x

    found = diagnose(Stack(), mean_loss(2.0**-30), INPUTS, scale=torch.amp.GradScaler("cpu", init_scale=64.0), window=False)
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= TEXT_WIDTH
    # Columns are aligned: each row of a table is as long as its head.
    rows = [line for line in lines if "<b>" in line and "%" in line]
    assert len(rows) >= 20 and {len(line) for line in rows} == {TEXT_WIDTH}
    for part in ("and 3 that lose less: save(path)", "window=False was passed", "run: the running loss scale, 2^6", "zero at", "over at"):
        assert part in str(found)
    path = tmp_path / "report.html"
    found.save(path)
    page = _Page(path.read_text(encoding="utf-8"))
    assert "script" not in page.tags and "b" not in page.tags and not {"src", "href", "onclick"} & set(page.attributes)
    assert all(layer.name in "".join(page.text) for layer in found.layers) and page.tags.count("details") == 6
    assert found.recommendation in page.text and list(tmp_path.iterdir()) == [path]
    # Another diagnosis replaces the page; other files stay.
    first = path.read_bytes()
    diagnose(Deep(), mean_loss(), INPUTS, scale=2.0**20).save(str(path))
    again = _Page(path.read_text(encoding="utf-8"))
    assert path.read_bytes() != first and "running 2^20" in again.text and "torch.amp" in again.text
    (tmp_path / "link.html").symlink_to("new.html")
    found.save(tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink() and (tmp_path / "new.html").stat().st_size > 1000
    path.write_text("<html>mine</html>")
    with pytest.raises(FileExistsError, match="is not a page of gradscale.torch.diagnose"):
        found.save(path)
    assert path.read_text() == "<html>mine</html>"
    with pytest.raises(IsADirectoryError, match="name a file in it"):
        found.save(tmp_path)
    with pytest.raises(FileNotFoundError, match="create it first"):
        found.save(tmp_path / "none" / "report.html")


def _checkpointed(model, x):
    from torch.utils.checkpoint import checkpoint

    return checkpoint(model, x.clone().requires_grad_(), use_reentrant=True).sum()


@pytest.mark.parametrize(
    "model, loss, options, error, message",
    [
        (lambda: print, mean_loss(), {}, TypeError, "must be a torch.nn.Module"),
        (lambda: torch.jit.trace(Deep(), INPUTS), mean_loss(), {}, TypeError, "pass the module from which it was scripted"),
        (lambda: nn.LazyLinear(3), mean_loss(), {}, ValueError, "run the model once on a batch before"),
        (lambda: Deep().requires_grad_(False), mean_loss(), {}, ValueError, "no parameter of the model requires a gradient"),
        (Deep, lambda model, x: model(x), {}, TypeError, "must return the loss, a tensor of one element"),
        (Deep, lambda model, x: torch.ones((), requires_grad=True), {}, ValueError, "must use the model that it is given"),
        (Deep, _checkpointed, {}, ValueError, "pass use_reentrant=False"),
        (Deep, mean_loss(), {"scale": "large"}, TypeError, "pass scaler.get_scale"),
        (Deep, mean_loss(), {"scale": 0.0}, ValueError, "must be positive and finite, not 0.0"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_refusals(model, loss, options, error, message):
    with pytest.raises(error, match=message):
        diagnose(model(), loss, INPUTS, **options)


def _steps(scaler, model, optimizer, losses):
    """Trains under autocast with a scaler, and returns the warnings of gradscale's."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for loss in losses:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                out = model(INPUTS).float()
            scaler.scale(loss(out)).backward()
            scaler.step(optimizer)
            scaler.update()
    return [str(w.message) for w in caught if issubclass(w.category, LossScaleWarning)]


def good(out):
    return out.square().mean()


def small(out):
    return 2.0**-8 * good(out)


def bad(out):
    return out.sum() * float("nan")


@pytest.mark.parametrize(
    "losses, options, expected",
    [
        ([good] * 40 + [bad] * 3, {}, []),
        # One bad batch in three: more than the scale recovers from.
        ([good, bad, good] * 28, {}, ["fallen to 2^-11 in 80 steps, because 27 batches were not finite and it grew 0 times: it grows only after 2000"]),
        ([good] * 5 + [bad] * 30, {}, ["because the last 27 batches were all not finite. Weights or inputs are probably not finite"]),
        ([bad, good, good, good] * 12, {"growth_interval": 3, "init_scale": 1.0}, []),
        ([small] * 2, {"init_scale": 2.0**-9}, ["flushes an estimated", "because it was that small at the start"]),
    ],
)
def test_watch(losses, options, expected):
    def train(watched):
        model = Deep()
        optimizer = torch.optim.SGD(model.parameters(), 2.0**-10)
        scaler = torch.amp.GradScaler("cpu", **options)
        watching = watch(scaler) if watched else None
        said = _steps(scaler, model, optimizer, losses)
        return [p.detach() for p in model.parameters()], scaler.get_scale(), said, watching

    plain, scale, silent, _ = train(False)
    weights, watched_scale, said, watching = train(True)
    assert all(map(torch.equal, plain, weights)) and scale == watched_scale and not silent
    if not expected:
        assert not said
    else:
        assert len(said) == 1 and all(part in said[0] for part in expected), said
    assert (watching.updates, watching.non_finite) == (len(losses), losses.count(bad))
    assert watching.grew == (12 if "growth_interval" in options else 0)
    assert str(watching).startswith(f"{len(losses)} updates: ")


def test_the_share_that_watch_estimates():
    """The estimate exceeds the exact share by at most 3 points, and at a scale that suffices there is no warning."""
    model = Deep()
    exact = torch.autograd.grad(small(model(INPUTS)), list(model.parameters()))
    for exponent in (-5, -7, 16):
        optimizer = torch.optim.SGD(model.parameters(), 0.0)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**exponent)
        watch(scaler)
        said = _steps(scaler, model, optimizer, [small])
        weights = torch.cat([g.flatten() for g in exact])
        flushed = float((weights.abs() * 2.0**exponent <= 2.0**-25).float().mean())
        if exponent == 16:
            assert not said and flushed == 0.0
        else:
            assert len(said) == 1 and f"the loss scale 2^{exponent} of GradScaler flushes an estimated" in said[0]
            percent = float(said[0].partition("an estimated ")[2].partition(" %")[0])
            assert 1 <= percent <= 100 * flushed + 3, (percent, flushed)


def test_a_watch_ends_and_is_not_copied():
    scaler = torch.amp.GradScaler("cpu")
    watching = watch(scaler)
    with pytest.raises(ValueError, match="is watched already"):
        watch(scaler)
    for other in (pickle.loads(pickle.dumps(scaler)), copy.deepcopy(scaler)):
        model = Deep()
        assert not _steps(other, model, torch.optim.SGD(model.parameters(), 0.1), [bad] * 40)
        assert other.get_scale() == 2.0**-24
    assert watching.updates == 0
    watching.stop()
    assert not {"update", "unscale_"} & set(scaler.__dict__)
    watch(scaler).stop()
    # A scaler that is off stays off.
    off = torch.amp.GradScaler("cpu", enabled=False)
    watching = watch(off)
    model = Deep()
    assert not _steps(off, model, torch.optim.SGD(model.parameters(), 0.1), [good]) and watching.updates == 0
    with pytest.raises(TypeError, match="no loss scale"):
        watch(GradScaler("cpu"))
    with pytest.raises(TypeError, match="not Linear"):
        watch(nn.Linear(1, 1))


def test_the_examples_of_their_documentation():
    import doctest

    from gradscale.torch import diagnosis, watching

    for module, attempted in ((diagnosis, 7), (watching, 4)):
        found = doctest.testmod(module)
        assert found.attempted >= attempted and found.failed == 0
