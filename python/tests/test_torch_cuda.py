"""gradscale.torch on a device: ``pytest --device cuda test_torch_cuda.py test_torch_modules.py``, in less than two
minutes on an H100.

Without ``--device`` every test that the CPU supports runs there, which tests the tests before they run on a GPU.
"""

import contextlib
import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import torch_models  # noqa: E402
from gradscale.torch import GradScaler, GradientScaling, attach, fp8, ops  # noqa: E402
from gradscale.torch.store_formats import find  # noqa: E402
from test_torch_modules import test_every_module as test_modules  # noqa: E402, F401
from torch_models import NoReads, batches, cross_entropy, error, example, network, row  # noqa: E402

#: Numbers of elements of a store: none, a part of a block, a whole block, and one more.
SIZES = (0, 1, 2047, 2048, 2049)
#: From where everything is infinite to where everything is zero, FP16's subnormals between them.
EXPONENTS = (-300, -150, -24, 0, 3, 40, 150, 300)


def on_cuda(device):
    if device.type != "cuda":
        pytest.skip("needs a CUDA device: pytest --device cuda")


@pytest.fixture(autouse=True)
def equal_calls_have_equal_bits():
    """cuDNN otherwise chooses algorithms that add in an order that changes."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=True):
        yield


# Stores

def same(x, y):
    """Returns whether halves have the same bits. NaN has many patterns, which count as equal."""
    x, y = x.cpu(), y.cpu()
    return torch.equal(x.isnan(), y.isnan()) and torch.equal(x[~x.isnan()].view(torch.int16), y[~y.isnan()].view(torch.int16))


def stores_alike(x, device, start, exponent, detail=2, format="fp16"):
    """Stores on a device and on the CPU: values and the row of two calls at one site, the second of which only observes."""
    found = []
    for place in (device, torch.device("cpu")):
        control = torch.tensor([[start, exponent, 0], [2, detail, 2]], dtype=torch.int32, device=place)
        rows = ops.new_rows(3, place)
        there = x.to(place)
        y = ops.store(there, rows, control, 0, 1, format)
        ops.observe(there, rows, control, 0, 1, format)
        ops.observe(there, rows, control, -1, 2, format)
        found.append((y, rows.cpu()))
    (y, rows), (expected, expected_rows) = found
    assert y.dtype == torch.float16 and y.shape == expected.shape and same(y, expected)
    assert torch.equal(rows, expected_rows), (row(rows, 1), row(expected_rows, 1))


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_stores_have_the_bits_of_the_cpu(size, half, device):
    x = example((4096,))[:size]
    x = x.half() if half else x
    for exponent in EXPONENTS:
        stores_alike(x, device, 5, exponent)
    for detail in (0, 1, 2):
        stores_alike(x, device, 0, 0, detail)


def test_stores_of_every_half_and_of_subnormals(device):
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    # Bit patterns over all exponents, subnormals of f32 among them; and around each threshold.
    floats = (torch.arange(2**16, dtype=torch.int64) * 65537 % 2**32).to(torch.int32).view(torch.float32)
    tiny = torch.cat([torch.arange(1, 5000, dtype=torch.int32), torch.arange(0x7FF000, 0x801000, dtype=torch.int32)]).view(torch.float32)
    for x in (halves, floats, tiny, -tiny):
        for start, exponent in ((0, 0), (0, 24), (3, -14), (0, 140), (-100, 149), (150, 0)):
            stores_alike(x, device, start, exponent)


@pytest.mark.parametrize("format", ["e5m2", "e4m3"])
def test_stores_in_eight_bits(format, device):
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    # Every value of these formats, everything in the middle between two, and the neighbours of all of them.
    edges = torch.arange(0, 2**16, 1, dtype=torch.int64)
    edges = torch.cat([(edges << 16) + more for more in (-1, 0, 1)]).to(torch.int32).view(torch.float32)
    for x in (halves, edges, example((4096,))):
        for start, exponent in ((0, 0), (0, 24), (3, -14), (0, 140)):
            stores_alike(x, device, start, exponent, format=format)
    stores_alike(edges, device, 0, 0, 0, format)


VIEWS = {
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "turned": lambda x: x.transpose(1, 3),
    "every other": lambda x: x[:, :, ::2],
    "expanded": lambda x: x[:, :1].expand(4, 3, 8, 8),
    "a number": lambda x: x[0, 0, 0, 7],
    "empty": lambda x: x[:0],
    "from the middle": lambda x: x.reshape(-1)[3:],
}


@pytest.mark.parametrize("view", VIEWS)
def test_stores_of_any_layout(view, device):
    x = VIEWS[view](example().to(device))
    control, rows = torch.tensor([[3], [2]], dtype=torch.int32, device=device), ops.new_rows(1, device)
    y = ops.store(x, rows, control, -1, 0)
    expected_rows = ops.new_rows(1)
    expected = ops.store(x.cpu().contiguous(), expected_rows, control.cpu(), -1, 0)
    assert y.shape == x.shape and same(y, expected) and torch.equal(rows.cpu(), expected_rows)
    # Strides that compiled graphs assume.
    gs = GradientScaling()
    gs._open_once(x.device)
    with torch._subclasses.FakeTensorMode() as mode:
        told = torch.ops.gradscale.site(mode.from_tensor(x), None, "0", "x", 1)[0]
    assert gs._store("x", 1, x, 0)[0].stride() == told.stride()


def test_stores_of_many_elements(device):
    """10^8 on a device, whose counters are of 64 bits and whose programs go around; a million on the CPU."""
    count = 10**8 if device.type == "cuda" else 10**6
    if device.type == "cuda" and torch.cuda.mem_get_info(device)[0] < 4 * 2**30:
        pytest.skip("10^8 elements and their halves want 4 GiB of free memory on the device")
    x = example((10**6,)).to(device).repeat(count // 10**6)
    control, rows = torch.tensor([[3], [2]], dtype=torch.int32, device=device), ops.new_rows(1, device)
    y = ops.store(x, rows, control, -1, 0)
    seen, part = row(rows, 0), ops.new_rows(1)
    expected = ops.store(x[: 10**6].cpu(), part, control.cpu(), -1, 0)
    one = row(part, 0)
    assert same(y[: 10**6], expected) and same(y[-(10**6) :], expected)
    times = count // 10**6
    assert (seen.count, seen.zeros, seen.flushed) == (count, times * one.zeros, times * one.flushed)
    assert (seen.overflowed, seen.infinite, seen.nan) == (times * one.overflowed, times * one.infinite, times * one.nan)
    assert seen.amax == one.amax and (seen.histogram == times * one.histogram.astype(np.uint32)).all()


def test_stores_exponents(device):
    gs = GradientScaling(deferred=True)
    gs._open_once(device)
    x = example((4096,)).to(device)
    for start, end in ((0, 0), (0, 30), (-200, 177), (300, -1)):
        tensors = [torch.tensor(e, dtype=torch.int32, device=device) for e in (start, end)]
        expected = ops.scaled(x.cpu(), *(e.cpu() for e in reversed(tensors)))
        assert torch.equal(gs._stores.scaled(x, *tensors).cpu().nan_to_num(), expected.nan_to_num())
    assert int(gs._stores.least(torch.tensor(3, device=device), -4)) == -4
    looked = gs._stores.look(x, 7)
    assert looked.count == 4096 and looked.exponent == 7


# Attention

class Attention(nn.Module):
    def __init__(self, causal, masked, heads=4):
        super().__init__()
        self.causal, self.masked, self.heads = causal, masked, heads
        self.project, self.out = nn.Linear(64 * heads, 3 * 64 * heads), nn.Linear(64 * heads, 8)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.project(x).chunk(3, -1))
        n = x.shape[1]
        mask = torch.linspace(-3, 0, n * n, device=x.device).reshape(n, n).to(q.dtype) if self.masked else None
        return self.out(F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal).transpose(1, 2).flatten(-2))


@pytest.mark.parametrize("shift", [-40, 0, 20])
@pytest.mark.parametrize("kind", ["plain", "causal", "masked"])
@pytest.mark.parametrize("backend", ["MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"])
def test_each_attention(backend, kind, shift, device):
    if device.type == "cpu" and backend in ("EFFICIENT_ATTENTION", "CUDNN_ATTENTION"):
        pytest.skip(f"{backend} has no kernel on the CPU")
    if kind == "masked" and backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
        pytest.skip(f"{backend} takes no mask on all versions of PyTorch")
    torch.manual_seed(0)
    # 60 tokens are no multiple of a tile, and a mask of 60 columns is padded.
    model, x = Attention(kind == "causal", kind == "masked"), torch.randn(2, 60, 256).half().float()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.half().float())
    twin = copy.deepcopy(model).double()
    gs, one, two = attach(model.to(device)), x.to(device, copy=True).requires_grad_(), x.double().requires_grad_()
    try:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            out = model(one)
    except RuntimeError as refused:
        if "No available kernel" in str(refused):
            pytest.skip(f"this device has no kernel for {backend}: {torch.cuda.get_device_name(device)}")
        raise
    r = torch.randn(out.shape)
    ((out * r.to(device)).sum() * 2.0**shift).backward()
    ((twin(two) * r.double()).sum() * 2.0**shift).backward()
    found = [p.grad.cpu() for p in [*model.parameters(), one]]
    assert error(found, [p.grad for p in [*twin.parameters(), two]]) < 3e-3
    gs.update()
    if backend != "MATH":
        assert "project>scaled_dot_product_attention" in gs.sites.names


def fused_attention(device):
    """Flash attention's operators; on the CPU substitutes for them."""
    if device.type != "cpu":
        if torch.cuda.get_device_capability(device) < (8, 0):
            pytest.skip("flash attention needs a GPU of compute capability 8.0")
        return contextlib.nullcontext()
    return pytest.importorskip("test_torch_kernels", reason="the CPU has flash attention by stand-ins alone").stand_ins_in_place()


