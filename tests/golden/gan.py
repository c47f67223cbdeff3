#!/usr/bin/env python3
"""Golden values of DCGAN, by PyTorch: writes gan.txt beside this file.

    pip install torch scipy
    python3 gan.py            write gan.txt
    python3 gan.py --check    compute again, exit 1 if a value differs by more than an f32 rounding

The networks and the loop are those of PyTorch's examples (dcgan/main.py), in any size and in f64, from f32 inputs with
few digits. Lines as in engine.py: case, key, shape, values, separated by tabs. Weights have PyTorch's order of sizes
and PyTorch's names, after `generator.` and `discriminator.`.

  small         images are a pattern (`images`); z 0 … z 3: noise of each iteration, [n, noise]. Iteration 0 is a step of the
                discriminator alone; 1, 2 and 3 are whole: the discriminator's step, then the generator's. Two Adams with rates
                and decays of their own. first.NAME: weights before; D.NAME, G.NAME: gradients of iteration 1; losses: of all
                steps in turn; last.NAME: weights and running statistics in the end
  paper         one iteration of the example's shape, 64 × 64 images of 3 channels, with few channels between: z, both
                losses, made: mean of each channel of each image, D.NAME, G.NAME: gradients of the layers that have the fewest
  frechet ...   features [2, n, d] of two sets; y: the distance of their normal distributions, scipy.linalg.sqrtm
"""

import copy
import zlib

import numpy as np
import scipy.linalg
import torch
from torch import nn

from shared.rows import LINES, draw, finish, write


def generator(noise, width, channels, levels):
    layers, inputs = [], noise
    for level in range(levels + 1):
        last = level == levels
        outputs = channels if last else width * 2 ** (levels - 1 - level)
        stride, pad = (1, 0) if level == 0 else (2, 1)
        layers.append(nn.ConvTranspose2d(inputs, outputs, 4, stride, pad, bias=False))
        layers += [nn.Tanh()] if last else [nn.BatchNorm2d(outputs), nn.ReLU(True)]
        inputs = outputs
    return nn.Sequential(*layers)


def discriminator(width, channels, levels):
    layers, inputs = [], channels
    for level in range(levels):
        outputs = width * 2**level
        layers.append(nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False))
        layers += ([nn.BatchNorm2d(outputs)] if level else []) + [nn.LeakyReLU(0.2, inplace=True)]
        inputs = outputs
    layers += [nn.Conv2d(inputs, 1, 4, 1, 0, bias=False), nn.Sigmoid()]
    return nn.Sequential(*layers)


def networks(noise, width, channels, levels):
    """Networks whose weights have few digits, and are larger than the example's, so that all gradients matter."""
    both = {"generator": generator(noise, width, channels, levels), "discriminator": discriminator(width, channels, levels)}
    for net in both.values():
        for name, weight in net.named_parameters():
            norm = weight.dim() == 1
            spread = 0.25 if norm else 0.5
            weight.data = draw(*weight.shape, spread=spread) + (1.0 if norm and name.endswith("weight") else 0.0)
    return both


def named(net, name):
    """Names of parameters as in the example, where both networks are called main."""
    return [(f"{net}.main.{key}", value) for key, value in name]


def step_of_discriminator(both, x, z, made=None):
    G, D = both["generator"], both["discriminator"]
    loss = nn.BCELoss()
    D.zero_grad()
    real = loss(D(x).flatten(), torch.ones(len(x)))
    real.backward()
    made = G(z) if made is None else made
    fake = loss(D(made.detach()).flatten(), torch.zeros(len(x)))
    fake.backward()
    return real + fake, made


def step_of_generator(both, made):
    both["generator"].zero_grad()
    loss = nn.BCELoss()(both["discriminator"](made).flatten(), torch.ones(len(made)))
    loss.backward()
    return loss


def gradients(case, prefix, net, both, few=None):
    for key, weight in named(net, both[net].named_parameters()):
        if few is None or weight.grad.numel() <= few:
            write(case, f"{prefix}.{key}", weight.grad)


def images(n, channels, side):
    """A pattern, which the test computes too, channels last."""
    at = torch.arange(n * side * side * channels)
    return ((at * 7919 % 65 - 32) / 32.0).reshape(n, side, side, channels).permute(0, 3, 1, 2)


