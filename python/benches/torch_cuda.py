"""Training steps on a GPU: milliseconds, peak memory and kernel launches of f32, TF32, AMP and gradscale, eager and compiled.

    python benches/torch_cuda.py [--seconds 130] [--json FILE]         ResNet-50, batch 128; GPT-2 small, 8 x 1024 tokens;
                                                                       two layers of 4096 x 4096 in 8 bits, batch 4096
    python benches/torch_cuda.py --small --device cpu                  rehearses that in a minute, with tiny networks

In each round every variant takes a few steps, one variant after another, so that heat and clocks affect all of them
alike. A row of the table is printed as soon as a variant was measured, and again after each round with the results of
all rounds so far. Of rows with one name the last is valid, however the program ends. Compiled variants come last,
because they take longest. With ``--json``, each row is also written to a file, or with ``-`` to standard output.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE / "tests")]

import torch_models  # noqa: E402
from gradscale.torch import attach  # noqa: E402

#: Methods of the variants by gradscale.
METHODS = {
    "gradscale": "gs",
    "gradscale in 8 bits": "gs:grad=e5m2,act=e4m3,weight=e4m3",
    "gradscale with products in FP8": "gs:grad=e5m2,act=e4m3,weight=e4m3,products=fp8",
}
VARIANTS = ("f32", "TF32", "AMP", "AMP, compiled", *METHODS, "gradscale, compiled")
#: Steps before anything is measured: compiling, cuDNN's choice of algorithms, first exponents, the allocator.
WARM_UP_STEPS = 4
COLUMNS = "network and variant | ms | spread % | of AMP | peak GiB | launches | steps"


class Logits(nn.Module):
    """A model of transformers without its dictionary of results."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x, use_cache=False).logits


def resnet50(small):
    if small:
        return torch_models.resnet((1, 1), 8, True, 10), torch.randn(4, 3, 16, 16), torch.randint(10, (4,))
    try:
        from torchvision.models import resnet50

        model = resnet50()
    except ImportError:
        model = torch_models.resnet((3, 4, 6, 3), 64, True)
    return model, torch.randn(128, 3, 224, 224), torch.randint(1000, (128,))


def gpt2(small):
    if small:
        model, words, size = torch_models.GPT2(101, 32, 32, 2, 2), 101, (2, 16)
    else:
        words, size = 50257, (8, 1024)
        try:
            from transformers import GPT2Config, GPT2LMHeadModel

            config = GPT2Config(embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, attn_implementation="sdpa")
            model = Logits(GPT2LMHeadModel(config))
        except ImportError:
            model = torch_models.GPT2()
    x = torch.randint(words, (size[0], size[1] + 1))
    return model, x[:, :-1].contiguous(), x[:, 1:].contiguous()


def linear(small):
    size = 32 if small else 4096
    return nn.Sequential(nn.Linear(size, size), nn.Linear(size, size)), torch.randn(size, size), torch.randint(size, (size,))


NETWORKS = {"ResNet-50": resnet50, "GPT-2 small": gpt2, "Linear 4096": linear}


def is_measured(network, variant):
    """Returns True for the variants of a network. 8 bits are for layers alone, and these are not compiled."""
    if network == "Linear 4096":
        return not variant.endswith("compiled")
    return variant == "gradscale" or variant not in METHODS