def test_an_overflow_inside_of_flash_attention_repeats(device):
    with fused_attention(device):
        torch_models.overflow_repeats(device)


def test_an_overflow_inside_of_flash_attention_skips_a_step(device):
    """Without repeats, and with rows that are read late: the exponent falls, and training continues."""
    with fused_attention(device):
        torch.manual_seed(0)
        model, x = torch_models.Steep().to(device), torch.randn(2, 7, 16).to(device)
        gs = attach(model, "gs:interval=100", deferred=True)
        optimizer = torch.optim.SGD(model.parameters(), 0.0)
        gs.guard(optimizer)

        def step(scale):
            optimizer.zero_grad()
            (model(x).sum() * scale).backward()
            optimizer.step()
            gs.update()
            return all(bool(p.grad.isfinite().all()) for p in model.parameters())

        name = "project>scaled_dot_product_attention"
        assert step(2.0**-20) and step(2.0**-20)
        slot = gs.sites.names.index(name)
        larger = 2.0 ** (-20 + gs.sites.row(slot).headroom + 2)
        ended = [step(larger) for _ in range(12)]
        assert not ended[0] and ended[-1] and gs.skipped >= 1
        assert gs.report().non_finite[name]["overflow"] >= 1


# Training

def mlp(device):
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10))
    return model, lambda g: (torch.randn(64, 64, generator=g), torch.randint(10, (64,), generator=g)), 0.1


