#!/usr/bin/env python3
"""Writes the files in this folder: weights of small PyTorch models, and the outputs of these models.

usage: make.py   (needs torch and safetensors; the committed files were written with 2.15.0 and 0.8.0)

NAME.safetensors has the model's state_dict as users save it, NAME-answer.safetensors an input (NHWC) and the output
(NHWC), computed in f64 from the saved weights.
"""
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[3] / "scripts"))
from torch_segnet import SegNet


class Small(nn.Module):
    """Every kind of layer, under names that are not ours."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 4, 3, stride=2, padding=1, bias=False),
            nn.GroupNorm(2, 4),
        )
        self.head = nn.Linear(4 * 2 * 3, 5)

    def forward(self, x):
        return self.head(torch.flatten(self.features(x), 1))


class Block(nn.Module):
    """Residual block of `src/models/resnet.rs`."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if inputs != outputs or stride != 1:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """ResNet-8; names as torchvision's."""

    def __init__(self, width, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = nn.Sequential(Block(width, width, 1))
        self.layer2 = nn.Sequential(Block(width, 2 * width, 2))
        self.layer3 = nn.Sequential(Block(2 * width, 4 * width, 2))
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(torch.relu(self.bn1(self.conv1(x))))))
        return self.fc(x.mean((2, 3)))


def channels_last(x):
    return (x.permute(0, 2, 3, 1) if x.dim() == 4 else x).float().contiguous()


def write(name, model, size, dtype=torch.float32):
    # Affine parameters and statistics that are not those of the beginning.
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    model.train()
    with torch.no_grad():
        for _ in range(5):
            model(3 * torch.randn(4, *size) + 1)
        state = {key: value.to(dtype) if value.is_floating_point() else value for key, value in model.state_dict().items()}
        save_file(state, HERE / f"{name}.safetensors")
        model.double().load_state_dict(state)
        model.eval()
        x = (3 * torch.randn(2, *size) + 1).float()
        y = model(x.double())
        save_file({"input": channels_last(x), "output": channels_last(y)}, HERE / f"{name}-answer.safetensors")


def main():
    torch.manual_seed(20)
    for name, dtype in [("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16), ("f64", torch.float64)]:
        write(f"small-{name}", Small(), (3, 8, 12), dtype)
    write("segnet", SegNet(4, 3), (3, 19, 21))
    write("resnet", ResNet(4, 5), (3, 12, 16))


main()
