"""Seconds of a training step on this machine's CPU: f32, autocast to bfloat16 and float16, and gradscale, also with
exponents of activations and by ``torch.compile``, in one run.

    python benches/torch_overhead.py [repetitions]

Seconds are those of the processor (one thread), the median of interleaved repetitions; a table on standard output.
"""

import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))

from gradscale.torch import GradScaler, attach  # noqa: E402
from torch_models import Transformer  # noqa: E402


def mlp():
    return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)), torch.randn(128, 512)


def conv():
    def block(i, o, stride):
        return [nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]

    layers = [*block(3, 32, 1), *block(32, 64, 2), *block(64, 64, 1), *block(64, 128, 2), *block(128, 128, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)), torch.randn(16, 3, 32, 32)


def transformer():
    return Transformer(1000, 128, 4, 4), torch.randint(1000, (8, 64))


MODELS = {"MLP 512-1024-1024-10, batch 128": mlp, "five convolutions, batch 16": conv, "transformer of 4 blocks, 512 tokens": transformer}
WAYS = ("f32", "bfloat16", "float16", "gradscale", "gradscale, activations too", "gradscale, compiled")


def trainer(make, way):
    torch.manual_seed(0)
    model, x = make()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    scaler = {"float16": torch.amp.GradScaler, "gradscale": GradScaler}.get(way)
    scaler = scaler and scaler("cpu")
    attached = {"gradscale, activations too": "on", "gradscale, compiled": "repeat"}.get(way)
    gs = attach(model, forward=attached) if attached else None
    forward = torch.compile(model, fullgraph=True) if way.endswith("compiled") else model
    if gs:
        gs.guard(optimizer)
    dtype = {"bfloat16": torch.bfloat16}.get(way, torch.float16)

    def step():
        optimizer.zero_grad()
        begin = time.process_time()
        with torch.autocast("cpu", dtype, enabled=way != "f32"):
            out = forward(x)
            out = out.flatten(0, -2)
            loss = F.cross_entropy(out, torch.zeros(len(out), dtype=torch.long))
        middle = time.process_time()
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
            if gs:
                gs.update()
        return middle - begin, time.process_time() - middle

    return step


def main():
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    torch.set_num_threads(1)
    print("| model | way | forward ms | backward and update ms | step, of f32 |\n|---|---|---|---|---|")
    for name, make in MODELS.items():
        steps = {way: trainer(make, way) for way in WAYS}
        times = {way: [] for way in WAYS}
        for repetition in range(repetitions + 2):
            for way, step in steps.items():
                seconds = step()
                if repetition >= 2:
                    times[way].append(seconds)
        base = None
        for way in WAYS:
            forward, backward = (1e3 * statistics.median(column) for column in zip(*times[way]))
            base = base or forward + backward
            print(f"| {name} | {way} | {forward:.1f} | {backward:.1f} | {(forward + backward) / base:.2f} |")


if __name__ == "__main__":
    main()