def resnet18(device):
    full = device.type == "cuda"
    model = torch_models.resnet(width=64 if full else 8, depths=(2, 2, 2, 2) if full else (1, 1), classes=10)
    size, batch = (64, 32) if full else (16, 8)
    return model, lambda g: (torch.randn(batch, 3, size, size, generator=g), torch.randint(10, (batch,), generator=g)), 0.05


def gpt2(device):
    small = {} if device.type == "cuda" else {"words": 101, "context": 32, "width": 32, "heads": 2, "depth": 2}
    words, tokens = small.get("words", 50257), min(small.get("context", 256), 256)

    def batch(g):
        x = torch.randint(words, (2, tokens + 1), generator=g)
        return x[:, :-1], x[:, 1:]

    return torch_models.GPT2(**small), batch, 0.05


def lstm(device):
    words, width, tokens = (1000, 256, 64) if device.type == "cuda" else (50, 16, 12)

    def batch(g):
        x = torch.randint(words, (8, tokens + 1), generator=g)
        return x[:, :-1], x[:, 1:]

    return torch_models.Recurrent(words, width), batch, 0.5


TRAININGS = {"MLP": mlp, "ResNet-18": resnet18, "GPT-2": gpt2, "LSTM": lstm}


def losses(make, device, way, steps=20):
    """Losses of a training; `way`: f32, attach, GradScaler."""
    torch.manual_seed(0)
    model, batch, rate = make(device)
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.5)
    gs = attach(model) if way == "attach" else None
    scaler = GradScaler(device.type, model=model) if way == "GradScaler" else None
    if gs:
        gs.guard(optimizer)
    generator, found = torch.Generator().manual_seed(1), []
    # Four batches again and again, of which something can be learned.
    data = [tuple(part.to(device) for part in batch(generator)) for _ in range(4)]
    for step in range(steps):
        x, y = data[step % 4]
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.float16, enabled=scaler is not None):
            loss = cross_entropy(model(x).float(), y)
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            assert scaler.get_scale() == 1
        else:
            loss.backward()
            optimizer.step()
            if gs:
                gs.update()
        found.append(loss.detach())
    if gs or scaler:
        scaling = gs or scaler.scaling
        assert scaling.skipped == 0 and scaling.steps >= steps - 1
    return torch.stack(found).cpu()


