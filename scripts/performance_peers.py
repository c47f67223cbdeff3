"""Other libraries with the CPU backend's operators, for scripts/performance.py: operators in this process, training
steps in another.

    performance_peers.py NETWORK SIZES THREADS VARIANT ...

is PyTorch's side of examples/turns.rs, with the same networks, sizes and lines. Variants are f32 and bf16 (autocast), alone
or with ", channels last".
"""

import json
import pathlib
import re
import sys
import time

import numpy as np
import threadpoolctl
import torch
import torch.nn.functional as F
from torch import nn

import pytorch_networks
from pytorch_networks import CAMVID, Classified, Read, Segmented, adamw, sgd

IMAGES = ["segnet", "resnet-18"]
# Activations of two images, as the bench has them.
SHAPE = [2, 180, 240, 32]
LEN = 2 * 180 * 240 * 32


class Words(nn.Module):
    """A language model."""

    def __init__(self, kinds, width, units, layers):
        super().__init__()
        self.tokens, self.gru = nn.Embedding(kinds, width), nn.GRU(width, units, layers, batch_first=True)
        self.logits = nn.Linear(units, kinds)

    def forward(self, tokens):
        return self.logits(self.gru(self.tokens(tokens))[0])


def training(network, sizes, variant):
    """A network with its optimizer, and a batch."""
    layout = torch.channels_last if variant.endswith("channels last") else torch.contiguous_format
    if network in IMAGES:
        width, *image = sizes
        if network == "segnet":
            one = Segmented(pytorch_networks.SegNetBasic(width, CAMVID), sgd, layout)
        else:
            one = Classified(pytorch_networks.small_vision(network, width), sgd, layout)
        batch = one.batch([*image, 3])
    else:
        n, t, kinds, width, *rest = sizes
        model = Words(kinds, width, *rest) if network == "gru" else pytorch_networks.language.Decoder(kinds, t, width, *rest)
        one, batch = Read(model, adamw), [torch.randint(0, kinds, (n, t)) for _ in range(2)]
    if variant.startswith("bf16"):
        one.loss = (lambda loss: lambda *batch: in_bf16(loss, batch))(one.loss)
    return one, batch


def in_bf16(loss, batch):
    with torch.autocast("cpu", torch.bfloat16):
        return loss(*batch)


