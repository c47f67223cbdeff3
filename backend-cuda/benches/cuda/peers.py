#!/usr/bin/env python3
"""PyTorch's copy, products in eight bits, attention and training step of SegNetBasic, and cuDNN's convolutions, for the table of
the CUDA bench.

usage: peers.py [--device cpu] [--small] [PART ...]

Parts are copy, fp8, attention, conv, odd, segnet, f32 and compiled; without any, all run in this order. Prints a Markdown table, each
row as soon as it is known. The training step in mixed precision has four variants: unpooling by max_unpool2d, which has
kernels only for NCHW, or by a scatter that keeps channels last; each eager (segnet) or by torch.compile (compiled). The
row without an addition is the fastest so far. odd.csv, in this folder or its parent, has the odd sizes.
"""
import argparse
import csv
import math
import pathlib
import signal
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    sys.exit("PyTorch is not installed")

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ["copy", "fp8", "attention", "conv", "odd", "segnet", "f32", "compiled"]
# Runs of a side, fewer where a run takes long: time on a device is short.
RUNS, MIN_RUNS, MAX_SECONDS = 21, 3, 1.5
# Seconds after which a compilation is given up.
MAX_COMPILE_SECONDS = 60
CLASSES = 11


class Machine:
    """Machine on which PyTorch is measured, with its device and its way of timing."""

    def __init__(self, device, small, compile_seconds=MAX_COMPILE_SECONDS):
        self.device, self.small, self.compile_seconds = device, small, compile_seconds
        # Seconds of the fastest training step so far.
        self.best = math.inf
        self.half = torch.half if device == "cuda" else torch.bfloat16

    def size(self, large, small):
        return small if self.small else large

    def seconds(self, run):
        if self.device != "cuda":
            start = time.perf_counter()
            run()
            return time.perf_counter() - start
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    def median(self, run, runs=RUNS, before=5):
        """Returns the median seconds of a run."""
        for _ in range(self.size(before, 1)):
            run()
        times, start = [], time.perf_counter()
        while len(times) < self.size(runs, 1):
            times.append(self.seconds(run))
            if len(times) >= MIN_RUNS and time.perf_counter() - start > MAX_SECONDS:
                break
        return statistics.median(times)

    def random(self, *shape, dtype=None):
        """Returns a random image in channels-last format."""
        x = torch.randn(*shape, device=self.device, dtype=dtype or self.half)
        return x.to(memory_format=torch.channels_last)


def row(name, value):
    # Printed immediately, so that the value remains if the process is killed later.
    print(f"| {name} | {value} |", flush=True)


def failed(name, error):
    row(name, f"failed: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}".replace("|", "/"))


def copy(machine):
    """Measures PyTorch's copy of 1 GiB; bytes read and bytes written both count."""
    x = torch.empty(machine.size(1 << 28, 1 << 12), device=machine.device).normal_()
    y = torch.empty_like(x)
    row("copy of 1 GiB, PyTorch", f"{8 * x.numel() / machine.median(lambda: y.copy_(x)) / 1e9:.0f} GB/s")


def fp8(machine):
    """Measures torch._scaled_mm of operands that are bytes already, and with the cast of both from half. Its sums are
    promoted to f32, as ours are (use_fast_accum=False)."""
    for size in machine.size([2048, 4096, 8192], [32, 64, 128]):
        half = [torch.randn(size, size, device=machine.device, dtype=torch.half) for _ in range(2)]
        one = torch.ones((), device=machine.device)
        cast = lambda: [x.to(torch.float8_e4m3fn) for x in half]
        multiply = lambda a, b: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.half, use_fast_accum=False)
        name = f"fp8 gemm {size}³, PyTorch _scaled_mm"
        try:
            a, b = cast()
            seconds = machine.median(lambda: multiply(a, b)), machine.median(lambda: multiply(*cast()))
        # CPUs and earlier cards may have no such product.
        except Exception as error:
            failed(name, error)
            continue
        for words, taken in zip(["", " and casts"], seconds):
            row(name + words, f"{2 * size**3 / taken / 1e12:.1f} TFLOP/s")


