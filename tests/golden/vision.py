#!/usr/bin/env python3
"""The networks for images compared with PyTorch's: torchvision's, and modules after the papers where torchvision has
none.

    pip install torch torchvision numpy safetensors
    python3 vision.py            write vision.txt beside this file: narrow networks, for the ordinary tests
    python3 vision.py --check    compute again, exit 1 if a number differs
    python3 vision.py --full [--steps N] [--results DIRECTORY] [NETWORK ...]
                                 compare the papers' networks at full size with the engine's, all gradients element by
                                 element; with --steps, time N steps of both (PyTorch's f32 in the faster layout); builds
                                 and runs the example `vision`; a file NETWORK.json each in the directory of results

Weights are a function of their names, so that no file of them is needed: see `uniform`. Oracles are computed in f64.

Lines of vision.txt, separated by spaces:

  network NAME batch rows columns
  KEY shape largest first second     KEY: a tensor of the state_dict, of which these are of its gradient; or `training`,
                                     the answer of each head, or `evaluation`, with running statistics

`shape` is PyTorch's, joined by x. `largest` is the largest magnitude; `first` and `second` are sums of the elements
with signs drawn by `sign`, divided by the root of their number. A random difference of 1e-5 of the largest in each
element changes these by as little.
"""

import os
import sys

import numpy
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.join(HERE, "vision.txt")
CLASSES = 7
# Width of the narrow networks, of 64 at full size: the smallest for which all channel counts of all networks are
# integers.
NARROW = 8


def hashed(name, count, seed=0):
    """32 random bits for each element: FNV-1a of the name, then MurmurHash3's end."""
    state = 2166136261 ^ seed
    for byte in name.encode():
        state = (state ^ byte) * 16777619 & 0xFFFFFFFF
    bits = numpy.arange(count, dtype=numpy.uint32) * numpy.uint32(0x9E3779B1) + numpy.uint32(state)
    bits ^= bits >> numpy.uint32(16)
    bits *= numpy.uint32(0x85EBCA6B)
    bits ^= bits >> numpy.uint32(13)
    bits *= numpy.uint32(0xC2B2AE35)
    bits ^= bits >> numpy.uint32(16)
    return bits


def uniform(name, shape):
    """Numbers in -1 … 1, derived from a name."""
    bits = hashed(name, int(numpy.prod(shape)))
    return torch.from_numpy(bits.astype(numpy.float64) / 2**31 - 1.0).reshape(shape)


def sign(name, count, seed):
    return torch.from_numpy(1.0 - 2.0 * (hashed(name, count, seed) >> numpy.uint32(31)).astype(numpy.float64))


# In a quarter of the channels batch norm's shifts are this far from 0, so that few values after it are near 0. In
# networks so deep, roundings of f32 would otherwise switch some ReLU on or off, and gradients would differ by more than
# any bound, in PyTorch's own f32 too.
SHIFT = 2.0


def value(name, shape, last, norm):
    """A weight of that name, as f32; `norm`: of a normalisation."""
    drawn = uniform(name, shape)
    if norm and last == "bias":
        drawn = torch.where(drawn < -0.5, -SHIFT, SHIFT) + 0.1 * drawn
    elif last == "running_var":
        drawn = 1.0 + 0.5 * drawn
    elif last == "running_mean":
        drawn = 0.1 * drawn
    elif len(shape) > 1:
        drawn = drawn * (6.0 / numpy.prod(shape[1:])) ** 0.5
    elif last == "weight":
        drawn = 1.0 + 0.2 * drawn
    else:
        drawn = 0.1 * drawn
    return drawn.to(torch.float32)


def fill(model):
    state = model.state_dict()
    for name, tensor in state.items():
        if not name.endswith("num_batches_tracked"):
            layer, last = name.rsplit(".", 1)
            tensor.copy_(value(name, tuple(tensor.shape), last, f"{layer}.running_mean" in state))
    model.load_state_dict(state)


