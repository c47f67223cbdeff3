"""One broken image among 10 000: f32, torch.amp with its defaults, and gradscale's attach, in the same loop.

    python one_bad_image.py FOLDER [EPOCHS [SEED …]]     # of CIFAR-10: data_batch_1.bin and test_batch.bin, or .bin.gz

The image is NaN, as a broken decoder or 0/0 in an augmentation leaves it. All three ways skip its batch, once an epoch.
torch.amp also halves its scale each time. An epoch has 78 steps and the scale doubles after 2000, so it never recovers.
"""

import gzip
import math
import pathlib
import sys

import torch
from torch import nn

from gradscale.torch import attach

WAYS, BAD, BATCH = ("f32", "torch.amp", "attach"), 4321, 128


def read(folder, part):
    """Images as rows of 3072 numbers from -2 to 2, and their classes."""
    path = pathlib.Path(folder, f"{part}.bin")
    raw = path.read_bytes() if path.exists() else gzip.open(f"{path}.gz").read()
    rows = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(-1, 3073)
    return rows[:, 1:].float() / 63.75 - 2, rows[:, 0].long()


def train(way, seed, data, epochs=60, after_update=None, device="cpu"):
    """Yields after each epoch: accuracy in per cent, mean loss of the finite batches, log2 of the loss scale, batches skipped."""
    (x, y), (images, classes) = [[part.to(device) for part in one] for one in data]
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3072, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    order, skipped = torch.Generator().manual_seed(seed), 0
    if way == "attach":
        scaling = attach(model)
        scaling.guard(optimizer)
    else:
        scaler = torch.amp.GradScaler(device)  # In f32 too, because it skips steps that are not finite.
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        losses = []
        for batch in torch.randperm(len(x), generator=order).split(BATCH)[: len(x) // BATCH]:
            optimizer.zero_grad()
            with torch.autocast(device, torch.float16, enabled=way == "torch.amp"):
                loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            losses.append(loss.detach())
            if way == "attach":
                loss.backward()
                optimizer.step()
                scaling.update()
            else:
                before = scaler.get_scale()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                skipped += scaler.get_scale() < before
                if after_update:
                    after_update(scaler)
        scheduler.step()
        with torch.no_grad(), torch.autocast(device, torch.float16, enabled=way == "torch.amp"):
            accuracy = 100 * (model(images).argmax(1) == classes).float().mean().item()
        scale, skips = (None, scaling.skipped) if way == "attach" else (math.log2(scaler.get_scale()), skipped)
        yield accuracy, torch.stack(losses).nanmean().item(), scale, skips


def load(folder):
    """Training and test set; one training image is broken."""
    data = read(folder, "data_batch_1"), read(folder, "test_batch")
    data[0][0][BAD] = math.nan
    return data


def main():
    torch.set_num_threads(1)
    data, epochs = load(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 60
    print("| seed | way | accuracy % at the middle | at the end | log2 of the scale | batches skipped |\n|" + "---|" * 6)
    for seed in map(int, sys.argv[3:] or ["0"]):
        for way in WAYS:
            rows = list(train(way, seed, data, epochs))
            accuracy, _, scale, skipped = rows[-1]
            print(f"| {seed} | {way} | {rows[epochs // 2 - 1][0]:.1f} | {accuracy:.1f} | {scale} | {skipped} |", flush=True)


if __name__ == "__main__":
    main()
