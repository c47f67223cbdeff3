#!/usr/bin/env python3
"""Golden values of operators of speech networks, by PyTorch: writes speech.txt beside this file.

    pip install torch jiwer
    python3 speech.py            write speech.txt
    python3 speech.py --check    compute again, exit 1 if a value differs by more than an f32 rounding

PyTorch computes in f64 from f32 inputs, as in engine.py, which defines the lines: case, key, shape, values, separated
by tabs.

  ctc ...       logits [n, t, classes], targets [n, letters], lengths of both; losses [n]; t: factors of these; gradient: of
                sum(losses * t) by the logits. F.ctc_loss of log_softmax with reduction "none"; zero: its zero_infinity
  deepspeech .. x [n, t, f, 1], frames and steps [n], parameters by the engine's names, y: logits [n, 1, steps, classes],
                gradient.NAME of sum(y * t)
  spectrogram   sound: samples of 16 bits; y [frames, frequencies]: ln(1 + |STFT|), torch.stft with a Hamming window; normal:
                the same with mean 0 and deviation 1
  cer ...       jiwer's character error rate over five texts, 5, meant/said|meant/said ...
"""

import zlib

import jiwer
import torch
import torch.nn.functional as F
from torch import nn

from shared.rows import LINES, draw, finish, write


def ctc(case, logits, targets, frames, letters, blank=0, zero_infinity=True):
    torch.manual_seed(zlib.crc32(case.encode()))
    logits = logits.requires_grad_()
    factors = draw(logits.shape[0])
    log = F.log_softmax(logits, -1).transpose(0, 1)
    losses = F.ctc_loss(log, targets, frames, letters, blank, "none", zero_infinity)
    (losses * factors).sum().backward()
    for key, tensor in {"logits": logits, "targets": targets, "frames": frames, "letters": letters,
                        "blank": torch.tensor([blank]), "zero": torch.tensor([int(zero_infinity)]), "losses": losses, "t": factors,
                        "gradient": logits.grad}.items():
        write(f"ctc {case}", key, tensor)


def alignments():
    torch.manual_seed(1)
    words = lambda *all: torch.tensor(all)
    ctc("random", draw(4, 12, 5, spread=3.0), torch.randint(1, 5, (4, 4)), words(12, 9, 12, 7), words(4, 3, 1, 2))
    ctc("last blank", draw(3, 9, 4, spread=3.0), torch.randint(0, 3, (3, 3)), words(9, 8, 5), words(3, 2, 1), blank=3)
    # Equal adjacent letters, one target in the smallest number of frames that suffices.
    repeated = words([2, 2, 2, 1], [3, 3, 1, 1], [1, 1, 1, 1], [2, 2, 0, 0])
    ctc("repeated", draw(4, 10, 4, spread=2.0), repeated, words(10, 6, 7, 3), words(4, 4, 4, 2))
    # An empty target, and a target that is longer than the frames.
    ctc("empty", draw(3, 6, 3, spread=2.0), words([0, 0], [1, 2], [0, 0]), words(6, 5, 2), words(0, 2, 0))
    ctc("impossible", draw(4, 5, 4, spread=2.0), words([1, 2, 3], [1, 1, 0], [2, 2, 2], [3, 0, 0]), words(2, 2, 4, 1),
        words(3, 2, 3, 1))
    ctc("sure", draw(3, 40, 6, spread=60.0), torch.randint(1, 6, (3, 9)), words(40, 30, 35), words(9, 5, 7))
    ctc("long", draw(2, 180, 4, spread=2.0), torch.randint(1, 4, (2, 30)), words(180, 150), words(30, 21))
    # Targets of “impossible” with PyTorch's default: infinity, NaN at frames before the end, 0 after it.
    ctc("infinite", draw(4, 5, 4, spread=2.0), words([1, 2, 3], [1, 1, 0], [2, 2, 2], [3, 0, 0]), words(2, 2, 4, 1),
        words(3, 2, 3, 1), zero_infinity=False)


