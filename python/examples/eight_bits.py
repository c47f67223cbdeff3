"""Stores in 8 bits, simulated: f32, FP16, and formats of 8 bits by the exact rule and by that of FP8 libraries.

    python eight_bits.py FOLDER [EPOCHS]     # of Fashion-MNIST's four files; writes a table

A small convolutional network with batch norm. Means over three seeds, with the spread. "Flushed" is the mean share of the values
that were not zero and that a store made zero, at the site where that share is largest; of gradients and of activations, in the
last hundred steps. "Lost" is the share of batches that did not count.
"""

import pathlib
import statistics
import sys
import warnings

import torch
import torch.nn.functional as F
from small_losses import data
from torch import nn

from gradscale.torch import attach

SEEDS = range(3)
#: Methods, and f32 without gradscale.
METHODS = (
    "f32",
    "gs",
    "gs:format=e5m2",
    "gs:format=e4m3",
    "gs:grad=e5m2,act=e4m3,weight=e4m3",
    "amax:history=16,format=e4m3",
    "amax:history=16,margin=2,format=e4m3",
    "amax:history=16,grad=e5m2,act=e4m3,weight=e4m3",
)
#: Steps at the end over which shares are taken.
OBSERVED_STEPS = 100


def network():
    layers, channels = [], 1
    for width in (16, 32):
        layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10))


def train(method, seed, train_set, test_set, epochs):
    """The accuracy in per cent, the mean loss of the last steps, shares of flushed values, batches lost, and repeats."""
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    gs = attach(model, method, max_consecutive_skips=0) if method != "f32" else None
    (x, y), (images, classes) = train_set, test_set
    order = torch.Generator().manual_seed(seed)
    batches = [batch for _ in range(epochs) for batch in torch.randperm(len(x), generator=order).split(64)]
    losses, flushed = [], [{}, {}]
    for step, batch in enumerate(batches):

        def closure(batch=batch):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[batch].view(-1, 1, 28, 28)), y[batch])
            loss.backward()
            return loss

        observed = step >= len(batches) - OBSERVED_STEPS
        loss = gs.step(closure, optimizer) if gs else closure()
        if observed:
            losses.append(loss.item())
        if gs is None:
            optimizer.step()
        elif observed:
            report = gs.report()
            for shares, sites in zip(flushed, (report.sites, report.activations)):
                for site in sites:
                    shares.setdefault(site["name"], []).append(site["flushed"])
    model.eval()
    with torch.no_grad():
        found = torch.cat([model(part.view(-1, 1, 28, 28)).argmax(1) for part in images.split(500)])
    worst = [100 * max(map(statistics.mean, shares.values()), default=0.0) for shares in flushed]
    lost = 100 * gs.skipped / len(batches) if gs else 0.0
    finite = [loss for loss in losses if loss == loss]
    loss = statistics.mean(finite) if finite else float("nan")
    return 100 * (found == classes).float().mean().item(), loss, *worst, lost, gs.repeats if gs else 0


def main():
    warnings.simplefilter("ignore")
    folder, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    torch.set_num_threads(1)
    sets = data(folder, "train"), data(folder, "t10k")
    print("| method | accuracy, % | loss | flushed of gradients, % | of activations, % | lost, % | repeats |\n|---|---|---|---|---|---|---|")
    for method in METHODS:
        runs = [train(method, seed, *sets, epochs) for seed in SEEDS]
        accuracy, loss, gradients, activations, lost, repeats = zip(*runs)
        spread = [f"{statistics.mean(part):.{digits}f} ± {statistics.stdev(part):.{digits}f}" for part, digits in ((accuracy, 2), (loss, 3))]
        shares = [f"{statistics.mean(part):.2f}" for part in (gradients, activations, lost)]
        print(f"| `{method}` | {' | '.join(spread + shares)} | {' '.join(map(str, repeats))} |", flush=True)


if __name__ == "__main__":
    main()
