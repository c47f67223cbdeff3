#!/usr/bin/env python3
"""Golden values of language models, by PyTorch: writes language.txt beside this file.

    pip install torch
    python3 language.py            write language.txt
    python3 language.py --check    compute again, exit 1 if a value differs by more than an f32 rounding

PyTorch computes in f64 from f32 inputs, as in engine.py, which defines the lines: case, key, shape, values, separated
by tabs. Parameters have PyTorch's names, after state_dict.; gradient.NAME is that of the case's loss.

  lstm      nn.LSTM with proj_size, two layers: x [n, t, inputs], first state h0, c0; y, h, c; loss: sum(y * t) + sum(h * th) +
            sum(c * tc)
  biglstm   nn.Embedding, nn.LSTM with proj_size, nn.Linear: tokens, targets [n, t], logits; loss: the cross-entropy
  sampled   the same network; classes [s] drawn, of_classes and of_labels: logarithms of expected counts; loss: sampled softmax,
            written out
  decoder   nn.TransformerEncoder of nn.TransformerEncoderLayer(norm_first=True, activation="gelu") under a causal mask, between
            nn.Embedding of tokens and places, and a product with the same table: tokens, targets, logits; loss: the
            cross-entropy
  rotary    the same with rotary positions (Su et al. 2021), by products of complex numbers: no places, one layer of one head
"""


import torch
import torch.nn.functional as F
from torch import nn

from shared.rows import draw, finish, write


def redrawn(net, spread=0.5):
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(draw(*parameter.shape, spread=spread) + (1.0 if "norm" in name and "weight" in name else 0.0))
    return net


def keep(case, net, loss, **values):
    net.zero_grad()
    loss.backward()
    for key, tensor in values.items():
        write(case, key, tensor)
    for name, parameter in net.named_parameters():
        write(case, f"state_dict.{name}", parameter)
        write(case, f"gradient.{name}", parameter.grad)
    write(case, "loss", loss.reshape(1))


def lstm():
    torch.manual_seed(1)
    net = redrawn(nn.LSTM(3, 5, 2, proj_size=2, batch_first=True))
    x, h0, c0 = draw(2, 4, 3, spread=2.0), draw(2, 2, 2), draw(2, 2, 5)
    y, (h, c) = net(x, (h0, c0))
    t, th, tc = draw(*y.shape), draw(*h.shape), draw(*c.shape)
    loss = (y * t).sum() + (h * th).sum() + (c * tc).sum()
    keep("lstm", net, loss, x=x, h0=h0, c0=c0, y=y, h=h, c=c, t=t, th=th, tc=tc)


class BigLstm(nn.Module):
    def __init__(self, tokens, width, hidden, projection, layers):
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.lstm = nn.LSTM(width, hidden, layers, proj_size=projection, batch_first=True)
        self.softmax = nn.Linear(projection, tokens)

    def features(self, tokens):
        return self.lstm(self.tokens(tokens))[0]


def biglstm():
    torch.manual_seed(2)
    net = redrawn(BigLstm(17, 4, 6, 3, 2), spread=1.0)
    tokens, targets = torch.randint(0, 17, (2, 5)), torch.randint(0, 17, (2, 5))
    logits = net.softmax(net.features(tokens))
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    keep("biglstm", net, loss, tokens=tokens, targets=targets, logits=logits)

    # Some of the labels are among the sampled classes.
    labels = targets.flatten()
    others = [i for i in range(17) if i not in labels.tolist()]
    classes = torch.tensor([int(labels[3]), others[0], int(labels[7]), others[1], others[2], int(labels[0])])
    of_classes, of_labels = draw(6, spread=2.0) - 1.0, draw(10, spread=2.0) - 1.0
    x = net.features(tokens).flatten(0, 1)
    weight, bias = net.softmax.weight, net.softmax.bias
    own = (x * weight[labels]).sum(1) + bias[labels] - of_labels
    drawn = x @ weight[classes].T + bias[classes] - of_classes
    counts = torch.where(classes[None, :] == labels[:, None], 0.0, drawn.exp()).sum(1) + own.exp()
    loss = (counts.log() - own).mean()
    keep("sampled", net, loss, tokens=tokens, targets=targets, classes=classes, of_classes=of_classes,
         of_labels=of_labels)


class Decoder(nn.Module):
    def __init__(self, tokens, context, width, heads, layers):
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).layers
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        t = tokens.shape[1]
        x = self.tokens(tokens) + self.places(torch.arange(t))
        mask = nn.Transformer.generate_square_subsequent_mask(t)
        for layer in self.layers:
            x = layer(x, mask, is_causal=True)
        return self.norm(x) @ self.tokens.weight.T


def decoder():
    torch.manual_seed(3)
    net = redrawn(Decoder(11, 6, 4, 2, 2), spread=1.0)
    tokens, targets = torch.randint(0, 11, (2, 5)), torch.randint(0, 11, (2, 5))
    logits = net(tokens)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    keep("decoder", net, loss, tokens=tokens, targets=targets, logits=logits)


def turned(x):
    """Queries or keys [n, heads, t, d]: pair i, channels i and i + d / 2, times e^(place * 10000^(-2 i / d) sqrt(-1))."""
    t, half = x.shape[-2], x.shape[-1] // 2
    angles = torch.outer(torch.arange(t, dtype=x.dtype), 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half))
    pairs = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous()) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([pairs.real, pairs.imag], -1)


class Rotary(Decoder):
    def __init__(self, tokens, width, heads, layers):
        super().__init__(tokens, 1, width, heads, layers)
        del self.places
        self.heads = heads

    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = x + self.attended(layer.self_attn, layer.norm1(x))
            x = x + layer.linear2(F.gelu(layer.linear1(layer.norm2(x))))
        return self.norm(x) @ self.tokens.weight.T

    def attended(self, attention, x):
        n, t, width = x.shape
        q, k, v = F.linear(x, attention.in_proj_weight, attention.in_proj_bias).chunk(3, -1)
        q, k, v = (one.reshape(n, t, self.heads, -1).transpose(1, 2) for one in (q, k, v))
        mixed = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        return attention.out_proj(mixed.transpose(1, 2).reshape(n, t, width))


def rotary():
    torch.manual_seed(4)
    net = redrawn(Rotary(7, 4, 1, 1), spread=1.0)
    tokens, targets = torch.randint(0, 7, (2, 6)), torch.randint(0, 7, (2, 6))
    logits = net(tokens)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    keep("rotary", net, loss, tokens=tokens, targets=targets, logits=logits)


if __name__ == "__main__":
    finish(__file__, [lstm, biglstm, decoder, rotary])
