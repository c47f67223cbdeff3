"""A loss times a power of two, the rate divided by as much: f32, one scale for all, and a scale for every gradient.

    python small_losses.py FOLDER [EPOCHS]     # of Fashion-MNIST's four files; writes a table of accuracies
"""

import gzip
import pathlib
import sys

import numpy as np
import torch
from torch import nn

from gradscale.torch import GradScaler

SCALERS = {"f32": None, "autocast, torch's GradScaler": torch.amp.GradScaler, "autocast, gradscale's": GradScaler}


def data(folder, part):
    """Images as rows of 784 numbers, and their classes."""

    def read(name, offset):
        return np.frombuffer(gzip.open(folder / f"{part}-{name}-ubyte.gz").read(), np.uint8, offset=offset).copy()

    images = torch.from_numpy(read("images-idx3", 16)).view(-1, 784).float() / 255
    return images, torch.from_numpy(read("labels-idx1", 8)).long()


def train(way, shift, train_set, test_set, epochs):
    """The accuracy in per cent."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.1 * 2.0**-shift)
    scaler = SCALERS[way]("cpu") if SCALERS[way] else None
    (x, y), (images, classes) = train_set, test_set
    order = torch.Generator().manual_seed(1)
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=order).split(64):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16, enabled=scaler is not None):
                loss = nn.functional.cross_entropy(model(x[batch]), y[batch]) * 2.0**shift
            if scaler:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                optimizer.step()
    with torch.no_grad():
        return 100 * (model(images).argmax(1) == classes).float().mean().item()


def main():
    folder, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    torch.set_num_threads(1)
    sets = data(folder, "train"), data(folder, "t10k")
    print("| loss × | " + " | ".join(SCALERS) + " |\n|" + "---|" * (1 + len(SCALERS)))
    for shift in (0, -30, -40, -60):
        print(f"| 2^{shift} | " + " | ".join(f"{train(way, shift, *sets, epochs):.2f}" for way in SCALERS) + " |", flush=True)


if __name__ == "__main__":
    main()
