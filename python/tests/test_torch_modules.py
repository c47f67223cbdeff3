"""Gradients of torch.nn's modules, drawn at random, against autograd in f64."""

import copy
import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402

from gradscale.torch import attach  # noqa: E402
from torch_models import error  # noqa: E402

torch.set_num_threads(1)


def layer(make, *shapes, integer=None, half=True, wide=2e-3):
    """A module and the shapes of its inputs, with the error that forward roundings alone may cause."""
    return make, shapes, integer, half, wide


class First(nn.Module):
    """The first result of a module that has several."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *x):
        out = self.inner(*x)
        return out[0] if isinstance(out, tuple) else out


class Attention(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.causal = causal

    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


LAYERS = {
    "Linear": layer(lambda n: nn.Linear(6, n + 2), (5, 6)),
    "Linear of three dimensions": layer(lambda n: nn.Linear(6, n + 2, bias=False), (2, 5, 6)),
    "Bilinear": layer(lambda n: nn.Bilinear(4, 5, n + 1), (6, 4), (6, 5), half=False),
    "Conv1d": layer(lambda n: nn.Conv1d(4, 2 * n, 3, padding=1, groups=2), (2, 4, 9)),
    "Conv2d": layer(lambda n: nn.Conv2d(4, 2 * n, 3, stride=n, dilation=1), (2, 4, 8, 9)),
    "Conv2d, dilated": layer(lambda n: nn.Conv2d(4, 4, 3, dilation=2, padding=n, groups=4), (2, 4, 8, 9)),
    "Conv3d": layer(lambda n: nn.Conv3d(2, n + 1, 2), (2, 2, 4, 5, 4)),
    "ConvTranspose1d": layer(lambda n: nn.ConvTranspose1d(4, 2 * n, 3, stride=2), (2, 4, 5)),
    "ConvTranspose2d": layer(lambda n: nn.ConvTranspose2d(4, n, 3, stride=2, output_padding=1), (2, 4, 4, 3)),
    "ConvTranspose3d": layer(lambda n: nn.ConvTranspose3d(2, n, 2), (2, 2, 3, 3, 3)),
    "Embedding": layer(lambda n: nn.Sequential(nn.Embedding(9, 2 * n), nn.Linear(2 * n, 3)), (4, 5), integer=9),
    "EmbeddingBag": layer(lambda n: nn.Sequential(nn.EmbeddingBag(9, 2 * n), nn.Linear(2 * n, 3)), (4, 5), integer=9),
    "RNN": layer(lambda n: First(nn.RNN(5, 2 * n)), (4, 3, 5)),
    "LSTM": layer(lambda n: First(nn.LSTM(5, 2 * n, num_layers=2)), (4, 3, 5)),
    "LSTM, both ways": layer(lambda n: First(nn.LSTM(5, 2 * n, bidirectional=True, batch_first=True)), (3, 4, 5)),
    "GRU": layer(lambda n: First(nn.GRU(5, 2 * n)), (4, 3, 5)),
    "RNNCell": layer(lambda n: nn.RNNCell(5, 3), (4, 5)),
    "LSTMCell": layer(lambda n: First(nn.LSTMCell(5, 3)), (4, 5)),
    "GRUCell": layer(lambda n: nn.GRUCell(5, 3), (4, 5)),
    "MultiheadAttention": layer(lambda n: First(nn.MultiheadAttention(4 * n, 2, batch_first=True)), *[(2, 3, "4n")] * 3),
    "scaled_dot_product_attention": layer(lambda n: Attention(False), *[(2, 2, 5, 4)] * 3),
    "causal attention": layer(lambda n: Attention(True), *[(2, 2, 5, 4)] * 3),
    "TransformerEncoderLayer": layer(lambda n: nn.TransformerEncoderLayer(4 * n, 2, 8, 0.0, batch_first=True), (2, 3, "4n"), wide=4e-3),
    "TransformerDecoderLayer": layer(
        lambda n: nn.TransformerDecoderLayer(4 * n, 2, 8, 0.0, "gelu", norm_first=True), (3, 2, "4n"), (4, 2, "4n"), wide=4e-3
    ),
    "BatchNorm1d": layer(lambda n: nn.BatchNorm1d(4), (16, 4)),
    "BatchNorm2d": layer(lambda n: nn.BatchNorm2d(4), (3, 4, 4, 5)),
    "BatchNorm3d": layer(lambda n: nn.BatchNorm3d(2, affine=n > 1), (3, 2, 3, 4, 2)),
    "LayerNorm": layer(lambda n: nn.LayerNorm(8, elementwise_affine=n > 1), (5, 8)),
    "GroupNorm": layer(lambda n: nn.GroupNorm(2, 4), (3, 4, 5)),
    "InstanceNorm2d": layer(lambda n: nn.InstanceNorm2d(3, affine=True), (3, 3, 4, 5)),
    "RMSNorm": layer(lambda n: nn.RMSNorm(8), (5, 8)),
    "LocalResponseNorm": layer(lambda n: nn.LocalResponseNorm(n), (2, 5, 4, 3)),
    "MaxPool1d": layer(lambda n: nn.MaxPool1d(2), (2, 3, 8)),
    "MaxPool2d, overlapping": layer(lambda n: nn.MaxPool2d(3, stride=n, padding=1), (2, 3, 8, 7)),
    "AvgPool2d": layer(lambda n: nn.AvgPool2d(2, stride=n), (2, 3, 8, 7)),
    "AdaptiveAvgPool2d": layer(lambda n: nn.AdaptiveAvgPool2d(n), (2, 3, 8, 7)),
    "AdaptiveMaxPool1d": layer(lambda n: nn.AdaptiveMaxPool1d(n), (2, 3, 8)),
    "ReLU": layer(lambda n: nn.ReLU(), (6, 5)),
    "LeakyReLU": layer(lambda n: nn.LeakyReLU(0.1 * n), (6, 5)),
    "ELU": layer(lambda n: nn.ELU(0.5 * n), (6, 5)),
    "SELU": layer(lambda n: nn.SELU(), (6, 5)),
    "GELU": layer(lambda n: nn.GELU("tanh" if n > 1 else "none"), (6, 5)),
    "SiLU": layer(lambda n: nn.SiLU(), (6, 5)),
    "SiLU in place": layer(lambda n: nn.Sequential(nn.Linear(5, n), nn.SiLU(inplace=True)), (6, 5)),
    "Mish": layer(lambda n: nn.Mish(), (6, 5)),
    "Softplus": layer(lambda n: nn.Softplus(n), (6, 5)),
    "Softsign": layer(lambda n: nn.Softsign(), (6, 5), wide=4e-3),
    "Tanh": layer(lambda n: nn.Tanh(), (6, 5), wide=8e-3),
    "Sigmoid": layer(lambda n: nn.Sigmoid(), (6, 5)),
    "Hardswish": layer(lambda n: nn.Hardswish(), (6, 5)),
    "LogSigmoid": layer(lambda n: nn.LogSigmoid(), (6, 5)),
    "PReLU": layer(lambda n: nn.PReLU(3), (2, 3, 4)),
    "GLU": layer(lambda n: nn.GLU(), (5, 6)),
    "Softmax": layer(lambda n: nn.Softmax(-1), (5, 6)),
    "LogSoftmax": layer(lambda n: nn.LogSoftmax(-1), (5, 6)),
    "PixelShuffle": layer(lambda n: nn.PixelShuffle(2), (2, 4, 3, 2)),
    "Upsample, nearest": layer(lambda n: nn.Upsample(scale_factor=2), (2, 3, 3, 2)),
    "Upsample, bilinear": layer(lambda n: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 3, 2)),
    "ReflectionPad2d": layer(lambda n: nn.ReflectionPad2d(n % 2 + 1), (2, 3, 4, 5)),
    "ZeroPad2d": layer(lambda n: nn.ZeroPad2d(n), (2, 3, 4, 5)),
    "Unfold": layer(lambda n: nn.Unfold(2), (2, 3, 4, 5)),
    "Fold": layer(lambda n: nn.Fold((4, 5), (2, 2)), (2, 12, 12)),
    "CosineSimilarity": layer(lambda n: nn.CosineSimilarity(), (5, 6), (5, 6), wide=4e-3),
    "PairwiseDistance": layer(lambda n: nn.PairwiseDistance(), (5, 6), (5, 6), wide=4e-3),
    "weight_norm": layer(lambda n: nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)), (5, 6)),
    "Flatten, Unflatten": layer(lambda n: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (2, 6))), (3, 3, 4)),
}


class Half(nn.Module):
    """The module of halves, when trained in half, and of f64 in the reference: both see the same numbers."""

    def __init__(self, inner, half, integer):
        super().__init__()
        self.inner, self.half_, self.integer = inner, half, integer

    def forward(self, *inputs):
        if not self.integer:
            inputs = [x.half() if self.half_ and x.dtype == torch.float32 else x for x in inputs]
        return self.inner(*inputs)


def compare(name, n, shift, seed, compiled=False, device="cpu", method="gs", within=None):
    """Gradients of a module on a device, after they were compared with f64 on the CPU: `within` that error, or that of halves."""
    make, shapes, integer, half, bound = LAYERS[name]
    bound = within or bound
    if name[:3] in ("RNN", "LST", "GRU") and str(device) != "cpu":
        # Recurrent layers compute in f32, for which cuDNN rounds operands to TF32, which has as many digits as half.
        bound *= 2
    torch.manual_seed(seed)
    shapes = [[4 * n if d == "4n" else d for d in shape] for shape in shapes]
    if integer:
        inputs = [torch.randint(integer, tuple(shape)) for shape in shapes]
    else:
        # Halves, and none near zero, so that no rounding of the forward pass flips a sign.
        inputs = [(torch.randn(*shape).sign() * (torch.rand(*shape) + 0.125)).half().float() for shape in shapes]
    model = Half(make(n), half, integer)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.half().float())
    twin = copy.deepcopy(model).double()
    attach(model.to(device), method)
    one = [x.to(device, copy=True).requires_grad_(not integer) for x in inputs]
    two = [x.clone().requires_grad_() if not integer else x for x in (x.double() if not integer else x for x in inputs)]
    run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    out = run(*one)
    assert out.dtype == torch.float32
    r = torch.randn(out.shape)
    ((out * r.to(device)).sum() * 2.0**shift).backward()
    ((twin(*two) * r.double()).sum() * 2.0**shift).backward()
    found = [p.grad for p in [*model.parameters(), *one] if p.requires_grad]
    true = [p.grad for p in [*twin.parameters(), *two] if p.requires_grad]
    assert all(g.device == one[0].device for g in found)
    found = [g.cpu() for g in found]
    assert all(type(g) is torch.Tensor and g.dtype == torch.float32 for g in found), name
    assert error(found, true) < bound, (name, error(found, true))
    return found


@pytest.mark.parametrize("name", LAYERS)
def test_every_module(name, device):
    compare(name, 2, -24, 0, device=device)


# More by hand: GRADSCALE_EXAMPLES=3000 pytest tests/test_torch_modules.py
EXAMPLES = int(os.environ.get("GRADSCALE_EXAMPLES", 150))


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(LAYERS)), st.integers(1, 3), st.integers(-45, 30), st.integers(0, 1000))
def test_modules_drawn_at_random(device, name, n, shift, seed):
    compare(name, n, shift, seed, device=device)


LOSSES = {
    "CrossEntropyLoss": (lambda: nn.CrossEntropyLoss(label_smoothing=0.1), "classes"),
    "NLLLoss": (lambda: nn.Sequential(), "nll"),
    "MSELoss": (nn.MSELoss, "like"),
    "L1Loss": (nn.L1Loss, "like"),
    "SmoothL1Loss": (nn.SmoothL1Loss, "like"),
    "HuberLoss": (nn.HuberLoss, "like"),
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss, "unit"),
    "KLDivLoss": (lambda: nn.KLDivLoss(reduction="batchmean"), "unit"),
    "PoissonNLLLoss": (nn.PoissonNLLLoss, "unit"),
    "MultiLabelSoftMarginLoss": (nn.MultiLabelSoftMarginLoss, "binary"),
    "MultiMarginLoss": (nn.MultiMarginLoss, "classes"),
    "SoftMarginLoss": (nn.SoftMarginLoss, "signs"),
    "HingeEmbeddingLoss": (nn.HingeEmbeddingLoss, "signs"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss(name, device):
    torch.manual_seed(1)
    make, kind = LOSSES[name]
    model, x = nn.Linear(6, 5), torch.randn(8, 6)
    target = {
        "classes": torch.randint(5, (8,)), "nll": torch.randint(5, (8,)), "like": torch.randn(8, 5), "unit": torch.rand(8, 5),
        "binary": torch.randint(2, (8, 5)).float(), "signs": torch.randint(2, (8, 5)).float() * 2 - 1,
    }[kind]

    def loss(m, x, dtype):
        t = target.to(dtype) if target.is_floating_point() else target
        if kind == "nll":
            return nn.functional.nll_loss(nn.functional.log_softmax(m(x), -1), t)
        return make()(m(x), t)

    twin = copy.deepcopy(model).double()
    (loss(twin, x.double(), torch.float64) * 2.0**-30).backward()
    attach(model.to(device))
    target = target.to(device)
    (loss(model, x.to(device), torch.float32) * 2.0**-30).backward()
    assert error([p.grad.cpu() for p in model.parameters()], [p.grad for p in twin.parameters()]) < 4e-3
