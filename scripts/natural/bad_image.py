"""One NaN image among 10 000 of CIFAR-10: the experiment of python/examples/one_bad_image.py, with two remedies
added."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python/examples"))
import loops  # noqa: E402
import one_bad_image  # noqa: E402

DATA = "cifar10-10k"
EPOCHS = 60
# Epochs that are recorded: the first for the test that runs it again, then the curve.
RECORDED = {1, 10, 20, 30, 40, 50, 60}


def load(data):
    return one_bad_image.load(data / DATA)


def train(method, seed, loaded, device="cpu", epochs=EPOCHS):
    """Yields rows of the record: after an epoch, accuracy in per cent and loss."""
    way = method if method in one_bad_image.WAYS else "torch.amp"
    results = one_bad_image.train(way, seed, loaded, epochs, loops.keep_scale(method), device)
    for epoch, (accuracy, loss, scale, skipped) in enumerate(results, 1):
        if epoch in RECORDED or epoch == epochs:
            yield {"step": epoch, "score": accuracy, "loss": loss, "log2_scale": scale, "skipped": skipped, "events": epoch_events(loaded, seed, epoch)}


def epoch_events(loaded, seed, epochs):
    """Batches with the broken image until then. The last 16 images of an epoch's order are in no batch."""
    import torch

    count, order = 0, torch.Generator().manual_seed(seed)
    images = len(loaded[0][0])
    for _ in range(epochs):
        kept = torch.randperm(images, generator=order)[: images // one_bad_image.BATCH * one_bad_image.BATCH]
        count += bool((kept == one_bad_image.BAD).any())
    return count