@pytest.mark.parametrize("way", ["attach", "GradScaler"])
@pytest.mark.parametrize("name", TRAININGS)
def test_twenty_steps_beside_f32(name, way, device):
    if name == "LSTM" and way == "GradScaler" and device.type == "cpu":
        pytest.skip("PyTorch's LSTM has no half on the CPU, where attach runs it in f32")
    plain, half = losses(TRAININGS[name], device, "f32"), losses(TRAININGS[name], device, way)
    assert half.isfinite().all() and plain[-4:].mean() < plain[:4].mean()
    # A twentieth of the loss's decrease; roundings of halves in the forward pass alone cause a hundredth.
    assert (half - plain).abs().max() < 0.05 * (plain[:4].mean() - plain[-4:].mean()) + 0.01


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_fused_optimizers_leave_out_an_infinity(kind, device):
    model = network("mlp").to(device)
    gs = attach(model)
    if kind == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=True)
    else:
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
    gs.guard(optimizer)

    def step(x, y, factor=1.0):
        optimizer.zero_grad()
        (cross_entropy(model(x.to(device)), y.to(device)) * factor).backward()
        optimizer.step()
        gs.update()

    data = list(batches("mlp", 4))
    step(*data[0])
    weights = [p.detach().clone() for p in model.parameters()]
    state = copy.deepcopy(optimizer.state_dict()["state"])
    step(*data[1], factor=float("inf"))
    after = optimizer.state_dict()["state"]
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters()))
    assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(after[i][k])) for i in state for k, a in state[i].items() if a is not None)
    step(*data[2])
    step(*data[3])
    assert not any(torch.equal(a, b) for a, b in zip(weights, model.parameters()))
    assert gs.skipped == 1


def test_an_overflow_repeats_the_batch(device):
    model = network("mlp").to(device)
    gs = attach(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    for x, y, factor in zip(*zip(*batches("mlp", 3)), [1.0, 1.0, 2.0**40]):

        def closure():
            optimizer.zero_grad()
            loss = cross_entropy(model(x.to(device)), y.to(device)) * factor
            loss.backward()
            return loss

        gs.step(closure, optimizer)
        assert gs.outcome.stepped
    assert gs.repeats == 1 and gs.skipped == 0
    twin = network("mlp").double()
    (cross_entropy(twin(x.double()), y) * factor).backward()
    assert error([p.grad.cpu() for p in model.parameters()], [p.grad for p in twin.parameters()]) < 4e-3


def train_shifted(name, shift, device, steps=10):
    model = network(name).to(device)
    gs = attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * 2.0**-shift, weight_decay=2.0 ** (shift - 7))
    gs.guard(optimizer)
    for x, y in batches(name, steps):
        optimizer.zero_grad()
        (cross_entropy(model(x.to(device)), y.to(device)) * 2.0**shift).backward()
        optimizer.step()
        gs.update()
    assert gs.skipped == 0
    return [p.detach().clone() for p in model.parameters()], gs.sites.exponents.tolist()


