#!/usr/bin/env python3
"""Time of one f32 training step of SegNetBasic in PyTorch: the baseline of `scripts/segnet_step.sh`.

usage: torch_segnet.py WIDTH BATCH HEIGHT WIDTH_OF_IMAGE STEPS
"""
import sys
import time

import torch
from torch import nn


class SegNet(nn.Module):
    """The network of `src/models/segnet.rs`."""

    def __init__(self, width, classes):
        super().__init__()
        self.lrn = nn.LocalResponseNorm(5, 1e-4, 0.75, 1.0)
        conv = lambda inputs: nn.Sequential(nn.Conv2d(inputs, width, 7, padding=3, bias=False), nn.BatchNorm2d(width))
        self.encoder = nn.ModuleList(conv(3 if i == 0 else width) for i in range(4))
        self.decoder = nn.ModuleList(conv(width) for _ in range(4))
        self.pool = nn.MaxPool2d(2, ceil_mode=True, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2)
        self.classifier = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        x, places = self.lrn(x), []
        for level in self.encoder:
            x = torch.relu(level(x))
            size = x.shape
            x, at = self.pool(x)
            places.append((at, size))
        for level in self.decoder:
            at, size = places.pop()
            x = level(self.unpool(x, at, output_size=size))
        return self.classifier(x)


def main():
    width, batch, h, w, steps = map(int, sys.argv[1:])
    torch.manual_seed(0)
    best = None
    for layout in (torch.contiguous_format, torch.channels_last):
        net = SegNet(width, 11).to(memory_format=layout)
        optimizer = torch.optim.SGD(net.parameters(), 0.1, 0.9, weight_decay=5e-4)
        loss = nn.CrossEntropyLoss(weight=torch.ones(11), ignore_index=11)
        images = (255 * torch.rand(batch, 3, h, w)).contiguous(memory_format=layout)
        labels = torch.randint(0, 12, (batch, h, w))
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            optimizer.zero_grad()
            loss(net(images), labels).backward()
            optimizer.step()
            times.append(time.perf_counter() - start)
        median = sorted(times[2:])[len(times[2:]) // 2]
        print(f"PyTorch {torch.__version__} {layout}: {1000 * median:.0f} ms", file=sys.stderr)
        best = median if best is None else min(best, median)
    # The faster of both layouts.
    print(f"{1000 * best:.1f}")


if __name__ == "__main__":
    main()