class DeepSpeech(nn.Module):
    """Amodei et al. 2016 with masks of length: normalisations see the frames before the ends, and these alone."""

    def __init__(self, frequencies, channels, hidden, layers, characters):
        super().__init__()
        self.convolutions, self.norms = nn.ModuleList(), nn.ModuleList()
        for inputs, wide in [(1, 41), (channels, 21)]:
            stride = (2 if inputs == 1 else 1, 2)
            pad = (5, wide // 2)
            self.convolutions.append(nn.Conv2d(inputs, channels, (11, wide), stride, pad, bias=False))
            self.norms.append(nn.BatchNorm1d(channels))
            frequencies = (frequencies + 1) // 2
        width = frequencies * channels
        self.grus, self.between = nn.ModuleList(), nn.ModuleList()
        for layer in range(layers):
            self.between.append(nn.BatchNorm1d(width) if layer else None)
            self.grus.append(nn.GRU(width, hidden, batch_first=True, bidirectional=True))
            width = hidden
        self.norm, self.characters = nn.BatchNorm1d(width), nn.Linear(width, characters)

    @staticmethod
    def normal(norm, x, steps):
        """Normalises the channels of [n, t, ..., c] over frames before the ends; frames after them become 0."""
        before = torch.arange(x.shape[1]) < steps[:, None]
        y = torch.zeros_like(x)
        valid = x[before]
        y[before] = norm(valid.reshape(-1, x.shape[-1])).reshape(valid.shape)
        return y

    def forward(self, x, frames):
        x = x * (torch.arange(x.shape[1]) < frames[:, None])[:, :, None, None]
        steps = (frames + 1) // 2
        for conv, norm in zip(self.convolutions, self.norms):
            x = nhwc(conv(nchw(x)))
            x = F.hardtanh(self.normal(norm, x, steps), 0.0, 20.0)
        x = x.flatten(2)
        for norm, gru in zip(self.between, self.grus):
            x = x if norm is None else self.normal(norm, x, steps)
            packed = nn.utils.rnn.pack_padded_sequence(x, steps, batch_first=True, enforce_sorted=False)
            y, _ = nn.utils.rnn.pad_packed_sequence(gru(packed)[0], batch_first=True, total_length=x.shape[1])
            x = y.unflatten(-1, (2, -1)).sum(2)
        return self.characters(self.normal(self.norm, x, steps)), steps


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


def engine_name(name):
    """Returns the engine's name of a parameter."""
    kind, *rest = name.split(".")
    last = {"weight": "scale", "bias": "shift"}.get(rest[-1], rest[-1])
    match kind:
        case "convolutions":
            return f"conv{int(rest[0]) + 1}.weight"
        case "norms":
            return f"norm{int(rest[0]) + 1}.{last}"
        case "between":
            return f"recurrent{int(rest[0]) + 1}.norm.{last}"
        case "grus":
            return f"recurrent{int(rest[0]) + 1}.gru.{rest[1]}"
        case "norm":
            return f"norm.{last}"
    return name


def networks():
    torch.manual_seed(3)
    net = DeepSpeech(9, 2, 3, 2, 4)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(draw(*parameter.shape, spread=0.5))
        for norm in [*net.norms, *net.between, net.norm]:
            if norm is not None:
                # Some values reach the end of ReLU.
                norm.weight.add_(6.0 if norm in list(net.norms) else 1.0)
                norm.bias.add_(8.0 if norm in list(net.norms) else 0.0)
    x, frames = draw(3, 14, 9, 1, spread=2.0), torch.tensor([14, 9, 4])
    y, steps = net(x, frames)
    t = draw(*y.shape) * (torch.arange(y.shape[1]) < steps[:, None])[:, :, None]
    (y * t).sum().backward()
    for key, tensor in {"x": x, "frames": frames, "steps": steps, "y": y, "t": t}.items():
        write("deepspeech", key, tensor)
    ohwi = lambda x: nhwc(x) if x.dim() == 4 else x
    for name, parameter in net.named_parameters():
        write("deepspeech", engine_name(name), ohwi(parameter))
        write("deepspeech", f"gradient.{engine_name(name)}", ohwi(parameter.grad))
    for name, norm in net.named_modules():
        if isinstance(norm, nn.BatchNorm1d):
            # Running statistics begin at 0 and 1; a tenth of the way is gone.
            both = torch.cat([norm.running_mean * 10, (norm.running_var - 0.9) * 10])
            write("deepspeech", f"statistics.{engine_name(name + '.weight').rsplit('.', 1)[0]}", both)


def spectrogram():
    torch.manual_seed(5)
    sound = torch.round(torch.sin(torch.arange(420) * 0.31) * 9000 + torch.randn(420) * 1500) / 32768
    window = torch.hamming_window(160)
    y = torch.stft(sound, 160, 80, window=window, center=False, return_complex=True).abs().log1p().T
    write("spectrogram", "sound", sound)
    write("spectrogram", "y", y)
    write("spectrogram", "normal", (y - y.mean()) / y.std(correction=0))


def error_rates():
    """Random texts and texts with a few mistakes: pairs, and jiwer's rate over all of a line."""
    torch.manual_seed(6)
    letters = "abc de"
    word = lambda least, most: "".join(letters[i] for i in torch.randint(0, 6, (int(torch.randint(least, most, ())),)))
    for number in range(12):
        meant, said = [], []
        while len(meant) < 5:
            one = word(1, 14)
            if one.strip():
                place = int(torch.randint(0, len(one), ()))
                meant.append(one)
                said.append(word(0, 16) if number % 2 else one[:place] + word(0, 3) + one[place + 1:])
        pairs = "|".join(f"{a}/{b}" for a, b in zip(meant, said))
        LINES.append(f"cer {number}\t{jiwer.cer(meant, said):.17g}\t5\t{pairs}")


if __name__ == "__main__":
    finish(__file__, [alignments, networks, spectrogram, error_rates], exact=["cer"])