class Training:
    """A variant of a training, which takes steps."""

    def __init__(self, network, variant, device, small):
        self.network, self.variant, self.device = network, variant, device
        self.name = f"{network}, {variant}"
        self.kind, _, self.compiled = variant.partition(", ")
        before = self.allocated()
        torch.manual_seed(0)
        model, x, y = NETWORKS[network](small)
        model, self.x, self.y = model.to(device), x.to(device), y.to(device)
        if x.dim() == 4:
            model = model.to(memory_format=torch.channels_last)
            self.x = self.x.contiguous(memory_format=torch.channels_last)
            self.optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, fused=True)
        else:
            self.optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
        self.gs = attach(model, METHODS[self.kind]) if self.kind in METHODS else None
        self.scaler = torch.amp.GradScaler(device.type) if self.kind == "AMP" else None
        if self.gs:
            self.gs.guard(self.optimizer)
        # On the CPU the rehearsal compiles nothing to machine code, which would take minutes.
        backend = "inductor" if device.type == "cuda" else "aot_eager"
        self.forward = torch.compile(model, fullgraph=True, backend=backend) if self.compiled else model
        self.steps(WARM_UP_STEPS)
        self.sync()
        self.resident = self.allocated() - before
        self.times, self.taken = [], 0

    def allocated(self):
        return torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else 0

    def sync(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def step(self):
        self.optimizer.zero_grad()
        autocast = torch.autocast(self.device.type, torch.float16) if self.kind == "AMP" else contextlib.nullcontext()
        with autocast:
            out = self.forward(self.x)
            loss = F.cross_entropy(out.float().flatten(0, -2), self.y.flatten())
        if self.scaler:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            return
        loss.backward()
        self.optimizer.step()
        if self.gs:
            self.gs.update()

    def steps(self, count):
        # PyTorch's defaults, but for f32 and TF32: products in f32, convolutions in TF32.
        torch.set_float32_matmul_precision("high" if self.kind == "TF32" else "highest")
        with torch.backends.cudnn.flags(enabled=True, benchmark=self.kind != "f32", allow_tf32=self.kind != "f32"):
            for _ in range(count):
                self.step()

    def measure(self, count):
        """Takes steps, and remembers milliseconds of one."""
        self.sync()
        start = time.perf_counter()
        self.steps(count)
        self.sync()
        self.times.append(1e3 * (time.perf_counter() - start) / count)
        self.taken += count

    def look(self):
        """Peak memory and launches of a step: GiB, with weights and states of this variant alone, and a count."""
        self.peak = self.launches = None
        if self.device.type == "cuda":
            others = self.allocated() - self.resident
            torch.cuda.reset_peak_memory_stats(self.device)
            self.steps(1)
            self.sync()
            self.peak = (torch.cuda.max_memory_allocated(self.device) - others) / 2**30
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self.device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities) as profile:
            self.steps(1)
            self.sync()
        if self.device.type == "cuda":
            on_device = [event for event in profile.events() if str(event.device_type).endswith("CUDA")]
            # Copies and fills count; ranges that were annotated by the user do not.
            self.launches = sum(not getattr(event, "is_user_annotation", False) for event in on_device)


class Table:
    """Rows of Markdown as they come, and of JSON."""

    def __init__(self, path):
        self.file = sys.stdout if path == "-" else open(path, "a", encoding="utf-8") if path else None  # noqa: SIM115
        print(f"| {COLUMNS} |\n|" + "---|" * len(COLUMNS.split(" | ")), flush=True)

    def row(self, training, amp):
        """Row of a variant, relative to AMP's milliseconds if they are known."""
        median, times = statistics.median(training.times), training.times
        cells = {
            "name": training.name, "ms": round(median, 2),
            "spread_percent": round(100 * (max(times) - min(times)) / median, 1),
            "of_amp": None if amp is None else round(median / amp, 2),
            "peak_gib": None if training.peak is None else round(training.peak, 2),
            "launches": training.launches, "steps": training.taken,
        }
        print("| " + " | ".join("-" if cell is None else str(cell) for cell in cells.values()) + " |", flush=True)
        if self.file:
            print(json.dumps(cells, ensure_ascii=False), file=self.file, flush=True)


def bench(table, args):
    """Rounds of all variants until the time is over."""
    device = torch.device(args.device, 0) if args.device == "cuda" else torch.device(args.device)
    until, trainings = time.perf_counter() + args.seconds, []

    def row(training):
        amp = next((t for t in trainings if (t.network, t.variant) == (training.network, "AMP")), None)
        table.row(training, amp and statistics.median(amp.times))

    wanted = [(network, variant) for variant in args.variants for network in args.networks if is_measured(network, variant)]
    for network, variant in sorted(wanted, key=lambda one: one[1].endswith("compiled")):
        if time.perf_counter() > until:
            print(f"no time was left for {network}, {variant}", flush=True)
            continue
        try:
            training = Training(network, variant, device, args.small)
            training.look()
            training.measure(args.steps)
        except Exception as error:  # the others are worth measuring
            print(f"{network}, {variant} failed: {type(error).__name__} {str(error).splitlines()[:1]}", flush=True)
            continue
        trainings.append(training)
        row(training)
    for done in range(1, args.rounds):
        if time.perf_counter() > until:
            print(f"the time is over after {done} of {args.rounds} rounds", flush=True)
            return
        for training in trainings:
            training.measure(args.steps)
        for training in trainings:
            row(training)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="tiny networks, for a rehearsal")
    parser.add_argument("--seconds", type=float, default=130, help="after that no variant and no round begins")
    parser.add_argument("--rounds", type=int, help="6; 2 in a rehearsal")
    parser.add_argument("--steps", type=int, help="steps of a variant in a round: 5; 1 in a rehearsal")
    parser.add_argument("--json", help="file to which lines of the table are appended")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    args = parser.parse_args()
    args.rounds = args.rounds or (2 if args.small else 6)
    args.steps = args.steps or (1 if args.small else 5)
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch sees no CUDA device here; --small --device cpu rehearses without one")
    if args.device == "cpu":
        torch.set_num_threads(1)
    else:
        print(f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}", flush=True)
    bench(Table(args.json), args)


if __name__ == "__main__":
    main()
