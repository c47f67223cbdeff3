"""Networks for the tests of gradscale.torch, small enough for a CPU whose half products are slow."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """A pre-norm transformer block, written as most people do."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, words=17, width=16, heads=2, depth=2):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.embed(x))))


def mlp():
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 5))


def conv():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 5),
    )


NETWORKS = {"mlp": mlp, "conv": conv, "transformer": Transformer}


def batches(name, count, seed=0):
    """Batches of made-up data: inputs and classes."""
    g = torch.Generator().manual_seed(seed)
    for _ in range(count):
        if name == "mlp":
            yield torch.randn(16, 12, generator=g), torch.randint(5, (16,), generator=g)
        elif name == "conv":
            yield torch.randn(8, 3, 8, 8, generator=g), torch.randint(5, (8,), generator=g)
        else:
            yield torch.randint(17, (4, 6), generator=g), torch.randint(17, (4, 6), generator=g)


def network(name, seed=0):
    torch.manual_seed(seed)
    return NETWORKS[name]()


def cross_entropy(out, y):
    return F.cross_entropy(out.flatten(0, -2), y.flatten())


def error(found, true):
    """Of lists of tensors: the norm of the difference over the norm."""
    a = torch.cat([x.double().flatten() for x in found])
    b = torch.cat([x.double().flatten() for x in true])
    return float((a - b).norm() / b.norm())


def exact(model, loss):
    """Gradients in f64 of the same model, by PyTorch."""
    import copy

    twin = copy.deepcopy(model).double()
    loss(twin).backward()
    return [p.grad for p in twin.parameters()]