def attention(machine):
    """Measures scaled_dot_product_attention of queries that have been divided, causal, forward and backward. Operations are
    those of pairs that are not hidden: two products forward, and five backward."""
    sizes = machine.size([(16, 12, 1024, 64), (16, 6, 1024, 128)], [(1, 2, 40, 64), (1, 1, 40, 128)])
    for sequences, heads, rows, head in sizes:
        random = lambda: torch.randn(sequences, heads, rows, head, device=machine.device, dtype=machine.half)
        operands, dy = [random().requires_grad_() for _ in range(3)], random()
        forward = lambda: F.scaled_dot_product_attention(*operands, is_causal=True, scale=1.0)
        y = forward()
        backward = lambda: torch.autograd.grad(y, operands, dy, retain_graph=True)
        pairs = sequences * heads * rows * (rows + 1) // 2
        for way, products, run in [("forward", 2, forward), ("backward", 5, backward)]:
            speed = 2 * products * head * pairs / machine.median(run) / 1e12
            row(f"attention {sequences}×{heads}×{rows}×{head} causal {way}, PyTorch SDPA", f"{speed:.1f} TFLOP/s")


def passes(machine, name, shape, outputs, kernel, stride, wanted, dtype=None, runs=RUNS, before=5):
    """Measures the passes of a convolution of [n, h, w, c] in cuDNN."""
    n, h, w, c = shape
    x = machine.random(n, c, h, w, dtype=dtype)
    weight = machine.random(outputs, c, kernel, kernel, dtype=dtype)
    pad = kernel // 2
    forward = lambda: F.conv2d(x, weight, stride=stride, padding=pad)
    y = forward()
    dy = torch.randn_like(y)
    flops = 2 * y.numel() * kernel * kernel * c

    def back(mask):
        return lambda: torch.ops.aten.convolution_backward(
            dy, x, weight, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, mask)

    runs_of = {"Forward": forward, "Data": back([True, False, False]), "Weight": back([False, True, False])}
    for way in wanted:
        seconds = machine.median(runs_of[way], runs, before)
        row(f"{name} {way}", f"{flops / seconds / 1e12:.1f} TFLOP/s")


def conv(machine):
    """Measures the convolutions of SegNetBasic with a batch of 12 images of 360 × 480."""
    for name, h, w, c in [
        ("encoder.conv1", 360, 480, 3),
        ("decoder.conv1", 360, 480, 64),
        ("encoder.conv2", 180, 240, 64),
        ("encoder.conv3", 90, 120, 64),
        ("encoder.conv4", 45, 60, 64),
    ]:
        shape = machine.size((12, h, w, c), (1, 8, 8, c))
        # The gradient of images is not needed.
        passes(machine, f"conv {name}", shape, 64, 7, 1, ["Forward", "Weight"] if c == 3 else ["Forward", "Data", "Weight"])


def beside(name):
    """Returns the path of a table of the bench, in this folder or one up."""
    found = [path for path in [HERE / name, HERE.parent / name] if path.exists()]
    if not found:
        raise FileNotFoundError(f"{name} is neither in {HERE} nor one folder up")
    return found[0]


def odd_sizes():
    with beside("odd.csv").open(newline="") as text:
        return list(csv.DictReader(text))


def odd(machine):
    for one in odd_sizes():
        n, h, w, c, outputs, kernel, stride = (int(one[key]) for key in "n h w c outputs kernel stride".split())
        shape = machine.size((n, h, w, c), (1, 7, 5, min(c, 8)))
        outputs = machine.size(outputs, 8 + outputs % 8)
        # cuDNN's search for the best algorithm in f32 once did not end: its first choice is taken, a few times.
        is_f32 = one["type"] == "f32"
        torch.backends.cudnn.benchmark = not is_f32
        name = f"conv odd {one['name']}"
        more = {"dtype": torch.float, "runs": 3, "before": 1} if is_f32 else {}
        try:
            passes(machine, name, shape, outputs, kernel, stride, one["passes"].split(), **more)
        except RuntimeError as error:
            failed(name, error)
        torch.backends.cudnn.benchmark = True


def unpool_by_scatter(x, at, size):
    """Computes max_unpool2d of [n, c, h, w] for windows that do not overlap, in channels last from beginning to end:
    `at` are max_pool2d's indices, `size` the shape of the result."""
    n, c, h, w = size
    last = lambda one: one.permute(0, 2, 3, 1).reshape(n, -1, c)
    flat = torch.zeros(n, h * w, c, dtype=x.dtype, device=x.device).scatter(1, last(at), last(x))
    return flat.view(n, h, w, c).permute(0, 3, 1, 2)


def unpool(x, at, size):
    return F.max_unpool2d(x, at, 2, output_size=size)


