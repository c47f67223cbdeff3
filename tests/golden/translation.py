#!/usr/bin/env python3
"""Golden values of operators of translation networks, by PyTorch and sacrebleu: writes translation.txt beside this
file.

    pip install torch sacrebleu
    python3 translation.py            write translation.txt
    python3 translation.py --check    compute again, exit 1 if a value differs by more than an f32 rounding
    python3 translation.py --bleu REFERENCES TRANSLATIONS
                                      sacrebleu's score of two files of lines, with all digits

PyTorch computes in f64 from f32 inputs, as in engine.py, which defines the lines: case, key, shape, values, separated
by tabs.

  seq2seq ..    source [n, s], lengths [n], target [n, t] (begins with 1), labels [n, t] (ends with 2, 0 does not count);
                parameters by their names in the state_dict; y: logits [n, t, words], loss: the mean cross-entropy of
                labels that count, gradient.NAME of it
  bleu ..       sacrebleu's corpus BLEU, number of sentences, reference///translation|||reference///...
  words ..      a text, -, its words as sacrebleu's tokenisation 13a has them
"""

import sys

import sacrebleu
import torch
import torch.nn.functional as F
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from torch import nn

from shared.rows import LINES, draw, finish, write


class Attention(nn.Module):
    """Luong et al. 2015: general, global; the parameters of OpenNMT's."""

    def __init__(self, units):
        super().__init__()
        self.inside = nn.Linear(units, units, bias=False)
        self.out = nn.Linear(2 * units, units, bias=False)

    def forward(self, h, memory, lengths):
        scores = self.inside(h) @ memory.transpose(1, 2)
        behind = torch.arange(memory.shape[1]) >= lengths[:, None]
        weights = scores.masked_fill(behind[:, None, :], float("-inf")).softmax(-1)
        return torch.tanh(self.out(torch.cat([weights @ memory, h], -1)))


class Seq2Seq(nn.Module):
    def __init__(self, source, target, units, layers):
        super().__init__()
        self.source, self.target = nn.Embedding(source, units), nn.Embedding(target, units)
        self.encoder = nn.LSTM(units, units, layers, batch_first=True)
        self.decoder = nn.LSTM(units, units, layers, batch_first=True)
        self.attention = Attention(units)
        self.generator = nn.Linear(units, target)

    def forward(self, source, lengths, target):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.source(source), lengths, batch_first=True, enforce_sorted=False)
        memory, state = self.encoder(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(memory, batch_first=True, total_length=source.shape[1])
        h, _ = self.decoder(self.target(target), state)
        return self.generator(self.attention(h, memory, lengths))


def networks():
    for layers, units in [(1, 3), (3, 2), (5, 2)]:
        torch.manual_seed(layers)
        net = Seq2Seq(7, 6, units, layers)
        with torch.no_grad():
            for parameter in net.parameters():
                # Few digits, so that all are f32 and the file is small.
                parameter.copy_(torch.randint(-32, 33, parameter.shape) / 32.0)
        n, s, t = 3, 5, 4
        lengths = torch.tensor([5, 2, 3])
        source = torch.randint(3, 7, (n, s))
        source = torch.where(torch.arange(s) < lengths[:, None], source, 0)
        ends = torch.tensor([4, 3, 2])
        words = torch.randint(3, 6, (n, t))
        place = torch.arange(t)
        labels = torch.where(place < ends[:, None] - 1, words, torch.where(place == ends[:, None] - 1, 2, 0))
        target = torch.cat([torch.ones(n, 1, dtype=torch.int64), labels[:, :-1]], 1)
        target = torch.where(place < ends[:, None], target, 0)
        y = net(source, lengths, target)
        loss = F.cross_entropy(y.flatten(0, 1), labels.flatten(), ignore_index=0)
        loss.backward()
        case = f"seq2seq {layers}"
        for key, tensor in {"source": source, "lengths": lengths, "target": target, "labels": labels, "y": y,
                            "loss": loss[None]}.items():
            write(case, key, tensor)
        for name, parameter in net.named_parameters():
            write(case, name, parameter)
            write(case, f"gradient.{name}", parameter.grad)


TEXTS = [
    "Ein Mann, der einen 3,5-Liter-Kanister trägt.",
    "Zwei Kinder spielen: eines lacht, das andere (3 Jahre) nicht!",
    "A U.S. flag costs $1,200.50 -- or 7-8 % less?",
    "&quot;Go,&quot; he said &amp; left; &lt;skipped> <skipped>it.",
    "state-of-the-art [x] {y} ~z `q` ^2 _under_ a/b @home #1 *+= | \\ end",
    "1,2,3... 4. 5 ,6 .7 8-9 10- -11 a.b,c .,., ,. 3.,4",
    "  leading and trailing   blanks \\t tab  ",
    "ein\\nZeilenumbruch-\\nim Wort",
    "»Anführung« – Gedankenstrich … und 日本語。 naïve café",
    "don't 'quote' o'clock rock'n'roll",
    "",
    ".",
]


def escaped(text):
    return text.replace("\\n", "\n").replace("\\t", "\t")


def bleu(case, meant, said):
    score = sacrebleu.corpus_bleu([escaped(text) for text in said], [[escaped(text) for text in meant]]).score
    pairs = "|||".join(f"{a}///{b}" for a, b in zip(meant, said))
    LINES.append(f"bleu {case}\t{score:.17g}\t{len(meant)}\t{pairs}")


def scores():
    torch.manual_seed(7)
    draw = lambda least, most: int(torch.randint(least, most, ()))
    words = "der Hund läuft läuft , . am am Strand 3,5 und Und ein-zwei 7-8 ( ) &amp;".split()
    text = lambda least, most: " ".join(words[draw(0, len(words))] for _ in range(draw(least, most)))
    for number in range(6):
        meant = [text(1, 14) for _ in range(5)]
        bleu(f"random {number}", meant, [text(0, 14) for _ in range(5)])
        near = []
        for one in meant:
            parts = one.split()
            place = draw(0, len(parts))
            parts[place:place + draw(0, 2)] = text(0, 3).split()
            near.append(" ".join(parts))
        bleu(f"near {number}", meant, near)
    bleu("same", TEXTS, TEXTS)
    bleu("shorter", TEXTS, [text[: len(text) // 2] for text in TEXTS])
    bleu("longer", TEXTS, [text + " und mehr." for text in TEXTS])
    bleu("nothing right", ["a b c d e"], ["v w x y z"])
    bleu("one word right", ["a b c d e"], ["a w x y z"])
    bleu("empty", ["a b c d e", "f"], ["", ""])
    bleu("short", ["a b c", "d"], ["a b c", "d"])
    for number, one in enumerate(TEXTS):
        LINES.append(f"words {number}\t{one}\t-\t{Tokenizer13a()(escaped(one).rstrip())}")


def main():
    if "--bleu" in sys.argv:
        meant, said = ([line.rstrip("\n") for line in open(path, encoding="utf-8")] for path in sys.argv[2:4])
        print(sacrebleu.corpus_bleu(said, [meant]).score)
        return
    finish(__file__, [networks, scores], sacrebleu, exact=["bleu", "words"])


if __name__ == "__main__":
    main()