def steps(network, sizes, threads, *variants):
    """Takes a step for each line of standard input."""
    torch.manual_seed(0)
    torch.set_num_threads(int(threads))
    sizes = [int(size) for size in sizes.split(",")]
    all_of = {variant: training(network, sizes, variant) for variant in variants}
    print(json.dumps({"ready": True, "torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        one, batch = all_of[line.strip()]
        start = time.perf_counter()
        one.step(batch)
        print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)


def limit(threads):
    """Sets the number of threads of operators."""
    torch.set_num_threads(threads)
    threadpoolctl.threadpool_limits(threads)


def about():
    """Returns the kernels that the peers have loaded."""
    blas = [one for one in threadpoolctl.threadpool_info() if one["internal_api"] == "openblas"]
    kernels = sorted({f"{one['version']} ({one['architecture']})" for one in blas})
    return {"OpenBLAS": ", ".join(kernels) or "none", "numpy": np.__version__, "torch": torch.__version__,
            "torch's instructions": torch.backends.cpu.get_cpu_capability(),
            "oneDNN": "yes" if torch.backends.mkldnn.is_available() else "no", "MKL": "yes" if torch.backends.mkl.is_available() else "no"}


def peers(name):
    """Returns, by the peer's name, a function that computes in f32 what a line of the bench computes; empty if there
    is none."""
    for pattern, make in CASES.items():
        if found := re.fullmatch(pattern, name):
            return make(*found.groups())
    return {}


def gemm(size, m, n, k, turned_a, turned_b):
    m, n, k = [int(size)] * 3 if size else [int(m), int(n), int(k)]
    a = np.random.randn(k, m).astype(np.float32).T if turned_a else np.random.randn(m, k).astype(np.float32)
    b = np.random.randn(n, k).astype(np.float32).T if turned_b else np.random.randn(k, n).astype(np.float32)
    y = np.empty((m, n), np.float32)
    ta, tb, ty = map(torch.from_numpy, (a, b, y))
    ha, hb, hy = (one.to(torch.bfloat16) for one in (ta, tb, ty))
    return {"OpenBLAS sgemm": lambda: np.matmul(a, b, out=y), "PyTorch f32": lambda: torch.matmul(ta, tb, out=ty),
            "PyTorch bf16": lambda: torch.matmul(ha, hb, out=hy)}


def convolution(kernel, inputs, outputs, n, h, w, way):
    kernel, inputs, outputs, n, h, w = map(int, (kernel, inputs, outputs, n, h, w))
    found = {}
    for name, layout in [("oneDNN f32", torch.contiguous_format), ("oneDNN f32, channels last", torch.channels_last)]:
        x, dy = (torch.randn(n, c, h, w).contiguous(memory_format=layout) for c in (inputs, outputs))
        weight = torch.randn(outputs, inputs, kernel, kernel).contiguous(memory_format=layout)
        mask = [way == "Data", way == "Weight", False]
        back = lambda x=x, dy=dy, weight=weight: torch.ops.aten.convolution_backward(
            dy, x, weight, None, [1, 1], [kernel // 2] * 2, [1, 1], False, [0, 0], 1, mask)
        found[name] = (lambda x=x, weight=weight: F.conv2d(x, weight, padding=kernel // 2)) if way == "Forward" else back
    return found


def function(op):
    x = torch.rand(LEN) - 0.5
    y = torch.empty_like(x)
    positive = x.exp()
    known = {
        "Relu": lambda: torch.clamp_min(x, 0, out=y), "Pow(-0.75)": lambda: torch.pow(positive, -0.75, out=y),
        "Exp": lambda: torch.exp(x, out=y), "Ln": lambda: torch.log(positive, out=y),
        "Sigmoid": lambda: torch.sigmoid(x, out=y), "Silu": lambda: torch.ops.aten.silu.out(x, out=y),
        "Tanh": lambda: torch.tanh(x, out=y), "Erf": lambda: torch.erf(x, out=y),
        "Gelu": lambda: torch.ops.aten.gelu.out(x, out=y), "Dropout .*": lambda: F.dropout(x, 0.5),
    }
    return {"PyTorch f32": run for pattern, run in known.items() if re.fullmatch(pattern, op)}


def norm(kind, backward):
    """Normalisation over channels of all images, over groups of channels, or over rows."""
    shape = [LEN // 256, 256] if kind.startswith("layer") else [SHAPE[0], SHAPE[3], *SHAPE[1:3]]
    channels, found = shape[1], {}
    layouts = {"PyTorch f32": torch.contiguous_format}
    if len(shape) == 4:
        layouts["PyTorch f32, channels last"] = torch.channels_last
    for name, layout in layouts.items():
        x, dy = ((torch.rand(shape) - 0.5).contiguous(memory_format=layout) for _ in range(2))
        weight, bias = torch.rand(channels), torch.rand(channels)
        forward = {
            "norm": lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
            "group norm, 8 groups": lambda x, w, b: F.group_norm(x, 8, w, b),
            "layer norm of 256": lambda x, w, b: F.layer_norm(x, [256], w, b),
        }[kind]
        found[name] = gradient(forward, [x, weight, bias], dy) if backward else (
            lambda x=x, weight=weight, bias=bias, forward=forward: forward(x, weight, bias))
    return found


def gradient(function, inputs, dy):
    """The backward pass alone."""
    inputs = [one.requires_grad_() for one in inputs]
    y = function(*inputs)
    return lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True)


def cross_entropy(backward):
    rows, classes = 2 * 360 * 480, 11
    logits, labels, weights = torch.rand(rows, classes), torch.randint(0, classes + 1, (rows,)), torch.rand(classes)
    loss = lambda logits: F.cross_entropy(logits, labels, weights, ignore_index=classes)
    return {"PyTorch f32": gradient(loss, [logits], torch.tensor(1.0)) if backward else lambda: loss(logits)}


def optimizer(rule):
    weights = nn.Parameter(torch.rand(1 << 22))
    weights.grad = torch.rand(1 << 22)
    if rule == "Adam":
        return {"PyTorch f32, fused": torch.optim.Adam([weights], 1e-6, fused=True).step}
    return {"PyTorch f32, fused": torch.optim.SGD([weights], 1e-6, 0.9, weight_decay=5e-4, fused=True).step}


CASES = {
    r"gemm (?:(\d+)³|(\d+)×(\d+)×(\d+))(, aᵀ)?(, bᵀ)?, f16": gemm,
    r"conv (\d+)×\d+ (\d+)→(\d+), (\d+)×(\d+)×(\d+), (\w+)": convolution,
    r"unary (.*)": function,
    r"(norm|group norm, 8 groups|layer norm of 256)(, vjp|_vjp)?": norm,
    r"cross_entropy(_vjp)?, 11 classes": cross_entropy,
    r"optimize, (SGD|Adam).*": optimizer,
}


def burst(run, seconds=0.03):
    """Measures as the bench does: the shortest of a few runs."""
    best, start = float("inf"), time.perf_counter()
    for count in range(1 << 30):
        before = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - before)
        if count and time.perf_counter() - start > seconds:
            return best


if __name__ == "__main__":
    steps(*sys.argv[1:])
