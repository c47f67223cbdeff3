"""Matrix products in FP8 (``products=fp8``), against products of the same values in f64, and against those of halves."""

import contextlib

import gradscale
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from gradscale.torch import attach, fp8  # noqa: E402
from gradscale.torch.store_formats import find  # noqa: E402
from torch_models import KernelStandIns, NoReads, batches, cross_entropy, error, network, on_kernels, trained_late  # noqa: E402

torch.set_num_threads(1)
MIXED = "gs:interval=1,grad=e5m2,act=e4m3,weight=e4m3"
TYPES = {"e5m2": torch.float8_e5m2, "e4m3": torch.float8_e4m3fn}
try:
    torch._scaled_mm(*[torch.ones(16, 16).to(TYPES["e4m3"]).t()] * 2, *[torch.ones(())] * 2, out_dtype=torch.float32)
except (AttributeError, NotImplementedError, RuntimeError):
    pytest.skip("this version of torch has no FP8 products on a CPU", allow_module_level=True)


@contextlib.contextmanager
def recorded():
    """Context in which the products by `_scaled_mm` are collected: the types of their operands, these, and their results."""
    # The first product on a device tries one.
    fp8.check_device(torch.device("cpu"))
    seen, multiply = [], torch._scaled_mm

    def called(a, b, *args, **kwargs):
        y = multiply(a, b, *args, **kwargs)
        # What cuBLAS wants, of which the CPU wants nothing.
        assert a.is_contiguous() and b.t().is_contiguous() and a.shape[1] % 16 == b.shape[1] % 16 == 0
        assert not a.dtype == b.dtype == torch.float8_e5m2 and kwargs == {"out_dtype": torch.float32, "use_fast_accum": False}
        seen.append((a.dtype, b.dtype, a.float(), b.float(), y))
        return y

    torch._scaled_mm = called
    try:
        yield seen
    finally:
        torch._scaled_mm = multiply


def values(shape, name, seed):
    """Random values of a format over most of its range, as halves."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=g) * torch.exp2(torch.randint(-8, 7, shape, generator=g).float())
    return x.to(TYPES[name]).half()


@pytest.mark.parametrize("name", TYPES)
def test_packing_changes_no_bit(name):
    """Every value of a format, in both layouts, and zeros around them."""
    every = torch.arange(256, dtype=torch.uint8).view(TYPES[name])
    codes = every.view(torch.uint8).view(8, 32)
    for x, expected in ((every.half().view(8, 32), codes), (every.half().view(8, 32).t(), codes.t())):
        for multiple in (1, 16, 64):
            packed = fp8._packed(x, find(name), multiple)
            rows, columns = expected.shape
            assert packed.is_contiguous() and packed.dtype == TYPES[name]
            assert packed.shape == (-(-rows // multiple) * multiple, -(-columns // 16) * 16)
            bytes, finite = packed.view(torch.uint8)[:rows, :columns], ~x.isnan()
            assert torch.equal(bytes[finite], expected[finite]) and packed.float()[:rows, :columns].isnan().equal(~finite)
            assert packed.view(torch.uint8).sum() == bytes.sum()
    # PyTorch's cast clips ∞ of a mask to 448 in E4M3, which has none.
    infinite = fp8._packed(torch.full((1, 16), -torch.inf).half(), find(name), 1).float()
    assert infinite.isnan().all() if name == "e4m3" else (infinite == -torch.inf).all()


@pytest.mark.parametrize(("left", "right"), [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e4m3", "e5m2")])
@pytest.mark.parametrize("shape", [(16, 32, 48), (5, 17, 3), (1, 1, 1), (33, 300, 2)])
def test_products_of_values(left, right, shape):
    m, k, n = shape
    for turned in (False, True):
        a, b = values((k, m) if turned else (m, k), left, 0), values((n, k) if turned else (k, n), right, 1)
        a, b = (a.t(), b.t()) if turned else (a, b)
        y = fp8._multiply(a, find(left), b, find(right))
        true, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        assert y.dtype == torch.float32 and y.is_contiguous() and y.shape == (m, n)
        # Products are exact, and each of k additions rounds to 24 bits.
        assert ((y - true).abs() <= k * 2.0**-24 * size).all()
        # Integers whose sums have at most 24 bits.
        a, b = (x.clamp(-8, 8).round() for x in (a, b))
        assert torch.equal(fp8._multiply(a, find(left), b, find(right)), a.float() @ b.float())


@pytest.mark.parametrize("shape", [(16, 32, 48), (5, 17, 3), (1, 1, 1)])
def test_layouts_and_sizes_are_those_of_a_gpu(shape):
    """In PyTorch's own description of the operator on a GPU, without one."""
    m, k, n = shape
    with torch._subclasses.FakeTensorMode(), torch.device("cuda"):
        a, b = torch.zeros(m, k, dtype=torch.float16), torch.zeros(n, k, dtype=torch.float16).t()
        for left, right in (("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e4m3", "e5m2")):
            y = fp8._multiply(a, find(left), b, find(right))
            assert (y.shape, y.dtype, y.device.type) == ((m, n), torch.float32, "cuda")
        bytes, one = torch.zeros(17, 17, dtype=TYPES["e4m3"]), torch.ones(())
        with pytest.raises(Exception, match="16"):
            torch._scaled_mm(bytes, bytes.t(), one, one, out_dtype=torch.float32)
        bytes = torch.zeros(16, 32, dtype=TYPES["e4m3"])
        with pytest.raises(Exception, match="(?i)col"):
            torch._scaled_mm(bytes, torch.zeros(32, 16, dtype=TYPES["e4m3"]), one, one, out_dtype=torch.float32)


