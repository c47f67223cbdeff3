"""Networks and values for the tests of gradscale.torch, small enough for a CPU whose half products are slow."""

import collections
import contextlib
import copy
import multiprocessing

import gradscale
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from gradscale.torch import attach, gpu, ops, rules, store_formats
from gradscale.torch.scaled import ScaledTensor


class Block(nn.Module):
    """A pre-norm transformer block, written as most people do."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, words=17, width=16, heads=2, depth=2):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.embed(x))))


def mlp():
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 5))


def conv():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 5),
    )


class Residual(nn.Module):
    """ResNet's block: two convolutions, or three with a bottleneck."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        sizes = [(1, 1), (3, stride), (1, 1)] if bottleneck else [(3, stride), (3, 1)]
        layers, channels = [], inputs
        for i, (size, step) in enumerate(sizes):
            after = outputs if i == len(sizes) - 1 else width
            layers += [nn.Conv2d(channels, after, size, step, size // 2, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
            channels = after
        self.body = nn.Sequential(*layers[:-1])
        same = inputs == outputs and stride == 1
        self.skip = nn.Identity() if same else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


def resnet(depths=(2, 2, 2, 2), width=64, bottleneck=False, classes=1000):
    """ResNet-18; with ``(3, 4, 6, 3)`` and a bottleneck ResNet-50."""
    layers, inputs = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], width
    for level, depth in enumerate(depths):
        for i in range(depth):
            layers.append(Residual(inputs, width << level, 2 if level and i == 0 else 1, bottleneck))
            inputs = (width << level) * (4 if bottleneck else 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class Causal(nn.Module):
    """GPT-2's block, with fused attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """GPT-2 small, or smaller on request; the head shares the weights of the word embedding."""

    def __init__(self, words=50257, context=1024, width=768, heads=12, depth=12):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Causal(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.words(x) + self.places(torch.arange(x.shape[1], device=x.device)))))


class Recurrent(nn.Module):
    """A language model of LSTMs."""

    def __init__(self, words=1000, width=256, depth=2):
        super().__init__()
        self.words, self.lstm, self.head = nn.Embedding(words, width), nn.LSTM(width, width, depth), nn.Linear(width, words)

    def forward(self, x):
        return self.head(self.lstm(self.words(x).transpose(0, 1))[0].transpose(0, 1))


NETWORKS = {"mlp": mlp, "conv": conv, "transformer": Transformer}


def batches(name, count, seed=0):
    """Batches of made-up data: inputs and classes."""
    g = torch.Generator().manual_seed(seed)
    for _ in range(count):
        if name == "mlp":
            yield torch.randn(16, 12, generator=g), torch.randint(5, (16,), generator=g)
        elif name == "conv":
            yield torch.randn(8, 3, 8, 8, generator=g), torch.randint(5, (8,), generator=g)
        else:
            yield torch.randint(17, (4, 6), generator=g), torch.randint(17, (4, 6), generator=g)


def train_on_small_losses(model, gs, optimizer, data):
    """Trains on losses times 2^-20, as a loop with `update` does."""
    for x, y in data:
        optimizer.zero_grad()
        (cross_entropy(model(x), y) * 2.0**-20).backward()
        optimizer.step()
        gs.update()


def network(name, seed=0):
    torch.manual_seed(seed)
    return NETWORKS[name]()


def cross_entropy(out, y):
    return F.cross_entropy(out.flatten(0, -2), y.flatten())


def error(found, true):
    """Norm of the difference of two lists of tensors, relative to the norm of the second."""
    a = torch.cat([x.double().flatten() for x in found])
    b = torch.cat([x.double().flatten() for x in true])
    return float((a - b).norm() / b.norm())


def exact(model, loss):
    """Gradients in f64 of the same model, by PyTorch."""
    twin = copy.deepcopy(model).double()
    loss(twin).backward()
    return [p.grad for p in twin.parameters()]


def example(shape=(4, 3, 8, 8), seed=0):
    """Values over 24 powers of ten, with zeros, non-finite values, and values on both sides of FP16's thresholds for
    flushing, subnormals and overflow, also at 2^5."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator) * 10 ** torch.empty(shape).uniform_(-12, 12, generator=generator)
    edges = torch.tensor([2.0**-25, 2.0**-14 - 2.0**-25, 65520.0])
    edges = torch.cat([edges, edges.nextafter(torch.tensor(0.0)), edges.nextafter(torch.tensor(torch.inf))])
    special = torch.cat([torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan]), edges, -32 * edges])
    x.view(-1)[: special.numel()] = special
    return x


def row(rows, site):
    return gradscale.Stats._from_words(rows[site].cpu().numpy().view(np.uint32))


def run_ranks(function, *args, count=2):
    """Calls ``function(rank, *args)`` in a process for each rank. These are forks of a process that has imported PyTorch: each
    import takes 4 seconds of processor time."""
    multiprocessing.set_forkserver_preload(["torch.distributed", "gradscale.torch"])
    torch.multiprocessing.start_processes(function, args, nprocs=count, start_method="forkserver")


