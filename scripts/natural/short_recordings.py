"""Spoken digits by CTC with PyTorch's default `zero_infinity=False`.

A network that keeps every fourth frame of 10 ms has fewer outputs than a short recording has letters: 17 of the 2000
recordings. The loss of their batches is infinite. These recordings are part of the original data set.
"""
import random
import struct

import loops
import torch
from torch import nn

DATA = "fsdd"
WORDS = "zero one two three four five six seven eight nine".split()
LETTERS = {letter: code for code, letter in enumerate(sorted(set("".join(WORDS))), 1)}
STEPS, BATCH, WARM_UP, RATE, CLIP = 800, 16, 50, 2e-3, 5.0
RECORDED = {20, 200, 400, 600, 800}
# Frames of 10 ms at 8 kHz, windows of 25 ms, 40 mel bands.
HOP, WINDOW, FFT, BANDS = 80, 200, 256, 40
# Frames per output: two convolutions of stride 2.
STRIDE = 4


def mel_filters():
    """Triangles that are equally wide in mel, from 50 to 3900 Hz, as rows of weights of frequencies."""
    to_mel = lambda hertz: 2595 * torch.log10(1 + torch.as_tensor(hertz) / 700)
    corners = 700 * (10 ** (torch.linspace(to_mel(50.0), to_mel(3900.0), BANDS + 2) / 2595) - 1)
    frequencies = torch.linspace(0, 4000, FFT // 2 + 1)
    left, middle, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    return torch.minimum((frequencies - left) / (middle - left), (right - frequencies) / (right - middle)).clamp(min=0)


def read_wave(path):
    """Samples of a WAV file of one channel and 16 bits, from -1 to 1."""
    raw = path.read_bytes()
    at = raw.index(b"data")
    (size,) = struct.unpack("<I", raw[at + 4 : at + 8])
    return torch.frombuffer(bytearray(raw[at + 8 : at + 8 + size]), dtype=torch.int16).float() / 32768


def features(samples, filters):
    """Log mel energies of each frame, normalised over the recording."""
    frames = max(1, len(samples) // HOP)
    padded = nn.functional.pad(samples, (0, FFT + HOP * frames - len(samples)))
    power = torch.stft(padded, FFT, HOP, WINDOW, torch.hann_window(WINDOW), center=False, return_complex=True).abs().square()
    energies = torch.log(filters @ power[:, :frames] + 1e-6).t()
    return (energies - energies.mean()) / (energies.std() + 1e-3)


def load(data):
    """Training and test recordings: features and letters."""
    filters, folder = mel_filters(), data / DATA
    # A list may name files or files of the folder of recordings.
    names = lambda part: [line.split("/")[-1].strip() for line in (folder / f"{part}.txt").read_text().splitlines() if line.strip()]
    read = lambda name: (features(read_wave(folder / "recordings" / name), filters), [LETTERS[letter] for letter in WORDS[int(name[0])]])
    return [[read(name) for name in names(part)] for part in ("train", "test")]


def too_short(examples):
    """Recordings with fewer outputs than CTC needs: one for each letter, and one between two equal letters."""
    needed = lambda word: len(word) + sum(one == next_one for one, next_one in zip(word, word[1:]))
    return sum(max(1, len(frames) // STRIDE) < needed(word) for frames, word in examples)


class Net(nn.Module):
    """Two convolutions of stride 2, then three residual blocks over time. Convolutions are products of unfolded inputs,
    because PyTorch's half convolutions are slow on a CPU."""

    def __init__(self, width=64, blocks=3):
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Linear(9, 16), nn.Linear(9 * 16, 16)])
        self.enter = nn.Linear(BANDS // STRIDE * 16, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(blocks)])
        self.wide = nn.ModuleList([nn.Linear(5 * width, 2 * width) for _ in range(blocks)])
        self.narrow = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(blocks)])
        self.last = nn.LayerNorm(width)
        self.out = nn.Linear(width, len(LETTERS) + 1)

    def forward(self, x):
        x = x[:, None]
        for convolution in self.convolutions:
            size = [-(-side // 2) for side in x.shape[2:]]
            x = convolution(nn.functional.unfold(x, 3, padding=1, stride=2).transpose(1, 2)).relu()
            x = x.transpose(1, 2).unflatten(2, size)
        x = self.enter(x.transpose(1, 2).flatten(2))
        for norm, wide, narrow in zip(self.norms, self.wide, self.narrow):
            padded = nn.functional.pad(norm(x), (0, 0, 2, 2))
            around = torch.cat([padded[:, shift : shift + x.shape[1]] for shift in range(5)], -1)
            x = x + narrow(wide(around).relu())
        return self.out(self.last(x))


def collate(examples):
    """Padded features, outputs of each recording, letters of all, letters of each."""
    frames = [len(one) for one, _ in examples]
    batch = torch.zeros(len(examples), -(-max(frames) // STRIDE) * STRIDE, BANDS)
    for row, (one, _) in zip(batch, examples):
        row[: len(one)] = one
    outputs = torch.tensor([max(1, count // STRIDE) for count in frames])
    return batch, outputs, torch.tensor([code for _, word in examples for code in word]), torch.tensor([len(word) for _, word in examples])


def distance(one, other):
    """Letters to insert, delete or replace."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        corner, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (a != b))
    return row[-1]


def errors(loop, examples):
    """Character errors of the most likely outputs, in per cent."""
    wrong = total = 0
    with torch.no_grad():
        for start in range(0, len(examples), 50):
            part = examples[start : start + 50]
            batch, outputs, _, _ = collate(part)
            best = loop.forward(batch).argmax(-1)
            for row, count, (_, word) in zip(best.tolist(), outputs.tolist(), part):
                row = row[:count]
                said = [code for before, code in zip([0, *row], row) if code and code != before]
                wrong += distance(said, word)
                total += len(word)
    return 100 * wrong / total


def train(method, seed, loaded, device="cpu", steps=STEPS):
    """Yields rows of the record: character errors in per cent after certain numbers of steps. The method
    `zero_infinity` is torch.amp with that option of the loss."""
    training, test = loaded
    torch.manual_seed(seed)
    net = Net().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), RATE, weight_decay=0.01)
    loop = loops.Loop("torch.amp" if method == "zero_infinity" else method, net, optimizer, CLIP)
    shuffled, order, infinite, losses = random.Random(seed), [], 0, []
    for step in range(steps):
        if len(order) < BATCH:
            order = shuffled.sample(range(len(training)), len(training))
        chosen, order = order[:BATCH], order[BATCH:]
        batch, outputs, letters, counts = collate([training[one] for one in chosen])
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / WARM_UP) * (1 - step / steps)

        def loss_of():
            likely = loop.forward(batch).log_softmax(-1).transpose(0, 1)
            return nn.functional.ctc_loss(likely, letters.to(device), outputs, counts, zero_infinity=method == "zero_infinity")

        _, loss = loop.step(loss_of)
        infinite += loss == float("inf")
        losses += [loss] if loss < float("inf") else []
        if step + 1 in RECORDED or step + 1 == steps:
            mean = sum(losses) / len(losses) if losses else None
            losses = []
            yield {"step": step + 1, "score": errors(loop, test), "loss": mean, "log2_scale": loop.log2_scale, "skipped": loop.skipped, "events": infinite}