def of_integers(method, bias):
    """Trains two layers whose values are integers times powers of two, so that products are exact in any order. Returns the
    gradients of three steps, the exponents and the rows."""
    g = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 24, bias=bias), nn.Linear(24, 16, bias=bias))
    for p in model.parameters():
        p.data = torch.randint(-2, 3, p.shape, generator=g).float() * 2.0**-14
    gs = attach(model, method)
    gradients = []
    for step in range(3):
        model.zero_grad()
        # Two of 20 inputs are not 0, so sums have few bits.
        x = torch.zeros(12, 20).scatter_(1, torch.randint(20, (12, 2), generator=g), 1.0).mul_(2.0**-20)
        r = torch.zeros(12, 16).scatter_(1, torch.randint(16, (12, 2), generator=g), 1.0) * 2.0 ** (-12 - 3 * step)
        x.requires_grad_()
        (model(x) * r).sum().backward()
        gradients += [p.grad.clone() for p in model.parameters()] + [x.grad]
        assert gs.update().stepped
    return gradients, dict(zip(gs.sites.names, gs.sites.exponents.tolist())), [gs.sites.row(i) for i in range(len(gs.sites))]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("formats", ["grad=e5m2,act=e4m3,weight=e4m3", "format=e4m3", "grad=e4m3,act=e5m2,weight=e4m3"])
def test_integers_have_the_bits_of_products_of_halves(formats, bias):
    """Forward pass, gradients of inputs and of weights, with exponents far from 0, and the same decisions."""
    with recorded() as seen:
        gradients, exponents, rows = of_integers(f"gs:interval=1,{formats},products=fp8", bias)
    # Two layers forward, and two products backward in each.
    assert len(seen) == 3 * 6 and min(exponents.values()) > 4, exponents
    expected, others, rows_of_halves = of_integers(f"gs:interval=1,{formats}", bias)
    assert exponents == others and rows == rows_of_halves
    assert all(map(torch.equal, gradients, expected)) and all(x.abs().max() > 0 for x in gradients)


def test_formats_of_the_operands():
    """Of a layer forward, of its weight's gradient and of its input's, each in the format of its kind."""
    for formats in ("grad=e5m2,act=e4m3,weight=e4m3", "grad=e4m3,act=e5m2,weight=e4m3", "grad=e4m3,act=e4m3,weight=e5m2"):
        grad, act, weight = (TYPES[part.partition("=")[2]] for part in formats.split(","))
        torch.manual_seed(0)
        model = nn.Linear(20, 24)
        gs = attach(model, f"gs:{formats},products=fp8")
        x = torch.randn(12, 20, requires_grad=True)
        with recorded() as seen:
            out = model(x)
            assert [{a, b} for a, b, *_ in seen] == [{act, weight}]
            out.square().sum().backward()
        assert sorted(map(str, ({a, b} for a, b, *_ in seen[1:]))) == sorted(map(str, ({grad, weight}, {grad, act})))
        # The values are those that the sites have stored.
        for a, b, left, right, y in seen:
            assert error([y], [left.double() @ right.double()]) < 1e-6
        gs.update()


