"""Activations beyond FP16's 65504: f32, torch.amp, and a scale for every gradient without and with exponents of activations.

    python large_activations.py FOLDER [EPOCHS]     # of Fashion-MNIST's four files; writes a table

A stress case after T5's gated feed-forward blocks, whose results overflow in public checkpoints: the blocks' first weights are
64 times as large as PyTorch's, so that activations exceed 10^5. Means over three seeds, with the spread.
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
#: Forward settings by way; None for those without gradscale.
WAYS = {
    "f32": None,
    "autocast, torch's GradScaler": None,
    '`attach(model, forward="off")`': "off",
    "`attach(model)`": "repeat",
    '`attach(model, forward="on")`': "on",
}


class FeedForward(nn.Module):
    def __init__(self, width, factor):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.gate = nn.Linear(width, 4 * width, bias=False), nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        with torch.no_grad():
            for layer in (self.up, self.gate, self.down):
                layer.weight *= factor

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(F.relu(self.up(y)) * self.gate(y))


def network(factor=64):
    return nn.Sequential(nn.Linear(784, 64), FeedForward(64, factor), FeedForward(64, factor), nn.LayerNorm(64), nn.Linear(64, 10))


def train(way, seed, train_set, test_set, epochs):
    """The accuracy in per cent, and the share of batches that did not count."""
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    gs = attach(model, forward=WAYS[way], max_consecutive_skips=0) if WAYS[way] else None
    scaler = torch.amp.GradScaler("cpu") if way.startswith("autocast") else None
    (x, y), (images, classes) = train_set, test_set
    order, steps, lost = torch.Generator().manual_seed(seed), 0, 0
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=order).split(64):

            def closure(batch=batch):
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.float16, enabled=scaler is not None):
                    loss = F.cross_entropy(model(x[batch]), y[batch])
                (scaler.scale(loss) if scaler else loss).backward()
                return loss

            steps += 1
            if gs:
                gs.step(closure, optimizer)
            elif scaler:
                closure()
                before = model[0].bias.clone()
                scaler.step(optimizer)
                scaler.update()
                lost += torch.equal(before, model[0].bias)
            else:
                closure()
                optimizer.step()
    model.eval()
    with torch.no_grad():
        accuracy = 100 * (model(images).argmax(1) == classes).float().mean().item()
    if gs:
        lost = gs.skipped
    return accuracy, 100 * lost / steps, gs.repeats if gs else 0


def main():
    warnings.simplefilter("ignore")
    folder, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    torch.set_num_threads(1)
    sets = data(folder, "train"), data(folder, "t10k")
    print("| way | accuracy in %, mean and spread | batches lost, % | repeats |\n|---|---|---|---|")
    for way in WAYS:
        accuracies, lost, repeats = zip(*(train(way, seed, *sets, epochs) for seed in SEEDS))
        spread = f"{statistics.mean(accuracies):.2f} ± {statistics.stdev(accuracies):.2f}"
        print(f"| {way} | {spread} | {statistics.mean(lost):.1f} | {' '.join(map(str, repeats))} |", flush=True)


if __name__ == "__main__":
    main()