def narrowed(model, width, classes=CLASSES):
    """The same network with fewer channels; those of the image and of the answer stay."""
    of = lambda channels: -(-channels * width // 64)
    for parent in model.modules():
        for name, layer in parent.named_children():
            if isinstance(layer, nn.Conv2d):
                inputs = layer.in_channels if layer.in_channels == 3 else of(layer.in_channels)
                outputs = layer.out_channels if layer.out_channels == classes else of(layer.out_channels)
                new = nn.Conv2d(inputs, outputs, layer.kernel_size, layer.stride, layer.padding,
                                bias=layer.bias is not None)
            elif isinstance(layer, nn.BatchNorm2d):
                new = nn.BatchNorm2d(of(layer.num_features), eps=layer.eps)
            elif isinstance(layer, nn.Linear):
                outputs = layer.out_features if layer.out_features == classes else of(layer.out_features)
                new = nn.Linear(of(layer.in_features), outputs)
            else:
                continue
            setattr(parent, name, new)
    return model


class Unit(nn.Module):
    def __init__(self, inputs, outputs, kernel, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Block(nn.Module):
    """A row of the table in figure 5 of Ioffe and Szegedy 2015."""

    def __init__(self, inputs, one, before, three, before_two, two, pool, largest):
        super().__init__()
        stride = 2 if one == 0 else 1
        if one:
            self.branch1 = Unit(inputs, one, 1)
        self.branch2 = nn.Sequential(Unit(inputs, before, 1), Unit(before, three, 3, stride))
        self.branch3 = nn.Sequential(Unit(inputs, before_two, 1), Unit(before_two, two, 3), Unit(two, two, 3, stride))
        if one == 0:
            self.branch4 = nn.MaxPool2d(3, 2, 1)
        else:
            mean = nn.MaxPool2d(3, 1, 1) if largest else nn.AvgPool2d(3, 1, 1)
            self.branch4 = nn.Sequential(mean, Unit(inputs, pool, 1))
        self.outputs = one + three + two + (inputs if one == 0 else pool)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.children()], 1)