def small():
    torch.manual_seed(zlib.crc32(b"small"))
    both = networks(3, 2, 1, 2)
    for net in both:
        for key, weight in named(net, both[net].named_parameters()):
            write("small", f"first.{key}", weight)
    adams = {
        "generator": torch.optim.Adam(both["generator"].parameters(), lr=2e-3, betas=(0.5, 0.999), weight_decay=0.01),
        "discriminator": torch.optim.Adam(both["discriminator"].parameters(), lr=1e-3, betas=(0.5, 0.999)),
    }
    x = images(4, 1, 16)
    losses = []
    for iteration in range(4):
        z = draw(4, 3, 1, 1, spread=2.0)
        write("small", f"z {iteration}", z.flatten(1))
        # A step of the discriminator alone leaves the generator's running statistics as they are.
        alone = copy.deepcopy(both["generator"])(z) if iteration == 0 else None
        loss, made = step_of_discriminator(both, x, z, alone)
        losses.append(loss)
        if iteration == 1:
            gradients("small", "D", "discriminator", both)
        adams["discriminator"].step()
        if iteration == 0:
            continue
        losses.append(step_of_generator(both, made))
        if iteration == 1:
            gradients("small", "G", "generator", both)
        adams["generator"].step()
    write("small", "losses", torch.stack(losses))
    for net in both:
        for key, value in named(net, both[net].state_dict().items()):
            if not key.endswith("num_batches_tracked"):
                write("small", f"last.{key}", value)


def paper():
    torch.manual_seed(zlib.crc32(b"paper"))
    both = networks(2, 1, 3, 4)
    for net in both:
        for key, weight in named(net, both[net].named_parameters()):
            write("paper", f"first.{key}", weight)
    x = images(2, 3, 64)
    z = draw(2, 2, 1, 1, spread=2.0)
    write("paper", "z", z.flatten(1))
    loss, made = step_of_discriminator(both, x, z)
    gradients("paper", "D", "discriminator", both, 64)
    other = step_of_generator(both, made)
    gradients("paper", "G", "generator", both, 64)
    write("paper", "losses", torch.stack([loss, other]))
    write("paper", "made", made.mean((2, 3)))


def frechet():
    """Heusel et al. 2017, as pytorch-fid computes it: covariances over n − 1."""
    torch.manual_seed(7)
    mix = draw(6, 6)
    cases = {
        "alike": (draw(40, 6), draw(40, 6)),
        "apart": (draw(30, 6) @ mix, draw(50, 6)[:30] * 3.0 + 1.0),
        "same": (draw(20, 4),) * 2,
        # More features than samples, and one that never changes: covariances without full rank.
        "flat": (torch.cat([draw(5, 7), torch.zeros(5, 1)], 1), torch.cat([draw(5, 7) * 2, torch.ones(5, 1)], 1)),
        "collapsed": (draw(12, 3), draw(1, 3).repeat(12, 1)),
        # Like features between 0 and 1, most of which are nearly equal.
        "unlike": (draw(60, 5) * torch.tensor([1e-4, 1e-2, 1.0, 10.0, 0.5]), draw(60, 5) * torch.tensor([1.0, 1e-3, 2.0, 8.0, 0.5])),
    }
    for name, both in cases.items():
        one, two = (half.to(torch.float32).to(torch.float64).numpy() for half in both)
        means = [half.mean(0) for half in (one, two)]
        spreads = [np.cov(half, rowvar=False) for half in (one, two)]
        # sqrtm needs full rank; the added diagonal does not change the compared digits.
        product = np.atleast_2d(spreads[0]).dot(np.atleast_2d(spreads[1]))
        root = scipy.linalg.sqrtm(product + np.eye(len(product)) * (0.0 if np.linalg.matrix_rank(product) == len(product) else 1e-18))
        root = np.real(root)
        distance = ((means[0] - means[1]) ** 2).sum() + np.trace(spreads[0]) + np.trace(spreads[1]) - 2 * np.trace(root)
        write(f"frechet {name}", "features", torch.stack([torch.tensor(half) for half in (one, two)]))
        LINES.append(f"frechet {name}\ty\t1\t{distance:.10g}")


if __name__ == "__main__":
    finish(__file__, [small, paper, frechet], scipy, least=1e-8)