@pytest.mark.parametrize("name", torch_models.NETWORKS)
def test_a_loss_times_a_power_of_two_changes_no_bit(name, device):
    (weights, exponents), (shifted, higher) = (train_shifted(name, shift, device) for shift in (0, -30))
    assert [e + 30 for e in exponents] == higher
    assert all(torch.equal(a, b) for a, b in zip(weights, shifted))


def test_no_step_waits_for_the_device(device):
    model = network("transformer").to(device)
    gs = attach(model, deferred=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    gs.guard(optimizer)
    data = [(x.to(device), y.to(device)) for x, y in batches("transformer", 5)]
    for i, (x, y) in enumerate(data):
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        watch = NoReads() if i > 2 else contextlib.nullcontext()
        if i > 2 and device.type == "cuda":
            torch.cuda.set_sync_debug_mode("error")
        try:
            with watch:
                loss.backward()
                optimizer.step()
        finally:
            if device.type == "cuda":
                torch.cuda.set_sync_debug_mode("default")
        gs.update()
    assert gs.steps == 4


# Products in FP8

@pytest.mark.parametrize("name", ["e5m2", "e4m3"])
def test_products_in_fp8(name, device):
    """Within the engine's bound beside f64, also for a sum of which tensor cores alone would keep 14 bits; integers exactly."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < fp8.LEAST_CAPABILITY:
        with pytest.raises(RuntimeError, match="products=fp8 needs compute capability 8.9"):
            attach(network("mlp").to(device), "gs:format=e4m3,products=fp8")
        return
    left, right = find(name), find("e4m3")
    generator = torch.Generator().manual_seed(0)
    for m, k, n in ((1, 1, 1), (5, 17, 3), (128, 256, 64), (64, 8192, 16)):
        a, b = (torch.randn(shape, generator=generator) for shape in ((m, k), (k, n)))
        a, b = (x.to(kind).half().to(device) for x, kind in zip((a, b), (fp8.TYPES[name], fp8.TYPES["e4m3"])))
        found, wide = fp8._multiply(a, left, b, right).cpu().double(), [x.cpu().double() for x in (a, b)]
        true, size = wide[0] @ wide[1], wide[0].abs() @ wide[1].abs()
        assert ((found - true).abs() <= size / 60).all() and error([found], [true]) < 2.0**-8
        a, b = (x.clamp(-2, 2).round() for x in (a, b))
        assert torch.equal(fp8._multiply(a, left, b, right).cpu(), a.cpu().float() @ b.cpu().float())
    ones = torch.ones(16, 8192, dtype=torch.float16, device=device) * 1.25
    assert error([fp8._multiply(ones, left, ones.t(), right).cpu()], [torch.full((16, 16), 12800.0)]) < 0.01


def test_a_network_trains_with_products_in_fp8(device):
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < fp8.LEAST_CAPABILITY:
        pytest.skip("needs compute capability 8.9")
    found = []
    for products in ("", ",products=fp8"):
        model = network("transformer").to(device)
        gs = attach(model, f"gs:grad=e5m2,act=e4m3,weight=e4m3{products}")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        gs.guard(optimizer)
        for x, y in batches("transformer", 10):
            optimizer.zero_grad()
            loss = cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            gs.update()
        assert gs.skipped == 0
        found.append(loss.item())
    assert abs(found[0] - found[1]) < 0.05


# Compiled

class Strided(nn.Module):
    """Gradients that are expanded, sliced and turned."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 16), nn.Linear(8, 5)

    def forward(self, x):
        return self.b(self.a(x)[:, ::2].relu()).t().mean(0, keepdim=True).expand(3, -1)


@pytest.mark.parametrize("name", ["mlp", "conv", "transformer", "strided"])
def test_compiled(name, device):
    """On a GPU by Inductor, on the CPU by the backend whose bits are those of eager execution."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Strided() if name == "strided" else network(name)
    x, y = next(batches("mlp" if name == "strided" else name, 1))

    def loss_of(out, y):
        return out.sum() if name == "strided" else cross_entropy(out, y)

    twin = copy.deepcopy(model).double()
    (loss_of(twin(x.double() if x.is_floating_point() else x), y) * 2.0**-30).backward()
    gs = attach(model.to(device))
    backend = "inductor" if device.type == "cuda" else "aot_eager"
    forward = torch.compile(model, fullgraph=True, backend=backend)
    x, y = x.to(device), y.to(device)
    for step in range(3):
        model.zero_grad()
        with torch._dynamo.config.patch(error_on_recompile=step > 0):
            (loss_of(forward(x), y) * 2.0**-30).backward()
        if name != "conv" or step == 0:  # whose running statistics change
            assert error([p.grad.cpu() for p in model.parameters()], [p.grad for p in twin.parameters()]) < 3e-3
        gs.update()
    assert gs.skipped == 0


# Names and states

class Everything(nn.Module):
    """A layer of each kind that has other operators on another device."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Dropout(0.1)
        self.qkv, self.lstm, self.gru = nn.Linear(16, 48), nn.LSTM(16, 16, num_layers=2), nn.GRU(16, 8, bidirectional=True)
        self.mid, self.head = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = self.drop(F.relu(self.norm(self.conv(x)))).flatten(2).transpose(1, 2).contiguous()
        q, k, v = (y[:, None] for y in self.qkv(x).chunk(3, -1))
        x = F.scaled_dot_product_attention(q, k, v)[:, 0].transpose(0, 1)
        x = self.mid(self.lstm(x)[0])
        return self.head(self.gru(x)[0])


SITES = [
    "head", "gru/rnn>to_copy", "mid", "lstm/rnn>to_copy", "qkv>scaled_dot_product_attention", "qkv",
    "norm/batch_norm>relu>mul", "norm/batch_norm>relu", "conv",
]


def one_step(model, device, state=None):
    gs = attach(model)
    if state is not None:
        gs.load_state_dict(state)
    torch.manual_seed(3)
    (model(torch.randn(2, 3, 6, 6).to(device)).square().sum() * 2.0**-20).backward()
    gs.update()
    return gs


def test_sites_have_the_same_names_and_states_move(device):
    torch.manual_seed(0)
    model = Everything()
    on_cpu = one_step(model, "cpu")
    on_cpu.update()
    state = on_cpu.state_dict()
    on_cpu.detach()
    assert sorted(on_cpu.sites.names) == sorted(SITES)
    fresh = one_step(model.to(device), device)
    assert sorted(fresh.sites.names) == sorted(SITES)
    fresh.detach()
    moved = one_step(model, device, state)
    assert moved.sites.names == on_cpu.sites.names and moved.steps >= 1


# Refused uses

def test_a_captured_step_is_refused(device):
    on_cuda(device)
    model = network("mlp").to(device)
    gs = attach(model)
    x, y = (part.to(device) for part in next(batches("mlp", 1)))
    cross_entropy(model(x), y).backward()
    gs.update()
    torch.cuda.synchronize()
    words = ""
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            cross_entropy(model(x), y).backward()
    except Exception as refused:  # ending the capture may fail after it
        while refused is not None:
            words, refused = words + str(refused), refused.__context__
    torch.cuda.synchronize()
    assert "CUDA graph is being captured, but its replays cannot decide exponents" in words


def test_two_gpus_in_a_process_are_refused(device):
    on_cuda(device)
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    first, second = nn.Linear(4, 4).to("cuda:0"), nn.Linear(4, 4).to("cuda:1")

    class Apart(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x):
            return self.second(self.first(x).to("cuda:1"))

    model = Apart()
    attach(model)
    with pytest.raises(RuntimeError, match="gradients are on cuda:1 and on cuda:0: move the model to one device"):
        model(torch.randn(2, 4, device="cuda:0")).sum().backward()


def test_a_gpu_that_is_not_the_current_one(device):
    on_cuda(device)
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    stores_alike(example((4096,)), torch.device("cuda:1"), 5, 3)
    model = network("mlp").to("cuda:1")
    gs = attach(model)
    for x, y in batches("mlp", 3):
        cross_entropy(model(x.to("cuda:1")), y.to("cuda:1")).backward()
        gs.update()
    assert gs.steps == 2
