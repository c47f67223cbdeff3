"""Gradients that are written into: by hooks, through views, by PyTorch's own formulas; numbers as terms; complex values."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

from gradscale.torch import GradScaler, GradientScaling, attach  # noqa: E402
from gradscale.torch.attach import Scaled  # noqa: E402
from torch_island import trained  # noqa: E402
from torch_models import error  # noqa: E402

torch.set_num_threads(1)
SHIFTS = [0, -36]


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def assign(g, where, value):
    g[where] = value


def silent(change):
    """Wraps a function as a hook that returns nothing."""

    def hook(g):
        change(g)

    return hook


EVEN = torch.arange(16) % 2 == 0
#: Changes of a gradient in place, whose results PyTorch sees because they share memory.
CHANGES = {
    "mul_": lambda g: g.mul_(3),
    "mul_, by a mask": lambda g: g.mul_(EVEN[:, None]),
    "neg_, a gradient's reversal": lambda g: g.neg_(),
    "div_": lambda g: g.div_(g.norm()).mul_(2.0**-30),
    "zero_, of a slice": lambda g: g[:, :2].zero_(),
    "fill_, of a column": lambda g: g[:, 0].fill_(0),
    "g[:, 0] = 0": lambda g: assign(g, (slice(None), 0), 0),
    "g[mask] = 0": lambda g: assign(g, EVEN, 0),
    "g[rows] = number": lambda g: assign(g, slice(3, 5), g.detach().abs().max() * 2),
    "clamp_": lambda g: g[:, 1:3].clamp_(min=0),
    "masked_fill_": lambda g: g.masked_fill_(EVEN[:, None], 0),
    "index_fill_": lambda g: g.index_fill_(1, torch.tensor([0, 2]), 0),
    "addcmul_": lambda g: g.addcmul_(g, torch.ones(8, dtype=g.dtype), value=0.5),
    "lerp_": lambda g: g.lerp_(g * 3, 0.5),
    "copy_ of itself": lambda g: g.copy_(g * 2),
    "tril_": lambda g: g.tril_(),
    "cumsum_": lambda g: g.cumsum_(0),
    "add_ on a view": lambda g: g[0].add_(g[1]),
    "view(-1)": lambda g: g.view(-1)[:20].mul_(2),
    "transposed": lambda g: g.t()[1].neg_(),
    "split": lambda g: g.split(4, 1)[0].mul_(2),
    "unbind": lambda g: g.unbind(0)[0].zero_(),
    "unsafe_chunk": lambda g: [part.neg_() for part in torch.unsafe_chunk(g, 2)],
    "unsafe_split_with_sizes": lambda g: torch.unsafe_split_with_sizes(g, [3, 13])[1].mul_(2),
    "_unsafe_view": lambda g: torch.ops.aten._unsafe_view(g, (-1,))[:20].mul_(2),
    "chunks one by one": lambda g: [part.mul_(2) for part in g.chunk(3)],
    "diagonal": lambda g: g.diagonal().zero_(),
    "data": lambda g: g.data.mul_(2),
    "out=": lambda g: torch.mul(g, 3, out=g),
    "_foreach_mul_": lambda g: torch._foreach_mul_([g], 2.0),
    "_foreach_mul_ of what overlaps": lambda g: torch._foreach_mul_([g, g[:2]], 2.0),
    "a view before the base": lambda g: [v.mul_(2) for v in [g[2:]] if g.mul_(3) is g],
    "the base after a view": lambda g: [g.add_(v.sum(0)) for v in [g[2:]]],
}


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("name", CHANGES)
def test_hooks_that_change_a_gradient_in_place(name, shift):
    def function(x):
        if x.requires_grad:
            x.register_hook(silent(CHANGES[name]))
        return x.tanh()

    found, gs, _ = trained(function, drawn(16, 6), shift)
    assert found < 3e-3 and len(gs.sites) > 0


#: New gradients, computed from one.
RESULTS = {
    "g + number": lambda g: g + 2.0**-40,
    "number - g": lambda g: 2.0**-40 - g,
    "ones_like": lambda g: torch.ones_like(g) * 2.0**-40,
    "where, with a number": lambda g: torch.where(g > 0, g, 2.0**-20),
    "scatter of a number": lambda g: g.scatter(1, torch.zeros(16, 1, dtype=torch.long), 2.0**-40),
    "masked_fill with a number": lambda g: g.masked_fill(EVEN[:, None], 2.0**-40),
    "index_put of numbers": lambda g: g.index_put((torch.tensor([1, 2]),), torch.full_like(g[0, 0], 2.0**-40)),
    "a norm of one": lambda g: g / g.norm() * 2.0**-36,
    "clamp": lambda g: g.clamp(-(2.0**-44), 2.0**-44),
    "sign": lambda g: g.sign() * 2.0**-40,
    "a clone that is changed": lambda g: [c for c in [g.clone()] if assign(c, (slice(None), 0), 0) is None][0],
    "an empty buffer": lambda g: [b for b in [torch.empty_like(g)] if [b[:8].copy_(g[:8]), b[8:].copy_(2 * g[8:])]][0],
    "a buffer of zeros": lambda g: [b for b in [torch.zeros_like(g)] if b[:, 2:].add_(g[:, 2:]) is not None][0],
    "a mask of its own": lambda g: g * g.bool(),
    "convolution with a bias": lambda g: F.conv1d(
        g[:, None].to(torch.float64 if g.dtype == torch.float64 else torch.float32),
        torch.ones(1, 1, 3, dtype=torch.float64 if g.dtype == torch.float64 else torch.float32),
        torch.full((1,), 2.0**-40, dtype=torch.float64 if g.dtype == torch.float64 else torch.float32),
        padding=1,
    )[:, 0].to(g.dtype),
    "a sorted one": lambda g: g.sort(0).values,
}


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("name", RESULTS)
def test_hooks_that_return_another_gradient(name, shift):
    def function(x):
        if x.requires_grad:
            x.register_hook(RESULTS[name])
        return x * 2

    found, gs, _ = trained(function, drawn(16, 6), shift)
    assert found < (4e-2 if name in ("sign", "clamp") else 3e-3) and len(gs.sites) > 0


def test_a_mask_on_a_weight_before_the_first_backward():
    mask = torch.arange(48).view(8, 6) % 2

    def prepare(model):
        model.first.weight.register_hook(lambda g: g.mul_(mask))

    found, _, pairs = trained(torch.tanh, drawn(16, 6), -36, prepare=prepare)
    assert found < 3e-3 and not pairs[0][0][mask == 0].any()


def test_what_has_no_exponent_is_refused_by_name():
    refused = {
        r"aten::copy_ writes a scaled gradient into a plain float16 tensor.*torch.empty_like\(g\)": lambda g: torch.zeros(16, 8).half().copy_(g),
        r"aten::mul writes a scaled gradient into a plain float16": lambda g: torch.mul(g, 2, out=torch.empty(16, 8).half()),
        r"view.dtype reads the bits": lambda g: g.view(torch.int16),
        r"set_ changes the memory": lambda g: g.set_(torch.zeros(3).half()),
        r"aten::mul changes the shape \(3,\) of a gradient to \(16, 8\): pass g.unscaled": lambda g: torch.mul(g, 2, out=g.new_empty(3)),
        r"has no memory that can be addressed: use g.unscaled\(\)": lambda g: g.data_ptr(),
        r"Cannot access data pointer|no memory": lambda g: torch.utils.dlpack.to_dlpack(g),
    }
    for words, change in refused.items():
        def function(x):
            if x.requires_grad:
                x.register_hook(silent(change))
            return x * 2

        with pytest.raises(RuntimeError, match=words):
            trained(function, drawn(16, 6), 0)


@pytest.mark.parametrize("view", [torch.conj, torch._neg_view, lambda g: g.conj()[1], lambda g: g.mH[0], lambda g: g.conj().imag])
def test_a_write_into_a_conjugated_view_is_refused(view):
    """PyTorch computes these views when they are read, so a gradient holds a copy of their values."""
    change = lambda g: view(g).mul_(3)

    def function(x):
        z = torch.complex(x.float(), x.float().roll(1, 1)) if x.dtype == torch.float16 else torch.complex(x, x.roll(1, 1))
        z.register_hook(silent(change))
        return z.abs()

    with pytest.raises(RuntimeError, match="aten::mul_ writes into a conjugated view of a gradient: pass g.unscaled"):
        trained(function, drawn(16, 6), 0)


def test_plain_f32_buffers_get_the_gradient_itself():
    buffer = torch.zeros(16, 8)

    def function(x):
        if x.dtype == torch.float16:
            x.register_hook(lambda g: [buffer.zero_(), buffer[:8].copy_(g[:8]), buffer[8:].add_(g[8:])] and None)
        elif x.requires_grad:
            x.register_hook(lambda g: true.append(g.clone()))
        return x.tanh()

    true = []
    trained(function, drawn(16, 6), -36)
    assert error([buffer], true) < 3e-3


def test_hooks_take_a_gradient_out_of_pytorch():
    import copy
    import io

    import numpy

    seen = []

    def look(g):
        buffer = io.BytesIO()
        torch.save(g, buffer)
        buffer.seek(0)
        loaded = torch.load(buffer, weights_only=True)
        others = [torch.tensor(g.tolist()), torch.from_dlpack(g), torch.from_numpy(numpy.asarray(g)), copy.deepcopy(g), loaded]
        seen.append((g.unscaled(), others))

    def function(x):
        if x.dtype == torch.float16:
            x.register_hook(look)
        return x * 2

    trained(function, drawn(16, 6), -36)
    for gradient, others in seen:
        assert gradient.abs().max() > 0
        assert all(type(x) is torch.Tensor and torch.equal(x.float(), gradient) for x in others)


def square(x):
    return x.unflatten(-1, (4, 4))


WINDOW = torch.hann_window(16)
#: Formulas of PyTorch that write in place or into buffers, or whose gradients are complex.
FORMULAS = {
    "qr": lambda x: torch.linalg.qr(square(x))[0].flatten(1),
    "eigh": lambda x: torch.linalg.eigvalsh(square(x) + square(x).mT).repeat(1, 4),
    "eigenvectors": lambda x: torch.linalg.eigh(square(x) + square(x).mT)[1].abs().flatten(1),
    "householder_product": lambda x: torch.linalg.householder_product(square(x), 0.1 * square(x)[:, 0]).flatten(1),
    "cholesky": lambda x: torch.linalg.cholesky(square(x) @ square(x).mT + 4 * torch.eye(4, dtype=x.dtype)).flatten(1),
    "svd": lambda x: torch.linalg.svdvals(square(x)).repeat(1, 4),
    "solve": lambda x: torch.linalg.solve(square(x) + 8 * torch.eye(4, dtype=x.dtype), square(x)).flatten(1),
    "binary_cross_entropy": lambda x: x + F.binary_cross_entropy(x.sigmoid(), torch.full_like(x, 0.3)) * 7,
    "binary_cross_entropy_with_logits": lambda x: x + F.binary_cross_entropy_with_logits(x, torch.full_like(x, 0.3)) * 7,
    "scatter_reduce, mean": lambda x: torch.zeros_like(x).scatter_reduce(1, torch.arange(16).expand_as(x) % 4, x, "mean", include_self=False),
    "index_reduce, mean": lambda x: torch.zeros_like(x).index_reduce(1, torch.arange(16) % 4, x, "mean", include_self=False),
    "index_reduce, amax": lambda x: torch.zeros_like(x).index_reduce(1, torch.arange(16) % 4, x, "amax"),
    "norms of rows of zeros": lambda x: x + torch.linalg.vector_norm(x * (torch.arange(16) % 2), 3, dim=0),
    "prod": lambda x: x + (1 + 0.1 * x).prod(1, keepdim=True),
    "cumprod": lambda x: (1 + 0.1 * x).cumprod(1),
    "put": lambda x: torch.zeros_like(x).put(torch.arange(16), x[0]) + x,
    "masked_scatter": lambda x: torch.zeros_like(x).masked_scatter(torch.arange(16) % 2 == 0, x),
    "take": lambda x: x.take(torch.arange(256).view(16, 16)),
    "unfold": lambda x: x.unfold(1, 4, 4).mean(2).repeat(1, 4),
    "stft().abs()": lambda x: torch.stft(x, 8, 4, window=torch.hann_window(8, dtype=x.dtype), return_complex=True).abs().flatten(1)[:, :16],
    "fft": lambda x: torch.fft.fft(x).real + torch.fft.fft(x).imag,
    "rfft, irfft": lambda x: torch.fft.irfft(torch.fft.rfft(x) * torch.complex(*torch.ones(2, 9, dtype=x.dtype)), n=16),
    "view_as_complex": lambda x: torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (8, 2))) * torch.complex(*torch.ones(2, 8, dtype=x.dtype))).flatten(1),
    "polar": lambda x: torch.view_as_real(torch.polar(x[:, :8].sigmoid(), x[:, 8:])).flatten(1),
    "conj, angle": lambda x: (torch.complex(x, x.roll(1)).conj() * torch.complex(x, -x)).angle() + torch.complex(x, x).conj().imag,
    "complex, in place": lambda x: torch.complex(x, x.tanh()).clone().mul_(2j).abs(),
    "complex sums": lambda x: (torch.complex(x, x).sum(1, keepdim=True) * torch.complex(x, -x)).real,
}


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_of_pytorch_between_halves(name, shift):
    """As f32 islands: their gradients come from half and are passed on to half."""

    def function(x):
        return FORMULAS[name](x.float() if x.dtype == torch.float16 else x)

    found, gs, _ = trained(function, drawn(16, 6), shift, width=16, out=16)
    assert found < 6e-3 and gs.steps == 2


class Packed(nn.Module):
    """A linear layer before a recurrent one over packed sequences: PyTorch's backward writes into a plain half buffer."""

    def __init__(self, kind=nn.GRU, batch_first=True, is_sorted=False):
        super().__init__()
        self.a, self.g, self.b = nn.Linear(6, 8), kind(8, 8, batch_first=batch_first), nn.Linear(8, 3)
        self.batch_first, self.is_sorted = batch_first, is_sorted

    def forward(self, x):
        lengths = torch.tensor([7, 6, 5, 2] if self.is_sorted else [7, 5, 2, 6])
        h = self.a(x) if self.batch_first else self.a(x).transpose(0, 1)
        packed = pack_padded_sequence(h, lengths, batch_first=self.batch_first, enforce_sorted=self.is_sorted)
        if torch.is_autocast_enabled("cpu") and not isinstance(self.__dict__.get("forward"), Scaled):
            packed = packed.float()  # Without attach(), PyTorch's layers get halves, unsupported here.
        with torch.autocast("cpu", enabled=False):
            out = pad_packed_sequence(self.g(packed)[0], batch_first=self.batch_first)[0]
        return self.b(out)


@pytest.mark.parametrize("how", ["attach", "attach, late", "backward", "drop-in"])
@pytest.mark.parametrize("shift", [0, -30, -36])
@pytest.mark.parametrize("model", [(nn.GRU, True, False), (nn.LSTM, False, True), (nn.RNN, True, True)], ids=["GRU", "LSTM", "RNN"])
def test_packed_sequences(model, shift, how):
    torch.manual_seed(0)
    model, x = Packed(*model), drawn(4, 7, 6)
    (model(x).square().mean() * 2.0**shift).backward()
    true = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    if how.startswith("attach"):
        gs = attach(model, deferred=how.endswith("late"))
        (model(x).square().mean() * 2.0**shift).backward()
    else:
        scaler = GradScaler("cpu", model=model)
        gs = scaler.scaling
        with torch.autocast("cpu", torch.float16):
            loss = model(x).float().square().mean() * 2.0**shift
        (scaler.scale(loss) if how == "drop-in" else gs.scale(loss)).backward()
    for (name, p), q in zip(model.named_parameters(), true):
        assert error([p.grad], [q]) < 5e-3, name
    gs.update()
    assert any(name.startswith("a") for name in gs.sites.names)