class InceptionV2(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv1 = Unit(3, 64, 7, 2)
        self.conv2 = Unit(64, 64, 1)
        self.conv3 = Unit(64, 192, 3)
        inputs = 192
        for name, row in [
            ("3a", [64, 64, 64, 64, 96, 32, False]), ("3b", [64, 64, 96, 64, 96, 64, False]),
            ("3c", [0, 128, 160, 64, 96, 0, True]), ("4a", [224, 64, 96, 96, 128, 128, False]),
            ("4b", [192, 96, 128, 96, 128, 128, False]), ("4c", [160, 128, 160, 128, 160, 128, False]),
            ("4d", [96, 128, 192, 160, 192, 128, False]), ("4e", [0, 128, 192, 192, 256, 0, True]),
            ("5a", [352, 192, 320, 160, 224, 128, False]), ("5b", [352, 192, 320, 192, 224, 128, True]),
        ]:
            block = Block(inputs, *row)
            inputs = block.outputs
            setattr(self, f"inception{name}", block)
        self.fc = nn.Linear(inputs, num_classes)

    def forward(self, x):
        x = F.max_pool2d(self.conv1(x), 3, 2, 1)
        x = F.max_pool2d(self.conv3(self.conv2(x)), 3, 2, 1)
        for name, block in self.named_children():
            if name.startswith("inception"):
                x = block(x)
        return self.fc(x.mean((2, 3)))


class SegNet(nn.Module):
    """Torchvision's vgg16_bn, whose poolings return positions, and its mirrored decoder."""

    def __init__(self, num_classes):
        super().__init__()
        self.features = torchvision.models.vgg16_bn().features
        for number, channels in [(5, [512] * 4), (4, [512] * 3 + [256]), (3, [256] * 3 + [128]), (2, [128, 128, 64]),
                                 (1, [64, 64])]:
            layers = []
            for inputs, outputs in zip(channels, channels[1:]):
                layer = nn.Module()
                layer.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
                layer.bn = nn.BatchNorm2d(outputs)
                layers.append(layer)
            setattr(self, f"decoder{number}", nn.ModuleList(layers))
        self.classifier = nn.Conv2d(64, num_classes, 3, padding=1)

    def forward(self, x):
        pooled = []
        for layer in self.features:
            if isinstance(layer, nn.MaxPool2d):
                size = x.shape[2:]
                x, places = F.max_pool2d(x, 2, 2, ceil_mode=True, return_indices=True)
                pooled.append((places, size))
            else:
                x = layer(x)
        for number in range(5, 0, -1):
            places, size = pooled.pop()
            x = F.max_unpool2d(x, places, 2, 2, output_size=size)
            for layer in getattr(self, f"decoder{number}"):
                x = F.relu(layer.bn(layer.conv(x)))
        return self.classifier(x)


models = torchvision.models
# The network, its batch and images when narrow, and the side of its images at full size.
NETWORKS = {
    "alexnet": (lambda n: models.alexnet(num_classes=n), [3, 79, 95], 224),
    "vgg-16": (lambda n: models.vgg16(num_classes=n), [2, 64, 48], 224),
    "googlenet": (lambda n: models.googlenet(num_classes=n, init_weights=False), [4, 64, 72], 224),
    "inception-v2": (InceptionV2, [4, 64, 72], 224),
    "inception-v3": (lambda n: models.inception_v3(num_classes=n, init_weights=False), [2, 299, 347], 299),
    "resnet-18": (lambda n: models.resnet18(num_classes=n), [4, 64, 72], 224),
    "resnet-50": (lambda n: models.resnet50(num_classes=n), [4, 64, 72], 224),
    "segnet": (SegNet, [2, 48, 80], 96),
}
# Weights of the losses of auxiliary heads in training.
HEADS = {"googlenet": [1.0, 0.3, 0.3], "inception-v3": [1.0, 0.4]}


def batch_of(network, batch, rows, columns, drawn="input"):
    images = uniform(drawn, (batch, 3, rows, columns)).to(torch.float32)
    shape = (batch, rows, columns) if network == "segnet" else (batch,)
    labels = torch.from_numpy((hashed("labels", int(numpy.prod(shape))) % CLASSES).astype(numpy.int64)).reshape(shape)
    return images, labels


def computed(network, model, images, labels):
    """Answers of each head while training, the answer in evaluation, and gradients of all parameters."""
    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    model.eval()
    with torch.no_grad():
        evaluation = model(images)
    model.train()
    heads = model(images)
    if network == "googlenet":
        heads = [heads.logits, heads.aux_logits1, heads.aux_logits2]
    else:
        heads = list(heads) if isinstance(heads, tuple) else [heads]
    loss = sum(weight * F.cross_entropy(head, labels) for weight, head in zip(HEADS.get(network, [1.0]), heads))
    loss.backward()
    gradients = {name: one.grad for name, one in model.named_parameters()}
    return torch.stack(heads).detach(), evaluation, gradients


def line(key, tensor):
    flat = tensor.detach().flatten().to(torch.float64)
    sums = [(flat * sign(key, flat.numel(), seed)).sum().item() / flat.numel() ** 0.5 for seed in (1, 2)]
    shape = "x".join(str(size) for size in tensor.shape)
    return f"{key} {shape} {flat.abs().max().item():.9g} {sums[0]:.9g} {sums[1]:.9g}"


def narrow():
    lines = []
    for network, (build, shape, _) in NETWORKS.items():
        model = narrowed(build(CLASSES), NARROW)
        fill(model)
        images, labels = batch_of(network, *shape)
        training, evaluation, gradients = computed(network, model.double(), images.double(), labels)
        lines.append("network " + " ".join(str(part) for part in [network, *shape]))
        lines += [line("training", training), line("evaluation", evaluation)]
        lines += [line(name, gradient) for name, gradient in gradients.items()]
    return lines


def main():
    if "--full" in sys.argv:
        from shared import full

        sys.exit(0 if full.compare(sys.argv[1:]) else 1)
    lines = narrow()
    if "--check" not in sys.argv:
        with open(TARGET, "w") as file:
            file.write("\n".join(lines) + "\n")
        return
    with open(TARGET) as file:
        known = file.read().splitlines()
    # A value that is 0 except for roundings of f64, for example the gradient of a bias before batch norm, is noise and
    # is compared with the largest.
    numbers = lambda text: [float(word) for word in text.split()[2:]]
    largest = max(numbers(text)[0] for text in known if not text.startswith("network"))

    def agree(a, b):
        if a.split()[:2] != b.split()[:2] or a.startswith("network"):
            return a == b
        return all(abs(x - y) <= max(1e-7 * numbers(a)[0], 1e-12 * largest) for x, y in zip(numbers(a), numbers(b)))

    same = len(known) == len(lines) and all(map(agree, known, lines))
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