class SegNet(nn.Module):
    """SegNetBasic in PyTorch, as gradscale builds it."""

    def __init__(self, width, unpooling):
        super().__init__()
        conv = lambda inputs: nn.Conv2d(inputs, width, 7, padding=3, bias=False)
        self.lrn, self.unpooling = nn.LocalResponseNorm(5), unpooling
        self.encoder = nn.ModuleList([conv(3 if i == 0 else width) for i in range(4)])
        self.decoder = nn.ModuleList([conv(width) for _ in range(4)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(width) for _ in range(8)])
        self.last = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        x, places = self.lrn(x), []
        for conv, norm in zip(self.encoder, self.norms[:4]):
            before = torch.relu(norm(conv(x)))
            x, at = F.max_pool2d(before, 2, ceil_mode=True, return_indices=True)
            places.append((at, before.shape))
        for conv, norm in zip(self.decoder, self.norms[4:]):
            at, size = places.pop()
            x = norm(conv(self.unpooling(x, at, size)))
        return self.last(x)


class Step:
    """Training step of SegNetBasic in PyTorch."""

    def __init__(self, machine, half, unpooling):
        self.machine, self.half = machine, half
        self.n, h, w = machine.size((12, 360, 480), (2, 18, 20))
        self.net = SegNet(machine.size(64, 8), unpooling).to(machine.device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9, fused=machine.device == "cuda")
        self.scaler = torch.amp.GradScaler(machine.device, enabled=half and machine.device == "cuda")
        self.images = machine.random(self.n, 3, h, w, dtype=torch.float)
        self.labels = torch.randint(0, CLASSES, (self.n, h, w), device=machine.device)
        self.loss = self._loss

    def _loss(self):
        with torch.autocast(self.machine.device, self.machine.half, enabled=self.half):
            return F.cross_entropy(self.net(self.images), self.labels)

    def compile(self):
        self.loss = torch.compile(self._loss)

    def __call__(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(self.loss()).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Late(Exception):
    """Error of a compilation that takes too long."""


def within(seconds, work):
    """Returns the result of `work`, or raises Late after this number of seconds."""

    def stop(*_):
        raise Late(f"not compiled within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(max(int(seconds), 1))
    try:
        return work()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def mixed(machine, compiles):
    """Measures the mixed-precision training step with both kinds of unpooling."""
    for unpooling, words in [(unpool, "max_unpool2d"), (unpool_by_scatter, "unpooling by scatter")]:
        name = f"segnet step, PyTorch AMP, {words}{', compiled' if compiles else ''}"
        try:
            step = Step(machine, True, unpooling)
            if compiles:
                step.compile()
                within(machine.compile_seconds, step)
            seconds = machine.median(step)
        # A variant that cannot be compiled here does not stop the others.
        except Exception as error:
            failed(name, error)
            continue
        row(name, f"{step.n / seconds:.1f} images/s")
        if seconds < machine.best:
            machine.best = seconds
            row("segnet step, PyTorch AMP", f"{step.n / seconds:.1f} images/s")


def segnet(machine):
    mixed(machine, False)


def compiled(machine):
    mixed(machine, True)


def f32(machine):
    """Measures the step in f32, three times: cuDNN's search for the best algorithms once did not end, so its first
    choice is taken."""
    torch.backends.cudnn.benchmark = False
    step = Step(machine, False, unpool_by_scatter)
    seconds = machine.median(step, 3, 1)
    row("segnet step, PyTorch f32", f"{step.n / seconds:.1f} images/s")
    torch.backends.cudnn.benchmark = True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--small", action="store_true")
    limit = "after so many a compilation is given up"
    parser.add_argument("--compile-seconds", type=int, default=MAX_COMPILE_SECONDS, help=limit)
    asked = parser.parse_args()
    if unknown := [part for part in asked.parts if part not in PARTS]:
        parser.error(f"{unknown[0]} is no part; they are: {', '.join(PARTS)}")
    if asked.device == "cuda" and not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    torch.backends.cudnn.benchmark = True
    # f32 is f32 here: convolutions would be TF32 by default.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    machine = Machine(asked.device, asked.small, asked.compile_seconds)
    cudnn = f", cuDNN {torch.backends.cudnn.version()}" if asked.device == "cuda" else ""
    print(f"\nPyTorch {torch.__version__}{cudnn}, channels last, benchmark mode\n")
    print("| what | PyTorch |\n|---|---|", flush=True)
    work = {
        "copy": copy, "fp8": fp8, "attention": attention, "conv": conv, "odd": odd, "segnet": segnet, "f32": f32,
        "compiled": compiled,
    }
    is_whole = True
    for part in asked.parts or PARTS:
        # A part that fails does not stop the next.
        try:
            work[part](machine)
        except Exception as error:
            is_whole = False
            failed(part, error)
    sys.exit(not is_whole)


if __name__ == "__main__":
    main()