@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_networks_train_as_with_products_of_halves(name):
    """Roundings of sums alone differ, by which a value may be rounded to its other neighbour."""
    found, counts = [], []
    for method in (f"{MIXED},products=fp8", MIXED):
        model = network(name)
        gs = attach(model, method)
        optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
        gs.guard(optimizer)
        with recorded() as seen:
            for x, y in batches(name, 12):
                optimizer.zero_grad()
                loss = cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                gs.update()
                losses.append(loss.item())
        counts.append(len(seen))
        found.append((losses, [p.detach() for p in model.parameters()]))
        assert gs.skipped == 0
    # Three layers of the perceptron have three products each, but the first has no gradient of its input; of the transformer,
    # two blocks have four layers each, and the head.
    assert counts == [12 * {"mlp": 8, "transformer": 3 * 9}[name], 0]
    (losses, weights), (expected, others) = found
    assert max(abs(a - b) for a, b in zip(losses, expected)) < 5e-3 and error(weights, others) < 2e-3


def test_a_report_counts_products():
    """Those of the last forward pass by layer, those of backward passes, and the reasons of those that are not in FP8."""
    for name, count, gradients in (("mlp", 3, 5), ("transformer", 9, 18)):
        model = network(name)
        gs = attach(model, f"{MIXED},products=fp8")
        assert str(gs.report()).count("FP8") == 0
        for x, y in batches(name, 2):
            model.zero_grad()
            cross_entropy(model(x), y).backward()
            gs.update()
        report = gs.report()
        assert sum(reason is None for reason in report.fp8_products.values()) == count
        # There were two backward passes.
        assert report.fp8_gradients[None] == 2 * gradients
        # Attention is one operator forward, and its backward pass has products of matrices in batches.
        batches_of_matrices = report.fp8_gradients.get("a batch of matrices", 0)
        assert (batches_of_matrices > 0) == (name == "transformer")
        line = f"products in FP8: {count} of {len(report.fp8_products)} of the last forward pass, and {2 * gradients} of "
        assert line in str(report)
        report.fp8_products, report.fp8_gradients = {}, {}
        assert "FP8" not in str(report)


@pytest.mark.parametrize(
    ("forward", "method", "reason"),
    [
        (lambda m, x: F.linear(x, m.w), "gs:grad=e5m2,weight=e4m3", "an operand in FP16 or f32"),
        (lambda m, x: (lambda y: y @ y.t())(F.linear(x, m.w)), "gs:grad=e4m3,act=e5m2,weight=e4m3", "two operands in E5M2"),
        (lambda m, x: F.linear(x, m.w).view(2, 8, 16) @ x.view(2, 8, 16).transpose(1, 2), MIXED, "a batch of matrices"),
        (lambda m, x: torch.addmm(m.b, x, m.w, beta=0.5), MIXED, "a sum with factors"),
        (lambda m, x: F.linear(x[:0], m.w).sum() + m.b, MIXED, "an operand without values"),
    ],
)
def test_a_report_says_why_products_are_not_in_fp8(forward, method, reason):
    torch.manual_seed(1)
    gs = products(forward, torch.randn(16, 16), f"{method},products=fp8")[2]
    report = gs.report()
    assert reason in report.fp8_products.values()
    assert f"not in FP8 ({reason}): " in str(report)


