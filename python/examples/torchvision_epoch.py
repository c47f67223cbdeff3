"""A loop with the arguments of torchvision's references, where a scaler is passed, on a ResNet of torchvision with random
weights and made-up images."""

import torch
from torch import nn
from torchvision.models import ResNet
from torchvision.models.resnet import BasicBlock

from gradscale.torch import GradScaler  # 1


def train_one_epoch(model, criterion, optimizer, data_loader, device, scaler=None, clip_grad_norm=None):
    model.train()
    total = 0.0
    for image, target in data_loader:
        with torch.autocast(device, torch.float16, enabled=scaler is not None):
            loss = criterion(model(image), target)
        optimizer.zero_grad()
        if scaler is not None:
            scaler.scale(loss).backward()
            if clip_grad_norm is not None:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), clip_grad_norm)
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            if clip_grad_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip_grad_norm)
            optimizer.step()
        total += loss.item()
    return total / len(data_loader)


def main(epochs=3):
    torch.manual_seed(0)
    patterns, labels = torch.randn(4, 3, 32, 32), torch.arange(64) % 4
    images = patterns[labels] + torch.randn(64, 3, 32, 32)
    loader = list(zip(images.split(16), labels.split(16)))
    model = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    scaler = GradScaler("cpu", model=model)  # 2
    losses = [train_one_epoch(model, nn.CrossEntropyLoss(label_smoothing=0.1), optimizer, loader, "cpu", scaler, 5.0) for _ in range(epochs)]
    print(scaler.scaling.report())  # 3
    print(f"losses {losses} after {scaler.scaling.steps} steps")
    return losses, scaler.scaling


if __name__ == "__main__":
    main()