class NoReads(TorchDispatchMode):
    """Fails where the host would wait for a device: at every number read from a tensor."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal"), name
        if ScaledTensor in types:
            return NotImplemented  # Its own operators come here, too.
        return function(*args, **(kwargs or {}))


class Launches(TorchDispatchMode):
    """Counts the operators that launch something on a GPU, by name, those on the values of scaled gradients among them."""

    #: Operators that only allocate, or that take views without declaring it.
    FREE = frozenset("empty empty_like empty_strided new_empty new_empty_strided _unsafe_view".split())

    def __init__(self):
        super().__init__()
        self.counts = collections.Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if ScaledTensor in types:
            return NotImplemented
        operator = rules.described(function)
        out = function(*args, **(kwargs or {}))
        # Conversions return a view where there is nothing to convert.
        converted = operator.name in ("to", "contiguous", "reshape") and out.data_ptr() != args[0].data_ptr()
        if converted or not operator.views and operator.name not in self.FREE:
            self.counts[operator.name] += 1
        return out


class KernelStandIns:
    """The functions of gradscale.torch.kernels by PyTorch's own operators, for the CPU, and a count of their calls."""

    def __init__(self):
        self.counts = collections.Counter()

    @staticmethod
    def _tensor(exponent):
        return torch.as_tensor(exponent, dtype=torch.int32)

    @torch.utils._python_dispatch._disable_current_modes()
    def store_values(self, x, y, rows, control, start, site, kept=None, format=store_formats.FP16):
        self.counts["store_values"] += 1
        u = ops.scaled(x, control[0, site], self._tensor(start))
        ops._merge(u, rows[site], control[0, site], control[1, site], format)
        if y is not None:
            y.copy_(store_formats.rounded(u, format))
        if kept is not None:
            kept.copy_(control[0, site])

    @torch.utils._python_dispatch._disable_current_modes()
    def scale_values(self, x, y, start, end):
        self.counts["scale_values"] += 1
        y.copy_(ops.scaled(x, self._tensor(end), self._tensor(start)))

    @torch.utils._python_dispatch._disable_current_modes()
    def add_values(self, x, y, out, a, b, least):
        self.counts["add_values"] += 1
        a, b = self._tensor(a), self._tensor(b)
        least.copy_(torch.minimum(a, b))
        out.copy_(ops.scaled(x, least, a) + ops.scaled(y, least, b))


@contextlib.contextmanager
def on_kernels(kernels):
    """Context in which trainings on the CPU take the ways of a GPU, with these kernels; None: with PyTorch's operators."""
    before = ops.kernels_on, gpu.DEVICE_TYPES
    library = torch.library.Library("aten", "IMPL")
    if kernels is not None:
        ops.kernels_on, gpu.DEVICE_TYPES = lambda device: kernels, {"cpu"}
        for name in ("mm", "bmm"):
            multiply = getattr(torch.ops.aten, name).default
            library.impl(f"{name}.dtype", lambda a, b, dtype, multiply=multiply: multiply(a.to(dtype), b.to(dtype)), "CPU")
    try:
        yield
    finally:
        ops.kernels_on, gpu.DEVICE_TYPES = before
        library._destroy()


def trained_late(name, steps=4, method="gs:interval=1"):
    """Trains a network with rows that are read late, at a loss whose gradients need other exponents in each step. Returns its
    weights, the rows of the last step by site, and the exponents."""
    model = network(name)
    gs = attach(model, method, deferred=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    gs.guard(optimizer)
    for i, (x, y) in enumerate(batches(name, steps)):
        optimizer.zero_grad()
        (cross_entropy(model(x), y) * 2.0 ** (-6 * i)).backward()
        optimizer.step()
        gs.update()
    rows = {site: gs.sites.row(i).to_words().tolist() for i, site in enumerate(gs.sites.names)}
    return [p.detach() for p in model.parameters()], rows, gs.sites.exponents.tolist()


def probabilities(q, k, causal, bias, scale):
    scores = q @ k.transpose(-1, -2) * scale + bias
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
    return scores.softmax(-1)


def attention(q, k, v, causal=False, bias=0.0, scale=None):
    return probabilities(q, k, causal, bias, scale or q.shape[-1] ** -0.5) @ v


class Flash(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads, self.project, self.head = heads, nn.Linear(width, 3 * width), nn.Linear(width, 5)

    def attend(self, q, k, v):
        if q.dtype == torch.float64:
            return attention(q, k, v, True)
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0]

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-2, -3)
        return self.head(self.attend(q, k, v).transpose(-2, -3).flatten(-2))


def halved(model):
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.half().float())
    return model


class Steep(Flash):
    """Keys so large that gradients of queries are 2^13 times the incoming gradient."""

    def attend(self, q, k, v):
        return super().attend(q, k * 2.0**10, v * 2.0**3)


def overflow_repeats(device, late=None, method="gs:interval=100"):
    """The current exponent is far too high for the kernel's results, but not for the incoming gradient."""
    torch.manual_seed(0)
    model, x = halved(Steep()).to(device), torch.randn(2, 7, 16).half().float().to(device)
    gs = attach(model, method, deferred=late)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    runs = []

    def closure():
        optimizer.zero_grad()
        runs.append(0)
        loss = (model(x) * scale).sum()
        loss.backward()
        return loss

    name = "project>scaled_dot_product_attention"
    for scale in (2.0**-20, 2.0**-20):
        gs.step(closure, optimizer)
    slot = gs.sites.names.index(name)
    before, row = int(gs.sites.exponents[slot]), gs.sites.row(slot)
    assert len(runs) == 2 and gs.repeats == 0
    # Bits that are free above the results, and above the incoming gradient, which is smaller.
    scale *= 2.0 ** (row.headroom + 2)
    gs.step(closure, optimizer)
    assert gs.outcome.stepped and gs.repeats >= 1
    blamed = gs.report().non_finite
    assert blamed[name]["overflow"] >= 1 and blamed[name]["infinite"] == blamed[name]["nan"] == 0
    assert gs.sites.row(slot).exponent < before
    assert all(p.grad.isfinite().all() for p in model.parameters())