def products(forward, x, method):
    """Returns the pairs of types of the products in FP8 in a step of a function of its parameters, the gradients, and the
    scaling."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.w, self.b = nn.Parameter(torch.randn(16, 16)), nn.Parameter(torch.randn(16))

        def forward(self, x):
            return forward(self, x)

    model = Model()
    gs = attach(model, method)
    with recorded() as seen:
        model(x).square().sum().backward()
    assert gs.update().stepped
    return [{a, b} for a, b, *_ in seen], [p.grad for p in model.parameters() if p.grad is not None], gs


def without_autocast(model, x):
    y = F.linear(x, model.w)
    with torch.autocast("cpu", enabled=False):
        return F.linear(y.float(), model.w, model.b)


@pytest.mark.parametrize(
    ("forward", "method", "count"),
    [
        # An operand in FP16, of the forward pass and of the weight's gradient; batches of matrices; a sum with a factor.
        (lambda m, x: F.linear(x.relu(), m.w, m.b), "gs:grad=e5m2,weight=e4m3", 0),
        (lambda m, x: F.linear(F.linear(x, m.w), m.w), "gs:grad=e5m2,weight=e4m3", 1),
        (lambda m, x: F.linear(x, m.w, m.b), "gs:act=e4m3,weight=e4m3", 1),
        (lambda m, x: F.linear(x, m.w).view(2, 8, 16) @ x.view(2, 8, 16).transpose(1, 2), MIXED, 2),
        (lambda m, x: torch.addmm(m.b, x, m.w, beta=0.5), MIXED, 1),
        # Two activations in E5M2, and in E4M3.
        (lambda m, x: (lambda y: y @ y.t())(F.linear(x, m.w)), "gs:grad=e4m3,act=e5m2,weight=e4m3", 4),
        (lambda m, x: (lambda y: y @ y.t())(F.linear(x, m.w)), "gs:act=e4m3", 1),
        # A copy of a weight that is written to has the format of activations.
        (lambda m, x: F.linear(x, m.w.half().mul_(0.7)), "gs:grad=e4m3,act=e4m3,weight=e5m2", 2),
        # In f32, of a part without autocast, and a convolution.
        (without_autocast, MIXED, 2),
        (lambda m, x: F.linear(x.float(), m.w), MIXED, 2),
        (lambda m, x: F.conv1d(x.view(1, 16, 16), m.w[..., None]), MIXED, 0),
        (lambda m, x: F.linear(x[:0], m.w).sum() + m.b, MIXED, 0),
    ],
)
def test_products_that_are_not_in_fp8(forward, method, count):
    torch.manual_seed(1)
    x = torch.randn(16, 16)
    seen, gradients, _ = products(forward, x, f"{method},products=fp8")
    none, expected, _ = products(forward, x, method)
    assert (len(seen), len(none)) == (count, 0) and error(gradients, expected) < 1e-2


def test_what_is_not_finite_is_counted_as_with_products_of_halves():
    """An activation, a weight and a gradient that saturate, and a NaN: the same counts, and a batch that is repeated."""

    def trained(method, at, factor):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
        gs = attach(model, method)
        optimizer, x = torch.optim.SGD(model.parameters(), 0.0), torch.randn(16, 16)
        for step in range(3):

            def closure():
                optimizer.zero_grad()
                last = step == 2
                with torch.no_grad():
                    model[1].weight.mul_(factor if last and at == "weight" and not gs.repeats else 1.0)
                loss = model(x * (factor if last and at == "act" else 1.0)).square().mean()
                loss = loss * (factor if last and at == "grad" else 1.0)
                loss.backward()
                return loss

            gs.step(closure, optimizer)
        return gs.steps, gs.skipped, gs.repeats, gs.report().non_finite

    for at, factor in (("act", 2.0**12), ("grad", 2.0**30), ("weight", 2.0**12), ("act", float("nan"))):
        found = trained(f"{MIXED},products=fp8", at, factor)
        assert found == trained(MIXED, at, factor)
        assert (found[2] >= 1 and found[1] == 0) if factor == factor else found[1] == 1, (at, found)


@pytest.mark.parametrize("late", [False, True])
def test_a_state_goes_on_with_the_same_bits(late):
    def step(model, gs, batch):
        model.zero_grad()
        cross_entropy(model(batch[0]), batch[1]).backward()
        gs.update()
        return [p.grad.clone() for p in model.parameters()]

    data, method = list(batches("mlp", 5)), f"{MIXED},products=fp8"
    model = network("mlp")
    gs = attach(model, method, deferred=late)
    for batch in data[:3]:
        step(model, gs, batch)
    state = gs.state_dict()
    expected = [step(model, gs, batch) for batch in data[3:]]
    # The products are those of the state, as all of the method is.
    for other in (method, "gs"):
        model = network("mlp")
        gs = attach(model, other, deferred=late)
        gs.load_state_dict(state)
        with recorded() as seen:
            assert all(all(map(torch.equal, a, step(model, gs, batch))) for a, batch in zip(expected, data[3:]))
        assert len(seen) == 16


def test_devices_have_the_same_bits():
    """Exponents of a device are tensors, which no product reads."""
    expected = trained_late("transformer", 3, f"{MIXED},products=fp8")
    with on_kernels(KernelStandIns()), recorded() as seen:
        weights, *rest = trained_late("transformer", 3, f"{MIXED},products=fp8")
    assert rest == list(expected[1:]) and all(map(torch.equal, weights, expected[0])) and len(seen) == 3 * 27
    model = network("mlp")
    gs = attach(model, f"{MIXED},products=fp8", deferred=True)
    for step, (x, y) in enumerate(batches("mlp", 4)):
        with NoReads() if step > 1 else contextlib.nullcontext():
            cross_entropy(model(x), y).backward()
        gs.update()


def test_checkpointing_changes_no_bit():
    from torch.utils.checkpoint import checkpoint

    class Twice(nn.Module):
        def __init__(self, again):
            super().__init__()
            layers = network("mlp")
            self.again, self.first, self.last = again, layers[:4], layers[4]

        def forward(self, x):
            return self.last(checkpoint(self.first, x, use_reentrant=False) if self.again else self.first(x))

    results = []
    for again in (False, True):
        model = Twice(again)
        gs = attach(model, f"{MIXED},products=fp8")
        with recorded() as seen:
            for x, y in batches("mlp", 3):
                model.zero_grad()
                cross_entropy(model(x), y).backward()
                assert gs.update().stepped
        # The first two layers run forward twice.
        assert len(seen) == 3 * (8 + 2 * again)
        results.append([p.grad for p in model.parameters()])
    assert all(map(torch.equal, *results))


@pytest.fixture
def other_devices():
    fp8._find_obstacle.cache_clear()
    yield
    fp8._find_obstacle.cache_clear()


@pytest.mark.parametrize("capability", [(7, 5), (8, 6), (8, 9), (9, 0), (12, 0)])
def test_gpus_without_units_for_8_bits_are_refused(capability, monkeypatch, other_devices):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    device = torch.device("cuda", 0)
    if capability >= (8, 9):
        fp8.check_device(device)
        return
    says = "products=fp8 needs compute capability 8.9 and cuda:0 has {}.{}; leave products=fp8 out".format(*capability)
    with pytest.raises(RuntimeError) as caught:
        fp8.check_device(device)
    assert str(caught.value) == says


def test_a_torch_without_such_products_is_refused(monkeypatch, other_devices):
    """At attach if the model has a device, else at the first product."""

    class Gram(nn.Module):
        def forward(self, x):
            return x @ x.t()

    def none(*args, **kwargs):
        raise NotImplementedError("no kernel")

    method, model = f"{MIXED},products=fp8", network("mlp")
    monkeypatch.setattr(torch, "_scaled_mm", none)
    without = Gram()
    attach(without, method)
    attach(network("mlp").to("meta"), method)
    for call in (lambda: attach(model, method), lambda: without(torch.ones(4, 4))):
        with pytest.raises(RuntimeError) as caught:
            call()
        assert str(caught.value) == f"PyTorch {torch.__version__} has no FP8 products on cpu; leave products=fp8 out"
    # The refused model is not attached.
    assert "forward" not in model.__dict__
    fp8._find_obstacle.cache_clear()
    monkeypatch.delattr(torch, "_scaled_mm")
    with pytest.raises(RuntimeError, match=r"needs torch._scaled_mm and PyTorch .* has none: install a newer PyTorch; leave"):
        attach(model, method)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("gs:products=fp8", "products=fp8 needs operands of 8 bits, for example format=e4m3"),
        ("amax:grad=e5m2,products=fp8", "products=fp8 needs operands of 8 bits, for example format=e4m3"),
        ("gs:format=e4m3,products=fp4", "products must be half or fp8, not fp4"),
        ("dynamic:products=fp8", "products needs a scale for each store, which a loss scale does not have"),
        ("gs:format=e5m2,products=fp8", "two operands in E5M2: use E4M3 for two of grad, act and weight, or leave products=fp8 out"),
        ("gs:grad=e5m2,act=e5m2,weight=e4m3,products=fp8", "two operands in E5M2: use E4M3 for two"),
    ],
)
def test_methods_that_cannot_have_them_say_so(method, says):
    with pytest.raises(ValueError, match=says) as caught:
        attach(network("mlp"), method)
    assert "\n" not in str(caught.value)


def test_sites_name_the_formats_of_products():
    assert gradscale.Sites(f"{MIXED},products=fp8").fp8_products == ("e5m2", "e4m3", "e4m3")
    assert gradscale.Sites("amax:format=e4m3,products=fp8").fp8_products == ("e4m3", "e4m3", "e4m3")
    assert [gradscale.Sites(method).fp8_products for method in (MIXED, "gs", "dynamic")] == [None] * 3


def test_compiled_models_are_refused():
    model = network("mlp")
    attach(model, f"{MIXED},products=fp8")
    with pytest.raises(Exception, match="a compiled model stores activations and weights as plain halves"):
        torch.compile(model, backend="aot_eager", fullgraph=True)(torch.randn(4, 12))
